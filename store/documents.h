/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The documents: what the log's events lead to. The log is what is written at a commit; a change of
 * a document goes into a table in memory, and a thread of its own moves full tables into the
 * database in the order of keys, many changes of one key as one. The record 'A' says up to which
 * sequence the database has all; after a crash the events behind it are replayed from the log.
 *
 * Lock order: documents.mutex, then documents.lock; nothing is taken below the latter.
 */
#include <pthread.h>

#include "store/table.h"

struct store;
struct db_iterator;

struct documents {
	pthread_rwlock_t lock;
	struct table *active;	/* changed by the leader, under the lock */
	struct table *settling; /* on its way into the database; NULL if none */
	struct table *retired;	/* it is there; freed by a leader, who might hold its texts */
	size_t table_bytes;	/* when a table is full */
	uint64_t log_bytes;	/* of the log since the active table was begun */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t wake;   /* for the thread: there is a table, or the end */
	pthread_cond_t done;   /* a table was moved, or that failed */
	bool running;
	bool ending;
	bool settled; /* no table is on its way */
	int failure;  /* errno of the last try, negative; 0 when it went well */
	pthread_t thread;
};

/* One change that a commit makes; the slices are borrowed until it is applied. */
struct document_change {
	struct table_entry entry; /* text absent: a DELETE */
	bool truncate;		  /* of the whole collection */
};

int documents_init(struct documents *d, size_t table_bytes);
/* Replays what the database lacks; then starts the thread, unless the store is read-only. */
int documents_start(struct store *store, struct error *error);
/* Moves everything into the database and ends the thread. */
int documents_end(struct store *store);
void documents_free(struct documents *d);

/* Leader only: makes the changes visible; log_bytes is what the commit added to the log. */
int documents_apply(struct store *store, const struct document_change *changes, size_t count,
		    uint64_t log_bytes);
/* Leader only: waits while there is no room for more changes. -ENOSPC and others: the tables
 * cannot be moved into the database. */
int documents_wait_for_room(struct store *store);
/* Bytes that are still to be written to the database. */
uint64_t documents_pending_bytes(struct store *store);

/*
 * Looks into the tables. 1 and the entry if a table knows the document (its text absent: it is
 * deleted), 0 if the database is to be asked. The entry is borrowed: by the leader until the
 * commit's end, by others under documents_lock().
 */
int documents_find(struct store *store, uint32_t collection, struct bytes key,
		   struct table_entry *ret_entry);
void documents_lock(struct store *store);
void documents_unlock(struct store *store);
/*
 * Everything that was committed before this call is in the database. With ret_it not NULL also
 * opens an iterator over the documents, while none is on its way: what it sees are the documents
 * as they stood at one commit.
 */
int documents_settle(struct store *store, struct db_iterator **ret_it);
/*
 * For when that fails, as on a full disk: what the database has of a collection, and beside it the
 * entries of the tables, in the order of keys, which count more. With *ret_truncated what the
 * database has is gone. The caller frees the array; each entry's key is behind it, its text's n is
 * the size, and its p is not NULL if there is a document.
 */
int documents_view(struct store *store, uint32_t collection, struct db_iterator **ret_it,
		   struct table_entry **ret_entries, size_t *ret_count, bool *ret_truncated);
