/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/internal.h"

static const char *const type_names[] = {
	[STORE_PUT] = "PUT",
	[STORE_DELETE] = "DELETE",
	[STORE_TRUNCATE] = "TRUNCATE",
	[STORE_MESSAGE] = "MESSAGE",
};

const char *store_type_name(enum store_type type)
{
	return (size_t)type < ARRAY_SIZE(type_names) ? type_names[type] : NULL;
}

enum store_type store_type_of(struct bytes name)
{
	for (size_t i = STORE_PUT; i < ARRAY_SIZE(type_names); i++)
		if (bytes_equal(name, bytes_of(type_names[i])))
			return (enum store_type)i;
	return 0;
}

struct bytes store_key_collection(struct bytes key)
{
	const char *colon = key.n ? memchr(key.p, ':', key.n) : NULL;

	if (!colon || colon == key.p)
		return BYTES("_");
	return (struct bytes){key.p, (size_t)(colon - key.p)};
}

int line_render_text(struct buffer *out, struct bytes text, bool base64)
{
	if (!base64)
		return buffer_add_json_string(out, text);
	if (buffer_add(out, "\"", 1) < 0 || buffer_add_base64(out, text) < 0)
		return -ENOMEM;
	return buffer_add(out, "\"", 1);
}

/* The metadata's text with what the store has to say added as last members. */
static int render_metadata(struct buffer *out, const struct line_parts *parts)
{
	struct bytes m = parts->metadata;
	const char *encoding = parts->add_encoding ? "\"encoding\":\"base64\"" : "";
	const char *partial = parts->add_partial ? "\"partial\":true" : "";
	const char *between = *encoding && *partial ? "," : "";

	if (!*encoding && !*partial)
		return m.p ? (buffer_add(out, ",\"metadata\":", 12) < 0 ||
					      buffer_add_bytes(out, m) < 0
				      ? -ENOMEM
				      : 0)
			   : 0;
	size_t n = m.p ? m.n : 0;
	while (n && m.p[n - 1] != '}')
		n--;
	n -= n > 0;
	bool empty = true;
	for (size_t i = 1; i < n && empty; i++)
		empty = memchr(" \t\r\n", m.p[i], 4) != NULL;
	if (buffer_printf(out, ",\"metadata\":") < 0 ||
	    buffer_add(out, n ? m.p : "{", n ? n : 1) < 0)
		return -ENOMEM;
	return buffer_printf(out, "%s%s%s%s}", empty ? "" : ",", encoding, between, partial);
}

int line_render(struct buffer *out, const struct line_parts *parts, struct span *ret_quoted)
{
	static const char key_member[] = "\",\"key\":";
	const char *type = type_names[parts->type];

	if (buffer_add(out, ",\"type\":\"", 9) < 0 || buffer_add(out, type, strlen(type)) < 0 ||
	    buffer_add(out, key_member, sizeof(key_member) - 1) < 0 ||
	    buffer_add_json_string(out, parts->key) < 0)
		return -ENOMEM;
	*ret_quoted = (struct span){0};
	if (parts->value.p) {
		if (buffer_add(out, ",\"value\":", 9) < 0)
			return -ENOMEM;
		size_t at = out->n;
		if (line_render_text(out, parts->value, parts->base64) < 0)
			return -ENOMEM;
		*ret_quoted = (struct span){at, out->n - at, true};
	} else if (parts->type == STORE_DELETE) {
		if (buffer_add(out, ",\"value\":null", 13) < 0)
			return -ENOMEM;
	}
	bool negative = parts->timestamp_ms < 0;
	uint64_t ms = negative ? -(uint64_t)parts->timestamp_ms : (uint64_t)parts->timestamp_ms;
	if (buffer_add(out, ",\"timestamp_ms\":-", 16 + (size_t)negative) < 0 ||
	    buffer_add_decimal(out, ms) < 0)
		return -ENOMEM;
	return render_metadata(out, parts);
}

