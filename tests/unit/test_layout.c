/* SPDX-License-Identifier: Apache-2.0 */
/* The tree over a real store, without a kernel: nodes, streams across floors and gaps, lines. */
#include <fcntl.h>

#include "layout/layout.h"
#include "tests/unit/store_test.h"

static int no_errors(void *context, struct buffer *text)
{
	(void)context;
	(void)text;
	return 0;
}

static void no_readers(void *context, uint64_t *ret_open, uint64_t *ret_waiting)
{
	(void)context;
	*ret_open = *ret_waiting = 0;
}

static void no_announcing(void *context, struct layout_announcing *ret_announcing)
{
	(void)context;
	*ret_announcing = (struct layout_announcing){0};
}

static struct layout *open_layout_with(struct store *s, mode_t umask)
{
	struct layout_options options = {
		.umask = umask,
		.version = "test",
		.store_path = "store",
		.host = {.errors = no_errors, .readers = no_readers, .announcing = no_announcing},
	};
	struct layout *l = NULL;

	if (layout_open(s, &options, &l) < 0)
		abort();
	return l;
}

static struct layout *open_layout(struct store *s)
{
	return open_layout_with(s, 022);
}

/* Walks a path; 0 or a negative errno. */
static int find(struct layout *l, const char *path, struct node *ret_node, struct stat *st)
{
	char copy[512], *save = NULL;
	struct node node;
	int rc = layout_root(l, &node);

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *name = strtok_r(copy, "/", &save); name && rc == 0;
	     name = strtok_r(NULL, "/", &save)) {
		struct node child = {0};
		rc = layout_lookup(l, &node, name, &child, st, &test_error);
		node_free(&node);
		if (rc == 0)
			node_move(&node, &child);
	}
	if (rc == 0)
		node_move(ret_node, &node);
	return rc;
}

struct opened {
	struct node node;
	struct content *content;
	struct file *file;
};

static int open_path(struct layout *l, const char *path, int flags, struct opened *o)
{
	struct stat st;

	*o = (struct opened){0};
	int rc = find(l, path, &o->node, &st);
	if (rc == 0)
		rc = layout_file_open(l, &o->node, flags, (struct layout_caller){1, 2}, &o->content,
				      &o->file, &test_error);
	return rc;
}

static int close_opened(struct opened *o)
{
	int rc = o->file ? layout_file_close(o->file, &test_error) : 0;

	content_free(o->content);
	node_free(&o->node);
	return rc;
}

/* All bytes from an offset on, until the end or -EAGAIN. As a C string, in a static buffer. */
static const char *read_from(struct file *file, uint64_t offset, size_t step)
{
	static struct buffer out;
	ssize_t n;

	out.n = 0;
	do {
		buffer_reserve(&out, step + 1);
		n = layout_file_read(file, offset + out.n, out.p + out.n, step, &test_error);
		if (n > 0)
			out.n += (size_t)n;
	} while (n > 0);
	if (n < 0 && n != -EAGAIN) {
		printf("read at %llu: %zd %s\n", (unsigned long long)(offset + out.n), n,
		       test_error.text);
		return "(error)";
	}
	buffer_add(&out, "", 1);
	return out.p;
}

static bool path_reads(struct layout *l, const char *path, const char *expected)
{
	struct opened o;
	struct stat st;
	bool same = false;

	if (open_path(l, path, O_RDONLY, &o) == 0) {
		const char *got = read_from(o.file, 0, 7);
		same = strcmp(got, expected) == 0 &&
		       layout_stat(l, &o.node, o.content, &st, NULL) == 0 &&
		       st.st_size == (off_t)strlen(expected);
		if (!same)
			printf("%s: %s (size %lld)\n", path, got, (long long)st.st_size);
	}
	close_opened(&o);
	return same;
}

static ssize_t write_text(struct file *file, const char *text)
{
	return layout_file_write(file, text, strlen(text), 0, 0, &test_error);
}

#define LINE_1                                                                                     \
	"{\"sequence\":1,\"type\":\"PUT\",\"key\":\"a:1\",\"value\":\"1\",\"timestamp_ms\":7}\n"
#define LINE_2                                                                                     \
	"{\"sequence\":2,\"type\":\"PUT\",\"key\":\"b:1\",\"value\":\"2\",\"timestamp_ms\":7}\n"
#define LINE_3                                                                                     \
	"{\"sequence\":3,\"type\":\"PUT\",\"key\":\"a:2\",\"value\":\"3\",\"timestamp_ms\":7}\n"
