/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The key-value engine, RocksDB, behind a few words. Nothing else includes its header, and its
 * error texts become an errno here.
 */
#include "store/base.h"

enum db_family {
	DB_LOG,
	DB_INDEX,
	DB_STATE,
	DB_GROUPS,
	DB_DLQ,
	DB_OPS,
	DB_META,
	DB_FAMILIES,
};

struct db;

int db_open(const char *path, bool create, bool read_only, struct db **ret_db, struct error *error);
/* Takes NULL. */
void db_close(struct db *db);

/* A value pinned in the engine; freed with db_value_free(), which takes an empty one. */
struct db_value {
	struct bytes bytes; /* p NULL: there is none */
	void *pin;
};

/* 0, -ENOENT, -EBADMSG, -EIO. */
int db_get(struct db *db, enum db_family family, struct bytes key, struct db_value *ret_value,
	   struct error *error);
/* Looks up many keys of any order at once; absent ones get a p of NULL. On error no value is held.
 */
int db_get_many(struct db *db, enum db_family family, const struct bytes *keys, size_t count,
		struct db_value *ret_values, struct error *error);
void db_value_free(struct db_value *value);

/* Changes that become true together. */
struct db_batch;
struct db_batch *db_batch_new(void);
void db_batch_free(struct db_batch *batch);
void db_batch_clear(struct db_batch *batch);
/* Bytes that it will take in the write-ahead log. */
size_t db_batch_bytes(struct db_batch *batch);
void db_batch_put(struct db *db, struct db_batch *batch, enum db_family family, struct bytes key,
		  struct bytes value);
/* The value is `head` and `body` back to back. */
void db_batch_put2(struct db *db, struct db_batch *batch, enum db_family family, struct bytes key,
		   struct bytes head, struct bytes body);
void db_batch_delete(struct db *db, struct db_batch *batch, enum db_family family,
		     struct bytes key);
/* All keys from `from` on and below `to`. */
void db_batch_delete_range(struct db *db, struct db_batch *batch, enum db_family family,
			   struct bytes from, struct bytes to);

/* Writes the batch; with `sync` it and all before it survive a power cut. -ENOSPC, -EIO. */
int db_write(struct db *db, struct db_batch *batch, bool sync, struct error *error);
/* All that was written survives a power cut. */
int db_sync(struct db *db, struct error *error);

/* A walk over one family in the order of its keys, over the state at its opening. */
struct db_iterator;
/* With `scan` what is read does not push other things out of the cache. */
struct db_iterator *db_iterator_open(struct db *db, enum db_family family, bool scan);
void db_iterator_close(struct db_iterator *it);
/* To the first key at or behind `key`. */
void db_iterator_seek(struct db_iterator *it, struct bytes key);
/* To the last key at or before `key`. */
void db_iterator_seek_back(struct db_iterator *it, struct bytes key);
void db_iterator_next(struct db_iterator *it);
/* 1 if it stands on a key, 0 at the end, negative on damage. Key and value are borrowed until the
 * iterator moves. */
int db_iterator_get(struct db_iterator *it, struct bytes *ret_key, struct bytes *ret_value,
		    struct error *error);

/* Bytes in memory that a flush will write to the disk. */
uint64_t db_memory_bytes(struct db *db);
/* Bytes of all live files, and of what is still in memory. */
uint64_t db_disk_bytes(struct db *db);
