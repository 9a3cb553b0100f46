/* SPDX-License-Identifier: Apache-2.0 */
/*
 * in/events: one event a line, in the JSON that DESIGN draws and log.ndjson shows. This is the hot
 * path: one pass over the line, slices instead of copies where a string has no escapes.
 */
#include <errno.h>
#include <stdlib.h>

#include "layout/formats/format.h"
#include "layout/formats/json.h"

#define METADATA_DEPTH_MAX 200 /* levels */
#define KEEP_BUFFER_MAX                                                                            \
	((size_t)1 << 20)   /* a handle does not keep the room of its longest line                 \
			     */
#define ROOM ((size_t)1024) /* what decoding strings one by one asks for beyond them */

struct format_state {
	struct buffer text;   /* this line's decoded strings */
	struct buffer binary; /* and what was base64 in them */
};

enum field {
	FIELD_TYPE,
	FIELD_KEY,
	FIELD_VALUE,
	FIELD_TIMESTAMP,
	FIELD_METADATA,
	FIELD_BEFORE,
	FIELD_AFTER,
	FIELD_SEQUENCE, /* these two are the log's and the group's own: read and ignored */
	FIELD_DELIVERY,
	FIELD_COUNT,
};

static const struct bytes field_names[FIELD_COUNT] = {
	[FIELD_TYPE] = {"type", 4},
	[FIELD_KEY] = {"key", 3},
	[FIELD_VALUE] = {"value", 5},
	[FIELD_TIMESTAMP] = {"timestamp_ms", 12},
	[FIELD_METADATA] = {"metadata", 8},
	[FIELD_BEFORE] = {"before_snapshot", 15},
	[FIELD_AFTER] = {"after_snapshot", 14},
	[FIELD_SEQUENCE] = {"sequence", 8},
	[FIELD_DELIVERY] = {"delivery", 8},
};

static int events_open(struct bytes source, struct format_state **ret_state)
{
	struct format_state *state = calloc(1, sizeof(*state));

	(void)source;
	if (!state)
		return -ENOMEM;
	*ret_state = state;
	return 0;
}

static void events_close(struct format_state *state)
{
	if (!state)
		return;
	buffer_free(&state->text);
	buffer_free(&state->binary);
	free(state);
}

/* ---- the line's fields ---- */

static int not_an_object(struct bytes line, struct error *error)
{
	int rc = json_check(line, error);

	return rc < 0 ? rc : error_set(error, -EINVAL, "an event has to be a JSON object");
}

static int read_fields(struct bytes line, struct bytes fields[FIELD_COUNT], struct error *error)
{
	struct json_walk walk;
	struct bytes name, value;
	int rc;

	if (json_walk_start(&walk, line) < 0 || !walk.object)
		return not_an_object(line, error);
	while ((rc = json_walk_next(&walk, &name, &value)) > 0) {
		size_t field = json_name_find(name, field_names, FIELD_COUNT);
		if (field == FIELD_COUNT)
			return error_set(error, -EINVAL, "an event has no field \"%.*s\"",
					 (int)(name.n < 100 ? name.n : 100), name.p);
		if (fields[field].p)
			return error_set(error, -EINVAL, "the field \"%s\" is there twice",
					 field_names[field].p);
		fields[field] = value;
	}
	if (rc < 0 || json_walk_end(&walk) < 0)
		return not_an_object(line, error);
	return 0;
}

/* A snapshot, or another type's value, that is null is as good as absent. */
static void drop_nulls(struct bytes fields[FIELD_COUNT], bool put)
{
	static const enum field nullable[] = {FIELD_BEFORE, FIELD_AFTER, FIELD_VALUE};

	for (size_t i = 0; i < ARRAY_SIZE(nullable); i++)
		if (json_text_is_null(fields[nullable[i]]) && !(put && nullable[i] == FIELD_VALUE))
			fields[nullable[i]] = (struct bytes){NULL, 0};
}

/* ---- strings ---- */

/* What a string says; without escapes it is a slice of the line. */
static int string_of(struct format_state *state, enum field field, struct bytes value,
		     struct bytes *ret_text, struct error *error)
{
	if (!json_text_is_string(value))
		return error_set(error, -EINVAL, "\"%s\" has to be a string", field_names[field].p);
	if (!memchr(value.p, '\\', value.n)) {
		*ret_text = (struct bytes){value.p + 1, value.n - 2};
		return 0;
	}
	struct error fault = {""};
	size_t start = state->text.n;
	int rc = json_string_decode(value, &state->text, &fault);
	if (rc < 0)
		return error_set(error, rc, "\"%s\": %s", field_names[field].p, fault.text);
	*ret_text = (struct bytes){state->text.p + start, state->text.n - start};
	return 0;
}

/* A document's text: what a string says (in base64 if the metadata tells so), or the JSON itself.
 */
static int document_of(struct format_state *state, const struct bytes fields[FIELD_COUNT],
		       enum field field, bool base64, struct bytes *ret_text, struct error *error)
{
	struct bytes text = fields[field];

