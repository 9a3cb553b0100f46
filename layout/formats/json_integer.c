/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "layout/formats/json.h"

int json_integer_read(struct bytes value, int64_t *ret_number)
{
	bool negative = value.n && value.p[0] == '-';
	size_t i = negative;
	int64_t number = 0;

	if (i == value.n)
		return -EINVAL;
	for (; i < value.n; i++) {
		int digit = value.p[i] - '0';
		if (digit < 0 || digit > 9)
			return -EINVAL;
		/* Counted downwards, since there is one more number below zero than above. */
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_sub_overflow(number, digit, &number))
			return -ERANGE;
	}
	if (!negative && number == INT64_MIN)
		return -ERANGE;
	*ret_number = negative ? number : -number;
	return 0;
}
