/* SPDX-License-Identifier: Apache-2.0 */
#include "store/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int buffer_reserve(struct buffer *b, size_t more)
{
	if (more > SIZE_MAX / 2 - b->n)
		return -ENOMEM;
	size_t need = b->n + more;
	if (need <= b->cap)
		return 0;
	size_t cap = b->cap ? b->cap : 256;
	while (cap < need)
		cap *= 2;
	char *p = realloc(b->p, cap);
	if (!p)
		return -ENOMEM;
	b->p = p;
	b->cap = cap;
	return 0;
}

int buffer_add(struct buffer *b, const void *p, size_t n)
{
	if (buffer_reserve(b, n) < 0)
		return -ENOMEM;
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	return 0;
}

int buffer_printf(struct buffer *b, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0 || buffer_reserve(b, (size_t)n + 1) < 0)
		return -ENOMEM;
	va_start(args, format);
	vsnprintf(b->p + b->n, (size_t)n + 1, format, args);
	va_end(args);
	b->n += (size_t)n;
	return 0;
}

int buffer_add_decimal(struct buffer *b, uint64_t number)
{
	char digits[20];
	size_t n = sizeof(digits);

	do
		digits[--n] = (char)('0' + number % 10);
	while (number /= 10);
	return buffer_add(b, digits + n, sizeof(digits) - n);
}

void buffer_consume(struct buffer *b, size_t n)
{
	if (n < b->n)
		memmove(b->p, b->p + n, b->n - n);
	b->n = n < b->n ? b->n - n : 0;
}

void buffer_free(struct buffer *b)
{
	free(b->p);
	*b = (struct buffer){0};
}

/* Writes the JSON form of a control character; returns its length (2 or 6). */
static size_t json_escape(unsigned char c, char *p)
{
	static const char hex[] = "0123456789abcdef";
	static const char letters[] = "btn\0fr"; /* 0x08 to 0x0d; there is none for 0x0b */

	p[0] = '\\';
	if (c >= 8 && c <= 13 && c != 11) {
		p[1] = letters[c - 8];
		return 2;
	}
	p[1] = 'u';
	p[2] = '0';
	p[3] = '0';
	p[4] = hex[c >> 4];
	p[5] = hex[c & 15];
	return 6;
}

/*
 * Room is made for the common case of a document (a quote in about every eight bytes) and checked
 * again before each run, so that the inner loop is free of calls.
 */
int buffer_add_json_escaped(struct buffer *b, struct bytes s)
{
	size_t i = 0;

	while (i < s.n) {
		size_t run = s.n - i < 4096 ? s.n - i : 4096;
		if (buffer_reserve(b, run * 6) < 0)
			return -ENOMEM;
		char *p = b->p + b->n;
		const char *from = s.p + i, *end = from + run;
		for (; from < end; from++) {
			unsigned char c = (unsigned char)*from;
			/* A quote comes every few bytes, so nothing is guessed for it. */
			size_t quoted = c == '"' || c == '\\';
			p[0] = '\\';
			p[quoted] = (char)c;
			p += 1 + quoted;
			if (c < 0x20)
				p += json_escape(c, p - 1) - 1;
		}
		b->n = (size_t)(p - b->p);
		i += run;
	}
	return 0;
}

int buffer_add_json_string(struct buffer *b, struct bytes s)
{
	if (buffer_add(b, "\"", 1) < 0 || buffer_add_json_escaped(b, s) < 0)
		return -ENOMEM;
	return buffer_add(b, "\"", 1);
}

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int buffer_add_base64(struct buffer *b, struct bytes s)
{
	if (buffer_reserve(b, (s.n / 3 + 1) * 4) < 0)
		return -ENOMEM;
	const unsigned char *p = (const unsigned char *)s.p;
	char *out = b->p + b->n;
	for (size_t i = 0; i < s.n; i += 3) {
		size_t left = s.n - i;
		uint32_t v = (uint32_t)p[i] << 16;
		if (left > 1)
			v |= (uint32_t)p[i + 1] << 8;
		if (left > 2)
			v |= p[i + 2];
		*out++ = base64_digits[v >> 18];
		*out++ = base64_digits[v >> 12 & 63];
		*out++ = left > 1 ? base64_digits[v >> 6 & 63] : '=';
		*out++ = left > 2 ? base64_digits[v & 63] : '=';
	}
	b->n = (size_t)(out - b->p);
	return 0;
}

static int base64_value(char c)
{
	const char *at = c ? strchr(base64_digits, c) : NULL;

	return at ? (int)(at - base64_digits) : -1;
}

int buffer_add_base64_decoded(struct buffer *b, struct bytes s)
{
	if (s.n % 4)
		return -EINVAL;
	size_t start = b->n;
	if (buffer_reserve(b, s.n / 4 * 3) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < s.n; i += 4) {
		bool last = i + 4 == s.n;
		size_t pad = 0;
		if (last && s.p[i + 3] == '=')
			pad = s.p[i + 2] == '=' ? 2 : 1;
		uint32_t v = 0;
		for (size_t k = 0; k < 4; k++) {
			int d = k >= 4 - pad ? 0 : base64_value(s.p[i + k]);
			if (d < 0) {
				b->n = start;
				return -EINVAL;
			}
			v = v << 6 | (uint32_t)d;
		}
		if (v & (pad == 2 ? 0xffffu : pad == 1 ? 0xffu : 0)) { /* bits that say nothing */
			b->n = start;
			return -EINVAL;
		}
		for (size_t k = 0; k < 3 - pad; k++)
			b->p[b->n++] = (char)(v >> (16 - 8 * k));
	}
	return 0;
}

/* Length of the UTF-8 sequence at p, 0 if it is none. */
static size_t utf8_sequence(const unsigned char *p, size_t n)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;

	if (p[0] < 0xc2 || p[0] > 0xf4 || length > n)
		return 0;
	uint32_t v = p[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		v = v << 6 | (p[i] & 0x3f);
	}
	if (v < least[length] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
		return 0;
	return length;
}

bool bytes_are_utf8(struct bytes s)
{
	const unsigned char *p = (const unsigned char *)s.p;
	size_t i = 0;

	while (i < s.n) {
		uint64_t word;
		while (i + 8 <= s.n) {
			memcpy(&word, p + i, 8);
			if (word & UINT64_C(0x8080808080808080))
				break;
			i += 8;
		}
		if (i >= s.n)
			break;
		if (p[i] < 0x80) {
			i++;
			continue;
		}
		size_t n = utf8_sequence(p + i, s.n - i);
		if (!n)
			return false;
		i += n;
	}
	return true;
}

void text_make_utf8(char *p, size_t n)
{
	for (size_t i = 0, length; i < n; i += length) {
		const unsigned char *c = (const unsigned char *)p + i;
		length = *c < 0x80 ? 1 : utf8_sequence(c, n - i);
		if (*c && length)
			continue;
		p[i] = '?';
		length = 1;
	}
}

int error_set(struct error *error, int code, const char *format, ...)
{
	char text[sizeof(error->text)];

	if (!error)
		return code;
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	size_t n = 0;
	for (const char *p = text; *p && n < sizeof(error->text) - 5; p++) {
		unsigned char c = (unsigned char)*p;
		if (c >= 0x20 && c != 0x7f)
			error->text[n++] = *p;
		else
			n += (size_t)snprintf(error->text + n, 5, "\\x%02x", c);
	}
	error->text[n] = 0;
	return code;
}

int64_t clock_wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
