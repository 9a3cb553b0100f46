/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <glob.h>

#include "fake_batch.h"
#include "layout/formats/format.h"
#include "layout/formats/json.h"
#include "test.h"

static struct format_state *state;
static struct store_batch *batch;
static struct error error;

static void start(void)
{
	CHECK(format_wal2json.open(BYTES("default"), &state) == 0);
	batch = store_batch_new(NULL);
}

static void stop(void)
{
	format_wal2json.close(state);
	store_batch_free(batch);
}

/* Gives one line from a copy of its exact size, which is gone afterwards. */
static int give_bytes(struct bytes line)
{
	char *copy = malloc(line.n ? line.n : 1);

	memcpy(copy, line.p, line.n);
	error = (struct error){""};
	int rc = format_wal2json.line(state, batch, (struct bytes){copy, line.n}, false, &error);
	free(copy);
	CHECK(rc >= 0 || error.text[0]);
	return rc;
}

static int give(const char *line)
{
	return give_bytes(bytes_of(line));
}

/* ---- lines as wal2json writes them ---- */

#define TIME	"\"timestamp\":\"2026-01-31 12:00:00.5+00\""
#define B(lsn)	"{\"action\":\"B\"," TIME ",\"lsn\":\"" lsn "\",\"nextlsn\":\"0/FFFF\"}"
#define C(lsn)	"{\"action\":\"C\"," TIME ",\"lsn\":\"" lsn "\",\"nextlsn\":\"0/FFFF\"}"
#define ID(n)	"{\"name\":\"id\",\"type\":\"integer\",\"value\":" n "}"
#define V(text) "{\"name\":\"v\",\"type\":\"text\",\"value\":\"" text "\"}"
#define PK	"\"pk\":[{\"name\":\"id\",\"type\":\"integer\"}]"
#define ROW(action)                                                                                \
	"{\"action\":\"" action "\"," TIME                                                         \
	",\"lsn\":\"0/10\",\"schema\":\"public\",\"table\":\"t\","
#define I(n, text) ROW("I") "\"columns\":[" ID(n) "," V(text) "]," PK "}"
#define U(columns, identity)                                                                       \
	ROW("U") "\"columns\":[" columns "],\"identity\":[" identity "]," PK "}"
#define D(identity) ROW("D") "\"identity\":[" identity "]," PK "}"

#define NOON 1769860800500

static bool is(struct bytes s, const char *text)
{
	return s.p && bytes_equal(s, bytes_of(text));
}

static bool refused(const char *line, const char *reason)
{
	int rc = give(line);
	bool good = rc == -EINVAL && strstr(error.text, reason) && batch->count == 0;

	if (!good)
		printf("%s: %d %s\n", line, rc, error.text);
	return good;
}

/* Gives a transaction's rows, ended by NULL, in front of which the batch is emptied. */
static void transaction(const char *const rows[])
{
	store_batch_clear(batch);
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	for (size_t i = 0; rows[i]; i++)
		CHECK(give(rows[i]) == FORMAT_HOLD);
	CHECK(batch->count == 0);
	CHECK(give(C("0/100")) == FORMAT_TAKEN);
}

#define TRANSACTION(...) transaction((const char *const[]){__VA_ARGS__, NULL})

static const struct store_event *event(size_t i)
{
	static const struct store_event none;

	CHECK(i < batch->count);
	return i < batch->count ? &batch->events[i].event : &none;
}

/* ---- transactions ---- */

static void test_transaction(void)
{
	start();
	CHECK(give(B("1/16B3748")) == FORMAT_HOLD);
	CHECK(give(I("1", "a")) == FORMAT_HOLD && batch->count == 0);
	CHECK(give(C("1/16B3748")) == FORMAT_TAKEN);
	CHECK(batch->count == 1 && batch->has_source);
	CHECK(is(buffer_bytes(&batch->source), "default"));
	CHECK(batch->position == 0x1016b3748 && batch->time_us == NOON * 1000);
	const struct store_event *e = event(0);
	CHECK(e->type == STORE_PUT && is(e->collection, "t") && is(e->key, "t:1"));
	CHECK(is(e->value, "{\"id\":1,\"v\":\"a\"}") && !e->before.p && !e->after.p && !e->patch);
	CHECK(e->timestamp_ms == NOON);
	CHECK(is(e->metadata, "{\"table\":\"t\",\"schema\":\"public\",\"pk\":1,\"lsn\":\"0/10\","
			      "\"commit_lsn\":\"1/16B3748\",\"source\":\"default\"}"));
	stop();
}

