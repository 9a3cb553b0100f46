/* SPDX-License-Identifier: Apache-2.0 */
#include "store/table.h"

#include <errno.h>
#include <stdlib.h>

#define CHUNK_SIZE ((size_t)1 << 20)

/* Eight bytes at a time, each multiplied and folded (the constants are from splitmix64). */
uint64_t document_hash(uint32_t collection, struct bytes key)
{
	uint64_t h = ((uint64_t)collection << 32 | key.n) * UINT64_C(0x9e3779b97f4a7c15), word;
	size_t i = 0;

	h ^= h >> 32; /* so that a key's first bytes cannot cancel the collection */

	for (; i + 8 <= key.n; i += 8) {
		memcpy(&word, key.p + i, 8);
		h = (h ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
		h ^= h >> 29;
	}
	word = 0;
	memcpy(&word, key.p + i, key.n - i);
	h = (h ^ word) * UINT64_C(0x94d049bb133111eb);
	return h ^ h >> 31;
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->chunk_count; i++)
		free(t->chunks[i]);
	free(t->chunks);
	free(t->entries);
	free(t->slots);
	free(t->truncated);
	*t = (struct table){0};
}

/* The slot of that key, or the free one where it belongs. */
static uint32_t *find_slot(const struct table *t, uint64_t hash, uint32_t collection,
			   struct bytes key)
{
	for (size_t i = hash & (t->slot_count - 1);; i = (i + 1) & (t->slot_count - 1)) {
		uint32_t n = t->slots[i];
		if (!n)
			return &t->slots[i];
		const struct table_entry *e = &t->entries[n - 1];
		if (e->hash == hash && e->collection == collection && bytes_equal(e->key, key))
			return &t->slots[i];
	}
}

static int grow(struct table *t)
{
	size_t capacity = t->capacity ? t->capacity * 2 : 1024;
	struct table_entry *entries = realloc(t->entries, capacity * sizeof(*entries));
	uint32_t *slots = calloc(capacity * 2, sizeof(*slots));

	if (entries)
		t->entries = entries;
	if (!entries || !slots) {
		free(slots);
		return -ENOMEM;
	}
	free(t->slots);
	t->slots = slots;
	t->slot_count = capacity * 2;
	t->bytes += (capacity - t->capacity) * (sizeof(*entries) + 2 * sizeof(*slots));
	t->capacity = capacity;
	for (size_t i = 0; i < t->count; i++) {
		size_t slot = t->entries[i].hash & (t->slot_count - 1);
		while (t->slots[slot])
			slot = (slot + 1) & (t->slot_count - 1);
		t->slots[slot] = (uint32_t)i + 1;
	}
	return 0;
}

/* Room for n bytes that never move. */
static char *arena_take(struct table *t, size_t n)
{
	if (n > t->chunk_left || !t->chunk_free) { /* no bytes need a place too */
		size_t size = n > CHUNK_SIZE ? n : CHUNK_SIZE;
		if (t->chunk_count == t->chunk_capacity) {
			size_t capacity = t->chunk_capacity ? t->chunk_capacity * 2 : 32;
			char **chunks = realloc(t->chunks, capacity * sizeof(*chunks));
			if (!chunks)
				return NULL;
			t->chunks = chunks;
			t->chunk_capacity = capacity;
		}
		char *chunk = malloc(size);
		if (!chunk)
			return NULL;
		t->chunks[t->chunk_count++] = chunk;
		t->bytes += size;
		t->chunk_free = chunk;
		t->chunk_left = size;
	}
	char *p = t->chunk_free;
	t->chunk_free += n;
	t->chunk_left -= n;
	return p;
}

static int keep(struct table *t, struct bytes from, struct bytes *ret_kept)
{
	*ret_kept = (struct bytes){0};
	if (!from.p)
		return 0;
	char *p = arena_take(t, from.n);
	if (!p)
		return -ENOMEM;
	memcpy(p, from.p, from.n);
	*ret_kept = (struct bytes){p, from.n};
	return 0;
}

const struct table_entry *table_find(const struct table *t, uint32_t collection, struct bytes key)
{
	if (!t->count)
		return NULL;
	uint32_t n = *find_slot(t, document_hash(collection, key), collection, key);
	return n ? &t->entries[n - 1] : NULL;
}

bool table_is_truncated(const struct table *t, uint32_t collection)
{
	for (size_t i = 0; i < t->truncated_count; i++)
		if (t->truncated[i] == collection)
			return true;
	return false;
}

int table_put(struct table *t, const struct table_entry *entry)
{
	struct bytes text, key = {0};

	if (t->count == t->capacity && grow(t) < 0)
		return -ENOMEM;
	if (keep(t, entry->text, &text) < 0)
		return -ENOMEM;
	uint64_t hash = document_hash(entry->collection, entry->key);
	uint32_t *slot = find_slot(t, hash, entry->collection, entry->key);
	if (!*slot && keep(t, entry->key, &key) < 0)
		return -ENOMEM;
	if (!*slot)
		*slot = (uint32_t)++t->count;
	else
		key = t->entries[*slot - 1].key;
	t->entries[*slot - 1] = *entry;
	t->entries[*slot - 1].hash = hash;
	t->entries[*slot - 1].key = key;
	t->entries[*slot - 1].text = text;
	t->last_sequence = entry->sequence;
	return 0;
}

int table_truncate(struct table *t, uint32_t collection, uint64_t sequence)
{
	if (!table_is_truncated(t, collection)) {
		if (t->truncated_count == t->truncated_capacity) {
			size_t capacity = t->truncated_capacity ? t->truncated_capacity * 2 : 8;
			uint32_t *more = realloc(t->truncated, capacity * sizeof(*more));
			if (!more)
				return -ENOMEM;
			t->truncated = more;
			t->truncated_capacity = capacity;
		}
		t->truncated[t->truncated_count++] = collection;
	}
	for (size_t i = 0; i < t->count; i++) {
		if (t->entries[i].collection != collection)
			continue;
		t->entries[i].text = (struct bytes){0};
		t->entries[i].sequence = sequence;
	}
	t->last_sequence = sequence;
	return 0;
}

static int compare_entries(const void *pa, const void *pb)
{
	const struct table_entry *a = pa, *b = pb;

	if (a->collection != b->collection)
		return a->collection < b->collection ? -1 : 1;
	return bytes_compare(a->key, b->key);
}

static int compare(const void *pa, const void *pb)
{
	return compare_entries(*(const struct table_entry *const *)pa,
			       *(const struct table_entry *const *)pb);
}

void table_entries_sort(struct table_entry *entries, size_t count)
{
	qsort(entries, count, sizeof(*entries), compare_entries);
}

const struct table_entry **table_sorted(const struct table *t)
{
	const struct table_entry **all = malloc((t->count + 1) * sizeof(*all));

	if (!all)
		return NULL;
	for (size_t i = 0; i < t->count; i++)
		all[i] = &t->entries[i];
	qsort(all, t->count, sizeof(*all), compare);
	return all;
}
