/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A table of changed documents in memory: a hash table over one arena of bytes. It only grows;
 * a newer change of a key takes the place of the older one. Locks are its owner's.
 */
#include "store/base.h"

struct table_entry {
	uint64_t hash;
	uint32_t collection;
	bool binary; /* the text is not UTF-8 */
	struct bytes key;
	struct bytes text; /* absent: the document is deleted */
	uint64_t sequence;
	int64_t timestamp_ms;
};

struct table {
	struct table_entry *entries;
	size_t count, capacity;
	uint32_t *slots; /* entry number + 1 */
	size_t slot_count;
	char **chunks;
	size_t chunk_count, chunk_capacity;
	char *chunk_free; /* the rest of the last chunk */
	size_t chunk_left;
	size_t bytes; /* of memory */
	/* Collections whose older documents are all gone. */
	uint32_t *truncated;
	size_t truncated_count, truncated_capacity;
	uint64_t last_sequence; /* of the newest change */
};

void table_free(struct table *t);

/* NULL if the table has no change of it. Borrowed until the next change. */
const struct table_entry *table_find(const struct table *t, uint32_t collection, struct bytes key);
bool table_is_truncated(const struct table *t, uint32_t collection);

/* Copies the entry (its hash is computed here). 0 or -ENOMEM. */
int table_put(struct table *t, const struct table_entry *entry);
int table_truncate(struct table *t, uint32_t collection, uint64_t sequence);

/* The entries in the order of (collection, key); caller frees the array. NULL: no memory. */
const struct table_entry **table_sorted(const struct table *t);

/* Puts entries in that order. */
void table_entries_sort(struct table_entry *entries, size_t count);

uint64_t document_hash(uint32_t collection, struct bytes key);
