/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a group's offset by hand. */
#include <errno.h>
#include <stdio.h>

#include "store/consumer_internal.h"

#define U(v) ((unsigned long long)(v))

/* ---- where to ---- */

/* So many events on from `offset`; what no event has does not count. -EINVAL: beyond the end. */
static int forward(struct store *store, uint64_t offset, uint64_t n, uint64_t *ret_offset)
{
	uint64_t last = store_last_sequence(store);

	for (size_t i = 0; i < store->gap_count; i++) {
		const struct store_gap *gap = &store->gaps[i];
		if (gap->to <= offset)
			continue;
		uint64_t from = offset + 1 > gap->from ? offset + 1 : gap->from;
		if (n < from - offset)
			break;
		n -= from - 1 - offset;
		offset = gap->to;
		if (!n)
			break;
	}
	*ret_offset = offset + n;
	return n <= last && *ret_offset <= last ? 0 : -EINVAL;
}

/* So many events back, at most to the first one that is retained. */
static uint64_t backward(struct store *store, uint64_t offset, uint64_t n)
{
	uint64_t least = store_floor(store) - 1;

	for (size_t i = store->gap_count; i--;) {
		const struct store_gap *gap = &store->gaps[i];
		if (gap->from > offset)
			continue;
		uint64_t to = offset < gap->to ? offset : gap->to;
		if (n < offset - to)
			break;
		n -= offset - to;
		offset = gap->from - 1;
	}
	if (offset <= least || offset - least <= n)
		return least;
	return offset - n;
}

static int commit_time(struct db_iterator *it, uint64_t sequence, struct block *ret_block,
		       struct error *error)
{
	struct key key = key_log(sequence);
	struct bytes k, v;

	db_iterator_seek(it, KEY_BYTES(key));
	int rc = db_iterator_get(it, &k, &v, error);
	return rc <= 0 ? rc : block_parse(v, ret_block, error) < 0 ? -EBADMSG : 1;
}

/* In front of the first event that was committed at `ms` or later; commit times never fall. */
static int at_time(struct store *store, int64_t ms, uint64_t *ret_offset, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_LOG, false);
	uint64_t low = store_floor(store), high = store_last_sequence(store) + 1;
	int rc = 0;

	while (low < high && rc >= 0) {
		uint64_t middle = low + (high - low) / 2;
		struct block b = {0};
		rc = commit_time(it, middle, &b, error);
		if (rc == 0) { /* a gap at the end */
			high = middle;
		} else if (rc > 0) {
			uint64_t i = middle > b.first ? middle - b.first : 0;
			if (block_event(&b, (uint32_t)i).commit_ms < ms)
				low = b.first + i + 1;
			else
				high = middle;
		}
	}
	db_iterator_close(it);
	*ret_offset = low - 1;
	return rc < 0 ? rc : 0;
}

static int target(struct group *g, enum store_group_move move, int64_t number, uint64_t *ret_offset,
		  struct error *error)
{
	uint64_t last = store_last_sequence(g->store);
	int rc = 0;

	switch (move) {
	case STORE_MOVE_COMMIT:
		*ret_offset = (uint64_t)number;
		rc = number >= 0 && (uint64_t)number <= last ? 0 : -EINVAL;
		break;
	case STORE_MOVE_EARLIEST:
		*ret_offset = store_floor(g->store) - 1;
		break;
	case STORE_MOVE_LATEST:
		*ret_offset = last;
		break;
	case STORE_MOVE_BY:
		if (number < 0)
			*ret_offset = backward(g->store, g->offset, -(uint64_t)number);
		else
			rc = forward(g->store, g->offset, (uint64_t)number, ret_offset);
		break;
	case STORE_MOVE_TIME:
		return at_time(g->store, number, ret_offset, error);
	default:
		return -EINVAL;
	}
	return rc < 0 ? error_set(error, rc, "that is beyond the log's end, %llu", U(last)) : 0;
}

/* ---- going there ---- */

static void drop_up_to(struct group *g, struct entries *list, uint64_t offset)
{
	while (list->n && entries_at(list, 0)->sequence <= offset) {
		struct entry *e = entries_at(list, 0);
		bool pending = e->state != ENTRY_DONE && e->state != ENTRY_RELEASED;
		g->acknowledged += pending;
		group_drop(g, e);
	}
}

static void go_forward(struct group *g, uint64_t offset)
{
	if (offset >= g->scan)
		g->acknowledged += offset + 1 - g->scan;
	drop_up_to(g, &g->extra, offset);
	drop_up_to(g, &g->window, offset);
	if (g->scan <= offset)
		g->scan = offset + 1;
	g->offset = offset;
	group_advance(g);
}

