/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What scanning and decoding a JSON string have in common. */
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "layout/formats/json.h"

static inline int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	char lower = (char)(c | 0x20);
	return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The value of 4 hexadecimal digits, or -1. */
static inline int hex4(const char *p, const char *end)
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
static const char json_escapes[256] = {
	['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
	['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

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
