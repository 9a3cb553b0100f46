/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came by itself since it was last told: new collections, events and their documents, records,
 * events that were trimmed, and the streams that grew. Each step forward gives the changes of one
 * of them into a small queue.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "layout/data.h"
#include "layout/formats/json.h"
#include "layout/names.h"
#include "layout/tree.h"

/* More new ones than this are not told one by one. */
#define BACKLOG 500
/* Events looked at in one look, whether anyone may watch them or not. */
#define STEPS 50
/* Of a backlog the streams are told at every so many-th look only. */
#define STREAMS_EVERY 5

/* How far it has come: the numbers of what was told last. */
struct progress {
	uint32_t collections;
	uint64_t sequence;
	uint64_t records[2]; /* by enum store_record_kind */
	uint64_t floor;	     /* the lowest sequence whose end was not told */
};

struct layout_changes {
	struct layout *layout;
	bool (*wanted)(void *context, uint64_t directory);
	void *context;
	struct progress now, seen; /* seen: where this look ends */
	struct progress settled;   /* before the step whose queue is at hand */
	_Atomic uint32_t known_collections;
	_Atomic uint64_t known_sequence, known_records[2];

	uint64_t *ends; /* of the streams, when they were last told */
	uint32_t end_count;
	uint32_t stream; /* the next one to compare */
	unsigned looks;	 /* since they were compared */
	unsigned steps;	 /* since the last look */
	bool complete;	 /* all that was seen was given */
	bool late;	 /* but for the streams */
	bool made;	 /* directories, whose watchers need time to come */

	uint64_t *picked; /* the newest events of a backlog, in order */
	size_t picked_count, picked_at;
	uint64_t skipped;

	struct layout_change queue[2];
	size_t queued, given;
};

static uint64_t directory_id(enum row_id row, uint32_t collection)
{
	struct node node = {.row = &node_rows[row], .collection = collection};

	return node_fixed_id(&node);
}

static bool wanted(const struct layout_changes *c, enum row_id row, uint32_t collection)
{
	return c->wanted(c->context, directory_id(row, collection));
}

/* The queue has room for what one step gives. The caller writes the name. */
static char *push(struct layout_changes *c, enum layout_action action, enum row_id row,
		  uint32_t collection)
{
	struct layout_change *change = &c->queue[c->queued++];

	change->action = action;
	change->directory = directory_id(row, collection);
	change->is_directory = false;
	return change->name;
}

static void push_named(struct layout_changes *c, enum layout_action action, enum row_id row,
		       uint32_t collection, const struct buffer *name)
{
	memcpy(push(c, action, row, collection), name->p, name->n + 1);
}

/* ---- the steps ---- */

static void step_stream(struct layout_changes *c)
{
	uint32_t id = c->stream++;
	uint64_t end = store_stream_end(c->layout->store, id);
	enum row_id row = id ? ROW_COLLECTION : ROW_FEED;

	if (c->ends[id] == end)
		return;
	c->ends[id] = end;
	if (!wanted(c, row, id))
		return;
	strcpy(push(c, LAYOUT_MODIFIED, row, id), node_rows[ROW_FEED_TAIL].name);
	strcpy(push(c, LAYOUT_MODIFIED, row, id), node_rows[ROW_FEED_LOG].name);
}

static void step_collection(struct layout_changes *c)
{
	static const enum row_id rows[] = {ROW_FEED, ROW_DATA};
	uint32_t id = ++c->now.collections;
	_cleanup_(buffer_free) struct buffer name = {0};

	if (name_collection_write(store_collection_name(c->layout->store, id), &name) < 0)
		return; /* it has no directory */
	for (int i = 0; i < 2; i++) {
		/* Who made the directory in data/ was seen as he did. */
		if (!wanted(c, rows[i], 0) ||
		    (rows[i] == ROW_DATA && store_collection_is_made(c->layout->store, id)))
			continue;
		push_named(c, LAYOUT_APPEARED, rows[i], 0, &name);
		c->queue[c->queued - 1].is_directory = true;
		c->made = true;
	}
}

/* The key of an event's line, and whether it shows a document in front of it. */
static int read_line(struct bytes line, struct buffer *ret_key, bool *ret_before)
{
	struct json_walk walk;
	struct bytes name, value;

	*ret_before = false;
	int rc = json_walk_start(&walk, line);
	while (rc >= 0 && (rc = json_walk_next(&walk, &name, &value)) > 0) {
		if (json_name_is(name, "key"))
			rc = json_string_decode(value, ret_key, NULL);
		else if (json_name_is(name, "before_snapshot"))
			*ret_before = true;
	}
	return rc;
}

/* What an event did to its document, as far as that is still so: a later one may have made or
 * removed it since, and is told for itself. Who writes the document's own file is seen as he does.
 */
