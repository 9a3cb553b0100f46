/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Unit tests: CHECK() what has to hold, RUN() each test from main(), `return test_summary();`. A
 * test that fails a check goes on, so that one run shows all faults. Random tests print their seed;
 * TEST_SEED in the environment repeats one.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static unsigned test_checks_failed;
static unsigned test_passed;
static unsigned test_failed;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);             \
			test_checks_failed++;                                                      \
		}                                                                                  \
	} while (0)

#define RUN(test) test_run(#test, test)

static inline void test_run(const char *name, void (*test)(void))
{
	test_checks_failed = 0;
	test();
	printf("%s %s\n", test_checks_failed ? "not ok" : "ok", name);
	if (test_checks_failed)
		test_failed++;
	else
		test_passed++;
	fflush(stdout);
}

static inline int test_summary(void)
{
	printf("%u passed, %u failed\n", test_passed, test_failed);
	return test_failed ? 1 : 0;
}

/* ---- random numbers that a seed repeats ---- */

static uint64_t test_random_state;

static inline void test_seed(const char *test)
{
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);

	printf("%s: TEST_SEED=%llu\n", test, (unsigned long long)seed);
	test_random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

/* A number below `limit` (splitmix64). */
static inline uint64_t test_random(uint64_t limit)
{
	uint64_t z = test_random_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % limit;
}
