/* SPDX-License-Identifier: Apache-2.0 */
/* What a group's reader uses: offset, events, ack and nack; and the files of dlq/ that take
 * numbers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout/group_words.h"
#include "layout/tree.h"

/* ---- offset ---- */

static ssize_t offset_write(struct file *file, const char *p, size_t size, uint64_t offset,
			    int flags, struct error *error)
{
	enum store_group_move move;
	char who[64];
	int64_t number;

	int rc = words_offset((struct bytes){p, size}, &move, &number, error);
	if (rc < 0)
		return rc;
	snprintf(who, sizeof(who), "uid %u, pid %d", file->caller.uid, file->caller.pid);
	rc = store_group_move(file->layout->store, file->node.collection, move, number,
			      bytes_of(who), error);
	return rc < 0 ? rc : (ssize_t)size;
}

static ssize_t offset_read(struct file *file, uint64_t offset, char *p, size_t size,
			   struct error *error)
{
	return file_of_text.read(file, offset, p, size, error);
}

const struct file_operations file_of_offset = {
	.size = sizeof(struct file),
	.writable = true,
	.read = offset_read,
	.write = offset_write,
};

/* ---- events ---- */

struct events_file {
	struct live_file live;
	struct store_group_reader *reader;
};

static int events_more(struct live_file *f, size_t size, struct buffer *lines, struct error *error)
{
	return store_group_deliver(((struct events_file *)f)->reader, size, lines, error);
}

static bool events_has_more(struct live_file *f)
{
	return store_group_ready(((struct events_file *)f)->reader);
}

/* Nothing but this begins to read a group. */
static int events_open(struct file *file, struct content **shared, struct error *error)
{
	struct events_file *f = (struct events_file *)file;

	if (file->layout->options.read_only)
		return error_set(error, -EROFS,
				 "the mount is read-only, and a delivery is a change");
	int rc = store_group_reader_open(file->layout->store, file->node.collection,
					 file->caller.pid, &f->reader, error);
	if (rc < 0)
		return rc;
	f->live.more = events_more;
	f->live.has_more = events_has_more;
	live_open(&f->live);
	return 0;
}

static int events_close(struct file *file, struct error *error)
{
	struct events_file *f = (struct events_file *)file;

	live_close(&f->live);
	store_group_reader_close(f->reader);
	return 0;
}

const struct file_operations file_of_group_events = {
	.size = sizeof(struct events_file),
	.open = events_open,
	.read = live_read,
	.ready = live_ready,
	.close = events_close,
};

int group_find_events(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error)
{
	ret_node->number = live_number(layout);
	return 0;
}

/* It grows by what its reader was given. Never empty, since `tail -f` waits for the end of a file
 * that is; there is no empty line in front, for each line is work. */
int group_stat_events(struct layout *layout, const struct node *node, const struct content *content,
		      struct stat *st, struct error *error)
{
	uint64_t size = live_size(layout, node);

	int rc = ctl_stat_text(layout, node, NULL, st, error);
	st->st_size = size ? (off_t)size : 1;
	return rc;
}

/* ---- files that take words ---- */

#define LINE_BYTES_MAX (1 << 20)

/* The complete lines of a write count together; what is behind the last one waits for its rest. */
struct words_file {
	struct file file;
	struct buffer pending;
};

/* Makes room for one more behind `count` elements: for twice as many, at each power of two. */
static int make_room(void *array, size_t count, size_t element)
{
	void **p = array;

	if (count & (count - 1))
		return 0;
	void *grown = realloc(*p, (2 * count + 1) * element);
	if (!grown)
		return -ENOMEM;
	*p = grown;
	return 0;
}

static int by_range(const void *a, const void *b)
{
	const struct store_group_ack *x = a, *y = b;

	if (!x->delivery != !y->delivery)
		return !x->delivery - !y->delivery;
	return (x->from > y->from) - (x->from < y->from);
}

