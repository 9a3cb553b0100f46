/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A scanner for JSON (RFC 8259) that never changes a text: it finds where values begin and end and
 * leaves numbers, key order and escapes as they were written.
 */
#include "store/base.h"

#define JSON_DEPTH_MAX 512

/* Scans one value at the start of `text` (white space before it allowed). Returns the offset just
 * behind it and sets *ret_value to it, or -EINVAL with the byte offset and the fault in `error`. */
ssize_t json_scan(struct bytes text, struct bytes *ret_value, struct error *error);
/* 0 if the whole text is exactly one value with white space around it. */
int json_check(struct bytes text, struct error *error);

/* Walks the members of an object, or the elements of an array (then names are absent). The text
 * must be one value that json_scan() or json_check() has accepted. */
struct json_walk {
	const char *p;
	const char *end;
	bool object;
};

/* -EINVAL if the text is neither an object nor an array. */
int json_walk_start(struct json_walk *walk, struct bytes text);
/* 1 and the next member: the name raw, between its quotes, the value's own text. 0 at the end. */
int json_walk_next(struct json_walk *walk, struct bytes *ret_name, struct bytes *ret_value);

/* True if a raw name (as json_walk_next() gives it) spells this plain ASCII word, escapes included.
 */
bool json_name_is(struct bytes raw, const char *word);

/* Finds a member of an object; the last one of that name wins. 0, -ENOENT, -EINVAL (no object). */
int json_member(struct bytes object, const char *name, struct bytes *ret_value);

/* Appends what a JSON string (with its quotes) says. -EINVAL: no string, or a lone surrogate. */
int json_string_decode(struct bytes value, struct buffer *ret_text, struct error *error);
/* An integer, also as 1e3 would not do: digits with an optional minus only. -EINVAL, -ERANGE. */
int json_integer(struct bytes value, int64_t *ret_number);

static inline bool json_is_string(struct bytes v)
{
	return v.n && v.p[0] == '"';
}
static inline bool json_is_object(struct bytes v)
{
	return v.n && v.p[0] == '{';
}
static inline bool json_is_array(struct bytes v)
{
	return v.n && v.p[0] == '[';
}
static inline bool json_is_null(struct bytes v)
{
	return v.n == 4 && v.p[0] == 'n';
}
static inline bool json_is_true(struct bytes v)
{
	return v.n == 4 && v.p[0] == 't';
}
static inline bool json_is_false(struct bytes v)
{
	return v.n == 5 && v.p[0] == 'f';
}
