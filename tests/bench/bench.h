/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the benchmark's programs share: `bench` works on files, whoever serves them, `bench_redis`
 * and `bench_nats` do the same jobs with what people use instead. Each job prints its numbers in
 * one line. These are tools: what goes wrong ends the program with a message and exit code 1.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define LINE_SIZE 390	  /* bytes of an event's line, its newline included */
#define KEYS	  1000000 /* distinct keys of a collection */

/* ---- the job ---- */

enum bench_sync { SYNC_NONE, SYNC_FSYNC, SYNC_DSYNC };
enum bench_keys { KEYS_DRAWN, KEYS_EACH_ONCE };

struct bench_options {
	uint64_t events;
	double seconds; /* the end, if the events have not been written by then */
	size_t batch;	/* lines a write, a request or a read */
	unsigned writers;
	size_t read_size;
	enum bench_sync sync;
	enum bench_keys keys;
	const char *collection;
	const char *type; /* of the events */
	char **args;	  /* what follows the options, NULL behind the last */
	int count;
};

struct bench_job {
	const char *name;
	int args;
	void (*run)(const struct bench_options *options);
	const char *usage;
};

/* Reads the arguments and runs the job that they name; returns the program's exit code. */
int bench_main(int argc, char **argv, const struct bench_job *jobs, size_t count);
/* Both print and exit; `fatal` says what errno means. */
void fatal(const char *what) __attribute__((noreturn));
void fatal_text(const char *what, const char *why) __attribute__((noreturn));
void *must_have(void *p); /* for what malloc gave */

/* ---- time and chance ---- */

uint64_t now_ns(void);
void pause_ns(uint64_t ns);
/* The next number of a sequence that is the same in every run; the state must not be 0. */
uint64_t draw(uint64_t *state);

/* Latencies in nanoseconds, collected and printed as percentiles in microseconds. */
struct samples {
	uint64_t *p;
	size_t n;
	size_t capacity;
};

void samples_init(struct samples *samples, size_t capacity);
bool samples_full(const struct samples *samples);
void samples_add(struct samples *samples, uint64_t ns);
void samples_print(struct samples *samples); /* p50 p99 max; frees */
/* Takes the time of each line that carries one, as seen now. */
void samples_add_lines(struct samples *samples, const char *p, size_t n);

/* ---- events ---- */

/* A ring of lines that differ, of which each use writes new keys into some. */
struct lines {
	char *text;
	size_t count;
	size_t at;
	size_t key_offset;
	size_t id_offset;
	size_t stamp_offset;
	uint64_t made;
	uint64_t start; /* of the keys, when each comes once */
	uint64_t state;
	enum bench_keys keys;
};

/* The lines for one writer of several; `batch` is the most that will be asked for at once. */
void lines_init(struct lines *lines, const struct bench_options *options, unsigned writer);
/* The next n lines, back to back, n * LINE_SIZE bytes. Borrowed until the next call. */
const char *lines_next(struct lines *lines, size_t n);
void lines_free(struct lines *lines);

/* ---- appending, common to all ---- */

struct append_way {
	/* Each writer opens its own. */
	void *(*open)(const struct bench_options *options, unsigned writer);
	void (*write)(void *way, const char *lines, size_t n);
	/* Waits until all that was written is acknowledged; NULL: it is when `write` returns. */
	void (*finish)(void *way);
	void (*close)(void *way);
};

/* Prints the events a second of all writers together. */
void append_run(const struct bench_options *options, const struct append_way *way);
/* ---- consumer groups, common to all ---- */

/* Takes up to `batch` events of a group and acknowledges each; returns how many there were. */
typedef size_t take_and_acknowledge(void *way, size_t batch);
/* Prints the events a second, to -n or for -t seconds. `finish` (or NULL) waits until the server
 * has all that was acknowledged. */
void group_run(const struct bench_options *options, take_and_acknowledge *take,
	       void (*finish)(void *way), void *way);

/* Prints what one second got of a count since `start`. */
void print_rate(double count, uint64_t start);
/* Runs a function in a child process; `child_end` waits for it, and it must have done well. */
pid_t child_start(void (*run)(const struct bench_options *options),
		  const struct bench_options *options);
void child_end(pid_t child);
/* One line each millisecond, from -n. */
void drip(const struct bench_options *options, const struct append_way *way);
