/* SPDX-License-Identifier: Apache-2.0 */
/* Consumer groups in the store. */
#include "store/consumer.h"
#include "store/db.h"
#include "store/keys.h"
#include "tests/unit/store_test.h"

static _Atomic int64_t now_ms = 1000000;

static struct store *open_groups(void)
{
	struct store_options options = {.create = true,
					.owner = "/mnt/x",
					.boot_id = "boot-1",
					.clock_ms = &now_ms};
	struct store *store = NULL;

	int rc = store_open(test_directory, &options, &store, &test_error);
	if (rc < 0) {
		printf("store_open: %d %s\n", rc, test_error.text);
		abort();
	}
	return store;
}

static uint32_t make_group(struct store *store, const char *name)
{
	uint32_t group = 0;

	CHECK(store_group_create(store, bytes_of(name), &group, &test_error) == 0);
	return group;
}

static struct store_group_reader *open_reader(struct store *store, uint32_t group)
{
	struct store_group_reader *reader = NULL;

	CHECK(store_group_reader_open(store, group, 77, &reader, &test_error) == 0);
	return reader;
}

/* What one delivery gives, as a C string in a static buffer; "" for none. */
static const char *deliver(struct store_group_reader *reader)
{
	static struct buffer lines;

	lines.n = 0;
	int rc = store_group_deliver(reader, 1 << 20, &lines, &test_error);
	if (rc < 0)
		CHECK(rc == -EAGAIN && lines.n == 0);
	buffer_add(&lines, "", 1);
	return lines.p;
}

static int acknowledge(struct store *store, uint32_t group, uint64_t from, uint64_t to,
		       uint64_t delivery)
{
	struct store_group_ack ack = {from, to, delivery};

	return store_group_acknowledge(store, group, &ack, 1, &test_error);
}

static uint64_t offset_of(struct store *store, uint32_t group)
{
	uint64_t offset = 0;

	CHECK(store_group_offset(store, group, &offset) == 0);
	return offset;
}

static void delivers_and_acknowledges(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "mail");
	struct store_group_reader *reader = open_reader(store, group);

	CHECK(!store_group_ready(reader));
	CHECK(strcmp(deliver(reader), "") == 0);
	put(store, "user:1", "{}");
	put(store, "user:2", "{}");
	CHECK(store_group_ready(reader));
	CHECK(strcmp(deliver(reader), "{\"sequence\":1,\"type\":\"PUT\",\"key\":\"user:1\","
				      "\"value\":\"{}\",\"timestamp_ms\":7,\"after_snapshot\":"
				      "\"{}\",\"delivery\":{\"group\":\"mail\",\"attempt\":1,"
				      "\"id\":1}}\n") == 0);
	CHECK(strstr(deliver(reader), "\"id\":2") != NULL);
	CHECK(strcmp(deliver(reader), "") == 0);
	CHECK(!store_group_ready(reader));
	CHECK(acknowledge(store, group, 2, 2, 2) == 0);
	CHECK(offset_of(store, group) == 0);
	CHECK(acknowledge(store, group, 1, 1, 1) == 0);
	CHECK(offset_of(store, group) == 2);
	store_group_reader_close(reader);
	store_close(store);
	store = open_groups();
	CHECK(store_group_find(store, BYTES("mail"), &group) == 0);
	CHECK(offset_of(store, group) == 2);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
}

static void put_events(struct store *store, const char *collection, int from, int to)
{
	char key[64];

	for (int i = from; i <= to; i++) {
		snprintf(key, sizeof(key), "%s:%d", collection, i);
		CHECK(put(store, key, "{}") > 0);
	}
}

static void change_config(struct store *store, uint32_t group,
			  void (*change)(struct store_group_config *))
{
	struct store_group_config c;

	CHECK(store_group_config_get(store, group, &c) == 0);
	change(&c);
	CHECK(store_group_config_set(store, group, &c, &test_error) == 0);
	store_group_config_free(&c);
}

/* The sequence of the only line that is delivered; 0: none. */
static uint64_t deliver_one(struct store_group_reader *reader)
{
	unsigned long long sequence = 0;

	sscanf(deliver(reader), "{\"sequence\":%llu", &sequence);
	return sequence;
}

static int count_lines(const char *text)
{
	int n = 0;

	for (; (text = strchr(text, '\n')); text++)
		n++;
	return n;
}

static struct store_group_stats stats_of(struct store *store, uint32_t group)
{
	struct store_group_stats stats = {0};

