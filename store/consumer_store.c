/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a group, written and loaded; keys.h draws them. */
#include <errno.h>
#include <stdlib.h>

#include "store/consumer_internal.h"

#define ROOM_STEP   (INT64_C(4) << 20)
#define OFFSET_SIZE 57
#define ENTRY_HEAD  46
#define LEASE_HEAD  8
#define LEASE_SIZE  12
#define LINE_HEAD   6

/* ---- writing ---- */

int group_room(struct group *g, uint64_t bytes, struct error *error)
{
	struct groups *all = g->store->groups;

	if (g->broken)
		return error_set(error, -EBADMSG, "the records of group %s cannot be read",
				 g->name);
	if (atomic_fetch_sub(&all->room, (int64_t)bytes) >= (int64_t)bytes)
		return 0;
	int rc = commit_check_disk(g->store, bytes + ROOM_STEP, error);
	atomic_store(&all->room, rc == 0 ? ROOM_STEP : 0);
	return rc;
}

void group_put(struct group *g)
{
	struct key key = key_group('O', g->number);
	char p[OFFSET_SIZE];

	put_le64(p, g->offset);
	put_le64(p + 8, g->next_delivery);
	p[16] = g->started;
	put_le64(p + 17, g->delivered);
	put_le64(p + 25, g->acknowledged);
	put_le64(p + 33, g->redelivered);
	put_le64(p + 41, g->refused);
	put_le64(p + 49, g->dead_lettered);
	db_batch_put(g->store->db, g->out, DB_GROUPS, KEY_BYTES(key), (struct bytes){p, sizeof(p)});
}

int group_write(struct group *g, struct error *error)
{
	group_put(g);
	int rc = db_write(g->store->db, g->out, false, error);
	db_batch_clear(g->out);
	if (rc == 0) {
		atomic_fetch_add(&g->store->written, 1);
		g->dirty = false;
	} else {
		group_reload(g);
	}
	return rc;
}

void entry_put(struct group *g, struct entry *e)
{
	struct key key = key_group_entry('P', g->number, e->sequence);
	int64_t left = e->due - group_clock(g->store);
	char p[ENTRY_HEAD];

	p[0] = e->state == ENTRY_DYING && !e->is_dead ? ENTRY_WAITING : (char)e->state;
	p[1] = (char)e->failure;
	put_le32(p + 2, e->attempts);
	put_le64(p + 6, e->delivery);
	put_le64(p + 14, (uint64_t)e->delivered_ms);
	put_le64(p + 22, (uint64_t)(group_wall(g->store) + (left > 0 ? left : 0)));
	put_le64(p + 30, (uint64_t)e->first_failure_ms);
	put_le64(p + 38, (uint64_t)e->last_failure_ms);
	db_batch_put2(g->store->db, g->out, DB_GROUPS, KEY_BYTES(key), (struct bytes){p, sizeof(p)},
		      bytes_of(e->reason ? e->reason : ""));
	e->is_stored = true;
}

static void delete_record(struct group *g, char kind, uint64_t number)
{
	struct key key = key_group_entry(kind, g->number, number);

	db_batch_delete(g->store->db, g->out, DB_GROUPS, KEY_BYTES(key));
}

void entry_leave_record(struct group *g, struct entry *e)
{
	if (e->record && !--e->record->live) {
		delete_record(g, 'L', e->record->first);
		free(e->record);
	}
	e->record = NULL;
	if (e->is_stored)
		delete_record(g, 'P', e->sequence);
	e->is_stored = false;
}

void entry_delete_records(struct group *g, struct entry *e)
{
	entry_leave_record(g, e);
	if (e->has_line)
		delete_record(g, 'R', e->sequence);
	e->has_line = false;
}

void group_delete_records(struct group *g, const char *kinds)
{
	for (; *kinds; kinds++) {
		struct key from = key_group(*kinds, g->number);
		struct key to = key_group(*kinds, g->number + 1);
		db_batch_delete_range(g->store->db, g->out, DB_GROUPS, KEY_BYTES(from),
				      KEY_BYTES(to));
	}
}

void leases_start(struct group *g, struct leases *leases)
{
	*leases = (struct leases){.first = g->next_delivery};
	g->scratch.n = 0;
}

