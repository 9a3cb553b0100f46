/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What has to hold for every input; unlike assert() it is there in every build. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,          \
				#condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static inline struct bytes fuzz_input(const uint8_t *data, size_t size)
{
	return size ? (struct bytes){(const char *)data, size} : BYTES("");
}

/* Takes the next line, without its \n, off the input; false at the end. */
static inline bool fuzz_line(struct bytes *input, struct bytes *ret_line)
{
	if (input->n == 0)
		return false;
	const char *end = memchr(input->p, '\n', input->n);
	size_t n = end ? (size_t)(end - input->p) : input->n;
	*ret_line = (struct bytes){input->p, n};
	input->p += n + (end ? 1 : 0);
	input->n -= n + (end ? 1 : 0);
	return true;
}