	CHECK(store_group_stats_get(store, group, &stats) == 0);
	return stats;
}

/* A record's line as a C string in a static buffer; "" for none. */
static const char *record_line(struct store *store, enum store_record_kind kind, uint64_t number)
{
	static struct buffer line;
	size_t size;
	int64_t ms;

	line.n = 0;
	if (store_record_get(store, kind, number, &size, &ms, &line, NULL) < 0)
		return "";
	buffer_add(&line, "", 1);
	return line.p;
}

static uint64_t last_record(struct store *store, enum store_record_kind kind)
{
	uint64_t number = 0;
	int64_t ms;

	CHECK(store_record_last(store, kind, &number, &ms) == 0);
	return number;
}

static int refuse(struct store *store, uint32_t group, uint64_t sequence, bool dead)
{
	struct store_group_nack nack = {.sequence = sequence,
					.delay_ms = 0,
					.dead = dead,
					.reason = BYTES("no \"x\"")};

	return store_group_refuse(store, group, &nack, 1, &test_error);
}

static void groups_have_names_and_numbers(void)
{
	struct store *store = open_groups();
	struct buffer name = {0};
	uint32_t group = 0;

	CHECK(store_group_next(store, 0, &group) == 0);
	CHECK(make_group(store, "a") == 1);
	CHECK(make_group(store, "b") == 2);
	CHECK(store_group_create(store, BYTES("a"), &group, &test_error) == -EEXIST);
	CHECK(store_group_create(store, BYTES(""), &group, &test_error) == -EINVAL);
	CHECK(store_group_create(store, BYTES("\xff"), &group, &test_error) == -EINVAL);
	struct store_group_reader *reader = open_reader(store, 2);
	CHECK(store_group_remove(store, 2, &test_error) == -EBUSY);
	store_group_reader_close(reader);
	CHECK(store_group_remove(store, 2, &test_error) == 0);
	CHECK(store_group_remove(store, 2, &test_error) == -ENOENT);
	CHECK(store_group_find(store, BYTES("b"), &group) == -ENOENT);
	store_close(store);
	store = open_groups();
	CHECK(store_group_next(store, 0, &group) == 1 && group == 1);
	CHECK(store_group_next(store, 1, &group) == 0);
	CHECK(make_group(store, "b") == 3);
	CHECK(store_group_name(store, 3, &name) == 0 &&
	      bytes_equal(buffer_bytes(&name), BYTES("b")));
	CHECK(store_group_name(store, 2, &name) == -ENOENT);
	buffer_free(&name);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
}

static void configuration_is_kept(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g");
	struct store_group_config c, d;
	char one[] = "user", prefix[] = "user:1";

	CHECK(store_group_config_get(store, group, &c) == 0);
	CHECK(c.ack_timeout_ms == 30000 && c.max_attempts == 5 && c.max_in_flight == 1000);
	CHECK(c.batch == 1 && c.start == STORE_START_EARLIEST && c.order == STORE_ORDER_NONE);
	c.collections[0] = one;
	c.collection_count = 1;
	c.key_prefix = prefix;
	c.types = 1u << STORE_PUT;
	c.max_events_per_second = 2.5;
	CHECK(store_group_config_set(store, group, &c, &test_error) == 0);
	c.batch = 0;
	CHECK(store_group_config_set(store, group, &c, &test_error) == -EINVAL);
	CHECK(strstr(test_error.text, "batch") != NULL);
	store_close(store);
	store = open_groups();
	CHECK(store_group_config_get(store, group, &d) == 0);
	CHECK(d.batch == 1 && d.collection_count == 1 && strcmp(d.collections[0], "user") == 0);
	CHECK(strcmp(d.key_prefix, "user:1") == 0 && d.types == 1u << STORE_PUT);
	CHECK(d.max_events_per_second > 2.4 && d.backoff_count == 4);
	store_group_config_free(&d);
	store_close(store);
}

static void set_batch_5(struct store_group_config *c)
{
	c->batch = 5;
}

static void reading_the_head_buries_only_the_front(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g");

	put_events(store, "user", 1, 5);
	change_config(store, group, set_batch_5);
	for (int i = 1; i <= 5; i++) {
		struct store_group_reader *reader = open_reader(store, group);
		CHECK(count_lines(deliver(reader)) == (i < 5 ? 5 : 1));
		store_group_reader_close(reader);
	}
	CHECK(last_record(store, STORE_DEAD_LETTER) == 1);
	CHECK(strstr(record_line(store, STORE_DEAD_LETTER, 1),
		     "\"kind\":\"delivery\",\"group\":\"g\",\"attempt_count\":5,\"failure_reason\":"
		     "\"its reader ended without acknowledging it\"") != NULL);
	CHECK(strstr(record_line(store, STORE_DEAD_LETTER, 1), ",\"event\":{\"sequence\":1,") !=
	      NULL);
	CHECK(offset_of(store, group) == 1);
	struct store_group_reader *reader = open_reader(store, group);
	CHECK(count_lines(deliver(reader)) == 4);
	store_group_reader_close(reader);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
}

