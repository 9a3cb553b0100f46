/* SPDX-License-Identifier: Apache-2.0 */
/* From a node back to its path. */
#include <errno.h>

#include "layout/names.h"
#include "layout/tree.h"

/* A node's own name. */
static int add_name(struct layout *layout, const struct node *node, struct buffer *path)
{
	char digits[64];

	switch (row_of(node)) {
	case ROW_COLLECTION:
	case ROW_DOCUMENTS:
		return name_collection_write(store_collection_name(layout->store, node->collection),
					     path);
	case ROW_GROUP:
		return group_name_write(layout, node->collection, path);
	case ROW_FEED_EVENT:
	case ROW_EVENT:
	case ROW_PENDING_EVENT:
	case ROW_DEAD_LETTER:
	case ROW_OPS_EVENT:
		name_sequence_write(node->number, ".json", digits);
		return buffer_add_bytes(path, bytes_of(digits));
	case ROW_DOCUMENT:
		return name_document_write(store_collection_name(layout->store, node->collection),
					   node_text(node), path);
	case ROW_SCRATCH:
		return data_scratch_name(layout, node, path);
	case ROW_IN_WAL2JSON_AT:
		if (buffer_printf(path, "wal2json@") < 0)
			return -ENOMEM;
		return name_collection_write(node_text(node), path);
	default:
		return buffer_add_bytes(path, bytes_of(node->row->name ? node->row->name
								       : node->row->shown));
	}
}

int layout_path(struct layout *layout, const struct node *node, struct buffer *ret_path)
{
	struct node parent = {.row = &node_rows[node->row->parent], .collection = node->collection};
	struct store_event_info info;

	if (node->row->parent == ROW_NONE)
		return ret_path->n ? 0 : buffer_add(ret_path, "/", 1);
	if (row_of(node) == ROW_EVENT &&
	    store_event_get(layout->store, node->number, &info, NULL, NULL) == 0)
		parent.collection = info.collection;
	if (parent.row->parent != ROW_NONE) {
		int rc = layout_path(layout, &parent, ret_path);
		if (rc < 0)
			return rc;
	}
	if (buffer_add(ret_path, "/", 1) < 0)
		return -ENOMEM;
	return add_name(layout, node, ret_path);
}