#define GAP(from, to, reason)                                                                      \
	"{\"type\":\"GAP\",\"from_sequence\":" from ",\"to_sequence\":" to ",\"reason\":\"" reason \
	"\"}\n"

static void without_snapshots(struct store *s)
{
	struct store_config c;

	store_config_get(s, &c);
	c.snapshots = STORE_SNAPSHOTS_NONE;
	CHECK(set_config(s, &c) == 0);
}

static void write_three(struct store *s)
{
	without_snapshots(s);
	put(s, "a:1", "1");
	put(s, "b:1", "2");
	put(s, "a:2", "3");
}

/* ---- streams ---- */

static void an_empty_stream_begins_with_a_newline(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;
	struct stat st;
	struct node node;

	CHECK(path_reads(l, "feed/.tail", "\n"));
	CHECK(path_reads(l, "feed/log.ndjson", ""));
	CHECK(open_path(l, "feed/.tail", O_RDONLY, &o) == 0);
	without_snapshots(s);
	put(s, "a:1", "1");
	CHECK(strcmp(read_from(o.file, 0, 100), "\n" LINE_1) == 0); /* the old node keeps it */
	CHECK(path_reads(l, "feed/.tail", LINE_1));		    /* a new one has none */
	CHECK(path_reads(l, "feed/.tail@1", "\n"));
	CHECK(path_reads(l, "feed/.tail@0", LINE_1));
	CHECK(find(l, "feed/.tail@2", &node, &st) == -ENOENT);
	CHECK(find(l, "feed/.tail@x", &node, &st) == -ENOENT);
	close_opened(&o);
	layout_close(l);
	store_close(s);
}

static void a_moved_floor_gives_new_nodes(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened tail, log, event, fresh;
	struct stat before, after;
	char byte;

	write_three(s);
	CHECK(path_reads(l, "feed/.tail", LINE_1 LINE_2 LINE_3));
	CHECK(path_reads(l, "feed/a/.tail", LINE_1 LINE_3));
	CHECK(path_reads(l, "feed/a/log.ndjson", LINE_1 LINE_3));
	CHECK(open_path(l, "feed/.tail", O_RDONLY, &tail) == 0);
	CHECK(open_path(l, "feed/log.ndjson", O_RDONLY, &log) == 0);
	CHECK(open_path(l, "feed/a/1.json", O_RDONLY, &event) == 0);
	CHECK(layout_stat(l, &tail.node, NULL, &before, NULL) == 0);
	CHECK(layout_file_read(tail.file, 0, &byte, 1, NULL) == 1 && byte == '{');
	CHECK(store_floor_set(s, 3, NULL, NULL) == 0);
	CHECK(path_reads(l, "feed/.tail", LINE_3) && path_reads(l, "feed/log.ndjson", LINE_3));
	CHECK(path_reads(l, "feed/b/.tail", "\n") && path_reads(l, "feed/b/log.ndjson", ""));
	CHECK(path_reads(l, "feed/.tail@0", GAP("1", "2", "retention") LINE_3));
	/* One st_ino, two nodes, and the old one's size does not shrink. */
	CHECK(open_path(l, "feed/.tail", O_RDONLY, &fresh) == 0);
	CHECK(!node_equal(&fresh.node, &tail.node));
	CHECK(layout_stat(l, &fresh.node, NULL, &after, NULL) == 0);
	CHECK(after.st_ino == before.st_ino);
	CHECK(layout_stat(l, &tail.node, NULL, &after, NULL) == 0);
	CHECK(after.st_size == before.st_size);
	close_opened(&fresh);
	/* A reader that is overtaken inside a line gets its rest, one GAP line, and goes on. */
	const char *rest = read_from(tail.file, 1, 50);
	CHECK(strncmp(rest, &LINE_1[1], strlen(LINE_1) - 1) == 0);
	CHECK(strcmp(rest + strlen(LINE_1) - 1, GAP("2", "2", "retention") LINE_3) == 0);
	CHECK(strcmp(read_from(tail.file, strlen(LINE_1), 1000),
		     GAP("2", "2", "retention") LINE_3) == 0); /* the same again */
	CHECK(layout_file_read(log.file, 0, &byte, 1, &test_error) == -ESTALE);
	CHECK(strcmp(read_from(event.file, 0, 1000), LINE_1) == 0);
	close_opened(&event);
	CHECK(open_path(l, "feed/a/1.json", O_RDONLY, &event) == -ENOENT);
	close_opened(&event);
	close_opened(&tail);
	close_opened(&log);
	layout_close(l);
	store_close(s);
}

