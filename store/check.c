/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `changefs check`: every invariant of a store, in one walk over the log and one over each other
 * family. Memory does not grow with the log: what a block says is looked up in the index and the
 * documents, and the other way round.
 */
#include "store/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void check_fault(struct check *c, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	c->faults++;
	c->report(c->context, text);
}

#define U(v) ((unsigned long long)(v))

static const char *name_of(struct check *c, uint32_t id)
{
	static _Thread_local char name[STORE_NAME_MAX + 1];
	struct bytes n = store_collection_name(c->store, id);

	snprintf(name, sizeof(name), "%.*s", (int)n.n, n.p ? n.p : "");
	return name;
}

/* ---- blocks ---- */

static bool is_gap(struct check *c, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < c->store->gap_count; i++)
		if (c->store->gaps[i].from == from && c->store->gaps[i].to == to)
			return true;
	return false;
}

/* A gap may follow another, when a store was opened after a reboot and nothing was written. */
static bool are_gaps(struct check *c, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < c->store->gap_count && from <= to; i++)
		if (c->store->gaps[i].from == from)
			from = c->store->gaps[i].to + 1;
	return is_gap(c, from, to) || from == to + 1;
}

/* The next block joins the one before it, but for known gaps. */
static void check_succession(struct check *c, const struct block *b, bool is_first)
{
	struct tally *all = &c->tallies[0];

	if (is_first) {
		if (b->first > store_floor(c->store) &&
		    !are_gaps(c, store_floor(c->store), b->first - 1))
			check_fault(c, "the log begins at sequence %llu, above the floor %llu",
				    U(b->first), U(store_floor(c->store)));
		return;
	}
	uint64_t next = all->last_sequence + 1;
	if (b->first != next && !(b->first > next && are_gaps(c, next, b->first - 1)))
		check_fault(c, "sequence %llu is followed by %llu", U(next - 1), U(b->first));
	else if (b->first == next && b->position != all->position)
		check_fault(c, "the block of sequence %llu is at position %llu, not %llu",
			    U(b->first), U(b->position), U(all->position));
	else if (b->position < all->position)
		check_fault(c, "position %llu of sequence %llu is given twice", U(b->position),
			    U(b->first));
}

static void check_line(struct check *c, const struct store_event_info *e, const char *line)
{
	char head[64];
	const char *type = store_type_name(e->type);
	int n = snprintf(head, sizeof(head), "{\"sequence\":%llu,\"type\":\"%s\"", U(e->sequence),
			 type ? type : "?");

	if (!type)
		check_fault(c, "sequence %llu has type %d, which there is not", U(e->sequence),
			    e->type);
	else if (e->length < (uint32_t)n + 2 || memcmp(line, head, (size_t)n) != 0)
		check_fault(c, "the line of sequence %llu does not begin as it should",
			    U(e->sequence));
	else if (memchr(line, '\n', e->length) != line + e->length - 1 ||
		 line[e->length - 2] != '}')
		check_fault(c, "the line of sequence %llu does not end as it should",
			    U(e->sequence));
}

static void check_index_position(struct check *c, uint32_t collection, uint64_t position,
				 uint64_t first)
{
	struct key key = key_index('P', collection, position);
	struct db_value v = {0};

	c->index_entries++;
	if (db_get(c->store->db, DB_INDEX, KEY_BYTES(key), &v, NULL) < 0 || v.bytes.n != 8)
		check_fault(c, "the index lacks position %llu of collection %u", U(position),
			    collection);
	else if (get_le64(v.bytes.p) != first)
		check_fault(c,
			    "the index gives sequence %llu for position %llu of collection %u, not "
			    "%llu",
			    U(get_le64(v.bytes.p)), U(position), collection, U(first));
	db_value_free(&v);
}

/* Compares the runs of an entry with the block's events. */
static bool runs_agree(const struct block *b, uint32_t collection, struct bytes runs)
{
	uint64_t next = 0, left = 0, skip;
	bool started = false;

	for (uint32_t i = 0; i < b->count; i++) {
		struct store_event_info e = block_event(b, i);
		if (e.collection != collection)
			continue;
		if (!started)
			next = e.sequence;
		started = true;
		while (!left) {
			size_t n = varint_read(runs, &skip);
			size_t m =
				n ? varint_read((struct bytes){runs.p + n, runs.n - n}, &left) : 0;
			if (!m)
				return false;
			runs.p += n + m;
			runs.n -= n + m;
			next += skip;
		}
		if (next++ != e.sequence)
			return false;
		left--;
	}
	return !left && !runs.n;
}

static void check_index_sequence(struct check *c, const struct block *b, uint32_t collection)
{
	struct tally *t = &c->tallies[collection];
	struct key key = key_index('S', collection, t->first);
	struct db_value v = {0};
	struct index_entry entry = {0};

	c->index_entries++;
	if (db_get(c->store->db, DB_INDEX, KEY_BYTES(key), &v, NULL) < 0 ||
	    index_entry_parse(KEY_BYTES(key), v.bytes, &entry, NULL) < 0) {
		check_fault(c, "the index lacks sequence %llu of %s", U(t->first),
			    name_of(c, collection));
		db_value_free(&v);
		return;
	}
	if (entry.count != t->count || entry.bytes != t->bytes ||
	    !runs_agree(b, collection, entry.runs))
		check_fault(c,
			    "the index counts %u events and %u bytes of %s from sequence %llu on, "
			    "the log %u and %llu",
			    entry.count, entry.bytes, name_of(c, collection), U(t->first), t->count,
			    U(t->bytes));
	if (t->seen && entry.position < t->position)
		check_fault(c, "position %llu of %s is given twice", U(entry.position),
			    name_of(c, collection));
	check_index_position(c, collection, entry.position, t->first);
	t->position = entry.position + t->bytes;
	t->seen = true;
	db_value_free(&v);
}

