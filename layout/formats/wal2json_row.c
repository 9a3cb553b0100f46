/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "layout/formats/format.h"
#include "layout/formats/json.h"
#include "layout/formats/wal2json.h"

/* ---- texts in the transaction's buffer ---- */

struct wal_span wal_span_from(const struct format_state *state, size_t at)
{
	return (struct wal_span){at, state->bytes.n - at, true};
}

static int fault(const struct wal_table *table, struct error *error, const char *what)
{
	struct bytes name = buffer_bytes(&table->collection);

	return error_set(error, -EINVAL, "table %.*s: %s", (int)name.n, name.p, what);
}

static int add_member(struct buffer *b, const char *before, struct bytes json)
{
	int rc = buffer_add_bytes(b, bytes_of(before));

	return rc < 0 ? rc : buffer_add_bytes(b, json);
}

static int add_string_member(struct buffer *b, const char *before, struct bytes text)
{
	int rc = buffer_add_bytes(b, bytes_of(before));

	return rc < 0 ? rc : buffer_add_json_string(b, text);
}

static inline char *put(char *p, struct bytes s)
{
	memcpy(p, s.p, s.n);
	return p + s.n;
}

/*
 * `{"name":VALUE,…` from raw tokens, without the last bracket. A column that `newest` has as well
 * takes its value from there. Every row goes through here, so room is made column by column and
 * not piece by piece.
 */
static int begin_object(struct buffer *b, const struct wal_columns *columns,
			const struct wal_columns *newest)
{
	if (!columns->n)
		return buffer_add(b, "{", 1);
	for (size_t i = 0; i < columns->n; i++) {
		struct bytes name = columns->p[i].name, value = columns->p[i].value;
		const struct wal_column *now = newest ? wal_columns_find(newest, name, i) : NULL;
		if (now)
			value = now->value;
		if (buffer_reserve(b, name.n + value.n + 4) < 0)
			return -ENOMEM;
		char *p = put(b->p + b->n, i ? BYTES(",\"") : BYTES("{\""));
		p = put(put(p, name), BYTES("\":"));
		p = put(p, value);
		b->n = (size_t)(p - b->p);
	}
	return 0;
}

/* The columns of `more` that `columns` lacks: key columns so large that they were left out. */
static int add_missing(struct buffer *b, const struct wal_columns *columns,
		       const struct wal_columns *more)
{
	int rc = 0;

	for (size_t i = 0; i < more->n && rc == 0; i++) {
		if (wal_columns_find(columns, more->p[i].name, i))
			continue;
		rc = add_member(b, b->p[b->n - 1] == '{' ? "\"" : ",\"", more->p[i].name);
		if (rc == 0)
			rc = add_member(b, "\":", more->p[i].value);
	}
	return rc;
}

static int hold_object(struct format_state *state, const struct wal_columns *columns,
		       struct wal_span *ret_span)
{
	size_t at = state->bytes.n;
	int rc = begin_object(&state->bytes, columns, NULL);

	if (rc == 0)
		rc = buffer_add(&state->bytes, "}", 1);
	*ret_span = wal_span_from(state, at);
	return rc;
}

/* The new row of an update: whole if the identity is, else what there is of it. */
static int hold_new_row(struct format_state *state, bool full, struct wal_span *ret_span)
{
	size_t at = state->bytes.n;
	int rc = full ? begin_object(&state->bytes, &state->line.identity, &state->line.columns)
		      : begin_object(&state->bytes, &state->line.columns, NULL);

	if (rc == 0 && !full)
		rc = add_missing(&state->bytes, &state->line.columns, &state->line.identity);
	if (rc == 0)
		rc = buffer_add(&state->bytes, "}", 1);
	*ret_span = wal_span_from(state, at);
	return rc;
}

/* ---- keys ---- */

/* The columns that make the key: the primary key, else those that tell the old row. */
static const struct wal_columns *key_columns(const struct format_state *state)
{
	return state->line.pk.n ? &state->line.pk : &state->line.identity;
}

