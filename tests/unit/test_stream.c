/* SPDX-License-Identifier: Apache-2.0 */
/* A naive model beside the store: random commits, reads at random places, floors, reopenings. */
#include "tests/unit/store_test.h"

#define COLLECTIONS 5
#define KEYS	    12
#define EVENTS_MAX  6000

struct model_event {
	uint64_t sequence;
	int collection;
	char line[512];
};

/* All that the log should hold; `positions` count a stream's bytes without holes. */
static struct model {
	struct model_event events[EVENTS_MAX];
	size_t count;
	char documents[COLLECTIONS][KEYS][32];
	uint64_t floor;
	uint64_t next;
} * model;

static const char *const names[COLLECTIONS] = {"user", "order", "a.b", "tail", "long-name"};

static uint32_t id_of(struct store *s, int collection)
{
	uint32_t id = 0;

	store_collection_find(s, bytes_of(names[collection]), &id);
	return id;
}

static void model_add(enum store_type type, int collection, int key, const char *value)
{
	struct model_event *e = &model->events[model->count++];
	char *document = model->documents[collection][key];
	char quoted[64] = "null", before[64] = "", after[64] = "", name[64];

	snprintf(name, sizeof(name), "%s:%d", names[collection], key);
	if (type == STORE_PUT) {
		snprintf(quoted, sizeof(quoted), "\"%s\"", value);
		snprintf(after, sizeof(after), ",\"after_snapshot\":\"%s\"", value);
	}
	if (type == STORE_TRUNCATE)
		snprintf(name, sizeof(name), "%s:", names[collection]);
	else if (*document)
		snprintf(before, sizeof(before), ",\"before_snapshot\":\"%s\"", document);
	e->sequence = model->next++;
	e->collection = collection;
	snprintf(e->line, sizeof(e->line),
		 "{\"sequence\":%llu,\"type\":\"%s\",\"key\":\"%s\"%s%s,\"timestamp_ms\":%llu%s%s}"
		 "\n",
		 (unsigned long long)e->sequence, store_type_name(type), name,
		 type == STORE_TRUNCATE ? "" : ",\"value\":", type == STORE_TRUNCATE ? "" : quoted,
		 (unsigned long long)model->count, before, after);
	if (type == STORE_TRUNCATE)
		memset(model->documents[collection], 0, sizeof(model->documents[collection]));
	else
		snprintf(document, 32, "%s", type == STORE_PUT ? value : "");
}

static void add_random(struct store_batch *b)
{
	int collection = (int)test_random(COLLECTIONS), key = (int)test_random(KEYS);
	uint64_t dice = test_random(100);
	enum store_type type = dice < 75 ? STORE_PUT : dice < 98 ? STORE_DELETE : STORE_TRUNCATE;
	char name[64], value[32];

	snprintf(value, sizeof(value), "v%llu", (unsigned long long)test_random(1000000));
	model_add(type, collection, key, value);
	if (type == STORE_TRUNCATE)
		snprintf(name, sizeof(name), "%s:", names[collection]);
	else
		snprintf(name, sizeof(name), "%s:%d", names[collection], key);
	struct store_event e = {.type = type,
				.key = bytes_of(name),
				.timestamp_ms = (int64_t)model->count};
	if (type == STORE_PUT)
		e.value = bytes_of(value);
	CHECK(store_batch_add(b, &e, &test_error) == 0);
}

static void commit_random(struct store *s)
{
	struct store_batch *b = store_batch_new(s);
	struct store_committed done;
	uint64_t n = test_random(10) ? test_random(8) + 1 : test_random(700) + 1;

	if (model->count + n > EVENTS_MAX)
		n = EVENTS_MAX - model->count;
	uint64_t first = model->next;
	for (uint64_t i = 0; i < n; i++)
		add_random(b);
	CHECK(store_commit(s, b, test_random(8) == 0, &done, &test_error) == 0);
	CHECK(!n || (done.first == first && done.last == first + n - 1));
	store_batch_free(b);
}

/* ---- comparing ---- */

static bool retained(const struct model_event *e, int collection)
{
	return e->sequence >= model->floor && (collection < 0 || e->collection == collection);
}

/* The stream's bytes behind `after`, at most `size`, up to the first hole. */
static struct buffer model_read(int collection, uint64_t after, size_t size)
{
	struct buffer out = {0};
	uint64_t last = 0;

	for (size_t i = 0; i < model->count && out.n < size; i++) {
		const struct model_event *e = &model->events[i];
		if (!retained(e, collection) || e->sequence <= after)
			continue;
		if (last && e->sequence - last > 1 << 18)
			break;
		last = e->sequence;
		buffer_add_bytes(&out, bytes_of(e->line));
	}
	out.n = out.n < size ? out.n : size;
	return out;
}

static void compare_read(struct store *s, int collection)
{
	uint32_t id = collection < 0 ? 0 : id_of(s, collection);
	size_t size = test_random(4) ? test_random(3000) + 1 : test_random(200000) + 1;
	uint64_t after = model->count ? model->events[test_random(model->count)].sequence : 0;
	uint64_t position;

	if (collection >= 0 && !id)
		return;
	after = test_random(4) ? after : 0;
	if (after + 1 < model->floor)
		after = model->floor - 1;
	struct buffer expected = model_read(collection, after, size), got = {0};
	CHECK(store_stream_seek(s, id, after, &position, &test_error) == 0);
	buffer_reserve(&got, size);
	ssize_t n = store_stream_read(s, id, position, got.p, size, &test_error);
	CHECK(n == (ssize_t)expected.n);
	CHECK(n <= 0 || memcmp(got.p, expected.p, (size_t)n) == 0);
	if (n > 1) { /* and from the middle */
		uint64_t skip = test_random((uint64_t)n);
		ssize_t m = store_stream_read(s, id, position + skip, got.p, size - skip, NULL);
		CHECK(m == n - (ssize_t)skip && memcmp(got.p, expected.p + skip, (size_t)m) == 0);
	}
	buffer_free(&expected);
	buffer_free(&got);
}