/* Decodes one of the escapes that buffer_add_json_escaped() writes; *p is at the backslash and is
 * left at the escape's last byte. */
static char unescape(const char **p)
{
	static const char from[] = "btnfr", to[] = "\b\t\n\f\r";
	char c = *++*p;
	const char *at = memchr(from, c, sizeof(from) - 1);

	if (c == 'u') {
		char digits[3] = {(*p)[3], (*p)[4], 0};
		*p += 4;
		return (char)strtoul(digits, NULL, 16);
	}
	return at ? to[at - from] : c;
}

/* Reads a quoted string at *p, which is left behind it. */
static int read_string(const char **p, const char *end, struct buffer *ret_text)
{
	const char *c = *p;

	ret_text->n = 0;
	if (buffer_reserve(ret_text, (size_t)(end - c)) < 0)
		return -ENOMEM;
	for (c++; c < end && *c != '"'; c++) {
		if (*c == '\\' && end - c < 7)
			return -EBADMSG;
		char byte = *c == '\\' ? unescape(&c) : *c;
		ret_text->p[ret_text->n++] = byte;
	}
	*p = c + 1;
	return c < end ? 0 : -EBADMSG;
}

/* Reads the key of a line; *ret_end is left behind it. */
static int read_key(struct bytes line, struct buffer *ret_key, const char **ret_end)
{
	static const char key[] = ",\"key\":\"";
	const char *p = memmem(line.p, line.n, key, sizeof(key) - 1);

	if (!p)
		return -EBADMSG;
	*ret_end = p + sizeof(key) - 2;
	return read_string(ret_end, line.p + line.n, ret_key);
}

int line_read_key(struct bytes line, struct buffer *ret_key)
{
	const char *end;

	return read_key(line, ret_key, &end);
}

int line_read_text(struct bytes quoted, struct buffer *ret_text)
{
	const char *p = quoted.p;

	return quoted.n < 2 || *p != '"' ? -EBADMSG : read_string(&p, p + quoted.n, ret_text);
}

int line_read(struct bytes line, bool base64, struct buffer *ret_key, struct buffer *ret_value)
{
	static const char value[] = ",\"value\":\"";
	const char *end = line.p + line.n, *p = NULL;

	int rc = read_key(line, ret_key, &p);
	ret_value->n = 0;
	if (rc < 0 || (size_t)(end - p) < sizeof(value) || memcmp(p, value, sizeof(value) - 1) != 0)
		return rc;
	p += sizeof(value) - 2;
	rc = read_string(&p, end, ret_value);
	if (rc == 0 && base64) {
		size_t n = ret_value->n;
		rc = buffer_reserve(ret_value, n); /* so that it does not move below its reader */
		if (rc == 0)
			rc = buffer_add_base64_decoded(ret_value, buffer_bytes(ret_value));
		if (rc == 0)
			buffer_consume(ret_value, n);
	}
	return rc == -EINVAL ? -EBADMSG : rc;
}

struct store_batch *store_batch_new(struct store *store)
{
	struct store_batch *batch = calloc(1, sizeof(*batch));

	if (batch)
		batch->store = store;
	return batch;
}

void store_batch_clear(struct store_batch *batch)
{
	batch->arena.n = 0;
	batch->records.n = 0;
	batch->count = 0;
	batch->transaction_count = 0;
	if (batch->arena.cap > ((size_t)8 << 20))
		buffer_free(&batch->arena);
}

void store_batch_free(struct store_batch *batch)
{
	if (!batch)
		return;
	buffer_free(&batch->arena);
	buffer_free(&batch->records);
	free(batch->events);
	free(batch->transactions);
	free(batch);
}

size_t store_batch_count(const struct store_batch *batch)
{
	return batch->count;
}

/* Copies a slice into the arena; -ENOMEM with *rc set, which makes a row of calls short. */
static struct span keep(struct store_batch *batch, struct bytes s, int *rc)
{
	struct span span = {batch->arena.n, s.n, s.p != NULL};

