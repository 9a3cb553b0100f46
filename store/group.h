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
	bool sync;
	bool done;
};

/* Commits a list of batches in their order; each gets its rc, its error and its sequences. A batch
 * that cannot be taken fails alone. Only the leader calls this. */
void group_commit(struct store *store, struct waiter *list);