/* The i-th key column's value, from the first of the two lists that has it; absent if none has. */
static struct bytes key_value(const struct format_state *state, size_t i,
			      const struct wal_columns *first, const struct wal_columns *second)
{
	struct bytes name = key_columns(state)->p[i].name;
	const struct wal_column *column = wal_columns_find(first, name, i);

	if (!column && second)
		column = wal_columns_find(second, name, i);
	return column ? column->value : (struct bytes){NULL, 0};
}

static bool has_key(const struct format_state *state, const struct wal_columns *columns)
{
	return key_columns(state)->n && wal_columns_contain(columns, key_columns(state));
}

/* The values as JSON: one column's value, or an array of several. */
static int add_key_json(struct format_state *state, const struct wal_columns *first,
			const struct wal_columns *second, bool array)
{
	size_t n = key_columns(state)->n;
	int rc = array ? buffer_add(&state->bytes, "[", 1) : 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_member(&state->bytes, i ? "," : "", key_value(state, i, first, second));
	return rc == 0 && array ? buffer_add(&state->bytes, "]", 1) : rc;
}

static int check_key(struct format_state *state, const struct wal_table *table, struct wal_span key,
		     struct error *error)
{
	struct bytes text = {state->bytes.p + key.at, key.n};
	struct bytes collection = buffer_bytes(&table->collection);

	if (text.n > STORE_KEY_MAX)
		return error_set(error, -EFBIG,
				 "table %.*s: a row's key has %zu bytes, the limit is %d",
				 (int)collection.n, collection.p, text.n, STORE_KEY_MAX);
	if (!bytes_are_utf8(text))
		return error_set(error, -EINVAL,
				 "table %.*s: a row's key is not UTF-8; use a database with the "
				 "encoding UTF8",
				 (int)collection.n, collection.p);
	return 0;
}

/*
 * `COLLECTION:` and the key's values: one column's text or token, else the JSON array. A null alone
 * (a table without a primary key) is `[null]`, which no text column can look like by accident of
 * its type.
 */
static int hold_key(struct format_state *state, const struct wal_table *table,
		    const struct wal_columns *first, const struct wal_columns *second,
		    struct wal_span *ret_key, struct error *error)
{
	size_t at = state->bytes.n;
	struct bytes value = key_value(state, 0, first, second);
	int rc = buffer_add_bytes(&state->bytes, buffer_bytes(&table->collection));

	if (rc == 0)
		rc = buffer_add(&state->bytes, ":", 1);
	if (rc == 0 && key_columns(state)->n == 1 && json_text_is_string(value))
		rc = json_string_decode(value, &state->bytes, error);
	else if (rc == 0)
		rc = add_key_json(state, first, second,
				  key_columns(state)->n > 1 || json_text_is_null(value));
	*ret_key = wal_span_from(state, at);
	return rc < 0 ? rc : check_key(state, table, *ret_key, error);
}

/* The key of a row that has none: its place in the log of the database. */
static int hold_made_up_key(struct format_state *state, const struct wal_table *table,
			    struct wal_span *ret_key, struct error *error)
{
	size_t at = state->bytes.n;
	int rc = buffer_add_bytes(&state->bytes, buffer_bytes(&table->collection));

	if (rc == 0)
		rc = buffer_printf(&state->bytes, ":@%.*s.%llu", (int)state->lsn_text.n,
				   state->lsn_text.p, (unsigned long long)state->rows);
	*ret_key = wal_span_from(state, at);
	return rc < 0 ? rc : check_key(state, table, *ret_key, error);
}

/* ---- metadata ---- */

/* Behind what is the event's own: the transaction and the source. */
static int end_metadata(struct format_state *state, struct error *error)
{
	struct buffer *b = &state->bytes;
	uint64_t lsn;
	int rc = wal_line_lsn(&state->line, &lsn, NULL, error);

	if (rc == 0)
		rc = add_member(b, ",\"lsn\":", state->line.members[WAL_LSN]);
	if (rc == 0 && state->open && state->xid.n)
		rc = add_member(b, ",\"xid\":", buffer_bytes(&state->xid));
	if (rc == 0 && state->open)
		rc = add_string_member(b, ",\"commit_lsn\":", buffer_bytes(&state->lsn_text));
	if (rc == 0)
		rc = add_string_member(b, ",\"source\":", buffer_bytes(&state->source));
	return rc < 0 ? rc : buffer_add(b, "}", 1);
}

