/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings. An entry's cookie is the row that listed it and the place in that row's list, so that
 * it stays true whatever is added or trimmed: for events the place is the sequence.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout/tree.h"

#define COOKIE_DOT     1
#define COOKIE_DOT_DOT 2
#define PLACE_BITS     54

static uint64_t cookie_of(enum row_id row, uint64_t place)
{
	return (uint64_t)row << PLACE_BITS | place;
}

static void drop_cursors(struct directory *d)
{
	store_event_cursor_close(d->events);
	store_document_cursor_close(d->documents);
	buffer_free(&d->marks);
	free(d->mark_offsets);
	free(d->pending);
	d->pending = NULL;
	d->events = NULL;
	d->documents = NULL;
	d->mark_offsets = NULL;
	d->mark_count = 0;
	d->documents_at = 0;
	d->last_record = 0;
}

static void freeze(struct directory *d)
{
	drop_cursors(d);
	d->collections = store_collection_count(d->layout->store);
	d->last_sequence = store_last_sequence(d->layout->store);
	d->last_draft = drafts_last_id(&d->layout->drafts);
}

int layout_directory_open(struct layout *layout, const struct node *node,
			  struct directory **ret_directory, struct error *error)
{
	if (!(node->row->flags & NODE_DIRECTORY))
		return -ENOTDIR;
	struct directory *d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->layout = layout;
	d->node = *node; /* directories have no text */
	freeze(d);
	*ret_directory = d;
	return 0;
}

void layout_directory_close(struct directory *directory)
{
	if (!directory)
		return;
	drop_cursors(directory);
	buffer_free(&directory->name);
	free(directory);
}

static void dot_entry(struct directory *d, uint64_t cookie, struct directory_entry *ret_entry,
		      struct node *ret_node)
{
	struct node node = d->node;

	strcpy(ret_entry->name, cookie == COOKIE_DOT ? "." : "..");
	if (cookie == COOKIE_DOT_DOT && d->node.row->parent != ROW_NONE)
		node = (struct node){.row = &node_rows[d->node.row->parent]};
	ret_entry->ino = node_fixed_id(&node);
	ret_entry->type = S_IFDIR;
	ret_entry->cookie = cookie;
	if (ret_node)
		*ret_node = (struct node){0};
}

static bool is_listed(const struct directory *d, enum row_id row)
{
	const struct node_row *r = &node_rows[row];

	if (!row || r->parent != row_of(&d->node) || r->unlisted)
		return false;
	return !(d->layout->options.no_streams && (r->flags & NODE_LINK));
}

/* The entry behind `place` of one row. 1, 0 when the row has no more. */
static int next_in_row(struct directory *d, const struct node_row *row, uint64_t place,
		       struct listed *ret_listed, struct error *error)
{
	ret_listed->node = (struct node){.row = row, .collection = d->node.collection};
	if (row->list)
		return row->list(d, place, ret_listed, error);
	if (place || !row->name)
		return 0;
	ret_listed->place = 1;
	return buffer_add_bytes(&ret_listed->name, bytes_of(row->name)) < 0 ? -ENOMEM : 1;
}

static uint64_t ino_of(const struct node *node)
{
	uint64_t id = node_fixed_id(node);

	if (id)
		return id;
	if (row_of(node) == ROW_DOCUMENT)
		return ino_of_text(ROW_DOCUMENT, node->collection, node_text(node));
	if (row_of(node) == ROW_SCRATCH)
		return ino_of_draft(node->number);
	if (row_of(node) == ROW_PENDING_EVENT)
		return ino_of_text(ROW_PENDING_EVENT, node->collection,
				   (struct bytes){(const char *)&node->number, 8});
	return cookie_of(row_of(node), node->collection);
}

/* Nodes of named rows are completed by a lookup, the others are whole already; but for what is
 * rendered, which is left to who looks at it. */
static int complete(struct directory *d, struct listed *listed, struct node *ret_node,
		    struct stat *ret_stat, struct error *error)
{
	const struct node_row *row = listed->node.row;
	struct layout *layout = d->layout;
	int rc;

	*ret_node = (struct node){0};
	if (!row->name && (row->flags & (NODE_FRESH | NODE_CONTENT)) == NODE_FRESH)
		return 0;
	if (row->name)
		rc = layout_lookup(layout, &d->node, row->name, ret_node, ret_stat, error);
	else
		rc = layout_stat(layout, &listed->node, NULL, ret_stat, error);
	if (rc == -ENOENT)
		return 0;
	if (rc == 0 && !row->name)
		node_move(ret_node, &listed->node);
	return rc;
}

static int give(struct directory *d, struct listed *listed, struct directory_entry *ret_entry,
		struct node *ret_node, struct stat *ret_stat, struct error *error)
{
	if (listed->name.n >= sizeof(ret_entry->name))
		return -ENAMETOOLONG;
	memcpy(ret_entry->name, listed->name.p, listed->name.n);
	ret_entry->name[listed->name.n] = 0;
	ret_entry->type = listed->node.row->mode & S_IFMT;
	ret_entry->ino = ino_of(&listed->node);
	return ret_node ? complete(d, listed, ret_node, ret_stat, error) : 0;
}

int layout_directory_next(struct directory *directory, uint64_t cookie,
			  struct directory_entry *ret_entry, struct node *ret_node,
			  struct stat *ret_stat, struct error *error)
{
	struct listed listed = {.name = directory->name};
	uint64_t row = cookie >> PLACE_BITS;
	uint64_t place = cookie & ((UINT64_C(1) << PLACE_BITS) - 1);
	int rc = 0;

	listed.name.n = 0;
	if (cookie == 0)
		freeze(directory);
	if (cookie < COOKIE_DOT_DOT) {
		dot_entry(directory, cookie + 1, ret_entry, ret_node);
		return 1;
	}
	if (row == 0)
		place = 0;
	for (; row < ROWS && rc == 0; row += rc == 0, place = 0) {
		if (is_listed(directory, (enum row_id)row))
			rc = next_in_row(directory, &node_rows[row], place, &listed, error);
		if (rc > 0)
			break;
	}
	if (rc > 0) {
		ret_entry->cookie = cookie_of((enum row_id)row, listed.place);
		int given = give(directory, &listed, ret_entry, ret_node, ret_stat, error);
		rc = given < 0 ? given : 1;
	}
	node_free(&listed.node);
	directory->name = listed.name;
	return rc;
}
