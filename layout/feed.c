/* SPDX-License-Identifier: Apache-2.0 */
/* feed/: events as files, the whole log and each collection as a stream. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout/names.h"
#include "layout/tree.h"

/* ---- collections ---- */

bool feed_collection_is_gone(struct store *store, uint32_t collection)
{
	struct store_stream stream = {0};

	return store_collection_is_removed(store, collection) &&
	       store_stream_stat(store, collection, &stream) == 0 && !stream.events;
}

int feed_find_collection(struct layout *layout, const struct node *parent, const char *name,
			 struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer collection = {0};

	int rc = collection_name_find(layout, name, &collection);
	if (rc < 0)
		return rc == -EINVAL ? -ENOENT : rc;
	rc = store_collection_find(layout->store, buffer_bytes(&collection), &ret_node->collection);
	return rc == 0 && feed_collection_is_gone(layout->store, ret_node->collection) ? -ENOENT
										       : rc;
}

int feed_list_collections(struct directory *directory, uint64_t place, struct listed *ret_listed,
			  struct error *error)
{
	struct store *store = directory->layout->store;
	uint32_t id;

	do {
		if (place >= directory->collections)
			return 0;
		id = (uint32_t)++place;
	} while (feed_collection_is_gone(store, id));
	ret_listed->place = place;
	ret_listed->node.collection = id;
	int rc = name_collection_write(store_collection_name(store, id), &ret_listed->name);
	return rc < 0 ? rc : 1;
}

/* ---- events ---- */

int feed_find_event(struct layout *layout, const struct node *parent, const char *name,
		    struct node *ret_node, struct error *error)
{
	struct store_event_info info;
	uint64_t sequence;

	if (name_sequence_read(name, ".json", &sequence) < 0)
		return -ENOENT;
	int rc = store_event_get(layout->store, sequence, &info, NULL, error);
	if (rc < 0)
		return rc;
	if (parent->collection && info.collection != parent->collection)
		return -ENOENT;
	*ret_node = (struct node){.row = ret_node->row, .number = sequence};
	return 0;
}

int feed_list_events(struct directory *directory, uint64_t place, struct listed *ret_listed,
		     struct error *error)
{
	uint64_t sequence;
	char name[64];

	if (!directory->events) {
		int rc = store_event_cursor_open(directory->layout->store,
						 directory->node.collection, place + 1,
						 &directory->events, error);
		if (rc < 0)
			return rc;
	} else if (directory->events_at != place) {
		store_event_cursor_seek(directory->events, place + 1);
	}
	directory->events_at = place;
	int rc = store_event_cursor_next(directory->events, &sequence, error);
	if (rc <= 0)
		return rc;
	if (sequence > directory->last_sequence)
		return 0;
	directory->events_at = sequence;
	ret_listed->place = sequence;
	ret_listed->node = (struct node){.row = &node_rows[ROW_EVENT], .number = sequence};
	name_sequence_write(sequence, ".json", name);
	rc = buffer_add_bytes(&ret_listed->name, bytes_of(name));
	return rc < 0 ? rc : 1;
}

static int stat_event(struct layout *layout, const struct node *node, struct stat *st,
		      uint32_t *ret_collection, struct error *error)
{
	struct store_event_info info;

	int rc = store_event_get(layout->store, node->number, &info, NULL, error);
	if (rc < 0)
		return rc;
	st->st_size = info.length;
	st->st_mtim = time_of_ms(info.timestamp_ms);
	*ret_collection = info.collection;
	return 0;
}

int feed_stat_event(struct layout *layout, const struct node *node, const struct content *content,
		    struct stat *st, struct error *error)
{
	uint32_t collection;

	return stat_event(layout, node, st, &collection, error);
}

int feed_stat_numbered(struct layout *layout, const struct node *node,
		       const struct content *content, struct stat *st, struct error *error)
{
	struct node event = {.row = &node_rows[ROW_EVENT], .number = node->number};
	struct node collection = {.row = &node_rows[ROW_COLLECTION]};
	struct stat directory;

	int rc = stat_event(layout, node, st, &collection.collection, error);
	if (rc == 0)
		rc = layout_stat(layout, &collection, NULL, &directory, error);
	if (rc < 0)
		return rc;
	st->st_ino = node_fixed_id(&event);
	attributes_limit(st, &directory);
	return 0;
}

static int event_open(struct file *file, struct content **shared, struct error *error)
{
	struct line_file *f = (struct line_file *)file;
	struct store_event_info info;

	int rc = store_event_get(file->layout->store, file->node.number, &info, &f->line, error);
	if (rc == 0)
		f->time_ms = info.timestamp_ms;
	return rc;
}

const struct file_operations file_of_event = {
	.size = sizeof(struct line_file),
	.open = event_open,
	.read = line_file_read,
	.stat = line_file_stat,
	.close = line_file_close,
};

