/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/names.h"

#include <errno.h>
#include <openssl/evp.h>

#define SUFFIX	  ".json"
#define EMPTY	  "%."
#define WHOLE_KEY "%_"

#define HASH_BYTES 16
#define CUT_BYTES  (1 + 2 * HASH_BYTES) /* ~HASH */

/* ---- sequences ---- */

void name_sequence_write(uint64_t sequence, const char *suffix, char *p)
{
	char digits[20];
	size_t n = sizeof(digits);

	for (; sequence || n > sizeof(digits) - NAME_SEQUENCE_DIGITS; sequence /= 10)
		digits[--n] = (char)('0' + sequence % 10);
	memcpy(p, digits + n, sizeof(digits) - n);
	strcpy(p + sizeof(digits) - n, suffix);
}

int name_sequence_read(const char *name, const char *suffix, uint64_t *ret_sequence)
{
	uint64_t sequence = 0;
	const char *p = name;

	for (; *p >= '0' && *p <= '9'; p++) {
		sequence = sequence * 10 + (uint64_t)(*p - '0');
		if (sequence > STORE_SEQUENCE_MAX)
			return -EINVAL;
	}
	if (sequence == 0 || strcmp(p, suffix) != 0)
		return -EINVAL;
	*ret_sequence = sequence;
	return 0;
}

/* ---- texts ---- */

static int add_percent(struct buffer *b, char c)
{
	static const char hex[] = "0123456789ABCDEF";
	char text[3] = {'%', hex[(unsigned char)c >> 4], hex[(unsigned char)c & 15]};

	return buffer_add(b, text, sizeof(text));
}

/* Bytes of the UTF-8 sequence at the start of the text; 0 if it is none. */
static size_t utf8_length(struct bytes text)
{
	unsigned char lead = (unsigned char)text.p[0];
	size_t n = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;

	if (lead < 0x80)
		return 1;
	return n <= text.n && bytes_are_utf8((struct bytes){text.p, n}) ? n : 0;
}

static bool needs_percent(char c)
{
	unsigned char byte = (unsigned char)c;

	return byte < 0x20 || byte == 0x7f || c == '/' || c == '%';
}

/* Stops when it is longer than any name: such a text is cut, so that its end is not asked for. */
static int text_write(struct bytes text, struct buffer *name)
{
	size_t start = name->n;

	if (text.n == 0)
		return buffer_add_bytes(name, BYTES(EMPTY));
	for (size_t i = 0; i < text.n && name->n - start <= NAME_BYTES_MAX;) {
		struct bytes left = {text.p + i, text.n - i};
		size_t n = utf8_length(left);
		bool percent = n == 0 || needs_percent(left.p[0]) || (i == 0 && left.p[0] == '.');
		int rc = percent ? add_percent(name, left.p[0]) : buffer_add(name, left.p, n);
		if (rc < 0)
			return rc;
		i += n ? n : 1;
	}
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes what text_write() may have written. Whether it has, the caller asks by encoding again. */
static int text_read(struct bytes name, struct buffer *text)
{
	if (bytes_equal(name, BYTES(EMPTY)))
		return 0;
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];
		if (c == '%') {
			int high = i + 2 < name.n ? hex_digit(name.p[i + 1]) : -1;
			int low = i + 2 < name.n ? hex_digit(name.p[i + 2]) : -1;
			if (high < 0 || low < 0)
				return -EINVAL;
			c = (char)(high << 4 | low);
			i += 2;
		}
		if (buffer_add(text, &c, 1) < 0)
			return -ENOMEM;
	}
	return 0;
}

static bool ends_in(struct bytes name, struct bytes end)
{
	return name.n >= end.n && memcmp(name.p + name.n - end.n, end.p, end.n) == 0;
}

/* What a buffer holds from `start` on. */
static struct bytes bytes_from(const struct buffer *b, size_t start)
{
	struct bytes all = buffer_bytes(b);

	return (struct bytes){all.p + start, all.n - start};
}

