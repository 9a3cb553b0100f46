/* SPDX-License-Identifier: Apache-2.0 */
/* groups/ and the groups' pending/: what is there, making and removing. */
#include <errno.h>
#include <stdlib.h>

#include "layout/names.h"
#include "layout/tree.h"
#include "store/consumer.h"

/* ---- groups ---- */

int groups_find(struct layout *layout, const struct node *parent, const char *name,
		struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer group = {0};

	int rc = name_collection_read(name, &group);
	if (rc < 0)
		return rc == -EINVAL ? -ENOENT : rc;
	return store_group_find(layout->store, buffer_bytes(&group), &ret_node->collection);
}

int group_name_write(struct layout *layout, uint32_t group, struct buffer *ret_name)
{
	_cleanup_(buffer_free) struct buffer name = {0};

	int rc = store_group_name(layout->store, group, &name);
	return rc < 0 ? rc : name_collection_write(buffer_bytes(&name), ret_name);
}

unsigned groups_count(struct layout *layout)
{
	uint32_t group = 0;
	unsigned count = 0;

	while (store_group_next(layout->store, group, &group) > 0)
		count++;
	return count;
}

/* The first group above `after` that still has its name. 1, 0. */
static int next_group(struct directory *directory, uint32_t after, struct listed *ret_listed)
{
	struct layout *layout = directory->layout;
	uint32_t group = after;
	int rc;

	do {
		rc = store_group_next(layout->store, group, &group);
		if (rc <= 0 || group > directory->last_record)
			return rc < 0 ? rc : 0;
		rc = group_name_write(layout, group, &ret_listed->name);
	} while (rc == -ENOENT);
	ret_listed->place = group;
	ret_listed->node.collection = group;
	return rc < 0 ? rc : 1;
}

int groups_list(struct directory *directory, uint64_t place, struct listed *ret_listed,
		struct error *error)
{
	uint32_t group = 0;

	if (!directory->last_record)
		while (store_group_next(directory->layout->store, group, &group) > 0)
			directory->last_record = group;
	return next_group(directory, (uint32_t)place, ret_listed);
}

static int groups_mkdir(struct layout *layout, const struct node *parent, const char *name,
			struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer group = {0};

	int rc = name_collection_read(name, &group);
	if (rc == -EINVAL)
		return name_refuse(rc, "group", error);
	if (rc == 0)
		rc = store_group_create(layout->store, buffer_bytes(&group), &ret_node->collection,
					error);
	if (rc < 0)
		return rc;
	ret_node->row = &node_rows[ROW_GROUP];
	atomic_store(&layout->groups_changed, clock_wall_ms());
	/* What an earlier group of this name has left. */
	return attributes_forget_below(layout, ret_node, error);
}

static int groups_rmdir(struct layout *layout, const struct node *parent, const char *name,
			struct error *error)
{
	struct node node = {0};

	int rc = layout_lookup_node(layout, parent, name, &node, error);
	if (rc == 0)
		rc = store_group_remove(layout->store, node.collection, error);
	if (rc == 0)
		atomic_store(&layout->groups_changed, clock_wall_ms());
	return rc;
}

const struct directory_operations directory_of_groups = {
	.mkdir = groups_mkdir,
	.rmdir = groups_rmdir,
};

/* ---- pending/ ---- */

/* The event's line, with the delivery at its end. */
static int render_pending(struct layout *layout, const struct store_group_pending *pending,
			  struct bytes group, struct buffer *line)
{
	while (line->n && (line->p[line->n - 1] == '\n' || line->p[line->n - 1] == '}'))
		line->n--;
	return buffer_printf(line, ",\"delivery\":{\"group\":") < 0 ||
			       buffer_add_json_string(line, group) < 0 ||
			       buffer_printf(line,
					     ",\"attempt\":%u,\"id\":%llu,\"pid\":%d,"
					     "\"delivered_ms\":%lld,\"due_ms\":%lld}}\n",
					     pending->attempts,
					     (unsigned long long)pending->delivery, pending->pid,
					     (long long)pending->delivered_ms,
					     (long long)pending->due_ms) < 0
		       ? -ENOMEM
		       : 0;
}