static void test_sent_again(void)
{
	start();
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	CHECK(give(I("1", "lost")) == FORMAT_HOLD);
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	CHECK(give(I("1", "kept")) == FORMAT_HOLD);
	CHECK(give(C("0/100")) == FORMAT_TAKEN);
	CHECK(batch->count == 1 && is(event(0)->value, "{\"id\":1,\"v\":\"kept\"}"));
	stop();
}

static void test_empty_transaction(void)
{
	start();
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	CHECK(give(C("0/100")) == FORMAT_TAKEN);
	CHECK(batch->count == 0 && batch->has_source && batch->position == 0x100);
	stop();
}

static void test_blank_lines(void)
{
	start();
	CHECK(give("") == FORMAT_TAKEN);
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	CHECK(give(" ") == FORMAT_HOLD);
	stop();
}

static void test_a_fault_drops_the_transaction(void)
{
	start();
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	CHECK(give(I("1", "a")) == FORMAT_HOLD);
	CHECK(refused("{\"action\":\"X\"}", "action \"X\" is not known"));
	/* Whoever goes on is told the first reason, until the server begins anew. */
	CHECK(refused(I("2", "b"), "action \"X\" is not known"));
	CHECK(refused(C("0/100"), "action \"X\" is not known"));
	TRANSACTION(I("3", "c"));
	CHECK(batch->count == 1 && is(event(0)->key, "t:3"));
	store_batch_clear(batch);
	CHECK(refused(I("4", "d"), "include-transaction=1"));
	stop();
}

static void test_a_refusing_batch(void)
{
	start();
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	CHECK(give(I("1", "a")) == FORMAT_HOLD && give(I("2", "b")) == FORMAT_HOLD);
	batch->fail_at = 2;
	CHECK(give(C("0/100")) == -EFBIG);
	CHECK(batch->count == 0);
	stop();
}

static void test_unsupported_rows_as_dead_letters(void)
{
	static const char row[] = ROW("D") "\"identity\":[" V("a") "]," PK "}";

	start();
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	CHECK(format_wal2json.line(state, batch, bytes_of(row), true, &error) == FORMAT_HOLD);
	CHECK(give(I("1", "a")) == FORMAT_HOLD && batch->count == 0);
	CHECK(give(C("0/100")) == FORMAT_TAKEN && batch->count == 3);
	CHECK(strcmp(batch->events[0].ops, "unsupported-row") == 0);
	CHECK(strcmp(batch->events[1].ops, "dead letter") == 0);
	CHECK(strstr(batch->events[1].event.value.p, "\"kind\":\"unsupported-row\"") &&
	      strstr(batch->events[1].event.value.p, "\"operation\":\"D\"") &&
	      strstr(batch->events[1].event.value.p, "does not tell the primary key"));
	CHECK(batch->events[2].event.type == STORE_PUT);
	stop();
}