static void late_acknowledgements_do_not_count(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g");
	struct store_group_reader *reader = open_reader(store, group);

	put_events(store, "user", 1, 3);
	CHECK(deliver_one(reader) == 1);
	now_ms += 30000;
	CHECK(acknowledge(store, group, 1, 1, 1) == -ESTALE);
	CHECK(deliver_one(reader) == 1);
	CHECK(acknowledge(store, group, 1, 1, 1) == -ESTALE);
	CHECK(acknowledge(store, group, 1, 1, 2) == 0);
	CHECK(acknowledge(store, group, 1, 1, 2) == 0); /* done already */
	CHECK(store_group_move(store, group, STORE_MOVE_COMMIT, 0, BYTES("me"), &test_error) == 0);
	CHECK(acknowledge(store, group, 1, 1, 2) == -ESTALE);
	CHECK(acknowledge(store, group, 1, 1, 0) == -EINVAL);
	CHECK(deliver_one(reader) == 1);
	CHECK(acknowledge(store, group, 1, 1, 2) == -ESTALE);
	CHECK(acknowledge(store, group, 1, 4, 0) == -EINVAL);
	struct store_group_ack both[] = {{1, 1, 3}, {2, 2, 0}};
	CHECK(store_group_acknowledge(store, group, both, 2, &test_error) == -EINVAL);
	CHECK(offset_of(store, group) == 0);
	store_group_reader_close(reader);
	store_close(store);
}

static void refusals_wait_or_are_buried(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g");
	struct store_group_reader *reader = open_reader(store, group);
	struct store_group_nack nack = {.sequence = 1, .delay_ms = 5000};
	struct store_group_pending pending;

	put_events(store, "user", 1, 2);
	CHECK(deliver_one(reader) == 1);
	CHECK(deliver_one(reader) == 2);
	CHECK(store_group_refuse(store, group, &nack, 1, &test_error) == 0);
	CHECK(refuse(store, group, 2, true) == 0);
	CHECK(strstr(record_line(store, STORE_DEAD_LETTER, 1),
		     "\"failure_reason\":\"no \\\"x\\\"\"") != NULL);
	CHECK(deliver_one(reader) == 0);
	CHECK(store_groups_settle(store) == now_ms + 5000);
	store_group_reader_close(reader);
	store_close(store);
	store = open_groups();
	reader = open_reader(store, group);
	CHECK(store_group_pending_get(store, group, 1, &pending, NULL, &test_error) == 0);
	CHECK(pending.pid == 0 && pending.attempts == 1 && pending.due_ms == now_ms + 5000);
	now_ms += 4999;
	CHECK(deliver_one(reader) == 0 && !store_group_ready(reader));
	now_ms++;
	CHECK(store_group_ready(reader) && deliver_one(reader) == 1);
	CHECK(store_group_pending_get(store, group, 1, &pending, NULL, &test_error) == 0);
	CHECK(pending.pid == 77 && pending.attempts == 2);
	store_group_reader_close(reader);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
}

static int move(struct store *store, uint32_t group, enum store_group_move how, int64_t number)
{
	return store_group_move(store, group, how, number, BYTES("uid 7"), &test_error);
}

