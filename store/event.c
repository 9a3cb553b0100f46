/* SPDX-License-Identifier: Apache-2.0 */
/* Single events by sequence, and the events of a collection in order. */
#include <errno.h>
#include <stdlib.h>

#include "store/internal.h"

/* ---- single events ---- */

/* What is known of events that were looked at lately: they never change, and their block may be
 * large. */
static struct store_event_info *known_slot(struct store *store, uint64_t sequence)
{
	return &store->known.events[sequence % KNOWN_EVENTS];
}

static bool find_known(struct store *store, uint64_t sequence, struct store_event_info *ret_info)
{
	pthread_mutex_lock(&store->known.mutex);
	*ret_info = *known_slot(store, sequence);
	pthread_mutex_unlock(&store->known.mutex);
	return ret_info->sequence == sequence;
}

static void keep_known(struct store *store, const struct store_event_info *info)
{
	pthread_mutex_lock(&store->known.mutex);
	*known_slot(store, info->sequence) = *info;
	pthread_mutex_unlock(&store->known.mutex);
}

int store_event_get(struct store *store, uint64_t sequence, struct store_event_info *ret_info,
		    struct buffer *line, struct error *error)
{
	struct block b = {0};

	if (sequence < store_floor(store) || sequence > store_last_sequence(store))
		return -ENOENT;
	if (!line && find_known(store, sequence, ret_info))
		return 0;
	struct db_iterator *it = db_iterator_open(store->db, DB_LOG, false);
	int rc = stream_block(it, sequence, &b, error);
	if (rc == 0) {
		uint32_t i = (uint32_t)(sequence - b.first);
		*ret_info = block_event(&b, i);
		keep_known(store, ret_info);
		if (line)
			rc = buffer_add(line, b.lines.p + block_line_offset(&b, i),
					ret_info->length);
	}
	db_iterator_close(it);
	return rc;
}

int store_event_collection(struct store *store, uint64_t sequence, uint32_t *ret_collection,
			   struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_LOG, false);
	struct block b = {0};

	int rc = stream_block(it, sequence, &b, error);
	if (rc == 0)
		*ret_collection = block_event(&b, (uint32_t)(sequence - b.first)).collection;
	db_iterator_close(it);
	return rc;
}

/* ---- the events of a collection ---- */

struct store_event_cursor {
	struct store *store;
	struct db_iterator *it;
	uint32_t collection;
	uint64_t end; /* the last sequence that there was */
	struct bytes runs;
	uint64_t next; /* of the run */
	uint64_t left;
	bool in_entry;
};

int store_event_cursor_open(struct store *store, uint32_t collection, uint64_t from,
			    struct store_event_cursor **ret_cursor, struct error *error)
{
	struct store_event_cursor *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->store = store;
	c->collection = collection;
	c->end = store_last_sequence(store);
	c->it = db_iterator_open(store->db, DB_INDEX, false);
	store_event_cursor_seek(c, from);
	*ret_cursor = c;
	return 0;
}

void store_event_cursor_close(struct store_event_cursor *cursor)
{
	if (!cursor)
		return;
	db_iterator_close(cursor->it);
	free(cursor);
}

/* The next run of the entry that the iterator stands on. 1, 0 at its end. */
static int next_run(struct store_event_cursor *c, struct error *error)
{
	uint64_t skip, length;

	if (!c->runs.n)
		return 0;
	size_t n = varint_read(c->runs, &skip);
	size_t m = n ? varint_read((struct bytes){c->runs.p + n, c->runs.n - n}, &length) : 0;
	if (!m)
		return error_set(error, -EBADMSG, "an entry of the index is malformed");
	c->runs.p += n + m;
	c->runs.n -= n + m;
	c->next += skip;
	c->left = length;
	return 1;
}

/* Takes the entry under the iterator. 1, 0 behind the collection's last one. */
static int take_entry(struct store_event_cursor *c, struct error *error)
{
	struct index_entry entry = {0};
	struct bytes k, v;
	uint64_t first;

	int rc = db_iterator_get(c->it, &k, &v, error);
	if (rc <= 0 || !key_index_read(k, 'S', c->collection, &first))
		return rc < 0 ? rc : 0;
	rc = index_entry_parse(k, v, &entry, error);
	if (rc < 0)
		return rc;
	c->runs = entry.runs;
	c->next = entry.first;
	c->left = 0;
	c->in_entry = true;
	return 1;
}

/* 1 with c->left > 0, 0 at the end. */
static int have_run(struct store_event_cursor *c, struct error *error)
{
	while (!c->left) {
		int rc = c->in_entry ? next_run(c, error) : 0;
		if (rc < 0)
			return rc;
		if (rc > 0)
			continue;
		if (c->in_entry)
			db_iterator_next(c->it);
		rc = take_entry(c, error);
		if (rc <= 0)
			return rc;
	}
	return 1;
}

int store_event_cursor_next(struct store_event_cursor *cursor, uint64_t *ret_sequence,
			    struct error *error)
{
	uint64_t floor = store_floor(cursor->store);
	int rc;

	while ((rc = have_run(cursor, error)) > 0) {
		if (cursor->next + cursor->left <= floor) { /* trimmed meanwhile */
			cursor->next += cursor->left;
			cursor->left = 0;
			continue;
		}
		if (cursor->next < floor) {
			cursor->left -= floor - cursor->next;
			cursor->next = floor;
		}
		if (cursor->next > cursor->end)
			return 0;
		*ret_sequence = cursor->next++;
		cursor->left--;
		return 1;
	}
	return rc;
}

void store_event_cursor_seek(struct store_event_cursor *cursor, uint64_t from)
{
	struct key key = key_index('S', cursor->collection, from);
	struct bytes k, v;
	uint64_t first;

	db_iterator_seek_back(cursor->it, KEY_BYTES(key));
	if (db_iterator_get(cursor->it, &k, &v, NULL) <= 0 ||
	    !key_index_read(k, 'S', cursor->collection, &first))
		db_iterator_seek(cursor->it, KEY_BYTES(key));
	cursor->in_entry = false;
	cursor->left = 0;
	int rc = take_entry(cursor, NULL);
	while (rc > 0 && (rc = have_run(cursor, NULL)) > 0 && cursor->next < from) {
		uint64_t skip = from - cursor->next;
		skip = skip < cursor->left ? skip : cursor->left;
		cursor->next += skip;
		cursor->left -= skip;
	}
}
