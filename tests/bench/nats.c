/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs with NATS JetStream, a stream in a file. The first argument is the server's URL. */
#include <nats/nats.h>
#include <stdlib.h>

#include "bench.h"

#define STREAM	    "events"
#define SUBJECT	    "events.all"
#define PATIENCE_MS 10000

struct client {
	natsConnection *connection;
	jsCtx *js;
	bool one_by_one;
};

static void check(natsStatus status, const char *what)
{
	if (status != NATS_OK)
		fatal_text(what, natsStatus_GetText(status));
}

static struct client *client_new(const struct bench_options *options)
{
	struct client *c = must_have(calloc(1, sizeof(*c)));
	natsOptions *o;
	jsOptions js;

	check(natsOptions_Create(&o), "options");
	check(natsOptions_SetURL(o, options->args[0]), "the URL");
	/* Else each single message waits for a thread that flushes. */
	check(natsOptions_SetSendAsap(o, true), "options");
	check(natsConnection_Connect(&c->connection, o), "connecting");
	natsOptions_Destroy(o);
	jsOptions_Init(&js);
	js.PublishAsync.MaxPending = 4096;
	/* The server may be slow on a busy machine, which is no error. */
	js.PublishAsync.StallWait = PATIENCE_MS;
	js.Wait = PATIENCE_MS;
	check(natsConnection_JetStream(&c->js, c->connection, &js), "JetStream");
	c->one_by_one = options->batch == 1;
	return c;
}

static void client_free(void *way)
{
	struct client *c = way;

	jsCtx_Destroy(c->js);
	natsConnection_Destroy(c->connection);
	free(c);
}

static void make_stream(const struct bench_options *options)
{
	struct client *c = client_new(options);
	const char *subjects[] = {SUBJECT};
	jsStreamConfig config;

	jsStreamConfig_Init(&config);
	config.Name = STREAM;
	config.Subjects = subjects;
	config.SubjectsLen = 1;
	config.Storage = js_FileStorage;
	check(js_AddStream(NULL, c->js, &config, NULL, NULL), "making the stream");
	client_free(c);
}

/* ---- append ---- */

static void *writer_open(const struct bench_options *options, unsigned writer)
{
	(void)writer;
	return client_new(options);
}

/* Many are published without waiting, as far as the window goes. */
static void writer_write(void *way, const char *lines, size_t n)
{
	struct client *c = way;

	for (size_t i = 0; i < n && !c->one_by_one; i++)
		check(js_PublishAsync(c->js, SUBJECT, lines + i * LINE_SIZE, LINE_SIZE - 1, NULL),
		      "publishing");
	if (c->one_by_one)
		check(js_Publish(NULL, c->js, SUBJECT, lines, LINE_SIZE - 1, NULL, NULL),
		      "publishing");
}

static void writer_finish(void *way)
{
	struct client *c = way;

	check(js_PublishAsyncComplete(c->js, NULL), "publishing");
}

static const struct append_way nats_way = {writer_open, writer_write, writer_finish, client_free};

static void append(const struct bench_options *options)
{
	make_stream(options);
	append_run(options, &nats_way);
}

/* ---- read ---- */

static natsSubscription *subscribe(struct client *c)
{
	natsSubscription *s;
	jsSubOptions o;

	jsSubOptions_Init(&o);
	o.Ordered = true;
	check(js_SubscribeSync(&s, c->js, SUBJECT, NULL, &o, NULL), "subscribing");
	check(natsSubscription_SetPendingLimits(s, -1, -1), "subscribing");
	return s;
}

static uint64_t message_count(struct client *c)
{
	jsStreamInfo *info;

	check(js_GetStreamInfo(&info, c->js, STREAM, NULL, NULL), "the stream");
	uint64_t n = info->State.Msgs;
	jsStreamInfo_Destroy(info);
	return n;
}