static void a_floor_at_the_end_leaves_an_empty_stream(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;

	write_three(s);
	CHECK(open_path(l, "feed/.tail", O_RDONLY, &o) == 0);
	CHECK(store_floor_set(s, 4, NULL, NULL) == 0);
	CHECK(path_reads(l, "feed/.tail", "\n") && path_reads(l, "feed/log.ndjson", ""));
	CHECK(strcmp(read_from(o.file, 0, 1000), GAP("1", "3", "retention")) == 0);
	uint64_t end = strlen(GAP("1", "3", "retention"));
	CHECK(!layout_file_ready(o.file, end));
	put(s, "a:9", "9");
	CHECK(layout_file_ready(o.file, end));
	CHECK(strstr(read_from(o.file, 0, 1000), "}\n{\"sequence\":4,"));
	close_opened(&o);
	layout_close(l);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

static void a_recovery_shows_as_a_gap_line(void)
{
	char expected[2000];
	size_t gaps;

	crash_after(write_three, "boot-1");
	struct store *s = open_store_after("boot-2");
	struct layout *l = open_layout(s);
	const struct store_gap *gap = store_gaps(s, &gaps);
	char line[300], last[300];

	snprintf(line, sizeof(line),
		 "{\"type\":\"GAP\",\"from_sequence\":4,\"to_sequence\":%llu,"
		 "\"reason\":\"recovery\"}\n",
		 (unsigned long long)gap[0].to);
	snprintf(last, sizeof(last),
		 "{\"sequence\":%llu,\"type\":\"PUT\",\"key\":\"a:3\",\"value\":\"4\","
		 "\"timestamp_ms\":7}\n",
		 (unsigned long long)gap[0].to + 1);
	snprintf(expected, sizeof(expected), "%s%s", LINE_1 LINE_2 LINE_3, line);
	CHECK(path_reads(l, "feed/.tail", expected)); /* nothing has come since */
	CHECK(path_reads(l, "feed/log.ndjson", LINE_1 LINE_2 LINE_3));
	CHECK(put(s, "a:3", "4") == (int64_t)gap[0].to + 1);
	snprintf(expected, sizeof(expected), "%s%s%s", LINE_1 LINE_2 LINE_3, line, last);
	CHECK(path_reads(l, "feed/.tail", expected));
	snprintf(expected, sizeof(expected), "%s%s", LINE_1 LINE_2 LINE_3, last);
	CHECK(path_reads(l, "feed/log.ndjson", expected));
	snprintf(expected, sizeof(expected), "%s%s%s", LINE_1 LINE_3, line, last);
	CHECK(path_reads(l, "feed/a/.tail", expected));
	CHECK(path_reads(l, "feed/b/log.ndjson", LINE_2));
	snprintf(expected, sizeof(expected), "%s%s%s", LINE_3, line, last);
	CHECK(path_reads(l, "feed/.tail@2", expected));
	CHECK(path_reads(l, "feed/.tail@3", expected + strlen(LINE_3)));
	/* Overtaken with the hole still ahead, and numbers that leave it out. */
	struct opened tail;
	struct store_stats stats;
	CHECK(open_path(l, "feed/.tail", O_RDONLY, &tail) == 0);
	CHECK(store_floor_set(s, 3, NULL, NULL) == 0);
	snprintf(expected, sizeof(expected), "%s%s%s%s", GAP("1", "2", "retention"), LINE_3, line,
		 last);
	CHECK(strcmp(read_from(tail.file, 0, 1000), expected) == 0);
	close_opened(&tail);
	CHECK(store_stats_get(s, &stats) == 0);
	CHECK(stats.log_bytes == strlen(LINE_3) + strlen(last) && stats.first_sequence == 3);
	CHECK(store_floor_set(s, 4, NULL, NULL) == 0); /* the floor inside the gap */
	CHECK(store_stats_get(s, &stats) == 0);
	CHECK(stats.log_bytes == strlen(last) && stats.first_sequence == gap[0].to + 1);
	CHECK(path_reads(l, "feed/log.ndjson", last));
	layout_close(l);
	store_close(s);
	CHECK(check_store(print_fault) == 0);
}

/* After a full piece of a larger read the kernel asks again; if that would wait, the lines in hand
 * would wait with it. Small reads are single pieces: tail reads exactly to the end. */
static void a_full_piece_ends_inside_a_line(void)
{
	enum { PIECE = 1 << 20 };
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;
	char *p = malloc(PIECE + 1), *value = malloc(PIECE);

	write_three(s);
	CHECK(open_path(l, "feed/.tail", O_RDONLY, &o) == 0);
	size_t all = strlen(LINE_1 LINE_2 LINE_3);
	CHECK(layout_file_read(o.file, 0, p, all, NULL) == (ssize_t)all);
	CHECK(layout_file_read(o.file, all, p, 10, NULL) == -EAGAIN);
	memset(value, 'x', PIECE);
	value[PIECE - all - strlen(LINE_1) + 1] = 0; /* so that four lines are just one piece */
	CHECK(put(s, "a:3", value) == 4);
	CHECK(layout_file_read(o.file, 0, p, PIECE + 1, NULL) == PIECE);
	CHECK(layout_file_read(o.file, 0, p, PIECE, NULL) == (ssize_t)all);
	CHECK(layout_file_read(o.file, all, p, PIECE - all, NULL) == (ssize_t)(PIECE - all) - 1);
	close_opened(&o);
	free(p);
	free(value);
	layout_close(l);
	store_close(s);
}

/* ---- lines ---- */

static void lines_come_together_from_writes(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;

	CHECK(open_path(l, "in/events", O_WRONLY, &o) == 0);
	CHECK(write_text(o.file, "{\"type\":\"PUT\",\"key\":\"a:1\",") > 0);
	CHECK(layout_file_flush(o.file, NULL) == 0 && store_last_sequence(s) == 0);
	CHECK(write_text(o.file, "\"value\":1}\n\n  \n{\"type\":\"DELETE\",\"key\":\"a:1\"}") > 0);
	CHECK(store_last_sequence(s) == 1);
	CHECK(layout_file_flush(o.file, NULL) == 0 && store_last_sequence(s) == 2);
	CHECK(write_text(o.file, "\n") == 1 && store_last_sequence(s) == 2);
	CHECK(write_text(o.file, "{\"type\":\"PUT\"") > 0);
	CHECK(close_opened(&o) == -EINVAL && store_last_sequence(s) == 2);
	layout_close(l);
	store_close(s);
}

static void a_bad_line_ends_the_write_before_it(void)
{
	static const char good[] = "{\"type\":\"PUT\",\"key\":\"a:1\",\"value\":1}\n";
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;
	char text[1000];

	CHECK(open_path(l, "in/events", O_WRONLY, &o) == 0);
	snprintf(text, sizeof(text), "%s%sbad\n%s", good, good, good);
	CHECK(write_text(o.file, text) == 2 * (ssize_t)strlen(good));
	CHECK(store_last_sequence(s) == 2);
	CHECK(write_text(o.file, text + 2 * strlen(good)) == -EINVAL);
	CHECK(store_last_sequence(s) == 2);
	CHECK(write_text(o.file, "{\"type\":\"PUT\",\"key\":\"a") > 0);
	CHECK(write_text(o.file, "\":1}\n") == -EINVAL); /* its beginning goes with it */
	CHECK(write_text(o.file, good) == (ssize_t)strlen(good) && store_last_sequence(s) == 3);
	/* The same rest again, as after a write(2) that the kernel had cut: it is no line. */
	snprintf(text, sizeof(text), "\n%s", good);
	CHECK(write_text(o.file, "half a line") > 0 && write_text(o.file, text) == -EINVAL);
	CHECK(write_text(o.file, text) == -EINVAL && store_last_sequence(s) == 3);
	CHECK(write_text(o.file, "half a line ") > 0 && write_text(o.file, good) == -EINVAL);
	CHECK(write_text(o.file, good) == -EINVAL && store_last_sequence(s) == 3);
	CHECK(write_text(o.file, good) > 0 && store_last_sequence(s) == 4);
	close_opened(&o);
	CHECK(open_path(l, "in/events", O_RDONLY, &o) == 0);
	CHECK(strcmp(read_from(o.file, 0, 10), "") == 0);
	close_opened(&o);
	layout_close(l);
	store_close(s);
}

/* Also with good lines before it in one write, and in the middle of a transaction. */
static void a_long_line_takes_nothing_along(void)
{
	static const char good[] = "{\"type\":\"PUT\",\"key\":\"a:1\",\"value\":1}\n";
	static const char begin[] = "{\"action\":\"B\",\"lsn\":\"0/1\","
				    "\"timestamp\":\"2026-01-01 00:00:00+00\"}\n";
	static const char row[] =
		"{\"action\":\"I\",\"lsn\":\"0/1\",\"schema\":\"public\",\"table\":\"t\","
		"\"columns\":[{\"name\":\"id\",\"type\":\"integer\",\"value\":1}],"
		"\"pk\":[{\"name\":\"id\",\"type\":\"integer\"}]}\n";
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;
	struct store_config c;

	store_config_get(s, &c);
	c.max_document_bytes = 1;
	CHECK(set_config(s, &c) == 0);
	size_t limit = store_line_limit(s);
	char *text = calloc(1, limit + 1000);
	strcpy(text, good);
	strcat(text, good);
	memset(text + strlen(text), 'x', limit + 1);
	strcat(text, "\n");
	CHECK(open_path(l, "in/events", O_WRONLY, &o) == 0);
	CHECK(write_text(o.file, text) == 2 * (ssize_t)strlen(good));
	CHECK(store_last_sequence(s) == 2);
	CHECK(write_text(o.file, text + 2 * strlen(good)) == -EFBIG);
	CHECK(write_text(o.file, good) > 0 && store_last_sequence(s) == 3);
	close_opened(&o);
	c.max_document_bytes = 1000;
	CHECK(set_config(s, &c) == 0);
	limit = store_line_limit(s);
	free(text);
	text = calloc(1, limit + 1000);
	memset(text, 'x', limit + 1);
	for (int with_end = 0; with_end < 2; with_end++) {
		strcpy(text + limit + 1, with_end ? "\n" : "");
		CHECK(open_path(l, "in/wal2json", O_WRONLY, &o) == 0);
		CHECK(write_text(o.file, begin) > 0);
		CHECK(write_text(o.file, row) > 0);
		CHECK(write_text(o.file, text) == -EFBIG);
		if (!with_end)
			CHECK(write_text(o.file, "\n") == -EFBIG);
		CHECK(write_text(o.file, row) == -EFBIG);
		CHECK(write_text(o.file, "{\"action\":\"C\",\"lsn\":\"0/1\"}\n") == -EFBIG);
		CHECK(store_last_sequence(s) == 3);
		close_opened(&o);
	}
	free(text);
	layout_close(l);
	store_close(s);
}

static void a_last_line_is_synced_as_the_file_says(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;
	struct store_stats before, after;
	static const char line[] = "{\"type\":\"PUT\",\"key\":\"a:1\",\"value\":1}";

	put(s, "a:1", "1"); /* the first one syncs in any case */
	CHECK(open_path(l, "in/events", O_WRONLY | O_DSYNC, &o) == 0);
	CHECK(store_stats_get(s, &before) == 0);
	CHECK(layout_file_write(o.file, line, strlen(line), 0, O_WRONLY | O_DSYNC, NULL) > 0);
	CHECK(layout_file_flush(o.file, NULL) == 0);
	CHECK(store_stats_get(s, &after) == 0);
	CHECK(after.commits == before.commits + 1 && after.syncs == before.syncs + 1);
	close_opened(&o);
	CHECK(open_path(l, "in/wal2json@%FF", O_WRONLY, &o) == -ENOENT);
	CHECK(open_path(l, "in/wal2json@%.", O_WRONLY, &o) == -ENOENT);
	layout_close(l);
	store_close(s);
}

static void a_long_line_is_refused_with_its_rest(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;
	struct store_config c;

	store_config_get(s, &c);
	c.max_document_bytes = 1;
	CHECK(set_config(s, &c) == 0);
	size_t limit = store_line_limit(s);
	char *text = malloc(limit + 2);
	memset(text, 'x', limit + 1);
	text[limit + 1] = 0;
	CHECK(open_path(l, "in/events", O_WRONLY, &o) == 0);
	CHECK(write_text(o.file, text) == -EFBIG);
	CHECK(write_text(o.file, "the rest\n") == -EFBIG);
	CHECK(write_text(o.file, "{\"type\":\"PUT\",\"key\":\"a:1\",\"value\":1}\n") > 0);
	CHECK(store_last_sequence(s) == 1);
	close_opened(&o);
	free(text);
	layout_close(l);
	store_close(s);
}

/* ---- listings ---- */

static int count_entries(struct layout *l, const char *path, bool with_nodes)
{
	struct node node = {0}, child;
	struct stat st;
	struct directory *d = NULL;
	struct directory_entry e = {.cookie = 0};
	int n = 0;

	CHECK(find(l, path, &node, &st) == 0);
	CHECK(layout_directory_open(l, &node, &d, NULL) == 0);
	while (layout_directory_next(d, e.cookie, &e, with_nodes ? &child : NULL, &st, NULL) > 0) {
		if (with_nodes && child.row) {
			CHECK(st.st_ino == e.ino);
			struct node again = {0};
			CHECK(layout_lookup(l, &node, e.name, &again, &st, NULL) == 0);
			CHECK(node_equal(&again, &child) || (node_flags(&child) & NODE_FRESH));
			node_free(&again);
			node_free(&child);
		}
		n++;
	}
	layout_directory_close(d);
	node_free(&node);
	return n;
}

static void listings_and_lookups_agree(void)
{
	static const char *const paths[] = {"", "feed", "feed/a", "data", "data/a", "in", "ctl"};
	struct store *s = open_store();
	struct layout *l = open_layout(s);

	write_three(s);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		CHECK(count_entries(l, paths[i], true) == count_entries(l, paths[i], false));
	CHECK(count_entries(l, "", true) == 2 + 8);
	CHECK(count_entries(l, "feed", true) == 2 + 2 + 2);
	CHECK(count_entries(l, "feed/a", true) == 2 + 2 + 2);
	CHECK(count_entries(l, "data/a", true) == 2 + 2);
	layout_close(l);
	store_close(s);
}

/* seekdir(3) to any cookie that was given finds the entry behind it, also far back. */
static void cookies_find_their_way_back(void)
{
	enum { DOCUMENTS = 3000 };
	static uint64_t cookies[DOCUMENTS + 10];
	static char names[DOCUMENTS + 10][256];
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct store_batch *b = store_batch_new(s);
	struct node node = {0};
	struct stat st;
	struct directory *d = NULL;
	struct directory_entry e = {.cookie = 0};
	int n = 0;

	for (int i = 0; i < DOCUMENTS; i++) {
		char key[32];
		snprintf(key, sizeof(key), "a:%d", i);
		struct store_event event = event_put(key, "1");
		CHECK(store_batch_add(b, &event, NULL) == 0);
	}
	CHECK(store_commit(s, b, false, NULL, NULL) == 0);
	store_batch_free(b);
	test_seed("cookies_find_their_way_back");
	for (int round = 0; round < 2; round++) {
		CHECK(find(l, round ? "feed/a" : "data/a", &node, &st) == 0);
		CHECK(layout_directory_open(l, &node, &d, NULL) == 0);
		e.cookie = 0;
		for (n = 0; layout_directory_next(d, e.cookie, &e, NULL, NULL, NULL) > 0; n++) {
			cookies[n] = e.cookie;
			snprintf(names[n], sizeof(names[n]), "%s", e.name);
		}
		CHECK(n == DOCUMENTS + (round ? 4 : 2));
		for (int i = 0; i < 300; i++) {
			int k = (int)test_random((uint64_t)n - 1);
			CHECK(layout_directory_next(d, cookies[k], &e, NULL, NULL, NULL) == 1);
			CHECK(strcmp(e.name, names[k + 1]) == 0);
		}
		layout_directory_close(d);
		node_free(&node);
	}
	layout_close(l);
	store_close(s);
}

/* ---- nodes ---- */

/* Also where collections and keys differ in few bits. */
static void documents_have_inodes_of_their_own(void)
{
	enum { TABLES = 20, KEYS_EACH = 100 };
	static uint64_t inodes[TABLES * KEYS_EACH];
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct store_batch *b = store_batch_new(s);
	size_t count = 0, doubles = 0;

	for (int i = 0; i < TABLES * KEYS_EACH; i++) {
		char key[16], table[16];
		snprintf(key, sizeof(key), "%d", i % KEYS_EACH);
		snprintf(table, sizeof(table), "t%d", i / KEYS_EACH);
		struct store_event event = event_put(key, "1");
		event.collection = bytes_of(table);
		CHECK(store_batch_add(b, &event, NULL) == 0);
	}
	CHECK(store_commit(s, b, false, NULL, NULL) == 0);
	store_batch_free(b);
	for (int i = 0; i < TABLES * KEYS_EACH; i++) {
		char path[64];
		struct node node;
		struct stat st;
		snprintf(path, sizeof(path), "data/t%d/%%_%d.json", i / KEYS_EACH, i % KEYS_EACH);
		CHECK(find(l, path, &node, &st) == 0);
		for (size_t k = 0; k < count; k++)
			doubles += inodes[k] == st.st_ino;
		inodes[count++] = st.st_ino;
		node_free(&node);
	}
	CHECK(doubles == 0);
	layout_close(l);
	store_close(s);
}

static void fixed_nodes_come_back_from_their_numbers(void)
{
	static const char *const paths[] = {"feed",	     "feed/a",
					    "feed/a/3.json", "feed/00003.json",
					    "feed/tail",     "data/a",
					    "ctl",	     "README.md"};
	struct store *s = open_store();
	struct layout *l = open_layout(s);

	write_three(s);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		struct node node = {0}, back = {0};
		struct stat st;
		CHECK(find(l, paths[i], &node, &st) == 0);
		uint64_t id = node_fixed_id(&node);
		CHECK(id > 1 && id >> 63 == 0);
		CHECK(st.st_ino == id || strcmp(paths[i], "feed/00003.json") == 0);
		CHECK(node_from_fixed_id(l, id, &back) == 0 && node_equal(&node, &back));
	}
	struct node back;
	CHECK(node_from_fixed_id(l, 5, &back) == -ESTALE);
	CHECK(node_from_fixed_id(l, UINT64_C(200) << 54, &back) == -ESTALE);
	layout_close(l);
	store_close(s);
}