	if (s.p && buffer_add_bytes(&batch->arena, s) < 0)
		*rc = -ENOMEM;
	return span;
}

static int check_text(const struct store_batch *batch, const struct store_event *event,
		      struct bytes text, const char *what, struct error *error)
{
	uint64_t limit = atomic_load(&batch->store->max_document_bytes);

	if (!text.p || text.n <= limit)
		return 0;
	return error_set(error, -EFBIG, "the %s of key %.*s has %zu bytes, the limit is %llu", what,
			 event->key.n < 100 ? (int)event->key.n : 100, event->key.p, text.n,
			 (unsigned long long)limit);
}

static int check_event(const struct store_batch *batch, const struct store_event *event,
		       struct bytes collection, struct error *error)
{
	if (event->key.n > STORE_KEY_MAX)
		return error_set(error, -EFBIG, "a key has %zu bytes, the limit is %d",
				 event->key.n, STORE_KEY_MAX);
	if (!event->key.n)
		return error_set(error, -EINVAL, "the key is empty");
	if (!bytes_are_utf8(event->key))
		return error_set(error, -EINVAL, "the key is not UTF-8");
	if (!collection.n || collection.n > STORE_NAME_MAX || !bytes_are_utf8(collection))
		return error_set(error, -EINVAL,
				 "a collection's name must be UTF-8 of 1 to %d bytes",
				 STORE_NAME_MAX);
	if (event->type == STORE_PUT && !event->value.p)
		return error_set(error, -EINVAL, "a PUT has no value");
	if (event->metadata.p && memchr(event->metadata.p, '\n', event->metadata.n))
		return error_set(error, -EINVAL, "the metadata has more than one line");
	int rc = check_text(batch, event, event->value, "value", error);
	if (rc == 0)
		rc = check_text(batch, event, event->before, "before_snapshot", error);
	if (rc == 0)
		rc = check_text(batch, event, event->after, "after_snapshot", error);
	return rc;
}

static int make_room(struct store_batch *batch)
{
	if (batch->count < batch->capacity)
		return 0;
	size_t capacity = batch->capacity ? batch->capacity * 2 : 16;
	struct prepared *events = realloc(batch->events, capacity * sizeof(*events));
	if (!events)
		return -ENOMEM;
	batch->events = events;
	batch->capacity = capacity;
	return 0;
}

static int prepare(struct store_batch *batch, const struct store_event *event,
		   struct bytes collection, struct prepared *p)
{
	int rc = 0;

	*p = (struct prepared){
		.type = event->type,
		.timestamp_ms = event->timestamp_ms,
		.encoded = event->encoded,
		.patch = event->patch,
		.unless_same = event->unless_same,
		.through_file = event->through_file,
		.expected = event->expected,
	};
	p->binary = event->value.p && !bytes_are_utf8(event->value);
	p->base64 = p->encoded || p->binary ||
		    (event->before.p && !bytes_are_utf8(event->before)) ||
		    (event->after.p && !bytes_are_utf8(event->after));
	p->collection = keep(batch, collection, &rc);
	p->key = keep(batch, event->key, &rc);
	p->value = keep(batch, event->value, &rc);
	p->metadata = keep(batch, event->metadata, &rc);
	p->before = keep(batch, event->before, &rc);
	p->after = keep(batch, event->after, &rc);
	p->patch_key = keep(batch, event->patch_key, &rc);
	if (rc < 0 || p->patch) /* a patched value is rendered at the commit */
		return rc;
	struct line_parts parts = {
		.type = event->type,
		.key = event->key,
		.value = event->value,
		.metadata = event->metadata,
		.timestamp_ms = event->timestamp_ms,
		.base64 = p->base64,
		.add_encoding = p->base64 && !p->encoded,
	};
	p->part.at = batch->arena.n;
	rc = line_render(&batch->arena, &parts, &p->quoted);
	p->part.n = batch->arena.n - p->part.at;
	p->part.there = true;
	return rc;
}

