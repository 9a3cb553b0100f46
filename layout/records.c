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