/* `first` and `second` as for key_value(); without `first` there is no key to tell. */
static int hold_metadata(struct format_state *state, const struct wal_table *table,
			 const struct wal_columns *first, const struct wal_columns *second,
			 struct wal_span *ret_span, struct error *error)
{
	size_t at = state->bytes.n;
	int rc = buffer_add_bytes(&state->bytes, buffer_bytes(&table->metadata));

	if (rc == 0 && first) {
		rc = buffer_add_bytes(&state->bytes, BYTES(",\"pk\":"));
		if (rc == 0)
			rc = add_key_json(state, first, second, key_columns(state)->n > 1);
	}
	if (rc == 0)
		rc = end_metadata(state, error);
	*ret_span = wal_span_from(state, at);
	return rc;
}

/* ---- ops events ---- */

/* Once a table: rows whose key cannot be known, or whose change of key cannot be seen. */
static int tell_unsupported(struct format_state *state, struct wal_table *table, const char *status,
			    const char *info, struct error *error)
{
	struct bytes xid = buffer_bytes(&state->xid), lsn;
	struct buffer *b = &state->bytes;
	size_t at = b->n;
	uint64_t number;

	if (table->told != WAL_TOLD_NOT)
		return 0;
	int rc = wal_line_lsn(&state->line, &number, &lsn, error);
	if (rc == 0)
		rc = add_string_member(b, "{\"table\":", buffer_bytes(&table->collection));
	if (rc == 0 && xid.n)
		rc = add_string_member(b, ",\"xid\":", xid);
	if (rc == 0)
		rc = add_string_member(b, ",\"scn\":", lsn);
	if (rc == 0)
		rc = add_string_member(b, ",\"status\":", bytes_of(status));
	if (rc == 0)
		rc = add_string_member(b, ",\"info\":", bytes_of(info));
	if (rc == 0)
		rc = buffer_add(b, "}", 1);
	if (rc < 0)
		return rc;
	struct wal_held event = {.table = table, .value = wal_span_from(state, at)};
	table->told = WAL_TOLD_HELD;
	return wal_hold(state, &event, error);
}

static int hold_dead_letter(struct format_state *state, struct wal_table *table, const char *reason,
			    struct error *error)
{
	_cleanup_(buffer_free) struct buffer more = {0};
	struct bytes lsn = state->line.members[WAL_LSN], action = {&state->line.action, 1};
	size_t at = state->bytes.n;

	int rc = add_string_member(&more, ",\"table\":", buffer_bytes(&table->collection));
	if (rc == 0 && lsn.p)
		rc = add_member(&more, ",\"scn\":", lsn);
	if (rc == 0 && state->xid.n)
		rc = add_member(&more, ",\"xid\":", buffer_bytes(&state->xid));
	if (rc == 0)
		rc = add_string_member(&more, ",\"operation\":", action);
	if (rc == 0)
		rc = format_dead_letter(&state->bytes, "unsupported-row",
					buffer_bytes(&state->source), reason, state->raw,
					buffer_bytes(&more));
	if (rc < 0)
		return rc;
	struct wal_held letter = {.table = table,
				  .dead_letter = true,
				  .value = wal_span_from(state, at)};
	return wal_hold(state, &letter, error);
}

/* A row that cannot become an event: it stops the source, or goes to the dead letters. */
static int unsupported(struct format_state *state, struct wal_table *table, const char *what,
		       struct error *error)
{
	int rc = fault(table, error, what);

	if (!state->dead_letters)
		return rc;
	rc = tell_unsupported(state, table, "unsupported", what, error);
	return rc < 0 ? rc : hold_dead_letter(state, table, what, error);
}

/* ---- rows ---- */