int store_batch_add(struct store_batch *batch, const struct store_event *event, struct error *error)
{
	struct bytes collection =
		event->collection.p ? event->collection : store_key_collection(event->key);
	size_t start = batch->arena.n;

	int rc = check_event(batch, event, collection, error);
	if (rc < 0)
		return rc;
	if (make_room(batch) < 0)
		return -ENOMEM;
	rc = prepare(batch, event, collection, &batch->events[batch->count]);
	if (rc < 0)
		batch->arena.n = start;
	else
		batch->count++;
	return rc;
}

int batch_add_again(struct store_batch *batch, const struct again *again)
{
	size_t start = batch->arena.n;
	int rc = 0;

	if (make_room(batch) < 0)
		return -ENOMEM;
	batch->events[batch->count] = (struct prepared){
		.type = again->type,
		.timestamp_ms = again->timestamp_ms,
		.base64 = again->base64,
		.is_again = true,
		.collection = keep(batch, again->collection, &rc),
		.key = keep(batch, again->key, &rc),
		.part = keep(batch, again->part, &rc),
	};
	if (rc < 0)
		batch->arena.n = start;
	else
		batch->count++;
	return rc;
}

static int make_transaction_room(struct store_batch *batch)
{
	if (batch->transaction_count < batch->transaction_capacity)
		return 0;
	size_t capacity = batch->transaction_capacity ? batch->transaction_capacity * 2 : 4;
	struct transaction *more = realloc(batch->transactions, capacity * sizeof(*more));
	if (!more)
		return -ENOMEM;
	batch->transactions = more;
	batch->transaction_capacity = capacity;
	return 0;
}

int store_batch_source(struct store_batch *batch, struct bytes name, uint64_t position,
		       int64_t time_us)
{
	int rc = 0;

	if (!name.n || name.n > STORE_NAME_MAX || memchr(name.p, 0, name.n) ||
	    !bytes_are_utf8(name))
		return -EINVAL;
	if (make_transaction_room(batch) < 0)
		return -ENOMEM;
	struct transaction t = {
		.source = keep(batch, name, &rc),
		.position = position,
		.time_us = time_us,
		.events_end = batch->count,
		.records_end = batch->records.n,
	};
	if (rc == 0)
		batch->transactions[batch->transaction_count++] = t;
	return rc;
}

struct store_batch_mark store_batch_mark(const struct store_batch *batch)
{
	return (struct store_batch_mark){batch->count, batch->arena.n, batch->records.n,
					 batch->transaction_count};
}

void store_batch_rollback(struct store_batch *batch, struct store_batch_mark mark)
{
	batch->count = mark.events;
	batch->arena.n = mark.bytes;
	batch->records.n = mark.records;
	batch->transaction_count = mark.transactions;
}

static int add_record(struct store_batch *batch, char kind, const char *type, struct bytes text)
{
	size_t start = batch->records.n;

	if (buffer_add(&batch->records, &kind, 1) < 0 ||
	    (type && buffer_add(&batch->records, type, strlen(type) + 1) < 0) ||
	    buffer_add_bytes(&batch->records, text) < 0 || buffer_add(&batch->records, "", 1) < 0) {
		batch->records.n = start;
		return -ENOMEM;
	}
	return 0;
}

int store_batch_ops(struct store_batch *batch, const char *type, struct bytes details)
{
	return add_record(batch, 'o', type, details);
}

int store_batch_dead_letter(struct store_batch *batch, struct bytes members)
{
	return add_record(batch, 'd', NULL, members);
}

int batch_remove_dead_letter(struct store_batch *batch, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	return add_record(batch, 'x', NULL, bytes_of(text));
}

bool store_batch_is_empty(const struct store_batch *batch)
{
	return !batch->count && !batch->transaction_count && !batch->records.n;
}
