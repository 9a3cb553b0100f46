/* SPDX-License-Identifier: Apache-2.0 */
/* Ops events and dead letters: numbered lines of JSON beside the log. */
#include <errno.h>

#include "store/internal.h"

#define RECORD_HEAD 8

static enum db_family family_of(enum store_record_kind kind)
{
	return kind == STORE_OPS_EVENT ? DB_OPS : DB_DLQ;
}

int store_record_last(struct store *store, enum store_record_kind kind, uint64_t *ret_number,
		      int64_t *ret_ms)
{
	struct db_iterator *it = db_iterator_open(store->db, family_of(kind), false);
	struct key last = key_log(UINT64_MAX);
	struct bytes k, v;

	*ret_number = 0;
	*ret_ms = store->created_ms;
	db_iterator_seek_back(it, KEY_BYTES(last));
	int rc = db_iterator_get(it, &k, &v, NULL);
	if (rc > 0 && (k.n != KEY_LOG_SIZE || v.n < RECORD_HEAD)) {
		rc = -EBADMSG;
	} else if (rc > 0) {
		*ret_number = get_be64(k.p);
		*ret_ms = (int64_t)get_le64(v.p);
	}
	db_iterator_close(it);
	return rc < 0 ? rc : 0;
}

int records_load(struct store *store, struct error *error)
{
	int rc = 0;

	for (int kind = 0; kind < 2 && rc == 0; kind++) {
		uint64_t last;
		int64_t ms;
		rc = store_record_last(store, (enum store_record_kind)kind, &last, &ms);
		if (rc < 0)
			return error_set(error, rc, "the last record beside the log is malformed");
		store->commit.next_record[kind] = last + 1;
	}
	struct key key = key_meta('N');
	struct db_value v = {0};
	rc = db_get(store->db, DB_META, KEY_BYTES(key), &v, error);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	uint64_t next = v.bytes.n == 8 ? get_le64(v.bytes.p) : 0;
	db_value_free(&v);
	if (next > store->commit.next_record[STORE_DEAD_LETTER])
		store->commit.next_record[STORE_DEAD_LETTER] = next;
	return 0;
}

/* The last one's number must not be given again. */
void record_remove_dead_letter(struct store *store, struct db_batch *batch, uint64_t number)
{
	struct key key = key_log(number), all = key_log(UINT64_MAX), next = key_meta('N');
	char value[8];

	if (number)
		db_batch_delete(store->db, batch, DB_DLQ, KEY_BYTES(key));
	else
		db_batch_delete_range(store->db, batch, DB_DLQ, KEY_BYTES(key), KEY_BYTES(all));
	put_le64(value, store->commit.next_record[STORE_DEAD_LETTER]);
	db_batch_put(store->db, batch, DB_META, KEY_BYTES(next), (struct bytes){value, 8});
}

static void put(struct store *store, struct db_batch *batch, enum store_record_kind kind,
		int64_t now_ms, const struct buffer *line)
{
	struct key key = key_log(store->commit.next_record[kind]++);
	char head[RECORD_HEAD];

	put_le64(head, (uint64_t)now_ms);
	db_batch_put2(store->db, batch, family_of(kind), KEY_BYTES(key),
		      (struct bytes){head, RECORD_HEAD}, buffer_bytes(line));
}

int record_put_ops(struct store *store, struct db_batch *batch, const char *type,
		   struct bytes details)
{
	_cleanup_(buffer_free) struct buffer line = {0};
	int64_t now = clock_wall_ms();

	int rc = buffer_printf(&line,
			       "{\"v\":1,\"type\":\"%s\",\"ts_ms\":%lld,\"server\":\"%s\","
			       "\"resume_seq\":%llu",
			       type, (long long)now, store->identity,
			       (unsigned long long)store->commit.next_sequence);
	if (rc == 0 && details.p && details.n)
		rc = buffer_printf(&line, ",\"details\":%.*s", (int)details.n, details.p);
	if (rc == 0)
		rc = buffer_add(&line, "}\n", 2);
	if (rc == 0)
		put(store, batch, STORE_OPS_EVENT, now, &line);
	return rc;
}

int record_put_dead_letter(struct store *store, struct db_batch *batch, struct bytes members)
{
	_cleanup_(buffer_free) struct buffer line = {0};
	uint64_t number = store->commit.next_record[STORE_DEAD_LETTER];
	int64_t now = clock_wall_ms();

	int rc = buffer_printf(&line, "{\"dlq_sequence\":%llu,\"enqueued_at_ms\":%lld,",
			       (unsigned long long)number, (long long)now);
	if (rc == 0)
		rc = buffer_add_bytes(&line, members);
	if (rc == 0)
		rc = buffer_add(&line, "}\n", 2);
	if (rc == 0)
		put(store, batch, STORE_DEAD_LETTER, now, &line);
	return rc;
}

int store_record_get(struct store *store, enum store_record_kind kind, uint64_t number,
		     size_t *ret_size, int64_t *ret_ms, struct buffer *line, struct error *error)
{
	struct key key = key_log(number);
	struct db_value v = {0};

	int rc = db_get(store->db, family_of(kind), KEY_BYTES(key), &v, error);
	if (rc < 0)
		return rc;
	if (v.bytes.n < RECORD_HEAD) {
		rc = error_set(error, -EBADMSG, "record %llu is cut", (unsigned long long)number);
	} else {
		*ret_ms = (int64_t)get_le64(v.bytes.p);
		*ret_size = v.bytes.n - RECORD_HEAD;
		if (line)
			rc = buffer_add(line, v.bytes.p + RECORD_HEAD, *ret_size);
	}
	db_value_free(&v);
	return rc;
}

int store_record_next(struct store *store, enum store_record_kind kind, uint64_t after,
		      uint64_t *ret_number, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, family_of(kind), false);
	struct key from = key_log(after + 1);
	struct bytes k, v;

	db_iterator_seek(it, KEY_BYTES(from));
	int rc = db_iterator_get(it, &k, &v, error);
	if (rc > 0 && k.n == KEY_LOG_SIZE)
		*ret_number = get_be64(k.p);
	db_iterator_close(it);
	return rc;
}