/* ---- the end of a name ---- */

static bool ends_in_hash(struct bytes text)
{
	if (text.n < CUT_BYTES || text.p[text.n - CUT_BYTES] != '~')
		return false;
	for (size_t i = text.n - CUT_BYTES + 1; i < text.n; i++) {
		char c = text.p[i];
		if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
			return false;
	}
	return true;
}

/* The longest beginning of an encoded text that has at most `n` bytes and ends with a character. */
static size_t whole_characters(const char *text, size_t n)
{
	while (((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	if (text[n - 1] == '%')
		return n - 1;
	return text[n - 2] == '%' ? n - 2 : n;
}

/* Makes PREFIX~HASH of a text that is longer than `max`; `whole` is what it encodes. */
static int cut(struct buffer *name, size_t start, size_t max, struct bytes whole)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char hash[EVP_MAX_MD_SIZE];
	char end[CUT_BYTES] = {'~'};

	if (!EVP_Digest(whole.p, whole.n, hash, NULL, EVP_sha256(), NULL))
		return -ENOMEM;
	for (size_t i = 0; i < HASH_BYTES; i++) {
		end[1 + 2 * i] = hex[hash[i] >> 4];
		end[2 + 2 * i] = hex[hash[i] & 15];
	}
	name->n = start + whole_characters(name->p + start, max - CUT_BYTES);
	return buffer_add(name, end, CUT_BYTES);
}

/* Ends the text that begins at `start`: what looks like something else gets another last byte, and
 * what is too long is cut; then the suffix and a NUL. On an error the buffer is as before. */
static int finish_write(struct buffer *name, size_t start, bool reserved, struct bytes whole,
			struct bytes suffix)
{
	size_t max = NAME_BYTES_MAX - suffix.n;
	int rc = 0;

	if (reserved || ends_in_hash(bytes_from(name, start))) {
		char last = name->p[--name->n];
		rc = add_percent(name, last);
	}
	if (rc == 0 && name->n - start > max)
		rc = cut(name, start, max, whole);
	if (rc == 0)
		rc = buffer_add_bytes(name, suffix);
	if (rc == 0)
		rc = buffer_reserve(name, 1);
	if (rc < 0)
		name->n = start;
	else
		name->p[name->n] = '\0';
	return rc;
}

/* Ends a read: only the name that writing gives is the name. */
static int finish_read(struct buffer *text, size_t start, int rc, struct bytes name,
		       const struct buffer *canonical)
{
	if (rc == 0 && !bytes_equal(name, buffer_bytes(canonical)))
		rc = -EINVAL;
	if (rc < 0)
		text->n = start;
	return rc;
}

/* Takes ~HASH off a text that may have been cut to `max` bytes: at most the rest of a character is
 * missing. */
static bool take_off_hash(struct bytes *text, size_t max)
{
	if (text->n > max || text->n + 3 < max || !ends_in_hash(*text))
		return false;
	text->n -= CUT_BYTES;
	return true;
}

/* ---- collections ---- */

int name_collection_write(struct bytes collection, struct buffer *ret_name)
{
	size_t start = ret_name->n;
	int rc = text_write(collection, ret_name);
	if (rc < 0) {
		ret_name->n = start;
		return rc;
	}
	struct bytes text = bytes_from(ret_name, start);
	bool reserved = bytes_equal(text, BYTES("tail")) || ends_in(text, BYTES(".json")) ||
			ends_in(text, BYTES(".ndjson"));
	return finish_write(ret_name, start, reserved, collection, BYTES(""));
}

int name_collection_read(const char *name, struct buffer *ret_collection)
{
	_cleanup_(buffer_free) struct buffer canonical = {0};
	size_t start = ret_collection->n;
	int rc = text_read(bytes_of(name), ret_collection);

	if (rc == 0)
		rc = name_collection_write(bytes_from(ret_collection, start), &canonical);
	return finish_read(ret_collection, start, rc, bytes_of(name), &canonical);
}

int name_collection_read_cut(const char *name, struct buffer *ret_start)
{
	struct bytes text = bytes_of(name);
	size_t start = ret_start->n;
	int rc = take_off_hash(&text, NAME_BYTES_MAX) ? text_read(text, ret_start) : -EINVAL;

	if (rc < 0)
		ret_start->n = start;
	return rc;
}

/* ---- documents ---- */

/* The part of the key behind "COLLECTION:", or an absent slice. */
static struct bytes key_rest(struct bytes collection, struct bytes key)
{
	if (key.n <= collection.n || !bytes_start_with(key, collection) ||
	    key.p[collection.n] != ':')
		return (struct bytes){NULL, 0};
	return (struct bytes){key.p + collection.n + 1, key.n - collection.n - 1};
}

int name_document_write(struct bytes collection, struct bytes key, struct buffer *ret_name)
{
	struct bytes rest = key_rest(collection, key);
	size_t start = ret_name->n;
	int rc = rest.p ? 0 : buffer_add_bytes(ret_name, BYTES(WHOLE_KEY));

	if (rc == 0)
		rc = text_write(rest.p ? rest : key, ret_name);
	if (rc < 0) {
		ret_name->n = start;
		return rc;
	}
	return finish_write(ret_name, start, false, key, BYTES(SUFFIX));
}

static int document_decode(struct bytes collection, struct bytes text, struct buffer *key)
{
	if (bytes_start_with(text, BYTES(WHOLE_KEY))) {
		text.p += strlen(WHOLE_KEY);
		text.n -= strlen(WHOLE_KEY);
	} else if (buffer_add_bytes(key, collection) < 0 || buffer_add(key, ":", 1) < 0) {
		return -ENOMEM;
	}
	return text_read(text, key);
}

static bool take_off_suffix(struct bytes *name)
{
	if (!ends_in(*name, BYTES(SUFFIX)))
		return false;
	name->n -= strlen(SUFFIX);
	return true;
}

int name_document_read(struct bytes collection, const char *name, struct buffer *ret_key)
{
	_cleanup_(buffer_free) struct buffer canonical = {0};
	struct bytes text = bytes_of(name);
	size_t start = ret_key->n;
	int rc = take_off_suffix(&text) ? document_decode(collection, text, ret_key) : -EINVAL;

	if (rc == 0)
		rc = name_document_write(collection, bytes_from(ret_key, start), &canonical);
	return finish_read(ret_key, start, rc, bytes_of(name), &canonical);
}

int name_document_read_cut(struct bytes collection, const char *name, struct buffer *ret_start)
{
	struct bytes text = bytes_of(name);
	size_t start = ret_start->n;
	int rc = -EINVAL;

	if (take_off_suffix(&text) && take_off_hash(&text, NAME_BYTES_MAX - strlen(SUFFIX)))
		rc = document_decode(collection, text, ret_start);
	if (rc < 0)
		ret_start->n = start;
	return rc;
}

int name_refuse(int code, const char *what, struct error *error)
{
	return error_set(
		error, code,
		"no %s has this name: %% is written %%25, / is %%2F, a control character such as "
		"a newline %%0A, a dot at the start %%2E, and a collection that ends as a file "
		"of feed/ does has its last letter so",
		what);
}

/* ---- tables ---- */

static int add_own_name(struct bytes name, struct buffer *b)
{
	for (size_t i = 0; i < name.n; i++) {
		bool percent = name.p[i] == '.' || name.p[i] == '%';
		int rc = percent ? add_percent(b, name.p[i]) : buffer_add(b, name.p + i, 1);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int name_table_write(struct bytes schema, struct bytes table, struct buffer *ret_collection)
{
	if (!bytes_equal(schema, BYTES("public"))) {
		int rc = add_own_name(schema, ret_collection);
		if (rc == 0)
			rc = buffer_add(ret_collection, ".", 1);
		if (rc < 0)
			return rc;
	}
	return add_own_name(table, ret_collection);
}