static void push_document(struct layout_changes *c, const struct store_event_info *info)
{
	struct store *store = c->layout->store;
	bool put = info->type == STORE_PUT, before;
	_cleanup_(buffer_free) struct buffer line = {0}, key = {0}, name = {0};
	struct store_event_info again;
	struct store_document document;
	struct store_config config;

	if ((!put && info->type != STORE_DELETE) || info->through_file ||
	    !wanted(c, ROW_DOCUMENTS, info->collection) ||
	    store_event_get(store, info->sequence, &again, &line, NULL) < 0 ||
	    read_line(buffer_bytes(&line), &key, &before) < 0)
		return;
	int rc = data_get(c->layout, info->collection, buffer_bytes(&key), &document, NULL, NULL);
	store_config_get(store, &config);
	/* Without snapshots nobody knows whether there was a document. */
	if (put != (rc == 0) || (!put && !before && config.snapshots != STORE_SNAPSHOTS_NONE) ||
	    name_document_write(store_collection_name(store, info->collection), buffer_bytes(&key),
				&name) < 0)
		return;
	push_named(c,
		   !put	    ? LAYOUT_VANISHED
		   : before ? LAYOUT_MODIFIED
			    : LAYOUT_APPEARED,
		   ROW_DOCUMENTS, info->collection, &name);
}

static void step_event(struct layout_changes *c, uint64_t sequence)
{
	struct store_event_info info;

	c->steps++;
	if (store_event_get(c->layout->store, sequence, &info, NULL, NULL) < 0)
		return; /* trimmed meanwhile */
	if (wanted(c, ROW_COLLECTION, info.collection))
		name_sequence_write(sequence, ".json",
				    push(c, LAYOUT_APPEARED, ROW_COLLECTION, info.collection));
	push_document(c, &info);
}

static void step_record(struct layout_changes *c, enum store_record_kind kind)
{
	enum row_id row = kind == STORE_OPS_EVENT ? ROW_OPS : ROW_DLQ;
	uint64_t number = ++c->now.records[kind];

	if (wanted(c, row, 0))
		name_sequence_write(number, ".json", push(c, LAYOUT_APPEARED, row, 0));
}

static void step_trimmed(struct layout_changes *c)
{
	uint64_t sequence = c->now.floor++;
	uint32_t collection;

	c->steps++;
	if (store_event_collection(c->layout->store, sequence, &collection, NULL) == 0 &&
	    wanted(c, ROW_COLLECTION, collection))
		name_sequence_write(sequence, ".json",
				    push(c, LAYOUT_VANISHED, ROW_COLLECTION, collection));
}

/* One step; false if this look has no more, or if what follows is better told later. */
static bool step(struct layout_changes *c)
{
	const struct progress *seen = &c->seen;
	struct progress *now = &c->now;

	c->settled = *now;
	c->complete = false;
	if (c->stream < c->end_count)
		step_stream(c);
	else if (now->collections < seen->collections)
		step_collection(c);
	else if (c->made)
		return c->made = false;
	else if (c->picked_at < c->picked_count)
		step_event(c, c->picked[c->picked_at++]);
	else if (now->sequence < seen->sequence)
		step_event(c, ++now->sequence);
	else if (now->records[STORE_OPS_EVENT] < seen->records[STORE_OPS_EVENT])
		step_record(c, STORE_OPS_EVENT);
	else if (now->records[STORE_DEAD_LETTER] < seen->records[STORE_DEAD_LETTER])
		step_record(c, STORE_DEAD_LETTER);
	else if (now->floor < seen->floor)
		step_trimmed(c);
	else
		c->complete = true;
	return !c->complete;
}

/* ---- looking ---- */