/* Ranges that overlap become one, so that none of their events is looked at twice. */
static size_t merge_ranges(struct store_group_ack *acks, size_t count)
{
	size_t n = 0;

	qsort(acks, count, sizeof(*acks), by_range);
	for (size_t i = 0; i < count; i++) {
		struct store_group_ack *last = n ? &acks[n - 1] : NULL;
		if (!last || last->delivery || acks[i].delivery || acks[i].from > last->to)
			acks[n++] = acks[i];
		else if (acks[i].to > last->to)
			last->to = acks[i].to;
	}
	return n;
}

static int apply_acks(struct file *file, struct bytes text, struct error *error)
{
	struct store_group_ack *acks = NULL;
	size_t count = 0;
	int rc;

	do {
		rc = make_room(&acks, count, sizeof(*acks));
		if (rc == 0)
			rc = words_next_ack(&text, &acks[count], error);
		count += rc > 0;
	} while (rc > 0);
	if (rc == 0 && count)
		rc = store_group_acknowledge(file->layout->store, file->node.collection, acks,
					     merge_ranges(acks, count), error);
	free(acks);
	return rc;
}

static int apply_nacks(struct file *file, struct bytes text, struct error *error)
{
	struct store_group_nack *nacks = NULL;
	size_t count = 0;
	int rc;

	do {
		rc = make_room(&nacks, count, sizeof(*nacks));
		if (rc == 0)
			rc = words_next_nack(&text, &nacks[count], error);
		count += rc > 0;
	} while (rc > 0);
	if (rc == 0 && count)
		rc = store_group_refuse(file->layout->store, file->node.collection, nacks, count,
					error);
	free(nacks);
	return rc;
}

static int apply(struct file *file, struct bytes text, struct error *error)
{
	switch (row_of(&file->node)) {
	case ROW_GROUP_ACK:
		return apply_acks(file, text, error);
	case ROW_GROUP_NACK:
		return apply_nacks(file, text, error);
	default:
		return dead_letters_apply(file->layout, row_of(&file->node), text, error);
	}
}

/* What can still become a line begins with a number, or is the beginning of `all`. */
static bool may_begin(struct bytes rest)
{
	static const char beginning[] = "0123456789-#al";
	size_t i = 0;

	while (i < rest.n && memchr(" \t\r", rest.p[i], 3))
		i++;
	while (i < rest.n && memchr(beginning, rest.p[i], sizeof(beginning) - 1))
		i++;
	return i == rest.n || memchr(" \t\r", rest.p[i], 3);
}

static ssize_t words_write(struct file *file, const char *p, size_t size, uint64_t offset,
			   int flags, struct error *error)
{
	struct words_file *f = (struct words_file *)file;
	const char *end = memrchr(p, '\n', size);
	size_t taken = end ? f->pending.n + (size_t)(end - p) + 1 : 0;
	int rc = buffer_add(&f->pending, p, size);
	struct bytes text = buffer_bytes(&f->pending);

	if (rc == 0 && text.n - taken > LINE_BYTES_MAX)
		rc = error_set(error, -EFBIG, "a line is longer than %d bytes", LINE_BYTES_MAX);
	/* What cannot become a line fails now, and all before it too. */
	if (rc == 0 && !may_begin((struct bytes){text.p + taken, text.n - taken}))
		taken = text.n;
	if (rc == 0 && taken)
		rc = apply(file, (struct bytes){text.p, taken}, error);
	if (rc < 0)
		f->pending.n = 0;
	else
		buffer_consume(&f->pending, taken);
	return rc < 0 ? rc : (ssize_t)size;
}

static int words_flush(struct file *file, struct error *error)
{
	struct words_file *f = (struct words_file *)file;

	int rc = f->pending.n ? apply(file, buffer_bytes(&f->pending), error) : 0;
	f->pending.n = 0;
	return rc;
}

static int words_close(struct file *file, struct error *error)
{
	int rc = words_flush(file, error);

	buffer_free(&((struct words_file *)file)->pending);
	return rc;
}

const struct file_operations file_of_words = {
	.size = sizeof(struct words_file),
	.writable = true,
	.write = words_write,
	.flush = words_flush,
	.close = words_close,
};