static void moves_are_recorded(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g");
	struct store_event_info info;

	put_events(store, "user", 1, 10);
	uint64_t before = last_record(store, STORE_OPS_EVENT);
	CHECK(move(store, group, STORE_MOVE_COMMIT, 5) == 0 && offset_of(store, group) == 5);
	CHECK(move(store, group, STORE_MOVE_COMMIT, 11) == -EINVAL);
	CHECK(move(store, group, STORE_MOVE_BY, 6) == -EINVAL && offset_of(store, group) == 5);
	CHECK(last_record(store, STORE_OPS_EVENT) == before);
	CHECK(move(store, group, STORE_MOVE_BY, -2) == 0 && offset_of(store, group) == 3);
	CHECK(last_record(store, STORE_OPS_EVENT) == before + 2);
	CHECK(strstr(record_line(store, STORE_OPS_EVENT, before + 1),
		     "\"details\":{\"group\":\"g\",\"command\":\"-2\",\"operator\":\"uid 7\","
		     "\"direction\":\"backward\",\"previous_offset\":\"5\",\"new_offset\":\"3\","
		     "\"outcome\":\"applying\"}") != NULL);
	CHECK(strstr(record_line(store, STORE_OPS_EVENT, before + 2), "\"applied\"") != NULL);
	CHECK(move(store, group, STORE_MOVE_BY, 2) == 0 && offset_of(store, group) == 5);
	CHECK(move(store, group, STORE_MOVE_LATEST, 0) == 0 && offset_of(store, group) == 10);
	CHECK(move(store, group, STORE_MOVE_BY, -1000) == 0 && offset_of(store, group) == 0);
	CHECK(store_event_get(store, 4, &info, NULL, NULL) == 0);
	CHECK(move(store, group, STORE_MOVE_TIME, info.commit_ms + 100000000) == 0);
	CHECK(offset_of(store, group) == 10);
	CHECK(move(store, group, STORE_MOVE_TIME, 1) == 0 && offset_of(store, group) == 0);
	CHECK(move(store, group, STORE_MOVE_TIME, info.commit_ms) == 0);
	CHECK(offset_of(store, group) <= 3);
	store_close(store);
}

static void start_at_latest(struct store_group_config *c)
{
	c->start = STORE_START_LATEST;
}

static void only_orders(struct store_group_config *c)
{
	c->collections[c->collection_count++] = strdup("order");
}

static void filtered_events_move_the_offset(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g"), late = make_group(store, "late");
	struct store_group_reader *reader = open_reader(store, group);

	put_events(store, "user", 1, 10);
	change_config(store, late, start_at_latest);
	CHECK(offset_of(store, late) == 10);
	CHECK(deliver_one(reader) == 1);
	CHECK(stats_of(store, group).lag == 10);
	change_config(store, group, only_orders);
	CHECK(stats_of(store, group).lag == 0 && offset_of(store, group) == 10);
	CHECK(deliver_one(reader) == 0 && !store_group_ready(reader));
	put_events(store, "order", 1, 1);
	put_events(store, "user", 1, 1);
	CHECK(stats_of(store, group).lag > 0);
	CHECK(deliver_one(reader) == 11);
	CHECK(acknowledge(store, group, 11, 11, 0) == 0);
	CHECK(stats_of(store, group).lag == 0 && offset_of(store, group) == 12);
	CHECK(store_groups_low_water(store) == 10);
	store_group_reader_close(reader);
	store_close(store);
	store = open_groups();
	CHECK(store_groups_low_water(store) == 10 && offset_of(store, group) == 12);
	store_close(store);
}

static void by_key(struct store_group_config *c)
{
	c->order = STORE_ORDER_KEY;
	c->max_in_flight = 2;
}

static void slowly(struct store_group_config *c)
{
	c->max_events_per_second = 2;
}

static void readers_are_held_back(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g"), slow = make_group(store, "slow");
	struct store_group_reader *reader = open_reader(store, group);

	change_config(store, group, by_key);
	put(store, "user:1", "{}");
	put(store, "user:1", "{}");
	CHECK(deliver_one(reader) == 1);
	CHECK(deliver_one(reader) == 0);
	CHECK(strcmp(stats_of(store, group).stalled, "order") == 0);
	put(store, "user:3", "{}");
	put(store, "user:4", "{}");
	CHECK(deliver_one(reader) == 3);
	CHECK(deliver_one(reader) == 0);
	CHECK(strcmp(stats_of(store, group).stalled, "max_in_flight") == 0);
	CHECK(acknowledge(store, group, 1, 1, 0) == 0);
	CHECK(deliver_one(reader) == 2);
	store_group_reader_close(reader);
	reader = open_reader(store, slow);
	change_config(store, slow, slowly);
	CHECK(deliver_one(reader) == 1);
	CHECK(deliver_one(reader) == 0);
	CHECK(strcmp(stats_of(store, slow).stalled, "rate") == 0);
	CHECK(store_groups_settle(store) <= now_ms + 501);
	now_ms += 501;
	CHECK(store_group_ready(reader) && deliver_one(reader) == 2);
	store_group_reader_close(reader);
	store_close(store);
}

static void most_at_once(struct store_group_config *c)
{
	c->batch = 10000;
	c->max_in_flight = STORE_GROUP_WINDOW;
}

