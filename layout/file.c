/* SPDX-License-Identifier: Apache-2.0 */
/* What all open files have in common. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "layout/tree.h"

void content_free(struct content *content)
{
	if (!content)
		return;
	buffer_free(&content->bytes);
	draft_unref(content->draft);
	free(content);
}

ssize_t read_bytes(struct bytes from, uint64_t offset, char *p, size_t size)
{
	if (offset >= from.n)
		return 0;
	size_t n = from.n - offset < size ? from.n - offset : size;
	memcpy(p, from.p + offset, n);
	return (ssize_t)n;
}

/* Pieces are of 256 pages, but the first may be shorter by what the reader's buffer lies behind a
 * page's start. */
#define PIECE_MIN ((1 << 20) - 4095)

size_t end_inside_a_line(const char *p, size_t n, size_t size)
{
	if (n < size || size < PIECE_MIN || p[n - 1] != '\n')
		return n;
	const char *before = memrchr(p, '\n', n - 1);
	return before ? (size_t)(before - p) + 1 : n - 1;
}

static int check_access(struct layout *layout, const struct node *node, int flags,
			struct error *error)
{
	bool writing = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);

	if (!node->row->file)
		return -EISDIR;
	if (!writing)
		return 0;
	if (layout->options.read_only)
		return error_set(error, -EROFS, "the mount is read-only");
	if (!node->row->file->writable)
		return error_set(error, -EPERM, "this is history, which does not change");
	return 0;
}

int layout_file_open(struct layout *layout, const struct node *node, int flags,
		     struct layout_caller caller, struct content **shared, struct file **ret_file,
		     struct error *error)
{
	int rc = check_access(layout, node, flags, error);

	if (rc < 0)
		return rc;
	const struct file_operations *ops = node->row->file;
	struct file *file = calloc(1, ops->size);
	if (!file)
		return -ENOMEM;
	file->ops = ops;
	file->layout = layout;
	file->node = *node;
	file->flags = flags;
	file->caller = caller;
	file->writable = (flags & O_ACCMODE) != O_RDONLY;
	file->node.text = malloc(node->text_size + 1);
	if (!file->node.text) {
		free(file);
		return -ENOMEM;
	}
	if (node->text_size)
		memcpy(file->node.text, node->text, node->text_size);
	rc = ops->open ? ops->open(file, shared, error) : 0;
	if (rc < 0) {
		node_free(&file->node);
		free(file);
		return rc;
	}
	*ret_file = file;
	return 0;
}

ssize_t layout_file_read(struct file *file, uint64_t offset, char *p, size_t size,
			 struct error *error)
{
	return file->ops->read ? file->ops->read(file, offset, p, size, error) : 0;
}

bool layout_file_ready(struct file *file, uint64_t offset)
{
	return file->ops->ready ? file->ops->ready(file, offset) : true;
}

ssize_t layout_file_write(struct file *file, const char *p, size_t size, uint64_t offset, int flags,
			  struct error *error)
{
	return file->ops->write ? file->ops->write(file, p, size, offset, flags, error) : -EBADF;
}

int layout_file_truncate(struct file *file, uint64_t size, struct error *error)
{
	return file->ops->truncate ? file->ops->truncate(file, size, error) : 0;
}

int layout_file_flush(struct file *file, struct error *error)
{
	return file->ops->flush ? file->ops->flush(file, error) : 0;
}

int layout_file_sync(struct file *file, struct error *error)
{
	if (!file->writable)
		return 0;
	return file->ops->sync ? file->ops->sync(file, error)
			       : store_sync(file->layout->store, error);
}

int layout_file_close(struct file *file, struct error *error)
{
	int rc = file->ops->close ? file->ops->close(file, error) : 0;

	node_free(&file->node);
	free(file);
	return rc;
}

int layout_file_stat(const struct file *file, struct stat *ret_stat)
{
	if (!file->ops->stat)
		return -ENOENT;
	*ret_stat = stat_common(file->layout, &file->node);
	file->ops->stat(file, ret_stat);
	ret_stat->st_nlink = 0;
	stat_complete(ret_stat);
	return 0;
}

void line_file_stat(const struct file *file, struct stat *st)
{
	const struct line_file *f = (const struct line_file *)file;

	st->st_size = (off_t)f->line.n;
	st->st_mtim = time_of_ms(f->time_ms);
}

ssize_t line_file_read(struct file *file, uint64_t offset, char *p, size_t size,
		       struct error *error)
{
	return read_bytes(buffer_bytes(&((struct line_file *)file)->line), offset, p, size);
}

int line_file_close(struct file *file, struct error *error)
{
	buffer_free(&((struct line_file *)file)->line);
	return 0;
}

static ssize_t read_text(struct file *file, uint64_t offset, char *p, size_t size,
			 struct error *error)
{
	return read_bytes(node_text(&file->node), offset, p, size);
}

const struct file_operations file_of_text = {
	.size = sizeof(struct file),
	.read = read_text,
};
