/* SPDX-License-Identifier: Apache-2.0 */
/* The node table: each kind of file is one row. */
#include "layout/formats/format.h"
#include "layout/tree.h"

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
