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

/* ---- cut names ---- */

#define X10 "xxxxxxxxxx"
#define X50 X10 X10 X10 X10 X10
#define EUR "\xe2\x82\xac" /* three bytes */

/* `count` times the piece, then the end; a NUL stands behind it. */
static void repeat(struct buffer *b, const char *start, const char *piece, size_t count,
		   const char *end)
{
	b->n = 0;
	CHECK(buffer_add_bytes(b, bytes_of(start)) == 0);
	while (count--)
		CHECK(buffer_add_bytes(b, bytes_of(piece)) == 0);
	CHECK(buffer_add(b, end, strlen(end) + 1) == 0);
	b->n--;
}

/* The hashes are those of sha256sum(1). */
static void test_cut_collections(void)
{
	static const struct {
		const char *piece;
		size_t count;
		const char *end;
		size_t prefix; /* bytes of the name before the ~ */
		const char *hash;
	} cut[] = {
		{"x", 256, "", 222, "85e62acd750c4eb56b7b6a1d66dca5bf"},
		{"x", 1000, "", 222, "44f8354494a5ba03ba1792a8d3e9c534"},
		{"x", 249, ".json", 222,
		 "1d7ae241a9308d69c3e865592ffab504"}, /* 256 bytes with its %6E */
		{"/", 86, "", 222, "8253e1c020580e56b673e08d1b2b8a23"},
		{"/", 85, "x", 222, "cd9d9755773e30d168c7f10e37ad24e1"},
		{EUR, 86, "", 222, "f843d729140a5ebdab0d50326f31fb08"},
		{"\xc3\xa9", 128, "", 222, "e42dd264fd5cf1bc947505b995dceb9a"},
		{"\xf0\x9f\x98\x80", 64, "", 220, "ddcaf348bb60ef25aa1e14c087a16388"},
		{"a/", 64, "", 221, "b5ee0567774dcbf4dd1b9290782a301a"},
		{"ab/", 52, "", 222, "5102cad41c3ff3c1ce7b6ab4b95c8957"},
	};
	struct buffer text = {0}, name = {0}, back = {0};

	for (size_t i = 0; i < ARRAY_SIZE(cut); i++) {
		repeat(&text, "", cut[i].piece, cut[i].count, cut[i].end);
		name.n = back.n = 0;
		CHECK(name_collection_write(buffer_bytes(&text), &name) == 0);
		CHECK(name.n == cut[i].prefix + 33 && name.p[cut[i].prefix] == '~');
		CHECK(strcmp(name.p + cut[i].prefix + 1, cut[i].hash) == 0);
		CHECK(bytes_are_utf8(buffer_bytes(&name)));
		CHECK(name_collection_read(name.p, &back) == -EINVAL && back.n == 0);
		CHECK(name_collection_read_cut(name.p, &back) == 0);
		CHECK(back.n && bytes_start_with(buffer_bytes(&text), buffer_bytes(&back)));
	}
	buffer_free(&text);
	buffer_free(&name);
	buffer_free(&back);
}

static void test_cut_documents(void)
{
	static const struct {
		const char *start, *piece;
		size_t count, prefix;
		const char *hash;
	} cut[] = {
		{"user:", "x", 251, 217, "b142265a87b3c61bd9f8d58d51e88ffb"},
		{"user:", "x", 4091, 217, "26533b00aa96f761a7a110cce384163d"},
		{"user:", "\n", 84, 216, "fd5bdb3999999076d6ae4ce2f740018d"},
		{"", "x", 249, 217, "e1c28f9cebdaad582ee6a5a4f35d3013"}, /* %_ in front */
		{"", "%", 83, 215, "5cf6ba1df11f13a2b9e8a2ff93aa10b3"},
	};
	struct buffer key = {0}, name = {0}, back = {0};

	for (size_t i = 0; i < ARRAY_SIZE(cut); i++) {
		repeat(&key, cut[i].start, cut[i].piece, cut[i].count, "");
		name.n = back.n = 0;
		CHECK(name_document_write(BYTES("user"), buffer_bytes(&key), &name) == 0);
		CHECK(name.n == cut[i].prefix + 38 && name.p[cut[i].prefix] == '~');
		CHECK(memcmp(name.p + cut[i].prefix + 1, cut[i].hash, 32) == 0);
		CHECK(strcmp(name.p + name.n - 5, ".json") == 0);
		CHECK(name_document_read(BYTES("user"), name.p, &back) == -EINVAL && back.n == 0);
		CHECK(name_document_read_cut(BYTES("user"), name.p, &back) == 0);
		CHECK(back.n > 60 && bytes_start_with(buffer_bytes(&key), buffer_bytes(&back)));
	}
	buffer_free(&key);
	buffer_free(&name);
	buffer_free(&back);
}

/* The longest names that are not cut. */
static void test_long_names(void)
{
	struct buffer text = {0}, name = {0}, back = {0};

	repeat(&text, "/", "x", 252, "");
	CHECK(buffer_add(&name, "kept", 4) == 0);
	CHECK(name_collection_write(buffer_bytes(&text), &name) == 0 && name.n == 4 + 255);
	CHECK(name_collection_read(name.p + 4, &back) == 0);
	CHECK(bytes_equal(buffer_bytes(&back), buffer_bytes(&text)));
	name.n = back.n = 0;
	repeat(&text, "user:", "x", 250, "");
	CHECK(name_document_write(BYTES("user"), buffer_bytes(&text), &name) == 0);
	CHECK(name.n == 255);
	CHECK(name_document_read(BYTES("user"), name.p, &back) == 0);
	CHECK(bytes_equal(buffer_bytes(&back), buffer_bytes(&text)));
	back.n = 0;
	repeat(&text, "", "x", 256, "");
	CHECK(name_collection_read(buffer_bytes(&text).p, &back) == -EINVAL && back.n == 0);
	buffer_free(&text);
	buffer_free(&name);
	buffer_free(&back);
}

