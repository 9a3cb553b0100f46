/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commits by leader and followers: the first writer that waits takes all that wait, makes one
 * batch of the database of them, with one sync if any of them asked, and tells each its result.
 * commit_group.c makes the batch; here is who does it, and when.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "store/commit_group.h"

#define GROUP_BYTES ((size_t)32 << 20)
#define ROOM_MARGIN ((uint64_t)16 << 20)
#define ROOM_STEP   ((uint64_t)4 << 20)

int commit_init(struct store *store)
{
	struct commit *c = &store->commit;

	c->tail = &c->head;
	c->db_batch = db_batch_new();
	pthread_mutex_init(&c->mutex, NULL);
	pthread_cond_init(&c->turn, NULL);
	pthread_mutex_init(&store->sync.mutex, NULL);
	pthread_cond_init(&store->sync.done, NULL);
	return c->db_batch ? 0 : -ENOMEM;
}

void commit_free(struct commit *c)
{
	if (!c->db_batch)
		return;
	db_batch_free(c->db_batch);
	block_builder_free(&c->block);
	overlay_free(&c->overlay);
	buffer_free(&c->scratch);
	free(c->changes);
	free(c->touched);
	free(c->in_block);
	pthread_mutex_destroy(&c->mutex);
	pthread_cond_destroy(&c->turn);
	c->db_batch = NULL;
}

/* Takes from the queue what one group may hold. */
static struct waiter *take(struct commit *c)
{
	struct waiter *list = c->head, *last = list;
	size_t bytes = list->batch->arena.n + list->batch->records.n;

	for (struct waiter *w = list->next; w; w = w->next) {
		bytes += w->batch->arena.n + w->batch->records.n;
		if (bytes > GROUP_BYTES)
			break;
		last = w;
	}
	c->head = last->next;
	if (!c->head)
		c->tail = &c->head;
	last->next = NULL;
	return list;
}

static void finish(struct commit *c, struct waiter *list)
{
	while (list) {
		struct waiter *w = list;
		list = w->next; /* before the owner may go on and drop it */
		w->done = true;
		pthread_cond_signal(&w->wake);
	}
	c->leading = false;
	if (c->turns_waiting)
		pthread_cond_broadcast(&c->turn);
	else if (c->head)
		pthread_cond_signal(&c->head->wake);
}

/* Waits until this commit is done, by another leader or by leading. */
static void wait_or_lead(struct store *store, struct waiter *w)
{
	struct commit *c = &store->commit;

	pthread_mutex_lock(&c->mutex);
	*c->tail = w;
	c->tail = &w->next;
	while (!w->done) {
		if (c->leading || c->turns_waiting) {
			pthread_cond_wait(&w->wake, &c->mutex);
			continue;
		}
		c->leading = true;
		struct waiter *list = take(c);
		pthread_mutex_unlock(&c->mutex);
		group_commit(store, list);
		pthread_mutex_lock(&c->mutex);
		finish(c, list);
		pthread_mutex_unlock(&c->mutex);
		if (store->listener)
			store->listener(store->listener_context);
		pthread_mutex_lock(&c->mutex);
	}
	pthread_mutex_unlock(&c->mutex);
}

int store_commit(struct store *store, struct store_batch *batch, bool sync,
		 struct store_committed *ret_committed, struct error *error)
{
	struct waiter w = {.batch = batch, .sync = sync, .error = error};

	if (store->read_only)
		return -EROFS;
	if (!store_batch_is_empty(batch)) {
		pthread_cond_init(&w.wake, NULL);
		wait_or_lead(store, &w);
		pthread_cond_destroy(&w.wake);
	}
	if (w.rc == 0)
		store_batch_clear(batch);
	if (ret_committed)
		*ret_committed = w.committed;
	return w.rc;
}

struct db_batch *commit_turn_start(struct store *store)
{
	struct commit *c = &store->commit;

	pthread_mutex_lock(&c->mutex);
	c->turns_waiting++;
	while (c->leading)
		pthread_cond_wait(&c->turn, &c->mutex);
	c->turns_waiting--;
	c->leading = true;
	pthread_mutex_unlock(&c->mutex);
	db_batch_clear(c->db_batch);
	return c->db_batch;
}

void commit_turn_end(struct store *store)
{
	struct commit *c = &store->commit;

	pthread_mutex_lock(&c->mutex);
	finish(c, NULL);
	pthread_mutex_unlock(&c->mutex);
}

/* The disk must never be full when RocksDB writes: there has to be room for what is in memory, for
 * the documents that are still to be written, for the bytes at hand, and a margin. */
int commit_check_disk(struct store *store, uint64_t bytes, struct error *error)
{
	uint64_t memory = db_memory_bytes(store->db) + 2 * documents_pending_bytes(store);
	uint64_t need = ROOM_MARGIN + memory + 2 * bytes;
	struct statvfs fs;

	if (statvfs(store->path, &fs) < 0)
		return error_set(error, -errno, "asking the store's disk for its room failed");
	uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (free_bytes < need)
		return error_set(error, -ENOSPC, "the store's disk has %llu MiB left, %llu needed",
				 (unsigned long long)free_bytes >> 20,
				 (unsigned long long)need >> 20);
	return 0;
}

/* The disk is asked once in a while: so many bytes may be written before it is asked again. */
int commit_room(struct store *store, uint64_t bytes, struct error *error)
{
	struct commit *c = &store->commit;

	if (c->room_bytes >= bytes)
		return 0;
	int rc = commit_check_disk(store, bytes + ROOM_STEP, error);
	if (rc == 0)
		c->room_bytes = bytes + ROOM_STEP;
	return rc;
}

static void note_synced(struct store *store, uint64_t written)
{
	pthread_mutex_lock(&store->sync.mutex);
	if (written > store->sync.synced)
		store->sync.synced = written;
	pthread_mutex_unlock(&store->sync.mutex);
	atomic_fetch_add(&store->syncs, 1);
}

int commit_write(struct store *store, bool sync, struct error *error)
{
	struct db_batch *batch = store->commit.db_batch;
	uint64_t bytes = db_batch_bytes(batch);

	int rc = commit_room(store, bytes, error);
	if (rc < 0)
		return rc;
	store->commit.room_bytes -= bytes;
	rc = db_write(store->db, batch, sync, error);
	if (rc < 0)
		return rc;
	uint64_t written = atomic_fetch_add(&store->written, 1) + 1;
	if (sync)
		note_synced(store, written);
	return 0;
}

/* One sync serves all that wait for it: who comes while one runs waits for the next. */
int store_sync(struct store *store, struct error *error)
{
	uint64_t target = atomic_load(&store->written);
	int rc = 0;

	pthread_mutex_lock(&store->sync.mutex);
	while (store->sync.synced < target && rc == 0) {
		if (store->sync.running) {
			pthread_cond_wait(&store->sync.done, &store->sync.mutex);
			continue;
		}
		store->sync.running = true;
		pthread_mutex_unlock(&store->sync.mutex);
		uint64_t covered = atomic_load(&store->written);
		rc = db_sync(store->db, error);
		pthread_mutex_lock(&store->sync.mutex);
		if (rc == 0 && covered > store->sync.synced)
			store->sync.synced = covered;
		store->sync.running = false;
		atomic_fetch_add(&store->syncs, 1);
		pthread_cond_broadcast(&store->sync.done);
	}
	pthread_mutex_unlock(&store->sync.mutex);
	return rc;
}

void store_set_listener(struct store *store, void (*listener)(void *context), void *context)
{
	store->listener_context = context;
	store->listener = listener;
}
