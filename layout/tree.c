/* SPDX-License-Identifier: Apache-2.0 */
/* The node table, and finding one's way in it. */
#include "layout/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout/formats/format.h"
#include "layout/names.h"

#define DIRECTORY (S_IFDIR | 0777)
#define READABLE  (S_IFREG | 0444)
#define WRITABLE  (S_IFREG | 0666)
#define LINK	  (S_IFLNK | 0777)

#define STREAM_ROWS(WHOSE, PARENT, KEY, WHAT)                                                      \
	[ROW_##WHOSE##_TAIL_LINK] = {.parent = PARENT,                                             \
				     .name = "tail",                                               \
				     .about = "link to `.tail`: " WHAT ", blocks at the end",      \
				     .target = ".tail",                                            \
				     .mode = LINK,                                                 \
				     .flags = NODE_LINK | NODE_STATIC,                             \
				     .key = KEY},                                                  \
	[ROW_##WHOSE##_TAIL] = {.parent = PARENT,                                                  \
				.name = ".tail",                                                   \
				.about = "the endless stream itself, not listed",                  \
				.mode = READABLE,                                                  \
				.flags = NODE_ENDLESS | NODE_DIRECT | NODE_SEVERAL,                \
				.unlisted = true,                                                  \
				.key = NODE_FREE,                                                  \
				.file = &file_of_stream,                                           \
				.find = feed_find_stream,                                          \
				.stat = feed_stat_stream},                                         \
	[ROW_##WHOSE##_TAIL_AT] = {.parent = PARENT,                                               \
				   .shown = ".tail@SEQUENCE",                                      \
				   .about = "the stream after a sequence, not listed",             \
				   .mode = READABLE,                                               \
				   .flags = NODE_ENDLESS | NODE_DIRECT,                            \
				   .unlisted = true,                                               \
				   .key = NODE_FREE,                                               \
				   .attributes = ATTRIBUTES_SHARED,                                \
				   .like = ROW_##WHOSE##_TAIL,                                     \
				   .file = &file_of_stream,                                        \
				   .find = feed_find_stream_at,                                    \
				   .stat = feed_stat_stream},                                      \
	[ROW_##WHOSE##_LOG] = {                                                                    \
		.parent = PARENT,                                                                  \
		.name = "log.ndjson",                                                              \
		.about = WHAT ", ends at the newest",                                              \
		.mode = READABLE,                                                                  \
		.flags = NODE_DIRECT | NODE_SEVERAL,                                               \
		.key = NODE_FREE,                                                                  \
		.file = &file_of_stream,                                                           \
		.find = feed_find_stream,                                                          \
		.stat = feed_stat_stream,                                                          \
	}

#define RENDERED_ROW(NAME, ABOUT, MODE, FILE_OPERATIONS, RENDER)                                   \
	{                                                                                          \
		.parent = ROW_CTL, .name = NAME, .about = ABOUT, .mode = MODE,                     \
		.flags = NODE_FRESH, .key = NODE_FREE, .file = FILE_OPERATIONS, .find = RENDER,    \
		.stat = ctl_stat_text                                                              \
	}

#define LINES_ROW(NAME, FORMAT, ABOUT)                                                             \
	{                                                                                          \
		.parent = ROW_IN, .name = NAME, .about = ABOUT, .mode = WRITABLE,                  \
		.flags = NODE_FRESH | NODE_DIRECT, .key = NODE_FREE, .format = FORMAT,             \
		.file = &file_of_lines, .stat = in_stat                                            \
	}

#define GROUP_TEXT_ROW(NAME, ABOUT, MODE, FLAGS, FILE_OPERATIONS, RENDER)                          \
	{                                                                                          \
		.parent = ROW_GROUP, .name = NAME, .about = ABOUT, .mode = MODE,                   \
		.flags = NODE_FRESH | (FLAGS), .key = NODE_FREE, .like = ROW_GROUP,                \
		.file = FILE_OPERATIONS, .find = RENDER, .stat = ctl_stat_text                     \
	}

