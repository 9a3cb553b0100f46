/* SPDX-License-Identifier: Apache-2.0 */
/* What JSON strings and names say. */
#include "layout/formats/json_string.h"

#include <errno.h>

/*
 * Reads the escape at p (a backslash, checked by the scanner) and writes what it says, up to 4
 * bytes of UTF-8. Returns the bytes written, or -EINVAL for half a surrogate pair.
 */
static int escape_decode(const char **p, const char *end, char out[4])
{
	char plain = json_escapes[(unsigned char)(*p)[1]];
	if (plain) {
		*p += 2;
		out[0] = plain;
		return 1;
	}
	int code = hex4(*p + 2, end);
	*p += 6;
	if (code >= 0xd800 && code <= 0xdfff) {
		int low =
			end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2, end) : -1;
		if (code >= 0xdc00 || low < 0xdc00 || low > 0xdfff)
			return -EINVAL;
		*p += 6;
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
	static const int leads[] = {0, 0xc0, 0xe0, 0xf0};
	out[0] = (char)(leads[more] | code >> (6 * more));
	for (int i = 1; i <= more; i++)
		out[i] = (char)(0x80 | (code >> (6 * (more - i)) & 0x3f));
	return more + 1;
}

bool json_name_is(struct bytes raw, const char *word)
{
	const char *p = raw.p, *end = raw.p + raw.n;
	size_t n = strlen(word);

	if (raw.n == n) /* each escape makes the raw name longer than what it says */
		return memcmp(raw.p, word, n) == 0 && !memchr(word, '\\', n);
	for (; p < end && *word; word++) {
		char out[4] = {*p};
		if (*p != '\\')
			p++;
		else if (escape_decode(&p, end, out) != 1)
			return false;
		if (out[0] != *word)
			return false;
	}
	return p == end && !*word;
}

size_t json_name_find(struct bytes raw, const struct bytes *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes_equal(raw, words[i]))
			return i;
	if (memchr(raw.p, '\\', raw.n))
		for (size_t i = 0; i < count; i++)
			if (json_name_is(raw, words[i].p))
				return i;
	return count;
}

#define DECODE_SLACK 32 /* bytes that decode_blocks() may write behind its output */

/*
 * Copies bytes and two-letter escapes. Stops in front of a \u, or where less than 32 bytes are
 * left: pieces are copied by 16 bytes, the rest of which the next piece overwrites.
 */
static inline void decode_blocks(const char **p, const char *end, char **out)
{
#ifdef __SSE2__
	const char *from = *p;
	char *to = *out;

	while (end - from >= 32) {
		unsigned hit = block_load(from).backslashes;
		unsigned start = 0;
		while (hit) {
			unsigned i = (unsigned)__builtin_ctz(hit);
			memcpy(to, from + start, 16);
			to += i - start;
			char plain = json_escapes[(unsigned char)from[i + 1]];
			if (!plain) {
				*p = from + i;
				*out = to;
				return;
			}
			*to++ = plain;
			start = i + 2;
			hit &= ~(3u << i);
		}
		memcpy(to, from + start, 16);
		to += start < 16 ? 16 - start : 0;
		from += start < 16 ? 16 : start;
	}
	*p = from;
	*out = to;
#else
	(void)p;
	(void)end;
	(void)out;
#endif
}

int json_string_decode(struct bytes value, struct buffer *ret_text, struct error *error)
{
	if (value.n < 2 || value.p[0] != '"')
		return error_set(error, -EINVAL, "this is not a JSON string");
	/* No escape grows when it is decoded. */
	if (buffer_reserve(ret_text, value.n + DECODE_SLACK) < 0)
		return -ENOMEM;
	const char *p = value.p + 1, *end = value.p + value.n - 1;
	char *out = ret_text->p + ret_text->n;
	while (p < end) {
		decode_blocks(&p, end, &out);
		while (p < end && *p != '\\')
			*out++ = *p++;
		if (p == end)
			break;
		int n = escape_decode(&p, end, out);
		if (n < 0)
			return error_set(
				error, -EINVAL,
				"a string has half of a surrogate pair (\\uD800 to \\uDFFF)");
		out += n;
	}
	ret_text->n = (size_t)(out - ret_text->p);
	return 0;
}
