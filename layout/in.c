/* SPDX-License-Identifier: Apache-2.0 */
/* in/: files that take lines. What a line means is the format's; here is how lines come together
 * from writes, and what a write answers. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "layout/formats/format.h"
#include "layout/formats/json.h"
#include "layout/names.h"
#include "layout/tree.h"

int in_find_source(struct layout *layout, const struct node *parent, const char *name,
		   struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer source = {0};
	static const char prefix[] = "wal2json@";

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 ||
	    name_collection_read(name + sizeof(prefix) - 1, &source) < 0)
		return -ENOENT;
	if (!source.n || memchr(source.p, 0, source.n) || !bytes_are_utf8(buffer_bytes(&source)))
		return -ENOENT;
	node_take_text(ret_node, &source);
	return 0;
}

int in_stat(struct layout *layout, const struct node *node, const struct content *content,
	    struct stat *st, struct error *error)
{
	struct store_stream stream;

	if (node->text_size)
		st->st_ino = ino_of_text(row_of(node), 0, node_text(node));
	int rc = store_stream_stat(layout->store, 0, &stream);
	st->st_mtim = time_of_ms(stream.last_ms);
	return rc;
}

struct lines_file {
	struct file file;
	struct format_state *state;
	struct store_batch *batch;
	struct buffer pending; /* a line that has begun */
	bool skipping;	       /* the rest of a line that was too long */
	struct buffer refused; /* the rest of a line that was bad, as the last write gave it */
	int refused_code;
	int flags; /* of the last write */
};

static int lines_open(struct file *file, struct content **shared, struct error *error)
{
	struct lines_file *f = (struct lines_file *)file;
	struct bytes source = BYTES("default");

	if (!file->writable)
		return 0;
	if (file->node.text_size)
		source = node_text(&file->node);
	f->batch = store_batch_new(file->layout->store);
	if (!f->batch)
		return -ENOMEM;
	int rc = file->node.row->format->open(source, &f->state);
	if (rc < 0)
		store_batch_free(f->batch);
	return rc;
}

static int commit(struct lines_file *f, struct error *error)
{
	return store_commit(f->file.layout->store, f->batch, f->flags & O_DSYNC, NULL, error);
}

static bool sends_dead_letters(struct lines_file *f)
{
	struct store_config config;

	store_config_get(f->file.layout->store, &config);
	return config.on_decode_error == STORE_DECODE_ERROR_TO_DLQ;
}

/* A line over the limit is refused; the format never sees it, but a transaction that it belongs to
 * has to fail with it. */
static int refuse_long(struct lines_file *f, struct error *error)
{
	const struct format *format = f->file.node.row->format;
	struct error reason;

	int rc = error_set(&reason, -EFBIG, "a line is longer than %llu bytes",
			   (unsigned long long)store_line_limit(f->file.layout->store));
	if (format->fail)
		format->fail(f->state, rc, &reason);
	return error_set(error, rc, "%s", reason.text);
}

static int skip_rest(struct lines_file *f, const char *p, size_t size, struct error *error)
{
	f->skipping = memchr(p, '\n', size) == NULL;
	return error_set(error, -EFBIG, "this is the rest of a line that was too long");
}

/* How far one write has come. */
struct intake {
	const char *p;
	size_t size;
	size_t taken;	  /* bytes of lines that the format has taken */
	size_t committed; /* bytes that are in the log, or held by the format */
	size_t joined;	  /* bytes of this write in `pending`, as its first line's rest */
	bool began;	  /* that line's beginning was accepted by an earlier write */
};

/*
 * The kernel cuts a write(2) into pieces, and when one is refused tells the writer a short count:
 * the writer then comes again with the rest. If that is the rest of a line whose beginning had been
 * accepted, it is no line of its own.
 */
static int keep_refused(struct lines_file *f, const struct intake *w, int code)
{
	size_t n = w->joined < w->size ? w->joined + 1 : w->size;

	f->refused_code = code;
	f->refused.n = 0;
	return buffer_add(&f->refused, w->p, n);
}

static bool is_refused_rest(struct lines_file *f, const char *p, size_t size)
{
	size_t n = f->refused.n < size ? f->refused.n : size;
	bool same = n && memcmp(f->refused.p, p, n) == 0;

	f->refused.n = 0;
	return same;
}

/* The next complete line of the write; false if there is none. */
static bool next_line(struct lines_file *f, struct intake *w, struct bytes *ret_line, int *ret_rc)
{
	const char *from = w->p + w->taken;
	const char *newline = memchr(from, '\n', w->size - w->taken);

	*ret_rc = 0;
	if (!newline)
		return false;
	*ret_line = (struct bytes){from, (size_t)(newline - from)};
	if (w->taken == 0 && f->pending.n) {
		w->joined = ret_line->n;
		w->began = true;
		*ret_rc = buffer_add_bytes(&f->pending, *ret_line);
		*ret_line = buffer_bytes(&f->pending);
	}
	w->taken = (size_t)(newline - w->p) + 1;
	return true;
}

