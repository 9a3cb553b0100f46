/* SPDX-License-Identifier: Apache-2.0 */
/* What readers say of what they were given, and what is out. */
#include <errno.h>
#include <stdlib.h>

#include "store/consumer_internal.h"

#define U(v) ((unsigned long long)(v))

static bool is_finished(const struct entry *e)
{
	return e->state == ENTRY_DONE || e->state == ENTRY_RELEASED;
}

static bool is_pending(const struct entry *e)
{
	return e->state == ENTRY_LEASED || e->state == ENTRY_WAITING || e->state == ENTRY_DYING;
}

/* 0 if that delivery may be answered for the entry. */
static int check_entry(const struct entry *e, uint64_t delivery, struct error *error)
{
	if (is_finished(e))
		return 0;
	if (delivery && (e->delivery != delivery || e->state != ENTRY_LEASED))
		return error_set(error, -ESTALE, "delivery %llu of event %llu is no longer valid",
				 U(delivery), U(e->sequence));
	if (e->state == ENTRY_NEW)
		return error_set(error, -EINVAL, "event %llu was not delivered yet",
				 U(e->sequence));
	return 0;
}

/* What lies beyond the window was not delivered, but for what the group does not take. */
static int check_range(struct group *g, uint64_t from, uint64_t to, uint64_t delivery,
		       struct error *error)
{
	if (!from || from > to)
		return error_set(error, -EINVAL, "%llu-%llu is no range of sequences", U(from),
				 U(to));
	if (to > store_last_sequence(g->store))
		return error_set(error, -EINVAL, "sequence %llu is beyond the log's end, %llu",
				 U(to), U(store_last_sequence(g->store)));
	if (to < g->scan || entries_find(&g->window, to))
		return 0;
	if (delivery && delivery < g->next_delivery)
		return error_set(error, -ESTALE, "delivery %llu of event %llu is no longer valid",
				 U(delivery), U(to));
	return error_set(error, -EINVAL, "event %llu was not delivered yet", U(to));
}

/* ---- acknowledging ---- */

static int check_list(struct entries *list, const struct store_group_ack *ack, struct error *error)
{
	int rc = 0;

	for (size_t i = entries_lower(list, ack->from); i < list->n && rc == 0; i++) {
		const struct entry *e = entries_at(list, i);
		if (e->sequence > ack->to)
			break;
		rc = check_entry(e, ack->delivery, error);
	}
	return rc;
}

static int check_ack(struct group *g, const struct store_group_ack *ack, struct error *error)
{
	int rc = check_range(g, ack->from, ack->to, ack->delivery, error);

	if (rc == 0)
		rc = check_list(&g->window, ack, error);
	return rc < 0 ? rc : check_list(&g->extra, ack, error);
}

/* Finishes what it covers; the range begins at the front for most, which is then dropped. */
static uint64_t finish_range(struct group *g, const struct store_group_ack *ack)
{
	uint64_t count = 0;

	for (size_t i = entries_lower(&g->extra, ack->from); i < g->extra.n;) {
		struct entry *e = entries_at(&g->extra, i);
		if (e->sequence > ack->to)
			break;
		entry_finish(g, e, ENTRY_DONE);
		count++;
	}
	for (size_t i = entries_lower(&g->window, ack->from); i < g->window.n; i++) {
		struct entry *e = entries_at(&g->window, i);
		if (e->sequence > ack->to)
			break;
		if (is_finished(e))
			continue;
		entry_finish(g, e, ENTRY_DONE);
		count++;
	}
	return count;
}

/* Records what is done but not at the front. */
static void put_range(struct group *g, const struct store_group_ack *ack)
{
	for (size_t i = entries_lower(&g->window, ack->from); i < g->window.n; i++) {
		struct entry *e = entries_at(&g->window, i);
		if (e->sequence > ack->to)
			break;
		if (e->state == ENTRY_DONE)
			entry_put(g, e);
	}
}

static size_t count_range(const struct group *g, const struct store_group_ack *ack)
{
	return entries_lower(&g->window, ack->to + 1) - entries_lower(&g->window, ack->from);
}

static int acknowledge(struct group *g, const struct store_group_ack *acks, size_t count,
		       bool *ret_more, struct error *error)
{
	uint64_t done = 0, bytes = 4096;
	int rc = group_skip(g, GROUP_SKIP, error);

	rc = rc < 0 ? rc : 0;
	for (size_t i = 0; i < count && rc == 0; i++) {
		rc = check_ack(g, &acks[i], error);
		bytes += 128 * count_range(g, &acks[i]);
	}
	if (rc == 0)
		rc = group_room(g, bytes, error);
	if (rc < 0)
		return rc;
	size_t ready = g->ready.n;
	for (size_t i = 0; i < count; i++)
		done += finish_range(g, &acks[i]);
	g->acknowledged += done;
	group_advance(g);
	for (size_t i = 0; i < count; i++)
		put_range(g, &acks[i]);
	*ret_more = g->ready.n > ready || (g->stalled && done);
	return done || g->dirty ? group_write(g, error) : 0;
}

int store_group_acknowledge(struct store *store, uint32_t group, const struct store_group_ack *acks,
			    size_t count, struct error *error)
{
	struct group *g = group_lock(store, group);
	bool more = false;

	if (!g)
		return -ENOENT;
	group_expire(g, group_clock(store));
	int rc = acknowledge(g, acks, count, &more, error);
	group_unlock(g);
	if (rc == 0 && more)
		group_call_listener(store);
	return rc;
}