static void test_options_that_are_missing(void)
{
	static const char *const lines[][2] = {
		{"{\"action\":\"B\"," TIME "}", "-o include-lsn=1"},
		{"{\"action\":\"B\",\"lsn\":\"0/1\"}", "-o include-timestamp=1"},
		{I("1", "a"), "-o include-transaction=1"},
		{C("0/1"), "-o include-transaction=1"},
		{"{\"change\":[{\"kind\":\"insert\"}]}", "-o format-version=2"},
		{"{\"xid\":1,\"change\":[]}", "-o format-version=2"},
		{"{\"change\":[", "-o format-version=2"},
		{"{", "-o format-version=2"},
		{"\t\"change\": [", "-o format-version=2"},
		{"\t\t\t\"kind\": \"insert\",", "-o format-version=2"},
		{",{\"kind\":\"insert\"}", "-o format-version=2"},
		{"]}", "-o format-version=2"},
		{"}", "-o format-version=2"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		start();
		CHECK(refused(lines[i][0], lines[i][1]));
		stop();
	}
}

static void test_refused_rows(void)
{
	static const char *const lines[][2] = {
		{ROW("I") "\"columns\":[" ID("1") "]}", "table t: a row has no \"pk\""},
		{"{\"action\":\"I\",\"table\":\"t\",\"pk\":[]}", "-o include-schemas=1"},
		{"{\"action\":\"I\",\"schema\":\"s\",\"pk\":[]}", "names no table"},
		{ROW("I") "\"columns\":[" V("a") "]," PK "}", "lacks columns of the primary key"},
		{U(V("a"), V("b")), "lacks columns of the primary key"},
		{ROW("U") "\"columns\":[" V("a") "],\"pk\":[]}", "neither a primary key"},
		{D(V("a")), "table t: a delete does not tell the primary key"},
		{ROW("D") PK "}", "a delete does not tell the primary key"},
		{ROW("I") "\"columns\":{}," PK "}", "lists of columns"},
		{ROW("I") "\"columns\":[{\"name\":\"id\"}]," PK "}", "lists of columns"},
		{ROW("I") "\"columns\":[{\"value\":1}]," PK "}", "lists of columns"},
		{ROW("I") "\"columns\":[]," PK, "not JSON"},
		{ROW("I") "\"columns\":[{\"name\":\"id\",\"value\":\"\xff\"}]," PK "}",
		 "not UTF-8"},
		{"{\"action\":\"I\",\"schema\":\"\xff\",\"table\":\"t\",\"pk\":[]}", "not UTF-8"},
		{"{\"action\":\"M\",\"transactional\":true,\"prefix\":\"p\"}", "lacks its prefix"},
		{"{\"action\":\"M\",\"prefix\":\"\xff\",\"content\":\"\"}", "not UTF-8"},
		{"{\"action\":\"T\",\"schema\":\"s\"}", "names no table"},
		{C("0/101"), "began with the LSN 0/100"},
		{"{\"action\":\"C\"}", "-o include-lsn=1"},
		{"[]", "has to be an object"},
		{"{\"x\":1}", "\"action\" is missing"},
		{"{\"action\":\"BB\"}", "action \"BB\" is not known"},
		{"{\"action\":1}", "action 1 is not known"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		start();
		CHECK(give(B("0/100")) == FORMAT_HOLD);
		CHECK(refused(lines[i][0], lines[i][1]));
		stop();
	}
}

static void test_a_key_that_is_too_long(void)
{
	struct buffer line = {0};

	start();
	CHECK(give(B("0/100")) == FORMAT_HOLD);
	CHECK(buffer_printf(&line,
			    ROW("I") "\"columns\":[{\"name\":\"id\",\"value\":\"%05000d\"}]," PK
				     "}",
			    0) == 0);
	CHECK(give_bytes(buffer_bytes(&line)) == -EFBIG && strstr(error.text, "table t: "));
	buffer_free(&line);
	stop();
}

static void test_positions(void)
{
	static const char *const bad[] = {"",	  "0",	 "0/",		"/0",
					  "g/0",  "0/g", "0/123456789", "123456789/0",
					  "0/1 ", "0/a", "0/0/0"};
	char line[200];

	start();
	CHECK(give(B("FFFFFFFF/FFFFFFFF")) == FORMAT_HOLD);
	CHECK(give(C("FFFFFFFF/FFFFFFFF")) == FORMAT_TAKEN && batch->position == UINT64_MAX);
	store_batch_clear(batch);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(line, sizeof(line), "{\"action\":\"B\"," TIME ",\"lsn\":\"%s\"}", bad[i]);
		CHECK(refused(line, "is no LSN"));
	}
	stop();
}

static void test_times(void)
{
	static const struct {
		const char *text;
		int64_t us;
	} good[] = {
		{"1970-01-01 00:00:00+00", 0},
		{"2026-01-31 12:00:00.5+00", 1769860800500000},
		{"2026-01-31 12:00:00.000001+00", 1769860800000001},
		{"2026-01-31 17:30:00+05:30", 1769860800000000},
		{"2026-01-31 08:59:30-03:00:30", 1769860800000000},
		{"2024-02-29 23:59:59.999999+00", 1709251199999999},
		{"2024-03-01 00:00:00+00", 1709251200000000},
		{"2100-03-01 00:00:00+00", 4107542400000000},
		{"2000-12-31 00:00:00+00", 978220800000000},
	};
	static const char *const bad[] = {
		"",
		"2026-01-31",
		"2026-01-31 12:00:00",
		"2026-01-31 12:00+00",
		"infinity",
		"2026-13-01 00:00:00+00",
		"2026-01-31T12:00:00Z",
		"2026-01-31 12:00:00.+00",
		"2026-01-31 12:00:00.1234567+00",
		"1969-12-31 23:59:59+00",
		"2026-01-31 12:00:00+00 BC",
		"2026-00-31 12:00:00+00",
		"1970-01-01 00:00:00+01",
	};
	char line[200];

	start();
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		snprintf(line, sizeof(line),
			 "{\"action\":\"B\",\"timestamp\":\"%s\",\"lsn\":\"0/1\"}", good[i].text);
		CHECK(give(line) == FORMAT_HOLD);
		CHECK(give(C("0/1")) == FORMAT_TAKEN);
		CHECK(batch->time_us == good[i].us);
		store_batch_clear(batch);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(line, sizeof(line),
			 "{\"action\":\"B\",\"timestamp\":\"%s\",\"lsn\":\"0/1\"}", bad[i]);
		CHECK(refused(line, "is no timestamp"));
	}
	stop();
}