static void the_window_is_bounded(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g");
	struct store_batch *batch = store_batch_new(store);
	struct store_event event = event_put("user:1", "{}");

	for (int i = 0; i < STORE_GROUP_WINDOW + 10; i++)
		CHECK(store_batch_add(batch, &event, &test_error) == 0);
	CHECK(store_commit(store, batch, false, NULL, &test_error) == 0);
	store_batch_free(batch);
	change_config(store, group, most_at_once);
	struct store_group_reader *reader = open_reader(store, group);
	struct store_group_reader *other = open_reader(store, group);
	int n = 0;
	struct buffer lines = {0};
	for (int more = 1; more > 0; n += more > 0 ? more : 0) {
		lines.n = 0;
		more = store_group_deliver(reader, 64 << 20, &lines, &test_error);
	}
	CHECK(n == STORE_GROUP_WINDOW);
	CHECK(deliver_one(other) == 0 && !store_group_ready(other));
	CHECK(strcmp(stats_of(store, group).stalled, "window") == 0);
	CHECK(acknowledge(store, group, 2, STORE_GROUP_WINDOW, 0) == 0);
	CHECK(deliver_one(other) == 0);
	store_group_reader_close(other);
	CHECK(acknowledge(store, group, 1, 1, 0) == 0);
	CHECK(count_lines(deliver(reader)) == 10);
	CHECK(offset_of(store, group) == STORE_GROUP_WINDOW);
	buffer_free(&lines);
	store_group_reader_close(reader);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
}

static void the_floor_gives_a_gap(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g");
	struct store_group_reader *reader = open_reader(store, group);

	put_events(store, "user", 1, 10);
	CHECK(deliver_one(reader) == 1);
	CHECK(deliver_one(reader) == 2);
	CHECK(refuse(store, group, 2, true) == 0);
	CHECK(store_floor_set(store, 6, NULL, &test_error) == 0);
	CHECK(store_group_ready(reader));
	CHECK(strcmp(deliver(reader), "{\"type\":\"GAP\",\"from_sequence\":1,\"to_sequence\":5,"
				      "\"reason\":\"retention\"}\n") == 0);
	CHECK(offset_of(store, group) == 5);
	CHECK(deliver_one(reader) == 6);
	CHECK(store_dead_letter_redeliver(store, 1, &test_error) == 0);
	CHECK(store_dead_letter_redeliver(store, 1, &test_error) == -ENOENT);
	store_group_reader_close(reader);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
	store = open_groups();
	reader = open_reader(store, group);
	struct store_group_pending pending;
	struct buffer line = {0};
	CHECK(store_group_pending_get(store, group, 2, &pending, &line, &test_error) == 0);
	CHECK(bytes_equal(
		buffer_bytes(&line),
		BYTES("{\"sequence\":2,\"type\":\"PUT\",\"key\":\"user:2\",\"value\":\"{}\","
		      "\"timestamp_ms\":7,\"after_snapshot\":\"{}\"}\n")));
	CHECK(pending.attempts == 0);
	CHECK(deliver_one(reader) == 2);
	CHECK(deliver_one(reader) == 6);
	CHECK(acknowledge(store, group, 1, 6, 0) == 0);
	CHECK(offset_of(store, group) == 6);
	buffer_free(&line);
	store_group_reader_close(reader);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
}

