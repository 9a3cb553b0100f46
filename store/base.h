/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The few words that every layer speaks: a slice of bytes, a growing buffer, an error's sentence.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* Bytes that someone else owns. p NULL means 'absent'; an empty value has a p and n 0. */
struct bytes {
	const char *p;
	size_t n;
};

#define BYTES(literal) ((struct bytes){"" literal, sizeof(literal) - 1})

static inline struct bytes bytes_of(const char *text)
{
	return (struct bytes){text, strlen(text)};
}

static inline bool bytes_equal(struct bytes a, struct bytes b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool bytes_start_with(struct bytes s, struct bytes start)
{
	return s.n >= start.n && (start.n == 0 || memcmp(s.p, start.p, start.n) == 0);
}

/* By their bytes, as the database has its keys in order: below, 0 or above 0. */
static inline int bytes_compare(struct bytes a, struct bytes b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int order = n ? memcmp(a.p, b.p, n) : 0;

	return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* A growing byte buffer; all zero is a valid empty one. The owner frees it with buffer_free(). */
struct buffer {
	char *p;
	size_t n;
	size_t cap;
};

/* Makes room for `more` bytes behind n. 0, or -ENOMEM with the buffer unchanged. */
int buffer_reserve(struct buffer *b, size_t more);
int buffer_add(struct buffer *b, const void *p, size_t n);
int buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
int buffer_add_decimal(struct buffer *b, uint64_t number);
/* Takes off the first n bytes. */
void buffer_consume(struct buffer *b, size_t n);
void buffer_free(struct buffer *b);

static inline struct bytes buffer_bytes(const struct buffer *b)
{
	return (struct bytes){b->p ? b->p : "", b->n};
}

static inline int buffer_add_bytes(struct buffer *b, struct bytes s)
{
	return buffer_add(b, s.p, s.n);
}

/* Adds `s` as a JSON string with its quotes: escapes ", \ and control characters, nothing else.
 * The bytes have to be UTF-8. 0 or -ENOMEM. */
int buffer_add_json_string(struct buffer *b, struct bytes s);
/* The same without the quotes. */
int buffer_add_json_escaped(struct buffer *b, struct bytes s);
int buffer_add_base64(struct buffer *b, struct bytes s);
/* Decodes strict base64 (RFC 4648, section 4, padded). 0, -EINVAL or -ENOMEM. */
int buffer_add_base64_decoded(struct buffer *b, struct bytes s);

/* True if the bytes are valid UTF-8 (RFC 3629: no surrogates, no overlong forms). */
bool bytes_are_utf8(struct bytes s);
/* Puts a '?' for each NUL and each byte that is no part of UTF-8. */
void text_make_utf8(char *p, size_t n);

/* The sentence a person reads beside an errno. An `error` argument may always be NULL. */
struct error {
	char text[256];
};

/* Writes the sentence, control characters escaped, and returns `code` (a negative errno). */
int error_set(struct error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define _cleanup_(f)  __attribute__((cleanup(f)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Milliseconds since 1970 of the wall clock. */
int64_t clock_wall_ms(void);
