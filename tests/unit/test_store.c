/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and recovering, commits, lines, documents, sources, damage. */
#include <pthread.h>

#include "store/db.h"
#include "store/keys.h"
#include "tests/unit/store_test.h"

#define HAS(text, part) (strstr(text, part) != NULL)

/* ---- lines ---- */

static void lines_are_as_documented(void)
{
	struct store *s = open_store();
	struct store_event e = event_put("user:alice", "{\"name\":\"A\\nB\"}");

	e.metadata = BYTES("{\"table\":\"user\"}");
	CHECK(commit_event(s, &e) == 1);
	CHECK(strcmp(line_of(s, 1),
		     "{\"sequence\":1,\"type\":\"PUT\",\"key\":\"user:alice\","
		     "\"value\":\"{\\\"name\\\":\\\"A\\\\nB\\\"}\",\"timestamp_ms\":7,"
		     "\"metadata\":{\"table\":\"user\"},"
		     "\"after_snapshot\":\"{\\\"name\\\":\\\"A\\\\nB\\\"}\"}\n") == 0);
	CHECK(put(s, "user:alice", "2") == 2);
	CHECK(HAS(line_of(s, 2), ",\"before_snapshot\":\"{\\\"name\\\":\\\"A\\\\nB\\\"}\","
				 "\"after_snapshot\":\"2\"}\n"));
	e = (struct store_event){.type = STORE_DELETE, .key = BYTES("user:alice")};
	CHECK(commit_event(s, &e) == 3);
	CHECK(strcmp(line_of(s, 3), "{\"sequence\":3,\"type\":\"DELETE\",\"key\":\"user:alice\","
				    "\"value\":null,\"timestamp_ms\":0,"
				    "\"before_snapshot\":\"2\"}\n") == 0);
	e = (struct store_event){.type = STORE_MESSAGE, .key = BYTES("hello"), .value = BYTES("x")};
	CHECK(commit_event(s, &e) == 4);
	CHECK(strcmp(line_of(s, 4), "{\"sequence\":4,\"type\":\"MESSAGE\",\"key\":\"hello\","
				    "\"value\":\"x\",\"timestamp_ms\":0}\n") == 0);
	CHECK(strcmp(document_of(s, "_", "hello"), "(none)") == 0);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void snapshots_follow_the_setting(void)
{
	struct store *s = open_store();
	struct store_config c;

	store_config_get(s, &c);
	c.snapshots = STORE_SNAPSHOTS_BEFORE;
	CHECK(set_config(s, &c) == 0);
	put(s, "a:1", "1");
	put(s, "a:1", "2");
	CHECK(HAS(line_of(s, 2), "before_snapshot\":\"1\"") && !HAS(line_of(s, 2), "after_snap"));
	c.snapshots = STORE_SNAPSHOTS_NONE;
	CHECK(set_config(s, &c) == 0);
	put(s, "a:1", "3");
	CHECK(!HAS(line_of(s, 3), "snapshot"));
	struct store_event e = event_put("a:1", "4");
	e.before = BYTES("given");
	commit_event(s, &e);
	CHECK(HAS(line_of(s, 4), "\"before_snapshot\":\"given\"}"));
	c.max_document_bytes = 0;
	CHECK(set_config(s, &c) == -EINVAL);
	store_close(s);
	s = open_store();
	store_config_get(s, &c);
	CHECK(c.snapshots == STORE_SNAPSHOTS_NONE);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void bytes_that_are_not_utf8_travel_as_base64(void)
{
	struct store *s = open_store();
	struct store_event e = event_put("b:1", "");

	e.value = (struct bytes){"\xff\xfe\x00", 3};
	CHECK(commit_event(s, &e) == 1);
	CHECK(HAS(line_of(s, 1), "\"value\":\"//4A\"") &&
	      HAS(line_of(s, 1), "\"metadata\":{\"encoding\":\"base64\"}") &&
	      HAS(line_of(s, 1), "\"after_snapshot\":\"//4A\""));
	CHECK(memcmp(document_of(s, "b", "b:1"), "\xff\xfe\x00", 4) == 0);
	/* The text after it is UTF-8, but what was before is not: both are encoded. */
	CHECK(put(s, "b:1", "abc") == 2);
	CHECK(HAS(line_of(s, 2), "\"value\":\"YWJj\"") &&
	      HAS(line_of(s, 2), "\"before_snapshot\":\"//4A\"") &&
	      HAS(line_of(s, 2), "\"encoding\":\"base64\""));
	CHECK(put(s, "b:1", "abc") == 3);
	CHECK(HAS(line_of(s, 3), "\"value\":\"abc\"") && !HAS(line_of(s, 3), "base64"));
	e.metadata = BYTES("{ \"encoding\":\"base64\" } ");
	e.encoded = true;
	e.value = BYTES("xyz");
	CHECK(commit_event(s, &e) == 4);
	CHECK(HAS(line_of(s, 4), "\"value\":\"eHl6\"") &&
	      HAS(line_of(s, 4), "\"metadata\":{ \"encoding\":\"base64\" } ,"));
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static int patch_append(struct bytes value, struct bytes current, struct buffer *out,
			bool *ret_partial)
{
	*ret_partial = current.p == NULL;
	return buffer_add_bytes(out, current) < 0 || buffer_add_bytes(out, value) < 0 ? -ENOMEM : 0;
}

static int patch_too_much(struct bytes value, struct bytes current, struct buffer *out,
			  bool *ret_partial)
{
	(void)value;
	(void)current;
	*ret_partial = false;
	return buffer_add(out, "0123456789", 10);
}

static void patches_see_the_document_in_order(void)
{
	struct store *s = open_store();
	struct store_batch *b = store_batch_new(s);
	struct store_event plain = event_put("p:1", "A");
	struct store_event patch = event_put("p:1", "B");
	struct store_event gone = {.type = STORE_DELETE, .key = BYTES("p:1")};
	struct store_event moved = event_put("p:2", "C");

	patch.patch = moved.patch = patch_append;
	moved.patch_key = BYTES("p:1");
	CHECK(store_batch_add(b, &patch, NULL) == 0); /* partial: no document yet */
	CHECK(store_batch_add(b, &plain, NULL) == 0);
	CHECK(store_batch_add(b, &patch, NULL) == 0);
	CHECK(store_batch_add(b, &gone, NULL) == 0);
	CHECK(store_batch_add(b, &moved, NULL) == 0);
	CHECK(store_commit(s, b, false, NULL, &test_error) == 0);
	CHECK(HAS(line_of(s, 1), "\"metadata\":{\"partial\":true}") &&
	      HAS(line_of(s, 1), "\"value\":\"B\""));
	CHECK(HAS(line_of(s, 3), "\"value\":\"AB\"") && !HAS(line_of(s, 3), "partial"));
	CHECK(HAS(line_of(s, 4), "\"before_snapshot\":\"AB\""));
	CHECK(HAS(line_of(s, 5), "\"value\":\"ABC\""));
	CHECK(strcmp(document_of(s, "p", "p:2"), "ABC") == 0);
	CHECK(strcmp(document_of(s, "p", "p:1"), "(none)") == 0);
	store_batch_free(b);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* ---- limits ---- */

static void limits_are_refused_and_leave_nothing(void)
{
	struct store *s = open_store();
	struct store_config c;
	_cleanup_(buffer_free) struct buffer big = {0};
	struct store_event e = event_put("x", "1");

	store_config_get(s, &c);
	c.max_document_bytes = 1000;
	CHECK(set_config(s, &c) == 0);
	buffer_reserve(&big, 5000);
	memset(big.p, 'k', 5000);
	e.key = (struct bytes){big.p, 4097};
	CHECK(commit_event(s, &e) == -EFBIG && HAS(test_error.text, "4097"));
	e.key.n = 4096;
	CHECK(commit_event(s, &e) == 1);
	e.key.n = 0;
	CHECK(commit_event(s, &e) == -EINVAL);
	e.key = BYTES("\xff");
	CHECK(commit_event(s, &e) == -EINVAL);
	e.key = BYTES("x");
	e.value = (struct bytes){big.p, 1001};
	CHECK(commit_event(s, &e) == -EFBIG && HAS(test_error.text, "1001"));
	e.value.n = 1000;
	CHECK(commit_event(s, &e) == 2);
	e.value = BYTES("1");
	e.before = (struct bytes){big.p, 1001};
	CHECK(commit_event(s, &e) == -EFBIG);
	e.before = (struct bytes){0};
	e.metadata = BYTES("{\n}");
	CHECK(commit_event(s, &e) == -EINVAL);
	CHECK(store_last_sequence(s) == 2);
	/* A patch that would make too large a document fails its whole batch, and only that. */
	struct store_batch *b = store_batch_new(s);
	struct store_event patch = event_put("x", "more");
	patch.patch = patch_append;
	e = event_put("y", "1");
	CHECK(store_batch_add(b, &e, NULL) == 0 && store_batch_add(b, &patch, NULL) == 0);
	CHECK(store_commit(s, b, false, NULL, &test_error) == -EFBIG);
	CHECK(store_batch_count(b) == 2);
	store_batch_free(b);
	CHECK(put(s, "y", "2") == 3);
	CHECK(!HAS(line_of(s, 3), "before_snapshot"));
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* ---- who has the store ---- */

static void a_second_one_is_refused(void)
{
	struct store *s = open_store(), *other = NULL;
	struct store_options options = {.create = true};
	char pid[32];

	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	CHECK(store_open(test_directory, &options, &other, &test_error) == -EBUSY);
	CHECK(HAS(test_error.text, pid) && HAS(test_error.text, "/mnt/x"));
	store_close(s);
}

static void what_is_no_store_is_refused(void)
{
	struct store *s = NULL;
	struct store_options options = {.create = true};
	char path[128];

	snprintf(path, sizeof(path), "%s/letter", test_directory);
	fclose(fopen(path, "w"));
	CHECK(store_open(test_directory, &options, &s, &test_error) == -ENOTEMPTY);
	CHECK(HAS(test_error.text, "letter"));
	options.create = false;
	CHECK(store_open("/nonexistent", &options, &s, &test_error) == -ENOENT);
}

static void newer_formats_are_refused(void)
{
	struct db *db = NULL;
	struct db_batch *b = db_batch_new();
	struct store *s = open_store();
	struct store_options options = {.create = true};
	char path[128], format[4];
	struct key key = key_meta('F');

	store_close(s);
	snprintf(path, sizeof(path), "%s/db", test_directory);
	CHECK(db_open(path, false, false, &db, &test_error) == 0);
	put_le32(format, KEYS_FORMAT + 1);
	db_batch_put(db, b, DB_META, KEY_BYTES(key), (struct bytes){format, 4});
	CHECK(db_write(db, b, true, NULL) == 0);
	db_batch_free(b);
	db_close(db);
	CHECK(store_open(test_directory, &options, &s, &test_error) == -EPROTONOSUPPORT);
}

/* ---- ends ---- */

static void write_three(struct store *s)
{
	put(s, "a:1", "1");
	put(s, "b:1", "2");
	put(s, "a:2", "3");
}

static struct store_stats stats_of(struct store *s)
{
	struct store_stats stats = {0};

	CHECK(store_stats_get(s, &stats) == 0);
	return stats;
}

static void a_crash_loses_nothing(void)
{
	size_t gaps;

	crash_after(write_three, "boot-1");
	struct store *s = open_store();
	CHECK(stats_of(s).last_end == STORE_END_CRASH);
	CHECK(store_last_sequence(s) == 3 && put(s, "a:3", "4") == 4);
	store_gaps(s, &gaps);
	CHECK(gaps == 0);
	store_close(s);
	s = open_store_after("boot-2");
	CHECK(stats_of(s).last_end == STORE_END_CLEAN);
	CHECK(put(s, "a:3", "4") == 5);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void after_a_reboot_nothing_is_given_twice(void)
{
	struct store_stream before, after;
	size_t gaps;
	uint32_t a;

	crash_after(write_three, "boot-1");
	struct store *s = open_store_after("boot-2");
	CHECK(stats_of(s).last_end == STORE_END_REBOOT);
	const struct store_gap *gap = store_gaps(s, &gaps);
	CHECK(gaps == 1 && gap[0].from == 4 && gap[0].to >= 1 << 20);
	CHECK(store_collection_find(s, BYTES("a"), &a) == 0);
	CHECK(store_stream_stat(s, a, &before) == 0);
	int64_t next = put(s, "a:3", "4");
	CHECK(next == (int64_t)gap[0].to + 1);
	CHECK(store_stream_stat(s, a, &after) == 0);
	uint64_t behind, ahead;
	CHECK(store_stream_tell(s, a, 3, &behind, NULL) == 0);
	CHECK(store_stream_seek(s, a, 3, &ahead, NULL) == 0);
	CHECK(ahead - behind > (uint64_t)1 << 29); /* no position is given twice either */
	CHECK(ahead == before.end && after.end > ahead);
	char byte;
	CHECK(store_stream_read(s, a, behind - 1, &byte, 1, NULL) == 1 && byte == '\n');
	CHECK(store_stream_read(s, a, behind, &byte, 1, NULL) == -EBADMSG); /* the hole */
	struct buffer second = read_stream(s, a, ahead, 1000);
	CHECK(second.n == after.end - ahead);
	buffer_free(&second);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
	/* Two reboots without a word between them. */
	crash_after(write_three, "boot-3");
	store_close(open_store_after("boot-4"));
	s = open_store_after("boot-4");
	store_gaps(s, &gaps);
	CHECK(gaps == 2);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* Documents of all kinds, which a crash leaves to the replay. */
static void write_binary(struct store *s)
{
	char value[700];
	struct store_event e = event_put("b:\t\"\\1", "");

	memset(value, 0xfe, sizeof(value));
	e.value = (struct bytes){value, sizeof(value)};
	commit_event(s, &e);
	put(s, "b:2", "{\"a\":\"\x01\\u0001\"}");
	put(s, "b:3", "");
	put(s, "b:4", "gone");
	e = (struct store_event){.type = STORE_DELETE, .key = BYTES("b:4")};
	commit_event(s, &e);
	e = (struct store_event){.type = STORE_MESSAGE, .key = BYTES("b:5")};
	commit_event(s, &e);
}

static void a_replay_reads_lines_back(void)
{
	struct store *s = open_store();
	struct store_event e = {.type = STORE_PUT, .key = BYTES("b:9")};

	CHECK(commit_event(s, &e) == -EINVAL); /* a PUT without a value */
	CHECK(put(s, "e:1", "") == 1);	       /* no bytes, as the very first document */
	CHECK(strcmp(document_of(s, "e", "e:1"), "") == 0);
	store_close(s);
	crash_after(write_binary, "boot-1");
	CHECK(check_store(print_fault) == 0);
	s = open_store();
	const char *binary = document_of(s, "b", "b:\t\"\\1");
	CHECK((unsigned char)binary[0] == 0xfe && (unsigned char)binary[699] == 0xfe);
	CHECK(strlen(binary) == 700);
	CHECK(strcmp(document_of(s, "b", "b:2"), "{\"a\":\"\x01\\u0001\"}") == 0);
	CHECK(strcmp(document_of(s, "b", "b:3"), "") == 0);
	CHECK(strcmp(document_of(s, "b", "b:4"), "(none)") == 0);
	CHECK(strcmp(document_of(s, "b", "b:5"), "(none)") == 0);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* Its maker was killed when the database was there and empty. */
static void a_store_that_was_never_finished_is_made(void)
{
	struct db *db = NULL;
	char path[128];

	snprintf(path, sizeof(path), "%s/lock", test_directory);
	fclose(fopen(path, "w"));
	snprintf(path, sizeof(path), "%s/db", test_directory);
	CHECK(db_open(path, true, false, &db, &test_error) == 0);
	db_close(db);
	struct store *s = open_store();
	CHECK(put(s, "a:1", "1") == 1);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void idle(struct store *s)
{
	(void)s;
}

static void a_reboot_of_an_idle_store_leaves_no_gap(void)
{
	size_t gaps;
	struct store *s = open_store();

	write_three(s);
	store_close(s);
	crash_after(idle, "boot-1");
	s = open_store_after("boot-2");
	store_gaps(s, &gaps);
	CHECK(gaps == 0 && put(s, "a:3", "4") == 4);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* ---- sources ---- */

static int send(struct store *s, uint64_t position, int64_t time_us, struct store_committed *done)
{
	struct store_batch *b = store_batch_new(s);
	struct store_event e = event_put("s:1", "1");

	CHECK(store_batch_add(b, &e, NULL) == 0);
	CHECK(store_batch_source(b, BYTES("pg"), position, time_us) == 0);
	int rc = store_commit(s, b, false, done, &test_error);
	store_batch_free(b);
	return rc;
}

static void sources_are_never_doubled_nor_mistaken(void)
{
	struct store *s = open_store();
	struct store_committed done;

	CHECK(send(s, 100, 5000, &done) == 0 && done.first == 1);
	CHECK(send(s, 100, 5000, &done) == 0 && done.skipped && done.first == 0);
	CHECK(send(s, 90, 4000, &done) == 0 && done.skipped);
	CHECK(send(s, 200, 4900, &done) == 0 && done.first == 2); /* times may stand across */
	CHECK(send(s, 100, 5000, &done) == 0 && done.skipped);
	CHECK(send(s, 150, 6000, &done) == -ESTALE && HAS(test_error.text, "sources.json"));
	CHECK(store_last_sequence(s) == 2);
	store_close(s);
	s = open_store();
	CHECK(send(s, 200, 4900, &done) == 0 && done.skipped);
	struct bytes names[] = {BYTES("pg"), BYTES("nobody")};
	CHECK(store_sources_forget(s, names, 2, NULL) == -ENOENT);
	CHECK(send(s, 200, 4900, &done) == 0 && done.skipped); /* all or none */
	CHECK(store_sources_forget(s, names, 1, NULL) == 0);
	CHECK(send(s, 150, 6000, &done) == 0 && done.first == 3);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* Transactions of one source in one batch: what was here before is left out, the rest is taken. */
static void a_batch_may_hold_many_transactions(void)
{
	struct store *s = open_store();
	struct store_batch *b = store_batch_new(s);
	struct store_event e = event_put("m:1", "1");
	struct store_committed done;
	struct store_batch_mark mark;

	CHECK(send(s, 100, 5000, &done) == 0 && done.first == 1);
	for (uint64_t position = 90; position <= 130; position += 10) {
		mark = store_batch_mark(b);
		CHECK(store_batch_add(b, &e, NULL) == 0);
		CHECK(store_batch_ops(b, "unsupported-row", (struct bytes){0}) == 0);
		CHECK(store_batch_source(b, BYTES("pg"), position, (int64_t)position * 50) == 0);
	}
	store_batch_rollback(b, mark);		  /* 130 */
	CHECK(store_batch_add(b, &e, NULL) == 0); /* of no source */
	CHECK(store_commit(s, b, false, &done, &test_error) == 0);
	CHECK(!done.skipped && done.first == 2 && done.last == 4); /* 110, 120 and the last one */
	for (uint64_t position = 110; position <= 120; position += 10) {
		CHECK(store_batch_add(b, &e, NULL) == 0);
		CHECK(store_batch_source(b, BYTES("pg"), position, 1) == 0);
	}
	CHECK(store_commit(s, b, false, &done, NULL) == 0 && done.skipped && !done.first);
	/* A newer time at an older place anywhere in it refuses all of it. */
	CHECK(store_batch_add(b, &e, NULL) == 0);
	CHECK(store_batch_source(b, BYTES("pg"), 200, 10000) == 0);
	CHECK(store_batch_add(b, &e, NULL) == 0);
	CHECK(store_batch_source(b, BYTES("pg"), 150, 20000) == 0);
	CHECK(store_commit(s, b, false, &done, NULL) == -ESTALE);
	CHECK(store_last_sequence(s) == 4);
	store_batch_clear(b);
	CHECK(send(s, 150, 9000, &done) == 0 && done.first == 5); /* 200 was not kept */
	store_batch_free(b);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void a_refused_batch_leaves_no_collection(void)
{
	struct store *s = open_store();
	struct store_batch *b = store_batch_new(s);
	struct store_committed done;
	struct store_event e = event_put("ghost:1", "1");
	uint32_t id;

	CHECK(send(s, 100, 5000, &done) == 0);
	CHECK(store_batch_add(b, &e, NULL) == 0);
	CHECK(store_batch_source(b, BYTES("pg"), 100, 5000) == 0);
	CHECK(store_commit(s, b, false, &done, NULL) == 0 && done.skipped);
	CHECK(store_batch_add(b, &e, NULL) == 0);
	CHECK(store_batch_source(b, BYTES("pg"), 50, 9000) == 0);
	CHECK(store_commit(s, b, false, &done, NULL) == -ESTALE);
	store_batch_clear(b);
	e.patch = patch_append;
	struct store_config c;
	store_config_get(s, &c);
	c.max_document_bytes = 1;
	CHECK(set_config(s, &c) == 0 && put(s, "s:1", "x") > 0);
	e.key = BYTES("ghost:2");
	CHECK(store_batch_add(b, &e, NULL) == 0 && store_batch_add(b, &e, NULL) == 0);
	e.patch = patch_too_much;
	CHECK(store_batch_add(b, &e, NULL) == 0);
	CHECK(store_commit(s, b, false, &done, NULL) == -EFBIG);
	CHECK(store_collection_find(s, BYTES("ghost"), &id) == -ENOENT);
	CHECK(put(s, "later:1", "1") > 0);
	CHECK(store_collection_find(s, BYTES("later"), &id) == 0 && id == 2);
	CHECK(store_collection_count(s) == 2);
	CHECK(store_batch_source(b, BYTES(""), 1, 1) == -EINVAL);
	CHECK(store_batch_source(b, BYTES("\xff"), 1, 1) == -EINVAL);
	store_batch_free(b);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* ---- many writers ---- */

#define WRITERS 8
#define BATCHES 200

static void *write_batches(void *context)
{
	static _Atomic int numbers;
	int writer = numbers++;
	struct store *s = context;
	struct store_batch *b = store_batch_new(s);

	for (int i = 0; i < BATCHES; i++) {
		struct store_committed done;
		char key[64], value[64];
		for (int k = 0; k < 3; k++) {
			snprintf(key, sizeof(key), "w%d:%d", writer, i);
			snprintf(value, sizeof(value), "%d/%d", i, k);
			struct store_event e = event_put(key, value);
			CHECK(store_batch_add(b, &e, NULL) == 0);
		}
		CHECK(store_commit(s, b, i % 16 == 0, &done, NULL) == 0);
		CHECK(done.last == done.first + 2);
		if (i % 32 == 0)
			CHECK(store_sync(s, NULL) == 0);
	}
	store_batch_free(b);
	return NULL;
}

static _Atomic bool reader_may_end;

/* Whoever sees the end of a collection's stream finds the event by its sequence. */
static void *follow_collection(void *context)
{
	struct store *s = context;
	uint64_t position = 0;
	uint32_t id;

	while (store_collection_find(s, BYTES("w"), &id) < 0)
		;
	while (!reader_may_end) {
		char p[4096];
		struct store_event_info info;
		ssize_t n = store_stream_read(s, id, position, p, sizeof(p), NULL);
		if (n <= 0)
			continue;
		const char *last = memrchr(p, '\n', (size_t)n);
		last = last ? memrchr(p, '\n', (size_t)(last - p)) : NULL;
		uint64_t sequence = strtoull((last ? last + 1 : p) + 12, NULL, 10);
		CHECK(store_event_get(s, sequence, &info, NULL, NULL) == 0);
		position += last ? (size_t)(last + 1 - p) : 0;
	}
	return NULL;
}

static void readers_find_what_a_line_names(void)
{
	struct store *s = open_store();
	pthread_t reader;

	pthread_create(&reader, NULL, follow_collection, s);
	for (int i = 0; i < 3000; i++)
		put(s, "w:1", "1");
	reader_may_end = true;
	pthread_join(reader, NULL);
	store_close(s);
}

static void writers_never_interleave(void)
{
	struct store *s = open_store();
	pthread_t threads[WRITERS];

	for (int i = 0; i < WRITERS; i++)
		pthread_create(&threads[i], NULL, write_batches, s);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	CHECK(store_last_sequence(s) == (uint64_t)WRITERS * BATCHES * 3);
	for (uint64_t n = 1; n <= store_last_sequence(s); n += 3) {
		char key[64] = "", other[64] = "";
		sscanf(line_of(s, n), "{\"sequence\":%*u,\"type\":\"PUT\",\"key\":\"%63[^\"]", key);
		sscanf(line_of(s, n + 2), "{\"sequence\":%*u,\"type\":\"PUT\",\"key\":\"%63[^\"]",
		       other);
		CHECK(key[0] && strcmp(key, other) == 0);
		CHECK(HAS(line_of(s, n), "/0\"") && HAS(line_of(s, n + 2), "/2\""));
	}
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* ---- attributes ---- */

static void set_attributes(struct store *s, const char *name, unsigned set, unsigned number)
{
	struct store_attributes a = {set, 0100000 + number, number + 1, UINT32_MAX - number,
				     -(int64_t)number};

	CHECK(store_attributes_set(s, bytes_of(name), &a, &test_error) == 0);
}

static void set_three_attributes(struct store *s)
{
	set_attributes(s, "/b", STORE_ATTRIBUTE_MODE, 1);
	set_attributes(s, "/", STORE_ATTRIBUTE_GID, 2);
	set_attributes(s, "/a", STORE_ATTRIBUTES_ALL, 3);
	set_attributes(s, "/b", STORE_ATTRIBUTE_MODE | STORE_ATTRIBUTE_UID, 4);
}

static int show_attributes(void *context, struct bytes name, const struct store_attributes *a)
{
	return buffer_printf(context, "%.*s %u %o %u %u %lld\n", (int)name.n, name.p, a->set,
			     a->mode, a->uid, a->gid, (long long)a->changed_ms);
}

static bool attributes_are(struct store *s, const char *expected)
{
	_cleanup_(buffer_free) struct buffer text = {0};

	CHECK(store_attributes_each(s, show_attributes, &text, &test_error) == 0);
	return bytes_equal(buffer_bytes(&text), bytes_of(expected));
}

static void attributes_outlive_a_crash(void)
{
	crash_after(set_three_attributes, "boot-1");
	struct store *s = open_store();
	CHECK(attributes_are(s, "/ 4 100002 3 4294967293 -2\n/a 7 100003 4 4294967292 -3\n"
				"/b 3 100004 5 4294967291 -4\n"));
	set_attributes(s, "/a", 0, 5);
	store_close(s);
	s = open_store();
	CHECK(attributes_are(s, "/ 4 100002 3 4294967293 -2\n/b 3 100004 5 4294967291 -4\n"));
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* ---- damage ---- */

/* Does one change to the database of a small store; the faults that check finds. */
static int faults_after(void (*damage)(struct db *, struct db_batch *))
{
	struct db *db = NULL;
	struct db_batch *b = db_batch_new();
	char path[128];

	test_directory_remove();
	test_directory_new();
	struct store *s = open_store();
	write_three(s);
	put(s, "a:1", "new");
	store_close(s);
	snprintf(path, sizeof(path), "%s/db", test_directory);
	CHECK(db_open(path, false, false, &db, &test_error) == 0);
	damage(db, b);
	CHECK(db_write(db, b, true, NULL) == 0);
	db_batch_free(b);
	db_close(db);
	return check_store(ignore_fault);
}

static void lose_block(struct db *db, struct db_batch *b)
{
	struct key key = key_log(2);
	db_batch_delete(db, b, DB_LOG, KEY_BYTES(key));
}

static void lose_last_block(struct db *db, struct db_batch *b)
{
	struct key key = key_log(4);
	db_batch_delete(db, b, DB_LOG, KEY_BYTES(key));
}

static void lose_index_position(struct db *db, struct db_batch *b)
{
	struct key key = key_index('P', 0, 0);
	db_batch_delete(db, b, DB_INDEX, KEY_BYTES(key));
}

static void lose_index_sequence(struct db *db, struct db_batch *b)
{
	struct key key = key_index('S', 1, 3);
	db_batch_delete(db, b, DB_INDEX, KEY_BYTES(key));
}

static void add_index_entry(struct db *db, struct db_batch *b)
{
	struct key key = key_index('P', 2, 999);
	db_batch_put(db, b, DB_INDEX, KEY_BYTES(key), BYTES("12345678"));
}

static void change_document(struct db *db, struct db_batch *b)
{
	char key[KEY_STATE_MAX], value[STATE_VALUE_HEAD + 1] = {2};
	struct bytes k = {key, key_state_write(2, BYTES("b:1"), 0, key)};
	value[STATE_VALUE_HEAD] = 'X';
	db_batch_put(db, b, DB_STATE, k, (struct bytes){value, sizeof(value)});
}

static void lose_document(struct db *db, struct db_batch *b)
{
	char key[KEY_STATE_MAX];
	struct bytes k = {key, key_state_write(1, BYTES("a:2"), 0, key)};
	db_batch_delete(db, b, DB_STATE, k);
}

static void old_document(struct db *db, struct db_batch *b)
{
	char key[KEY_STATE_MAX], value[STATE_VALUE_HEAD + 1] = {1};
	struct bytes k = {key, key_state_write(1, BYTES("a:1"), 0, key)};
	value[STATE_VALUE_HEAD] = '1';
	db_batch_put(db, b, DB_STATE, k, (struct bytes){value, sizeof(value)});
}

static void cut_block(struct db *db, struct db_batch *b)
{
	struct key key = key_log(1);
	db_batch_put(db, b, DB_LOG, KEY_BYTES(key), BYTES("\x01short"));
}

static void cut_attributes(struct db *db, struct db_batch *b)
{
	db_batch_put(db, b, DB_META, BYTES("M/feed"), BYTES("short"));
}

static void change_nothing(struct db *db, struct db_batch *b)
{
	(void)db;
	(void)b;
}

static void damage_is_found(void)
{
	CHECK(faults_after(change_nothing) == 0);
	CHECK(faults_after(lose_block) > 0);
	CHECK(faults_after(lose_last_block) > 0);
	CHECK(faults_after(lose_index_position) > 0);
	CHECK(faults_after(lose_index_sequence) > 0);
	CHECK(faults_after(add_index_entry) > 0);
	CHECK(faults_after(change_document) > 0);
	CHECK(faults_after(lose_document) > 0);
	CHECK(faults_after(old_document) > 0);
	CHECK(faults_after(cut_block) > 0);
	CHECK(faults_after(cut_attributes) > 0);
}

int main(void)
{
	RUN_FRESH(lines_are_as_documented);
	RUN_FRESH(snapshots_follow_the_setting);
	RUN_FRESH(bytes_that_are_not_utf8_travel_as_base64);
	RUN_FRESH(patches_see_the_document_in_order);
	RUN_FRESH(limits_are_refused_and_leave_nothing);
	RUN_FRESH(a_second_one_is_refused);
	RUN_FRESH(what_is_no_store_is_refused);
	RUN_FRESH(newer_formats_are_refused);
	RUN_FRESH(a_crash_loses_nothing);
	RUN_FRESH(after_a_reboot_nothing_is_given_twice);
	RUN_FRESH(a_reboot_of_an_idle_store_leaves_no_gap);
	RUN_FRESH(sources_are_never_doubled_nor_mistaken);
	RUN_FRESH(a_batch_may_hold_many_transactions);
	RUN_FRESH(a_refused_batch_leaves_no_collection);
	RUN_FRESH(a_replay_reads_lines_back);
	RUN_FRESH(a_store_that_was_never_finished_is_made);
	RUN_FRESH(readers_find_what_a_line_names);
	RUN_FRESH(writers_never_interleave);
	RUN_FRESH(attributes_outlive_a_crash);
	RUN_FRESH(damage_is_found);
	return test_summary();
}