/* ---- messages ---- */

static void test_lone_message(void)
{
	start();
	int64_t before = clock_wall_ms();
	CHECK(give("{\"action\":\"M\",\"timestamp\":null,\"lsn\":\"0/100\",\"transactional\":false,"
		   "\"prefix\":\"user:x\",\"content\":\"a \\\"b\\\"\"}") == FORMAT_TAKEN);
	CHECK(batch->count == 1 && batch->has_source && batch->time_us == 0);
	/* The commit that follows may begin at the message's LSN (golden/messages). */
	CHECK(batch->position == 0xff);
	CHECK(event(0)->type == STORE_MESSAGE && is(event(0)->collection, "user"));
	CHECK(is(event(0)->key, "user:x") && is(event(0)->value, "a \"b\""));
	CHECK(event(0)->timestamp_ms >= before && event(0)->timestamp_ms <= clock_wall_ms());
	CHECK(is(event(0)->metadata,
		 "{\"prefix\":\"user:x\",\"lsn\":\"0/100\",\"source\":\"default\"}"));
	store_batch_clear(batch);
	CHECK(refused("{\"action\":\"M\",\"transactional\":true,\"lsn\":\"0/1\",\"prefix\":\"\","
		      "\"content\":\"\"}",
		      "include-transaction=1"));
	CHECK(refused("{\"action\":\"M\",\"transactional\":false,\"prefix\":\"\",\"content\":\"\"}",
		      "include-lsn=1"));
	CHECK(refused("{\"action\":\"M\",\"transactional\":false,\"lsn\":\"0/0\",\"prefix\":\"\","
		      "\"content\":\"\"}",
		      "0/0"));
	stop();
}

/* ---- keys ---- */

