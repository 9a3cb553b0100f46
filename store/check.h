/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What the parts of `changefs check` share. */
#include "store/internal.h"

/* A collection, as the log tells it. */
struct tally {
	uint64_t position; /* of its next byte */
	uint64_t events;
	uint64_t last_sequence;
	uint64_t truncated; /* sequence of its newest TRUNCATE */
	bool seen;
	/* In the block under inspection. */
	uint64_t first;
	uint32_t count;
	uint64_t bytes;
};

/* A PUT whose document is not there: a later event has to have taken it away. */
struct orphan {
	uint64_t hash; /* of collection and key; 0: the slot is free */
	uint64_t sequence;
	uint32_t collection;
};

struct check {
	struct store *store;
	void (*report)(void *context, const char *fault);
	void *context;
	int faults;
	struct tally *tallies; /* by collection id; [0] is the whole log */
	uint32_t collections;
	uint64_t index_entries;
	struct orphan *orphans;
	size_t orphan_slots, orphan_count;
	struct buffer key, text, line; /* scratch */
};

void check_fault(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* From the log to the documents: called for every event in order, then once at the end. */
void check_event_document(struct check *c, const struct store_event_info *e, struct bytes line);
void check_orphans(struct check *c);
/* From the documents to the log. */
void check_documents(struct check *c);
void check_groups(struct check *c);
