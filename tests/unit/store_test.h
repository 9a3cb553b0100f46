/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A store in a directory of its own, and short words for what the tests do with it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store.h"
#include "tests/unit/test.h"

static char test_directory[64];
static struct error test_error;
static size_t test_table_bytes; /* 0: as in the program */

static inline void test_directory_new(void)
{
	strcpy(test_directory, "/tmp/changefs-unit-XXXXXX");
	if (!mkdtemp(test_directory))
		abort();
}

static inline void test_directory_remove(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", test_directory);
	if (system(command) != 0)
		abort();
}

static inline struct store *open_store_after(const char *boot_id)
{
	struct store_options options = {.create = true,
					.owner = "/mnt/x",
					.boot_id = boot_id,
					.table_bytes = test_table_bytes};
	struct store *store = NULL;

	int rc = store_open(test_directory, &options, &store, &test_error);
	if (rc < 0) {
		printf("store_open: %d %s\n", rc, test_error.text);
		abort();
	}
	return store;
}

static inline struct store *open_store(void)
{
	return open_store_after("boot-1");
}

static inline void print_fault(void *context, const char *fault)
{
	(void)context;
	printf("fault: %s\n", fault);
}

static inline void ignore_fault(void *context, const char *fault)
{
	(void)context;
	(void)fault;
}

/* Faults of the closed store. */
static inline int check_store(void (*report)(void *, const char *))
{
	struct store_options options = {.read_only = true};
	struct store *store = NULL;

	if (store_open(test_directory, &options, &store, &test_error) < 0) {
		printf("check: %s\n", test_error.text);
		return -1;
	}
	int faults = store_check(store, report, NULL);
	store_close(store);
	return faults;
}

static inline struct store_event event_put(const char *key, const char *value)
{
	return (struct store_event){.type = STORE_PUT,
				    .key = bytes_of(key),
				    .value = bytes_of(value),
				    .timestamp_ms = 7};
}

static inline int copy_config(void *context, struct store_config *config, struct error *error)
{
	(void)error;
	*config = *(const struct store_config *)context;
	return 0;
}

static inline int set_config(struct store *store, struct store_config *config)
{
	return store_config_change(store, copy_config, config, &test_error);
}

/* Commits one event; the sequence, or a negative errno. */
static inline int64_t commit_event(struct store *store, const struct store_event *event)
{
	struct store_batch *batch = store_batch_new(store);
	struct store_committed done = {0};

	int rc = store_batch_add(batch, event, &test_error);
	if (rc == 0)
		rc = store_commit(store, batch, false, &done, &test_error);
	store_batch_free(batch);
	return rc < 0 ? rc : (int64_t)done.first;
}

static inline int64_t put(struct store *store, const char *key, const char *value)
{
	struct store_event event = event_put(key, value);

	return commit_event(store, &event);
}

/* The line of a sequence, as a C string in a static buffer; "" if there is none. */
static inline const char *line_of(struct store *store, uint64_t sequence)
{
	static struct buffer line;
	struct store_event_info info;

	line.n = 0;
	if (store_event_get(store, sequence, &info, &line, NULL) < 0)
		return "";
	buffer_add(&line, "", 1);
	return line.p;
}

/* The current document's text, in a static buffer; "(none)" if there is none. */
static inline const char *document_of(struct store *store, const char *collection, const char *key)
{
	static struct buffer text;
	struct store_document document;
	uint32_t id;

	text.n = 0;
	if (store_collection_find(store, bytes_of(collection), &id) < 0 ||
	    store_document_get(store, id, bytes_of(key), &document, &text, NULL) < 0)
		return "(none)";
	buffer_add(&text, "", 1);
	return text.p;
}

/* Everything of a stream from a position on, read in pieces of `step` bytes. */
static inline struct buffer read_stream(struct store *store, uint32_t collection, uint64_t from,
					size_t step)
{
	struct buffer out = {0};
	ssize_t n;

	do {
		if (buffer_reserve(&out, step) < 0)
			abort();
		n = store_stream_read(store, collection, from + out.n, out.p + out.n, step,
				      &test_error);
		if (n < 0)
			printf("store_stream_read at %llu: %zd %s\n",
			       (unsigned long long)(from + out.n), n, test_error.text);
		if (n > 0)
			out.n += (size_t)n;
	} while (n > 0);
	return out;
}

/* Runs `work` in a child that is gone without closing the store, as after kill -9. */
static inline void crash_after(void (*work)(struct store *), const char *boot_id)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		work(open_store_after(boot_id));
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status != 0)
		abort();
}

/* RUN() with a directory of its own. */
#define RUN_FRESH(test)                                                                            \
	do {                                                                                       \
		test_directory_new();                                                              \
		RUN(test);                                                                         \
		test_directory_remove();                                                           \
	} while (0)
