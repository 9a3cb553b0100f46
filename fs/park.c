/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "fs/fs.h"

/* A read that is not answered (req), or a poll that wants to hear (ph). */
struct waiter {
	struct waiter *next, *prev;
	struct handle *handle;
	fuse_req_t req;
	struct fuse_pollhandle *ph;
	size_t size;
	uint64_t offset;
};

struct park {
	struct changefs *fs;
	pthread_mutex_t lock;
	struct waiter ring; /* its next is the oldest waiter, its prev the newest */
	uint64_t reads;
	bool closed;
};

/* Whom this thread took out and has not answered yet, by `next`. */
static _Thread_local struct {
	struct waiter *first, *last;
	bool holding;
} woken;

struct park *park_new(struct changefs *fs)
{
	struct park *park = calloc(1, sizeof(*park));

	if (!park)
		return NULL;
	pthread_mutex_init(&park->lock, NULL);
	park->fs = fs;
	park->ring.next = park->ring.prev = &park->ring;
	return park;
}

void park_free(struct park *park)
{
	if (!park)
		return;
	assert(park->ring.next == &park->ring);
	pthread_mutex_destroy(&park->lock);
	free(park);
}

uint64_t park_waiting(struct park *park)
{
	uint64_t n;

	pthread_mutex_lock(&park->lock);
	n = park->reads;
	pthread_mutex_unlock(&park->lock);
	return n;
}

/* ---- the list; below the lock ---- */

static void add(struct park *park, struct waiter *waiter)
{
	waiter->next = &park->ring;
	waiter->prev = park->ring.prev;
	waiter->prev->next = waiter;
	waiter->next->prev = waiter;
	if (waiter->req) {
		park->reads++;
		waiter->handle->parked++;
	} else {
		waiter->handle->poll = waiter;
	}
}

static void take_out(struct park *park, struct waiter *waiter)
{
	assert(waiter->next && waiter->prev);
	waiter->prev->next = waiter->next;
	waiter->next->prev = waiter->prev;
	waiter->next = waiter->prev = NULL;
	if (waiter->req) {
		park->reads--;
		waiter->handle->parked--;
	} else {
		waiter->handle->poll = NULL;
	}
}

static bool is_ready(const struct waiter *waiter)
{
	uint64_t offset = waiter->req ? waiter->offset : waiter->handle->read_end;

	return layout_file_ready(waiter->handle->file, offset);
}

/* ---- reads ---- */

/*
 * The kernel wants no answer any more, or the process got a signal. libfuse calls this with the
 * request's lock held: while the request is being registered, when it is not in the list yet, and
 * from then on with a reference to it, so that it may be answered here and no other request can
 * have its address.
 */
static void interrupted(fuse_req_t req, void *data)
{
	struct park *park = data;
	struct waiter *waiter;

	pthread_mutex_lock(&park->lock);
	waiter = park->ring.next;
	while (waiter != &park->ring && waiter->req != req)
		waiter = waiter->next;
	if (waiter == &park->ring)
		waiter = NULL;
	else
		take_out(park, waiter);
	pthread_mutex_unlock(&park->lock);
	if (!waiter)
		return;
	fuse_reply_err(req, EINTR);
	free(waiter);
}

/*
 * Puts a read into the list. 0: it is there, and may already be answered. -EAGAIN: there is more
 * now, read again. Else the error to answer with. What came between the caller's look and the list
 * is seen here, and what comes later sees the list.
 */
static int enlist(struct park *park, struct waiter *waiter)
{
	int r = 0;

	pthread_mutex_lock(&park->lock);
	if (park->closed)
		r = -ENOTCONN;
	else if (fuse_req_interrupted(waiter->req))
		r = -EINTR;
	else if (is_ready(waiter))
		r = -EAGAIN;
	else
		add(park, waiter);
	pthread_mutex_unlock(&park->lock);
	return r;
}

/* Puts a read at whose place there was nothing into the list, or answers it if that has changed.
 * Takes ownership of the waiter. */
static void settle(struct park *park, struct waiter *waiter)
{
	int r;

	while ((r = enlist(park, waiter)) == -EAGAIN) {
		if (handle_reply_read(park->fs, waiter->handle, waiter->req, waiter->size,
				      waiter->offset) == 0) {
			free(waiter);
			return;
		}
	}
	if (r == 0)
		return;
	fuse_reply_err(waiter->req, -r);
	free(waiter);
}

