/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A scanner for JSON (RFC 8259) that never changes a text: it finds where values begin and end and
 * leaves numbers, key order and escapes as they were written. No name here is one of jansson's: the
 * linker would let ours take the place of theirs.
 */
#include "store/base.h"

#define JSON_DEPTH_MAX 512

/* 0 if the whole text is exactly one value with white space around it. */
int json_check(struct bytes text, struct error *error);

/* 0 if the text is a value or could become one when more follows, else -EINVAL. */
int json_check_beginning(struct bytes text, struct error *error);

/*
 * Walks the members of an object, or the elements of an array (then names are absent). It checks
 * the grammar as it goes, so a text needs no json_check() before: one pass does both.
 */
struct json_walk {
	const char *p;
	const char *end;
	bool object;
	bool more; /* a member has to follow at p; without, p is behind the closing bracket */
};

/* -EINVAL if the text is neither an object nor an array. */
int json_walk_start(struct json_walk *walk, struct bytes text);
/* 1 and the next member: the name raw, between its quotes, the value's own text. 0 at the end.
 * -EINVAL: the text is no JSON; json_check() can say why. */
int json_walk_next(struct json_walk *walk, struct bytes *ret_name, struct bytes *ret_value);
/* After the end: 0 if only white space follows, else -EINVAL. */
int json_walk_end(const struct json_walk *walk);

/*
 * json_walk_next() in two steps, so that a value can be walked itself instead of being scanned
 * twice: the name (1, 0 at the end, -EINVAL), then either the value, or enter, walk `inner` to its
 * end, and leave. 0 or -EINVAL.
 */
int json_walk_name(struct json_walk *walk, struct bytes *ret_name);
int json_walk_value(struct json_walk *walk, struct bytes *ret_value);
/* -EINVAL if the value is neither an object nor an array. */
int json_walk_enter(const struct json_walk *walk, struct json_walk *ret_inner);
int json_walk_leave(struct json_walk *walk, const struct json_walk *inner);

/* True if a raw name (as json_walk_next() gives it) spells this plain ASCII word, escapes included.
 */
bool json_name_is(struct bytes raw, const char *word);
/* The place of the name in a list of plain ASCII words; `count` if it is not there. */
size_t json_name_find(struct bytes raw, const struct bytes *words, size_t count);

/* True if the text is empty or white space. */
bool json_text_is_blank(struct bytes text);

/* Appends what a JSON string (with its quotes) says. -EINVAL: no string, or a lone surrogate;
 * -ENOMEM. The buffer is then as before. */
int json_string_decode(struct bytes value, struct buffer *ret_text, struct error *error);
/* An integer: digits with an optional minus, so 1e3 and 1.0 will not do. -EINVAL, -ERANGE. */
int json_integer_read(struct bytes value, int64_t *ret_number);

static inline bool json_text_is_string(struct bytes v)
{
	return v.n && v.p[0] == '"';
}
static inline bool json_text_is_object(struct bytes v)
{
	return v.n && v.p[0] == '{';
}
static inline bool json_text_is_array(struct bytes v)
{
	return v.n && v.p[0] == '[';
}
static inline bool json_text_is_null(struct bytes v)
{
	return v.n == 4 && v.p[0] == 'n';
}
static inline bool json_text_is_true(struct bytes v)
{
	return v.n == 4 && v.p[0] == 't';
}
static inline bool json_text_is_false(struct bytes v)
{
	return v.n == 5 && v.p[0] == 'f';
}