static void compare_events(struct store *s)
{
	int collection = (int)test_random(COLLECTIONS);
	uint32_t id = id_of(s, collection);
	struct store_event_cursor *cursor = NULL;
	uint64_t from = test_random(2) ? 1 : test_random(model->next) + 1, sequence;
	size_t i = 0;

	if (!id)
		return;
	CHECK(store_event_cursor_open(s, id, from, &cursor, &test_error) == 0);
	while (store_event_cursor_next(cursor, &sequence, &test_error) > 0) {
		while (i < model->count && (!retained(&model->events[i], collection) ||
					    model->events[i].sequence < from))
			i++;
		CHECK(i < model->count && model->events[i].sequence == sequence);
		if (i >= model->count)
			break;
		if (test_random(8) == 0)
			CHECK(strcmp(line_of(s, sequence), model->events[i].line) == 0);
		i++;
	}
	while (i < model->count &&
	       (!retained(&model->events[i], collection) || model->events[i].sequence < from))
		i++;
	CHECK(i == model->count);
	store_event_cursor_close(cursor);
}

static void compare_documents(struct store *s)
{
	int collection = (int)test_random(COLLECTIONS);
	uint32_t id = id_of(s, collection);
	struct store_document_cursor *cursor = NULL;
	struct store_document document;
	struct bytes key;
	int listed = 0, expected = 0;
	char name[64];

	if (!id)
		return;
	for (int k = 0; k < KEYS; k++) {
		const char *text = model->documents[collection][k];
		snprintf(name, sizeof(name), "%s:%d", names[collection], k);
		CHECK(strcmp(document_of(s, names[collection], name), *text ? text : "(none)") ==
		      0);
		expected += *text != 0;
	}
	CHECK(store_document_cursor_open(s, id, &cursor, NULL) == 0);
	while (store_document_cursor_next(cursor, &key, &document, &test_error) > 0)
		listed++;
	CHECK(listed == expected);
	store_document_cursor_close(cursor);
}

static void raise_floor(struct store *s)
{
	if (!model->count)
		return;
	uint64_t to = model->events[test_random(model->count)].sequence + test_random(2);
	uint64_t old_base;

	CHECK(store_stream_seek(s, 0, model->floor - 1, &old_base, NULL) == 0);
	CHECK(store_floor_set(s, to, NULL, &test_error) == 0);
	if (to > model->floor) {
		char byte;
		model->floor = to;
		if (store_floor(s) <= store_last_sequence(s) && old_base < store_stream_end(s, 0))
			CHECK(store_stream_read(s, 0, old_base, &byte, 1, NULL) == -ESTALE);
	}
	CHECK(store_floor(s) == model->floor);
	CHECK(line_of(s, model->floor - 1)[0] == 0);
	CHECK(store_floor_set(s, store_last_sequence(s) + 2, NULL, NULL) == -EINVAL);
}

static struct store *reopen(struct store *s)
{
	CHECK(store_close(s) == 0);
	CHECK(check_store(print_fault) == 0);
	return open_store();
}

/* A child commits nothing but is killed while a reservation stands; the next boot leaves a gap. */
static void commit_one(struct store *s)
{
	struct store_event e = {.type = STORE_PUT,
				.key = BYTES("user:0"),
				.value = BYTES("crashed"),
				.timestamp_ms = 0};

	e.timestamp_ms = (int64_t)model->count;
	if (commit_event(s, &e) < 0)
		_exit(1);
}

static struct store *reboot(struct store *s)
{
	static int boots = 1;
	char boot[32];
	size_t gaps;

	if (model->count == EVENTS_MAX)
		return s;
	store_close(s);
	model_add(STORE_PUT, 0, 0, "crashed");
	snprintf(boot, sizeof(boot), "boot-%d", boots++);
	crash_after(commit_one, boot);
	s = open_store_after("boot-after");
	const struct store_gap *gap = store_gaps(s, &gaps);
	CHECK(gaps && gap[gaps - 1].from == model->next);
	model->next = gap[gaps - 1].to + 1;
	CHECK(store_last_sequence(s) == model->next - 1);
	return s;
}

static void the_store_equals_a_naive_model(void)
{
	struct store *s = open_store();

	model = calloc(1, sizeof(*model));
	model->floor = model->next = 1;
	test_seed("the_store_equals_a_naive_model");
	for (int i = 0; i < 1200 && test_checks_failed == 0; i++) {
		uint64_t dice = test_random(200);
		if (dice < 60)
			commit_random(s);
		else if (dice < 120)
			compare_read(s, (int)test_random(COLLECTIONS + 1) - 1);
		else if (dice < 150)
			compare_events(s);
		else if (dice < 185)
			compare_documents(s);
		else if (dice < 192)
			raise_floor(s);
		else if (dice < 198)
			s = reopen(s);
		else
			s = reboot(s);
	}
	printf("%zu events, floor %llu, next %llu\n", model->count,
	       (unsigned long long)model->floor, (unsigned long long)model->next);
	store_close(reopen(s));
	free(model);
}

int main(void)
{
	test_directory_new();
	RUN(the_store_equals_a_naive_model);
	test_directory_remove();
	test_table_bytes = 1; /* every commit hands a table of documents over */
	test_directory_new();
	RUN(the_store_equals_a_naive_model);
	test_directory_remove();
	return test_summary();
}
