/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs on files: changefs's, or plain ones. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

#define PATH_SIZE 4096

static int must_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0)
		fatal(path);
	return fd;
}

/* ---- append ---- */

struct file_writer {
	int fd;
	bool fsync;
};

static void *file_open(const struct bench_options *options, unsigned writer)
{
	struct file_writer *w = must_have(malloc(sizeof(*w)));
	int dsync = options->sync == SYNC_DSYNC ? O_DSYNC : 0;

	(void)writer;
	w->fd = must_open(options->args[0], O_WRONLY | O_APPEND | O_CREAT | dsync);
	w->fsync = options->sync == SYNC_FSYNC;
	return w;
}

static void file_write(void *way, const char *lines, size_t n)
{
	struct file_writer *w = way;
	ssize_t size = (ssize_t)(n * LINE_SIZE), done = write(w->fd, lines, (size_t)size);

	if (done >= 0 && done < size)
		fatal_text("write", "it was short");
	if (done < 0)
		fatal("write");
	if (w->fsync && fdatasync(w->fd) < 0)
		fatal("fdatasync");
}

static void file_close(void *way)
{
	struct file_writer *w = way;

	close(w->fd);
	free(w);
}

static const struct append_way file_way = {file_open, file_write, NULL, file_close};

void files_append(const struct bench_options *options)
{
	append_run(options, &file_way);
}

/* ---- read ---- */

void files_read(const struct bench_options *options)
{
	int fd = must_open(options->args[0], O_RDONLY);
	char *p = must_have(malloc(options->read_size));
	uint64_t total = 0, start = now_ns();
	ssize_t n;

	while ((n = read(fd, p, options->read_size)) > 0)
		total += (uint64_t)n;
	if (n < 0)
		fatal(options->args[0]);
	print_rate((double)total / 1e6, start);
	free(p);
	close(fd);
}

/* ---- latency ---- */

static void drip_file(const struct bench_options *options)
{
	drip(options, &file_way);
}

/* A plain file ends where changefs's waits: then inotify tells of more. */
static void wait_for_more(int watch)
{
	char event[4096];

	if (read(watch, event, sizeof(event)) < 0)
		fatal("inotify");
}

void files_latency(const struct bench_options *options)
{
	const char *tail = options->args[1];
	int fd = must_open(tail, O_RDONLY | O_CREAT), watch = inotify_init1(IN_CLOEXEC);
	char *p = must_have(malloc(options->read_size));
	struct samples samples;

	if (watch < 0 || inotify_add_watch(watch, tail, IN_MODIFY) < 0)
		fatal("inotify");
	samples_init(&samples, options->events);
	pid_t writer = child_start(drip_file, options);
	while (!samples_full(&samples)) {
		ssize_t n = read(fd, p, options->read_size);
		if (n < 0)
			fatal(tail);
		if (n > 0)
			samples_add_lines(&samples, p, (size_t)n);
		else
			wait_for_more(watch);
	}
	child_end(writer);
	samples_print(&samples);
	free(p);
	close(watch);
	close(fd);
}

/* ---- single events ---- */

static void event_path(char path[PATH_SIZE], const char *dir, uint64_t sequence)
{
	snprintf(path, PATH_SIZE, "%s/%016llu.json", dir, (unsigned long long)sequence);
}

void files_make(const struct bench_options *options)
{
	struct bench_options one = *options;
	struct lines lines;
	char path[PATH_SIZE];

	one.batch = 1;
	lines_init(&lines, &one, 0);
	for (uint64_t i = 1; i <= options->events; i++) {
		event_path(path, options->args[0], i);
		int fd = must_open(path, O_WRONLY | O_CREAT);
		if (write(fd, lines_next(&lines, 1), LINE_SIZE) != LINE_SIZE)
			fatal(path);
		close(fd);
	}
	lines_free(&lines);
}

static void open_each(const char *dir, const uint64_t *sequences, size_t n)
{
	char path[PATH_SIZE], text[4096];
	uint64_t start = now_ns();

	for (size_t i = 0; i < n; i++) {
		event_path(path, dir, sequences[i]);
		int fd = must_open(path, O_RDONLY);
		if (read(fd, text, sizeof(text)) <= 0)
			fatal(path);
		close(fd);
	}
	print_rate((double)n, start);
}

/* Random ones of -n events, -b of them, one after the other: two lines, the first time and again.
 * A few are met twice in the first round, which does not matter. */
