/* SPDX-License-Identifier: Apache-2.0 */
/* How a group stands. */
#include <errno.h>

#include "store/consumer_internal.h"

/* Sequences above `offset` that an event has. */
static uint64_t events_above(struct store *store, uint64_t offset)
{
	uint64_t floor = store_floor(store), last = store_last_sequence(store);

	if (offset + 1 < floor)
		offset = floor - 1;
	uint64_t n = last > offset ? last - offset : 0;
	for (size_t i = 0; i < store->gap_count; i++) {
		const struct store_gap *gap = &store->gaps[i];
		if (gap->to > offset)
			n -= gap->to - (gap->from > offset ? gap->from - 1 : offset);
	}
	return n;
}

/* Commit time of the oldest event that is not done; 0 if there is none. */
static int64_t oldest_commit(struct group *g)
{
	struct store_event_info info;
	uint64_t sequence = g->scan;

	for (size_t i = 0; i < g->window.n; i++) {
		const struct entry *e = entries_at(&g->window, i);
		if (e->state == ENTRY_DONE || e->state == ENTRY_RELEASED)
			continue;
		sequence = e->sequence < sequence ? e->sequence : sequence;
		break;
	}
	if (sequence < store_floor(g->store))
		sequence = store_floor(g->store);
	return store_event_get(g->store, sequence, &info, NULL, NULL) == 0 ? info.commit_ms : 0;
}

static uint32_t most_attempts(const struct entries *list)
{
	uint32_t most = 0;

	for (size_t i = 0; i < list->n; i++) {
		const struct entry *e = entries_at(list, i);
		if (e->state >= ENTRY_LEASED && e->state <= ENTRY_DYING && e->attempts > most)
			most = e->attempts;
	}
	return most;
}

static int64_t oldest_pending(const struct group *g)
{
	int64_t oldest = INT64_MAX;

	for (const struct store_group_reader *r = g->readers; r; r = r->next)
		if (r->oldest && r->oldest->delivered_ms < oldest)
			oldest = r->oldest->delivered_ms;
	return oldest == INT64_MAX ? 0 : group_wall(g->store) - oldest;
}

/* What the last look at the log met may be over, and without a reader nothing waits. */
static const char *stalled(const struct group *g)
{
	const struct store_group_reader *r = g->readers;

	if (!g->stalled || !r || (strcmp(g->stalled, "order") == 0 && g->ready.n))
		return NULL;
	if (strcmp(g->stalled, "max_in_flight") != 0)
		return g->stalled;
	while (r && atomic_load(&r->pending) < g->config.max_in_flight)
		r = r->next;
	return r ? g->stalled : NULL;
}

int store_group_stats_get(struct store *store, uint32_t group, struct store_group_stats *ret_stats)
{
	struct group *g = group_lock(store, group);

	if (!g)
		return -ENOENT;
	group_expire(g, group_clock(store));
	int rc = group_skip(g, GROUP_SKIP, NULL);
	uint64_t lag = g->unfinished + events_above(store, g->scan - 1);
	int64_t commit_ms = lag ? oldest_commit(g) : 0;
	uint32_t in_window = most_attempts(&g->window), outside = most_attempts(&g->extra);
	*ret_stats = (struct store_group_stats){
		.offset = g->offset,
		.end = store_last_sequence(store),
		.lag = lag,
		.lag_ms = commit_ms ? group_wall(store) - commit_ms : 0,
		.pending = g->leased,
		.delayed = g->waiting,
		.window = g->window.n,
		.oldest_pending_ms = oldest_pending(g),
		.most_attempts = in_window > outside ? in_window : outside,
		.readers = g->reader_count,
		.delivered = g->delivered,
		.acknowledged = g->acknowledged,
		.redelivered = g->redelivered,
		.refused = g->refused,
		.dead_lettered = g->dead_lettered,
		.stalled = stalled(g),
	};
	group_unlock(g);
	return rc < 0 ? rc : 0;
}

int store_group_readers_each(struct store *store, uint32_t group,
			     int (*each)(void *context, pid_t pid, uint64_t pending), void *context)
{
	struct group *g = group_lock(store, group);
	int rc = 0;

	if (!g)
		return -ENOENT;
	for (struct store_group_reader *r = g->readers; r && rc == 0; r = r->next)
		rc = each(context, r->pid, atomic_load(&r->pending));
	group_unlock(g);
	return rc;
}
