/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that are changed only under a condition, and collections made and removed by hand. */
#include "tests/unit/store_test.h"

static int64_t commit_if(struct store *s, struct store_event e, bool unless_same, uint64_t expected)
{
	e.unless_same = unless_same;
	e.expected = expected;
	return commit_event(s, &e);
}

static void the_same_bytes_are_recorded_once(void)
{
	struct store *s = open_store();
	struct store_event one = event_put("user:a", "{\"v\":1}\n");

	CHECK(commit_if(s, one, true, 0) == 1);
	CHECK(commit_if(s, one, true, 0) == 0);
	CHECK(commit_if(s, event_put("user:a", "{\"v\":1}"), true, 0) == 2);
	CHECK(commit_if(s, one, false, 0) == 3);
	CHECK(commit_if(s, one, true, 0) == 0);
	CHECK(store_last_sequence(s) == 3);
	store_close(s);
	s = open_store(); /* from the disk, not from a table */
	CHECK(commit_if(s, one, true, 0) == 0);
	CHECK(commit_if(s, event_put("user:b", "{}"), true, 0) == 4);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void within_a_batch_each_condition_sees_what_is_before_it(void)
{
	struct store *s = open_store();
	struct store_batch *batch = store_batch_new(s);
	struct store_event one = event_put("user:a", "1"), two = event_put("user:a", "2");
	struct store_committed done;

	one.unless_same = two.unless_same = true;
	CHECK(store_batch_add(batch, &one, &test_error) == 0);
	CHECK(store_batch_add(batch, &one, &test_error) == 0);
	CHECK(store_batch_add(batch, &two, &test_error) == 0);
	CHECK(store_batch_add(batch, &one, &test_error) == 0);
	CHECK(store_commit(s, batch, false, &done, &test_error) == 0);
	CHECK(done.first == 1 && done.last == 3);
	store_batch_free(batch);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void another_document_than_expected_fails_the_batch(void)
{
	struct store *s = open_store();
	struct store_batch *batch = store_batch_new(s);
	struct store_event gone = {.type = STORE_DELETE, .key = BYTES("user:a"), .expected = 1};
	struct store_event moved = event_put("user:b", "1");

	CHECK(commit_if(s, gone, false, 1) == -ESTALE);
	CHECK(put(s, "user:a", "1") == 1);
	CHECK(put(s, "user:a", "2") == 2);
	CHECK(store_batch_add(batch, &moved, &test_error) == 0);
	CHECK(store_batch_add(batch, &gone, &test_error) == 0);
	CHECK(store_commit(s, batch, false, NULL, &test_error) == -ESTALE);
	store_batch_free(batch);
	CHECK(store_last_sequence(s) == 2);
	CHECK(strcmp(document_of(s, "user", "user:b"), "(none)") == 0);
	CHECK(commit_if(s, gone, false, 2) == 3);
	CHECK(commit_if(s, gone, false, 2) == -ESTALE);
	CHECK(strcmp(document_of(s, "user", "user:a"), "(none)") == 0);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void it_is_kept_that_a_file_was_written(void)
{
	struct store *s = open_store();
	struct store_event e = event_put("user:a", "1");
	struct store_event_info info;

	e.through_file = true;
	CHECK(commit_event(s, &e) == 1);
	CHECK(put(s, "user:a", "2") == 2);
	CHECK(store_event_get(s, 1, &info, NULL, NULL) == 0 && info.through_file);
	CHECK(store_event_get(s, 2, &info, NULL, NULL) == 0 && !info.through_file);
	store_close(s);
}

static uint32_t id_of(struct store *s, const char *name)
{
	uint32_t id = 0;

	return store_collection_find(s, bytes_of(name), &id) == 0 ? id : 0;
}

static void collections_come_and_go_by_hand(void)
{
	struct store *s = open_store();
	struct store_event gone = {.type = STORE_DELETE, .key = BYTES("user:a")};

	CHECK(store_collection_create(s, BYTES("user"), &test_error) == 0);
	CHECK(store_collection_create(s, BYTES("user"), &test_error) == -EEXIST);
	CHECK(store_collection_create(s, BYTES(""), &test_error) == -EINVAL);
	CHECK(store_collection_create(s, BYTES("\xff"), &test_error) == -EINVAL);
	CHECK(id_of(s, "user") == 1);
	CHECK(put(s, "user:a", "1") == 1);
	CHECK(store_collection_remove(s, 1, &test_error) == -ENOTEMPTY);
	CHECK(commit_event(s, &gone) == 2);
	CHECK(store_collection_remove(s, 1, &test_error) == 0);
	CHECK(store_collection_remove(s, 1, &test_error) == -ENOENT);
	store_close(s);
	s = open_store();
	CHECK(store_collection_is_removed(s, 1));
	CHECK(put(s, "user:a", "1") == 3); /* an event brings it back */
	CHECK(!store_collection_is_removed(s, 1));
	CHECK(commit_event(s, &gone) == 4);
	CHECK(store_collection_remove(s, 1, &test_error) == 0);
	CHECK(store_collection_create(s, BYTES("user"), &test_error) == 0);
	CHECK(!store_collection_is_removed(s, 1));
	CHECK(store_collection_create(s, BYTES("order"), &test_error) == 0);
	CHECK(id_of(s, "order") == 2);
	store_close(s);
	s = open_store();
	CHECK(!store_collection_is_removed(s, 1) && id_of(s, "order") == 2);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

int main(void)
{
	RUN_FRESH(the_same_bytes_are_recorded_once);
	RUN_FRESH(within_a_batch_each_condition_sees_what_is_before_it);
	RUN_FRESH(another_document_than_expected_fails_the_batch);
	RUN_FRESH(it_is_kept_that_a_file_was_written);
	RUN_FRESH(collections_come_and_go_by_hand);
	return test_summary();
}