static void test_key_change(void)
{
	start();
	TRANSACTION(I("1", "a"), U(ID("2") "," V("a"), ID("1")));
	CHECK(batch->count == 3);
	CHECK(event(1)->type == STORE_DELETE && is(event(1)->key, "t:1") && !event(1)->value.p);
	CHECK(event(2)->type == STORE_PUT && is(event(2)->key, "t:2"));
	CHECK(is(event(2)->value, "{\"id\":2,\"v\":\"a\"}") && !event(2)->patch);
	/* Without a row that shows all columns the old document is needed. */
	TRANSACTION(U(ID("3"), ID("2")));
	CHECK(batch->count == 2 && event(1)->patch && is(event(1)->patch_key, "t:2"));
	stop();
}

static void test_unsupported_is_told_once(void)
{
	static const char row[] = ROW("I") "\"columns\":[" V("a") "],\"pk\":[]}";

	start();
	CHECK(give(B("0/100")) == FORMAT_HOLD && give(row) == FORMAT_HOLD);
	TRANSACTION(row, row); /* the one before was dropped, what it would have told as well */
	CHECK(batch->count == 3 && !batch->events[1].ops);
	const char *ops = batch->events[0].ops;
	CHECK(ops && strcmp(ops, "unsupported-row") == 0);
	CHECK(json_check(event(0)->value, NULL) == 0);
	CHECK(is(event(1)->key, "t:@0/100.1") && is(event(2)->key, "t:@0/100.2"));
	TRANSACTION(row);
	CHECK(batch->count == 1 && is(event(0)->key, "t:@0/100.1"));
	stop();
}

/* ---- what an update lacks ---- */

#define LONG "0123456789012345678901234567890123456789"

static int patch(const struct store_event *e, const char *current, struct buffer *out,
		 bool *ret_partial)
{
	out->n = 0;
	*ret_partial = false;
	CHECK(e->patch);
	return e->patch ? e->patch(e->value, current ? bytes_of(current) : (struct bytes){NULL, 0},
				   out, ret_partial)
			: -1;
}

static bool patches_to(const struct store_event *e, const char *current, const char *wanted,
		       bool wanted_partial)
{
	struct buffer out = {0};
	bool partial, good = patch(e, current, &out, &partial) == 0 &&
			     is(buffer_bytes(&out), wanted) && partial == wanted_partial;

	if (!good)
		printf("%.*s\n", (int)out.n, out.p ? out.p : "");
	buffer_free(&out);
	return good;
}

static void test_patch(void)
{
	start();
	TRANSACTION(U(V("new") "," ID("1"), ID("1")));
	const struct store_event *e = event(0);
	CHECK(patches_to(e, "{\"id\":1,\"big\":\"" LONG "\",\"v\":\"old\"}",
			 "{\"id\":1,\"big\":\"" LONG "\",\"v\":\"new\"}", false));
	/* Too short to have been stored out of line: dropped columns. */
	CHECK(patches_to(e,
			 "{\"id\":1,\"x\":\"short\",\"n\":null,\"b\":false,\"f\":1234567890.12345}",
			 "{\"id\":1,\"v\":\"new\"}", false));
	/* As texts short, in the database not. */
	CHECK(patches_to(
		e, "{\"a\":\"{1,2,3}\",\"r\":\"[1,5)\",\"p\":\"(1,2)\",\"e\":\"{}\",\"id\":1}",
		"{\"a\":\"{1,2,3}\",\"r\":\"[1,5)\",\"p\":\"(1,2)\",\"id\":1,\"v\":\"new\"}",
		false));
	CHECK(patches_to(e, "{\"n\":1234567890123456789012345.10}",
			 "{\"n\":1234567890123456789012345.10,\"v\":\"new\",\"id\":1}", false));
	CHECK(patches_to(e, " { \"v\" : 1 , \"v\" : 2 } ", "{\"v\":\"new\",\"id\":1}", false));
	CHECK(patches_to(e, "{}", "{\"v\":\"new\",\"id\":1}", false));
	/* No row of this table: as good as none. */
	CHECK(patches_to(e, NULL, "{\"v\":\"new\",\"id\":1}", true));
	CHECK(patches_to(e, "[1]", "{\"v\":\"new\",\"id\":1}", true));
	CHECK(patches_to(e, "{\"a\":", "{\"v\":\"new\",\"id\":1}", true));
	stop();
}