/* ---- modes and owners ---- */

static int set(struct layout *l, const char *path, unsigned to_set, mode_t mode, unsigned id)
{
	struct stat st = {.st_mode = mode, .st_uid = id, .st_gid = id + 1};
	struct node node = {0};
	struct stat before;

	int rc = find(l, path, &node, &before);
	if (rc == 0)
		rc = layout_set(l, &node, NULL, &st, to_set, &test_error);
	node_free(&node);
	return rc;
}

/* "mode uid gid" of a path, in a static buffer. */
static const char *shown(struct layout *l, const char *path)
{
	static char text[64];
	struct node node = {0};
	struct stat st = {0};

	if (find(l, path, &node, &st) < 0 || layout_stat(l, &node, NULL, &st, NULL) < 0)
		return "none";
	node_free(&node);
	snprintf(text, sizeof(text), "%o %u %u", st.st_mode, st.st_uid, st.st_gid);
	return text;
}

#define SHOWN(path, expected) CHECK(strcmp(shown(l, path), expected) == 0)

static void modes_and_owners_are_kept_by_path(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);

	write_three(s);
	CHECK(set(l, "", LAYOUT_SET_UID, 0, 5) == 0);
	CHECK(set(l, "feed", LAYOUT_SET_MODE, 03770, 5) == 0);
	CHECK(set(l, "feed/a", LAYOUT_SET_GID, 0, 5) == 0);
	CHECK(set(l, "feed/a/log.ndjson", LAYOUT_SET_ATTRIBUTES, 06640, 5) == 0);
	CHECK(set(l, "in/events", LAYOUT_SET_MODE | LAYOUT_SET_SIZE, 0620, 5) == 0);
	CHECK(set(l, "ctl/errors", LAYOUT_SET_MODE, 0600, 5) == 0);
	for (int round = 0; round < 2; round++) {
		SHOWN("", "40755 5 0");
		SHOWN("feed", "43770 0 0");
		SHOWN("feed/a", "40755 0 6");
		SHOWN("data/a", "40755 0 0");
		SHOWN("feed/a/log.ndjson", "100640 5 6");
		SHOWN("feed/b/log.ndjson", "100444 0 0");
		SHOWN("in/events", "100620 0 0");
		SHOWN("ctl/errors", "100600 0 0");
		layout_close(l);
		l = open_layout(s);
	}
	layout_close(l);
	store_close(s);
}

