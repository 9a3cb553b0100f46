/* SPDX-License-Identifier: Apache-2.0 */
#include "store/documents.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "store/internal.h"

/* A table is moved when it has so many bytes, or the log this many times as many since: that bounds
 * the replay. With a table on its way, the next one may grow to twice that before commits wait. */
#define TABLE_BYTES ((size_t)24 << 20)
#define LOG_FACTOR  4

#define WRITE_BYTES ((size_t)256 << 10)

int documents_init(struct documents *d, size_t table_bytes)
{
	d->table_bytes = table_bytes ? table_bytes : TABLE_BYTES;
	d->active = calloc(1, sizeof(*d->active));
	d->settled = true;
	pthread_mutex_init(&d->mutex, NULL);
	pthread_cond_init(&d->wake, NULL);
	pthread_cond_init(&d->done, NULL);
	return d->active ? -pthread_rwlock_init(&d->lock, NULL) : -ENOMEM;
}

static void drop(struct table *t)
{
	if (t)
		table_free(t);
	free(t);
}

void documents_free(struct documents *d)
{
	if (!d->active)
		return;
	drop(d->active);
	drop(d->settling);
	drop(d->retired);
	pthread_rwlock_destroy(&d->lock);
	pthread_mutex_destroy(&d->mutex);
	pthread_cond_destroy(&d->wake);
	pthread_cond_destroy(&d->done);
	d->active = NULL;
}

void documents_lock(struct store *store)
{
	pthread_rwlock_rdlock(&store->documents.lock);
}

void documents_unlock(struct store *store)
{
	pthread_rwlock_unlock(&store->documents.lock);
}

static int find_in(const struct table *t, uint32_t collection, struct bytes key,
		   struct table_entry *ret_entry)
{
	const struct table_entry *e = t ? table_find(t, collection, key) : NULL;

	if (e)
		*ret_entry = *e;
	else if (t && table_is_truncated(t, collection))
		*ret_entry = (struct table_entry){0};
	else
		return 0;
	return 1;
}

int documents_find(struct store *store, uint32_t collection, struct bytes key,
		   struct table_entry *ret_entry)
{
	const struct documents *d = &store->documents;

	return find_in(d->active, collection, key, ret_entry) ||
	       find_in(d->settling, collection, key, ret_entry);
}

/* ---- changes ---- */

static int apply_one(struct table *t, const struct document_change *change)
{
	if (change->truncate)
		return table_truncate(t, change->entry.collection, change->entry.sequence);
	return table_put(t, &change->entry);
}

static bool is_full(const struct documents *d, size_t times)
{
	size_t limit = d->table_bytes * times;

	return d->active->bytes >= limit || d->log_bytes >= LOG_FACTOR * (uint64_t)limit;
}

/* Hands the active table to the thread, if it is free. Under the lead of a commit. */
static void hand_over(struct documents *d, uint64_t last_sequence)
{
	struct table *fresh;

	pthread_mutex_lock(&d->mutex);
	if (d->settled && (fresh = calloc(1, sizeof(*fresh)))) {
		d->active->last_sequence = last_sequence;
		pthread_rwlock_wrlock(&d->lock);
		d->settling = d->active;
		d->active = fresh;
		pthread_rwlock_unlock(&d->lock);
		d->log_bytes = 0;
		d->settled = false;
		pthread_cond_signal(&d->wake);
	}
	pthread_mutex_unlock(&d->mutex);
}

int documents_apply(struct store *store, const struct document_change *changes, size_t count,
		    uint64_t log_bytes)
{
	struct documents *d = &store->documents;
	int rc = 0;

	pthread_rwlock_wrlock(&d->lock);
	for (size_t i = 0; i < count && rc == 0; i++)
		rc = apply_one(d->active, &changes[i]);
	struct table *retired = d->retired; /* no text of it is needed any more */
	d->retired = NULL;
	pthread_rwlock_unlock(&d->lock);
	drop(retired);
	d->log_bytes += log_bytes;
	if (is_full(d, 1) && d->running)
		hand_over(d, store->commit.next_sequence - 1);
	return rc;
}

/* Below the mutex: waits until no table is on its way. What failed before is tried again now: there
 * may be room by now. */
static int wait_settled(struct documents *d)
{
	if (!d->settled && d->failure) {
		d->failure = 0;
		pthread_cond_signal(&d->wake);
	}
	while (!d->settled && d->failure == 0)
		pthread_cond_wait(&d->done, &d->mutex);
	return d->settled ? 0 : d->failure;
}

int documents_wait_for_room(struct store *store)
{
	struct documents *d = &store->documents;
	int rc = 0;

	if (!is_full(d, 2))
		return 0;
	pthread_mutex_lock(&d->mutex);
	rc = wait_settled(d);
	pthread_mutex_unlock(&d->mutex);
	if (rc == 0)
		hand_over(d, store->commit.next_sequence - 1);
	return rc;
}

uint64_t documents_pending_bytes(struct store *store)
{
	struct documents *d = &store->documents;

	documents_lock(store);
	uint64_t n = d->active->bytes + (d->settling ? d->settling->bytes : 0);
	documents_unlock(store);
	return n;
}