static void replay_leaves_documents_alone(void)
{
	struct store *store = open_groups();
	uint32_t group = make_group(store, "g");
	struct store_group_reader *reader = open_reader(store, group);
	struct store_event event = event_put("user:1", "{\"a\":1}");

	event.metadata = BYTES("{\"table\":\"t\"}");
	event.collection = BYTES("t");
	CHECK(commit_event(store, &event) == 1);
	event.value = BYTES("{\"a\":2}");
	CHECK(commit_event(store, &event) == 2);
	CHECK(deliver_one(reader) == 1 && refuse(store, group, 1, true) == 0);
	CHECK(store_dead_letter_replay(store, 1, &test_error) == 0);
	CHECK(store_dead_letter_replay(store, 1, &test_error) == -ENOENT);
	CHECK(strcmp(line_of(store, 3),
		     "{\"sequence\":3,\"type\":\"PUT\",\"key\":\"user:1\",\"value\":\"{\\\"a\\\":1}"
		     "\","
		     "\"timestamp_ms\":7,\"metadata\":{\"table\":\"t\",\"replay_of\":1},"
		     "\"after_snapshot\":\"{\\\"a\\\":1}\"}\n") == 0);
	CHECK(strcmp(document_of(store, "t", "user:1"), "{\"a\":2}") == 0);
	CHECK(deliver_one(reader) == 2);
	CHECK(deliver_one(reader) == 3);
	CHECK(refuse(store, group, 3, true) == 0);
	CHECK(last_record(store, STORE_DEAD_LETTER) == 2); /* its number is not given again */
	CHECK(store_dead_letter_replay(store, 2, &test_error) == 0);
	CHECK(strstr(line_of(store, 4), "\"metadata\":{\"table\":\"t\",\"replay_of\":3}") != NULL);
	store_group_reader_close(reader);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
	store = open_groups();
	CHECK(strcmp(document_of(store, "t", "user:1"), "{\"a\":2}") == 0);
	reader = open_reader(store, group);
	CHECK(deliver_one(reader) == 2 && refuse(store, group, 2, true) == 0);
	CHECK(last_record(store, STORE_DEAD_LETTER) == 3);
	struct store_batch *batch = store_batch_new(store);
	CHECK(store_batch_dead_letter(batch, BYTES("\"kind\":\"decode-error\"")) == 0);
	CHECK(store_commit(store, batch, false, NULL, &test_error) == 0);
	store_batch_free(batch);
	CHECK(store_dead_letter_replay(store, 4, &test_error) == -EINVAL);
	CHECK(store_dead_letter_redeliver(store, 4, &test_error) == -EINVAL);
	CHECK(store_dead_letter_remove(store, 3, &test_error) == 0);
	CHECK(store_dead_letter_remove(store, 3, &test_error) == -ENOENT);
	CHECK(store_dead_letter_remove(store, 0, &test_error) == 0);
	CHECK(last_record(store, STORE_DEAD_LETTER) == 0);
	store_group_reader_close(reader);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
}

/* Writes a record of the family groups into the closed store. */
static void damage(struct key key, struct bytes value)
{
	char path[80];
	struct db *db = NULL;
	struct db_batch *batch = db_batch_new();

	snprintf(path, sizeof(path), "%s/db", test_directory);
	CHECK(db_open(path, false, false, &db, &test_error) == 0);
	db_batch_put(db, batch, DB_GROUPS, KEY_BYTES(key), value);
	CHECK(db_write(db, batch, true, &test_error) == 0);
	db_batch_free(batch);
	db_close(db);
}

static void one_damaged_group_leaves_the_others(void)
{
	struct store *store = open_groups();
	uint32_t bad = make_group(store, "bad"), good = make_group(store, "good");

	put_events(store, "user", 1, 2);
	store_close(store);
	damage(key_group_entry('L', bad, 1), BYTES("?"));
	CHECK(check_store(ignore_fault) > 0);
	store = open_groups();
	struct store_group_reader *reader = open_reader(store, bad);
	struct buffer lines = {0};
	CHECK(store_group_deliver(reader, 1000, &lines, &test_error) == -EBADMSG);
	CHECK(strstr(test_error.text, "bad") != NULL);
	store_group_reader_close(reader);
	reader = open_reader(store, good);
	CHECK(deliver_one(reader) == 1);
	CHECK(acknowledge(store, good, 1, 1, 0) == 0);
	store_group_reader_close(reader);
	CHECK(store_group_remove(store, bad, &test_error) == 0);
	store_close(store);
	CHECK(check_store(print_fault) == 0);
	damage(key_group_entry('R', good, 2), BYTES("123456line"));
	CHECK(check_store(ignore_fault) == 0); /* it waits again */
	damage(key_group_entry('R', good, 9), BYTES("123456line"));
	CHECK(check_store(ignore_fault) == 1);
	buffer_free(&lines);
}

int main(void)
{
	RUN_FRESH(delivers_and_acknowledges);
	RUN_FRESH(groups_have_names_and_numbers);
	RUN_FRESH(configuration_is_kept);
	RUN_FRESH(reading_the_head_buries_only_the_front);
	RUN_FRESH(late_acknowledgements_do_not_count);
	RUN_FRESH(refusals_wait_or_are_buried);
	RUN_FRESH(moves_are_recorded);
	RUN_FRESH(filtered_events_move_the_offset);
	RUN_FRESH(readers_are_held_back);
	RUN_FRESH(the_window_is_bounded);
	RUN_FRESH(the_floor_gives_a_gap);
	RUN_FRESH(replay_leaves_documents_alone);
	RUN_FRESH(one_damaged_group_leaves_the_others);
	return test_summary();
}