/* ---- refusing ---- */

static int check_nack(struct group *g, const struct store_group_nack *nack, struct error *error)
{
	const struct entry *e = group_entry(g, nack->sequence);

	int rc = check_range(g, nack->sequence, nack->sequence, nack->delivery, error);
	return rc < 0 || !e ? rc : check_entry(e, nack->delivery, error);
}

static int64_t backoff(const struct group *g, const struct entry *e)
{
	size_t n = g->config.backoff_count;

	if (!n)
		return 0;
	size_t i = e->attempts ? e->attempts - 1 : 0;
	return (int64_t)g->config.backoff_ms[i < n ? i : n - 1];
}

static int refuse_one(struct group *g, const struct store_group_nack *nack)
{
	struct entry *e = group_entry(g, nack->sequence);

	if (!e || is_finished(e))
		return 0;
	char *reason = nack->reason.n ? calloc(1, nack->reason.n + 1) : NULL;
	if (nack->reason.n && !reason)
		return -ENOMEM;
	if (reason) {
		memcpy(reason, nack->reason.p, nack->reason.n);
		text_make_utf8(reason, nack->reason.n);
	}
	free(e->reason);
	e->reason = reason;
	e->is_dead |= nack->dead;
	entry_fail(g, e, FAILURE_REFUSED);
	int64_t delay = nack->delay_ms < 0 ? backoff(g, e) : nack->delay_ms;
	entry_set(g, e, e->is_dead ? ENTRY_DYING : ENTRY_WAITING, group_clock(g->store) + delay);
	entry_put(g, e);
	g->refused++;
	return 0;
}

static int refuse(struct group *g, const struct store_group_nack *nacks, size_t count,
		  struct error *error)
{
	uint64_t bytes = 4096;
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++) {
		rc = check_nack(g, &nacks[i], error);
		bytes += 128 + nacks[i].reason.n;
	}
	if (rc == 0)
		rc = group_room(g, bytes, error);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < count && rc == 0; i++)
		rc = refuse_one(g, &nacks[i]);
	if (rc == 0)
		return group_write(g, error);
	group_reload(g);
	return rc;
}

int store_group_refuse(struct store *store, uint32_t group, const struct store_group_nack *nacks,
		       size_t count, struct error *error)
{
	struct group *g = group_lock(store, group);

	if (!g)
		return -ENOENT;
	group_expire(g, group_clock(store));
	int rc = refuse(g, nacks, count, error);
	bool dying = g->dying.n > 0;
	group_unlock(g);
	/* What cannot be buried now is so later: that it is dying is recorded. */
	if (dying)
		group_bury(g, NULL);
	else if (rc == 0)
		group_call_listener(store);
	return rc;
}

/* ---- what is out ---- */

static void tell(const struct group *g, const struct entry *e,
		 struct store_group_pending *ret_pending)
{
	*ret_pending = (struct store_group_pending){
		.sequence = e->sequence,
		.delivery = e->delivery,
		.attempts = e->attempts,
		.pid = e->reader ? e->reader->pid : 0,
		.delivered_ms = e->delivered_ms,
		.due_ms = group_wall(g->store) + e->due - group_clock(g->store),
	};
}

static const struct entry *next_pending(const struct entries *list, uint64_t after)
{
	for (size_t i = entries_lower(list, after + 1); i < list->n; i++)
		if (is_pending(entries_at(list, i)))
			return entries_at(list, i);
	return NULL;
}

int store_group_pending_next(struct store *store, uint32_t group, uint64_t after,
			     struct store_group_pending *ret_pending)
{
	struct group *g = group_lock(store, group);

	if (!g)
		return -ENOENT;
	const struct entry *e = next_pending(&g->window, after);
	const struct entry *extra = next_pending(&g->extra, after);
	if (!e || (extra && extra->sequence < e->sequence))
		e = extra;
	if (e)
		tell(g, e, ret_pending);
	group_unlock(g);
	return e != NULL;
}

int store_group_pending_get(struct store *store, uint32_t group, uint64_t sequence,
			    struct store_group_pending *ret_pending, struct buffer *line,
			    struct error *error)
{
	struct group *g = group_lock(store, group);
	struct store_event_info info;

	if (!g)
		return -ENOENT;
	const struct entry *e = group_entry(g, sequence);
	int rc = e && is_pending(e) ? 0 : -ENOENT;
	if (rc == 0)
		tell(g, e, ret_pending);
	if (rc == 0 && line) {
		rc = entry_line(g, e, &info, error);
		if (rc == 0)
			rc = buffer_add_bytes(line, buffer_bytes(&g->line));
	}
	group_unlock(g);
	return rc;
}

int store_group_renew(struct store *store, uint32_t group, uint64_t sequence, struct error *error)
{
	struct group *g = group_lock(store, group);

	if (!g)
		return -ENOENT;
	int64_t now = group_clock(store);
	group_expire(g, now);
	struct entry *e = group_entry(g, sequence);
	int rc = 0;
	if (!e || !is_pending(e))
		rc = error_set(error, -ENOENT, "event %llu is not pending", U(sequence));
	else if (e->state != ENTRY_LEASED)
		rc = error_set(error, -ESTALE, "the lease of event %llu has ended", U(sequence));
	else {
		e->due = now + (int64_t)g->config.ack_timeout_ms;
		entry_place(g, e);
	}
	group_unlock(g);
	return rc;
}