#define GROUP_LINES_ROW(NAME, ABOUT)                                                               \
	{                                                                                          \
		.parent = ROW_GROUP, .name = NAME, .about = ABOUT, .mode = WRITABLE,               \
		.flags = NODE_FRESH | NODE_DIRECT | NODE_TIMED, .key = NODE_FREE,                  \
		.like = ROW_GROUP, .file = &file_of_words, .stat = in_stat                         \
	}

#define DEAD_LETTERS_ROW(NAME, ABOUT)                                                              \
	{                                                                                          \
		.parent = ROW_DLQ, .name = NAME, .about = ABOUT, .mode = WRITABLE,                 \
		.flags = NODE_FRESH | NODE_DIRECT | NODE_TIMED, .key = NODE_FREE,                  \
		.file = &file_of_words, .stat = in_stat                                            \
	}

#define RECORDS_ROWS(WHOSE, WHAT)                                                                  \
	[ROW_##WHOSE##_TAIL_LINK] = {.parent = ROW_##WHOSE,                                        \
				     .name = "tail",                                               \
				     .about = "link to `.tail`: " WHAT ", blocks at the end",      \
				     .target = ".tail",                                            \
				     .mode = LINK,                                                 \
				     .flags = NODE_LINK | NODE_STATIC},                            \
	[ROW_##WHOSE##_TAIL] = {.parent = ROW_##WHOSE,                                             \
				.name = ".tail",                                                   \
				.about = "the endless stream itself, not listed",                  \
				.mode = READABLE,                                                  \
				.flags = NODE_FRESH | NODE_ENDLESS | NODE_DIRECT,                  \
				.unlisted = true,                                                  \
				.key = NODE_FREE,                                                  \
				.file = &file_of_records,                                          \
				.find = records_render,                                            \
				.stat = records_stat_stream},                                      \
	[ROW_##WHOSE##_LOG] = {                                                                    \
		.parent = ROW_##WHOSE,                                                             \
		.name = "log.ndjson",                                                              \
		.about = WHAT ", ends at the newest",                                              \
		.mode = READABLE,                                                                  \
		.flags = NODE_FRESH | NODE_DIRECT,                                                 \
		.key = NODE_FREE,                                                                  \
		.file = &file_of_text,                                                             \
		.find = records_render,                                                            \
		.stat = records_stat_stream,                                                       \
	}

#define RECORD_ROW(PARENT, FLAGS, ABOUT)                                                           \
	{                                                                                          \
		.parent = PARENT, .shown = "NUMBER.json", .about = ABOUT, .mode = READABLE,        \
		.flags = FLAGS, .key = NODE_BY_SEQUENCE, .attributes = ATTRIBUTES_FIXED,           \
		.file = &file_of_record, .find = records_find, .list = records_list,               \
		.stat = records_stat                                                               \
	}

