/* SPDX-License-Identifier: Apache-2.0 */
#include "store/db.h"

#include <errno.h>
#include <rocksdb/c.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)

struct db {
	rocksdb_t *rocks;
	rocksdb_options_t *options;
	rocksdb_options_t *family_options[DB_FAMILIES + 1]; /* the last is "default" */
	rocksdb_column_family_handle_t *families[DB_FAMILIES + 1];
	rocksdb_cache_t *cache;
	rocksdb_readoptions_t *read;
	rocksdb_readoptions_t *scan;
	rocksdb_writeoptions_t *write;
	rocksdb_writeoptions_t *write_sync;
};

static const char *const family_names[DB_FAMILIES + 1] = {
	[DB_LOG] = "log", [DB_INDEX] = "index", [DB_STATE] = "state", [DB_GROUPS] = "groups",
	[DB_DLQ] = "dlq", [DB_OPS] = "ops",	[DB_META] = "meta",   [DB_FAMILIES] = "default",
};

/* RocksDB's C API tells errors as text only; takes the text. */
static int error_from_rocks(char *text, const char *what, struct error *error)
{
	static const struct {
		const char *word;
		int code;
	} words[] = {
		{"No space left", -ENOSPC},	   {"Corruption", -EBADMSG},
		{"While lock file", -EBUSY},	   {"Permission denied", -EACCES},
		{"Read-only file system", -EROFS}, {"Too many open files", -EMFILE},
	};
	int code = -EIO;

	for (size_t i = 0; i < ARRAY_SIZE(words) && code == -EIO; i++)
		if (strstr(text, words[i].word))
			code = words[i].code;
	error_set(error, code, "%s: %s", what, text);
	rocksdb_free(text);
	return code;
}