static void test_complete_rows_need_no_patch(void)
{
	start();
	TRANSACTION(U(ID("1") "," V("a"), ID("1")));
	CHECK(event(0)->patch);
	TRANSACTION(I("1", "a"), U(ID("1") "," V("b"), ID("1")));
	CHECK(!event(1)->patch);
	TRANSACTION(U(ID("1"), ID("1")));
	CHECK(event(0)->patch);
	/* A new column: there may be others that this row lacks. */
	TRANSACTION(U(ID("1") "," V("a") ",{\"name\":\"w\",\"value\":1}", ID("1")));
	CHECK(event(0)->patch);
	TRANSACTION(U(ID("1") "," V("a"), ID("1")));
	CHECK(event(0)->patch);
	stop();
}

static void test_full_identity(void)
{
	start();
	/* Not known to be whole, but likely: only a document that is there may add to it. */
	TRANSACTION(U(ID("1"), ID("1") "," V("old")));
	const struct store_event *e = event(0);
	CHECK(is(e->before, "{\"id\":1,\"v\":\"old\"}"));
	CHECK(patches_to(e, NULL, "{\"id\":1,\"v\":\"old\"}", false));
	CHECK(patches_to(e, "{\"big\":\"" LONG "\",\"id\":0}",
			 "{\"big\":\"" LONG "\",\"id\":1,\"v\":\"old\"}", false));
	TRANSACTION(D(ID("1") "," V("old")));
	CHECK(is(event(0)->before, "{\"id\":1,\"v\":\"old\"}"));
	/* Known from an insert. */
	TRANSACTION(I("1", "a"), U(ID("1") "," V("b"), ID("1") "," V("a")),
		    U(ID("2") "," V("b"), ID("1") "," V("b")));
	CHECK(batch->count == 4 && !event(1)->patch &&
	      is(event(1)->before, "{\"id\":1,\"v\":\"a\"}"));
	CHECK(event(2)->type == STORE_DELETE && is(event(2)->before, "{\"id\":1,\"v\":\"b\"}"));
	CHECK(event(3)->type == STORE_PUT && !event(3)->before.p && !event(3)->patch);
	/* An index that has not all columns. */
	TRANSACTION(ROW("I") "\"columns\":[" ID("1") "," V("a") ",{\"name\":\"b\",\"value\":1}]," PK
								"}",
		    U(ID("1") "," V("b"), ID("1") "," V("a")), D(ID("1") "," V("b")));
	CHECK(event(1)->patch && !event(1)->before.p && !event(2)->before.p);
	stop();
}

static void test_names_with_quotes(void)
{
#define Q(value) "{\"name\":\"a\\\"b\",\"value\":" value "}"
	start();
	TRANSACTION(ROW("I") "\"columns\":[" ID("1") "," Q("1") "]," PK "}",
		    U(ID("1") "," Q("2"), ID("1")));
	CHECK(!event(1)->patch && is(event(1)->value, "{\"id\":1,\"a\\\"b\":2}"));
	stop();
#undef Q
}

/* ---- recordings ---- */

struct document {
	struct buffer name; /* collection, newline, key */
	struct buffer text;
	bool there;
};

struct model {
	struct document documents[200];
	size_t n;
	struct buffer deleted; /* what the newest DELETE removed */
	struct bytes deleted_key;
	bool was_there;
};

static struct document *document(struct model *model, struct bytes collection, struct bytes key)
{
	struct buffer name = {0};

	CHECK(buffer_printf(&name, "%.*s\n%.*s", (int)collection.n, collection.p, (int)key.n,
			    key.p) == 0);
	for (size_t i = 0; i < model->n; i++) {
		if (bytes_equal(buffer_bytes(&model->documents[i].name), buffer_bytes(&name))) {
			buffer_free(&name);
			return &model->documents[i];
		}
	}
	if (model->n == ARRAY_SIZE(model->documents))
		abort();
	model->documents[model->n].name = name;
	return &model->documents[model->n++];
}