/* What was accepted of the write stays accepted; the rest is for the next one, which says why. */
static ssize_t stop(struct lines_file *f, const struct intake *w, int rc, const struct error *error)
{
	const struct format *format = f->file.node.row->format;
	struct error reason;

	store_batch_clear(f->batch);
	if (w->committed) {
		f->pending.n = 0;
		return (ssize_t)w->committed;
	}
	/* The line's beginning was accepted by an earlier write. A bad line goes as a whole. When
	 * only the commit failed, the same write may come again; but a source sends its whole
	 * transaction again. */
	bool again = rc != -EINVAL && rc != -EFBIG && !format->has_source;
	if (!again && w->began && keep_refused(f, w, rc) < 0)
		return -ENOMEM;
	f->pending.n = again ? f->pending.n - w->joined : 0;
	if (!format->fail)
		return rc;
	error_set(&reason, rc, "%s", error ? error->text : "");
	format->fail(f->state, rc, &reason);
	return rc;
}

static int take_lines(struct lines_file *f, struct intake *w, struct error *error)
{
	const struct format *format = f->file.node.row->format;
	bool dead_letters = sends_dead_letters(f);
	struct bytes line;
	int rc;

	for (;;) {
		size_t before = w->taken;
		if (!next_line(f, w, &line, &rc))
			return 0;
		if (rc == 0)
			rc = line.n > store_line_limit(f->file.layout->store)
				     ? refuse_long(f, error)
				     : format->line(f->state, f->batch, line, dead_letters, error);
		f->skipping = false; /* this line's end has been seen */
		if (rc < 0) {
			w->taken = before;
			return rc;
		}
	}
}

/* The good lines in front of a bad one are committed all the same. */
static int commit_taken(struct lines_file *f, struct intake *w, struct error *error)
{
	int rc = store_batch_is_empty(f->batch) ? 0 : commit(f, error);

	if (rc == 0)
		w->committed = w->taken;
	return rc;
}

static ssize_t lines_write(struct file *file, const char *p, size_t size, uint64_t offset,
			   int flags, struct error *error)
{
	struct lines_file *f = (struct lines_file *)file;
	struct intake w = {.p = p, .size = size};

	f->flags = flags;
	if (is_refused_rest(f, p, size))
		return error_set(error, f->refused_code,
				 "this is the rest of a line that was refused");
	if (f->skipping)
		return skip_rest(f, p, size, error);
	int bad = take_lines(f, &w, error);
	int rc = commit_taken(f, &w, bad < 0 ? NULL : error);
	if (bad < 0 || rc < 0)
		return stop(f, &w, bad < 0 ? bad : rc, error);
	if (w.taken)
		f->pending.n = 0;
	size_t rest = size - w.taken;
	if (f->pending.n + rest > store_line_limit(file->layout->store)) {
		if (w.taken)
			return (ssize_t)w.taken;
		f->pending.n = 0;
		f->skipping = true;
		return refuse_long(f, error);
	}
	if (buffer_add(&f->pending, p + w.taken, rest) < 0)
		return w.taken ? (ssize_t)w.taken : -ENOMEM;
	return (ssize_t)size;
}

static int commit_pending(struct lines_file *f, struct error *error)
{
	int rc = f->file.node.row->format->line(f->state, f->batch, buffer_bytes(&f->pending),
						sends_dead_letters(f), error);

	f->pending.n = 0;
	if (rc == FORMAT_HOLD)
		return 0;
	if (rc >= 0)
		rc = commit(f, error);
	store_batch_clear(f->batch);
	return rc;
}

/* A last line without its end is committed as soon as it is a whole value: nothing that could
 * still come would make another event of it. */
static int lines_flush(struct file *file, struct error *error)
{
	struct lines_file *f = (struct lines_file *)file;

	if (!f->pending.n || json_check(buffer_bytes(&f->pending), NULL) < 0)
		return 0;
	return commit_pending(f, error);
}

static int lines_close(struct file *file, struct error *error)
{
	struct lines_file *f = (struct lines_file *)file;
	int rc = 0;

	if (!file->writable)
		return 0;
	if (f->pending.n)
		rc = commit_pending(f, error);
	store_batch_free(f->batch);
	if (f->state)
		file->node.row->format->close(f->state);
	buffer_free(&f->pending);
	buffer_free(&f->refused);
	return rc;
}

const struct file_operations file_of_lines = {
	.size = sizeof(struct lines_file),
	.writable = true,
	.open = lines_open,
	.write = lines_write,
	.flush = lines_flush,
	.close = lines_close,
};
