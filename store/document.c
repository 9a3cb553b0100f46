/* SPDX-License-Identifier: Apache-2.0 */
/* The newest value of each key. */
#include <errno.h>
#include <stdlib.h>

#include "store/internal.h"

static int parse(struct bytes value, struct store_document *ret_document, struct error *error)
{
	if (value.n < STATE_VALUE_HEAD)
		return error_set(error, -EBADMSG, "a document's record is cut");
	*ret_document = (struct store_document){
		.sequence = get_le64(value.p),
		.timestamp_ms = (int64_t)get_le64(value.p + 8),
		.size = value.n - STATE_VALUE_HEAD,
	};
	return 0;
}

/* 1 if a table has it, 0 if the database is to be asked; -ENOENT, -ENOMEM. */
static int get_from_tables(struct store *store, uint32_t collection, struct bytes key,
			   struct store_document *ret_document, struct buffer *text)
{
	struct table_entry e;

	documents_lock(store);
	int rc = documents_find(store, collection, key, &e);
	if (rc && !e.text.p)
		rc = -ENOENT;
	if (rc > 0) {
		*ret_document = (struct store_document){e.sequence, e.timestamp_ms, e.text.n};
		if (text && buffer_add_bytes(text, e.text) < 0)
			rc = -ENOMEM;
	}
	documents_unlock(store);
	return rc;
}

int store_document_get(struct store *store, uint32_t collection, struct bytes key,
		       struct store_document *ret_document, struct buffer *text,
		       struct error *error)
{
	char name[KEY_STATE_MAX];
	struct db_value value = {0};

	if (key.n > STORE_KEY_MAX)
		return -ENOENT;
	int known = get_from_tables(store, collection, key, ret_document, text);
	if (known)
		return known < 0 ? known : 0;
	struct bytes k = {name, key_state_write(collection, key, 0, name)};
	int rc = db_get(store->db, DB_STATE, k, &value, error);
	if (rc < 0)
		return rc;
	rc = parse(value.bytes, ret_document, error);
	if (rc == 0 && text)
		rc = buffer_add(text, value.bytes.p + STATE_VALUE_HEAD,
				value.bytes.n - STATE_VALUE_HEAD);
	db_value_free(&value);
	return rc;
}

struct store_document_cursor {
	struct db_iterator *it;
	uint32_t collection;
	char key[STORE_KEY_MAX];
	struct bytes found; /* the key that the iterator stands on */
	bool started;	    /* and that was given */
	/* When the disk is full: changes that are not in the database (documents_view()). */
	struct table_entry *changes;
	size_t change_count, change;
	bool truncated;
};

int store_document_cursor_open(struct store *store, uint32_t collection,
			       struct store_document_cursor **ret_cursor, struct error *error)
{
	struct store_document_cursor *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	int rc = documents_settle(store, &c->it);
	if (rc < 0)
		rc = documents_view(store, collection, &c->it, &c->changes, &c->change_count,
				    &c->truncated);
	if (rc < 0) {
		free(c);
		return error_set(error, rc, "the documents cannot be listed");
	}
	c->collection = collection;
	store_document_cursor_seek(c, (struct bytes){0});
	*ret_cursor = c;
	return 0;
}

/* The next one that the database has: 1, 0 at the end. */
static int next_in_database(struct store_document_cursor *c, struct bytes *ret_value,
			    struct error *error)
{
	struct bytes k;
	uint32_t collection;
	uint64_t version;

	if (c->truncated)
		return 0;
	for (;; c->started = true) {
		if (c->started)
			db_iterator_next(c->it);
		int rc = db_iterator_get(c->it, &k, ret_value, error);
		if (rc <= 0)
			return rc;
		c->found.p = c->key;
		if (!key_state_read(k, &collection, c->key, &c->found.n, &version))
			return error_set(error, -EBADMSG, "a document's key is malformed");
		if (collection != c->collection)
			return 0;
		if (version == 0)
			break;
	}
	c->started = false; /* it is not given yet */
	return 1;
}

int store_document_cursor_next(struct store_document_cursor *cursor, struct bytes *ret_key,
			       struct store_document *ret_document, struct error *error)
{
	struct bytes value = {0};

	for (;;) {
		int there = next_in_database(cursor, &value, error);
		if (there < 0)
			return there;
		bool more = cursor->change < cursor->change_count;
		if (!there && !more)
			return 0;
		int order = !more    ? 1
			    : !there ? -1
				     : bytes_compare(cursor->changes[cursor->change].key,
						     cursor->found);
		cursor->started = order >= 0;
		if (order > 0) {
			*ret_key = cursor->found;
			int rc = parse(value, ret_document, error);
			return rc < 0 ? rc : 1;
		}
		const struct table_entry *e = &cursor->changes[cursor->change++];
		if (!e->text.p)
			continue; /* it is deleted */
		*ret_key = e->key;
		*ret_document = (struct store_document){e->sequence, e->timestamp_ms, e->text.n};
		return 1;
	}
}

void store_document_cursor_seek(struct store_document_cursor *cursor, struct bytes key)
{
	char name[KEY_STATE_MAX];
	size_t n = 4;

	if (key.p)
		n = key_state_write(cursor->collection, key, 0, name);
	else
		put_be32(name, cursor->collection);
	db_iterator_seek(cursor->it, (struct bytes){name, n});
	cursor->started = false;
	cursor->change = 0;
	while (key.p && cursor->change < cursor->change_count &&
	       bytes_compare(cursor->changes[cursor->change].key, key) < 0)
		cursor->change++;
}

void store_document_cursor_close(struct store_document_cursor *cursor)
{
	if (!cursor)
		return;
	db_iterator_close(cursor->it);
	free(cursor->changes);
	free(cursor);
}