static void nodes_share_what_they_stand_for(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);

	write_three(s);
	CHECK(set(l, "feed/a/.tail@1", LAYOUT_SET_MODE, 0400, 0) == 0);
	SHOWN("feed/a/.tail", "100400 0 0");
	SHOWN("feed/a/.tail@2", "100400 0 0");
	SHOWN("feed/.tail@2", "100444 0 0");
	CHECK(set(l, "in/wal2json", LAYOUT_SET_MODE, 0600, 0) == 0);
	SHOWN("in/wal2json@shop", "100600 0 0");
	CHECK(set(l, "in/wal2json@a%2Fb", LAYOUT_SET_UID, 0, 7) == 0);
	CHECK(set(l, "in/wal2json@a%252Fb", LAYOUT_SET_UID, 0, 8) == 0);
	SHOWN("in/wal2json@a%2Fb", "100600 7 0");
	SHOWN("in/wal2json@a%252Fb", "100600 8 0");
	SHOWN("in/wal2json", "100600 0 0");
	layout_close(l);
	store_close(s);
}

/* feed/1.json is as open as the directory that the event belongs to. */
static void a_directory_protects_its_events_elsewhere(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);

	write_three(s);
	SHOWN("feed/1.json", "100444 0 0");
	CHECK(set(l, "feed/a", LAYOUT_SET_ATTRIBUTES, 0710, 5) == 0);
	SHOWN("feed/1.json", "100440 5 6");
	SHOWN("feed/2.json", "100444 0 0");
	SHOWN("feed/a/1.json", "100444 0 0");
	struct node node;
	struct stat st = {0}, other = {0};
	CHECK(find(l, "feed/1.json", &node, &st) == 0 &&
	      find(l, "feed/a/1.json", &node, &other) == 0);
	CHECK(st.st_ino == other.st_ino && st.st_size == other.st_size);
	layout_close(l);
	l = open_layout_with(s, 027);
	SHOWN("feed/1.json", "100000 5 6"); /* feed/a/1.json is not for 5 either */
	SHOWN("feed/2.json", "100440 0 0");
	layout_close(l);
	store_close(s);
}