static void set(struct document *document, struct bytes text)
{
	document->text.n = 0;
	document->there = text.p;
	CHECK(buffer_add_bytes(&document->text, text) == 0);
}

static void show(struct buffer *out, const char *name, struct bytes text)
{
	if (!text.p)
		return;
	CHECK(buffer_printf(out, "\t%s ", name) == 0);
	CHECK(buffer_add_json_escaped(out, text) == 0);
	CHECK(buffer_add(out, "\n", 1) == 0);
}

/* The value as the store would record it. */
static void resolve(struct model *model, const struct store_event *e, struct buffer *value,
		    bool *partial)
{
	struct document *mine = document(model, e->collection, e->key);
	struct bytes current = mine->there ? buffer_bytes(&mine->text) : (struct bytes){NULL, 0};

	*partial = false;
	if (!e->patch) {
		CHECK(buffer_add_bytes(value, e->value) == 0);
		return;
	}
	if (e->patch_key.p) {
		CHECK(bytes_equal(e->patch_key, model->deleted_key));
		current =
			model->was_there ? buffer_bytes(&model->deleted) : (struct bytes){NULL, 0};
	}
	CHECK(e->patch(e->value, current, value, partial) == 0);
	CHECK(json_check(buffer_bytes(value), NULL) == 0);
}

static void apply_put(struct model *model, const struct store_event *e, struct buffer *out)
{
	struct buffer value = {0};
	bool partial;

	resolve(model, e, &value, &partial);
	show(out, partial ? "partial" : "value", buffer_bytes(&value));
	if (!partial)
		set(document(model, e->collection, e->key), buffer_bytes(&value));
	buffer_free(&value);
}

static void apply_delete(struct model *model, const struct store_event *e)
{
	struct document *old = document(model, e->collection, e->key);

	model->deleted.n = 0;
	CHECK(buffer_add_bytes(&model->deleted, buffer_bytes(&old->text)) == 0);
	model->deleted_key = e->key;
	model->was_there = old->there;
	set(old, (struct bytes){NULL, 0});
}

static void apply_truncate(struct model *model, const struct store_event *e)
{
	for (size_t i = 0; i < model->n; i++) {
		struct bytes name = buffer_bytes(&model->documents[i].name);
		if (name.n > e->collection.n && name.p[e->collection.n] == '\n' &&
		    memcmp(name.p, e->collection.p, e->collection.n) == 0)
			set(&model->documents[i], (struct bytes){NULL, 0});
	}
}

static void apply(struct model *model, const struct fake_event *fake, struct buffer *out)
{
	const struct store_event *e = &fake->event;

	if (fake->ops) {
		CHECK(buffer_printf(out, "OPS %s\n", fake->ops) == 0);
		show(out, "details", e->value);
		CHECK(json_check(e->value, NULL) == 0);
		return;
	}
	CHECK(buffer_printf(out, "%s %.*s ", store_type_name(e->type), (int)e->collection.n,
			    e->collection.p) == 0);
	CHECK(buffer_add_json_string(out, e->key) == 0 && buffer_add(out, "\n", 1) == 0);
	if (e->type == STORE_PUT)
		apply_put(model, e, out);
	else
		show(out, "value", e->value);
	show(out, "before", e->before);
	show(out, "metadata", e->metadata);
	show(out, "patch_key", e->patch_key);
	CHECK(json_check(e->metadata, NULL) == 0);
	if (e->type == STORE_DELETE)
		apply_delete(model, e);
	else if (e->type == STORE_TRUNCATE)
		apply_truncate(model, e);
}

static void take_line(struct model *model, struct bytes line, struct buffer *out)
{
	int rc = give_bytes(line);

	if (rc < 0)
		CHECK(buffer_printf(out, "REFUSED %s\n", error.text) == 0);
	if (rc != FORMAT_TAKEN)
		return;
	for (size_t i = 0; i < batch->count; i++)
		apply(model, &batch->events[i], out);
	if (batch->count)
		CHECK(buffer_printf(out, "COMMIT %X/%X %lld us\n\n",
				    (unsigned)(batch->position >> 32), (unsigned)batch->position,
				    (long long)batch->time_us) == 0);
	store_batch_clear(batch);
}