	if (!text.p || !json_text_is_string(text)) {
		*ret_text = text;
		return 0;
	}
	int rc = string_of(state, field, text, &text, error);
	if (rc < 0)
		return rc;
	if (base64) {
		size_t start = state->binary.n;
		rc = buffer_add_base64_decoded(&state->binary, text);
		if (rc < 0)
			return error_set(error, rc,
					 "\"%s\" is not base64, though the metadata says so",
					 field_names[field].p);
		text = (struct bytes){state->binary.p + start, state->binary.n - start};
	}
	*ret_text = text;
	return 0;
}

/* Makes room for all that a line can decode to, so that slices stay where they are. */
static int prepare_buffers(struct format_state *state, struct bytes line)
{
	struct buffer *both[] = {&state->text, &state->binary};

	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		if (both[i]->cap > KEEP_BUFFER_MAX)
			buffer_free(both[i]);
		both[i]->n = 0;
		if (buffer_reserve(both[i], line.n + ROOM) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* ---- the event's parts ---- */

static int read_type(struct format_state *state, const struct bytes fields[FIELD_COUNT],
		     enum store_type *ret_type, struct error *error)
{
	struct bytes name = {NULL, 0};

	if (!fields[FIELD_TYPE].p)
		return error_set(error, -EINVAL, "the field \"type\" is missing");
	int rc = string_of(state, FIELD_TYPE, fields[FIELD_TYPE], &name, error);
	if (rc < 0)
		return rc;
	*ret_type = store_type_of(name);
	if (*ret_type)
		return 0;
	if (bytes_equal(name, BYTES("GAP")))
		return error_set(error, -EINVAL,
				 "a GAP line tells of missing events and is none itself");
	if (bytes_equal(name, BYTES("COMMIT")))
		return error_set(error, -EINVAL,
				 "a COMMIT line belongs into in/transaction; here each write "
				 "commits its lines");
	return error_set(error, -EINVAL, "no type \"%.*s\": PUT, DELETE, TRUNCATE or MESSAGE",
			 (int)(name.n < 100 ? name.n : 100), name.p);
}

static int read_key(struct format_state *state, const struct bytes fields[FIELD_COUNT],
		    struct bytes *ret_key, struct error *error)
{
	if (!fields[FIELD_KEY].p)
		return error_set(error, -EINVAL, "the field \"key\" is missing");
	int rc = string_of(state, FIELD_KEY, fields[FIELD_KEY], ret_key, error);
	if (rc < 0)
		return rc;
	if (ret_key->n == 0)
		return error_set(error, -EINVAL, "the key is empty");
	if (ret_key->n > STORE_KEY_MAX)
		return error_set(error, -EFBIG, "a key has %zu bytes, the limit is %d", ret_key->n,
				 STORE_KEY_MAX);
	if (!bytes_are_utf8(*ret_key))
		return error_set(error, -EINVAL, "the key is not UTF-8");
	return 0;
}

static int read_timestamp(const struct bytes fields[FIELD_COUNT], int64_t *ret_ms,
			  struct error *error)
{
	struct bytes value = fields[FIELD_TIMESTAMP];

	if (!value.p) {
		*ret_ms = clock_wall_ms();
		return 0;
	}
	if (json_integer_read(value, ret_ms) < 0 || *ret_ms < 0 ||
	    *ret_ms > (int64_t)STORE_SEQUENCE_MAX)
		return error_set(error, -EINVAL,
				 "\"timestamp_ms\" has to be a whole number from 0 to 2^53-1");
	return 0;
}

/* Takes metadata as its own text, and from it the table's name and whether documents are base64. */
static int read_metadata(struct format_state *state, const struct bytes fields[FIELD_COUNT],
			 struct store_event *event, struct error *error)
{
	struct bytes metadata = fields[FIELD_METADATA], name, value;
	struct bytes table = {NULL, 0}, encoding = {NULL, 0};
	struct json_walk walk;

	if (!metadata.p)
		return 0;
	if (!json_text_is_object(metadata))
		return error_set(error, -EINVAL, "\"metadata\" has to be an object");
	if (!bytes_are_utf8(metadata))
		return error_set(error, -EINVAL, "\"metadata\" is not UTF-8");
	json_walk_start(&walk, metadata);
	while (json_walk_next(&walk, &name, &value) > 0) {
		if (json_name_is(name, "table"))
			table = value;
		else if (json_name_is(name, "encoding"))
			encoding = value;
	}
	event->metadata = metadata;
	event->encoded = bytes_equal(encoding, BYTES("\"base64\""));
	if (!json_text_is_string(table) || table.n == 2)
		return 0;
	return string_of(state, FIELD_METADATA, table, &event->collection, error);
}

/* ---- what each type may carry ---- */

static int refuse(const struct bytes fields[FIELD_COUNT], enum field field, const char *type,
		  struct error *error)
{
	if (!fields[field].p)
		return 0;
	return error_set(error, -EINVAL, "a %s has no \"%s\"", type, field_names[field].p);
}

static int check_truncate_key(const struct store_event *event, struct error *error)
{
	struct bytes key = event->key;
	const char *colon = key.p ? memchr(key.p, ':', key.n) : NULL;

	if (event->collection.p || (key.n > 1 && colon == key.p + key.n - 1))
		return 0;
	return error_set(error, -EINVAL,
			 "a TRUNCATE names its table by a key such as \"user:\", or by "
			 "\"table\" in its metadata");
}

static int check_shape(const struct store_event *event, const struct bytes fields[FIELD_COUNT],
		       struct error *error)
{
	const char *type = store_type_name(event->type);
	bool put = event->type == STORE_PUT, delete = event->type == STORE_DELETE;
	int rc = 0;

	if (delete || event->type == STORE_TRUNCATE)
		rc = refuse(fields, FIELD_VALUE, type, error);
	if (rc == 0 && !put)
		rc = refuse(fields, FIELD_AFTER, type, error);
	if (rc == 0 && !put && !delete)
		rc = refuse(fields, FIELD_BEFORE, type, error);
	if (rc == 0 && event->type == STORE_TRUNCATE)
		rc = check_truncate_key(event, error);
	return rc;
}

static int read_documents(struct format_state *state, const struct bytes fields[FIELD_COUNT],
			  struct store_event *event, struct error *error)
{
	bool base64 = event->encoded;
	int rc = document_of(state, fields, FIELD_VALUE, base64, &event->value, error);

	if (rc == 0)
		rc = document_of(state, fields, FIELD_BEFORE, base64, &event->before, error);
	if (rc == 0)
		rc = document_of(state, fields, FIELD_AFTER, base64, &event->after, error);
	if (rc == 0 && event->type == STORE_PUT && !event->value.p)
		event->value = event->after.p ? event->after : BYTES("null");
	return rc;
}

static int read_event(struct format_state *state, struct bytes line, struct store_event *event,
		      struct error *error)
{
	struct bytes fields[FIELD_COUNT] = {{NULL, 0}};
	int rc = read_fields(line, fields, error);

	if (rc == 0)
		rc = read_type(state, fields, &event->type, error);
	if (rc == 0)
		rc = read_key(state, fields, &event->key, error);
	if (rc == 0)
		rc = read_timestamp(fields, &event->timestamp_ms, error);
	if (rc == 0)
		rc = read_metadata(state, fields, event, error);
	if (rc < 0)
		return rc;
	drop_nulls(fields, event->type == STORE_PUT);
	rc = check_shape(event, fields, error);
	return rc < 0 ? rc : read_documents(state, fields, event, error);
}

/* jq reads no deeper than 256; what nobody can read would stop every reader of the log. */
static bool is_deep(struct bytes json)
{
	size_t depth = 0;

	for (size_t i = 0; i < json.n; i++) {
		if (json.p[i] == '"')
			for (i++; i < json.n && json.p[i] != '"'; i++)
				i += json.p[i] == '\\';
		else if (json.p[i] == '{' || json.p[i] == '[')
			depth++;
		else if (json.p[i] == '}' || json.p[i] == ']')
			depth--;
		if (depth > METADATA_DEPTH_MAX)
			return true;
	}
	return false;
}

static int add_event(struct format_state *state, struct store_batch *batch, struct bytes line,
		     struct error *error)
{
	struct store_event event = {0};

	if (prepare_buffers(state, line) < 0)
		return error_set(error, -ENOMEM, "no memory for a line of %zu bytes", line.n);
	int rc = read_event(state, line, &event, error);
	if (rc < 0)
		return rc;
	if (is_deep(event.metadata))
		return error_set(error, -EINVAL, "the metadata is nested deeper than %d",
				 METADATA_DEPTH_MAX);
	if (!event.collection.p)
		event.collection = store_key_collection(event.key);
	return store_batch_add(batch, &event, error);
}

static int add_dead_letter(struct store_batch *batch, struct bytes line, const char *reason)
{
	_cleanup_(buffer_free) struct buffer letter = {0}, details = {0};

	int rc = format_dead_letter(&letter, "decode-error", BYTES("events"), reason, line,
				    (struct bytes){0});
	if (rc == 0)
		rc = buffer_printf(&details, "{\"error\":");
	if (rc == 0)
		rc = buffer_add_json_string(&details, bytes_of(reason));
	if (rc == 0)
		rc = buffer_add(&details, "}", 1);
	if (rc == 0)
		rc = store_batch_dead_letter(batch, buffer_bytes(&letter));
	return rc < 0 ? rc : store_batch_ops(batch, "decode-error-dlq", buffer_bytes(&details));
}

static int events_line(struct format_state *state, struct store_batch *batch, struct bytes line,
		       bool dead_letters, struct error *error)
{
	struct error reason = {""};

	if (json_text_is_blank(line))
		return FORMAT_TAKEN;
	int rc = add_event(state, batch, line, &reason);
	if ((rc == -EINVAL || rc == -EFBIG) && dead_letters)
		rc = add_dead_letter(batch, line, reason.text);
	return rc < 0 ? error_set(error, rc, "%s", reason.text) : FORMAT_TAKEN;
}

const struct format format_events = {
	.open = events_open,
	.line = events_line,
	.close = events_close,
};
