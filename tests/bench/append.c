/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>

#include "bench.h"

struct writer {
	const struct bench_options *options;
	const struct append_way *way;
	pthread_barrier_t *ready;
	unsigned number;
	uint64_t written;
	uint64_t end;
};

static void *write_all(void *data)
{
	struct writer *w = data;
	uint64_t left = w->options->events / w->options->writers;
	struct lines lines;

	lines_init(&lines, w->options, w->number);
	void *way = w->way->open(w->options, w->number);
	pthread_barrier_wait(w->ready);
	uint64_t deadline = now_ns() + (uint64_t)(w->options->seconds * 1e9);
	while (left && now_ns() < deadline) {
		size_t n = left < w->options->batch ? (size_t)left : w->options->batch;
		w->way->write(way, lines_next(&lines, n), n);
		w->written += n;
		left -= n;
	}
	if (w->way->finish)
		w->way->finish(way);
	w->end = now_ns();
	w->way->close(way);
	lines_free(&lines);
	return NULL;
}

void append_run(const struct bench_options *options, const struct append_way *way)
{
	struct writer *writers = must_have(calloc(options->writers, sizeof(*writers)));
	pthread_t *threads = must_have(calloc(options->writers, sizeof(*threads)));
	pthread_barrier_t ready;
	uint64_t written = 0, end = 0;

	pthread_barrier_init(&ready, NULL, options->writers + 1);
	for (unsigned i = 0; i < options->writers; i++) {
		writers[i] = (struct writer){options, way, &ready, i, 0, 0};
		if (pthread_create(&threads[i], NULL, write_all, &writers[i]) != 0)
			fatal_text("a writer", "no thread for it");
	}
	pthread_barrier_wait(&ready);
	uint64_t start = now_ns();
	for (unsigned i = 0; i < options->writers; i++) {
		pthread_join(threads[i], NULL);
		written += writers[i].written;
		end = writers[i].end > end ? writers[i].end : end;
	}
	printf("%.1f\n", (double)written / ((double)(end - start) / 1e9));
	pthread_barrier_destroy(&ready);
	free(threads);
	free(writers);
}

void drip(const struct bench_options *options, const struct append_way *way)
{
	struct bench_options one = *options;
	struct lines lines;

	one.batch = 1;
	lines_init(&lines, &one, 0);
	void *to = way->open(&one, 0);
	pause_ns(300000000); /* the reader is to be there */
	for (uint64_t i = 0; i < options->events; i++) {
		pause_ns(1000000);
		way->write(to, lines_next(&lines, 1), 1);
	}
	way->close(to);
	lines_free(&lines);
}
