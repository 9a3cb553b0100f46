/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of a group: in order, by time, by key, and by reader. */
#include <errno.h>
#include <stdlib.h>

#include "store/consumer_internal.h"

/* ---- heaps ---- */

static void heap_set(struct heap *h, size_t at, struct entry *e)
{
	h->p[at] = e;
	e->heap_at = at;
}

static bool heap_less(const struct entry *a, const struct entry *b)
{
	return a->heap_key != b->heap_key ? a->heap_key < b->heap_key : a->sequence < b->sequence;
}

static void heap_sift(struct heap *h, size_t at)
{
	struct entry *e = h->p[at];

	for (; at && heap_less(e, h->p[(at - 1) / 2]); at = (at - 1) / 2)
		heap_set(h, at, h->p[(at - 1) / 2]);
	for (;;) {
		size_t child = 2 * at + 1;
		if (child + 1 < h->n && heap_less(h->p[child + 1], h->p[child]))
			child++;
		if (child >= h->n || !heap_less(h->p[child], e))
			break;
		heap_set(h, at, h->p[child]);
		at = child;
	}
	heap_set(h, at, e);
}

static void heap_remove(struct entry *e)
{
	struct heap *h = e->heap;

	if (!h)
		return;
	struct entry *last = h->p[--h->n];
	size_t at = e->heap_at;
	e->heap = NULL;
	if (last == e)
		return;
	heap_set(h, at, last);
	heap_sift(h, at);
}

/* There is room: group_add() makes it for every entry. */
static void heap_add(struct heap *h, struct entry *e, uint64_t key)
{
	e->heap = h;
	e->heap_key = key;
	h->p[h->n++] = e;
	heap_sift(h, h->n - 1);
}

static int heap_reserve(struct heap *h, size_t n)
{
	if (n <= h->capacity)
		return 0;
	size_t capacity = h->capacity ? 2 * h->capacity : 16;
	capacity = capacity < n ? n : capacity;
	struct entry **p = realloc(h->p, capacity * sizeof(struct entry *));
	if (!p)
		return -1;
	h->p = p;
	h->capacity = capacity;
	return 0;
}

void heap_free(struct heap *h)
{
	free(h->p);
	*h = (struct heap){0};
}

/* ---- lists in the order of sequences ---- */