static void history_keeps_its_mode(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct store_event e = event_put("a:1", "1");

	commit_event(s, &e);
	for (int i = 0; i < 2; i++) {
		const char *path = i ? "feed/1.json" : "feed/a/1.json";
		CHECK(set(l, path, LAYOUT_SET_MODE, 0644, 0) == -EPERM);
		CHECK(set(l, path, LAYOUT_SET_UID, 0, 5) == -EPERM);
		CHECK(set(l, path, LAYOUT_SET_GID, 0, 5) == -EPERM);
		CHECK(set(l, path, LAYOUT_SET_TIMES, 0, 0) == -EPERM);
		CHECK(set(l, path, LAYOUT_SET_MODE | LAYOUT_SET_UID, S_IFREG | 0444, 0) == 0);
		SHOWN(path, "100444 0 0");
	}
	CHECK(set(l, "data/a/1.json", LAYOUT_SET_ATTRIBUTES | LAYOUT_SET_TIMES, 0600, 5) == 0);
	SHOWN("data/a/1.json", "100644 0 0");
	CHECK(set(l, "feed/log.ndjson", LAYOUT_SET_MODE | LAYOUT_SET_SIZE, 0600, 0) == -EPERM);
	SHOWN("feed/log.ndjson", "100444 0 0");
	layout_close(l);
	store_close(s);
}

