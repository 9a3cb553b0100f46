/* SPDX-License-Identifier: Apache-2.0 */
/* dlq/ and ops/: numbered records beside the log, as files. */
#include <errno.h>

#include "layout/names.h"
#include "layout/tree.h"

static enum store_record_kind kind_of(enum row_id row)
{
	return row == ROW_OPS || row == ROW_OPS_EVENT ? STORE_OPS_EVENT : STORE_DEAD_LETTER;
}

int64_t records_last_ms(struct layout *layout, enum row_id row)
{
	uint64_t number;
	int64_t ms = 0;

	store_record_last(layout->store, kind_of(row), &number, &ms);
	return ms;
}

int records_find(struct layout *layout, const struct node *parent, const char *name,
		 struct node *ret_node, struct error *error)
{
	size_t size;
	int64_t ms;

	if (name_sequence_read(name, ".json", &ret_node->number) < 0)
		return -ENOENT;
	return store_record_get(layout->store, kind_of(row_of(parent)), ret_node->number, &size,
				&ms, NULL, error);
}

int records_list(struct directory *directory, uint64_t place, struct listed *ret_listed,
		 struct error *error)
{
	enum store_record_kind kind = kind_of(row_of(&directory->node));
	uint64_t number;
	char name[64];

	if (!directory->last_record) {
		int64_t ms;
		int found = store_record_last(directory->layout->store, kind,
					      &directory->last_record, &ms);
		if (found < 0 || !directory->last_record)
			return found;
	}

	int rc = store_record_next(directory->layout->store, kind, place, &number, error);
	if (rc <= 0 || number > directory->last_record)
		return rc < 0 ? rc : 0;
	ret_listed->place = number;
	ret_listed->node.number = number;
	name_sequence_write(number, ".json", name);
	rc = buffer_add_bytes(&ret_listed->name, bytes_of(name));
	return rc < 0 ? rc : 1;
}

int records_stat(struct layout *layout, const struct node *node, const struct content *content,
		 struct stat *st, struct error *error)
{
	size_t size;
	int64_t ms;

	int rc = store_record_get(layout->store, kind_of(row_of(node)), node->number, &size, &ms,
				  NULL, error);
	if (rc == 0) {
		st->st_size = (off_t)size;
		st->st_mtim = time_of_ms(ms);
	}
	return rc;
}

static int record_open(struct file *file, struct content **shared, struct error *error)
{
	struct line_file *f = (struct line_file *)file;
	size_t size;

	return store_record_get(file->layout->store, kind_of(row_of(&file->node)),
				file->node.number, &size, &f->time_ms, &f->line, error);
}

const struct file_operations file_of_record = {
	.size = sizeof(struct line_file),
	.open = record_open,
	.read = line_file_read,
	.stat = line_file_stat,
	.close = line_file_close,
};

/* ---- all of them, as one stream ---- */

/* Appends the records behind *after, whole lines of about `size` bytes but at least one. 0 at the
 * end. */
static int add_records(struct layout *layout, enum store_record_kind kind, size_t size,
		       uint64_t *after, struct buffer *lines, struct error *error)
{
	size_t start = lines->n, length;
	uint64_t number = *after;
	int64_t ms;
	int rc;

	while ((rc = store_record_next(layout->store, kind, number, &number, error)) > 0) {
		rc = store_record_get(layout->store, kind, number, &length, &ms, NULL, error);
		if (rc == 0 && lines->n > start && lines->n - start + length > size)
			break;
		if (rc == 0)
			rc = store_record_get(layout->store, kind, number, &length, &ms, lines,
					      error);
		if (rc < 0 && rc != -ENOENT) /* it was removed just now */
			break;
		*after = number;
	}
	return rc < 0 ? rc : lines->n > start;
}

/* The node's number is the last record that its text shows. One that never ends has an empty line
 * while there is none, so that `tail -f` starts, and a second number of its own. */
int records_render(struct layout *layout, const struct node *parent, const char *name,
		   struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	bool endless = ret_node->row->flags & NODE_ENDLESS;

	int rc = add_records(layout, kind_of(row_of(parent)), SIZE_MAX, &ret_node->number, &text,
			     error);
	if (rc >= 0 && endless && !text.n)
		rc = buffer_add(&text, "\n", 1);
	if (rc < 0)
		return rc;
	if (endless)
		ret_node->collection = (uint32_t)live_number(layout);
	node_take_text(ret_node, &text);
	return 0;
}

int records_stat_stream(struct layout *layout, const struct node *node,
			const struct content *content, struct stat *st, struct error *error)
{
	bool endless = node->row->flags & NODE_ENDLESS;

	st->st_ino = ino_of_row(row_of(node));
	st->st_size = endless ? (off_t)live_size(layout, node) : (off_t)node->text_size;
	st->st_blksize = endless ? 4096 : 1 << 20;
	st->st_mtim = time_of_ms(records_last_ms(layout, node->row->parent));
	return 0;
}

struct records_file {
	struct live_file live;
	_Atomic uint64_t after;
};

static int records_more(struct live_file *file, size_t size, struct buffer *lines,
			struct error *error)
{
	struct records_file *f = (struct records_file *)file;
	uint64_t after = atomic_load(&f->after);

	int rc = add_records(file->file.layout, kind_of(file->file.node.row->parent), size, &after,
			     lines, error);
	atomic_store(&f->after, after);
	return rc == 0 ? -EAGAIN : rc;
}

static bool records_have_more(struct live_file *file)
{
	uint64_t last = 0;
	int64_t ms;

	store_record_last(file->file.layout->store, kind_of(file->file.node.row->parent), &last,
			  &ms);
	return last > atomic_load(&((struct records_file *)file)->after);
}

static int records_open(struct file *file, struct content **shared, struct error *error)
{
	struct records_file *f = (struct records_file *)file;

	atomic_store(&f->after, file->node.number);
	f->live.more = records_more;
	f->live.has_more = records_have_more;
	live_open(&f->live);
	return 0;
}

static int records_close(struct file *file, struct error *error)
{
	live_close((struct live_file *)file);
	return 0;
}

const struct file_operations file_of_records = {
	.size = sizeof(struct records_file),
	.open = records_open,
	.read = live_read,
	.ready = live_ready,
	.close = records_close,
};