int pending_find(struct layout *layout, const struct node *parent, const char *name,
		 struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer line = {0}, group = {0};
	struct store_group_pending pending;

	if (name_sequence_read(name, ".json", &ret_node->number) < 0)
		return -ENOENT;
	int rc = store_group_pending_get(layout->store, parent->collection, ret_node->number,
					 &pending, &line, error);
	if (rc == 0)
		rc = store_group_name(layout->store, parent->collection, &group);
	if (rc == 0)
		rc = render_pending(layout, &pending, buffer_bytes(&group), &line);
	if (rc == 0)
		node_take_text(ret_node, &line);
	return rc;
}

/* Listings are of what was there at their start. */
static int freeze_pending(struct directory *directory)
{
	struct store_group_pending pending = {0};
	size_t capacity = 0;
	int rc;

	directory->pending_count = 0;
	do {
		if (directory->pending_count == capacity) {
			capacity = 2 * capacity + 64;
			uint64_t *grown = realloc(directory->pending, capacity * sizeof(*grown));
			if (!grown)
				return -ENOMEM;
			directory->pending = grown;
		}
		rc = store_group_pending_next(directory->layout->store, directory->node.collection,
					      pending.sequence, &pending);
		if (rc > 0)
			directory->pending[directory->pending_count++] = pending.sequence;
	} while (rc > 0);
	return rc;
}

/* The first one above `place`, by bisection; the count if there is none. */
static size_t find_pending(const struct directory *directory, uint64_t place)
{
	size_t from = 0, to = directory->pending_count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;
		if (directory->pending[middle] > place)
			to = middle;
		else
			from = middle + 1;
	}
	return to;
}

int pending_list(struct directory *directory, uint64_t place, struct listed *ret_listed,
		 struct error *error)
{
	char name[64];
	int rc = directory->pending ? 0 : freeze_pending(directory);

	if (rc < 0)
		return rc;
	size_t i = find_pending(directory, place);
	if (i == directory->pending_count)
		return 0;
	ret_listed->place = ret_listed->node.number = directory->pending[i];
	name_sequence_write(ret_listed->place, ".json", name);
	rc = buffer_add_bytes(&ret_listed->name, bytes_of(name));
	return rc < 0 ? rc : 1;
}

int pending_stat(struct layout *layout, const struct node *node, const struct content *content,
		 struct stat *st, struct error *error)
{
	struct store_group_pending pending;

	st->st_ino = ino_of_text(ROW_PENDING_EVENT, node->collection,
				 (struct bytes){(const char *)&node->number, sizeof(node->number)});
	st->st_size = (off_t)node->text_size;
	/* Who has it open may look on when it is done. */
	int rc = store_group_pending_get(layout->store, node->collection, node->number, &pending,
					 NULL, error);
	if (rc == 0)
		st->st_mtim = time_of_ms(pending.delivered_ms);
	return rc == -ENOENT ? 0 : rc;
}

int pending_set(struct layout *layout, const struct node *node, struct content *content,
		const struct stat *attributes, unsigned to_set, struct error *error)
{
	int rc = 0;

	if (to_set & LAYOUT_SET_ATTRIBUTES)
		rc = attributes_set(layout, node, attributes, to_set, error);
	if (rc == 0 && to_set & LAYOUT_SET_TIMES)
		rc = store_group_renew(layout->store, node->collection, node->number, error);
	return rc;
}

static int pending_unlink(struct layout *layout, const struct node *parent, const char *name,
			  struct error *error)
{
	struct store_group_pending pending;
	struct store_group_ack ack = {0};

	if (name_sequence_read(name, ".json", &ack.from) < 0)
		return -ENOENT;
	ack.to = ack.from;
	int rc = store_group_pending_get(layout->store, parent->collection, ack.from, &pending,
					 NULL, error);
	if (rc < 0)
		return rc;
	return store_group_acknowledge(layout->store, parent->collection, &ack, 1, error);
}

/* touch(1) opens what it renews; but nothing can be written there. */
static ssize_t pending_write(struct file *file, const char *p, size_t size, uint64_t offset,
			     int flags, struct error *error)
{
	return error_set(error, -EPERM, "touch renews the lease, rm acknowledges");
}

static ssize_t pending_read(struct file *file, uint64_t offset, char *p, size_t size,
			    struct error *error)
{
	return file_of_text.read(file, offset, p, size, error);
}

const struct file_operations file_of_pending = {
	.size = sizeof(struct file),
	.writable = true,
	.read = pending_read,
	.write = pending_write,
};

const struct directory_operations directory_of_pending = {.unlink = pending_unlink};