static void history_is_not_written(void)
{
	struct store *s = open_store();
	struct layout *l = open_layout(s);
	struct opened o;

	write_three(s);
	CHECK(open_path(l, "feed/a/1.json", O_WRONLY, &o) == -EPERM);
	close_opened(&o);
	CHECK(open_path(l, "feed/log.ndjson", O_RDWR, &o) == -EPERM);
	close_opened(&o);
	CHECK(open_path(l, "feed/b/1.json", O_RDONLY, &o) == -ENOENT); /* it is of another one */
	close_opened(&o);
	layout_close(l);
	store_close(s);
}

int main(void)
{
	RUN_FRESH(an_empty_stream_begins_with_a_newline);
	RUN_FRESH(a_moved_floor_gives_new_nodes);
	RUN_FRESH(a_floor_at_the_end_leaves_an_empty_stream);
	RUN_FRESH(a_recovery_shows_as_a_gap_line);
	RUN_FRESH(a_full_piece_ends_inside_a_line);
	RUN_FRESH(lines_come_together_from_writes);
	RUN_FRESH(a_bad_line_ends_the_write_before_it);
	RUN_FRESH(a_long_line_is_refused_with_its_rest);
	RUN_FRESH(a_long_line_takes_nothing_along);
	RUN_FRESH(a_last_line_is_synced_as_the_file_says);
	RUN_FRESH(listings_and_lookups_agree);
	RUN_FRESH(cookies_find_their_way_back);
	RUN_FRESH(documents_have_inodes_of_their_own);
	RUN_FRESH(fixed_nodes_come_back_from_their_numbers);
	RUN_FRESH(modes_and_owners_are_kept_by_path);
	RUN_FRESH(nodes_share_what_they_stand_for);
	RUN_FRESH(a_directory_protects_its_events_elsewhere);
	RUN_FRESH(history_keeps_its_mode);
	RUN_FRESH(history_is_not_written);
	return test_summary();
}
