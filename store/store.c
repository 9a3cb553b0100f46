/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, recovering and closing a store. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/internal.h"
#include "store/lock.h"

#define BOOT_ID_MAX	     64
#define INCARNATION_SIZE     16
#define MAX_DOCUMENT_DEFAULT (UINT64_C(8) << 20)

/* Who has the store open, as the record 'U' says it. */
struct tenure {
	bool running;
	char boot_id[BOOT_ID_MAX];
	uint64_t dev;
	uint64_t ino;
	char incarnation[INCARNATION_SIZE];
};

/* ---- records of the family meta ---- */

/* 1, 0 if there is none, -EBADMSG if it is shorter than `size`. */
static int meta_get(struct store *store, struct key key, size_t size, struct db_value *ret_value,
		    struct error *error)
{
	int rc = db_get(store->db, DB_META, KEY_BYTES(key), ret_value, error);

	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return rc;
	if (ret_value->bytes.n >= size)
		return 1;
	db_value_free(ret_value);
	return error_set(error, -EBADMSG, "the record %c of the store is cut", key.p[0]);
}

static void meta_put(struct store *store, struct db_batch *batch, char kind, const char *p,
		     size_t n)
{
	struct key key = key_meta(kind);

	db_batch_put(store->db, batch, DB_META, KEY_BYTES(key), (struct bytes){p, n});
}

static int load_format(struct store *store, struct error *error)
{
	struct db_value v = {0};

	int rc = meta_get(store, key_meta('F'), 4, &v, error);
	if (rc <= 0)
		return rc < 0 ? rc : error_set(error, -ENOENT, "%s holds no store", store->path);
	uint32_t format = get_le32(v.bytes.p);
	db_value_free(&v);
	if (format > KEYS_FORMAT)
		return error_set(error, -EPROTONOSUPPORT,
				 "the store has format %u, this program knows up to %d", format,
				 KEYS_FORMAT);
	return 0;
}

static int load_identity(struct store *store, struct error *error)
{
	struct db_value v = {0};

	int rc = meta_get(store, key_meta('I'), 24, &v, error);
	if (rc <= 0)
		return rc < 0 ? rc : error_set(error, -EBADMSG, "the store has no identity");
	for (int i = 0; i < 16; i++)
		sprintf(store->identity + 2 * (size_t)i, "%02x", (unsigned char)v.bytes.p[i]);
	store->created_ms = (int64_t)get_le64(v.bytes.p + 16);
	db_value_free(&v);
	return 0;
}

static int load_ends(struct store *store, struct error *error)
{
	struct commit *c = &store->commit;
	struct db_value v = {0};

	c->next_sequence = 1;
	c->commit_ms = store->created_ms;
	int rc = meta_get(store, key_meta('E'), 24, &v, error);
	if (rc > 0) {
		c->next_sequence = get_le64(v.bytes.p);
		c->position = get_le64(v.bytes.p + 8);
		c->commit_ms = (int64_t)get_le64(v.bytes.p + 16);
		db_value_free(&v);
	}
	if (rc >= 0)
		rc = meta_get(store, key_meta('R'), 16, &v, error);
	if (rc > 0) {
		store->reserved_sequence = get_le64(v.bytes.p);
		store->reserved_position = get_le64(v.bytes.p + 8);
		db_value_free(&v);
	}
	if (rc >= 0)
		rc = meta_get(store, key_meta('L'), 8, &v, error);
	atomic_store(&store->floor, 1);
	if (rc > 0) {
		atomic_store(&store->floor, get_le64(v.bytes.p));
		db_value_free(&v);
	}
	return rc < 0 ? rc : 0;
}

static int load_config(struct store *store, struct error *error)
{
	struct db_value v = {0};

	store->config.max_document_bytes = MAX_DOCUMENT_DEFAULT;
	int rc = meta_get(store, key_meta('K'), 11, &v, error);
	if (rc > 0) {
		store->config.snapshots = (enum store_snapshots)v.bytes.p[0];
		store->config.visibility = (enum store_visibility)v.bytes.p[1];
		store->config.max_document_bytes = get_le64(v.bytes.p + 2);
		store->config.on_decode_error = (enum store_on_decode_error)v.bytes.p[10];
		db_value_free(&v);
	}
	atomic_store(&store->max_document_bytes, store->config.max_document_bytes);
	return rc < 0 ? rc : 0;
}

