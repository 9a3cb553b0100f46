/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/names.h"

#include <errno.h>

#include "test.h"

/* ---- sequences ---- */

static void test_sequence_write(void)
{
	char name[64];

	name_sequence_write(42, ".json", name);
	CHECK(strcmp(name, "0000000000000042.json") == 0);
	name_sequence_write(STORE_SEQUENCE_MAX, ".ndjson.sha256", name);
	CHECK(strcmp(name, "9007199254740991.ndjson.sha256") == 0);
	name_sequence_write(1, "", name);
	CHECK(strcmp(name, "0000000000000001") == 0);
}

static void test_sequence_read(void)
{
	static const char *const bad[] = {
		"",	    ".json",	"0.json",    "000.json", "9007199254740992.json",
		"42",	    "42.jso",	"42.jsonx",  "-1.json",	 "+1.json",
		" 42.json", "4 2.json", "0x2a.json", "42.JSON",	 "99999999999999999999999999.json",
	};
	static const char *const good[] = {"42.json", "000042.json", "0000000000000042.json",
					   "0000000000000000000000000000000042.json"};
	uint64_t sequence;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		CHECK(name_sequence_read(good[i], ".json", &sequence) == 0);
		CHECK(sequence == 42);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(name_sequence_read(bad[i], ".json", &sequence) == -EINVAL);
	CHECK(name_sequence_read("9007199254740991.json", ".json", &sequence) == 0);
	CHECK(sequence == STORE_SEQUENCE_MAX);
	CHECK(name_sequence_read("7", "", &sequence) == 0 && sequence == 7);
}

/* ---- collections ---- */

static const struct {
	struct bytes collection;
	const char *name;
} collections[] = {
	{{"user", 4}, "user"},
	{{"_", 1}, "_"},
	{{"", 0}, "%."},
	{{".", 1}, "%2E"},
	{{"..", 2}, "%2E."},
	{{".git", 4}, "%2Egit"},
	{{"a.b", 3}, "a.b"},
	{{"a%2Eb", 5}, "a%252Eb"},
	{{"a/b", 3}, "a%2Fb"},
	{{"a\0b", 3}, "a%00b"},
	{{"a\nb\x7f", 4}, "a%0Ab%7F"},
	{{"tail", 4}, "tai%6C"},
	{{"tails", 5}, "tails"},
	{{"log.ndjson", 10}, "log.ndjso%6E"},
	{{"x.json", 6}, "x.jso%6E"},
	{{"x.ndjson", 8}, "x.ndjso%6E"},
	{{".json", 5}, "%2Ejson"},
	{{"json", 4}, "json"},
	{{"x.jsons", 7}, "x.jsons"},
	{{"h\xc3\xa9", 3}, "h\xc3\xa9"},
	{{"h\xe9", 2}, "h%E9"},
	{{"\xc3", 1}, "%C3"},
	{{"\xed\xa0\x80", 3}, "%ED%A0%80"},
	{{"~ *?$\"'\\", 8}, "~ *?$\"'\\"},
};

static void test_collections(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(collections); i++) {
		struct buffer name = {0}, back = {0};
		CHECK(name_collection_write(collections[i].collection, &name) == 0);
		CHECK(strcmp(name.p, collections[i].name) == 0);
		CHECK(name_collection_read(collections[i].name, &back) == 0);
		CHECK(bytes_equal(buffer_bytes(&back), collections[i].collection));
		buffer_free(&name);
		buffer_free(&back);
	}
}

static void test_collections_refused(void)
{
	static const char *const bad[] = {
		"",	      "%41",   "a%2fb", "%",	    "%4",	"a%",
		"a%4",	      ".git",  "a/b",	"a\nb",	    "tail",	"x.json",
		"log.ndjson", "%.x",   "%_x",	"%C3%A9",   "x.jso%6e", "x.jsons%6E",
		"%2Egi%74",   "a%2Eb", "\xe9",	"a%..json", "%%",	"%2E%2E",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct buffer back = {0};
		CHECK(buffer_add(&back, "kept", 4) == 0);
		CHECK(name_collection_read(bad[i], &back) == -EINVAL);
		CHECK(back.n == 4);
		buffer_free(&back);
	}
}

