/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "fake_batch.h"
#include "layout/formats/format.h"
#include "test.h"

static struct format_state *state;
static struct store_batch *batch;
static struct error error;

static void start(void)
{
	CHECK(format_events.open(BYTES(""), &state) == 0);
	batch = store_batch_new(NULL);
}

static void stop(void)
{
	format_events.close(state);
	store_batch_free(batch);
}

/* Gives one line from a copy of its exact size, which is gone afterwards. */
static int give(struct bytes line)
{
	char *copy = malloc(line.n ? line.n : 1);

	memcpy(copy, line.p, line.n);
	store_batch_clear(batch);
	error = (struct error){""};
	int rc = format_events.line(state, batch, (struct bytes){copy, line.n}, false, &error);
	free(copy);
	CHECK(rc >= 0 || (error.text[0] && batch->count == 0));
	return rc;
}

static const struct store_event *given(const char *line)
{
	static const struct store_event none;
	bool good = give(bytes_of(line)) == FORMAT_TAKEN && batch->count == 1;

	CHECK(good);
	if (!good)
		printf("%s: %s\n", line, error.text);
	return good ? &batch->events[0].event : &none;
}

static bool is(struct bytes s, const char *text)
{
	return s.p && bytes_equal(s, bytes_of(text));
}

static bool refused(const char *line, const char *reason)
{
	int rc = give(bytes_of(line));
	bool good = rc == -EINVAL && strstr(error.text, reason);

	if (!good)
		printf("%s: %d %s\n", line, rc, error.text);
	return good;
}

static void test_put(void)
{
	start();
	const struct store_event *e = given(
		"{\"type\":\"PUT\",\"key\":\"user:alice\",\"value\":\"{\\\"name\\\":\\\"Alice\\\"}"
		"\","
		"\"timestamp_ms\":1730294567123,\"metadata\":{\"table\":\"user\",\"pk\":\"alice\"},"
		"\"before_snapshot\":\"{}\",\"after_snapshot\":\"[1.10]\"}");
	CHECK(e->type == STORE_PUT);
	CHECK(is(e->collection, "user"));
	CHECK(is(e->key, "user:alice"));
	CHECK(is(e->value, "{\"name\":\"Alice\"}"));
	CHECK(is(e->before, "{}"));
	CHECK(is(e->after, "[1.10]"));
	CHECK(is(e->metadata, "{\"table\":\"user\",\"pk\":\"alice\"}"));
	CHECK(e->timestamp_ms == 1730294567123);
	CHECK(!e->encoded && !e->patch && !e->patch_key.p);
	stop();
}

static void test_documents_stay_as_they_are(void)
{
	start();
	CHECK(is(
		given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":{ \"n\" : 1.10,\"n\":2 }}")->value,
		"{ \"n\" : 1.10,\"n\":2 }"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":12345678901234567890}")->value,
		 "12345678901234567890"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":null}")->value, "null"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"\"}")->value, ""));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"not \xff UTF-8\"}")->value,
		 "not \xff UTF-8"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"\\u00e9\\ud83d\\ude00\"}")
			 ->value,
		 "\xc3\xa9\xf0\x9f\x98\x80"));
	stop();
}

static void test_absent_value_of_a_put(void)
{
	start();
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\"}")->value, "null"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\",\"after_snapshot\":\"{}\"}")->value, "{}"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\",\"after_snapshot\":null}")->value, "null"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":null,\"after_snapshot\":1}")
			 ->value,
		 "null"));
	CHECK(!given("{\"type\":\"PUT\",\"key\":\"k\",\"before_snapshot\":null}")->before.p);
	stop();
}

static void test_other_types(void)
{
	start();
	const struct store_event *e = given(
		"{\"type\":\"DELETE\",\"key\":\"a:1\",\"value\":null,\"before_snapshot\":\"{}\","
		"\"after_snapshot\":null}");
	CHECK(e->type == STORE_DELETE && !e->value.p && is(e->before, "{}") && !e->after.p);
	e = given("{\"type\":\"TRUNCATE\",\"key\":\"user:\"}");
	CHECK(e->type == STORE_TRUNCATE && is(e->collection, "user") && !e->value.p);
	e = given("{\"type\":\"TRUNCATE\",\"key\":\"a:b:\",\"metadata\":{\"table\":\"a:b\"}}");
	CHECK(e->type == STORE_TRUNCATE && is(e->collection, "a:b"));
	e = given("{\"type\":\"MESSAGE\",\"key\":\"prefix\",\"value\":\"hello\"}");
	CHECK(e->type == STORE_MESSAGE && is(e->value, "hello") && is(e->collection, "_"));
	e = given("{\"type\":\"MESSAGE\",\"key\":\"prefix\",\"value\":null}");
	CHECK(e->type == STORE_MESSAGE && !e->value.p);
	e = given("{\"type\":\"MESSAGE\",\"key\":\"prefix\"}");
	CHECK(!e->value.p);
	stop();
}