static int add_gap(struct store *store, uint64_t from, uint64_t to)
{
	struct store_gap *gaps = realloc(store->gaps, (store->gap_count + 1) * sizeof(*gaps));

	if (!gaps)
		return -ENOMEM;
	store->gaps = gaps;
	gaps[store->gap_count++] = (struct store_gap){from, to};
	return 0;
}

static int load_gaps(struct store *store, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_META, false);
	struct key from = key_meta('G');
	struct bytes key, value;
	int rc;

	db_iterator_seek(it, KEY_BYTES(from));
	while ((rc = db_iterator_get(it, &key, &value, error)) > 0 && key.p[0] == 'G') {
		if (key.n != 9 || value.n != 8)
			rc = error_set(error, -EBADMSG, "the record of a gap is malformed");
		else
			rc = add_gap(store, get_be64(key.p + 1), get_le64(value.p));
		if (rc < 0)
			break;
		db_iterator_next(it);
	}
	db_iterator_close(it);
	return rc < 0 ? rc : 0;
}

static void publish(struct store *store)
{
	const struct commit *c = &store->commit;
	uint64_t events = 0;

	for (uint32_t i = 0; i < store->collections.count; i++)
		events += atomic_load(&store->collections.by_id[i]->events);
	atomic_store(&store->events, events);
	atomic_store(&store->last_ms, c->commit_ms);
	atomic_store(&store->last_sequence, c->next_sequence - 1);
	atomic_store(&store->end, c->position);
}

static int load(struct store *store, struct error *error)
{
	int rc = load_format(store, error);

	if (rc == 0)
		rc = load_identity(store, error);
	if (rc == 0)
		rc = load_ends(store, error);
	if (rc == 0)
		rc = load_config(store, error);
	if (rc == 0)
		rc = load_gaps(store, error);
	if (rc == 0)
		rc = records_load(store, error);
	if (rc == 0)
		rc = collections_load(store, error);
	if (rc == 0)
		rc = sources_load(store, error);
	if (rc == 0)
		publish(store);
	return rc;
}

/* ---- making a store ---- */

static int make(struct store *store, struct error *error)
{
	struct db_batch *batch = db_batch_new();
	char format[4], identity[24];

	put_le32(format, KEYS_FORMAT);
	int rc = random_bytes(identity, 16);
	put_le64(identity + 16, (uint64_t)clock_wall_ms());
	if (rc == 0) {
		meta_put(store, batch, 'F', format, sizeof(format));
		meta_put(store, batch, 'I', identity, sizeof(identity));
		rc = db_write(store->db, batch, true, error);
	}
	db_batch_free(batch);
	return rc;
}

/* True in a new database, also when its maker was killed before it had written anything. */
static bool is_unmade(struct store *store)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_META, false);
	struct bytes k, v;

	db_iterator_seek(it, BYTES(""));
	bool empty = db_iterator_get(it, &k, &v, NULL) == 0;
	db_iterator_close(it);
	return empty;
}

/* ---- who ran last, and recovery ---- */

static int load_run(struct store *store, struct tenure *ret_run, struct error *error)
{
	struct db_value v = {0};

	*ret_run = (struct tenure){0};
	int rc = meta_get(store, key_meta('U'), 5, &v, error);
	if (rc <= 0)
		return rc;
	uint32_t n = get_le32(v.bytes.p + 1);
	if (n >= BOOT_ID_MAX || v.bytes.n != 5 + n + 16 + INCARNATION_SIZE) {
		rc = error_set(error, -EBADMSG, "the record of the last run is malformed");
	} else {
		const char *p = v.bytes.p + 5 + n;
		ret_run->running = v.bytes.p[0];
		memcpy(ret_run->boot_id, v.bytes.p + 5, n);
		ret_run->dev = get_le64(p);
		ret_run->ino = get_le64(p + 8);
		memcpy(ret_run->incarnation, p + 16, INCARNATION_SIZE);
	}
	db_value_free(&v);
	return rc;
}