#define HASH "0123456789abcdef0123456789abcdef"

/* A text that itself ends like a cut name, and what only nearly does. */
static void test_names_like_cut_ones(void)
{
	static const struct {
		const char *key, *name;
	} like[] = {
		{"user:a~" HASH, "a~0123456789abcdef0123456789abcde%66.json"},
		{"user:~" HASH, "~0123456789abcdef0123456789abcde%66.json"},
		{"a~" HASH, "%_a~0123456789abcdef0123456789abcde%66.json"},
		{"user:a~" HASH "0", "a~" HASH "0.json"},
		{"user:a~0" HASH, "a~0" HASH ".json"},
		{"user:a-" HASH, "a-" HASH ".json"},
		{"user:a~0123456789ABCDEF0123456789abcdef",
		 "a~0123456789ABCDEF0123456789abcdef.json"},
	};
	struct buffer name = {0}, back = {0};

	for (size_t i = 0; i < ARRAY_SIZE(like); i++) {
		name.n = back.n = 0;
		CHECK(name_document_write(BYTES("user"), bytes_of(like[i].key), &name) == 0);
		CHECK(strcmp(name.p, like[i].name) == 0);
		CHECK(name_document_read(BYTES("user"), name.p, &back) == 0);
		CHECK(bytes_equal(buffer_bytes(&back), bytes_of(like[i].key)));
	}
	name.n = back.n = 0;
	CHECK(name_collection_write(BYTES("a~" HASH), &name) == 0);
	CHECK(strcmp(name.p, "a~0123456789abcdef0123456789abcde%66") == 0);
	CHECK(name_collection_read(name.p, &back) == 0);
	CHECK(bytes_equal(buffer_bytes(&back), BYTES("a~" HASH)));
	buffer_free(&name);
	buffer_free(&back);
}

static void test_cut_names_refused(void)
{
	/* Too short to be cut, no hash, a hash in upper case, no suffix, a cut %XX. */
	static const char *const bad[] = {
		"a~" HASH ".json",
		"~" HASH ".json",
		"alice.json",
		X50 X50 X50 X50 X10 "xxx~" HASH ".json",
		X50 X50 X50 X50 X10 "xxxxxxx-" HASH ".json",
		X50 X50 X50 X50 X10 "xxxxxxx~0123456789ABCDEF0123456789abcdef.json",
		X50 X50 X50 X50 X10 "xxxxxxx~" HASH,
		X50 X50 X50 X50 X10 "xxxxx%2~" HASH ".json",
	};
	struct buffer back = {0};

	CHECK(buffer_add(&back, "kept", 4) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK(name_document_read_cut(BYTES("user"), bad[i], &back) == -EINVAL);
		CHECK(back.n == 4);
	}
	CHECK(name_collection_read_cut("a~" HASH, &back) == -EINVAL && back.n == 4);
	CHECK(name_collection_read_cut(X50 X50 X50 X50 X10 X10 "%2~" HASH, &back) == -EINVAL);
	CHECK(back.n == 4);
	buffer_free(&back);
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

/* Random texts out of up to `most` pieces where encodings go wrong. */
static void random_text(struct buffer *b, uint64_t most)
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
	for (uint64_t n = test_random(most); n > 0; n--)
		CHECK(buffer_add_bytes(b, pieces[test_random(ARRAY_SIZE(pieces))]) == 0);
}

static void test_every_text_has_its_name(void)
{
	struct buffer collection = {0}, key = {0}, name = {0}, back = {0};

	test_seed(__func__);
	for (int i = 0; i < 200000; i++) {
		random_text(&collection, 6);
		random_text(&key, 6);
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

/* Long texts: each name is whole characters, and leads back to its text or to its beginning. */
static void test_every_long_text_has_its_name(void)
{
	struct buffer text = {0}, name = {0}, back = {0};
	unsigned cut = 0;

	test_seed(__func__);
	for (int i = 0; i < 20000; i++) {
		random_text(&text, 200);
		struct bytes key = buffer_bytes(&text);
		name.n = back.n = 0;
		CHECK(name_document_write(BYTES("user"), key, &name) == 0);
		CHECK(name.n <= NAME_BYTES_MAX && strlen(name.p) == name.n);
		CHECK(bytes_are_utf8(buffer_bytes(&name)));
		int rc = name_document_read(BYTES("user"), name.p, &back);
		if (rc == 0) {
			CHECK(bytes_equal(buffer_bytes(&back), key));
			continue;
		}
		CHECK(rc == -EINVAL && name.n > NAME_BYTES_MAX - 4);
		CHECK(name_document_read_cut(BYTES("user"), name.p, &back) == 0);
		CHECK(bytes_start_with(key, buffer_bytes(&back)));
		cut++;
	}
	CHECK(cut > 1000);
	buffer_free(&text);
	buffer_free(&name);
	buffer_free(&back);
}

static void test_every_name_that_opens_is_the_name(void)
{
	struct buffer name = {0}, text = {0}, back = {0};
	unsigned opened = 0;

	test_seed(__func__);
	for (int i = 0; i < 200000; i++) {
		random_text(&name, 6);
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
	RUN(test_cut_collections);
	RUN(test_cut_documents);
	RUN(test_long_names);
	RUN(test_names_like_cut_ones);
	RUN(test_cut_names_refused);
	RUN(test_tables);
	RUN(test_every_text_has_its_name);
	RUN(test_every_long_text_has_its_name);
	RUN(test_every_name_that_opens_is_the_name);
	return test_summary();
}
