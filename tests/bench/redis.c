/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs with Redis Streams. The first argument is the server's port. */
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define STREAM "events"
#define GROUP  "group"

static redisContext *connect_to(const struct bench_options *options)
{
	redisContext *c = redisConnect("127.0.0.1", (int)strtol(options->args[0], NULL, 10));

	if (!c || c->err)
		fatal_text("connecting", c ? c->errstr : "no memory");
	return c;
}

static redisReply *checked(const redisContext *c, void *reply)
{
	redisReply *r = reply;

	if (!r)
		fatal_text("redis", c->errstr);
	if (r->type == REDIS_REPLY_ERROR)
		fatal_text("redis", r->str);
	return r;
}

/* ---- append ---- */

static void *writer_open(const struct bench_options *options, unsigned writer)
{
	(void)writer;
	return connect_to(options);
}

/* A pipeline: all commands, then all answers. */
static void writer_write(void *way, const char *lines, size_t n)
{
	redisContext *c = way;
	void *reply;

	for (size_t i = 0; i < n; i++)
		redisAppendCommand(c, "XADD " STREAM " * d %b", lines + i * LINE_SIZE,
				   (size_t)LINE_SIZE - 1);
	for (size_t i = 0; i < n; i++) {
		if (redisGetReply(c, &reply) != REDIS_OK)
			fatal_text("redis", c->errstr);
		freeReplyObject(checked(c, reply));
	}
}

static void writer_close(void *way)
{
	redisFree(way);
}

static const struct append_way redis_way = {writer_open, writer_write, NULL, writer_close};

static void append(const struct bench_options *options)
{
	append_run(options, &redis_way);
}

/* ---- read ---- */

/* An entry is [id, [field, value]]. */
static const char *id_of(const redisReply *entry)
{
	return entry->element[0]->str;
}

static const redisReply *value_of(const redisReply *entry)
{
	return entry->element[1]->element[1];
}

static void read_all(const struct bench_options *options)
{
	redisContext *c = connect_to(options);
	char from[64] = "-";
	uint64_t total = 0, start = now_ns();

	for (;;) {
		redisReply *r = checked(c, redisCommand(c, "XRANGE " STREAM " %s + COUNT %d", from,
							(int)options->batch));
		for (size_t i = 0; i < r->elements; i++)
			total += value_of(r->element[i])->len + 1;
		size_t n = r->elements;
		if (n)
			snprintf(from, sizeof(from), "(%s", id_of(r->element[n - 1]));
		freeReplyObject(r);
		if (!n)
			break;
	}
	print_rate((double)total / 1e6, start);
	redisFree(c);
}

static void get(const struct bench_options *options)
{
	redisContext *c = connect_to(options);
	redisReply *all = checked(c, redisCommand(c, "XRANGE " STREAM " - + COUNT 100000"));
	uint64_t state = UINT64_C(88172645463325252), start = now_ns();

	if (!all->elements)
		fatal_text("get", "the stream is empty");
	for (size_t i = 0; i < options->batch; i++) {
		const char *id = id_of(all->element[draw(&state) % all->elements]);
		freeReplyObject(checked(c, redisCommand(c, "XRANGE " STREAM " %s %s", id, id)));
	}
	print_rate((double)options->batch, start);
	freeReplyObject(all);
	redisFree(c);
}

/* ---- latency ---- */

static void drip_events(const struct bench_options *options)
{
	drip(options, &redis_way);
}

static void latency(const struct bench_options *options)
{
	redisContext *c = connect_to(options);
	char last[64] = "0";
	struct samples samples;

	samples_init(&samples, options->events);
	pid_t writer = child_start(drip_events, options);
	while (!samples_full(&samples)) {
		redisReply *r =
			checked(c,
				redisCommand(c, "XREAD BLOCK 10000 STREAMS " STREAM " %s", last));
		if (r->type != REDIS_REPLY_ARRAY)
			fatal_text("latency", "nothing came for 10 s");
		const redisReply *entries = r->element[0]->element[1];
		for (size_t i = 0; i < entries->elements; i++) {
			const redisReply *value = value_of(entries->element[i]);
			samples_add_lines(&samples, value->str, value->len);
		}
		snprintf(last, sizeof(last), "%s", id_of(entries->element[entries->elements - 1]));
		freeReplyObject(r);
	}
	child_end(writer);
	samples_print(&samples);
	redisFree(c);
}

/* ---- consumer groups ---- */

struct group_reader {
	redisContext *c;
	const char **words; /* of XACK */
};

static size_t group_take(void *way, size_t batch)
{
	struct group_reader *g = way;
	redisReply *r = checked(g->c, redisCommand(g->c,
						   "XREADGROUP GROUP " GROUP
						   " reader COUNT %d STREAMS " STREAM " >",
						   (int)batch));
	if (r->type != REDIS_REPLY_ARRAY)
		fatal_text("group", "there are too few events");
	const redisReply *entries = r->element[0]->element[1];
	size_t n = entries->elements;

	for (size_t i = 0; i < n; i++)
		g->words[3 + i] = id_of(entries->element[i]);
	freeReplyObject(checked(g->c, redisCommandArgv(g->c, (int)(3 + n), g->words, NULL)));
	freeReplyObject(r);
	return n;
}

/* The group begins anew with the stream. */
static void group(const struct bench_options *options)
{
	struct group_reader g = {.c = connect_to(options)};

	g.words = must_have(calloc(3 + options->batch, sizeof(*g.words)));
	g.words[0] = "XACK";
	g.words[1] = STREAM;
	g.words[2] = GROUP;
	freeReplyObject(checked(g.c, redisCommand(g.c, "XGROUP DESTROY " STREAM " " GROUP)));
	freeReplyObject(checked(g.c, redisCommand(g.c, "XGROUP CREATE " STREAM " " GROUP " 0")));
	group_run(options, group_take, NULL, &g);
	free(g.words);
	redisFree(g.c);
}

static const struct bench_job jobs[] = {
	{"append", 1, append, "PORT   events/s"},
	{"read", 1, read_all, "PORT   MB/s"},
	{"get", 1, get, "PORT   events/s"},
	{"group", 1, group, "PORT   events/s"},
	{"latency", 1, latency, "PORT   us: p50 p99 max"},
};

int main(int argc, char **argv)
{
	return bench_main(argc, argv, jobs, sizeof(jobs) / sizeof(*jobs));
}
