/* SPDX-License-Identifier: Apache-2.0 */
/*
 * in/wal2json: what `pg_recvlogical -P wal2json` writes, in format version 2. A transaction's rows
 * are held from B to C and go to the batch together, with the source's position: B's LSN, which
 * rises from commit to commit while the rows' own need not.
 */
#include "layout/formats/wal2json.h"

#include <errno.h>
#include <stdlib.h>

#include "layout/formats/format.h"
#include "layout/formats/json.h"

#define KEEP_BUFFER_MAX (4 << 20) /* a handle does not keep the room of its largest transaction */

static int wal2json_open(struct bytes source, struct format_state **ret_state)
{
	struct format_state *state = calloc(1, sizeof(*state));

	if (!state)
		return -ENOMEM;
	if (buffer_add_bytes(&state->source, source) < 0) {
		free(state);
		return -ENOMEM;
	}
	*ret_state = state;
	return 0;
}

static void wal2json_close(struct format_state *state)
{
	if (!state)
		return;
	wal_tables_free(&state->tables);
	wal_line_free(&state->line);
	free(state->held);
	buffer_free(&state->source);
	buffer_free(&state->lsn_text);
	buffer_free(&state->xid);
	buffer_free(&state->bytes);
	free(state);
}

/* ---- what is held ---- */

int wal_hold(struct format_state *state, const struct wal_held *event, struct error *error)
{
	if (state->bytes.n + state->count * sizeof(*event) > WAL_TRANSACTION_MAX)
		return error_set(error, -EFBIG, "the transaction of %.*s has more than %zu MiB",
				 (int)state->lsn_text.n, buffer_bytes(&state->lsn_text).p,
				 WAL_TRANSACTION_MAX >> 20);
	if (state->count == state->capacity) {
		size_t capacity = state->capacity ? state->capacity * 2 : 64;
		struct wal_held *held = realloc(state->held, capacity * sizeof(*held));
		if (!held)
			return -ENOMEM;
		state->held = held;
		state->capacity = capacity;
	}
	state->held[state->count++] = *event;
	return 0;
}

/* Ends the transaction; what was held has gone into a batch, or is lost. */
static void drop(struct format_state *state, enum wal_told told)
{
	for (size_t i = 0; i < state->count; i++)
		if (!state->held[i].type && !state->held[i].dead_letter)
			state->held[i].table->told = told;
	if (state->bytes.cap > KEEP_BUFFER_MAX)
		buffer_free(&state->bytes);
	if (state->capacity * sizeof(*state->held) > KEEP_BUFFER_MAX) {
		free(state->held);
		state->held = NULL;
		state->capacity = 0;
	}
	state->bytes.n = 0;
	state->count = 0;
	state->rows = 0;
	state->open = false;
}

static struct bytes span_bytes(const struct format_state *state, struct wal_span span)
{
	if (!span.there)
		return (struct bytes){NULL, 0};
	return (struct bytes){buffer_bytes(&state->bytes).p + span.at, span.n};
}

static int add_held(const struct format_state *state, const struct wal_held *held,
		    struct store_batch *batch, int64_t timestamp_ms, struct error *error)
{
	if (held->dead_letter)
		return store_batch_dead_letter(batch, span_bytes(state, held->value));
	if (!held->type)
		return store_batch_ops(batch, "unsupported-row", span_bytes(state, held->value));
	struct store_event event = {
		.type = held->type,
		.key = span_bytes(state, held->key),
		.value = span_bytes(state, held->value),
		.before = span_bytes(state, held->before),
		.metadata = span_bytes(state, held->metadata),
		.timestamp_ms = timestamp_ms,
		.patch = held->patch,
		.patch_key = span_bytes(state, held->patch_key),
	};
	event.collection = held->table ? buffer_bytes(&held->table->collection)
				       : store_key_collection(event.key);
	return store_batch_add(batch, &event, error);
}

/* Moves what is held, and the position, into the batch: all or nothing. */
static int commit(struct format_state *state, struct store_batch *batch, uint64_t position,
		  int64_t time_us, int64_t timestamp_ms, struct error *error)
{
	struct store_batch_mark mark = store_batch_mark(batch);
	int rc = 0;

	for (size_t i = 0; i < state->count && rc == 0; i++)
		rc = add_held(state, &state->held[i], batch, timestamp_ms, error);
	if (rc == 0)
		rc = store_batch_source(batch, buffer_bytes(&state->source), position, time_us);
	if (rc < 0) {
		store_batch_rollback(batch, mark);
		return rc;
	}
	drop(state, WAL_TOLD);
	return FORMAT_TAKEN;
}