static void test_a_line_of_the_log(void)
{
	start();
	const struct store_event *e =
		given("{\"sequence\":42,\"type\":\"PUT\",\"key\":\"user:alice\",\"value\":\"{}\","
		      "\"timestamp_ms\":7,\"delivery\":{\"group\":\"mail\",\"attempt\":1}}");
	CHECK(is(e->key, "user:alice") && e->timestamp_ms == 7);
	stop();
}

static void test_collections(void)
{
	start();
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"user:1\"}")->collection, "user"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"1\"}")->collection, "_"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"1\",\"metadata\":{\"table\":\"x\\\"y\"}}")
			 ->collection,
		 "x\"y"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"u:1\",\"metadata\":{\"table\":\"\"}}")
			 ->collection,
		 "u"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"u:1\",\"metadata\":{\"table\":7}}")->collection,
		 "u"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"u:1\",\"metadata\":{\"t\":{\"table\":\"x\"}}}")
			 ->collection,
		 "u"));
	CHECK(is(given("{\"type\":\"PUT\",\"key\":\"u:1\",\"metadata\":{}}")->metadata, "{}"));
	stop();
}

static void test_base64(void)
{
	start();
	const struct store_event *e = given(
		"{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"\\/w==\",\"before_snapshot\":\"YWI=\","
		"\"metadata\":{\"encoding\":\"base64\"}}");
	CHECK(e->encoded && is(e->value, "\xff") && is(e->before, "ab"));
	e = given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"\",\"metadata\":{\"encoding\":"
		  "\"base64\"}}");
	CHECK(e->encoded && is(e->value, ""));
	CHECK(refused("{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"/w\","
		      "\"metadata\":{\"encoding\":\"base64\"}}",
		      "\"value\" is not base64"));
	e = given("{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"/"
		  "w==\",\"metadata\":{\"encoding\":1}}");
	CHECK(!e->encoded && is(e->value, "/w=="));
	stop();
}

static void test_escapes_in_names_and_keys(void)
{
	start();
	const struct store_event *e =
		given(" { \"\\u0074ype\" : \"P\\u0055T\" , \"k\\u0065y\" : \"a\\nb\\u0000\" } ");
	CHECK(e->type == STORE_PUT);
	CHECK(bytes_equal(e->key, (struct bytes){"a\nb\0", 4}));
	stop();
}

static void test_time(void)
{
	start();
	int64_t before = clock_wall_ms();
	int64_t now = given("{\"type\":\"PUT\",\"key\":\"k\"}")->timestamp_ms;
	CHECK(now >= before && now <= clock_wall_ms());
	CHECK(given("{\"type\":\"PUT\",\"key\":\"k\",\"timestamp_ms\":0}")->timestamp_ms == 0);
	CHECK(given("{\"type\":\"PUT\",\"key\":\"k\",\"timestamp_ms\":9007199254740991}")
		      ->timestamp_ms == 9007199254740991);
	static const char *const bad[] = {
		"9007199254740992", "-1", "1.5", "1e3", "\"1\"", "null", "99999999999999999999"};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char line[100];
		snprintf(line, sizeof(line), "{\"type\":\"PUT\",\"key\":\"k\",\"timestamp_ms\":%s}",
			 bad[i]);
		CHECK(refused(line, "timestamp_ms"));
	}
	stop();
}

static void test_refused(void)
{
	static const char *const lines[][2] = {
		{"{", "not JSON at byte 1: the text ends early"},
		{"[]", "object"},
		{"\"x\"", "object"},
		{"hello", "not JSON at byte 0"},
		{"{\"type\":\"PUT\",\"key\":\"k\"} x", "something follows"},
		{"{\"type\":\"PUT\",\"key\":\"k\",}", "not JSON at byte 24"},
		{"{\"key\":\"k\"}", "\"type\" is missing"},
		{"{\"type\":\"PUT\"}", "\"key\" is missing"},
		{"{\"type\":1,\"key\":\"k\"}", "\"type\" has to be a string"},
		{"{\"type\":\"PUT\",\"key\":1}", "\"key\" has to be a string"},
		{"{\"type\":\"PUT\",\"key\":\"\"}", "the key is empty"},
		{"{\"type\":\"PUT\",\"key\":\"\xff\"}", "not UTF-8"},
		{"{\"type\":\"PUT\",\"key\":\"\\ud800\"}", "surrogate"},
		{"{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"\\ud800\"}", "\"value\""},
		{"{\"type\":\"PUT\",\"key\":\"k\",\"key\":\"l\"}", "\"key\" is there twice"},
		{"{\"type\":\"PUT\",\"key\":\"k\",\"vlaue\":1}", "no field \"vlaue\""},
		{"{\"type\":\"GAP\",\"key\":\"k\"}", "GAP"},
		{"{\"type\":\"COMMIT\"}", "in/transaction"},
		{"{\"type\":\"put\",\"key\":\"k\"}", "no type \"put\""},
		{"{\"type\":\"DELETE\",\"key\":\"k\",\"value\":{}}", "a DELETE has no \"value\""},
		{"{\"type\":\"DELETE\",\"key\":\"k\",\"after_snapshot\":{}}",
		 "a DELETE has no \"after_snapshot\""},
		{"{\"type\":\"TRUNCATE\",\"key\":\"u:\",\"value\":1}",
		 "a TRUNCATE has no \"value\""},
		{"{\"type\":\"TRUNCATE\",\"key\":\"u:\",\"before_snapshot\":1}",
		 "a TRUNCATE has no"},
		{"{\"type\":\"TRUNCATE\",\"key\":\"user\"}", "names its table"},
		{"{\"type\":\"TRUNCATE\",\"key\":\"a:b:\"}", "names its table"},
		{"{\"type\":\"TRUNCATE\",\"key\":\":\"}", "names its table"},
		{"{\"type\":\"MESSAGE\",\"key\":\"k\",\"before_snapshot\":1}", "a MESSAGE has no"},
		{"{\"type\":\"PUT\",\"key\":\"k\",\"metadata\":[]}",
		 "\"metadata\" has to be an object"},
		{"{\"type\":\"PUT\",\"key\":\"k\",\"metadata\":null}", "\"metadata\" has to be"},
		{"{\"type\":\"PUT\",\"key\":\"k\",\"metadata\":{\"a\":\"\xff\"}}", "not UTF-8"},
		{"{\"type\":\"PUT\",\"key\":\"k\",\"metadata\":{\"table\":\"\\ud800\"}}",
		 "surrogate"},
	};

	start();
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		CHECK(refused(lines[i][0], lines[i][1]));
	stop();
}

