/* SPDX-License-Identifier: Apache-2.0 */
/* Consumer groups in the store. */
#include "store/consumer.h"
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

int main(void)
{
	RUN_FRESH(delivers_and_acknowledges);
	return test_summary();
}