void files_open(const struct bench_options *options)
{
	uint64_t *sequences = must_have(calloc(options->batch, sizeof(*sequences)));
	uint64_t state = UINT64_C(88172645463325252);

	for (size_t i = 0; i < options->batch; i++)
		sequences[i] = 1 + draw(&state) % options->events;
	open_each(options->args[0], sequences, options->batch);
	open_each(options->args[0], sequences, options->batch);
	free(sequences);
}

/* ---- consumer groups ---- */

struct group_reader {
	int events, ack;
	size_t size; /* of both buffers */
	char *lines, *words;
};

/* As many as the group's configuration puts into a read; each is acknowledged by its sequence and
 * its delivery. */
static size_t group_take(void *way, size_t batch)
{
	struct group_reader *g = way;
	ssize_t size = read(g->events, g->lines, g->size);
	char *word = g->words;
	size_t count = 0;

	(void)batch;
	if (size <= 0)
		fatal("reading the group");
	for (char *p = g->lines, *end = p + size, *next; p < end; p = next, count++) {
		next = memchr(p, '\n', (size_t)(end - p));
		if (!next++)
			fatal_text("reading the group", "a line was cut");
		/* {"sequence":42,…,"delivery":{"group":…,"attempt":1,"id":7}} */
		word += sprintf(word, "%llu#%llu\n",
				strtoull(p + strlen("{\"sequence\":"), NULL, 10),
				strtoull((char *)memrchr(p, ':', (size_t)(next - p)) + 1, NULL,
					 10));
	}
	if (write(g->ack, g->words, (size_t)(word - g->words)) != word - g->words)
		fatal("acknowledging");
	return count;
}

void files_group(const struct bench_options *options)
{
	char path[PATH_SIZE];
	struct group_reader g = {.size = options->read_size};

	g.lines = must_have(malloc(g.size));
	g.words = must_have(malloc(g.size));
	snprintf(path, sizeof(path), "%s/ack", options->args[0]);
	g.ack = must_open(path, O_WRONLY);
	snprintf(path, sizeof(path), "%s/events", options->args[0]);
	g.events = must_open(path, O_RDONLY);
	group_run(options, group_take, NULL, &g);
	close(g.events);
	close(g.ack);
	free(g.words);
	free(g.lines);
}

/* ---- many readers ---- */

static void *read_for_ever(void *data)
{
	char p[4096];
	int fd = must_open(data, O_RDONLY);

	while (read(fd, p, sizeof(p)) > 0)
		;
	close(fd);
	return NULL;
}

static unsigned long field_of(const char *path, const char *name)
{
	char text[8192];
	int fd = must_open(path, O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	if (n < 0)
		fatal(path);
	text[n] = 0;
	const char *at = strstr(text, name);
	if (!at)
		fatal_text(path, "a field is missing");
	return strtoul(at + strlen(name), NULL, 10);
}

static void start_readers(const struct bench_options *options, char *tail)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	for (unsigned i = 0; i < options->writers; i++)
		if (pthread_create(&thread, &attr, read_for_ever, tail) != 0)
			fatal_text("a reader", "no thread for it");
	pthread_attr_destroy(&attr);
}

static void wait_for_readers(const char *stats, unsigned long count)
{
	uint64_t deadline = now_ns() + UINT64_C(60000000000);

	while (field_of(stats, "\"waiting\": ") < count) {
		if (now_ns() > deadline)
			fatal_text(stats, "the readers do not wait");
		pause_ns(10000000);
	}
}

/* -w readers of TAIL; then the time of a stat of FILE, which the daemon has to answer each time,
 * and the daemon's resident KiB without and with them. */
void files_readers(const struct bench_options *options)
{
	char *tail = options->args[1], status[64];
	struct samples samples;
	struct stat st;

	snprintf(status, sizeof(status), "/proc/%s/status", options->args[0]);
	unsigned long before = field_of(status, "VmRSS:");
	start_readers(options, tail);
	wait_for_readers(options->args[2], options->writers);
	samples_init(&samples, options->events);
	while (!samples_full(&samples)) {
		uint64_t start = now_ns();
		if (stat(options->args[3], &st) < 0)
			fatal(options->args[3]);
		samples_add(&samples, now_ns() - start);
		pause_ns(1000000);
	}
	samples_print(&samples);
	printf("%lu %lu\n", before, field_of(status, "VmRSS:"));
	fflush(stdout);
	_exit(EXIT_SUCCESS); /* the readers would wait for ever */
}
