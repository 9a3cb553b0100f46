/* SPDX-License-Identifier: Apache-2.0 */
/* Readers, and what they are given. */
#include <errno.h>
#include <stdlib.h>

#include "store/consumer_internal.h"

#define SKIP_BYTES ((size_t)32 << 20) /* of the log, that are looked at while others wait */

/* ---- readers ---- */

int store_group_reader_open(struct store *store, uint32_t group, pid_t pid,
			    struct store_group_reader **ret_reader, struct error *error)
{
	struct store_group_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return -ENOMEM;
	struct group *g = group_lock(store, group);
	if (!g) {
		free(reader);
		return error_set(error, -ENOENT, "there is no such group");
	}
	reader->group = g;
	reader->pid = pid;
	reader->next = g->readers;
	g->readers = reader;
	g->reader_count++;
	group_unlock(g);
	*ret_reader = reader;
	return 0;
}

/* Gives back what the reader has: the oldest keeps its attempt. */
static int give_back(struct store_group_reader *reader)
{
	struct group *g = reader->group;
	int64_t now = group_clock(g->store);
	bool oldest = true;

	int rc = group_room(g, 4096 + 128 * atomic_load(&reader->pending), NULL);
	for (; reader->oldest; oldest = false) {
		struct entry *e = reader->oldest;
		if (oldest)
			entry_fail(g, e, FAILURE_CLOSED);
		else
			e->attempts--;
		entry_set(g, e, ENTRY_WAITING, now);
		if (rc == 0)
			entry_put(g, e);
	}
	return rc < 0 ? rc : group_write(g, NULL);
}

static void reader_remove(struct store_group_reader *reader)
{
	struct store_group_reader **at = &reader->group->readers;

	while (*at != reader)
		at = &(*at)->next;
	*at = reader->next;
	reader->group->reader_count--;
}

void store_group_reader_close(struct store_group_reader *reader)
{
	if (!reader)
		return;
	struct group *g = reader->group;
	pthread_mutex_lock(&g->mutex);
	bool had = reader->oldest != NULL;
	if (had)
		give_back(reader);
	reader_remove(reader);
	bool dying = g->dying.n > 0;
	group_unlock(g);
	if (dying)
		group_bury(g, NULL);
	else if (had)
		group_call_listener(g->store);
	free(reader);
}

bool store_group_ready(const struct store_group_reader *reader)
{
	const struct group *g = reader->group;

	if (atomic_load(&g->gone))
		return true;
	if (atomic_load(&reader->pending) >= atomic_load(&g->seen_in_flight))
		return false;
	int64_t now = group_clock(g->store);
	if (now < atomic_load(&g->seen_rate))
		return false;
	return atomic_load(&g->seen_ready) > 0 || atomic_load(&g->seen_due) <= now ||
	       atomic_load(&g->seen_offset) + 1 < store_floor(g->store) ||
	       (atomic_load(&g->seen_window) < STORE_GROUP_WINDOW &&
		atomic_load(&g->seen_scan) <= store_last_sequence(g->store));
}

/* ---- delivering ---- */

struct delivery {
	struct group *g;
	struct store_group_reader *reader;
	struct buffer *lines;
	size_t start, size; /* of the lines, in bytes */
	uint32_t count, limit;
	int64_t now;
	struct leases leases;
	bool full; /* the next one is for the next call */
};

/* How many events the rate allows now. */
static uint32_t rate_allows(struct group *g, int64_t now)
{
	double rate = g->config.max_events_per_second;

	if (rate <= 0)
		return UINT32_MAX;
	double most = rate > 10 ? rate / 10 : 1;
	g->tokens += (double)(now - g->refilled) * rate / 1000;
	g->tokens = g->tokens > most ? most : g->tokens;
	g->refilled = now;
	if (g->tokens >= 1)
		return (uint32_t)g->tokens;
	atomic_store(&g->seen_rate, now + 1 + (int64_t)((1 - g->tokens) * 1000 / rate));
	return 0;
}