static rocksdb_options_t *family_options_new(struct db *db, enum db_family family)
{
	rocksdb_options_t *o = rocksdb_options_create();
	rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();
	bool large = family == DB_LOG || family == DB_STATE;

	/* A look-up of one document would decompress a block for it; updates run at half the speed.
	 */
	rocksdb_options_set_compression(o, family == DB_STATE ? rocksdb_no_compression
							      : rocksdb_lz4_compression);
	rocksdb_options_set_write_buffer_size(o, (large ? 24 : 8) * MIB);
	rocksdb_options_set_max_write_buffer_number(o, large ? 3 : 2);
	rocksdb_options_set_target_file_size_base(o, 64 * MIB);
	rocksdb_options_set_max_bytes_for_level_base(o, 256 * MIB);
	rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
	/* Small blocks for look-ups of single documents. */
	rocksdb_block_based_options_set_block_size(t, family == DB_STATE ? 4 << 10 : 16 << 10);
	rocksdb_block_based_options_set_format_version(t, 5);
	rocksdb_block_based_options_set_block_cache(t, db->cache);
	if (family == DB_STATE) /* before-snapshots of new keys: a filter saves the look-up */
		rocksdb_block_based_options_set_filter_policy(
			t, rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_options_set_block_based_table_factory(o, t);
	rocksdb_block_based_options_destroy(t);
	return o;
}

/* In one piece: of many shards none could hold a block of the log with a large document. */
static rocksdb_cache_t *new_cache(void)
{
	rocksdb_lru_cache_options_t *o = rocksdb_lru_cache_options_create();

	rocksdb_lru_cache_options_set_capacity(o, 48 * MIB);
	rocksdb_lru_cache_options_set_num_shard_bits(o, 0);
	rocksdb_cache_t *cache = rocksdb_cache_create_lru_opts(o);
	rocksdb_lru_cache_options_destroy(o);
	return cache;
}

static void options_init(struct db *db, bool create)
{
	rocksdb_options_t *o = rocksdb_options_create();

	rocksdb_options_set_create_if_missing(o, create);
	rocksdb_options_set_create_missing_column_families(o, 1);
	rocksdb_options_set_wal_recovery_mode(o, rocksdb_point_in_time_recovery);
	rocksdb_options_set_max_total_wal_size(o, 64 * MIB); /* bounds what a start reads again */
	rocksdb_options_set_db_write_buffer_size(o, 96 * MIB);
	rocksdb_options_set_max_background_jobs(o, 2);
	rocksdb_options_set_max_open_files(o, 512);
	rocksdb_options_set_bytes_per_sync(o, MIB);
	rocksdb_options_set_info_log_level(o, 2 /* warnings */);
	rocksdb_options_set_keep_log_file_num(o, 4);
	db->options = o;
	db->cache = new_cache();
	for (int i = 0; i <= DB_FAMILIES; i++)
		db->family_options[i] = family_options_new(db, (enum db_family)i);
	db->read = rocksdb_readoptions_create();
	db->scan = rocksdb_readoptions_create();
	rocksdb_readoptions_set_fill_cache(db->scan, 0);
	db->write = rocksdb_writeoptions_create();
	db->write_sync = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(db->write_sync, 1);
}

int db_open(const char *path, bool create, bool read_only, struct db **ret_db, struct error *error)
{
	struct db *db = calloc(1, sizeof(*db));
	char *text = NULL;

	if (!db)
		return -ENOMEM;
	options_init(db, create);
	if (read_only)
		db->rocks = rocksdb_open_for_read_only_column_families(
			db->options, path, DB_FAMILIES + 1, family_names,
			(const rocksdb_options_t *const *)db->family_options, db->families, 0,
			&text);
	else
		db->rocks = rocksdb_open_column_families(
			db->options, path, DB_FAMILIES + 1, family_names,
			(const rocksdb_options_t *const *)db->family_options, db->families, &text);
	if (text) {
		db_close(db);
		return error_from_rocks(text, "opening the database", error);
	}
	*ret_db = db;
	return 0;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	for (int i = 0; i <= DB_FAMILIES; i++)
		if (db->families[i])
			rocksdb_column_family_handle_destroy(db->families[i]);
	if (db->rocks)
		rocksdb_close(db->rocks);
	for (int i = 0; i <= DB_FAMILIES; i++)
		rocksdb_options_destroy(db->family_options[i]);
	rocksdb_options_destroy(db->options);
	rocksdb_cache_destroy(db->cache);
	rocksdb_readoptions_destroy(db->read);
	rocksdb_readoptions_destroy(db->scan);
	rocksdb_writeoptions_destroy(db->write);
	rocksdb_writeoptions_destroy(db->write_sync);
	free(db);
}

static void value_set(struct db_value *value, rocksdb_pinnableslice_t *slice)
{
	value->pin = slice;
	value->bytes = (struct bytes){0};
	if (slice)
		value->bytes.p = rocksdb_pinnableslice_value(slice, &value->bytes.n);
}

int db_get(struct db *db, enum db_family family, struct bytes key, struct db_value *ret_value,
	   struct error *error)
{
	char *text = NULL;
	rocksdb_pinnableslice_t *slice =
		rocksdb_get_pinned_cf(db->rocks, db->read, db->families[family], key.p, key.n,
				      &text);

	if (text)
		return error_from_rocks(text, "reading the database", error);
	if (!slice)
		return -ENOENT;
	value_set(ret_value, slice);
	return 0;
}

void db_value_free(struct db_value *value)
{
	if (value->pin)
		rocksdb_pinnableslice_destroy(value->pin);
	*value = (struct db_value){0};
}

static int get_many(struct db *db, enum db_family family, const struct bytes *keys, size_t count,
		    struct db_value *ret_values, struct error *error)
{
	enum { CHUNK = 64 };
	const char *p[CHUNK] = {NULL};
	size_t n[CHUNK] = {0};
	rocksdb_pinnableslice_t *slices[CHUNK];
	char *texts[CHUNK];
	int rc = 0;

	for (size_t i = 0; i < count; i++) {
		p[i] = keys[i].p;
		n[i] = keys[i].n;
	}
	rocksdb_batched_multi_get_cf(db->rocks, db->read, db->families[family], count, p, n, slices,
				     texts, false);
	for (size_t i = 0; i < count; i++) {
		value_set(&ret_values[i], slices[i]);
		if (texts[i])
			rc = error_from_rocks(texts[i], "reading the database", error);
	}
	return rc;
}

int db_get_many(struct db *db, enum db_family family, const struct bytes *keys, size_t count,
		struct db_value *ret_values, struct error *error)
{
	int rc = 0;

	memset(ret_values, 0, count * sizeof(*ret_values));
	for (size_t i = 0; i < count && rc == 0; i += 64)
		rc = get_many(db, family, keys + i, count - i < 64 ? count - i : 64, ret_values + i,
			      error);
	for (size_t i = 0; rc < 0 && i < count; i++)
		db_value_free(&ret_values[i]);
	return rc;
}

struct db_batch *db_batch_new(void)
{
	return (struct db_batch *)rocksdb_writebatch_create();
}

static rocksdb_writebatch_t *rocks_batch(struct db_batch *batch)
{
	return (rocksdb_writebatch_t *)batch;
}

void db_batch_free(struct db_batch *batch)
{
	if (batch)
		rocksdb_writebatch_destroy(rocks_batch(batch));
}

void db_batch_clear(struct db_batch *batch)
{
	rocksdb_writebatch_clear(rocks_batch(batch));
}

size_t db_batch_bytes(struct db_batch *batch)
{
	size_t n;

	rocksdb_writebatch_data(rocks_batch(batch), &n);
	return n;
}

void db_batch_put(struct db *db, struct db_batch *batch, enum db_family family, struct bytes key,
		  struct bytes value)
{
	rocksdb_writebatch_put_cf(rocks_batch(batch), db->families[family], key.p, key.n, value.p,
				  value.n);
}

void db_batch_put2(struct db *db, struct db_batch *batch, enum db_family family, struct bytes key,
		   struct bytes head, struct bytes body)
{
	const char *values[] = {head.p, body.p};
	size_t sizes[] = {head.n, body.n};

	rocksdb_writebatch_putv_cf(rocks_batch(batch), db->families[family], 1, &key.p, &key.n, 2,
				   values, sizes);
}

void db_batch_delete(struct db *db, struct db_batch *batch, enum db_family family, struct bytes key)
{
	rocksdb_writebatch_delete_cf(rocks_batch(batch), db->families[family], key.p, key.n);
}

void db_batch_delete_range(struct db *db, struct db_batch *batch, enum db_family family,
			   struct bytes from, struct bytes to)
{
	rocksdb_writebatch_delete_range_cf(rocks_batch(batch), db->families[family], from.p, from.n,
					   to.p, to.n);
}

int db_write(struct db *db, struct db_batch *batch, bool sync, struct error *error)
{
	char *text = NULL;

	rocksdb_write(db->rocks, sync ? db->write_sync : db->write, rocks_batch(batch), &text);
	return text ? error_from_rocks(text, "writing the database", error) : 0;
}

int db_sync(struct db *db, struct error *error)
{
	char *text = NULL;

	rocksdb_flush_wal(db->rocks, 1, &text);
	return text ? error_from_rocks(text, "syncing the database", error) : 0;
}

static rocksdb_iterator_t *rocks_iterator(struct db_iterator *it)
{
	return (rocksdb_iterator_t *)it;
}

struct db_iterator *db_iterator_open(struct db *db, enum db_family family, bool scan)
{
	return (struct db_iterator *)rocksdb_create_iterator_cf(db->rocks,
								scan ? db->scan : db->read,
								db->families[family]);
}

void db_iterator_close(struct db_iterator *it)
{
	if (it)
		rocksdb_iter_destroy(rocks_iterator(it));
}

void db_iterator_seek(struct db_iterator *it, struct bytes key)
{
	rocksdb_iter_seek(rocks_iterator(it), key.p, key.n);
}

void db_iterator_seek_back(struct db_iterator *it, struct bytes key)
{
	rocksdb_iter_seek_for_prev(rocks_iterator(it), key.p, key.n);
}

void db_iterator_next(struct db_iterator *it)
{
	if (rocksdb_iter_valid(rocks_iterator(it)))
		rocksdb_iter_next(rocks_iterator(it));
}

int db_iterator_get(struct db_iterator *it, struct bytes *ret_key, struct bytes *ret_value,
		    struct error *error)
{
	char *text = NULL;

	if (rocksdb_iter_valid(rocks_iterator(it))) {
		ret_key->p = rocksdb_iter_key(rocks_iterator(it), &ret_key->n);
		ret_value->p = rocksdb_iter_value(rocks_iterator(it), &ret_value->n);
		return 1;
	}
	rocksdb_iter_get_error(rocks_iterator(it), &text);
	return text ? error_from_rocks(text, "reading the database", error) : 0;
}

static uint64_t sum_property(struct db *db, const char *name)
{
	uint64_t total = 0, n;

	for (int i = 0; i < DB_FAMILIES; i++)
		if (rocksdb_property_int_cf(db->rocks, db->families[i], name, &n) == 0)
			total += n;
	return total;
}

uint64_t db_memory_bytes(struct db *db)
{
	return sum_property(db, "rocksdb.cur-size-all-mem-tables");
}

uint64_t db_disk_bytes(struct db *db)
{
	return sum_property(db, "rocksdb.total-sst-files-size") + db_memory_bytes(db);
}
