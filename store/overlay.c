/* SPDX-License-Identifier: Apache-2.0 */
#include "store/overlay.h"

#include <errno.h>
#include <stdlib.h>

#include "store/internal.h"

#define OVERLAY_CHUNK 256

void overlay_clear(struct overlay *o)
{
	for (size_t i = 0; i < o->count; i++)
		db_value_free(&o->entries[i].loaded);
	for (size_t i = 0; i < o->text_count; i++)
		free(o->texts[i]);
	for (size_t i = 0; i < o->count; i++) { /* not all slots: a small group after a large one */
		size_t slot = o->entries[i].hash & (o->slot_count - 1);
		while (o->slots[slot] != i + 1)
			slot = (slot + 1) & (o->slot_count - 1);
		o->slots[slot] = 0;
	}
	o->count = 0;
	o->text_count = 0;
}

void overlay_free(struct overlay *o)
{
	overlay_clear(o);
	free(o->entries);
	free(o->slots);
	free(o->texts);
	buffer_free(&o->keys);
	*o = (struct overlay){0};
}

/* The slot of that key, or the empty one where it belongs. */
static uint32_t *find_slot(struct overlay *o, uint64_t hash, uint32_t collection, struct bytes key)
{
	for (size_t i = hash & (o->slot_count - 1);; i = (i + 1) & (o->slot_count - 1)) {
		uint32_t n = o->slots[i];
		if (!n)
			return &o->slots[i];
		struct overlay_entry *e = &o->entries[n - 1];
		if (e->hash == hash && e->collection == collection && bytes_equal(e->key, key))
			return &o->slots[i];
	}
}

static int grow(struct overlay *o)
{
	size_t capacity = o->capacity ? o->capacity * 2 : 256;
	struct overlay_entry *entries = realloc(o->entries, capacity * sizeof(*entries));
	uint32_t *slots = calloc(capacity * 2, sizeof(*slots));

	if (entries)
		o->entries = entries;
	if (!entries || !slots) {
		free(slots);
		return -ENOMEM;
	}
	free(o->slots);
	o->capacity = capacity;
	o->slots = slots;
	o->slot_count = capacity * 2;
	for (size_t i = 0; i < o->count; i++) {
		struct overlay_entry *e = &o->entries[i];
		*find_slot(o, e->hash, e->collection, e->key) = (uint32_t)i + 1;
	}
	return 0;
}

int overlay_want(struct overlay *o, uint32_t collection, struct bytes key)
{
	if (o->count == o->capacity && grow(o) < 0)
		return -ENOMEM;
	uint64_t hash = document_hash(collection, key);
	uint32_t *slot = find_slot(o, hash, collection, key);
	if (*slot)
		return 0;
	o->entries[o->count] =
		(struct overlay_entry){.hash = hash, .collection = collection, .key = key};
	*slot = (uint32_t)++o->count;
	return 0;
}

static int take_loaded(struct overlay_entry *e, struct db_value value, struct error *error)
{
	struct bytes v = value.bytes;

	e->loaded = value;
	if (!v.p)
		return 0;
	if (v.n < STATE_VALUE_HEAD)
		return error_set(error, -EBADMSG, "a document's record is cut");
	e->current.text.p = v.p + STATE_VALUE_HEAD;
	e->current.text.n = v.n - STATE_VALUE_HEAD;
	e->current.binary = v.p[16] & STATE_FLAG_BINARY;
	e->current.sequence = get_le64(v.p);
	e->previous = e->current;
	return 0;
}

/* What a table in memory knows needs no look-up. */
static bool load_from_tables(struct store *store, struct overlay_entry *e)
{
	struct table_entry known;

	if (!documents_find(store, e->collection, e->key, &known))
		return false;
	e->current = e->previous = (struct document_text){known.text, known.binary, known.sequence};
	return true;
}

static int load_some(struct overlay *o, struct store *store, struct overlay_entry **wanted,
		     size_t n, struct error *error)
{
	struct bytes slices[OVERLAY_CHUNK];
	struct db_value values[OVERLAY_CHUNK];
	size_t room = 0;

	for (size_t k = 0; k < n; k++)
		room += 14 + 2 * wanted[k]->key.n;
	o->keys.n = 0;
	if (buffer_reserve(&o->keys, room) < 0)
		return -ENOMEM;
	for (size_t k = 0; k < n; k++) {
		slices[k].p = o->keys.p + o->keys.n;
		slices[k].n = key_state_write(wanted[k]->collection, wanted[k]->key, 0,
					      o->keys.p + o->keys.n);
		o->keys.n += slices[k].n;
	}
	int rc = db_get_many(store->db, DB_STATE, slices, n, values, error);
	for (size_t k = 0; k < n && rc == 0; k++) {
		rc = take_loaded(wanted[k], values[k], error);
		for (size_t rest = k + 1; rc < 0 && rest < n; rest++)
			db_value_free(&values[rest]);
	}
	return rc;
}

int overlay_load(struct overlay *o, struct store *store, struct error *error)
{
	struct overlay_entry *wanted[OVERLAY_CHUNK];
	size_t n = 0;
	int rc = 0;

	documents_lock(store);
	for (size_t i = 0; i < o->count && rc == 0; i++) {
		if (!load_from_tables(store, &o->entries[i]))
			wanted[n++] = &o->entries[i];
		if (n == OVERLAY_CHUNK || (n && i + 1 == o->count)) {
			rc = load_some(o, store, wanted, n, error);
			n = 0;
		}
	}
	documents_unlock(store);
	return rc;
}

struct overlay_entry *overlay_find(struct overlay *o, uint32_t collection, struct bytes key)
{
	if (!o->count)
		return NULL;
	uint32_t n = *find_slot(o, document_hash(collection, key), collection, key);
	return n ? &o->entries[n - 1] : NULL;
}

void overlay_set(struct overlay_entry *entry, struct document_text now)
{
	if (!entry)
		return;
	entry->previous = entry->current;
	entry->current = now;
}

void overlay_truncate(struct overlay *o, uint32_t collection)
{
	for (size_t i = 0; i < o->count; i++)
		if (o->entries[i].collection == collection)
			overlay_set(&o->entries[i], (struct document_text){0});
}

int overlay_keep(struct overlay *o, struct buffer *text, struct bytes *ret_text)
{
	if (o->text_count == o->text_capacity) {
		size_t capacity = o->text_capacity ? o->text_capacity * 2 : 16;
		char **texts = realloc(o->texts, capacity * sizeof(*texts));
		if (!texts)
			return -ENOMEM;
		o->texts = texts;
		o->text_capacity = capacity;
	}
	*ret_text = buffer_bytes(text);
	if (text->p)
		o->texts[o->text_count++] = text->p;
	*text = (struct buffer){0};
	return 0;
}