const struct node_row node_rows[ROWS] = {
	[ROW_ROOT] = {.mode = DIRECTORY, .flags = NODE_DIRECTORY | NODE_STATIC},
	[ROW_README] = {.parent = ROW_ROOT,
			.name = "README.md",
			.about = "this tree, explained",
			.mode = READABLE,
			.flags = NODE_STATIC,
			.file = &file_of_readme,
			.stat = readme_stat},

	[ROW_FEED] = {.parent = ROW_ROOT,
		      .name = "feed",
		      .about = "the log: every change, in one order",
		      .mode = DIRECTORY,
		      .flags = NODE_DIRECTORY | NODE_STATIC},
	STREAM_ROWS(FEED, ROW_FEED, NODE_BY_ROW, "every event of the log, a line each"),
	[ROW_FEED_EVENT] = {.parent = ROW_FEED,
			    .shown = "SEQUENCE.json",
			    .about = "an event of any collection, not listed",
			    .mode = READABLE,
			    .unlisted = true,
			    .key = NODE_BY_SEQUENCE,
			    .attributes = ATTRIBUTES_FIXED,
			    .file = &file_of_event,
			    .find = feed_find_event,
			    .stat = feed_stat_numbered},
	[ROW_COLLECTION] = {.parent = ROW_FEED,
			    .shown = "COLLECTION",
			    .about = "the events of one collection",
			    .mode = DIRECTORY,
			    .flags = NODE_DIRECTORY,
			    .key = NODE_BY_COLLECTION,
			    .find = feed_find_collection,
			    .list = feed_list_collections},
	STREAM_ROWS(COLLECTION, ROW_COLLECTION, NODE_BY_COLLECTION,
		    "every event of the collection, a line each"),
	[ROW_EVENT] = {.parent = ROW_COLLECTION,
		       .shown = "SEQUENCE.json",
		       .about = "one event; 16 digits, any number of leading zeros opens it",
		       .mode = READABLE,
		       .flags = NODE_IMMUTABLE,
		       .key = NODE_BY_SEQUENCE,
		       .attributes = ATTRIBUTES_FIXED,
		       .file = &file_of_event,
		       .find = feed_find_event,
		       .list = feed_list_events,
		       .stat = feed_stat_event},

	[ROW_DATA] = {.parent = ROW_ROOT,
		      .name = "data",
		      .about = "the current documents; mkdir makes a collection",
		      .mode = DIRECTORY,
		      .flags = NODE_DIRECTORY | NODE_STATIC,
		      .directory = &directory_of_collections},
	[ROW_DOCUMENTS] = {.parent = ROW_DATA,
			   .shown = "COLLECTION",
			   .about = "the documents of one collection",
			   .mode = DIRECTORY,
			   .flags = NODE_DIRECTORY,
			   .key = NODE_BY_COLLECTION,
			   .directory = &directory_of_documents,
			   .find = data_find_collection,
			   .list = data_list_collections},
	[ROW_DOCUMENT] =
		{.parent = ROW_DOCUMENTS,
		 .shown = "KEY.json",
		 .about =
			 "the newest value of a key, byte for byte; writing it records a PUT, rm a "
			 "DELETE",
		 .mode = WRITABLE,
		 .flags = NODE_CONTENT | NODE_FRESH | NODE_SEVERAL,
		 .key = NODE_FREE,
		 .attributes = ATTRIBUTES_FIXED,
		 .file = &file_of_document,
		 .find = data_find_document,
		 .list = data_list_documents,
		 .stat = data_stat_document,
		 .set = data_set_document},
	[ROW_SCRATCH] =
		{.parent = ROW_DOCUMENTS,
		 .shown = "SCRATCH",
		 .about = "any name that begins with a dot or does not end in .json: a file in "
			  "memory; renaming it to KEY.json records it",
		 .mode = WRITABLE,
		 .flags = NODE_DIRECT,
		 .key = NODE_FREE,
		 .attributes = ATTRIBUTES_FIXED,
		 .file = &file_of_scratch,
		 .find = data_find_scratch,
		 .list = data_list_scratch,
		 .stat = data_stat_scratch,
		 .set = data_set_scratch},

	[ROW_IN] = {.parent = ROW_ROOT,
		    .name = "in",
		    .about = "where producers write lines; reading gives nothing",
		    .mode = DIRECTORY,
		    .flags = NODE_DIRECTORY | NODE_STATIC},
	[ROW_IN_EVENTS] = LINES_ROW("events", &format_events, "one JSON event a line"),
	[ROW_IN_WAL2JSON] = LINES_ROW(
		"wal2json", &format_wal2json,
		"the output of PostgreSQL's wal2json, format version 2 (source `default`)"),
	[ROW_IN_WAL2JSON_AT] = {.parent = ROW_IN,
				.shown = "wal2json@SOURCE",
				.about = "the same for a source of that name, not listed",
				.mode = WRITABLE,
				.flags = NODE_FRESH | NODE_DIRECT,
				.unlisted = true,
				.key = NODE_FREE,
				.like = ROW_IN_WAL2JSON,
				.format = &format_wal2json,
				.file = &file_of_lines,
				.find = in_find_source,
				.stat = in_stat},

	[ROW_GROUPS] = {.parent = ROW_ROOT,
			.name = "groups",
			.about = "consumer groups; mkdir makes one, rmdir ends it",
			.mode = DIRECTORY,
			.flags = NODE_DIRECTORY | NODE_STATIC,
			.directory = &directory_of_groups},
	[ROW_GROUP] = {.parent = ROW_GROUPS,
		       .shown = "GROUP",
		       .about = "a durable place in the log, and what was delivered from there on",
		       .mode = DIRECTORY,
		       .flags = NODE_DIRECTORY,
		       .key = NODE_BY_COLLECTION,
		       .find = groups_find,
		       .list = groups_list},
	[ROW_GROUP_OFFSET] = GROUP_TEXT_ROW(
		"offset",
		"all events up to this one are done; write `42`, `earliest`, `latest`, `+N`, `-N` "
		"or `@2026-01-31T12:00:00Z` to move it",
		WRITABLE, NODE_TIMED, &file_of_offset, group_render_offset),
	[ROW_GROUP_LAG] = GROUP_TEXT_ROW("lag", "how many events are still to be done", READABLE, 0,
					 &file_of_text, group_render_lag),
	[ROW_GROUP_CONFIG] =
		GROUP_TEXT_ROW("config.json", "settings; write an object to change some", WRITABLE,
			       NODE_TIMED, &file_of_value, group_render_config),
	[ROW_GROUP_STATS] = GROUP_TEXT_ROW("stats.json", "readers, what is out, and counts",
					   READABLE, 0, &file_of_text, group_render_stats),
	[ROW_GROUP_EVENTS_LINK] = {.parent = ROW_GROUP,
				   .name = "events",
				   .about = "link to `.events`: hands each event to one reader, "
					    "blocks at the end",
				   .target = ".events",
				   .mode = LINK,
				   .flags = NODE_LINK | NODE_STATIC,
				   .key = NODE_BY_COLLECTION},
	[ROW_GROUP_EVENTS] = {.parent = ROW_GROUP,
			      .name = ".events",
			      .about = "the group's stream itself, not listed",
			      .mode = READABLE,
			      .flags = NODE_FRESH | NODE_ENDLESS | NODE_DIRECT | NODE_TIMED,
			      .unlisted = true,
			      .key = NODE_FREE,
			      .like = ROW_GROUP,
			      .file = &file_of_group_events,
			      .find = group_find_events,
			      .stat = group_stat_events},
	[ROW_GROUP_ACK] = GROUP_LINES_ROW(
		"ack", "takes what is done: `42`, `40-45`, `42#DELIVERY`, one or many a line"),
	[ROW_GROUP_NACK] = GROUP_LINES_ROW(
		"nack",
		"takes what is to be delivered again: `42`, `42 delay=5000`, or set aside: `42 dlq "
		"the reason`; one a line"),
	[ROW_GROUP_PENDING] = {.parent = ROW_GROUP,
			       .name = "pending",
			       .about = "what was delivered and is not done yet",
			       .mode = DIRECTORY,
			       .flags = NODE_DIRECTORY | NODE_TIMED,
			       .key = NODE_BY_COLLECTION,
			       .like = ROW_GROUP,
			       .directory = &directory_of_pending},
	[ROW_PENDING_EVENT] = {.parent = ROW_GROUP_PENDING,
			       .shown = "SEQUENCE.json",
			       .about = "one of them; rm acknowledges it, touch renews its lease",
			       .mode = WRITABLE,
			       .flags = NODE_FRESH | NODE_TIMED,
			       .key = NODE_FREE,
			       .attributes = ATTRIBUTES_FIXED,
			       .like = ROW_GROUP_PENDING,
			       .file = &file_of_pending,
			       .find = pending_find,
			       .list = pending_list,
			       .stat = pending_stat,
			       .set = pending_set},

	[ROW_DLQ] = {.parent = ROW_ROOT,
		     .name = "dlq",
		     .about = "dead letters: what could not become an event, or not be handled",
		     .mode = DIRECTORY,
		     .flags = NODE_DIRECTORY | NODE_STATIC | NODE_TIMED,
		     .directory = &directory_of_dead_letters},
	[ROW_DEAD_LETTER] =
		RECORD_ROW(ROW_DLQ, 0, "one dead letter, whole, with its reason; rm discards it"),
	RECORDS_ROWS(DLQ, "every dead letter, a line each"),
	[ROW_DLQ_REPLAY] = DEAD_LETTERS_ROW(
		"replay", "takes numbers, or `all`: records their events anew at the log's end"),
	[ROW_DLQ_REDELIVER] =
		DEAD_LETTERS_ROW("redeliver",
				 "takes numbers, or `all`: gives them back to their groups"),
	[ROW_DLQ_DRAIN] = DEAD_LETTERS_ROW("drain", "takes numbers, or `all`: discards them"),
	[ROW_OPS] = {.parent = ROW_ROOT,
		     .name = "ops",
		     .about = "what the system itself did",
		     .mode = DIRECTORY,
		     .flags = NODE_DIRECTORY | NODE_STATIC},
	[ROW_OPS_EVENT] = RECORD_ROW(ROW_OPS, NODE_IMMUTABLE, "one ops event"),
	RECORDS_ROWS(OPS, "every ops event, a line each"),

	[ROW_CTL] = {.parent = ROW_ROOT,
		     .name = "ctl",
		     .about = "what goes on, and the settings",
		     .mode = DIRECTORY,
		     .flags = NODE_DIRECTORY | NODE_STATIC},
	[ROW_CTL_STATS] = RENDERED_ROW("stats.json", "numbers of the log and the daemon", READABLE,
				       &file_of_text, ctl_render_stats),
	[ROW_CTL_ERRORS] =
		RENDERED_ROW("errors", "the last 256 refused operations, each with its reason",
			     READABLE, &file_of_text, ctl_render_errors),
	[ROW_CTL_CONFIG] = RENDERED_ROW("config.json", "settings; write an object to change some",
					WRITABLE, &file_of_value, ctl_render_config),
	[ROW_CTL_SOURCES] =
		RENDERED_ROW("sources.json",
			     "producers and their positions; write {\"NAME\":null} to forget one",
			     WRITABLE, &file_of_value, ctl_render_sources),
	[ROW_CTL_TRIM] = {.parent = ROW_CTL,
			  .name = "trim",
			  .about = "takes a sequence: what is strictly below it leaves the log",
			  .mode = WRITABLE,
			  .flags = NODE_FRESH | NODE_DIRECT,
			  .key = NODE_FREE,
			  .file = &file_of_trim,
			  .stat = ctl_stat_text},
};