/* ---- streams ---- */

/*
 * Where the file's bytes are not simply the stream's next ones: at `offset` the file shows `text`,
 * and behind it goes on at `position`. The first joint is the file's beginning.
 */
struct joint {
	uint64_t offset;
	uint64_t position;
	struct buffer text;
};

/* How a stream looks through one node: offsets of the file to positions of the stream. */
struct view {
	struct store *store;
	uint32_t collection;
	bool endless;
	struct joint *joints;
	size_t count;
	/* The last joint's end, for who asks from another thread whether there is more. */
	_Atomic uint64_t last_offset;
	_Atomic uint64_t last_position;
};

static void view_free(struct view *v)
{
	for (size_t i = 0; i < v->count; i++)
		buffer_free(&v->joints[i].text);
	free(v->joints);
	v->joints = NULL;
	v->count = 0;
}

/* Takes the text. */
static int add_joint(struct view *v, uint64_t offset, uint64_t position, struct buffer *text)
{
	struct joint *joints = realloc(v->joints, (v->count + 1) * sizeof(*joints));

	if (!joints)
		return -ENOMEM;
	v->joints = joints;
	joints[v->count++] = (struct joint){offset, position, *text};
	atomic_store(&v->last_position, position);
	atomic_store(&v->last_offset, offset + text->n);
	*text = (struct buffer){0};
	return 0;
}

static int gap_line(struct buffer *out, uint64_t from, uint64_t to, const char *reason)
{
	return buffer_printf(out,
			     "{\"type\":\"GAP\",\"from_sequence\":%llu,\"to_sequence\":%llu,"
			     "\"reason\":\"%s\"}\n",
			     (unsigned long long)from, (unsigned long long)to, reason);
}

/* A joint where a recovery left a hole in the stream, if it lies in this view. */
static int add_hole(struct view *v, const struct store_gap *gap, struct error *error)
{
	uint64_t behind = 0, ahead = 0, last = atomic_load(&v->last_position);
	_cleanup_(buffer_free) struct buffer text = {0};

	int rc = store_stream_tell(v->store, v->collection, gap->from - 1, &behind, error);
	if (rc == 0)
		rc = store_stream_seek(v->store, v->collection, gap->to, &ahead, error);
	if (rc < 0 || ahead <= last || behind >= ahead || behind < last)
		return rc;
	if (v->endless)
		rc = gap_line(&text, gap->from, gap->to, "recovery");
	if (rc < 0)
		return rc;
	return add_joint(v, atomic_load(&v->last_offset) + (behind - last), ahead, &text);
}

/* Joints for all holes behind the last joint there is. */
static int add_holes(struct view *v, struct error *error)
{
	uint64_t floor = store_floor(v->store);
	size_t count;
	const struct store_gap *gaps = store_gaps(v->store, &count);
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++)
		if (gaps[i].to >= floor)
			rc = add_hole(v, &gaps[i], error);
	return rc;
}

static int view_open(struct view *v, struct layout *layout, const struct node *node,
		     struct error *error)
{
	_cleanup_(buffer_free) struct buffer first = {0};

	*v = (struct view){
		.store = layout->store,
		.collection = node->collection,
		.endless = node->row->flags & NODE_ENDLESS,
	};
	if (buffer_add(&first, node->text, node->text_size) < 0)
		return -ENOMEM;
	int rc = add_joint(v, 0, node->number, &first);
	if (rc == 0)
		rc = add_holes(v, error);
	if (rc < 0)
		view_free(v);
	return rc;
}

static uint64_t view_size(struct view *v)
{
	uint64_t end = store_stream_end(v->store, v->collection);
	uint64_t position = atomic_load(&v->last_position);

	return atomic_load(&v->last_offset) + (end > position ? end - position : 0);
}

static struct joint *joint_at(struct view *v, uint64_t offset)
{
	size_t i = v->count - 1;

	while (i && v->joints[i].offset > offset)
		i--;
	return &v->joints[i];
}

/* One piece of bytes from one place. 0 at the end. */
static ssize_t view_read_piece(struct view *v, uint64_t offset, char *p, size_t size,
			       struct error *error)
{
	struct joint *j = joint_at(v, offset);
	uint64_t in = offset - j->offset;

	if (in < j->text.n)
		return read_bytes(buffer_bytes(&j->text), in, p, size);
	if (j + 1 < v->joints + v->count && j[1].offset - offset < size)
		size = j[1].offset - offset;
	return store_stream_read(v->store, v->collection, j->position + (in - j->text.n), p, size,
				 error);
}

/*
 * The floor has passed this offset: the line that was begun is finished, then a GAP line tells what
 * is missing, and the stream goes on at the floor.
 */