static void test_key_limit(void)
{
	char line[STORE_KEY_MAX + 100];

	start();
	int n = snprintf(line, sizeof(line), "{\"type\":\"PUT\",\"key\":\"%0*d\"}", STORE_KEY_MAX,
			 0);
	CHECK(give((struct bytes){line, (size_t)n}) == FORMAT_TAKEN);
	n = snprintf(line, sizeof(line), "{\"type\":\"PUT\",\"key\":\"%0*d\"}", STORE_KEY_MAX + 1,
		     0);
	CHECK(give((struct bytes){line, (size_t)n}) == -EFBIG);
	stop();
}

static void test_blank_lines(void)
{
	start();
	CHECK(give(BYTES("")) == FORMAT_TAKEN && batch->count == 0);
	CHECK(give(BYTES(" \t\r")) == FORMAT_TAKEN && batch->count == 0);
	stop();
}

static void test_the_batch_may_refuse(void)
{
	start();
	batch->fail_at = 1;
	CHECK(give(BYTES("{\"type\":\"PUT\",\"key\":\"k\"}")) == -EFBIG);
	stop();
}

/* Buffers are kept from line to line; a long line in between has to leave no trace. */
static void test_long_lines(void)
{
	const size_t sizes[] = {10, 3 << 20, 100, 5 << 20, 1};

	start();
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct buffer line = {0};
		CHECK(buffer_printf(&line, "{\"type\":\"PUT\",\"key\":\"k\\t\",\"value\":\"") == 0);
		for (size_t k = 0; k < sizes[i]; k++)
			CHECK(buffer_add(&line, k % 7 ? "x" : "\\n", k % 7 ? 1 : 2) == 0);
		CHECK(buffer_add(&line, "\"}", 2) == 0);
		CHECK(give(buffer_bytes(&line)) == FORMAT_TAKEN);
		CHECK(batch->count == 1 && batch->events[0].event.value.n == sizes[i]);
		CHECK(is(batch->events[0].event.key, "k\t"));
		buffer_free(&line);
	}
	stop();
}

static void test_dead_letters(void)
{
	static const struct bytes bad = {"{\"type\":\"PUT\",\"key\":7}", 22};

	start();
	CHECK(format_events.line(state, batch, bad, true, &error) == FORMAT_TAKEN);
	CHECK(batch->count == 2 && strcmp(batch->events[0].ops, "dead letter") == 0);
	CHECK(strstr(batch->events[0].event.value.p,
		     "\"kind\":\"decode-error\",\"v\":1,\"source\":\"events\",") ==
	      batch->events[0].event.value.p);
	CHECK(strstr(batch->events[0].event.value.p, "\"raw\":\"{\\\"type\\\""));
	CHECK(strcmp(batch->events[1].ops, "decode-error-dlq") == 0);
	stop();
}

int main(void)
{
	RUN(test_put);
	RUN(test_documents_stay_as_they_are);
	RUN(test_absent_value_of_a_put);
	RUN(test_other_types);
	RUN(test_a_line_of_the_log);
	RUN(test_collections);
	RUN(test_base64);
	RUN(test_escapes_in_names_and_keys);
	RUN(test_time);
	RUN(test_refused);
	RUN(test_key_limit);
	RUN(test_blank_lines);
	RUN(test_the_batch_may_refuse);
	RUN(test_long_lines);
	RUN(test_dead_letters);
	return test_summary();
}