static void put_run(struct store *store, struct db_batch *batch, const struct tenure *run)
{
	char value[5 + BOOT_ID_MAX + 16 + INCARNATION_SIZE];
	uint32_t n = (uint32_t)strlen(run->boot_id);

	value[0] = run->running;
	put_le32(value + 1, n);
	memcpy(value + 5, run->boot_id, n);
	put_le64(value + 5 + n, run->dev);
	put_le64(value + 13 + n, run->ino);
	memcpy(value + 21 + n, run->incarnation, INCARNATION_SIZE);
	meta_put(store, batch, 'U', value, 21 + n + INCARNATION_SIZE);
}

static bool same_place(const struct tenure *a, const struct tenure *b, const char *lock_incarnation)
{
	return a->dev == b->dev && a->ino == b->ino &&
	       memcmp(a->incarnation, lock_incarnation, INCARNATION_SIZE) == 0;
}

/*
 * What was written since the last sync may be lost, though others have seen it. The log goes on
 * past all that had been reserved, so that neither a sequence nor a position is given twice; the
 * collections' positions move by as much as the log's, which is at least what each may have lost.
 */
static int skip_reserved(struct store *store, struct db_batch *batch)
{
	struct commit *c = &store->commit;
	uint64_t bytes = store->reserved_position - c->position;
	struct key gap = key_meta_gap(c->next_sequence);
	char value[24];

	if (store->reserved_sequence <= c->next_sequence)
		return 0;
	put_le64(value, store->reserved_sequence - 1);
	db_batch_put(store->db, batch, DB_META, KEY_BYTES(gap), (struct bytes){value, 8});
	if (add_gap(store, c->next_sequence, store->reserved_sequence - 1) < 0)
		return -ENOMEM;
	c->next_sequence = store->reserved_sequence;
	c->position = store->reserved_position;
	for (uint32_t i = 0; i < store->collections.count; i++) {
		struct collection *it = store->collections.by_id[i];
		it->pending.position += bytes;
		collection_put(store, batch, it);
		collection_publish_end(it);
	}
	put_le64(value, c->next_sequence);
	put_le64(value + 8, c->position);
	put_le64(value + 16, (uint64_t)c->commit_ms);
	meta_put(store, batch, 'E', value, 24);
	publish(store);
	return 0;
}

static int put_startup(struct store *store, struct db_batch *batch, uint64_t last,
		       const char *version)
{
	static const char *const ends[] = {"new", "clean", "crash", "reboot"};
	_cleanup_(buffer_free) struct buffer details = {0};

	int rc = buffer_printf(&details,
			       "{\"database\":\"%s\",\"version\":\"%s\",\"last_end\":\"%s\"",
			       store->identity, version ? version : "", ends[store->last_end]);
	if (rc == 0 && last)
		rc = buffer_printf(&details, ",\"last_commit\":\"%llu\"", (unsigned long long)last);
	if (rc == 0)
		rc = buffer_add(&details, "}", 1);
	return rc < 0 ? rc : record_put_ops(store, batch, "startup", buffer_bytes(&details));
}

/* Judges how the last run ended, goes past what it may have lost, and says that we run now. */
static int start_run(struct store *store, const struct store_options *options, struct error *error)
{
	struct tenure last, now = {.running = true};
	char incarnation[INCARNATION_SIZE];
	uint64_t last_commit = store->commit.next_sequence - 1;
	struct db_batch *batch = db_batch_new();

	int rc = load_run(store, &last, error);
	bool known = rc > 0;
	if (rc >= 0)
		rc = lock_place(store->lock_fd, store->path, &now.dev, &now.ino, incarnation);
	if (rc >= 0)
		rc = boot_id_read(options->boot_id, now.boot_id, sizeof(now.boot_id));
	if (rc >= 0)
		rc = random_bytes(now.incarnation, INCARNATION_SIZE);
	if (rc >= 0) {
		bool same = known && same_place(&last, &now, incarnation);
		bool booted = known && strcmp(last.boot_id, now.boot_id) != 0;
		store->last_end = !known	    ? STORE_END_NEW
				  : !last.running   ? STORE_END_CLEAN
				  : same && !booted ? STORE_END_CRASH
						    : STORE_END_REBOOT;
		if (store->last_end == STORE_END_REBOOT)
			rc = skip_reserved(store, batch);
	}
	if (rc >= 0) {
		put_run(store, batch, &now);
		rc = put_startup(store, batch, last_commit, options->version);
	}
	if (rc >= 0)
		rc = lock_mark(store->lock_fd, options->owner, now.incarnation);
	if (rc >= 0)
		rc = db_write(store->db, batch, true, error);
	db_batch_free(batch);
	return rc;
}

