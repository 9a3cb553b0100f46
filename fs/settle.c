/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "fs/fs.h"

#define SOON_MS 5

struct settle {
	struct changefs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int64_t due; /* when it wakes by itself, in milliseconds of the monotonic clock; -1: never
		      */
	bool woken;
	bool ending;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until it is woken, or until it is due. Below the lock. */
static void wait_until_due(struct settle *s)
{
	while (!s->woken && !s->ending && (s->due < 0 || s->due > now_ms())) {
		struct timespec t = {.tv_sec = s->due / 1000, .tv_nsec = s->due % 1000 * 1000000};
		if (s->due < 0)
			pthread_cond_wait(&s->wake, &s->lock);
		else
			pthread_cond_timedwait(&s->wake, &s->lock, &t);
	}
	s->woken = false;
	s->due = -1;
}

static void *run(void *context)
{
	struct settle *s = context;

	pthread_mutex_lock(&s->lock);
	while (!s->ending) {
		wait_until_due(s);
		if (s->ending)
			break;
		pthread_mutex_unlock(&s->lock);
		int64_t due = layout_settle(s->fs->layout, false);
		park_wake(s->fs->park);
		pthread_mutex_lock(&s->lock);
		/* settle_soon() may have come meanwhile. */
		if (due >= 0 && (s->due < 0 || due < s->due))
			s->due = due;
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
	s->due = 0; /* once at the start */
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

void settle_soon(struct settle *settle)
{
	int64_t soon = now_ms() + SOON_MS;

	pthread_mutex_lock(&settle->lock);
	if (settle->due < 0 || settle->due > soon) {
		settle->due = soon;
		pthread_cond_signal(&settle->wake);
	}
	pthread_mutex_unlock(&settle->lock);
}