size_t entries_lower(const struct entries *list, uint64_t sequence)
{
	size_t low = 0, high = list->n;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (entries_at(list, middle)->sequence < sequence)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct entry *entries_find(const struct entries *list, uint64_t sequence)
{
	size_t i = entries_lower(list, sequence);

	return i < list->n && entries_at(list, i)->sequence == sequence ? entries_at(list, i)
									: NULL;
}

struct entry *group_entry(const struct group *g, uint64_t sequence)
{
	struct entry *e = entries_find(&g->window, sequence);

	return e ? e : entries_find(&g->extra, sequence);
}

static int entries_insert(struct entries *list, struct entry *e)
{
	if (list->head + list->n == list->capacity && list->head > list->n) {
		memmove(list->p, list->p + list->head, list->n * sizeof(struct entry *));
		list->head = 0;
	}
	if (list->head + list->n == list->capacity) {
		size_t capacity = list->capacity ? 2 * list->capacity : 64;
		struct entry **p = realloc(list->p, capacity * sizeof(struct entry *));
		if (!p)
			return -1;
		list->p = p;
		list->capacity = capacity;
	}
	size_t i = list->n;
	if (i && entries_at(list, i - 1)->sequence > e->sequence)
		i = entries_lower(list, e->sequence);
	struct entry **at = list->p + list->head + i;
	memmove(at + 1, at, (list->n - i) * sizeof(struct entry *));
	*at = e;
	list->n++;
	return 0;
}

static void entries_remove(struct entries *list, const struct entry *e)
{
	size_t i = entries_lower(list, e->sequence);
	struct entry **at = list->p + list->head + i;

	list->n--;
	if (i == 0)
		list->head = list->n ? list->head + 1 : 0;
	else
		memmove(at, at + 1, (list->n - i) * sizeof(struct entry *));
}

/* ---- chains: what has the same key, in the order of sequences ---- */

static struct bucket *bucket_of(const struct group *g, const struct entry *e)
{
	return &g->chains[e->hash % CHAIN_BUCKETS];
}

bool entry_is_held(const struct group *g, const struct entry *e)
{
	if (!e->is_chained)
		return false;
	if (!e->is_extra && e->sequence >= g->scan)
		return true; /* an earlier one may be found yet */
	const struct entry *first = bucket_of(g, e)->head;
	while (first->hash != e->hash)
		first = first->behind;
	return first != e;
}

/* The next one with its key is held by it, or no longer. */
static void place_next(struct group *g, const struct entry *e, struct entry *next)
{
	while (next && next->hash != e->hash)
		next = next->behind;
	if (next)
		entry_place(g, next);
}

void entry_chain(struct group *g, struct entry *e)
{
	if (!g->chains || e->is_chained)
		return;
	struct bucket *b = bucket_of(g, e);
	struct entry *before = b->tail;
	while (before && before->sequence > e->sequence)
		before = before->before;
	e->before = before;
	e->behind = before ? before->behind : b->head;
	*(before ? &before->behind : &b->head) = e;
	*(e->behind ? &e->behind->before : &b->tail) = e;
	e->is_chained = true;
	place_next(g, e, e->behind);
}

/* What it held back may go. */
static void entry_unchain(struct group *g, struct entry *e)
{
	if (!e->is_chained)
		return;
	struct bucket *b = bucket_of(g, e);
	struct entry *next = e->behind;
	*(e->before ? &e->before->behind : &b->head) = e->behind;
	*(e->behind ? &e->behind->before : &b->tail) = e->before;
	e->is_chained = false;
	place_next(g, e, next);
}

void group_unchain_all(struct group *g)
{
	for (size_t i = 0; i < g->window.n; i++)
		entries_at(&g->window, i)->is_chained = false;
	for (size_t i = 0; i < g->extra.n; i++)
		entries_at(&g->extra, i)->is_chained = false;
	free(g->chains);
	g->chains = NULL;
}

/* ---- readers ---- */

static void reader_take(struct store_group_reader *reader, struct entry *e)
{
	e->reader = reader;
	e->older = reader->newest;
	e->newer = NULL;
	*(e->older ? &e->older->newer : &reader->oldest) = e;
	reader->newest = e;
	atomic_fetch_add(&reader->pending, 1);
}

static void reader_leave(struct entry *e)
{
	struct store_group_reader *reader = e->reader;

	if (!reader)
		return;
	*(e->older ? &e->older->newer : &reader->oldest) = e->newer;
	*(e->newer ? &e->newer->older : &reader->newest) = e->older;
	e->reader = NULL;
	atomic_fetch_sub(&reader->pending, 1);
}

/* ---- entries ---- */

static bool is_finished(const struct entry *e)
{
	return e->state == ENTRY_DONE || e->state == ENTRY_RELEASED;
}

static void count(struct group *g, const struct entry *e, size_t by)
{
	g->leased += e->state == ENTRY_LEASED ? by : 0;
	g->waiting += e->state == ENTRY_WAITING || e->state == ENTRY_DYING ? by : 0;
	g->unfinished += is_finished(e) ? 0 : by;
}

struct entry *group_add(struct group *g, uint64_t sequence, bool extra)
{
	size_t n = g->window.n + g->extra.n + 1;
	struct entry *e = NULL;

	if (heap_reserve(&g->ready, n) == 0 && heap_reserve(&g->due, n) == 0 &&
	    heap_reserve(&g->dying, n) == 0)
		e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->sequence = sequence;
	e->is_extra = extra;
	if (entries_insert(extra ? &g->extra : &g->window, e) < 0) {
		free(e);
		return NULL;
	}
	count(g, e, 1);
	return e;
}

int group_make_extra(struct group *g, struct entry *e)
{
	e->is_extra = true;
	if (entries_insert(&g->extra, e) < 0)
		return -ENOMEM;
	entries_remove(&g->window, e);
	return 0;
}

static void entry_free(struct entry *e)
{
	free(e->reason);
	free(e);
}

void group_drop(struct group *g, struct entry *e)
{
	entry_delete_records(g, e);
	heap_remove(e);
	reader_leave(e);
	entry_unchain(g, e);
	count(g, e, (size_t)-1);
	entries_remove(e->is_extra ? &g->extra : &g->window, e);
	entry_free(e);
}

void entry_place(struct group *g, struct entry *e)
{
	heap_remove(e);
	if (e->state == ENTRY_DYING && !e->is_dead && e->attempts < g->config.max_attempts)
		e->state = ENTRY_WAITING; /* the configuration allows more now */
	if (e->state == ENTRY_WAITING && e->attempts >= g->config.max_attempts)
		e->state = ENTRY_DYING;
	bool later = e->state == ENTRY_WAITING && e->due > group_clock(g->store);
	if (e->state == ENTRY_DYING)
		heap_add(&g->dying, e, e->sequence);
	else if (e->state == ENTRY_LEASED || (later && !entry_is_held(g, e)))
		heap_add(&g->due, e, (uint64_t)e->due);
	else if (!is_finished(e) && !entry_is_held(g, e))
		heap_add(&g->ready, e, e->sequence);
}

void entry_set(struct group *g, struct entry *e, enum entry_state state, int64_t due)
{
	reader_leave(e);
	count(g, e, (size_t)-1);
	e->state = (unsigned char)state;
	e->due = due;
	count(g, e, 1);
	if (is_finished(e))
		entry_unchain(g, e);
	else
		entry_chain(g, e);
	entry_place(g, e);
}

void entry_lease(struct group *g, struct entry *e, struct store_group_reader *reader, int64_t now)
{
	entry_leave_record(g, e);
	e->delivery = g->next_delivery++;
	e->delivered_ms = group_wall(g->store);
	g->delivered++;
	g->redelivered += e->attempts > 0;
	e->attempts++;
	entry_set(g, e, ENTRY_LEASED, now + (int64_t)g->config.ack_timeout_ms);
	reader_take(reader, e);
	g->started = true;
}

void entry_fail(struct group *g, struct entry *e, enum entry_failure failure)
{
	e->failure = (unsigned char)failure;
	e->last_failure_ms = group_wall(g->store);
	if (!e->first_failure_ms)
		e->first_failure_ms = e->last_failure_ms;
}

void entry_finish(struct group *g, struct entry *e, enum entry_state state)
{
	entry_set(g, e, state, 0);
	if (e->is_extra)
		group_drop(g, e);
}

void group_advance(struct group *g)
{
	uint64_t offset = g->scan - 1;

	while (g->window.n && is_finished(entries_at(&g->window, 0)) &&
	       entries_at(&g->window, 0)->sequence < g->scan)
		group_drop(g, entries_at(&g->window, 0));
	if (g->window.n && entries_at(&g->window, 0)->sequence <= offset)
		offset = entries_at(&g->window, 0)->sequence - 1;
	if (offset > g->offset) {
		g->offset = offset;
		g->dirty = true;
	}
}

void group_expire(struct group *g, int64_t now)
{
	while (g->due.n && g->due.p[0]->due <= now) {
		struct entry *e = g->due.p[0];
		if (e->state == ENTRY_LEASED) {
			entry_fail(g, e, FAILURE_TIMEOUT);
			entry_set(g, e, ENTRY_WAITING, now);
		} else {
			entry_place(g, e);
		}
	}
}

static void forget(struct entries *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct entry *e = entries_at(list, i);
		reader_leave(e);
		if (e->record && !--e->record->live)
			free(e->record);
		entry_free(e);
	}
	free(list->p);
	*list = (struct entries){0};
}

void group_forget(struct group *g)
{
	free(g->chains);
	g->chains = NULL;
	forget(&g->window);
	forget(&g->extra);
	g->ready.n = g->due.n = g->dying.n = 0;
	g->leased = g->waiting = g->unfinished = 0;
}