/* Adds a line with its delivery. */
static int add_line(struct delivery *d, struct bytes line, const struct entry *e)
{
	struct group *g = d->g;
	struct buffer *out = d->lines;

	if (buffer_reserve(out, line.n + g->quoted.n + 96) < 0)
		return -ENOMEM;
	buffer_add(out, line.p, line.n - 2);
	buffer_add(out, ",\"delivery\":{\"group\":", 21);
	buffer_add_bytes(out, buffer_bytes(&g->quoted));
	buffer_add(out, ",\"attempt\":", 11);
	buffer_add_decimal(out, e->attempts);
	buffer_add(out, ",\"id\":", 6);
	buffer_add_decimal(out, e->delivery);
	buffer_add(out, "}}\n", 3);
	return 0;
}

static size_t digits(uint64_t v)
{
	size_t n = 1;

	while (v /= 10)
		n++;
	return n;
}

/* True if the line goes into this call; else the call is full. */
static bool fits(struct delivery *d, size_t length, uint32_t attempts)
{
	const struct group *g = d->g;
	size_t more = length - 2 + 21 + g->quoted.n + 11 + digits(attempts + 1) + 6 +
		      digits(g->next_delivery) + 3;
	bool last = attempts + 1 >= g->config.max_attempts;

	if (d->count && (last || d->lines->n - d->start + more > d->size)) {
		d->full = true;
		return false;
	}
	return true;
}

/* Delivers an entry. */
static int give(struct delivery *d, struct entry *e, struct bytes line)
{
	struct group *g = d->g;

	entry_lease(g, e, d->reader, d->now);
	int rc = leases_add(g, &d->leases, e);
	if (rc == 0)
		rc = add_line(d, line, e);
	d->count++;
	d->full = e->attempts >= g->config.max_attempts; /* its last one: alone */
	return rc;
}

static int give_returned(struct delivery *d, struct error *error)
{
	struct group *g = d->g;
	struct store_event_info info;
	int rc = 0;

	while (rc == 0 && !d->full && d->count < d->limit && g->ready.n) {
		struct entry *e = g->ready.p[0];
		rc = entry_line(g, e, &info, error);
		if (rc == -ENOENT) { /* trimmed */
			entry_finish(g, e, ENTRY_DONE);
			rc = 0;
			continue;
		}
		if (rc == 0 && fits(d, g->line.n, e->attempts))
			rc = give(d, e, buffer_bytes(&g->line));
	}
	return rc;
}

static int give_new_one(struct delivery *d, const struct store_event_info *info, struct bytes line)
{
	struct group *g = d->g;
	uint64_t hash = 0;
	int rc = 0;

	if (g->chains)
		rc = group_hash(g, info->collection, line, &hash);
	if (rc < 0)
		return rc;
	struct entry *e = group_add(g, info->sequence, false);
	if (!e)
		return -ENOMEM;
	e->length = info->length;
	e->hash = hash;
	entry_chain(g, e);
	g->scan = info->sequence + 1;
	if (entry_is_held(g, e))
		return 0;
	if (fits(d, line.n, 0))
		return give(d, e, line);
	entry_place(g, e);
	return 0;
}

/* 1: there may be more, but others are to have their turn. */
static int give_new(struct delivery *d, struct error *error)
{
	struct group *g = d->g;
	struct store_event_info info;
	struct bytes line;
	struct scanner s;
	int rc = 1;

	scanner_start(&s, g, SKIP_BYTES);
	while (rc > 0 && !d->full && d->count < d->limit) {
		rc = scanner_next(&s, &info, &line, error);
		if (rc > 0 && g->window.n >= STORE_GROUP_WINDOW)
			break;
		if (rc > 0) {
			rc = give_new_one(d, &info, line);
			rc = rc < 0 ? rc : 1;
		}
	}
	bool again = rc == 0 && g->scan <= s.last;
	scanner_end(&s);
	return rc < 0 ? rc : again;
}

static void note_stalled(struct delivery *d)
{
	struct group *g = d->g;

	g->stalled = NULL;
	if (!d->count && g->window.n >= STORE_GROUP_WINDOW)
		g->stalled = "window";
	else if (!d->count && g->unfinished > g->leased + g->waiting)
		g->stalled = "order";
}