int leases_add(struct group *g, struct leases *leases, struct entry *e)
{
	char p[LEASE_SIZE];

	if (!leases->record) {
		char head[LEASE_HEAD];
		leases->record = calloc(1, sizeof(*leases->record));
		put_le64(head, (uint64_t)e->delivered_ms);
		if (!leases->record || buffer_add(&g->scratch, head, LEASE_HEAD) < 0)
			return -ENOMEM;
		leases->record->first = leases->first;
	}
	put_le64(p, e->sequence);
	put_le32(p + 8, e->attempts);
	if (buffer_add(&g->scratch, p, LEASE_SIZE) < 0)
		return -ENOMEM;
	e->record = leases->record;
	leases->record->live++;
	return 0;
}

void leases_put(struct group *g, const struct leases *leases)
{
	struct key key = key_group_entry('L', g->number, leases->first);

	db_batch_put(g->store->db, g->out, DB_GROUPS, KEY_BYTES(key), buffer_bytes(&g->scratch));
}

void entry_put_line(struct group *g, struct entry *e, uint32_t collection, enum store_type type,
		    unsigned char flags, struct bytes line)
{
	struct key key = key_group_entry('R', g->number, e->sequence);
	char head[LINE_HEAD];

	put_le32(head, collection);
	head[4] = (char)type;
	head[5] = (char)flags;
	db_batch_put2(g->store->db, g->out, DB_GROUPS, KEY_BYTES(key),
		      (struct bytes){head, LINE_HEAD}, line);
	e->has_line = true;
}

int entry_get_line(struct group *g, const struct entry *e, struct store_event_info *ret_info,
		   struct error *error)
{
	struct key key = key_group_entry('R', g->number, e->sequence);
	struct db_value v = {0};

	int rc = db_get(g->store->db, DB_GROUPS, KEY_BYTES(key), &v, error);
	if (rc < 0)
		return rc;
	g->line.n = 0;
	if (v.bytes.n < LINE_HEAD)
		rc = error_set(error, -EBADMSG, "a returned line of group %s is cut", g->name);
	else
		rc = buffer_add(&g->line, v.bytes.p + LINE_HEAD, v.bytes.n - LINE_HEAD);
	if (rc == 0)
		*ret_info = (struct store_event_info){
			.sequence = e->sequence,
			.collection = get_le32(v.bytes.p),
			.type = (enum store_type)v.bytes.p[4],
			.flags = (unsigned char)v.bytes.p[5],
			.length = (uint32_t)g->line.n,
		};
	db_value_free(&v);
	return rc;
}

/* ---- loading ---- */

static int load_offset(struct group *g, struct error *error)
{
	struct key key = key_group('O', g->number);
	struct db_value v = {0};

	int rc = db_get(g->store->db, DB_GROUPS, KEY_BYTES(key), &v, error);
	if (rc == 0 && v.bytes.n != OFFSET_SIZE)
		rc = -EBADMSG;
	if (rc == 0) {
		const char *p = v.bytes.p;
		g->offset = get_le64(p);
		g->next_delivery = get_le64(p + 8);
		g->started = p[16];
		g->delivered = get_le64(p + 17);
		g->acknowledged = get_le64(p + 25);
		g->redelivered = get_le64(p + 33);
		g->refused = get_le64(p + 41);
		g->dead_lettered = get_le64(p + 49);
		g->scan = g->offset + 1;
	}
	db_value_free(&v);
	return rc < 0 ? error_set(error, -EBADMSG, "the offset of group %s cannot be read", g->name)
		      : 0;
}

/* Calls `each` for all records of a kind, in order. */
static int each_record(struct group *g, char kind,
		       int (*each)(struct group *g, uint64_t number, struct bytes value),
		       struct error *error)
{
	struct db_iterator *it = db_iterator_open(g->store->db, DB_GROUPS, false);
	struct key from = key_group(kind, g->number);
	struct bytes k, v;
	uint64_t number;
	int rc;

	db_iterator_seek(it, KEY_BYTES(from));
	while ((rc = db_iterator_get(it, &k, &v, error)) > 0 &&
	       key_index_read(k, kind, g->number, &number)) {
		rc = each(g, number, v);
		if (rc < 0)
			break;
		db_iterator_next(it);
	}
	db_iterator_close(it);
	if (rc == -EBADMSG)
		error_set(error, rc, "a record of group %s is malformed", g->name);
	return rc < 0 ? rc : 0;
}

