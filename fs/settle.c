/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "fs/fs.h"

struct settle {
	struct changefs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool woken;
	bool ending;
};

/* Until it is woken, or until `due` (-1: never). Below the lock. */
static void wait_until(struct settle *s, int64_t due)
{
	struct timespec t = {.tv_sec = due / 1000, .tv_nsec = due % 1000 * 1000000};
	int r = 0;

	while (!s->woken && !s->ending && r != ETIMEDOUT)
		r = due < 0 ? pthread_cond_wait(&s->wake, &s->lock)
			    : pthread_cond_timedwait(&s->wake, &s->lock, &t);
	s->woken = false;
}

static void *run(void *context)
{
	struct settle *s = context;
	int64_t due = -1;

	pthread_mutex_lock(&s->lock);
	while (!s->ending) {
		wait_until(s, due);
		if (s->ending)
			break;
		pthread_mutex_unlock(&s->lock);
		due = layout_settle(s->fs->layout, false);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void destroy(struct settle *s)
{
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	free(s);
}

struct settle *settle_new(struct changefs *fs)
{
	struct settle *s = calloc(1, sizeof(*s));
	pthread_condattr_t attributes;

	if (!s)
		return NULL;
	s->fs = fs;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&s->wake, &attributes);
	pthread_condattr_destroy(&attributes);
	if (pthread_create(&s->thread, NULL, run, s) == 0)
		return s;
	destroy(s);
	return NULL;
}

void settle_free(struct settle *settle)
{
	if (!settle)
		return;
	pthread_mutex_lock(&settle->lock);
	settle->ending = true;
	pthread_cond_signal(&settle->wake);
	pthread_mutex_unlock(&settle->lock);
	pthread_join(settle->thread, NULL);
	destroy(settle);
}

void settle_wake(struct settle *settle)
{
	pthread_mutex_lock(&settle->lock);
	settle->woken = true;
	pthread_cond_signal(&settle->wake);
	pthread_mutex_unlock(&settle->lock);
}
