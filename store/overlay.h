/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The documents as a group of commits sees them while it is being made: what the database holds,
 * looked up at once, and over it what the events of the group have done so far.
 */
#include "store/db.h"

struct store;

struct document_text {
	struct bytes text; /* absent: there is no document */
	bool binary;	   /* not UTF-8 */
	uint64_t sequence; /* of the event that wrote it */
};

struct overlay_entry {
	uint64_t hash;
	uint32_t collection;
	struct bytes key; /* borrowed from the batch */
	struct document_text current;
	struct document_text previous; /* before the last change in this group */
	struct db_value loaded;
};

struct overlay {
	struct overlay_entry *entries;
	size_t count, capacity;
	uint32_t *slots; /* entry number + 1 */
	size_t slot_count;
	char **texts; /* owned by the overlay */
	size_t text_count, text_capacity;
	struct buffer keys;
};

void overlay_clear(struct overlay *o);
void overlay_free(struct overlay *o);
/* Says that a document will be asked for. The key is borrowed until overlay_clear(). */
int overlay_want(struct overlay *o, uint32_t collection, struct bytes key);
/* Looks up all that is wanted. */
int overlay_load(struct overlay *o, struct store *store, struct error *error);
/* NULL if it was not wanted. */
struct overlay_entry *overlay_find(struct overlay *o, uint32_t collection, struct bytes key);
/* A change in the group. The text is borrowed until overlay_clear(). NULL entry: nothing to do. */
void overlay_set(struct overlay_entry *entry, struct document_text now);
void overlay_truncate(struct overlay *o, uint32_t collection);
/* Takes ownership of a buffer's bytes until overlay_clear(), and returns them. */
int overlay_keep(struct overlay *o, struct buffer *text, struct bytes *ret_text);