void park_read(struct park *park, struct fuse_req *req, struct handle *handle, size_t size,
	       uint64_t offset)
{
	struct waiter *waiter;

	if (handle_reply_read(park->fs, handle, req, size, offset) == 0)
		return;
	waiter = malloc(sizeof(*waiter));
	if (!waiter) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	*waiter = (struct waiter){.handle = handle, .req = req, .size = size, .offset = offset};
	/* Before it is in the list: an interrupt that comes earlier is seen by enlist(). */
	fuse_req_interrupt_func(req, interrupted, park);
	settle(park, waiter);
}

/* ---- polls ---- */

static void poll_free(struct waiter *waiter)
{
	if (!waiter)
		return;
	fuse_pollhandle_destroy(waiter->ph);
	free(waiter);
}

/* Below the lock. Takes the handle's poll out, to be freed. */
static struct waiter *take_poll(struct park *park, struct handle *handle)
{
	struct waiter *waiter = handle->poll;

	if (waiter)
		take_out(park, waiter);
	return waiter;
}

bool park_poll(struct park *park, struct handle *handle, struct fuse_pollhandle *ph)
{
	struct waiter *waiter = ph ? malloc(sizeof(*waiter)) : NULL, *before = NULL;
	bool ready;

	if (waiter)
		*waiter = (struct waiter){.handle = handle, .ph = ph};
	else if (ph)
		fuse_pollhandle_destroy(ph);
	pthread_mutex_lock(&park->lock);
	ready = layout_file_ready(handle->file, handle->read_end);
	/* Also when it is ready: an edge-triggered epoll asks again only after it was told. */
	if (waiter && !park->closed) {
		before = take_poll(park, handle);
		add(park, waiter);
		waiter = NULL;
	}
	pthread_mutex_unlock(&park->lock);
	poll_free(before);
	poll_free(waiter);
	return ready;
}

void park_forget(struct park *park, struct handle *handle)
{
	struct waiter *poll;

	pthread_mutex_lock(&park->lock);
	/* The kernel holds a file while a read of it is on its way. */
	assert(handle->parked == 0);
	poll = take_poll(park, handle);
	pthread_mutex_unlock(&park->lock);
	poll_free(poll);
}

/* ---- waking ---- */

void park_hold(void)
{
	assert(!woken.holding);
	woken.holding = true;
}

void park_let_go(void)
{
	woken.holding = false;
}

static void append_woken(struct waiter *waiter)
{
	waiter->next = NULL;
	if (woken.last)
		woken.last->next = waiter;
	else
		woken.first = waiter;
	woken.last = waiter;
}

static struct waiter *next_woken(void)
{
	struct waiter *waiter = woken.first;

	if (waiter)
		woken.first = waiter->next;
	if (!woken.first)
		woken.last = NULL;
	return waiter;
}

void park_answer(struct park *park, unsigned at_most)
{
	struct waiter *waiter;

	while (at_most-- > 0 && (waiter = next_woken())) {
		if (!waiter->req) {
			fuse_lowlevel_notify_poll(waiter->ph);
			poll_free(waiter);
		} else if (handle_reply_read(park->fs, waiter->handle, waiter->req, waiter->size,
					     waiter->offset) == 0) {
			free(waiter);
		} else {
			settle(park, waiter);
		}
	}
}

void park_wake(void *context)
{
	struct park *park = context;

	pthread_mutex_lock(&park->lock);
	for (struct waiter *waiter = park->ring.next, *next; waiter != &park->ring; waiter = next) {
		next = waiter->next;
		if (is_ready(waiter)) {
			take_out(park, waiter);
			append_woken(waiter);
		}
	}
	pthread_mutex_unlock(&park->lock);
	if (!woken.holding)
		park_answer(park, UINT_MAX);
}

void park_close(struct park *park)
{
	struct waiter *waiter;

	pthread_mutex_lock(&park->lock);
	park->closed = true;
	while ((waiter = park->ring.next) != &park->ring) {
		take_out(park, waiter);
		append_woken(waiter);
	}
	pthread_mutex_unlock(&park->lock);
	while ((waiter = next_woken())) {
		if (waiter->req)
			fuse_reply_err(waiter->req, ENOTCONN);
		poll_free(waiter);
	}
}