static int grow_ends(struct layout_changes *c, uint32_t count)
{
	uint64_t *ends;

	if (!count || count <= c->end_count)
		return 0;
	ends = realloc(c->ends, count * sizeof(*ends));
	if (!ends)
		return -ENOMEM;
	memset(ends + c->end_count, 0, (count - c->end_count) * sizeof(*ends));
	c->ends = ends;
	c->end_count = count;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Passes over a backlog of events but for each collection's newest. */
static int pick(struct layout_changes *c)
{
	uint32_t count = c->seen.collections;
	uint64_t *picked = realloc(c->picked, ((size_t)count + 1) * sizeof(*picked));
	struct store_stream stream;

	if (!picked)
		return -ENOMEM;
	c->picked = picked;
	c->picked_count = c->picked_at = 0;
	for (uint32_t id = 1; id <= count; id++)
		if ((wanted(c, ROW_COLLECTION, id) || wanted(c, ROW_DOCUMENTS, id)) &&
		    store_stream_stat(c->layout->store, id, &stream) == 0 &&
		    stream.last_sequence > c->now.sequence &&
		    stream.last_sequence <= c->seen.sequence)
			picked[c->picked_count++] = stream.last_sequence;
	if (c->picked_count)
		qsort(picked, c->picked_count, sizeof(*picked), by_number);
	c->skipped += c->seen.sequence - c->now.sequence - c->picked_count;
	c->now.sequence = c->seen.sequence;
	return 0;
}

/* Of numbers that nothing else is known of only the newest is told. */
static void pass_over(struct layout_changes *c, uint64_t *now, uint64_t seen)
{
	if (seen <= *now + BACKLOG)
		return;
	c->skipped += seen - 1 - *now;
	*now = seen - 1;
}

static void see(struct layout_changes *c)
{
	struct store *store = c->layout->store;
	int64_t ms;

	/* The events first: their collections are there by then. */
	c->seen.sequence = store_last_sequence(store);
	c->seen.collections = store_collection_count(store);
	c->seen.floor = store_floor(store);
	for (int kind = 0; kind < 2; kind++)
		store_record_last(store, (enum store_record_kind)kind, &c->seen.records[kind], &ms);
}

int layout_changes_look(struct layout_changes *changes)
{
	struct layout_changes *c = changes;

	see(c);
	c->steps = 0;
	bool all = c->stream >= c->end_count;
	int rc = grow_ends(c, c->seen.collections + 1);
	c->late = all && !c->complete && ++c->looks < STREAMS_EVERY;
	if (c->late)
		c->stream = c->end_count;
	else if (all)
		c->stream = c->looks = 0;
	for (int kind = 0; kind < 2; kind++)
		pass_over(c, &c->now.records[kind], c->seen.records[kind]);
	pass_over(c, &c->now.floor, c->seen.floor);
	if (rc == 0 && c->picked_at == c->picked_count &&
	    c->seen.sequence > c->now.sequence + BACKLOG)
		rc = pick(c);
	return rc;
}

int layout_changes_next(struct layout_changes *changes, struct layout_change *ret_change)
{
	struct layout_changes *c = changes;

	while (c->given == c->queued) {
		c->given = c->queued = 0;
		if (c->steps >= STEPS || !step(c))
			return 0;
	}
	*ret_change = c->queue[c->given++];
	return 1;
}

bool layout_changes_done(struct layout_changes *changes)
{
	struct layout_changes *c = changes;

	if (c->given == c->queued)
		c->settled = c->now;
	atomic_store(&c->known_collections, c->settled.collections);
	if (c->picked_at == c->picked_count)
		atomic_store(&c->known_sequence, c->settled.sequence);
	for (int kind = 0; kind < 2; kind++)
		atomic_store(&c->known_records[kind], c->settled.records[kind]);
	return c->complete && !c->late;
}

int layout_changes_open(struct layout *layout, bool (*wanted_by)(void *context, uint64_t directory),
			void *context, struct layout_changes **ret_changes)
{
	struct layout_changes *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->layout = layout;
	c->wanted = wanted_by;
	c->context = context;
	see(c);
	if (grow_ends(c, c->seen.collections + 1) < 0) {
		layout_changes_close(c);
		return -ENOMEM;
	}
	for (; c->stream < c->end_count; c->stream++)
		c->ends[c->stream] = store_stream_end(layout->store, c->stream);
	c->now = c->seen;
	c->complete = true;
	layout_changes_done(c);
	*ret_changes = c;
	return 0;
}

void layout_changes_close(struct layout_changes *changes)
{
	if (!changes)
		return;
	free(changes->ends);
	free(changes->picked);
	free(changes);
}

bool layout_changes_await(const struct layout_changes *changes, const struct node *node)
{
	switch (row_of(node)) {
	case ROW_COLLECTION:
	case ROW_DOCUMENTS:
		return node->collection > atomic_load(&changes->known_collections);
	case ROW_EVENT:
		return node->number > atomic_load(&changes->known_sequence);
	case ROW_OPS_EVENT:
		return node->number > atomic_load(&changes->known_records[STORE_OPS_EVENT]);
	case ROW_DEAD_LETTER:
		return node->number > atomic_load(&changes->known_records[STORE_DEAD_LETTER]);
	default:
		return false;
	}
}

uint64_t layout_changes_sequence(const struct layout_changes *changes)
{
	return atomic_load(&changes->known_sequence);
}

uint64_t layout_changes_skipped(const struct layout_changes *changes)
{
	return changes->skipped;
}

int layout_vanished(struct layout *layout, const struct node *parent, const char *name,
		    struct node *ret_node, struct stat *ret_stat)
{
	struct node node = {.row = &node_rows[ROW_EVENT]};
	_cleanup_(buffer_free) struct buffer key = {0};

	if (row_of(parent) == ROW_DOCUMENTS) {
		if (name_document_read(store_collection_name(layout->store, parent->collection),
				       name, &key) < 0)
			return -ENOENT;
		node.row = &node_rows[ROW_DOCUMENT];
		node.collection = parent->collection;
		node_take_text(&node, &key);
	} else if (row_of(parent) != ROW_COLLECTION ||
		   name_sequence_read(name, ".json", &node.number) < 0) {
		return -ENOENT;
	}
	*ret_stat = stat_common(layout, &node);
	node_move(ret_node, &node);
	return 0;
}