static int insert(struct format_state *state, struct wal_table *table, struct error *error)
{
	struct wal_held event = {.type = STORE_PUT, .table = table};
	bool keyed = state->line.pk.n;
	int rc;

	if (keyed && !has_key(state, &state->line.columns))
		return fault(table, error, "an insert lacks columns of the primary key");
	if (keyed) {
		rc = hold_key(state, table, &state->line.columns, NULL, &event.key, error);
	} else {
		rc = tell_unsupported(state, table, "no-key",
				      "the table has no primary key: inserted rows get a key made "
				      "of their place in the database's log, and later changes do "
				      "not find them",
				      error);
		if (rc == 0)
			rc = hold_made_up_key(state, table, &event.key, error);
	}
	if (rc == 0)
		rc = hold_object(state, &state->line.columns, &event.value);
	if (rc == 0)
		rc = hold_metadata(state, table, keyed ? &state->line.columns : NULL, NULL,
				   &event.metadata, error);
	if (rc == 0)
		rc = wal_table_learn(table, &state->line.columns);
	return rc < 0 ? rc : wal_hold(state, &event, error);
}

/* Without the old key the change of one cannot be seen; that is told once. */
static int hold_old_key(struct format_state *state, struct wal_table *table,
			struct wal_span *ret_key, struct error *error)
{
	if (has_key(state, &state->line.identity))
		return hold_key(state, table, &state->line.identity, NULL, ret_key, error);
	return tell_unsupported(state, table, "no-old-key",
				"the table's REPLICA IDENTITY does not cover its primary key: an "
				"update that changes the key cannot be told from one that does "
				"not, and deletes are refused",
				error);
}

static bool spans_equal(const struct format_state *state, struct wal_span a, struct wal_span b)
{
	return bytes_equal((struct bytes){state->bytes.p + a.at, a.n},
			   (struct bytes){state->bytes.p + b.at, b.n});
}

/* How the new row gets what it lacks. */
static int choose_patch(struct format_state *state, struct wal_table *table, enum wal_full full,
			struct wal_held *event)
{
	if (full == WAL_FULL_SURE)
		return wal_table_learn(table, &state->line.identity);
	if (full == WAL_FULL_LIKELY)
		event->patch = wal_patch_full;
	else if (!wal_table_complete(table, &state->line.columns))
		event->patch = wal_patch_row;
	return 0;
}

/* The old key's DELETE in front of the PUT of another key. */
static int hold_key_change(struct format_state *state, struct wal_held *put,
			   struct wal_span old_key, struct error *error)
{
	struct wal_held event = {.type = STORE_DELETE,
				 .table = put->table,
				 .key = old_key,
				 .before = put->before};
	int rc = hold_metadata(state, put->table, &state->line.identity, NULL, &event.metadata,
			       error);

	put->before = (struct wal_span){0};
	if (put->patch)
		put->patch_key = old_key;
	return rc < 0 ? rc : wal_hold(state, &event, error);
}

static int update(struct format_state *state, struct wal_table *table, struct error *error)
{
	struct wal_held event = {.type = STORE_PUT, .table = table};
	struct wal_span old_key = {0};
	enum wal_full full =
		wal_table_full(table, &state->line.columns, &state->line.identity, &state->line.pk);

	for (size_t i = 0; i < key_columns(state)->n; i++)
		if (!key_value(state, i, &state->line.columns, &state->line.identity).p)
			return unsupported(state, table,
					   "an update lacks columns of the primary key", error);
	if (key_columns(state)->n == 0)
		return unsupported(state, table,
				   "an update has neither a primary key nor an identity", error);
	int rc = hold_old_key(state, table, &old_key, error);
	if (rc == 0)
		rc = hold_key(state, table, &state->line.columns, &state->line.identity, &event.key,
			      error);
	if (rc == 0)
		rc = hold_new_row(state, full != WAL_FULL_NOT, &event.value);
	if (rc == 0 && full != WAL_FULL_NOT)
		rc = hold_object(state, &state->line.identity, &event.before);
	if (rc == 0)
		rc = choose_patch(state, table, full, &event);
	if (rc == 0 && old_key.there && !spans_equal(state, old_key, event.key))
		rc = hold_key_change(state, &event, old_key, error);
	if (rc == 0)
		rc = hold_metadata(state, table, &state->line.columns, &state->line.identity,
				   &event.metadata, error);
	return rc < 0 ? rc : wal_hold(state, &event, error);
}