static int skip_to_floor(struct view *v, uint64_t offset, struct error *error)
{
	struct joint *j = joint_at(v, offset);
	uint64_t position = j->position + (offset - j->offset - j->text.n);
	uint64_t floor = store_floor(v->store), next = 0, from = 0;
	_cleanup_(buffer_free) struct buffer text = {0};

	int rc = store_stream_line(v->store, v->collection, position, &from, &text, error);
	if (rc == 0)
		rc = store_stream_seek(v->store, v->collection, floor - 1, &next, error);
	if (rc == 0 && from < floor)
		rc = gap_line(&text, from, floor - 1, "retention");
	if (rc < 0)
		return rc;
	while (v->count && v->joints[v->count - 1].offset >= offset && v->count > 1)
		buffer_free(&v->joints[--v->count].text);
	rc = add_joint(v, offset, next, &text);
	return rc < 0 ? rc : add_holes(v, error);
}

static ssize_t view_read(struct view *v, uint64_t offset, char *p, size_t size, struct error *error)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = view_read_piece(v, offset + done, p + done, size - done, error);
		if (n == -ESTALE && v->endless)
			n = skip_to_floor(v, offset + done, error);
		else if (n == 0)
			break;
		if (n < 0)
			return done ? (ssize_t)done : n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* ---- stream files ---- */

/* The start of the stream; an empty one that never ends begins with an empty line, so that
 * `tail -f` does not wait for its first byte before it starts. */
static int begin(struct layout *layout, struct node *node, uint64_t after, struct error *error)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	uint64_t floor = store_floor(layout->store);
	bool endless = node->row->flags & NODE_ENDLESS;

	/* Behind a retained event there may be a hole to tell of; below the floor all is gone. */
	int rc = endless && after >= floor ? store_stream_tell(layout->store, node->collection,
							       after, &node->number, error)
					   : store_stream_seek(layout->store, node->collection,
							       after, &node->number, error);
	if (rc < 0)
		return rc;
	if (endless && row_of(node) != ROW_FEED_TAIL && row_of(node) != ROW_COLLECTION_TAIL &&
	    after + 1 < floor)
		rc = gap_line(&text, after + 1, floor - 1, "retention");
	else if (endless && node->number >= store_stream_end(layout->store, node->collection))
		rc = buffer_add(&text, "\n", 1);
	if (rc == 0)
		node_take_text(node, &text);
	return rc;
}

int feed_find_stream(struct layout *layout, const struct node *parent, const char *name,
		     struct node *ret_node, struct error *error)
{
	return begin(layout, ret_node, store_floor(layout->store) - 1, error);
}

int feed_find_stream_at(struct layout *layout, const struct node *parent, const char *name,
			struct node *ret_node, struct error *error)
{
	uint64_t after = 0;

	if (strncmp(name, ".tail@", 6) != 0)
		return -ENOENT;
	if (strcmp(name + 6, "0") != 0 && name_sequence_read(name + 6, "", &after) < 0)
		return -ENOENT;
	if (after > store_last_sequence(layout->store))
		return -ENOENT;
	return begin(layout, ret_node, after, error);
}

int feed_stat_stream(struct layout *layout, const struct node *node, const struct content *content,
		     struct stat *st, struct error *error)
{
	struct store_stream stream;
	struct view view = {0};

	int rc = store_stream_stat(layout->store, node->collection, &stream);
	if (rc == 0)
		rc = view_open(&view, layout, node, error);
	if (rc < 0)
		return rc;
	st->st_size = (off_t)view_size(&view);
	st->st_mtim = time_of_ms(stream.last_ms);
	st->st_blksize = view.endless ? 4096 : 1 << 20;
	view_free(&view);
	return 0;
}

struct stream_file {
	struct file file;
	struct view view;
};

static int stream_open(struct file *file, struct content **shared, struct error *error)
{
	return view_open(&((struct stream_file *)file)->view, file->layout, &file->node, error);
}

static ssize_t stream_read(struct file *file, uint64_t offset, char *p, size_t size,
			   struct error *error)
{
	struct view *v = &((struct stream_file *)file)->view;

	ssize_t n = view_read(v, offset, p, size, error);
	if (!v->endless || n < 0)
		return n;
	if (n == 0)
		return size ? -EAGAIN : 0;
	return (ssize_t)end_inside_a_line(p, (size_t)n, size);
}

static bool stream_ready(struct file *file, uint64_t offset)
{
	return view_size(&((struct stream_file *)file)->view) > offset;
}

static int stream_close(struct file *file, struct error *error)
{
	view_free(&((struct stream_file *)file)->view);
	return 0;
}

const struct file_operations file_of_stream = {
	.size = sizeof(struct stream_file),
	.open = stream_open,
	.read = stream_read,
	.ready = stream_ready,
	.close = stream_close,
};