static int load_line(struct group *g, uint64_t sequence, struct bytes value)
{
	bool extra = sequence <= g->offset || sequence < store_floor(g->store);
	struct entry *e = group_add(g, sequence, extra);

	if (e)
		e->has_line = true;
	return e ? 0 : -ENOMEM;
}

/* One that was delivered: the group's process has ended since, so it waits to be delivered again.
 */
static int load_lease(struct group *g, const char *p, uint64_t delivery, int64_t delivered_ms,
		      struct lease_record *record)
{
	uint64_t sequence = get_le64(p);
	struct entry *e = group_entry(g, sequence);

	if (!e && sequence <= g->offset)
		return 0;
	if (!e)
		e = group_add(g, sequence, false);
	if (!e)
		return -ENOMEM;
	if (e->record && !--e->record->live)
		free(e->record);
	e->record = record;
	record->live++;
	e->delivery = delivery;
	e->delivered_ms = delivered_ms;
	e->attempts = get_le32(p + 8);
	entry_fail(g, e, FAILURE_RESTART);
	return 0;
}

static int load_leases(struct group *g, uint64_t first, struct bytes value)
{
	if (value.n < LEASE_HEAD || (value.n - LEASE_HEAD) % LEASE_SIZE)
		return -EBADMSG;
	struct lease_record *record = calloc(1, sizeof(*record));
	if (!record)
		return -ENOMEM;
	record->first = first;
	record->live = 1;
	int rc = 0;
	size_t n = (value.n - LEASE_HEAD) / LEASE_SIZE;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = load_lease(g, value.p + LEASE_HEAD + i * LEASE_SIZE, first + i,
				(int64_t)get_le64(value.p), record);
	if (!--record->live)
		free(record);
	return rc;
}

static int load_entry(struct group *g, uint64_t sequence, struct bytes value)
{
	struct entry *e = group_entry(g, sequence);
	const char *p = value.p;

	if (value.n < ENTRY_HEAD)
		return -EBADMSG;
	if (!e && sequence > g->offset)
		e = group_add(g, sequence, false);
	if (!e)
		return sequence > g->offset ? -ENOMEM : -EBADMSG;
	e->is_stored = true;
	if (get_le64(p + 6) < e->delivery)
		return 0;
	int64_t left = (int64_t)get_le64(p + 22) - group_wall(g->store);
	e->state = (unsigned char)p[0];
	e->is_dead = e->state == ENTRY_DYING;
	e->failure = (unsigned char)p[1];
	e->attempts = get_le32(p + 2);
	e->delivery = get_le64(p + 6);
	e->delivered_ms = (int64_t)get_le64(p + 14);
	e->due = group_clock(g->store) + (left > 0 ? left : 0);
	e->first_failure_ms = (int64_t)get_le64(p + 30);
	e->last_failure_ms = (int64_t)get_le64(p + 38);
	free(e->reason);
	e->reason = value.n > ENTRY_HEAD ? strndup(p + ENTRY_HEAD, value.n - ENTRY_HEAD) : NULL;
	return e->state >= ENTRY_WAITING && e->state <= ENTRY_RELEASED ? 0 : -EBADMSG;
}

static void place_loaded(struct group *g, struct entries *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct entry *e = entries_at(list, i);
		bool finished = e->state == ENTRY_DONE || e->state == ENTRY_RELEASED;
		if (e->state == ENTRY_NEW)
			e->state = ENTRY_WAITING;
		g->waiting += !finished;
		g->unfinished += !finished;
	}
	for (size_t i = 0; i < list->n; i++)
		entry_place(g, entries_at(list, i));
}

int group_load_state(struct group *g, struct error *error)
{
	int rc = load_offset(g, error);

	if (rc == 0)
		rc = each_record(g, 'R', load_line, error);
	if (rc == 0)
		rc = each_record(g, 'L', load_leases, error);
	if (rc == 0)
		rc = each_record(g, 'P', load_entry, error);
	g->unfinished = g->waiting = g->leased = 0;
	if (rc == 0)
		rc = group_chain_all(g, error);
	if (rc == 0) {
		place_loaded(g, &g->window);
		place_loaded(g, &g->extra);
	}
	return rc;
}

void group_reload(struct group *g)
{
	db_batch_clear(g->out);
	group_forget(g);
	g->broken = group_load_state(g, NULL) < 0;
}
