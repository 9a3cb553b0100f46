/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/group_words.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip(struct bytes *text, size_t n)
{
	text->p += n;
	text->n -= n;
}

static void skip_blanks(struct bytes *text)
{
	while (text->n && is_blank(*text->p))
		skip(text, 1);
}

static struct bytes next_word(struct bytes *text)
{
	struct bytes word = {text->p, 0};

	skip_blanks(text);
	word.p = text->p;
	while (text->n && !is_blank(*text->p)) {
		word.n++;
		skip(text, 1);
	}
	return word;
}

/* Takes digits off. False without any, or above the largest. */
static bool take_number(struct bytes *text, uint64_t *ret_number)
{
	uint64_t number = 0;
	size_t digits = 0;

	while (text->n && *text->p >= '0' && *text->p <= '9') {
		number = number * 10 + (uint64_t)(*text->p - '0');
		if (number > STORE_SEQUENCE_MAX)
			return false;
		skip(text, 1);
		digits++;
	}
	*ret_number = number;
	return digits > 0;
}

static bool take_char(struct bytes *text, char c)
{
	if (!text->n || *text->p != c)
		return false;
	skip(text, 1);
	return true;
}

/* A word in an error's sentence. */
#define SHOWN(word) (int)((word).n < 60 ? (word).n : 60), (word).p

/* ---- times ---- */

/* `digits` digits. */
static bool take_field(struct bytes *text, size_t digits, int min, int max, int *ret_field)
{
	struct bytes field = {text->p, digits};
	uint64_t number;

	if (text->n < digits || !take_number(&field, &number) || field.n ||
	    number < (uint64_t)min || number > (uint64_t)max)
		return false;
	skip(text, digits);
	*ret_field = (int)number;
	return true;
}

/* The first millisecond that is not before the fraction of a second. */
static bool take_fraction(struct bytes *text, int64_t *ret_ms)
{
	int64_t ms = 0;
	size_t digits = 0;
	bool rest = false;

	if (!take_char(text, '.'))
		return true;
	for (; text->n && *text->p >= '0' && *text->p <= '9'; digits++) {
		if (digits < 3)
			ms = ms * 10 + (*text->p - '0');
		else
			rest |= *text->p != '0';
		skip(text, 1);
	}
	for (size_t i = digits; i < 3; i++)
		ms *= 10;
	*ret_ms = ms + rest;
	return digits > 0;
}

static bool take_zone(struct bytes *text, int *ret_minutes)
{
	int hours, minutes;
	bool west = text->n && *text->p == '-';

	*ret_minutes = 0;
	if (take_char(text, 'Z') || take_char(text, 'z'))
		return true;
	if (!west && !(text->n && *text->p == '+'))
		return false;
	skip(text, 1);
	if (!take_field(text, 2, 0, 23, &hours) || !take_char(text, ':') ||
	    !take_field(text, 2, 0, 59, &minutes))
		return false;
	*ret_minutes = (hours * 60 + minutes) * (west ? -1 : 1);
	return true;
}

static bool read_time(struct bytes text, int64_t *ret_ms)
{
	struct tm tm = {0}, given;
	int64_t ms = 0;
	int minutes;

	if (!take_field(&text, 4, 0, 9999, &tm.tm_year) || !take_char(&text, '-') ||
	    !take_field(&text, 2, 1, 12, &tm.tm_mon) || !take_char(&text, '-') ||
	    !take_field(&text, 2, 1, 31, &tm.tm_mday) ||
	    !(take_char(&text, 'T') || take_char(&text, 't') || take_char(&text, ' ')) ||
	    !take_field(&text, 2, 0, 23, &tm.tm_hour) || !take_char(&text, ':') ||
	    !take_field(&text, 2, 0, 59, &tm.tm_min) || !take_char(&text, ':') ||
	    !take_field(&text, 2, 0, 60, &tm.tm_sec) || !take_fraction(&text, &ms) ||
	    !take_zone(&text, &minutes) || text.n)
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	given = tm;
	time_t seconds = timegm(&tm);
	if (tm.tm_mday != given.tm_mday && given.tm_sec < 60)
		return false; /* no such day in that month */
	*ret_ms = ((int64_t)seconds - (int64_t)minutes * 60) * 1000 + ms;
	return true;
}

/* ---- offset ---- */