static int give_gap(struct delivery *d, struct error *error)
{
	struct group *g = d->g;
	uint64_t from = g->offset + 1, floor = store_floor(g->store);

	int rc = group_room(g, 4096 + 64 * g->window.n, error);
	if (rc == 0)
		rc = buffer_printf(d->lines,
				   "{\"type\":\"GAP\",\"from_sequence\":%llu,\"to_sequence\":%llu,"
				   "\"reason\":\"retention\"}\n",
				   (unsigned long long)from, (unsigned long long)floor - 1);
	if (rc < 0)
		return rc;
	rc = group_pass_gap(g, floor);
	g->started = true;
	if (rc == 0)
		rc = group_write(g, error);
	else
		group_reload(g);
	return rc < 0 ? rc : 1;
}

static int set_limit(struct delivery *d)
{
	struct group *g = d->g;
	uint64_t pending = atomic_load(&d->reader->pending);
	uint32_t rate = rate_allows(g, d->now);

	d->limit = g->config.batch;
	if (pending >= g->config.max_in_flight) {
		g->stalled = "max_in_flight";
		return -EAGAIN;
	}
	if (!rate) {
		g->stalled = "rate";
		return -EAGAIN;
	}
	if (d->limit > g->config.max_in_flight - pending)
		d->limit = (uint32_t)(g->config.max_in_flight - pending);
	if (d->limit > rate)
		d->limit = rate;
	return 0;
}

/* How many lines; 0 if the look at the log is to go on. */
static int deliver(struct delivery *d, struct error *error)
{
	struct group *g = d->g;

	if (group_has_gap(g))
		return give_gap(d, error);
	int rc = set_limit(d);
	if (rc == 0)
		rc = group_room(g, 4096 + 64 * (uint64_t)d->limit, error);
	if (rc < 0)
		return rc;
	leases_start(g, &d->leases);
	rc = give_returned(d, error);
	if (rc == 0)
		rc = give_new(d, error);
	if (rc == 0 && !d->count) /* what the look at the log let go */
		rc = give_returned(d, error);
	bool again = rc > 0;
	if (rc >= 0)
		group_advance(g);
	note_stalled(d);
	if (rc >= 0 && !d->count)
		return again ? 0 : -EAGAIN;
	if (rc >= 0) {
		leases_put(g, &d->leases);
		g->tokens -= g->config.max_events_per_second > 0 ? d->count : 0;
		rc = group_write(g, error);
	} else {
		group_reload(g);
	}
	return rc < 0 ? rc : (int)d->count;
}

int store_group_deliver(struct store_group_reader *reader, size_t size, struct buffer *lines,
			struct error *error)
{
	struct group *g = reader->group;
	size_t start = lines->n;
	int rc;

	do {
		struct delivery d = {.g = g,
				     .reader = reader,
				     .lines = lines,
				     .start = start,
				     .size = size,
				     .now = group_clock(g->store)};
		pthread_mutex_lock(&g->mutex);
		if (atomic_load(&g->gone)) {
			rc = error_set(error, -ENOENT, "the group was removed");
			group_unlock(g);
			break;
		}
		group_expire(g, d.now);
		bool dying = g->dying.n > 0;
		rc = dying ? 0 : deliver(&d, error);
		group_unlock(g);
		if (dying)
			rc = group_bury(g, error);
	} while (rc == 0);
	if (rc < 0)
		lines->n = start;
	return rc;
}

/* ---- as time passes ---- */

/* When the group is to be looked at again; INT64_MAX: it need not be. */
static int64_t settle(struct group *g, int64_t now)
{
	pthread_mutex_lock(&g->mutex);
	bool gone = atomic_load(&g->gone);
	if (!gone) {
		group_expire(g, now);
		group_skip(g, GROUP_SKIP, NULL);
		if (g->dirty && group_room(g, 4096, NULL) == 0)
			group_write(g, NULL);
	}
	bool dying = !gone && g->dying.n > 0;
	group_unlock(g);
	if (dying)
		group_bury(g, NULL);
	if (gone)
		return INT64_MAX;
	int64_t due = atomic_load(&g->seen_due), rate = atomic_load(&g->seen_rate);
	return rate > now && rate < due ? rate : due;
}

int64_t store_groups_settle(struct store *store)
{
	int64_t now = group_clock(store), next = INT64_MAX;
	uint32_t number = 0;

	while (store_group_next(store, number, &number)) {
		struct group *g = group_find(store, number);
		int64_t due = g ? settle(g, now) : INT64_MAX;
		next = due < next ? due : next;
	}
	return next == INT64_MAX ? -1 : next;
}