/* ---- documents ---- */

static const struct {
	const char *collection;
	struct bytes key;
	const char *name;
} documents[] = {
	{"user", {"user:alice", 10}, "alice.json"},
	{"user", {"user:", 5}, "%..json"},
	{"user", {"user", 4}, "%_user.json"},
	{"user", {"alice", 5}, "%_alice.json"},
	{"user", {"users:alice", 11}, "%_users:alice.json"},
	{"user", {"user:user:alice", 15}, "user:alice.json"},
	{"user", {"user:.hidden", 12}, "%2Ehidden.json"},
	{"user", {"user:%_alice", 12}, "%25_alice.json"},
	{"user", {"user:%.", 7}, "%25..json"},
	{"user", {"user:a/b", 8}, "a%2Fb.json"},
	{"user", {"user:a\0", 7}, "a%00.json"},
	{"user", {"user:new\nline", 13}, "new%0Aline.json"},
	{"user", {"user:x.json", 11}, "x.json.json"},
	{"user", {"user:tail", 9}, "tail.json"},
	{"user", {"user:[1,\"a\"]", 12}, "[1,\"a\"].json"},
	{"user", {".x", 2}, "%_%2Ex.json"},
	{"_", {"plain", 5}, "%_plain.json"},
	{"_", {"_:plain", 7}, "plain.json"},
	{"a:b", {"a:b:1", 5}, "1.json"},
};

static void test_documents(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(documents); i++) {
		struct bytes collection = bytes_of(documents[i].collection);
		struct buffer name = {0}, back = {0};
		CHECK(name_document_write(collection, documents[i].key, &name) == 0);
		CHECK(strcmp(name.p, documents[i].name) == 0);
		CHECK(name_document_read(collection, documents[i].name, &back) == 0);
		CHECK(bytes_equal(buffer_bytes(&back), documents[i].key));
		buffer_free(&name);
		buffer_free(&back);
	}
}

static void test_documents_refused(void)
{
	static const char *const bad[] = {
		"",	      "alice",	    ".json",	   "%_user:alice.json", "%41.json",
		"%_.json",    "a%2fb.json", ".alice.json", "alice.jso%6E",	"%_user:.json",
		"alice.JSON", "a%00",	    "%2Falice",	   "%.x.json",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct buffer back = {0};
		CHECK(name_document_read(BYTES("user"), bad[i], &back) == -EINVAL);
		CHECK(back.n == 0);
		buffer_free(&back);
	}
}

static void test_too_long(void)
{
	char text[300];
	struct buffer name = {0};

	memset(text, 'x', sizeof(text));
	CHECK(buffer_add(&name, "kept", 4) == 0);
	CHECK(name_collection_write((struct bytes){text, 256}, &name) == -ENAMETOOLONG);
	CHECK(name_document_write(BYTES("_"), (struct bytes){text, 249}, &name) == -ENAMETOOLONG);
	text[0] = '/';
	CHECK(name_collection_write((struct bytes){text, 254}, &name) == -ENAMETOOLONG);
	CHECK(name.n == 4);
	CHECK(name_collection_write((struct bytes){text, 253}, &name) == 0);
	CHECK(name.n == 4 + 255);
	buffer_free(&name);
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	CHECK(name_collection_read(text, &name) == -ENAMETOOLONG);
	buffer_free(&name);
}

/* ---- tables ---- */