static bool read_move(struct bytes word, enum store_group_move *ret_move, int64_t *ret_number)
{
	bool back = word.n && *word.p == '-';
	uint64_t number;

	*ret_number = 0;
	*ret_move = STORE_MOVE_COMMIT;
	if (bytes_equal(word, BYTES("earliest")) || bytes_equal(word, BYTES("latest"))) {
		*ret_move = *word.p == 'e' ? STORE_MOVE_EARLIEST : STORE_MOVE_LATEST;
		return true;
	}
	if (take_char(&word, '@')) {
		*ret_move = STORE_MOVE_TIME;
		return read_time(word, ret_number);
	}
	if (back || (word.n && *word.p == '+')) {
		*ret_move = STORE_MOVE_BY;
		skip(&word, 1);
	}
	if (!take_number(&word, &number) || word.n)
		return false;
	*ret_number = back ? -(int64_t)number : (int64_t)number;
	return true;
}

int words_offset(struct bytes text, enum store_group_move *ret_move, int64_t *ret_number,
		 struct error *error)
{
	skip_blanks(&text);
	while (text.n && is_blank(text.p[text.n - 1]))
		text.n--;
	if (read_move(text, ret_move, ret_number))
		return 0;
	return error_set(error, -EINVAL,
			 "'%.*s' is no place: it is a number, earliest, latest, +N, -N or "
			 "@2026-01-31T12:00:00Z",
			 SHOWN(text));
}

/* ---- events and deliveries ---- */

static bool take_delivery(struct bytes *word, uint64_t *ret_delivery)
{
	*ret_delivery = 0;
	if (!take_char(word, '#'))
		return true;
	return take_number(word, ret_delivery) && *ret_delivery > 0;
}

static bool read_ack(struct bytes word, struct store_group_ack *ret_ack)
{
	*ret_ack = (struct store_group_ack){0};
	if (!take_number(&word, &ret_ack->from) || !ret_ack->from)
		return false;
	ret_ack->to = ret_ack->from;
	if (take_char(&word, '-'))
		return take_number(&word, &ret_ack->to) && ret_ack->to >= ret_ack->from && !word.n;
	return take_delivery(&word, &ret_ack->delivery) && !word.n;
}

int words_next_ack(struct bytes *text, struct store_group_ack *ret_ack, struct error *error)
{
	struct bytes word = next_word(text);

	if (!word.n)
		return 0;
	if (!read_ack(word, ret_ack))
		return error_set(error, -EINVAL,
				 "'%.*s' is none of 42, 40-45 and 42#DELIVERY: nothing of this "
				 "write counts",
				 SHOWN(word));
	return 1;
}

static bool read_nack(struct bytes line, struct store_group_nack *ret_nack)
{
	struct bytes word = next_word(&line);
	uint64_t delay;

	*ret_nack = (struct store_group_nack){.delay_ms = -1};
	if (!take_number(&word, &ret_nack->sequence) || !ret_nack->sequence ||
	    !take_delivery(&word, &ret_nack->delivery) || word.n)
		return false;
	word = next_word(&line);
	skip_blanks(&line);
	if (bytes_equal(word, BYTES("dlq"))) {
		ret_nack->dead = true;
		if (line.n)
			ret_nack->reason = line;
		return true;
	}
	if (word.n) {
		if (!bytes_start_with(word, BYTES("delay=")))
			return false;
		skip(&word, strlen("delay="));
		if (!take_number(&word, &delay) || word.n)
			return false;
		ret_nack->delay_ms = (int64_t)delay;
	}
	return !line.n;
}

int words_next_nack(struct bytes *text, struct store_group_nack *ret_nack, struct error *error)
{
	skip_blanks(text);
	if (!text->n)
		return 0;
	const char *end = memchr(text->p, '\n', text->n);
	struct bytes line = {text->p, end ? (size_t)(end - text->p) : text->n};
	skip(text, line.n);
	while (line.n && is_blank(line.p[line.n - 1]))
		line.n--;
	if (!read_nack(line, ret_nack))
		return error_set(error, -EINVAL,
				 "'%.*s' is none of 42, 42 delay=MILLISECONDS and 42 dlq REASON: "
				 "nothing of this write counts",
				 SHOWN(line));
	return 1;
}

int words_next_number(struct bytes *text, uint64_t *ret_number, struct error *error)
{
	struct bytes word = next_word(text), digits = word;

	if (!word.n)
		return 0;
	*ret_number = 0;
	if (bytes_equal(word, BYTES("all")))
		return 1;
	if (!take_number(&digits, ret_number) || digits.n || !*ret_number)
		return error_set(error, -EINVAL, "'%.*s' is neither a number nor 'all'",
				 SHOWN(word));
	return 1;
}
