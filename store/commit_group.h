/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The group of batches that one leader commits together. */
#include "store/internal.h"

struct waiter {
	struct store_batch *batch;
	struct error *error;
	struct waiter *next;
	pthread_cond_t wake; /* the commit is done, or its owner is to lead */
	struct store_committed committed;
	int rc;
	bool failed; /* alone; the group was made anew without it */
	bool sync;
	bool done;
};

/* Commits a list of batches in their order; each gets its rc, its error and its sequences. A batch
 * that cannot be taken fails alone. Only the leader calls this. */
void group_commit(struct store *store, struct waiter *list);

/* ---- commit_event.c ---- */

/* An event as it goes into the log: its slices, resolved. */
struct resolved {
	const struct store_batch *batch;
	const struct prepared *prepared;
	struct collection *collection;
	struct overlay_entry *entry; /* NULL if nobody needs its document */
	struct bytes value;
	struct bytes part;
	struct bytes quoted;
	struct bytes before; /* filled from the current document, else absent */
	bool base64;
	bool binary;
	bool partial;
};

/* The collection of that name, as one that this group writes. NULL: no memory. */
struct collection *group_touch(struct store *store, struct bytes name);
/* Says to the overlay which documents these events of a batch need. */
int group_want_documents(struct store *store, const struct store_batch *batch, size_t from,
			 size_t to);
/* Finds out all that an event's line and document are made of. */
int group_resolve(struct store *store, const struct store_batch *batch, const struct prepared *p,
		  struct resolved *ret_resolved, struct error *error);
/* Appends the line: {"sequence":N, the part, the snapshots, }\n. */
int group_render(struct store *store, const struct resolved *r, uint64_t sequence,
		 struct buffer *out);
