/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events: JSON lines of exactly LINE_SIZE bytes, as an order table's rows would be. Making them
 * must cost little beside writing them: a ring of lines is made once, and each use changes a key
 * and the time.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define RING	     4096
#define KEY_DIGITS   12
#define STAMP_DIGITS 20
#define STAMP	     "sent_ns"

static const char *const words[] = {
	"red",	   "wooden",  "chair", "with",	  "a",	    "leather", "seat",	"delivered",
	"to",	   "the",     "back",  "door",	  "please", "ring",    "twice", "gift",
	"wrapped", "invoice", "by",    "mail",	  "blue",   "carpet",  "two",	"metres",
	"long",	   "table",   "lamp",  "without", "bulb",   "garden",  "large", "returned",
};

static void put_digits(char *p, size_t width, uint64_t value)
{
	while (width--) {
		p[width] = (char)('0' + value % 10);
		value /= 10;
	}
}

/* Fills up with words, the end of the line included. */
static void fill(char *line, size_t n, uint64_t *state)
{
	static const char end[] = "\"}}\n";
	size_t last = LINE_SIZE - (sizeof(end) - 1);

	while (n < last) {
		const char *word = words[draw(state) % (sizeof(words) / sizeof(*words))];
		for (; *word && n < last; word++)
			line[n++] = *word;
		if (n < last)
			line[n++] = ' ';
	}
	memcpy(line + last, end, sizeof(end) - 1);
}

static void make_line(char *line, const struct bench_options *options, uint64_t *state)
{
	static const char *const states[] = {"pending", "paid", "packed", "shipped"};
	uint64_t r = draw(state);
	int n = snprintf(line, LINE_SIZE,
			 "{\"type\":\"%s\",\"key\":\"%s:%0*d\",\"timestamp_ms\":%llu,"
			 "\"value\":{\"id\":\"%0*d\",\"" STAMP "\":\"%0*d\","
			 "\"status\":\"%s\",\"customer\":%llu,\"total\":%llu.%02llu,"
			 "\"hash\":\"%016llx\",\"note\":\"",
			 options->type, options->collection, KEY_DIGITS, 0,
			 1730294567123ULL + (unsigned long long)(r >> 40), KEY_DIGITS, 0,
			 STAMP_DIGITS, 0, states[r % 4], (unsigned long long)(r >> 8) % 100000,
			 (unsigned long long)(r >> 24) % 10000, (unsigned long long)(r >> 32) % 100,
			 (unsigned long long)draw(state));

	if (n < 0 || n > LINE_SIZE - 8)
		fatal_text("the line", "the collection's name is too long");
	fill(line, (size_t)n, state);
}

static size_t offset_of(const char *line, const char *mark)
{
	const char *at = memmem(line, LINE_SIZE, mark, strlen(mark));

	return (size_t)(at - line) + strlen(mark);
}

void lines_init(struct lines *lines, const struct bench_options *options, unsigned writer)
{
	size_t count =
		options->batch > RING ? options->batch : RING / options->batch * options->batch;
	char mark[128];

	*lines = (struct lines){
		.text = must_have(malloc(count * LINE_SIZE)),
		.count = count,
		.state = UINT64_C(0x9e3779b97f4a7c15) * (writer + 1),
		.start = (uint64_t)writer * (KEYS / options->writers),
		.keys = options->keys,
	};
	for (size_t i = 0; i < count; i++)
		make_line(lines->text + i * LINE_SIZE, options, &lines->state);
	snprintf(mark, sizeof(mark), "\"key\":\"%s:", options->collection);
	lines->key_offset = offset_of(lines->text, mark);
	lines->id_offset = offset_of(lines->text, "\"id\":\"");
	lines->stamp_offset = offset_of(lines->text, "\"" STAMP "\":\"");
}

/* Drawn from all keys; or each once, in an order that is not theirs (618,033 and KEYS have no
 * common divisor). */
static uint64_t next_key(struct lines *lines)
{
	if (lines->keys == KEYS_DRAWN)
		return draw(&lines->state) % KEYS;
	return (lines->start + lines->made) * 618033 % KEYS;
}

const char *lines_next(struct lines *lines, size_t n)
{
	uint64_t now = now_ns();

	if (lines->at + n > lines->count)
		lines->at = 0;
	char *first = lines->text + lines->at * LINE_SIZE;
	for (size_t i = 0; i < n; i++) {
		char *line = first + i * LINE_SIZE;
		uint64_t key = next_key(lines);
		put_digits(line + lines->key_offset, KEY_DIGITS, key);
		put_digits(line + lines->id_offset, KEY_DIGITS, key);
		put_digits(line + lines->stamp_offset, STAMP_DIGITS, now);
		lines->made++;
	}
	lines->at += n;
	return first;
}

void lines_free(struct lines *lines)
{
	free(lines->text);
	lines->text = NULL;
}

/* The stamp is looked for by its name, since changefs shows a document inside a string. */
void samples_add_lines(struct samples *samples, const char *p, size_t n)
{
	const char *end = p + n;
	uint64_t now = now_ns();

	while (p < end) {
		const char *newline = memchr(p, '\n', (size_t)(end - p));
		const char *stop = newline ? newline : end;
		const char *stamp = memmem(p, (size_t)(stop - p), STAMP, strlen(STAMP));
		while (stamp && stamp < stop && (*stamp < '0' || *stamp > '9'))
			stamp++;
		if (stamp && stamp + STAMP_DIGITS <= stop)
			samples_add(samples, now - strtoull(stamp, NULL, 10));
		p = newline ? newline + 1 : end;
	}
}
