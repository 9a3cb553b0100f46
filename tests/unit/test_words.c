/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/group_words.h"

#include <errno.h>

#include "test.h"

static struct error error;

static bool offset_is(const char *text, enum store_group_move move, int64_t number)
{
	enum store_group_move got_move;
	int64_t got;

	return words_offset(bytes_of(text), &got_move, &got, &error) == 0 && got_move == move &&
	       got == number;
}

static void test_offset(void)
{
	CHECK(offset_is("42\n", STORE_MOVE_COMMIT, 42));
	CHECK(offset_is(" \t0042 \r\n\n", STORE_MOVE_COMMIT, 42));
	CHECK(offset_is("0", STORE_MOVE_COMMIT, 0));
	CHECK(offset_is("9007199254740991", STORE_MOVE_COMMIT, (int64_t)STORE_SEQUENCE_MAX));
	CHECK(offset_is("earliest\n", STORE_MOVE_EARLIEST, 0));
	CHECK(offset_is("latest", STORE_MOVE_LATEST, 0));
	CHECK(offset_is("+5", STORE_MOVE_BY, 5));
	CHECK(offset_is("-5\n", STORE_MOVE_BY, -5));
	CHECK(offset_is("@1970-01-01T00:00:00Z", STORE_MOVE_TIME, 0));
	CHECK(offset_is("@2026-01-31T12:00:00Z\n", STORE_MOVE_TIME, 1769860800000));
	CHECK(offset_is("@2026-01-31t13:30:00+01:30", STORE_MOVE_TIME, 1769860800000));
	CHECK(offset_is("@2026-01-31 11:00:00-01:00", STORE_MOVE_TIME, 1769860800000));
	CHECK(offset_is("@2026-01-31T12:00:00.25z", STORE_MOVE_TIME, 1769860800250));
	/* The first millisecond that is not before it. */
	CHECK(offset_is("@2026-01-31T12:00:00.2501Z", STORE_MOVE_TIME, 1769860800251));
	CHECK(offset_is("@2026-01-31T12:00:00.250000Z", STORE_MOVE_TIME, 1769860800250));
	CHECK(offset_is("@2016-12-31T23:59:60Z", STORE_MOVE_TIME, 1483228800000));
	CHECK(offset_is("@2024-02-29T00:00:00Z", STORE_MOVE_TIME, 1709164800000));
}

static void test_offset_refused(void)
{
	static const char *const bad[] = {
		"",
		"\n",
		"4 2",
		"42x",
		"x",
		"+",
		"-",
		"+-5",
		"--5",
		"earliest latest",
		"Earliest",
		"9007199254740992",
		"99999999999999999999999",
		"@",
		"@now",
		"@2026-01-31",
		"@2026-01-31T12:00:00",
		"@2026-01-31T12:00Z",
		"@2026-13-01T12:00:00Z",
		"@2026-02-29T12:00:00Z",
		"@2026-01-31T24:00:00Z",
		"@2026-01-31T12:00:00.Z",
		"@2026-01-31T12:00:00+0100",
		"@2026-01-31T12:00:00+24:00",
		"@2026-01-31T12:00:00Zx",
		"@26-01-31T12:00:00Z",
	};
	enum store_group_move move;
	int64_t number;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		error.text[0] = 0;
		int rc = words_offset(bytes_of(bad[i]), &move, &number, &error);
		if (rc != -EINVAL)
			printf("accepted: %s\n", bad[i]);
		CHECK(rc == -EINVAL && error.text[0]);
	}
}

static void test_ack(void)
{
	struct bytes text = BYTES(" 42\n40-45\t7#9\r\n\n0008 9-9 ");
	static const struct store_group_ack expected[] = {
		{42, 42, 0}, {40, 45, 0}, {7, 7, 9}, {8, 8, 0}, {9, 9, 0}};
	struct store_group_ack ack;

	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		CHECK(words_next_ack(&text, &ack, &error) == 1);
		CHECK(ack.from == expected[i].from && ack.to == expected[i].to &&
		      ack.delivery == expected[i].delivery);
	}
	CHECK(words_next_ack(&text, &ack, &error) == 0);
	CHECK(text.n == 0);
}

static void test_ack_refused(void)
{
	static const char *const bad[] = {"0",	   "x",	     "4x",  "45-40", "40-",
					  "-40",   "42#",    "#42", "4#0",   "4#x",
					  "4-5#6", "4.json", "4,5", "+4",    "9007199254740992"};
	struct store_group_ack ack;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct bytes text = bytes_of(bad[i]);
		int rc = words_next_ack(&text, &ack, &error);
		if (rc != -EINVAL)
			printf("accepted: %s\n", bad[i]);
		CHECK(rc == -EINVAL && strstr(error.text, bad[i]));
	}
}

static void test_nack(void)
{
	struct bytes text = BYTES("42\n 43#7 delay=5000 \n\n44 dlq  it is bad: 1 \n45#8 dlq\n");
	struct store_group_nack nack;

	CHECK(words_next_nack(&text, &nack, &error) == 1);
	CHECK(nack.sequence == 42 && !nack.delivery && nack.delay_ms == -1 && !nack.dead &&
	      !nack.reason.p);
	CHECK(words_next_nack(&text, &nack, &error) == 1);
	CHECK(nack.sequence == 43 && nack.delivery == 7 && nack.delay_ms == 5000 && !nack.dead);
	CHECK(words_next_nack(&text, &nack, &error) == 1);
	CHECK(nack.sequence == 44 && nack.dead && bytes_equal(nack.reason, BYTES("it is bad: 1")));
	CHECK(words_next_nack(&text, &nack, &error) == 1);
	CHECK(nack.sequence == 45 && nack.delivery == 8 && nack.dead && !nack.reason.p);
	CHECK(words_next_nack(&text, &nack, &error) == 0);
}

static void test_nack_refused(void)
{
	static const char *const bad[] = {"0",		 "x",	       "42 43",	   "42 delay",
					  "42 delay=",	 "42 delay=x", "42 dlqx",  "42 delay=1 2",
					  "42 delay=-1", "40-45",      "42 DLQ x", "delay=5 42"};
	struct store_group_nack nack;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct bytes text = bytes_of(bad[i]);
		int rc = words_next_nack(&text, &nack, &error);
		if (rc != -EINVAL)
			printf("accepted: %s\n", bad[i]);
		CHECK(rc == -EINVAL && strstr(error.text, bad[i]));
	}
}

static void test_numbers(void)
{
	struct bytes text = BYTES("7 08\nall\n");
	uint64_t number;

	CHECK(words_next_number(&text, &number, &error) == 1 && number == 7);
	CHECK(words_next_number(&text, &number, &error) == 1 && number == 8);
	CHECK(words_next_number(&text, &number, &error) == 1 && number == 0);
	CHECK(words_next_number(&text, &number, &error) == 0);
	text = BYTES("0");
	CHECK(words_next_number(&text, &number, &error) == -EINVAL);
	text = BYTES("7.json");
	CHECK(words_next_number(&text, &number, &error) == -EINVAL);
	text = BYTES("ALL");
	CHECK(words_next_number(&text, &number, &error) == -EINVAL);
}

int main(void)
{
	RUN(test_offset);
	RUN(test_offset_refused);
	RUN(test_ack);
	RUN(test_ack_refused);
	RUN(test_nack);
	RUN(test_nack_refused);
	RUN(test_numbers);
	return test_summary();
}
