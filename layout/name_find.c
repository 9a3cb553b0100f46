/* SPDX-License-Identifier: Apache-2.0 */
/* From file names back to what they stand for: names.h reads those that are not cut, here is the
 * search for the others. */
#include <errno.h>

#include "layout/names.h"
#include "layout/tree.h"

int collection_name_find(struct layout *layout, const char *name, struct buffer *ret_collection)
{
	_cleanup_(buffer_free) struct buffer start = {0}, own = {0};
	uint32_t count = store_collection_count(layout->store);

	int rc = name_collection_read(name, ret_collection);
	if (rc != -EINVAL)
		return rc;
	rc = name_collection_read_cut(name, &start);
	for (uint32_t id = 1; id <= count && rc == 0; id++) {
		struct bytes collection = store_collection_name(layout->store, id);
		if (!bytes_start_with(collection, buffer_bytes(&start)))
			continue;
		own.n = 0;
		rc = name_collection_write(collection, &own);
		if (rc == 0 && bytes_equal(buffer_bytes(&own), bytes_of(name)))
			return buffer_add_bytes(ret_collection, collection);
	}
	return rc < 0 ? rc : -ENOENT;
}

/* A new document that nobody has written to yet is no document of the store. */
static int find_draft(struct layout *layout, uint32_t collection, const char *name,
		      struct buffer *ret_key)
{
	struct drafts *drafts = &layout->drafts;
	int rc = -ENOENT;

	pthread_mutex_lock(&drafts->lock);
	const struct draft *draft = drafts_find_name(drafts, collection, name);
	if (draft && draft->is_document)
		rc = buffer_add_bytes(ret_key, buffer_bytes(&draft->key));
	pthread_mutex_unlock(&drafts->lock);
	return rc;
}

/* The key among those that begin with `start` whose name this is. */
static int search(struct store_document_cursor *cursor, struct bytes collection, struct bytes start,
		  struct bytes name, struct buffer *ret_key, struct error *error)
{
	_cleanup_(buffer_free) struct buffer own = {0};
	struct store_document document;
	struct bytes key;
	int rc;

	store_document_cursor_seek(cursor, start);
	while ((rc = store_document_cursor_next(cursor, &key, &document, error)) > 0 &&
	       bytes_start_with(key, start)) {
		own.n = 0;
		rc = name_document_write(collection, key, &own);
		if (rc < 0)
			return rc;
		if (bytes_equal(buffer_bytes(&own), name))
			return buffer_add_bytes(ret_key, key);
	}
	return rc < 0 ? rc : -ENOENT;
}

int document_name_find(struct layout *layout, uint32_t collection, const char *name,
		       struct buffer *ret_key, struct error *error)
{
	struct bytes collection_name = store_collection_name(layout->store, collection);
	_cleanup_(buffer_free) struct buffer start = {0};
	struct store_document_cursor *cursor = NULL;

	int rc = name_document_read(collection_name, name, ret_key);
	if (rc != -EINVAL)
		return rc;
	rc = name_document_read_cut(collection_name, name, &start);
	if (rc < 0)
		return rc;
	rc = find_draft(layout, collection, name, ret_key);
	if (rc != -ENOENT)
		return rc;
	rc = store_document_cursor_open(layout->store, collection, &cursor, error);
	if (rc < 0)
		return rc;
	rc = search(cursor, collection_name, buffer_bytes(&start), bytes_of(name), ret_key, error);
	store_document_cursor_close(cursor);
	return rc;
}
