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
	bool started; /* the iterator stands on what was given last */
};

int store_document_cursor_open(struct store *store, uint32_t collection,
			       struct store_document_cursor **ret_cursor, struct error *error)
{
	struct store_document_cursor *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	int rc = documents_settle(store, &c->it);
	if (rc < 0) {
		free(c);
		return error_set(error, rc, "the documents cannot be written to the disk");
	}
	c->collection = collection;
	store_document_cursor_seek(c, (struct bytes){0});
	*ret_cursor = c;
	return 0;
}

int store_document_cursor_next(struct store_document_cursor *cursor, struct bytes *ret_key,
			       struct store_document *ret_document, struct error *error)
{
	struct bytes k, v;
	uint32_t collection;
	uint64_t version;
	int rc;

	for (;; cursor->started = true) {
		if (cursor->started)
			db_iterator_next(cursor->it);
		rc = db_iterator_get(cursor->it, &k, &v, error);
		if (rc <= 0)
			return rc;
		if (!key_state_read(k, &collection, cursor->key, &ret_key->n, &version))
			return error_set(error, -EBADMSG, "a document's key is malformed");
		if (collection != cursor->collection)
			return 0;
		if (version == 0)
			break;
	}
	cursor->started = true;
	ret_key->p = cursor->key;
	rc = parse(v, ret_document, error);
	return rc < 0 ? rc : 1;
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
}

void store_document_cursor_close(struct store_document_cursor *cursor)
{
	if (!cursor)
		return;
	db_iterator_close(cursor->it);
	free(cursor);
}