static void test_tables(void)
{
	static const struct {
		const char *schema, *table, *collection;
	} tables[] = {
		{"public", "user", "user"},    {"shop", "order", "shop.order"},
		{"a.b", "c", "a%2Eb.c"},       {"a", "b.c", "a.b%2Ec"},
		{"public", "a.b", "a%2Eb"},    {"public", "a%2Eb", "a%252Eb"},
		{"S%x", "T\"q", "S%25x.T\"q"}, {"", "t", ".t"},
		{"Public", "t", "Public.t"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		struct buffer b = {0};
		CHECK(name_table_write(bytes_of(tables[i].schema), bytes_of(tables[i].table), &b) ==
		      0);
		CHECK(bytes_equal(buffer_bytes(&b), bytes_of(tables[i].collection)));
		buffer_free(&b);
	}
}

/* ---- properties ---- */

/* Random texts out of pieces where encodings go wrong. */
static void random_text(struct buffer *b)
{
	static const struct bytes pieces[] = {
		{"a", 1},     {".", 1},	      {"%", 1},
		{"/", 1},     {"\0", 1},      {"\n", 1},
		{":", 1},     {"user", 4},    {"tail", 4},
		{".json", 5}, {".ndjson", 7}, {"%_", 2},
		{"%.", 2},    {"2F", 2},      {"6E", 2},
		{"\xc3", 1},  {"\xa9", 1},    {"\xe2\x82\xac", 3},
		{"\x7f", 1},  {"l", 1},
	};

	b->n = 0;
	for (uint64_t n = test_random(6); n > 0; n--)
		CHECK(buffer_add_bytes(b, pieces[test_random(ARRAY_SIZE(pieces))]) == 0);
}

static void test_every_text_has_its_name(void)
{
	struct buffer collection = {0}, key = {0}, name = {0}, back = {0};

	test_seed(__func__);
	for (int i = 0; i < 200000; i++) {
		random_text(&collection);
		random_text(&key);
		name.n = back.n = 0;
		CHECK(name_collection_write(buffer_bytes(&collection), &name) == 0);
		CHECK(strlen(name.p) == name.n && !strchr(name.p, '/') && name.p[0] != '.');
		CHECK(name_collection_read(name.p, &back) == 0);
		CHECK(bytes_equal(buffer_bytes(&back), buffer_bytes(&collection)));
		name.n = back.n = 0;
		CHECK(name_document_write(buffer_bytes(&collection), buffer_bytes(&key), &name) ==
		      0);
		CHECK(strlen(name.p) == name.n && !strchr(name.p, '/') && name.p[0] != '.');
		CHECK(name_document_read(buffer_bytes(&collection), name.p, &back) == 0);
		CHECK(bytes_equal(buffer_bytes(&back), buffer_bytes(&key)));
	}
	buffer_free(&collection);
	buffer_free(&key);
	buffer_free(&name);
	buffer_free(&back);
}

static void test_every_name_that_opens_is_the_name(void)
{
	struct buffer name = {0}, text = {0}, back = {0};
	unsigned opened = 0;

	test_seed(__func__);
	for (int i = 0; i < 200000; i++) {
		random_text(&name);
		if (buffer_add_bytes(&name, test_random(2) ? BYTES(".json\0") : BYTES("\0")) < 0)
			abort();
		const char *shown = buffer_bytes(&name).p;
		text.n = back.n = 0;
		if (name_collection_read(shown, &text) == 0) {
			CHECK(name_collection_write(buffer_bytes(&text), &back) == 0);
			CHECK(strcmp(back.p, shown) == 0);
			opened++;
		}
		text.n = back.n = 0;
		if (name_document_read(BYTES("user"), shown, &text) == 0) {
			CHECK(name_document_write(BYTES("user"), buffer_bytes(&text), &back) == 0);
			CHECK(strcmp(back.p, shown) == 0);
			opened++;
		}
	}
	CHECK(opened > 1000);
	buffer_free(&name);
	buffer_free(&text);
	buffer_free(&back);
}

int main(void)
{
	RUN(test_sequence_write);
	RUN(test_sequence_read);
	RUN(test_collections);
	RUN(test_collections_refused);
	RUN(test_documents);
	RUN(test_documents_refused);
	RUN(test_too_long);
	RUN(test_tables);
	RUN(test_every_text_has_its_name);
	RUN(test_every_name_that_opens_is_the_name);
	return test_summary();
}
