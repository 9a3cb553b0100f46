/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/formats/json.h"

#include <errno.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

static inline int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	char lower = (char)(c | 0x20);
	return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The value of 4 hexadecimal digits, or -1. */
static int hex4(const char *p, const char *end)
{
	int value = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = hex_digit(p[i]);
		if (digit < 0)
			return -1;
		value = value << 4 | digit;
	}
	return value;
}

/* What the letter behind a backslash stands for; 0: nothing. 'u' is not in here. */
static const char escapes[256] = {
	['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
	['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

/* Takes an escape, from its backslash on. */
static inline bool scan_escape(struct scan *s)
{
	if (s->end - s->p >= 2 && escapes[(unsigned char)s->p[1]]) {
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

#ifdef __SSE2__
/* One bit for each of 16 bytes. */
struct block {
	unsigned quotes;
	unsigned backslashes;
	unsigned controls;
};

static inline unsigned bytes_equal_to(__m128i v, char c)
{
	return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(c)));
}

static inline struct block block_load(const char *p)
{
	const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
	const __m128i last_control = _mm_set1_epi8(0x1f);
	const __m128i controls = _mm_cmpeq_epi8(_mm_min_epu8(v, last_control), v);

	return (struct block){bytes_equal_to(v, '"'), bytes_equal_to(v, '\\'),
			      (unsigned)_mm_movemask_epi8(controls)};
}
#endif

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

int json_check(struct bytes text, struct error *error)
{
	struct scan s;

	scan_start(&s, text.p, text.p + text.n);
	if (!scan_value(&s))
		return scan_error(&s, text, error);
	skip_space(&s);
	if (s.p < s.end) {
		s.fault = "something follows the value";
		return scan_error(&s, text, error);
	}
	return 0;
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

/* ---- what strings say ---- */

/*
 * Reads the escape at p (a backslash, checked by the scanner) and writes what it says, up to 4
 * bytes of UTF-8. Returns the bytes written, or -EINVAL for half a surrogate pair.
 */
static int escape_decode(const char **p, const char *end, char out[4])
{
	char plain = escapes[(unsigned char)(*p)[1]];
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
			char plain = escapes[(unsigned char)from[i + 1]];
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