static int delete (struct format_state *state, struct wal_table *table, struct error *error)
{
	struct wal_held event = {.type = STORE_DELETE, .table = table};

	if (!has_key(state, &state->line.identity))
		return unsupported(
			state, table,
			"a delete does not tell the primary key: ALTER TABLE ... REPLICA "
			"IDENTITY DEFAULT (or FULL) lets it",
			error);
	int rc = hold_key(state, table, &state->line.identity, NULL, &event.key, error);
	if (rc == 0 &&
	    wal_table_full(table, NULL, &state->line.identity, &state->line.pk) != WAL_FULL_NOT)
		rc = hold_object(state, &state->line.identity, &event.before);
	if (rc == 0)
		rc = hold_metadata(state, table, &state->line.identity, NULL, &event.metadata,
				   error);
	return rc < 0 ? rc : wal_hold(state, &event, error);
}

int wal_row(struct format_state *state, struct error *error)
{
	struct wal_table *table;
	int rc = wal_tables_get(&state->tables, &state->line, &table, error);

	if (rc == 0 && !state->line.members[WAL_PK].p)
		return fault(table, error,
			     "a row has no \"pk\": give pg_recvlogical the option -o include-pk=1");
	if (rc < 0)
		return rc;
	state->rows++;
	if (state->line.action == 'I')
		return insert(state, table, error);
	return state->line.action == 'U' ? update(state, table, error)
					 : delete (state, table, error);
}

/* ---- what is no row ---- */

int wal_truncate(struct format_state *state, struct error *error)
{
	struct wal_held event = {.type = STORE_TRUNCATE};
	int rc = wal_tables_get(&state->tables, &state->line, &event.table, error);

	if (rc < 0)
		return rc;
	size_t at = state->bytes.n;
	rc = buffer_add_bytes(&state->bytes, buffer_bytes(&event.table->collection));
	if (rc == 0)
		rc = buffer_add(&state->bytes, ":", 1);
	event.key = wal_span_from(state, at);
	if (rc == 0)
		rc = hold_metadata(state, event.table, NULL, NULL, &event.metadata, error);
	return rc < 0 ? rc : wal_hold(state, &event, error);
}

/* The prefix as a key; the empty one, which a key may not be, is `_`. */
static int hold_prefix(struct format_state *state, struct bytes prefix, struct wal_span *ret_key,
		       struct error *error)
{
	size_t at = state->bytes.n;
	int rc = json_string_decode(prefix, &state->bytes, error);

	if (rc == 0 && state->bytes.n == at)
		rc = buffer_add(&state->bytes, "_", 1);
	*ret_key = wal_span_from(state, at);
	if (rc == 0 && !bytes_are_utf8((struct bytes){state->bytes.p + at, state->bytes.n - at}))
		return error_set(error, -EINVAL, "a message's prefix is not UTF-8");
	return rc;
}

int wal_message(struct format_state *state, struct error *error)
{
	struct wal_held event = {.type = STORE_MESSAGE};
	struct bytes prefix = state->line.members[WAL_PREFIX],
		     content = state->line.members[WAL_CONTENT];

	if (!json_text_is_string(prefix) || !json_text_is_string(content))
		return error_set(error, -EINVAL,
				 "a message of wal2json lacks its prefix or content");
	int rc = hold_prefix(state, prefix, &event.key, error);
	size_t at = state->bytes.n;
	if (rc == 0)
		rc = json_string_decode(content, &state->bytes, error);
	event.value = wal_span_from(state, at);
	at = state->bytes.n;
	if (rc == 0)
		rc = add_member(&state->bytes, "{\"prefix\":", prefix);
	if (rc == 0)
		rc = end_metadata(state, error);
	event.metadata = wal_span_from(state, at);
	return rc < 0 ? rc : wal_hold(state, &event, error);
}
