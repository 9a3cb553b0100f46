/* SPDX-License-Identifier: Apache-2.0 */
/* Consumer groups under many threads; build with -Db_sanitize=thread to see races. */
#include <pthread.h>
#include <stdatomic.h>

#include "store/consumer.h"
#include "tests/unit/store_test.h"

#define EVENTS 3000

static struct store *store;
static uint32_t group;
static _Atomic unsigned handled[EVENTS + 1], dead, leased[EVENTS + 1];
static _Atomic uint64_t calls;
static _Atomic bool done;

static void listen_to(void *context)
{
	(void)context;
	atomic_fetch_add(&calls, 1);
}

static void must(bool condition, const char *what)
{
	if (!condition) {
		printf("%s: %s\n", what, test_error.text);
		abort();
	}
}

static void *write_events(void *context)
{
	struct store_batch *batch = store_batch_new(store);

	(void)context;
	for (int i = 0; i < EVENTS;) {
		for (int k = 0; k < 10; k++, i++) {
			char key[32];
			snprintf(key, sizeof(key), "user:%d", i % 50);
			struct store_event event = event_put(key, "{}");
			must(store_batch_add(batch, &event, NULL) == 0, "add");
		}
		must(store_commit(store, batch, false, NULL, NULL) == 0, "commit");
	}
	store_batch_free(batch);
	return NULL;
}

static uint64_t number_behind(const char *line, const char *name)
{
	const char *at = strstr(line, name);

	must(at != NULL, name);
	return strtoull(at + strlen(name), NULL, 10);
}

/* Acknowledges most, refuses some, leaves some to the close. */
static void handle(const char *line, uint64_t random)
{
	uint64_t s = number_behind(line, "{\"sequence\":"), id = number_behind(line, "\"id\":");

	must(atomic_fetch_add(&leased[s], 1) == 0, "two readers have it");
	atomic_fetch_sub(&leased[s], 1);
	if (random == 0) {
		struct store_group_nack nack = {.sequence = s, .delivery = id, .delay_ms = 0};
		must(store_group_refuse(store, group, &nack, 1, NULL) == 0, "refuse");
	} else if (random == 1) {
		struct store_group_nack nack = {.sequence = s, .delivery = id, .dead = true};
		must(store_group_refuse(store, group, &nack, 1, NULL) == 0, "refuse");
		atomic_fetch_add(&dead, 1);
		atomic_fetch_add(&handled[s], 1);
	} else {
		struct store_group_ack ack = {s, s, id};
		must(store_group_acknowledge(store, group, &ack, 1, NULL) == 0, "ack");
		atomic_fetch_add(&handled[s], 1);
	}
}

static void *read_events(void *context)
{
	uint64_t random = (uint64_t)(uintptr_t)context;
	struct buffer lines = {0};

	while (!atomic_load(&done)) {
		struct store_group_reader *reader = NULL;
		must(store_group_reader_open(store, group, 1, &reader, NULL) == 0, "open");
		for (int i = 0; i < 20; i++) {
			lines.n = 0;
			int n = store_group_deliver(reader, 4096, &lines, NULL);
			must(n > 0 || n == -EAGAIN, "deliver");
			const char *line = lines.p;
			for (int k = 0; k < n; k++, line = strchr(line, '\n') + 1) {
				random = random * 6364136223846793005u + 1442695040888963407u;
				if (i < 18 || (random >> 33) % 3)
					handle(line, (random >> 40) % 40);
			}
		}
		store_group_reader_close(reader);
	}
	buffer_free(&lines);
	return NULL;
}

static int look_at(void *context, pid_t pid, uint64_t pending)
{
	(void)context;
	(void)pid;
	(void)pending;
	return 0;
}

static void *look(void *context)
{
	(void)context;
	while (!atomic_load(&done)) {
		struct store_group_stats stats;
		struct store_group_pending pending;
		uint64_t after = 0;
		store_groups_settle(store);
		must(store_group_stats_get(store, group, &stats) == 0, "stats");
		while (store_group_pending_next(store, group, after, &pending) > 0)
			after = pending.sequence;
		store_group_readers_each(store, group, look_at, NULL);
		store_groups_low_water(store);
		if (stats.offset == EVENTS)
			atomic_store(&done, true);
	}
	return NULL;
}

static void *make_groups(void *context)
{
	(void)context;
	while (!atomic_load(&done)) {
		uint32_t other;
		must(store_group_create(store, BYTES("other"), &other, NULL) == 0, "create");
		struct store_group_reader *reader = NULL;
		struct buffer lines = {0};
		must(store_group_reader_open(store, other, 2, &reader, NULL) == 0, "open");
		for (int i = 0; i < 10; i++)
			store_group_deliver(reader, 4096, &lines, NULL);
		store_group_move(store, other, STORE_MOVE_EARLIEST, 0, BYTES("me"), NULL);
		store_group_reader_close(reader);
		buffer_free(&lines);
		must(store_group_remove(store, other, NULL) == 0, "remove");
	}
	return NULL;
}

static void threads_share_a_group(void)
{
	static void *(*const works[])(void *) = {write_events, look,	    make_groups,
						 read_events,  read_events, read_events};
	pthread_t threads[ARRAY_SIZE(works)];
	struct store_group_config c;
	uint64_t number = 0;
	unsigned buried = 0;

	store = open_store();
	store_set_listener(store, listen_to, NULL);
	CHECK(store_group_create(store, BYTES("g"), &group, &test_error) == 0);
	CHECK(store_group_config_get(store, group, &c) == 0);
	c.batch = 7;
	c.max_attempts = 1000;
	c.order = STORE_ORDER_KEY;
	CHECK(store_group_config_set(store, group, &c, &test_error) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(works); i++)
		pthread_create(&threads[i], NULL, works[i], (void *)(uintptr_t)(i + 1));
	for (size_t i = 0; i < ARRAY_SIZE(works); i++)
		pthread_join(threads[i], NULL);
	for (int i = 1; i <= EVENTS; i++)
		CHECK(atomic_load(&handled[i]) == 1); /* nobody died, so nothing comes twice */
	while (store_record_next(store, STORE_DEAD_LETTER, number, &number, NULL) > 0)
		buried++;
	CHECK(buried == atomic_load(&dead) && atomic_load(&calls) > 0);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
}

int main(void)
{
	RUN_FRESH(threads_share_a_group);
	return test_summary();
}