/* ---- nodes ---- */

void node_free(struct node *node)
{
	free(node->text);
	node->text = NULL;
	node->text_size = 0;
}

void node_move(struct node *to, struct node *from)
{
	*to = *from;
	from->text = NULL;
	from->text_size = 0;
}

void node_take_text(struct node *node, struct buffer *text)
{
	free(node->text);
	node->text = text->p;
	node->text_size = text->n;
	*text = (struct buffer){0};
}

/* Row in the upper bits, the collection or sequence in the lower 54: below 2^62. */
static uint64_t fixed_number(enum row_id row, uint64_t number)
{
	return (uint64_t)row << 54 | number;
}

uint64_t node_fixed_id(const struct node *node)
{
	switch (node->row->key) {
	case NODE_BY_ROW:
		return fixed_number(row_of(node), 0);
	case NODE_BY_COLLECTION:
		return fixed_number(row_of(node), node->collection);
	case NODE_BY_SEQUENCE:
		return fixed_number(row_of(node), node->number);
	case NODE_FREE:
		break;
	}
	return 0;
}

int node_from_fixed_id(struct layout *layout, uint64_t id, struct node *ret_node)
{
	uint64_t row = id >> 54, number = id & ((UINT64_C(1) << 54) - 1);

	if (row <= ROW_NONE || row >= ROWS || node_rows[row].key == NODE_FREE)
		return -ESTALE;
	*ret_node = (struct node){.row = &node_rows[row]};
	if (ret_node->row->key == NODE_BY_COLLECTION)
		ret_node->collection = (uint32_t)number;
	else if (ret_node->row->key == NODE_BY_SEQUENCE)
		ret_node->number = number;
	return 0;
}

