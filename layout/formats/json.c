/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/formats/json.h"

#include <errno.h>

#include "layout/formats/json_string.h"

/*
 * A state machine without recursion: `objects` has one bit for each open bracket, set for '{'. On
 * a fault, `fault` says what and `p` is where.
 */
struct scan {
	const char *p;
	const char *end;
	const char *fault;
	unsigned depth;
	uint64_t objects[JSON_DEPTH_MAX / 64];
};

enum step { STEP_FAULT, STEP_VALUE, STEP_DONE };

static enum step fault(struct scan *s, const char *what)
{
	s->fault = s->p < s->end ? what : "the text ends early";
	return STEP_FAULT;
}

static inline bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline void skip_space(struct scan *s)
{
	while (s->p < s->end && is_space(*s->p))
		s->p++;
}

static inline bool at(const struct scan *s, char c)
{
	return s->p < s->end && *s->p == c;
}

/* ---- strings ---- */

/* Takes an escape, from its backslash on. */
static inline bool scan_escape(struct scan *s)
{
	if (s->end - s->p >= 2 && json_escapes[(unsigned char)s->p[1]]) {
		s->p += 2;
		return true;
	}
	if (s->end - s->p >= 2 && s->p[1] == 'u' && hex4(s->p + 2, s->end) >= 0) {
		s->p += 6;
		return true;
	}
	fault(s, "an unknown escape in a string");
	return false;
}

/*
 * Passes plain bytes and \" in blocks of 16. Documents as strings are full of \", so that escape
 * alone costs no branch. Stops at what needs a closer look, a backslash in front of it included, or
 * where less than a block is left.
 */
static inline const char *skip_blocks(const char *p, const char *end)
{
#ifdef __SSE2__
	unsigned carry = 0; /* 1: the byte in front of p is a backslash that escapes p's first */

	for (; end - p >= 16; p += 16) {
		struct block b = block_load(p);
		unsigned escaped = b.backslashes << 1 | carry;
		unsigned stop = (b.quotes & ~escaped) | b.controls;
		unsigned other = escaped & 0xffff & ~b.quotes; /* an escape that is not \" */
		if (stop | other) {
			unsigned first = (unsigned)__builtin_ctz(stop | other);
			return p + first - (escaped >> first & 1);
		}
		carry = b.backslashes >> 15;
	}
	p -= carry;
#endif
	(void)end;
	return p;
}

/* Takes a string, from its first quote on. */
static bool scan_string(struct scan *s)
{
	const char *p = s->p + 1, *end = s->end;

	for (;;) {
		p = skip_blocks(p, end);
		while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20)
			p++;
		s->p = p;
		if (p == end || *p != '\\')
			break;
		if (!scan_escape(s))
			return false;
		p = s->p;
	}
	if (!at(s, '"')) {
		fault(s, "a control character in a string");
		return false;
	}
	s->p++;
	return true;
}

/* ---- numbers and words ---- */

static inline bool scan_digits(struct scan *s)
{
	const char *start = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return s->p > start;
}

static enum step scan_number(struct scan *s)
{
	if (at(s, '-'))
		s->p++;
	if (at(s, '0'))
		s->p++;
	else if (!scan_digits(s))
		return fault(s, "no value here");
	if (at(s, '.')) {
		s->p++;
		if (!scan_digits(s))
			return fault(s, "a digit is missing in a number");
	}
	if (at(s, 'e') || at(s, 'E')) {
		s->p++;
		if (at(s, '+') || at(s, '-'))
			s->p++;
		if (!scan_digits(s))
			return fault(s, "a digit is missing in a number");
	}
	return STEP_DONE;
}

static enum step scan_word(struct scan *s, const char *word, size_t n)
{
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return fault(s, "no value here");
	s->p += n;
	return STEP_DONE;
}

/* ---- brackets ---- */

static inline bool in_object(const struct scan *s)
{
	unsigned top = s->depth - 1;

	return s->objects[top / 64] >> (top % 64) & 1;
}

/* Takes `"name":`. */
static enum step scan_name(struct scan *s)
{
	skip_space(s);
	if (!at(s, '"'))
		return fault(s, "a member's name has to be here");
	if (!scan_string(s))
		return STEP_FAULT;
	skip_space(s);
	if (!at(s, ':'))
		return fault(s, "a ':' has to be here");
	s->p++;
	return STEP_VALUE;
}

static enum step scan_open(struct scan *s, bool object)
{
	if (s->depth == JSON_DEPTH_MAX)
		return fault(s, "nested too deeply");
	uint64_t bit = UINT64_C(1) << (s->depth % 64);
	if (object)
		s->objects[s->depth / 64] |= bit;
	else
		s->objects[s->depth / 64] &= ~bit;
	s->depth++;
	s->p++;
	skip_space(s);
	if (at(s, object ? '}' : ']')) {
		s->p++;
		s->depth--;
		return STEP_DONE;
	}
	return object ? scan_name(s) : STEP_VALUE;
}

/* Takes a value's beginning: all of it, or an opening bracket and what leads to its first value. */
static inline enum step scan_begin(struct scan *s)
{
	skip_space(s);
	if (s->p == s->end)
		return fault(s, "");
	switch (*s->p) {
	case '"':
		return scan_string(s) ? STEP_DONE : STEP_FAULT;
	case '{':
		return scan_open(s, true);
	case '[':
		return scan_open(s, false);
	case 't':
		return scan_word(s, "true", 4);
	case 'f':
		return scan_word(s, "false", 5);
	case 'n':
		return scan_word(s, "null", 4);
	default:
		return scan_number(s);
	}
}

