/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commits by leader and followers: the first writer that waits takes all that wait, makes one
 * batch of the database of them, with one sync if any of them asked, and tells each its result.
 * group.c makes the batch; here is who does it, and when.
 */
#include <errno.h>
#include <stdlib.h>

#include "store/group.h"

#define GROUP_BYTES ((size_t)32 << 20)

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
}

/* Takes from the queue what one group may hold. Of each source only one batch, since the second is
 * judged by the position that the first leaves. */
static struct waiter *take(struct commit *c)
{
	struct waiter *list = c->head, *last = NULL;
	size_t bytes = 0;
	bool sourced = false;

	for (struct waiter *w = list; w; w = w->next) {
		bytes += w->batch->arena.n;
		if (last && (bytes > GROUP_BYTES || (w->batch->source.there && sourced)))
			break;
		sourced |= w->batch->source.there;
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

	atomic_fetch_add(&store->written, 1);
	pthread_mutex_lock(&c->mutex);
	finish(c, NULL);
	pthread_mutex_unlock(&c->mutex);
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