static void tally_event(struct check *c, const struct store_event_info *e)
{
	struct tally *t;

	if (e->collection < 1 || e->collection > c->collections) {
		check_fault(c, "sequence %llu is of collection %u, which there is not",
			    U(e->sequence), e->collection);
		return;
	}
	t = &c->tallies[e->collection];
	if (!t->count++)
		t->first = e->sequence;
	t->bytes += e->length;
	t->events++;
	t->last_sequence = e->sequence;
}

static void check_block(struct check *c, const struct block *b, bool is_first)
{
	size_t offset = 0;

	check_succession(c, b, is_first);
	check_index_position(c, 0, b->position, b->first);
	for (uint32_t i = 0; i < b->count; i++) {
		struct store_event_info e = block_event(b, i);
		check_line(c, &e, b->lines.p + offset);
		tally_event(c, &e);
		check_event_document(c, &e, (struct bytes){b->lines.p + offset, e.length});
		offset += e.length;
	}
	for (uint32_t i = 0; i < b->count; i++) {
		uint32_t id = block_event(b, i).collection;
		if (id < 1 || id > c->collections || !c->tallies[id].count)
			continue;
		check_index_sequence(c, b, id);
		c->tallies[id].count = 0;
		c->tallies[id].bytes = 0;
	}
	c->tallies[0].position = block_end(b);
	c->tallies[0].last_sequence = b->first + b->count - 1;
	c->tallies[0].events += b->count;
}

static void check_log(struct check *c)
{
	struct db_iterator *it = db_iterator_open(c->store->db, DB_LOG, true);
	struct bytes k, v;
	struct block b = {0};
	struct error error = {""};
	bool is_first = true;
	int rc;

	db_iterator_seek(it, BYTES(""));
	while ((rc = db_iterator_get(it, &k, &v, &error)) > 0) {
		if (block_parse(v, &b, &error) < 0)
			check_fault(c, "%s", error.text);
		else if (k.n != KEY_LOG_SIZE || get_be64(k.p) != b.first + b.count - 1)
			check_fault(c, "the block of sequence %llu has another's key", U(b.first));
		else
			check_block(c, &b, is_first);
		is_first = false;
		db_iterator_next(it);
	}
	if (rc < 0)
		check_fault(c, "%s", error.text);
	db_iterator_close(it);
}

/* ---- ends ---- */

static void check_ends(struct check *c)
{
	struct store *s = c->store;
	struct tally *all = &c->tallies[0];
	uint64_t last = s->commit.next_sequence - 1;

	if (all->last_sequence > last)
		check_fault(c, "the log ends at sequence %llu, the store's record at %llu",
			    U(all->last_sequence), U(last));
	if (all->last_sequence < last && last >= store_floor(s) &&
	    !are_gaps(c, all->last_sequence + 1, last))
		check_fault(c, "the log lacks the sequences %llu to %llu",
			    U(all->last_sequence + 1), U(last));
	if (all->position > s->commit.position)
		check_fault(c, "the log ends at position %llu, the store's record at %llu",
			    U(all->position), U(s->commit.position));
	if (store_floor(s) > last + 1)
		check_fault(c, "the floor %llu is beyond the end %llu", U(store_floor(s)), U(last));
	for (uint32_t id = 1; id <= c->collections; id++) {
		struct collection *it = s->collections.by_id[id - 1];
		struct tally *t = &c->tallies[id];
		if (t->seen && (t->position > it->pending.position ||
				t->last_sequence != it->pending.last_sequence))
			check_fault(
				c,
				"%s ends at sequence %llu and position %llu, its record at %llu "
				"and %llu",
				name_of(c, id), U(t->last_sequence), U(t->position),
				U(it->pending.last_sequence), U(it->pending.position));
		if (store_floor(s) == 1 && t->events != it->pending.events)
			check_fault(c, "%s has %llu events, its record says %llu", name_of(c, id),
				    U(t->events), U(it->pending.events));
	}
}

/* Entries that no block asked for point to nothing. */
static void check_index_size(struct check *c)
{
	struct db_iterator *it = db_iterator_open(c->store->db, DB_INDEX, true);
	struct bytes k, v;
	uint64_t n = 0;

	db_iterator_seek(it, BYTES(""));
	for (; db_iterator_get(it, &k, &v, NULL) > 0; db_iterator_next(it))
		n++;
	db_iterator_close(it);
	if (n != c->index_entries)
		check_fault(c, "the index has %llu entries, the log's blocks need %llu", U(n),
			    U(c->index_entries));
}

static int look_at(void *context, struct bytes name, const struct store_attributes *attributes)
{
	return 0;
}

static void check_attributes(struct check *c)
{
	struct error error = {0};

	if (store_attributes_each(c->store, look_at, NULL, &error) < 0)
		check_fault(c, "%s", error.text);
}

int store_check(struct store *store, void (*report)(void *context, const char *fault),
		void *context)
{
	struct check c = {
		.store = store,
		.report = report,
		.context = context,
		.collections = store->collections.count,
	};

	c.tallies = calloc((size_t)c.collections + 1, sizeof(*c.tallies));
	if (!c.tallies)
		return -ENOMEM;
	check_log(&c);
	check_orphans(&c);
	check_ends(&c);
	check_index_size(&c);
	check_documents(&c);
	check_attributes(&c);
	check_groups(&c);
	free(c.tallies);
	free(c.orphans);
	buffer_free(&c.key);
	buffer_free(&c.text);
	buffer_free(&c.line);
	return c.faults;
}