/* ---- the kinds of lines ---- */

/* A B before the last one's C: the server sends the transaction again, whole. */
static int begin(struct format_state *state, struct error *error)
{
	struct bytes lsn, xid = state->line.members[WAL_XID];
	int64_t number;

	drop(state, WAL_TOLD_NOT);
	state->failed = 0;
	int rc = wal_line_lsn(&state->line, &state->lsn, &lsn, error);
	if (rc == 0)
		rc = wal_line_time(&state->line, &state->time_us, error);
	if (rc < 0)
		return rc;
	state->lsn_text.n = 0;
	state->xid.n = 0;
	rc = buffer_add_bytes(&state->lsn_text, lsn);
	if (rc == 0 && xid.p && json_integer_read(xid, &number) == 0)
		rc = buffer_add_bytes(&state->xid, xid);
	if (rc < 0)
		return rc;
	state->open = true;
	return FORMAT_HOLD;
}

static int end(struct format_state *state, struct store_batch *batch, struct error *error)
{
	uint64_t lsn;
	int rc = wal_line_lsn(&state->line, &lsn, NULL, error);

	if (rc < 0)
		return rc;
	if (lsn != state->lsn)
		return error_set(
			error, -EINVAL,
			"the transaction that began with the LSN %.*s does not end with it; "
			"does something else write to this handle?",
			(int)state->lsn_text.n, buffer_bytes(&state->lsn_text).p);
	return commit(state, batch, state->lsn, state->time_us, state->time_us / 1000, error);
}

/*
 * A message outside of any transaction is a transaction of its own. Its LSN is the end of its
 * record, which is where the next commit's record may begin; one below is above all commits before
 * it and below all behind it.
 */
static int lone_message(struct format_state *state, struct store_batch *batch, struct error *error)
{
	uint64_t lsn;
	int rc = wal_line_lsn(&state->line, &lsn, NULL, error);

	if (rc == 0 && lsn == 0)
		return error_set(error, -EINVAL, "a message has the LSN 0/0");
	if (rc == 0)
		rc = wal_message(state, error);
	return rc < 0 ? rc : commit(state, batch, lsn - 1, 0, clock_wall_ms(), error);
}

static int inside(struct format_state *state, struct store_batch *batch, struct error *error)
{
	int rc;

	if (state->line.action == 'C')
		return end(state, batch, error);
	if (state->line.action == 'T')
		rc = wal_truncate(state, error);
	else if (state->line.action == 'M')
		rc = wal_message(state, error);
	else
		rc = wal_row(state, error);
	return rc < 0 ? rc : FORMAT_HOLD;
}

static int take(struct format_state *state, struct store_batch *batch, struct error *error)
{
	if (state->line.action == 'B')
		return begin(state, error);
	if (state->open)
		return inside(state, batch, error);
	if (state->line.action == 'M' && json_text_is_false(state->line.members[WAL_TRANSACTIONAL]))
		return lone_message(state, batch, error);
	if (state->failed)
		return error_set(error, state->failed, "%s", state->failure.text);
	return error_set(error, -EINVAL,
			 "wal2json's line %c is in no transaction: give pg_recvlogical the option "
			 "-o include-transaction=1",
			 state->line.action);
}

static void wal2json_fail(struct format_state *state, int code, const struct error *reason)
{
	drop(state, WAL_TOLD_NOT);
	state->failed = code;
	state->failure = *reason;
}

/*
 * A fault drops the transaction. Its first reason is told again for each line up to the next B:
 * whoever writes on after a short write is to hear what was wrong, not that the B is missing.
 */
static int wal2json_line(struct format_state *state, struct store_batch *batch, struct bytes line,
			 bool dead_letters, struct error *error)
{
	struct error reason = {""};

	state->raw = line;
	state->dead_letters = dead_letters;
	if (json_text_is_blank(line))
		return state->open ? FORMAT_HOLD : FORMAT_TAKEN;
	int rc = wal_line_read(line, &state->line, &reason);
	if (rc == 0)
		rc = take(state, batch, &reason);
	if (rc >= 0)
		return rc;
	if (!reason.text[0])
		error_set(&reason, rc, "no memory for a transaction's rows");
	wal2json_fail(state, rc, &reason);
	return error_set(error, rc, "%s", reason.text);
}

const struct format format_wal2json = {
	.has_source = true,
	.open = wal2json_open,
	.line = wal2json_line,
	.fail = wal2json_fail,
	.close = wal2json_close,
};