static int end_run(struct store *store, struct error *error)
{
	struct db_batch *batch = db_batch_new();
	struct tenure run;
	char value[16];

	int rc = load_run(store, &run, error);
	if (rc > 0) {
		run.running = false;
		put_run(store, batch, &run);
		/* Nothing is reserved while nobody runs: a start that writes nothing leaves no gap.
		 */
		put_le64(value, store->commit.next_sequence);
		put_le64(value + 8, store->commit.position);
		meta_put(store, batch, 'R', value, 16);
		rc = db_write(store->db, batch, true, error);
	}
	db_batch_free(batch);
	return rc < 0 ? rc : 0;
}

/* ---- open and close ---- */

static int open_database(struct store *store, const struct store_options *options,
			 struct error *error)
{
	_cleanup_(buffer_free) struct buffer path = {0};

	int rc = lock_take(store->path, options, &store->lock_fd, error);
	if (rc < 0)
		return rc;
	if (buffer_printf(&path, "%s/db", store->path) < 0)
		return -ENOMEM;
	rc = db_open(path.p, options->create, options->read_only, &store->db, error);
	if (rc == 0 && options->create && is_unmade(store))
		rc = make(store, error);
	return rc;
}

static void store_free(struct store *store)
{
	groups_free(store);
	db_close(store->db);
	documents_free(&store->documents);
	commit_free(&store->commit);
	collections_free(&store->collections);
	sources_free(store);
	if (store->lock_fd >= 0)
		lock_release(store->lock_fd);
	pthread_mutex_destroy(&store->settings_mutex);
	pthread_mutex_destroy(&store->known.mutex);
	pthread_mutex_destroy(&store->dead_letters);
	free(store->gaps);
	free(store->path);
	free(store);
}

int store_open(const char *path, const struct store_options *options, struct store **ret_store,
	       struct error *error)
{
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->lock_fd = -1;
	store->read_only = options->read_only;
	pthread_mutex_init(&store->settings_mutex, NULL);
	pthread_mutex_init(&store->known.mutex, NULL);
	pthread_mutex_init(&store->dead_letters, NULL);
	store->clock_ms = options->clock_ms;
	store->path = strdup(path);
	int rc = store->path ? 0 : -ENOMEM;
	if (rc == 0)
		rc = collections_init(&store->collections);
	if (rc == 0)
		rc = documents_init(&store->documents, options->table_bytes);
	if (rc == 0)
		rc = commit_init(store);
	if (rc == 0)
		rc = open_database(store, options, error);
	if (rc == 0)
		rc = load(store, error);
	if (rc == 0 && !options->read_only)
		rc = start_run(store, options, error);
	if (rc == 0)
		rc = groups_load(store, error);
	if (rc == 0)
		rc = documents_start(store, error);
	if (rc < 0) {
		store_free(store);
		return rc;
	}
	*ret_store = store;
	return 0;
}

int store_close(struct store *store)
{
	int rc = 0;

	if (!store)
		return 0;
	if (!store->read_only) {
		int flushed = groups_flush(store);
		rc = documents_end(store);
		if (rc == -ENOSPC)
			rc = 0; /* the log has them: the next start replays it */
		rc = rc < 0 ? rc : flushed;
		int ended = end_run(store, NULL);
		rc = rc < 0 ? rc : ended;
	}
	store_free(store);
	return rc;
}
