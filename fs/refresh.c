/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "fs/fs.h"

#define PAUSE_NS 5000000 /* between rounds, so that many commits are one */

struct refresh {
	struct changefs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	_Atomic bool dirty;
	bool ending;
	uint64_t *ends; /* of each collection's stream, [0] counts the collections */
	uint32_t count;
};

static void forget_attributes(struct refresh *r, uint32_t collection)
{
	uint64_t ids[2];
	size_t n = layout_changed_directories(collection, ids);

	/* ENOENT only says that the kernel does not hold it. */
	for (size_t i = 0; i < n; i++)
		fuse_lowlevel_notify_inval_inode(r->fs->session, ids[i], -1, 0);
}

static void note(struct refresh *r, uint32_t collection, uint64_t end)
{
	if (r->ends[collection] == end)
		return;
	r->ends[collection] = end;
	forget_attributes(r, collection);
}

static bool grow(struct refresh *r, uint32_t count)
{
	uint64_t *ends = realloc(r->ends, ((size_t)count + 1) * sizeof(*ends));

	if (!ends)
		return false;
	for (uint32_t i = r->ends ? r->count + 1 : 0; i <= count; i++)
		ends[i] = 0;
	r->ends = ends;
	r->count = count;
	return true;
}

static void compare(struct refresh *r)
{
	uint32_t count = store_collection_count(r->fs->store);

	if ((!r->ends || count > r->count) && !grow(r, count))
		return;
	note(r, 0, count);
	for (uint32_t id = 1; id <= count; id++)
		note(r, id, store_stream_end(r->fs->store, id));
}

static void *run(void *context)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	struct refresh *r = context;

	pthread_mutex_lock(&r->lock);
	while (!r->ending) {
		if (!atomic_exchange(&r->dirty, false)) {
			pthread_cond_wait(&r->wake, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		compare(r);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

struct refresh *refresh_new(struct changefs *fs)
{
	struct refresh *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->fs = fs;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->wake, NULL);
	if (pthread_create(&r->thread, NULL, run, r) == 0)
		return r;
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->wake);
	free(r);
	return NULL;
}

void refresh_free(struct refresh *refresh)
{
	if (!refresh)
		return;
	pthread_mutex_lock(&refresh->lock);
	refresh->ending = true;
	pthread_cond_signal(&refresh->wake);
	pthread_mutex_unlock(&refresh->lock);
	pthread_join(refresh->thread, NULL);
	pthread_mutex_destroy(&refresh->lock);
	pthread_cond_destroy(&refresh->wake);
	free(refresh->ends);
	free(refresh);
}

void refresh_wake(struct refresh *refresh)
{
	if (atomic_exchange(&refresh->dirty, true))
		return;
	pthread_mutex_lock(&refresh->lock);
	pthread_cond_signal(&refresh->wake);
	pthread_mutex_unlock(&refresh->lock);
}
