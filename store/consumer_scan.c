/* SPDX-License-Identifier: Apache-2.0 */
/* A group's way along the log. */
#include <errno.h>

#include "store/consumer_internal.h"

#define KEEP_BYTES ((size_t)1 << 20)
#define BLOCK_COST 1024 /* bytes that could be looked at in the time that finding a block takes */

void scanner_start(struct scanner *s, struct group *g, size_t budget)
{
	*s = (struct scanner){.g = g, .last = store_last_sequence(g->store), .budget = budget};
}

void scanner_end(struct scanner *s)
{
	db_iterator_close(s->it);
	if (s->g->block_bytes.cap > KEEP_BYTES) {
		buffer_free(&s->g->block_bytes);
		s->g->block.count = 0;
	}
}

/* Puts the iterator onto the first block that ends at or behind the scan. 1, 0 at the end. */
static int find_block(struct scanner *s, struct bytes *ret_value, struct error *error)
{
	struct key key = key_log(s->g->scan);
	struct bytes k;
	int rc = 0;

	if (s->on_block) {
		db_iterator_next(s->it);
		rc = db_iterator_get(s->it, &k, ret_value, error);
		if (rc > 0 && k.n == KEY_LOG_SIZE && get_be64(k.p) >= s->g->scan)
			return 1;
	}
	if (!s->it)
		s->it = db_iterator_open(s->g->store->db, DB_LOG, true);
	db_iterator_seek(s->it, KEY_BYTES(key));
	rc = db_iterator_get(s->it, &k, ret_value, error);
	s->on_block = rc > 0;
	return rc;
}

/* Copies the block of the scan, or the first one behind it. 1, 0 at the end or the limit. */
static int load_block(struct scanner *s, struct error *error)
{
	struct group *g = s->g;
	struct bytes value = {0};

	if (!s->budget)
		return 0;
	g->block.count = 0;
	int rc = find_block(s, &value, error);
	if (rc <= 0)
		return rc;
	s->budget -= s->budget < value.n + BLOCK_COST ? s->budget : value.n + BLOCK_COST;
	g->block_bytes.n = 0;
	if (buffer_add_bytes(&g->block_bytes, value) < 0)
		return -ENOMEM;
	rc = block_parse(buffer_bytes(&g->block_bytes), &g->block, error);
	if (rc < 0)
		return rc;
	g->block_index = 0;
	g->block_offset = 0;
	if (g->scan < g->block.first)
		g->scan = g->block.first; /* over a gap of the log */
	return 1;
}

/* The cached block to the event at the scan. False if that is not in it. */
static bool in_block(struct group *g)
{
	const struct block *b = &g->block;

	if (!b->count || g->scan < b->first || g->scan >= b->first + b->count)
		return false;
	uint32_t index = (uint32_t)(g->scan - b->first);
	if (index == g->block_index + 1)
		g->block_offset += block_event(b, g->block_index).length;
	else if (index != g->block_index)
		g->block_offset = block_line_offset(b, index);
	g->block_index = index;
	return true;
}

/* Passes what is in the window from an earlier look. */
static bool pass_entry(struct group *g)
{
	struct entry *e = NULL;

	if (g->window.n && entries_at(&g->window, g->window.n - 1)->sequence >= g->scan)
		e = entries_find(&g->window, g->scan);
	if (!e)
		return false;
	g->scan++;
	entry_place(g, e); /* only now it may go, where the order of keys is asked for */
	return true;
}

int scanner_next(struct scanner *s, struct store_event_info *ret_info, struct bytes *ret_line,
		 struct error *error)
{
	struct group *g = s->g;

	while (g->scan <= s->last) {
		if (!in_block(g)) {
			int rc = load_block(s, error);
			if (rc == 0 && s->budget) /* a gap at the log's end */
				g->scan = s->last + 1;
			if (rc <= 0)
				return rc;
			if (g->scan > s->last)
				return 0;
			in_block(g);
		}
		if (pass_entry(g))
			continue;
		*ret_info = block_event(&g->block, g->block_index);
		*ret_line = (struct bytes){g->block.lines.p + g->block_offset, ret_info->length};
		int rc = group_matches(g, ret_info->collection, ret_info->type, *ret_line, error);
		if (rc)
			return rc;
		g->scan++;
	}
	return 0;
}

int group_skip(struct group *g, size_t budget, struct error *error)
{
	struct scanner s;
	struct store_event_info info;
	struct bytes line;

	if (g->scan > store_last_sequence(g->store) || group_has_gap(g))
		return 0;
	scanner_start(&s, g, budget);
	int rc = scanner_next(&s, &info, &line, error);
	scanner_end(&s);
	group_advance(g);
	return rc;
}

int entry_line(struct group *g, const struct entry *e, struct store_event_info *ret_info,
	       struct error *error)
{
	if (e->has_line)
		return entry_get_line(g, e, ret_info, error);
	g->line.n = 0;
	return store_event_get(g->store, e->sequence, ret_info, &g->line, error);
}

bool group_has_gap(const struct group *g)
{
	return g->offset + 1 < store_floor(g->store);
}

/* What is below the floor is gone, but for the lines that were given back. */
int group_pass_gap(struct group *g, uint64_t floor)
{
	int rc = 0;

	while (rc == 0 && g->window.n && entries_at(&g->window, 0)->sequence < floor) {
		struct entry *e = entries_at(&g->window, 0);
		if (e->has_line && e->state != ENTRY_DONE && e->state != ENTRY_RELEASED)
			rc = group_make_extra(g, e);
		else
			group_drop(g, e);
	}
	if (g->scan < floor)
		g->scan = floor;
	group_advance(g);
	return rc;
}