/* ---- into the database ---- */

static void put_one(struct store *store, struct db_batch *batch, const struct table_entry *e)
{
	char key[KEY_STATE_MAX], head[STATE_VALUE_HEAD];
	struct bytes k = {key, key_state_write(e->collection, e->key, 0, key)};

	if (!e->text.p) {
		db_batch_delete(store->db, batch, DB_STATE, k);
		return;
	}
	put_le64(head, e->sequence);
	put_le64(head + 8, (uint64_t)e->timestamp_ms);
	head[16] = e->binary ? STATE_FLAG_BINARY : 0;
	db_batch_put2(store->db, batch, DB_STATE, k, (struct bytes){head, sizeof(head)}, e->text);
}

static void put_truncations(struct store *store, struct db_batch *batch, const struct table *t)
{
	for (size_t i = 0; i < t->truncated_count; i++) {
		struct key from = key_state_prefix(t->truncated[i]);
		struct key to = key_state_prefix(t->truncated[i] + 1);
		db_batch_delete_range(store->db, batch, DB_STATE, KEY_BYTES(from), KEY_BYTES(to));
	}
}

static void put_applied(struct store *store, struct db_batch *batch, uint64_t sequence)
{
	struct key key = key_meta('A');
	char value[8];

	put_le64(value, sequence);
	db_batch_put(store->db, batch, DB_META, KEY_BYTES(key), (struct bytes){value, 8});
}

/* The pieces may be written again after a crash: they say the same, up to the record 'A'. */
static int move_table(struct store *store, const struct table *t)
{
	size_t bytes = 0;
	int rc = commit_check_disk(store, 2 * t->bytes, NULL);

	if (rc < 0)
		return rc;
	const struct table_entry **all = table_sorted(t);
	struct db_batch *batch = db_batch_new();
	if (!all)
		rc = -ENOMEM;
	put_truncations(store, batch, t);
	for (size_t i = 0; i < t->count && rc == 0; i++) {
		put_one(store, batch, all[i]);
		bytes += all[i]->key.n + all[i]->text.n;
		if (bytes < WRITE_BYTES)
			continue;
		rc = db_write(store->db, batch, false, NULL);
		db_batch_clear(batch);
		bytes = 0;
	}
	put_applied(store, batch, t->last_sequence);
	if (rc == 0)
		rc = db_write(store->db, batch, false, NULL);
	db_batch_free(batch);
	free(all);
	return rc;
}

static void retire(struct documents *d)
{
	pthread_rwlock_wrlock(&d->lock);
	struct table *before = d->retired; /* no commit since: nobody holds it */
	d->retired = d->settling;
	d->settling = NULL;
	pthread_rwlock_unlock(&d->lock);
	drop(before);
}

static void *run(void *context)
{
	struct store *store = context;
	struct documents *d = &store->documents;

	pthread_mutex_lock(&d->mutex);
	for (;;) {
		while (d->settled && !d->ending)
			pthread_cond_wait(&d->wake, &d->mutex);
		if (d->settled || (d->ending && d->failure))
			break;
		pthread_mutex_unlock(&d->mutex);
		int rc = move_table(store, d->settling);
		if (rc == 0)
			retire(d);
		pthread_mutex_lock(&d->mutex);
		d->failure = rc;
		d->settled = rc == 0;
		pthread_cond_broadcast(&d->done);
		if (rc < 0 && !d->ending) { /* again in a second, or when it ends */
			struct timespec later;
			clock_gettime(CLOCK_REALTIME, &later);
			later.tv_sec++;
			pthread_cond_timedwait(&d->wake, &d->mutex, &later);
		}
	}
	pthread_mutex_unlock(&d->mutex);
	return NULL;
}

static int start_thread(struct store *store)
{
	struct documents *d = &store->documents;
	sigset_t all, old;

	sigfillset(&all); /* signals are for the program's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = -pthread_create(&d->thread, NULL, run, store);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	d->running = rc == 0;
	return rc;
}

int documents_settle(struct store *store, struct db_iterator **ret_it)
{
	struct documents *d = &store->documents;
	int rc = 0;

	/* What is on its way first, then what has come since. */
	if (d->running) {
		pthread_mutex_lock(&d->mutex);
		rc = wait_settled(d);
		pthread_mutex_unlock(&d->mutex);
		if (rc < 0)
			return rc;
		commit_turn_start(store);
		if (d->active->count || d->active->truncated_count)
			hand_over(d, store->commit.next_sequence - 1);
		commit_turn_end(store);
	}
	pthread_mutex_lock(&d->mutex);
	rc = wait_settled(d);
	if (rc == 0 && ret_it) /* no table can be handed over below the mutex */
		*ret_it = db_iterator_open(store->db, DB_STATE, true);
	pthread_mutex_unlock(&d->mutex);
	return rc;
}

/* Adds to *bytes what a copy of the collection's entries and of their keys takes. */
static size_t count_entries(const struct table *t, uint32_t collection, size_t *bytes)
{
	size_t n = 0;

	for (size_t i = 0; t && i < t->count; i++)
		if (t->entries[i].collection == collection) {
			*bytes += sizeof(t->entries[i]) + t->entries[i].key.n;
			n++;
		}
	return n;
}

