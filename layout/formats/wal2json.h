/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the files of the wal2json format share. A line (wal2json_line.c) becomes one or two held
 * events (wal2json_row.c) that wait for their transaction's end (wal2json.c). What is known of a
 * table's columns, and how an update takes what it lacks from the current document, is in
 * wal2json_toast.c.
 */
#include "store/store.h"

/* ---- a line ---- */

enum wal_member {
	WAL_ACTION,
	WAL_TIMESTAMP,
	WAL_LSN,
	WAL_XID,
	WAL_SCHEMA,
	WAL_TABLE,
	WAL_TRANSACTIONAL,
	WAL_PREFIX,
	WAL_CONTENT,
	WAL_CHANGE, /* only in format version 1 */
	WAL_COLUMNS,
	WAL_IDENTITY,
	WAL_PK,
	WAL_MEMBER_COUNT,
};

/* A column: the name raw between its quotes, the value as it was written (absent in `pk`). */
struct wal_column {
	struct bytes name;
	struct bytes value;
};

struct wal_columns {
	struct wal_column *p;
	size_t n;
	size_t capacity;
};

/*
 * A line's members, each its JSON value's own text or absent, all borrowed from the line. The three
 * lists of columns are read at once: for them `members` only tells that they are there. All zero
 * is a valid one; it is used for line after line, so that the lists keep their room.
 */
struct wal_line {
	char action; /* B, I, U, D, T, M or C */
	struct bytes members[WAL_MEMBER_COUNT];
	struct wal_columns columns;
	struct wal_columns identity;
	struct wal_columns pk;
};

int wal_line_read(struct bytes line, struct wal_line *ret_line, struct error *error);
void wal_line_free(struct wal_line *line);
/* The LSN as a number and, if ret_text is not NULL, as the text between its quotes. */
int wal_line_lsn(const struct wal_line *line, uint64_t *ret_lsn, struct bytes *ret_text,
		 struct error *error);
/* Microseconds since 1970. */
int wal_line_time(const struct wal_line *line, int64_t *ret_us, struct error *error);

/* NULL if there is none. The search begins at `hint`: lists of one table have the same order. */
const struct wal_column *wal_columns_find(const struct wal_columns *columns, struct bytes name,
					  size_t hint);
/* True if every column of `part` is in `whole`. */
bool wal_columns_contain(const struct wal_columns *whole, const struct wal_columns *part);

/* ---- tables ---- */

enum wal_told { WAL_TOLD_NOT, WAL_TOLD_HELD, WAL_TOLD };

struct wal_table {
	struct buffer id;	  /* schema and table as the line wrote them, with their quotes */
	struct buffer collection; /* the table's collection */
	struct buffer metadata;	  /* the beginning of its events' metadata */
	struct buffer columns; /* names of a row that lacked none, each with a newline behind it */
	enum wal_told told;    /* of the ops event that a row's key cannot be known */
};

struct wal_tables {
	struct wal_table **p; /* in the order of their ids */
	size_t n;
	size_t capacity;
	struct wal_table *newest;
};

/* The line's table, made if it is new. -EINVAL without schema or table, -ENOMEM. */
int wal_tables_get(struct wal_tables *tables, const struct wal_line *line,
		   struct wal_table **ret_table, struct error *error);
void wal_tables_free(struct wal_tables *tables);

/* These columns are all that the table has. */
int wal_table_learn(struct wal_table *table, const struct wal_columns *columns);
/* True if these are known to be all columns. Forgets what it knows if one of them is new: then
 * there may be others that this row lacks. */
bool wal_table_complete(struct wal_table *table, const struct wal_columns *columns);

/*
 * Is this identity the whole old row (REPLICA IDENTITY FULL)? The line does not say. `columns` may
 * be NULL (a delete). WAL_FULL_LIKELY: it is, unless an index covers all but toasted columns.
 */
enum wal_full { WAL_FULL_NOT, WAL_FULL_LIKELY, WAL_FULL_SURE };
enum wal_full wal_table_full(const struct wal_table *table, const struct wal_columns *columns,
			     const struct wal_columns *identity, const struct wal_columns *pk);

/*
 * For struct store_event.patch. PostgreSQL leaves out of an update, without a mark, large columns
 * that did not change. These put them back from the current document, in its order. Without a
 * document, wal_patch_row() says that the row is partial, wal_patch_full() takes it as whole.
 */
int wal_patch_row(struct bytes value, struct bytes current, struct buffer *ret_value,
		  bool *ret_partial);
int wal_patch_full(struct bytes value, struct bytes current, struct buffer *ret_value,
		   bool *ret_partial);

/* ---- a transaction ---- */

#define WAL_TRANSACTION_MAX ((size_t)1 << 30)

/* Bytes in the transaction's buffer. */
struct wal_span {
	size_t at;
	size_t n;
	bool there; /* false: an absent slice */
};

struct wal_held {
	enum store_type type;	 /* 0: an ops event, or a dead letter */
	bool dead_letter;	 /* its members are `value`; else the ops event's details are */
	struct wal_table *table; /* NULL for a message */
	struct wal_span key;
	struct wal_span value;
	struct wal_span before;
	struct wal_span metadata;
	struct wal_span patch_key;
	int (*patch)(struct bytes value, struct bytes current, struct buffer *ret_value,
		     bool *ret_partial);
};

struct format_state {
	struct buffer source;
	struct wal_tables tables;
	struct wal_line line; /* the one at hand */
	struct bytes raw;     /* its bytes */
	bool dead_letters;    /* rows that are not supported go there */

	bool open; /* between B and C */
	uint64_t lsn;
	int64_t time_us;
	struct buffer lsn_text;
	struct buffer xid; /* empty without include-xids */
	uint64_t rows;
	struct buffer bytes;
	struct wal_held *held;
	size_t count;
	size_t capacity;

	int failed; /* why lines up to the next B are refused */
	struct error failure;
};

/* Holds the event until the transaction's end. -EFBIG: the transaction is too large; -ENOMEM. */
int wal_hold(struct format_state *state, const struct wal_held *event, struct error *error);
/* The span from `at` to the end of the transaction's buffer. */
struct wal_span wal_span_from(const struct format_state *state, size_t at);

/* Hold what the line at hand says: I, U, D / T / M. */
int wal_row(struct format_state *state, struct error *error);
int wal_truncate(struct format_state *state, struct error *error);
int wal_message(struct format_state *state, struct error *error);
