/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

/* ---- the job ---- */

void fatal(const char *what)
{
	fatal_text(what, strerror(errno));
}

void fatal_text(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
	exit(EXIT_FAILURE);
}

void *must_have(void *p)
{
	if (!p)
		fatal("memory");
	return p;
}

static int usage(const struct bench_job *jobs, size_t count)
{
	fprintf(stderr,
		"usage: %s JOB [OPTION]... ARGUMENT...\n"
		"  -n EVENTS  -t SECONDS  -b LINES  -w WRITERS  -r BYTES\n"
		"  -s none|fsync|dsync  -k drawn|once  -c COLLECTION  -T TYPE\n",
		program_invocation_short_name);
	for (size_t i = 0; i < count; i++)
		fprintf(stderr, "  %-9s %s\n", jobs[i].name, jobs[i].usage);
	return 2;
}

static double number(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || value < 0)
		fatal_text(text, "not a number");
	return value;
}

/* The index of a word in a list that ends in NULL. */
static int choice(const char *word, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (strcmp(word, words[i]) == 0)
			return i;
	fatal_text(word, "no such choice");
}

static bool read_option(struct bench_options *options, int letter, const char *text)
{
	static const char *const syncs[] = {"none", "fsync", "dsync", NULL};
	static const char *const keys[] = {"drawn", "once", NULL};

	switch (letter) {
	case 'n':
		options->events = (uint64_t)number(text);
		return true;
	case 't':
		options->seconds = number(text);
		return true;
	case 'b':
		options->batch = (size_t)number(text);
		return true;
	case 'w':
		options->writers = (unsigned)number(text);
		return true;
	case 'r':
		options->read_size = (size_t)number(text);
		return true;
	case 's':
		options->sync = (enum bench_sync)choice(text, syncs);
		return true;
	case 'k':
		options->keys = (enum bench_keys)choice(text, keys);
		return true;
	case 'c':
		options->collection = text;
		return true;
	case 'T':
		options->type = text;
		return true;
	default:
		return false;
	}
}

int bench_main(int argc, char **argv, const struct bench_job *jobs, size_t count)
{
	struct bench_options options = {.events = UINT64_MAX,
					.seconds = 1e9,
					.batch = 1000,
					.writers = 1,
					.read_size = 1 << 20,
					.collection = "orders",
					.type = "PUT"};
	size_t job = 0;
	int letter;

	while (argc > 1 && job < count && strcmp(jobs[job].name, argv[1]) != 0)
		job++;
	if (argc < 2 || job == count)
		return usage(jobs, count);
	while ((letter = getopt(argc - 1, argv + 1, "+n:t:b:w:r:s:k:c:T:")) >= 0)
		if (!read_option(&options, letter, optarg))
			return usage(jobs, count);
	options.args = argv + 1 + optind;
	options.count = argc - 1 - optind;
	if (options.count != jobs[job].args || !options.batch || !options.writers)
		return usage(jobs, count);
	jobs[job].run(&options);
	return EXIT_SUCCESS;
}

pid_t child_start(void (*run)(const struct bench_options *options),
		  const struct bench_options *options)
{
	fflush(stdout);
	pid_t child = fork();
	if (child < 0)
		fatal("fork");
	if (child > 0)
		return child;
	run(options);
	_exit(EXIT_SUCCESS);
}

void child_end(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) < 0)
		fatal("waiting for the writer");
	if (status != 0)
		fatal_text("the writer", "it failed");
}

/* ---- time and chance ---- */

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void pause_ns(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
			     .tv_nsec = (long)(ns % 1000000000)};

	nanosleep(&t, NULL);
}

/* Marsaglia's xorshift, 64 bits. */
uint64_t draw(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

void samples_init(struct samples *samples, size_t capacity)
{
	samples->p = must_have(calloc(capacity, sizeof(*samples->p)));
	samples->n = 0;
	samples->capacity = capacity;
}

bool samples_full(const struct samples *samples)
{
	return samples->n == samples->capacity;
}

void samples_add(struct samples *samples, uint64_t ns)
{
	if (!samples_full(samples))
		samples->p[samples->n++] = ns;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void samples_print(struct samples *samples)
{
	size_t n = samples->n;

	if (!n)
		fatal_text("latency", "nothing was measured");
	const uint64_t *p = samples->p, *median = p + n / 2, *late = p + n * 99 / 100;
	qsort(samples->p, n, sizeof(*samples->p), compare);
	printf("%.1f %.1f %.1f\n", (double)*median / 1e3, (double)*late / 1e3,
	       (double)p[n - 1] / 1e3);
	free(samples->p);
	samples->p = NULL;
}

void group_run(const struct bench_options *options, take_and_acknowledge *take,
	       void (*finish)(void *way), void *way)
{
	uint64_t start = now_ns(), deadline = start + (uint64_t)(options->seconds * 1e9);
	uint64_t left = options->events;

	while (left && now_ns() < deadline) {
		size_t n = take(way, left < options->batch ? (size_t)left : options->batch);
		if (!n || n > left)
			fatal_text("group", "not the events that were asked for");
		left -= n;
	}
	if (finish)
		finish(way);
	print_rate((double)(options->events - left), start);
}

void print_rate(double count, uint64_t start)
{
	printf("%.1f\n", count / ((double)(now_ns() - start) / 1e9));
}