static void play(struct bytes recording, struct buffer *out)
{
	struct model *model = calloc(1, sizeof(*model));

	if (!model)
		abort();
	start();
	while (recording.n) {
		const char *end = memchr(recording.p, '\n', recording.n);
		size_t n = end ? (size_t)(end - recording.p) : recording.n;
		take_line(model, (struct bytes){recording.p, n}, out);
		recording.p += n + (end ? 1 : 0);
		recording.n -= n + (end ? 1 : 0);
	}
	stop();
	for (size_t i = 0; i < model->n; i++) {
		if (model->documents[i].there) {
			show(out, "document", buffer_bytes(&model->documents[i].name));
			show(out, "", buffer_bytes(&model->documents[i].text));
		}
		buffer_free(&model->documents[i].name);
		buffer_free(&model->documents[i].text);
	}
	buffer_free(&model->deleted);
	free(model);
}

static void read_file(const char *path, struct buffer *out)
{
	FILE *file = fopen(path, "r");
	char piece[4096];
	size_t n;

	if (!file)
		return;
	while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
		CHECK(buffer_add(out, piece, n) == 0);
	fclose(file);
}

static void write_file(const char *path, struct bytes text)
{
	FILE *file = fopen(path, "w");

	CHECK(file && fwrite(text.p, 1, text.n, file) == text.n);
	if (file)
		fclose(file);
}

/* Plays NAME.ndjson and compares with NAME.expected; GOLDEN_UPDATE=1 writes the latter. */
static void compare(const char *path)
{
	struct buffer recording = {0}, out = {0}, wanted = {0};
	char expected[4096];

	snprintf(expected, sizeof(expected), "%.*s.expected",
		 (int)(strlen(path) - strlen(".ndjson")), path);
	read_file(path, &recording);
	CHECK(recording.n > 0);
	play(buffer_bytes(&recording), &out);
	if (getenv("GOLDEN_UPDATE"))
		write_file(expected, buffer_bytes(&out));
	read_file(expected, &wanted);
	bool same = bytes_equal(buffer_bytes(&out), buffer_bytes(&wanted));
	CHECK(same);
	if (!same)
		printf("%s differs; now:\n%.*s\n", expected, (int)out.n, buffer_bytes(&out).p);
	buffer_free(&recording);
	buffer_free(&out);
	buffer_free(&wanted);
}

static void test_recordings(void)
{
	char pattern[4096] = __FILE__;
	glob_t found;

	char *slash = strrchr(pattern, '/');
	snprintf(slash ? slash + 1 : pattern, 100, "golden/wal2json-*/*.ndjson");
	bool good = glob(pattern, 0, NULL, &found) == 0;
	CHECK(good);
	if (!good) {
		printf("no recordings at %s\n", pattern);
		return;
	}
	CHECK(found.gl_pathc >= 12);
	for (size_t i = 0; i < found.gl_pathc; i++)
		compare(found.gl_pathv[i]);
	globfree(&found);
}

int main(void)
{
	RUN(test_transaction);
	RUN(test_sent_again);
	RUN(test_empty_transaction);
	RUN(test_blank_lines);
	RUN(test_a_fault_drops_the_transaction);
	RUN(test_a_refusing_batch);
	RUN(test_unsupported_rows_as_dead_letters);
	RUN(test_options_that_are_missing);
	RUN(test_refused_rows);
	RUN(test_a_key_that_is_too_long);
	RUN(test_positions);
	RUN(test_times);
	RUN(test_lone_message);
	RUN(test_key_change);
	RUN(test_unsupported_is_told_once);
	RUN(test_patch);
	RUN(test_complete_rows_need_no_patch);
	RUN(test_full_identity);
	RUN(test_names_with_quotes);
	RUN(test_recordings);
	return test_summary();
}