/* All above it is new again, but for what was given back and is below the floor. */
static void go_back(struct group *g, uint64_t offset)
{
	uint64_t floor = store_floor(g->store);

	while (g->window.n)
		group_drop(g, entries_at(&g->window, g->window.n - 1));
	for (size_t i = g->extra.n; i--;) {
		struct entry *e = entries_at(&g->extra, i);
		if (e->sequence > offset && e->sequence >= floor)
			group_drop(g, e);
	}
	g->offset = offset;
	g->scan = offset + 1;
}

static int put_event(struct group *g, const char *command, uint64_t offset, struct bytes who,
		     const char *outcome)
{
	_cleanup_(buffer_free) struct buffer details = {0};

	if (buffer_printf(&details, "{\"group\":") < 0 ||
	    buffer_add_bytes(&details, buffer_bytes(&g->quoted)) < 0 ||
	    buffer_printf(&details, ",\"command\":\"%s\"", command) < 0 ||
	    (who.n && (buffer_printf(&details, ",\"operator\":") < 0 ||
		       buffer_add_json_string(&details, who) < 0)) ||
	    buffer_printf(&details,
			  ",\"direction\":\"%s\",\"previous_offset\":\"%llu\","
			  "\"new_offset\":\"%llu\",\"outcome\":\"%s\"}",
			  offset < g->offset ? "backward" : "forward", U(g->offset), U(offset),
			  outcome) < 0)
		return -ENOMEM;
	return record_put_ops(g->store, g->out, "offsets-set", buffer_bytes(&details));
}

static void name_command(enum store_group_move move, int64_t number, char *p, size_t size)
{
	long long n = number;

	if (move == STORE_MOVE_EARLIEST || move == STORE_MOVE_LATEST)
		snprintf(p, size, "%s", move == STORE_MOVE_LATEST ? "latest" : "earliest");
	else if (move == STORE_MOVE_BY)
		snprintf(p, size, "%+lld", n);
	else
		snprintf(p, size, "%s%lld", move == STORE_MOVE_TIME ? "@" : "", n);
}

static int move_to(struct group *g, enum store_group_move move, int64_t number, uint64_t offset,
		   struct bytes who)
{
	bool commit = move == STORE_MOVE_COMMIT && offset >= g->offset;
	char command[32];
	int rc = 0;

	name_command(move, number, command, sizeof(command));
	if (!commit)
		rc = put_event(g, command, offset, who, "applying");
	if (rc == 0 && !commit)
		rc = put_event(g, command, offset, who, "applied");
	if (rc < 0)
		return rc;
	if (offset >= g->offset)
		go_forward(g, offset);
	else
		go_back(g, offset);
	g->started = true;
	return 0;
}

/* The usual case, a consumer's own checkpoint: no ops event, so no lead. 1: it is not that. */
static int commit_offset(struct group *g, int64_t number, struct error *error)
{
	if (number < 0 || (uint64_t)number < g->offset)
		return 1;
	if ((uint64_t)number > store_last_sequence(g->store))
		return error_set(error, -EINVAL, "that is beyond the log's end, %llu",
				 U(store_last_sequence(g->store)));
	int rc = group_room(g, 4096 + 64 * g->window.n, error);
	if (rc < 0)
		return rc;
	rc = move_to(g, STORE_MOVE_COMMIT, number, (uint64_t)number, (struct bytes){0});
	return rc < 0 ? rc : group_write(g, error);
}

static int move_led(struct group *g, enum store_group_move move, int64_t number, struct bytes who,
		    struct error *error)
{
	uint64_t offset;

	int rc = group_lead_start(g, error);
	if (rc < 0)
		return rc;
	rc = target(g, move, number, &offset, error);
	if (rc == 0)
		rc = commit_room(g->store, 8192 + 64 * g->window.n, error);
	bool touched = rc == 0;
	if (rc == 0)
		rc = move_to(g, move, number, offset, who);
	return group_lead_end(g, rc, touched, error);
}

int store_group_move(struct store *store, uint32_t group, enum store_group_move move,
		     int64_t number, struct bytes who, struct error *error)
{
	struct group *g = group_lock(store, group);
	int rc = 1;

	if (!g)
		return -ENOENT;
	if (move == STORE_MOVE_COMMIT)
		rc = commit_offset(g, number, error);
	group_unlock(g);
	if (rc > 0)
		return move_led(g, move, number, who, error);
	if (rc == 0)
		group_call_listener(store);
	return rc;
}
