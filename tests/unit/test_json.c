/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "json_compare.h"
#include "test.h"

static int check(const char *text)
{
	/* A copy of its exact size, so that a sanitizer sees a read behind its end. */
	struct bytes all = bytes_of(text);
	char *copy = malloc(all.n + !all.n);
	memcpy(copy, all.p, all.n);
	int rc = json_check((struct bytes){copy, all.n}, NULL);
	free(copy);
	return rc;
}

static void test_accepted(void)
{
	static const char *const good[] = {
		"0",
		"-0",
		"1.10",
		"1e5",
		"1E+05",
		"-1.5e-3",
		"true",
		"false",
		"null",
		"\"\"",
		"\"a\"",
		"[]",
		"{}",
		"[[]]",
		" 1 ",
		"\t[\n]\r ",
		"{\"\":{}}",
		"{\"a\":1,\"a\":2}",
		"[1,2]",
		"\"\\u0000\\ud800\"",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\uAbCd\"",
		"\"\xff\xfe not UTF-8\"",
		"\"\x7f\"",
		"12345678901234567890123",
		"{ \"a\" : [ 1 , { \"b\" : null } ] , \"c\" : \"0123456789abcdef0123456789\" }",
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		CHECK(check(good[i]) == 0);
}

static void test_refused(void)
{
	static const char *const bad[] = {
		"",	     " ",	   "01",
		"-",	     "+1",	   ".5",
		"1.",	     "1.e5",	   "1e",
		"1e+",	     "0x1",	   "NaN",
		"nul",	     "tru",	   "truex",
		"True",	     "\"",	   "\"\\\"",
		"\"\\x\"",   "\"\\u12\"",  "\"\\u12g4\"",
		"\"\t\"",    "\"\n\"",	   "'a'",
		"[",	     "]",	   "[1",
		"[1,",	     "[1,]",	   "[,1]",
		"[1 2]",     "[1}",	   "{",
		"}",	     "{\"a\"",	   "{\"a\":",
		"{\"a\":1",  "{\"a\":1,",  "{\"a\":1,}",
		"{\"a\" 1}", "{a:1}",	   "{1:1}",
		"{,}",	     "{\"a\":1]",  "1 2",
		"{}{}",	     "[]x",	   "\xef\xbb\xbf{}",
		"\"\\",	     "\"\\u",	   "\"abcdefghijklmnop\x01\"",
		"\v1",	     "{\"a\"::1}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(check(bad[i]) == -EINVAL);
	CHECK(json_check((struct bytes){"\"\0\"", 3}, NULL) == -EINVAL);
	CHECK(json_check((struct bytes){"1\0", 2}, NULL) == -EINVAL);
}

static void test_depth(void)
{
	char text[2 * (JSON_DEPTH_MAX + 1)];
	const size_t n = JSON_DEPTH_MAX;

	memset(text, '[', n + 1);
	memset(text + n + 1, ']', n + 1);
	CHECK(json_check((struct bytes){text, 2 * (n + 1)}, NULL) == -EINVAL);
	CHECK(json_check((struct bytes){text + 1, 2 * n}, NULL) == 0);
	CHECK(json_check((struct bytes){text + 1, 2 * n - 1}, NULL) == -EINVAL);
}

static void test_faults_are_told(void)
{
	struct error error;

	CHECK(json_check(BYTES("{\"a\":1,}"), &error) == -EINVAL);
	CHECK(strcmp(error.text, "not JSON at byte 7: a member's name has to be here") == 0);
	CHECK(json_check(BYTES("[1"), &error) == -EINVAL);
	CHECK(strcmp(error.text, "not JSON at byte 2: the text ends early") == 0);
	CHECK(json_check(BYTES("1 x"), &error) == -EINVAL);
	CHECK(strcmp(error.text, "not JSON at byte 2: something follows the value") == 0);
}

static int check_beginning(const char *p, size_t n)
{
	char *copy = malloc(n + !n);
	memcpy(copy, p, n);
	int rc = json_check_beginning((struct bytes){copy, n}, NULL);
	free(copy);
	return rc;
}

/* What may still become a value, cut at every byte; and what no more bytes can mend. */
static void test_beginnings(void)
{
	static const char good[] = " {\"a\\u00e9\\n\": [true, false,null ,-1.5e+3, {}, [ ], \"\"],"
				   "\"b\":{\"c\":0}} \n";
	static const char *const bad[] = {
		"x",	"tRue",	    "trux", "{]",   "[}",    "{1",	   "{\"a\",",
		"[1 2", "{\"a\":}", "1 2",  "{} {", "\"\\x", "\"\\u12g",   "\"\x01",
		"-a",	"1.x",	    "1e++", "01",   "nulla", "{\"a\":1,}", "hello",
	};

	for (size_t n = 0; n < sizeof(good); n++)
		CHECK(check_beginning(good, n) == 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(check_beginning(bad[i], strlen(bad[i])) == -EINVAL);
}

/* A quote, backslash or control byte at every place of the 16 that are looked at together. */
static void test_string_lengths(void)
{
	for (size_t n = 0; n < 70; n++) {
		for (size_t at = 0; at <= n; at++) {
			char text[80];
			memset(text, 'x', sizeof(text));
			text[0] = text[n + 1] = '"';
			CHECK(json_check((struct bytes){text, n + 2}, NULL) == 0);
			if (at == n)
				continue;
			text[at + 1] = 0x1f;
			CHECK(json_check((struct bytes){text, n + 2}, NULL) == -EINVAL);
			text[at + 1] = '\\';
			bool escapes = at + 1 < n;
			if (escapes)
				text[at + 2] = 'n';
			CHECK(json_check((struct bytes){text, n + 2}, NULL) ==
			      (escapes ? 0 : -EINVAL));
			struct buffer out = {0};
			if (escapes) {
				CHECK(json_string_decode((struct bytes){text, n + 2}, &out, NULL) ==
				      0);
				CHECK(out.n == n - 1 && out.p[at] == '\n');
			}
			buffer_free(&out);
		}
	}
}

static void test_walk(void)
{
	struct json_walk walk;
	struct bytes name, value;

	CHECK(json_walk_start(&walk, BYTES(" { \"a\\\"b\" : 1.10 , \"c\":[ 1 ] } ")) == 0);
	CHECK(json_walk_next(&walk, &name, &value) == 1);
	CHECK(bytes_equal(name, BYTES("a\\\"b")) && bytes_equal(value, BYTES("1.10")));
	CHECK(json_walk_end(&walk) == -EINVAL);
	CHECK(json_walk_next(&walk, &name, &value) == 1);
	CHECK(bytes_equal(name, BYTES("c")) && bytes_equal(value, BYTES("[ 1 ]")));
	CHECK(json_walk_next(&walk, &name, &value) == 0);
	CHECK(json_walk_next(&walk, &name, &value) == 0);
	CHECK(json_walk_end(&walk) == 0);

	CHECK(json_walk_start(&walk, BYTES("[]x")) == 0);
	CHECK(json_walk_next(&walk, &name, &value) == 0);
	CHECK(json_walk_end(&walk) == -EINVAL);

	CHECK(json_walk_start(&walk, BYTES("\"[\"")) == -EINVAL);
	CHECK(json_walk_start(&walk, BYTES("[1,]")) == 0);
	CHECK(json_walk_next(&walk, &name, &value) == 1 && !name.p);
	CHECK(json_walk_next(&walk, &name, &value) == -EINVAL);
	CHECK(json_walk_start(&walk, BYTES("{")) == 0);
	CHECK(json_walk_next(&walk, &name, &value) == -EINVAL);
}

static void test_walk_inside(void)
{
	struct json_walk walk, list;
	struct bytes name, value;

	CHECK(json_walk_start(&walk, BYTES("{\"a\":[1, 2] ,\"b\":3} ")) == 0);
	CHECK(json_walk_name(&walk, &name) == 1 && bytes_equal(name, BYTES("a")));
	CHECK(json_walk_enter(&walk, &list) == 0 && !list.object);
	CHECK(json_walk_name(&list, &name) == 1 && !name.p);
	CHECK(json_walk_value(&list, &value) == 0 && bytes_equal(value, BYTES("1")));
	CHECK(json_walk_leave(&walk, &list) == -EINVAL);
	CHECK(json_walk_next(&list, &name, &value) == 1 && bytes_equal(value, BYTES("2")));
	CHECK(json_walk_name(&list, &name) == 0);
	CHECK(json_walk_leave(&walk, &list) == 0);
	CHECK(json_walk_name(&walk, &name) == 1 && bytes_equal(name, BYTES("b")));
	CHECK(json_walk_enter(&walk, &list) == -EINVAL);
	CHECK(json_walk_value(&walk, &value) == 0 && bytes_equal(value, BYTES("3")));
	CHECK(json_walk_name(&walk, &name) == 0 && json_walk_end(&walk) == 0);

	CHECK(json_walk_start(&walk, BYTES("[[]}")) == 0);
	CHECK(json_walk_name(&walk, &name) == 1 && json_walk_enter(&walk, &list) == 0);
	CHECK(json_walk_name(&list, &name) == 0 && json_walk_leave(&walk, &list) == -EINVAL);
}

static void test_names(void)
{
	CHECK(json_name_is(BYTES("key"), "key"));
	CHECK(json_name_is(BYTES("k\\u0065y"), "key"));
	CHECK(json_name_is(BYTES("\\u006b\\u0065\\u0079"), "key"));
	CHECK(json_name_is(BYTES("a\\/b"), "a/b"));
	CHECK(!json_name_is(BYTES("ke"), "key"));
	CHECK(!json_name_is(BYTES("keys"), "key"));
	CHECK(!json_name_is(BYTES("\\u00e9"), "\xc3\xa9"));
	CHECK(!json_name_is(BYTES("\\ud800"), "key"));
	CHECK(!json_name_is(BYTES(""), "key"));
	CHECK(json_name_is(BYTES("\\\\"), "\\"));
	CHECK(!json_name_is(BYTES("\\\\"), "\\\\"));
	CHECK(json_name_is(BYTES(""), ""));
}

static void test_decode(void)
{
	static const struct {
		struct bytes raw, text;
	} strings[] = {
		{{"\"\"", 2}, {"", 0}},
		{{"\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"", 19}, {"a\"\\/\b\f\n\r\t", 9}},
		{{"\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"", 32},
		 {"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10}},
		{{"\"\\u0000\"", 8}, {"\0", 1}},
		{{"\"\xff\"", 3}, {"\xff", 1}},
	};
	static const char *const lone[] = {"\"\\ud800\"",
					   "\"\\udc00\"",
					   "\"\\ud800\\ud800\"",
					   "\"\\ud800x\"",
					   "\"\\ud800\\n\"",
					   "1",
					   "null",
					   "\""};

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		struct buffer out = {0};
		CHECK(buffer_add(&out, ">", 1) == 0);
		CHECK(json_string_decode(strings[i].raw, &out, NULL) == 0);
		CHECK(out.n == strings[i].text.n + 1);
		CHECK(memcmp(out.p + 1, strings[i].text.p, strings[i].text.n) == 0);
		buffer_free(&out);
	}
	for (size_t i = 0; i < ARRAY_SIZE(lone); i++) {
		struct buffer out = {0};
		struct error error = {""};
		CHECK(json_string_decode(bytes_of(lone[i]), &out, &error) == -EINVAL);
		CHECK(out.n == 0 && error.text[0]);
		buffer_free(&out);
	}
}

static void test_integers(void)
{
	int64_t n = 0;

	CHECK(json_integer_read(BYTES("0"), &n) == 0 && n == 0);
	CHECK(json_integer_read(BYTES("-0"), &n) == 0 && n == 0);
	CHECK(json_integer_read(BYTES("-42"), &n) == 0 && n == -42);
	CHECK(json_integer_read(BYTES("9223372036854775807"), &n) == 0 && n == INT64_MAX);
	CHECK(json_integer_read(BYTES("-9223372036854775808"), &n) == 0 && n == INT64_MIN);
	CHECK(json_integer_read(BYTES("9223372036854775808"), &n) == -ERANGE);
	CHECK(json_integer_read(BYTES("-9223372036854775809"), &n) == -ERANGE);
	CHECK(json_integer_read(BYTES("1.0"), &n) == -EINVAL);
	CHECK(json_integer_read(BYTES("1e3"), &n) == -EINVAL);
	CHECK(json_integer_read(BYTES("\"1\""), &n) == -EINVAL);
	CHECK(json_integer_read(BYTES("-"), &n) == -EINVAL);
	CHECK(json_integer_read((struct bytes){NULL, 0}, &n) == -EINVAL);
}

/* ---- against jansson ---- */

static int add(struct buffer *b, const char *text)
{
	return buffer_add_bytes(b, bytes_of(text));
}

static void generate_string(struct buffer *b)
{
	static const char *const pieces[] = {
		"a",	   "0123456789abcdef", "\\n",	   "\\\"",    "\\\\", "\\u0041",
		"\\u0000", "\\ud83d\\ude00",   "\xc3\xa9", "\\ud800", "\xff", " "};

	add(b, "\"");
	for (uint64_t n = test_random(6); n > 0; n--)
		add(b, pieces[test_random(test_random(4) ? 9 : ARRAY_SIZE(pieces))]);
	add(b, "\"");
}

static void generate_scalar(struct buffer *b)
{
	static const char *const words[] = {"true",    "false",
					    "null",    "0",
					    "-1",      "1.10",
					    "1e2",     "12345678901234567890",
					    "-0.5E-7", "9007199254740993"};

	if (test_random(2))
		generate_string(b);
	else
		add(b, words[test_random(ARRAY_SIZE(words))]);
}

static void generate_space(struct buffer *b)
{
	static const char *const spaces[] = {"", "", "", " ", "\n", "\t\r "};

	add(b, spaces[test_random(ARRAY_SIZE(spaces))]);
}

static void generate(struct buffer *b, unsigned depth)
{
	generate_space(b);
	if (depth == 0 || test_random(3) == 0) {
		generate_scalar(b);
	} else {
		bool object = test_random(2);
		add(b, object ? "{" : "[");
		for (uint64_t i = 0, n = test_random(5); i < n; i++) {
			add(b, i ? "," : "");
			if (object) {
				generate_space(b);
				generate_string(b);
				generate_space(b);
				add(b, ":");
			}
			generate(b, depth - 1);
		}
		generate_space(b);
		add(b, object ? "}" : "]");
	}
	generate_space(b);
}

static void mutate(struct buffer *b)
{
	static const char bytes[] = "{}[]\",:\\u0019eE+-.tfn \n\x01\xc3\x00";

	for (uint64_t n = test_random(3); n > 0 && b->n; n--) {
		size_t at = test_random(b->n);
		char byte = bytes[test_random(sizeof(bytes))];
		if (test_random(3) == 0) {
			b->n = at;
		} else if (test_random(2)) {
			b->p[at] = byte;
		} else {
			memmove(b->p + at, b->p + at + 1, b->n - at - 1);
			b->n--;
		}
	}
}

static void test_agrees_with_jansson(void)
{
	unsigned accepted = 0, refused = 0;

	test_seed(__func__);
	for (int i = 0; i < 200000; i++) {
		struct buffer b = {0};
		bool took;
		generate(&b, (unsigned)test_random(6));
		mutate(&b);
		char *exact = malloc(b.n ? b.n : 1);
		memcpy(exact, buffer_bytes(&b).p, b.n);
		bool agree = json_agrees((struct bytes){exact, b.n}, &took);
		CHECK(agree);
		if (!agree)
			printf("%.*s\n", (int)b.n, exact);
		accepted += took;
		refused += !took;
		free(exact);
		buffer_free(&b);
	}
	CHECK(accepted > 10000 && refused > 10000);
}

int main(void)
{
	RUN(test_accepted);
	RUN(test_refused);
	RUN(test_depth);
	RUN(test_faults_are_told);
	RUN(test_beginnings);
	RUN(test_string_lengths);
	RUN(test_walk);
	RUN(test_walk_inside);
	RUN(test_names);
	RUN(test_decode);
	RUN(test_integers);
	RUN(test_agrees_with_jansson);
	return test_summary();
}
