/* SPDX-License-Identifier: Apache-2.0 */
/* The consumer groups: as they were loaded, and record by record. */
#include "store/check.h"
#include "store/consumer_internal.h"

#define U(v) ((unsigned long long)(v))

static void check_list(struct check *c, const struct group *g, const struct entries *list)
{
	uint64_t last = c->store->commit.next_sequence - 1, before = 0;

	for (size_t i = 0; i < list->n; i++) {
		const struct entry *e = entries_at(list, i);
		if (e->sequence <= before)
			check_fault(c, "group %s has event %llu twice", g->name, U(e->sequence));
		if (e->sequence > last)
			check_fault(c, "group %s has event %llu, beyond the log's end %llu",
				    g->name, U(e->sequence), U(last));
		if (e->delivery >= g->next_delivery)
			check_fault(c, "group %s will give delivery %llu again", g->name,
				    U(e->delivery));
		before = e->sequence;
	}
}

static void check_group(struct check *c, const struct group *g)
{
	uint64_t last = c->store->commit.next_sequence - 1;

	if (g->broken)
		check_fault(c, "the records of group %s cannot be read", g->name);
	if (g->offset > last)
		check_fault(c, "the offset %llu of group %s is beyond the log's end %llu",
			    U(g->offset), g->name, U(last));
	check_list(c, g, &g->window);
	check_list(c, g, &g->extra);
}

/* A record of a single event: of a group that there is, for an event that the group keeps. */
static void check_record(struct check *c, struct bytes key)
{
	struct group *g = key.n < 5 ? NULL : group_find(c->store, get_be32(key.p + 1));
	uint64_t number = key.n == KEY_INDEX_SIZE ? get_be64(key.p + 5) : 0;
	char kind = key.n ? key.p[0] : '?';

	if (key.n == 1 && kind == 'N')
		return;
	if (!strchr("GOLPR", kind) || !g)
		check_fault(c, "a record %c is of no group", kind);
	else if ((kind == 'P' || kind == 'R') && !g->broken && !group_entry(g, number))
		check_fault(c, "group %s has a record of event %llu, which it has done with",
			    g->name, U(number));
	else if (kind == 'L' && number >= g->next_delivery)
		check_fault(c, "group %s will give delivery %llu again", g->name, U(number));
}

void check_groups(struct check *c)
{
	struct db_iterator *it = db_iterator_open(c->store->db, DB_GROUPS, true);
	struct bytes k, v;
	uint32_t number = 0;
	int rc;

	while (store_group_next(c->store, number, &number))
		check_group(c, group_find(c->store, number));
	db_iterator_seek(it, BYTES(""));
	while ((rc = db_iterator_get(it, &k, &v, NULL)) > 0) {
		check_record(c, k);
		db_iterator_next(it);
	}
	if (rc < 0)
		check_fault(c, "the records of the groups cannot be read");
	db_iterator_close(it);
}