/* Copies the entries that no newer table has. Their keys are copied to *keys; of their texts only
 * the sizes are of use, since a table may be gone before its copy. */
static size_t copy_entries(const struct table *t, const struct table *newer, uint32_t collection,
			   struct table_entry *to, char **keys)
{
	size_t n = 0;

	for (size_t i = 0; t && i < t->count; i++) {
		const struct table_entry *e = &t->entries[i];
		if (e->collection != collection ||
		    (newer && (table_is_truncated(newer, collection) ||
			       table_find(newer, collection, e->key))))
			continue;
		to[n] = *e;
		to[n].key.p = memcpy(*keys, e->key.p, e->key.n);
		*keys += e->key.n;
		n++;
	}
	return n;
}

int documents_view(struct store *store, uint32_t collection, struct db_iterator **ret_it,
		   struct table_entry **ret_entries, size_t *ret_count, bool *ret_truncated)
{
	struct documents *d = &store->documents;
	size_t bytes = 0, count;

	pthread_rwlock_rdlock(&d->lock);
	count = count_entries(d->settling, collection, &bytes) +
		count_entries(d->active, collection, &bytes);
	struct table_entry *entries = malloc(bytes + 1);
	if (entries) {
		char *keys = (char *)(entries + count);
		count = copy_entries(d->settling, d->active, collection, entries, &keys);
		count += copy_entries(d->active, NULL, collection, entries + count, &keys);
		*ret_truncated = (d->settling && table_is_truncated(d->settling, collection)) ||
				 table_is_truncated(d->active, collection);
		*ret_it = db_iterator_open(store->db, DB_STATE, true);
	}
	pthread_rwlock_unlock(&d->lock);
	if (!entries)
		return -ENOMEM;
	table_entries_sort(entries, count);
	*ret_entries = entries;
	*ret_count = count;
	return 0;
}

int documents_end(struct store *store)
{
	struct documents *d = &store->documents;

	if (!d->running)
		return 0;
	int rc = documents_settle(store, NULL);
	pthread_mutex_lock(&d->mutex);
	d->ending = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->mutex);
	pthread_join(d->thread, NULL);
	d->running = false;
	return rc;
}

/* ---- replay ---- */

static int replay_event(struct store *store, const struct store_event_info *e, struct bytes line,
			struct buffer *key, struct buffer *text)
{
	struct document_change change = {
		.entry = {.collection = e->collection,
			  .sequence = e->sequence,
			  .timestamp_ms = e->timestamp_ms},
		.truncate = e->type == STORE_TRUNCATE,
	};

	if (e->type == STORE_MESSAGE || (e->flags & BLOCK_FLAG_PARTIAL))
		return 0;
	int rc = line_read(line, e->flags & BLOCK_FLAG_BASE64, key, text);
	if (rc < 0)
		return rc;
	change.entry.key = buffer_bytes(key);
	if (e->type == STORE_PUT) {
		change.entry.text = buffer_bytes(text);
		change.entry.binary = !bytes_are_utf8(change.entry.text);
	}
	return apply_one(store->documents.active, &change);
}

static int replay_block(struct store *store, const struct block *b, uint64_t applied,
			struct buffer *key, struct buffer *text)
{
	size_t offset = 0;
	int rc = 0;

	for (uint32_t i = 0; i < b->count && rc == 0; i++) {
		struct store_event_info e = block_event(b, i);
		if (e.sequence > applied)
			rc = replay_event(store, &e, (struct bytes){b->lines.p + offset, e.length},
					  key, text);
		offset += e.length;
	}
	store->documents.log_bytes += b->lines.n;
	return rc;
}

static int replay(struct store *store, uint64_t applied, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_LOG, true);
	_cleanup_(buffer_free) struct buffer key = {0}, text = {0};
	struct bytes k, v;
	struct block b = {0};

	int rc = stream_block(it, applied + 1, &b, error);
	if (rc < 0 && rc != -ENOENT) {
		db_iterator_close(it);
		return rc;
	}
	/* Now it stands on the block of that sequence, or on the first one behind a gap. */
	while ((rc = db_iterator_get(it, &k, &v, error)) > 0) {
		rc = block_parse(v, &b, error);
		if (rc == 0)
			rc = replay_block(store, &b, applied, &key, &text);
		if (rc < 0)
			break;
		db_iterator_next(it);
	}
	db_iterator_close(it);
	return rc < 0 ? rc : 0;
}

int documents_start(struct store *store, struct error *error)
{
	struct key key = key_meta('A');
	struct db_value v = {0};
	uint64_t applied = 0;

	int rc = db_get(store->db, DB_META, KEY_BYTES(key), &v, error);
	if (rc == 0 && v.bytes.n == 8)
		applied = get_le64(v.bytes.p);
	db_value_free(&v);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	rc = replay(store, applied, error);
	if (rc == 0 && !store->read_only)
		rc = start_thread(store);
	return rc;
}