static void read_all(const struct bench_options *options)
{
	struct client *c = client_new(options);
	uint64_t count = message_count(c), total = 0, start = now_ns();
	natsSubscription *s = subscribe(c);
	natsMsg *message;

	while (count--) {
		check(natsSubscription_NextMsg(&message, s, PATIENCE_MS), "reading");
		total += (uint64_t)natsMsg_GetDataLength(message) + 1;
		natsMsg_Destroy(message);
	}
	print_rate((double)total / 1e6, start);
	natsSubscription_Destroy(s);
	client_free(c);
}

static void get(const struct bench_options *options)
{
	struct client *c = client_new(options);
	uint64_t count = message_count(c), state = UINT64_C(88172645463325252), start = now_ns();
	natsMsg *message;

	for (size_t i = 0; i < options->batch; i++) {
		check(js_GetMsg(&message, c->js, STREAM, 1 + draw(&state) % count, NULL, NULL),
		      "getting");
		natsMsg_Destroy(message);
	}
	print_rate((double)options->batch, start);
	client_free(c);
}

/* ---- latency ---- */

static void drip_events(const struct bench_options *options)
{
	drip(options, &nats_way);
}

static void latency(const struct bench_options *options)
{
	struct bench_options one = *options;
	struct samples samples;
	natsMsg *message;

	one.batch = 1;
	samples_init(&samples, options->events);
	/* The child must not inherit a connection and its threads. */
	pid_t maker = child_start(make_stream, &one);
	child_end(maker);
	pid_t writer = child_start(drip_events, &one);
	struct client *c = client_new(&one);
	natsSubscription *s = subscribe(c);
	while (!samples_full(&samples)) {
		check(natsSubscription_NextMsg(&message, s, PATIENCE_MS), "reading");
		samples_add_lines(&samples, natsMsg_GetData(message),
				  (size_t)natsMsg_GetDataLength(message));
		natsMsg_Destroy(message);
	}
	child_end(writer);
	samples_print(&samples);
	natsSubscription_Destroy(s);
	client_free(c);
}

/* ---- consumer groups ---- */

struct group_reader {
	struct client *c;
	natsSubscription *s;
};

/* An acknowledgement is sent, and not waited for. */
static size_t group_take(void *way, size_t batch)
{
	struct group_reader *g = way;
	natsMsgList list = {0};

	check(natsSubscription_Fetch(&list, g->s, (int)batch, PATIENCE_MS, NULL), "fetching");
	size_t n = (size_t)list.Count;
	for (size_t i = 0; i < n; i++)
		check(natsMsg_Ack(list.Msgs[i], NULL), "acknowledging");
	natsMsgList_Destroy(&list);
	return n;
}

static void group_finish(void *way)
{
	struct group_reader *g = way;

	check(natsConnection_Flush(g->c->connection), "acknowledging");
}

/* A durable consumer for each size of batch, which begins anew with the stream. */
static void group(const struct bench_options *options)
{
	struct group_reader g = {.c = client_new(options)};
	char name[32];
	jsSubOptions o;

	snprintf(name, sizeof(name), "by%zu", options->batch);
	js_DeleteConsumer(g.c->js, STREAM, name, NULL, NULL);
	jsSubOptions_Init(&o);
	check(js_PullSubscribe(&g.s, g.c->js, SUBJECT, name, NULL, &o, NULL), "subscribing");
	group_run(options, group_take, group_finish, &g);
	natsSubscription_Destroy(g.s);
	client_free(g.c);
}

static const struct bench_job jobs[] = {
	{"append", 1, append, "URL   events/s"},
	{"read", 1, read_all, "URL   MB/s"},
	{"get", 1, get, "URL   events/s"},
	{"group", 1, group, "URL   events/s"},
	{"latency", 1, latency, "URL   us: p50 p99 max"},
};

int main(int argc, char **argv)
{
	return bench_main(argc, argv, jobs, sizeof(jobs) / sizeof(*jobs));
}