bool node_id_is_directory(uint64_t id)
{
	uint64_t row = id >> 54;

	return row > ROW_NONE && row < ROWS && node_rows[row].flags & NODE_DIRECTORY;
}

bool node_same_file(const struct node *a, const struct node *b)
{
	if (a->row != b->row || a->collection != b->collection)
		return false;
	return row_of(a) != ROW_DOCUMENT || bytes_equal(node_text(a), node_text(b));
}

bool node_equal(const struct node *a, const struct node *b)
{
	return node_same_file(a, b) && a->number == b->number &&
	       bytes_equal(node_text(a), node_text(b));
}

/* FNV-1a, 64 bits, with a last mix (both by their published constants). */
static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
	const unsigned char *c = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ c[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Mixed, since a number that is only XORed in can cancel a text's first byte. */
static uint64_t hash_start(enum row_id row, uint32_t collection)
{
	uint64_t h = ((uint64_t)row << 32 | collection) * UINT64_C(0x9e3779b97f4a7c15);

	return h ^ h >> 32;
}

uint64_t node_hash(const struct node *node)
{
	uint64_t h = hash_start(row_of(node), node->collection);

	bool several = node->row->flags & NODE_SEVERAL;

	if (!several)
		h = hash_bytes(h, &node->number, sizeof(node->number));
	if (!several || row_of(node) == ROW_DOCUMENT)
		h = hash_bytes(h, node->text, node->text_size);
	return h ^ h >> 32;
}

uint64_t ino_of_draft(uint64_t id)
{
	return fixed_number(ROW_SCRATCH, id);
}

uint64_t ino_of_row(enum row_id row)
{
	return fixed_number(row, 0);
}

uint64_t ino_of_text(enum row_id row, uint32_t collection, struct bytes text)
{
	uint64_t h = hash_start(row, collection);

	h = hash_bytes(h, text.p, text.n);
	h ^= h >> 31;
	h *= UINT64_C(0x9e3779b97f4a7c15);
	return UINT64_C(1) << 62 | h >> 2;
}

unsigned node_flags(const struct node *node)
{
	return node->row->flags;
}

int layout_root(struct layout *layout, struct node *ret_node)
{
	*ret_node = (struct node){.row = &node_rows[ROW_ROOT]};
	return 0;
}

/* ---- attributes ---- */

struct timespec time_of_ms(int64_t ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	if (t.tv_nsec < 0) {
		t.tv_sec--;
		t.tv_nsec += 1000000000;
	}
	return t;
}

/* Directories change when a name comes or goes: those with fixed names never do. */
static int stat_directory(struct layout *layout, const struct node *node, struct stat *st)
{
	enum row_id row = row_of(node);
	struct store_stream stream;
	int rc = 0;

	st->st_nlink = 2;
	for (int i = 0; i < ROWS; i++)
		if (node_rows[i].parent == row && node_rows[i].name && S_ISDIR(node_rows[i].mode))
			st->st_nlink++;
	st->st_size = 4096;
	if (row == ROW_FEED || row == ROW_DATA) {
		st->st_nlink += store_collection_count(layout->store);
		st->st_mtim = time_of_ms(store_collection_newest_ms(layout->store));
	} else if (row == ROW_GROUPS) {
		st->st_nlink += groups_count(layout);
		st->st_mtim = time_of_ms(atomic_load(&layout->groups_changed));
	} else if (row == ROW_GROUP || row == ROW_GROUP_PENDING) {
		rc = ctl_stat_text(layout, node, NULL, st, NULL);
		st->st_size = 4096;
	} else if (row == ROW_DLQ || row == ROW_OPS) {
		st->st_mtim = time_of_ms(records_last_ms(layout, row));
	} else if (node->collection) {
		rc = store_stream_stat(layout->store, node->collection, &stream);
		st->st_mtim = time_of_ms(stream.last_ms);
	}
	return rc;
}

struct stat stat_common(struct layout *layout, const struct node *node)
{
	const struct node_row *row = node->row;
	struct stat st = {
		.st_ino = node_fixed_id(node),
		.st_mode = row->mode & ~(S_ISLNK(row->mode) ? 0 : layout->options.umask),
		.st_nlink = 1,
		.st_uid = layout->options.uid,
		.st_gid = layout->options.gid,
		.st_blksize = 4096,
		.st_mtim = time_of_ms(layout->created_ms),
	};

	if (!st.st_ino)
		st.st_ino = fixed_number(row_of(node), node->collection);
	return st;
}

void stat_complete(struct stat *st)
{
	st->st_blocks = st->st_size > 512 ? (st->st_size + 511) / 512 : 1;
	st->st_atim = st->st_ctim = st->st_mtim;
}

int layout_stat(struct layout *layout, const struct node *node, const struct content *content,
		struct stat *ret_stat, struct error *error)
{
	const struct node_row *row = node->row;
	struct stat st = stat_common(layout, node);
	int rc = 0;

	if (row->flags & NODE_DIRECTORY)
		rc = stat_directory(layout, node, &st);
	else if (row->flags & NODE_LINK)
		st.st_size = (off_t)strlen(row->target);
	else
		rc = row->stat(layout, node, content, &st, error);
	stat_complete(&st);
	if (rc == 0)
		rc = attributes_apply(layout, node, &st);
	*ret_stat = st;
	return rc;
}

const char *layout_readlink(const struct node *node)
{
	return node->row->target;
}

/* ---- names ---- */

static int find_in_row(struct layout *layout, const struct node *parent, const struct node_row *row,
		       const char *name, struct node *ret_node, struct error *error)
{
	if (row->parent != row_of(parent) || (row->name && strcmp(row->name, name) != 0))
		return -ENOENT;
	*ret_node = (struct node){.row = row, .collection = parent->collection};
	return row->find ? row->find(layout, parent, name, ret_node, error) : 0;
}

int layout_lookup_node(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error)
{
	int rc = -ENOENT;

	if (!(parent->row->flags & NODE_DIRECTORY))
		return -ENOTDIR;
	if (strlen(name) > 255)
		return -ENAMETOOLONG;
	for (int i = 1; i < ROWS && rc == -ENOENT; i++)
		rc = find_in_row(layout, parent, &node_rows[i], name, ret_node, error);
	return rc;
}

int layout_lookup(struct layout *layout, const struct node *parent, const char *name,
		  struct node *ret_node, struct stat *ret_stat, struct error *error)
{
	struct node node = {0};

	int rc = layout_lookup_node(layout, parent, name, &node, error);
	if (rc == 0)
		rc = layout_stat(layout, &node, NULL, ret_stat, error);
	if (rc < 0) {
		node_free(&node);
		return rc;
	}
	node_move(ret_node, &node);
	return 0;
}

size_t layout_changed_directories(uint32_t collection, uint64_t ret_ids[2])
{
	struct node feed = {.row = &node_rows[collection ? ROW_COLLECTION : ROW_FEED]};
	struct node data = {.row = &node_rows[collection ? ROW_DOCUMENTS : ROW_DATA]};

	feed.collection = data.collection = collection;
	ret_ids[0] = node_fixed_id(&feed);
	ret_ids[1] = node_fixed_id(&data);
	return 2;
}

/* ---- the layout ---- */

int layout_open(struct store *store, const struct layout_options *options,
		struct layout **ret_layout)
{
	struct store_stats stats;

	int rc = store_stats_get(store, &stats);
	if (rc < 0)
		return rc;
	struct layout *layout = calloc(1, sizeof(*layout));
	if (!layout)
		return -ENOMEM;
	layout->store = store;
	layout->options = *options;
	layout->started_ms = clock_wall_ms();
	layout->created_ms = stats.created_ms;
	atomic_store(&layout->groups_changed, layout->started_ms);
	pthread_mutex_init(&layout->live.lock, NULL);
	pthread_mutex_init(&layout->configuring, NULL);
	rc = drafts_init(&layout->drafts);
	if (rc == 0)
		rc = attributes_load(layout);
	if (rc == 0)
		rc = layout_readme(layout, &layout->readme);
	if (rc < 0) {
		layout_close(layout);
		return rc;
	}
	*ret_layout = layout;
	return 0;
}

void layout_close(struct layout *layout)
{
	if (!layout)
		return;
	layout_settle(layout, true);
	drafts_free(&layout->drafts);
	attributes_free(layout);
	pthread_mutex_destroy(&layout->configuring);
	pthread_mutex_destroy(&layout->live.lock);
	buffer_free(&layout->readme);
	free(layout);
}