/* Behind a value: closes brackets, up to the next value or out of the last bracket. */
static inline enum step scan_behind(struct scan *s)
{
	while (s->depth > 0) {
		bool object = in_object(s);
		skip_space(s);
		if (at(s, ',')) {
			s->p++;
			return object ? scan_name(s) : STEP_VALUE;
		}
		if (!at(s, object ? '}' : ']'))
			return fault(s, object ? "a ',' or '}' has to be here"
					       : "a ',' or ']' has to be here");
		s->p++;
		s->depth--;
	}
	return STEP_DONE;
}

/* Takes one whole value. */
static inline bool scan_value(struct scan *s)
{
	enum step step;

	do {
		step = scan_begin(s);
		if (step == STEP_DONE)
			step = scan_behind(s);
	} while (step == STEP_VALUE);
	return step == STEP_DONE;
}

static inline void scan_start(struct scan *s, const char *p, const char *end)
{
	s->p = p;
	s->end = end;
	s->fault = NULL;
	s->depth = 0;
	memset(s->objects, 0, sizeof(s->objects));
}

static int scan_error(const struct scan *s, struct bytes text, struct error *error)
{
	return error_set(error, -EINVAL, "not JSON at byte %zu: %s", (size_t)(s->p - text.p),
			 s->fault);
}

/* True if the scan stopped inside a token that only its end is missing of. */
static bool is_cut(const struct scan *s)
{
	static const char *const words[] = {"true", "false", "null"};
	size_t n = (size_t)(s->end - s->p);

	if (n == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (n < strlen(words[i]) && memcmp(s->p, words[i], n) == 0)
			return true;
	if (*s->p != '\\' || n >= 6 || (n > 1 && s->p[1] != 'u'))
		return false;
	for (size_t i = 2; i < n; i++)
		if (hex_digit(s->p[i]) < 0)
			return false;
	return true;
}

static int check(struct bytes text, bool beginning, struct error *error)
{
	struct scan s;

	scan_start(&s, text.p, text.p + text.n);
	if (!scan_value(&s))
		return beginning && is_cut(&s) ? 0 : scan_error(&s, text, error);
	skip_space(&s);
	if (s.p == s.end)
		return 0;
	s.fault = "something follows the value";
	return scan_error(&s, text, error);
}

int json_check(struct bytes text, struct error *error)
{
	return check(text, false, error);
}

int json_check_beginning(struct bytes text, struct error *error)
{
	return check(text, true, error);
}

/* ---- walking ---- */

int json_walk_start(struct json_walk *walk, struct bytes text)
{
	struct scan s;

	scan_start(&s, text.p, text.p + text.n);
	skip_space(&s);
	if (!at(&s, '{') && !at(&s, '['))
		return -EINVAL;
	walk->object = *s.p++ == '{';
	skip_space(&s);
	walk->more = !at(&s, walk->object ? '}' : ']');
	walk->p = walk->more ? s.p : s.p + 1;
	walk->end = s.end;
	return 0;
}

static inline int take_name(struct json_walk *walk, struct bytes *ret_name)
{
	struct scan s;

	*ret_name = (struct bytes){NULL, 0};
	if (!walk->more)
		return 0;
	if (!walk->object)
		return 1;
	scan_start(&s, walk->p, walk->end);
	skip_space(&s);
	const char *quote = s.p;
	if (scan_name(&s) == STEP_FAULT)
		return -EINVAL;
	/* The name ends at the last quote: only white space and ':' are behind it. */
	const char *close = s.p - 1;
	while (*close != '"')
		close--;
	*ret_name = (struct bytes){quote + 1, (size_t)(close - quote - 1)};
	walk->p = s.p;
	return 1;
}

/* Takes what is behind a value. */
static inline int walk_on(struct json_walk *walk, struct scan *s)
{
	skip_space(s);
	walk->more = at(s, ',');
	if (!walk->more && !at(s, walk->object ? '}' : ']'))
		return -EINVAL;
	walk->p = s->p + 1;
	return 0;
}

static inline int take_value(struct json_walk *walk, struct bytes *ret_value)
{
	struct scan s;

	scan_start(&s, walk->p, walk->end);
	skip_space(&s);
	const char *start = s.p;
	if (!scan_value(&s))
		return -EINVAL;
	*ret_value = (struct bytes){start, (size_t)(s.p - start)};
	return walk_on(walk, &s);
}

int json_walk_name(struct json_walk *walk, struct bytes *ret_name)
{
	return take_name(walk, ret_name);
}

int json_walk_value(struct json_walk *walk, struct bytes *ret_value)
{
	return take_value(walk, ret_value);
}

int json_walk_enter(const struct json_walk *walk, struct json_walk *ret_inner)
{
	return json_walk_start(ret_inner, (struct bytes){walk->p, (size_t)(walk->end - walk->p)});
}

int json_walk_leave(struct json_walk *walk, const struct json_walk *inner)
{
	struct scan s;

	if (inner->more)
		return -EINVAL;
	scan_start(&s, inner->p, walk->end);
	return walk_on(walk, &s);
}

int json_walk_next(struct json_walk *walk, struct bytes *ret_name, struct bytes *ret_value)
{
	int rc = take_name(walk, ret_name);

	if (rc <= 0)
		return rc;
	rc = take_value(walk, ret_value);
	return rc < 0 ? rc : 1;
}

bool json_text_is_blank(struct bytes text)
{
	for (size_t i = 0; i < text.n; i++)
		if (!is_space(text.p[i]))
			return false;
	return true;
}

int json_walk_end(const struct json_walk *walk)
{
	struct bytes rest = {walk->p, (size_t)(walk->end - walk->p)};

	return walk->more || !json_text_is_blank(rest) ? -EINVAL : 0;
}
