/* SPDX-License-Identifier: Apache-2.0 */
/* Endless files that give what comes as it comes: see tree.h. */
#include <errno.h>
#include <stdlib.h>

#include "layout/tree.h"

/* Of what was given before the newest lines: a reader goes back by less than it reads at once.
 * Twice as much gathers before the older half goes, so that few reads move all of it. */
#define KEPT_BYTES ((size_t)1 << 20)

uint64_t live_number(struct layout *layout)
{
	return atomic_fetch_add(&layout->live.last_number, 1) + 1;
}

void live_open(struct live_file *f)
{
	struct live *live = &f->file.layout->live;

	f->kept_at = f->file.node.text_size;
	atomic_store(&f->end, f->kept_at);
	pthread_mutex_lock(&live->lock);
	f->next = live->first;
	live->first = f;
	pthread_mutex_unlock(&live->lock);
}

void live_close(struct live_file *f)
{
	struct live *live = &f->file.layout->live;
	struct live_file **p = &live->first;

	pthread_mutex_lock(&live->lock);
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	pthread_mutex_unlock(&live->lock);
	buffer_free(&f->kept);
}

uint64_t live_size(struct layout *layout, const struct node *node)
{
	struct live *live = &layout->live;
	uint64_t size = node->text_size;

	pthread_mutex_lock(&live->lock);
	struct live_file *f = live->first;
	while (f && (f->file.node.row != node->row || f->file.node.number != node->number ||
		     f->file.node.collection != node->collection))
		f = f->next;
	if (f)
		size = atomic_load(&f->end) + f->has_more(f);
	pthread_mutex_unlock(&live->lock);
	return size;
}

/* Puts more behind what is kept. */
static int take_more(struct live_file *f, size_t size, struct error *error)
{
	if (f->kept.n > 2 * KEPT_BYTES) {
		size_t old = f->kept.n - KEPT_BYTES;
		buffer_consume(&f->kept, old);
		f->kept_at += old;
	}
	int rc = f->more(f, size, &f->kept, error);
	if (rc >= 0)
		atomic_store(&f->end, f->kept_at + f->kept.n);
	return rc;
}

/* A reader that goes past the end, as one does that seeks to st_size, goes on there. */
static void move_end(struct live_file *f, uint64_t offset)
{
	f->kept.n = 0;
	f->kept_at = offset;
	atomic_store(&f->end, offset);
}

ssize_t live_read(struct file *file, uint64_t offset, char *p, size_t size, struct error *error)
{
	struct live_file *f = (struct live_file *)file;
	const struct node *node = &file->node;

	if (!size)
		return 0;
	if (offset < node->text_size)
		return read_bytes((struct bytes){node->text, node->text_size}, offset, p, size);
	if (offset < f->kept_at)
		return error_set(error, -ESTALE, "this was given too long ago to be given again");
	if (offset > atomic_load(&f->end))
		move_end(f, offset);
	if (offset == atomic_load(&f->end)) {
		int rc = take_more(f, size, error);
		if (rc < 0)
			return rc;
	}
	ssize_t n = read_bytes(buffer_bytes(&f->kept), offset - f->kept_at, p, size);
	return n > 0 ? (ssize_t)end_inside_a_line(p, (size_t)n, size) : n;
}

bool live_ready(struct file *file, uint64_t offset)
{
	struct live_file *f = (struct live_file *)file;

	return offset < atomic_load(&f->end) || f->has_more(f);
}
