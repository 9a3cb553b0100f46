/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The store: one log of events in one total order, the documents they lead to, and the producers'
 * positions. All functions may be called from any thread, but an object that one caller made (a
 * batch, a cursor) belongs to one thread at a time. 0 or positive, or a negative errno.
 *
 * A *stream* is the whole log (collection 0) or one collection's events. Its bytes are the events'
 * lines, back to back, and a *position* is a byte's place in them, counted from the first event
 * ever written; positions are never given twice. Between two lines there may be a hole, where a
 * recovery went on past what might have been lost (struct store_gap).
 */
#include "base.h"

#define STORE_SEQUENCE_MAX   ((UINT64_C(1) << 53) - 1)
#define STORE_KEY_MAX	     4096
#define STORE_NAME_MAX	     1024 /* bytes of a collection's name */
#define STORE_DOCUMENT_LIMIT (UINT64_C(64) << 20)

struct store;

struct store_options {
	bool create;	     /* make the store if the directory is missing or empty */
	bool read_only;	     /* for `check`: nothing is written, nothing is recovered */
	const char *owner;   /* what the lock tells others: the mount point */
	const char *version; /* of the program, for the record of its start */
	size_t table_bytes;  /* of changed documents in memory; 0: 24 MiB; a test takes few */
	const char *boot_id; /* NULL: this machine's; a test gives another to play a reboot */
	/* NULL: the machine's clocks; a test gives its own, for leases and delays. Borrowed. */
	const _Atomic int64_t *clock_ms;
};

/* Opens a store and recovers it. -EBUSY: another process has it, the error names it;
 * -EPROTONOSUPPORT: a newer format; -ENOENT, -ENOTEMPTY: no store here. Caller closes. */
int store_open(const char *path, const struct store_options *options, struct store **ret_store,
	       struct error *error);
/* Syncs, marks the end as clean and frees. Takes NULL. */
int store_close(struct store *store);

/* ---- configuration, kept in the store, changed at run time ---- */

enum store_snapshots { STORE_SNAPSHOTS_BOTH, STORE_SNAPSHOTS_BEFORE, STORE_SNAPSHOTS_NONE };
enum store_visibility { STORE_VISIBLE_WRITTEN, STORE_VISIBLE_DURABLE };
enum store_on_decode_error { STORE_DECODE_ERROR_FAILS, STORE_DECODE_ERROR_TO_DLQ };

struct store_config {
	enum store_snapshots snapshots;
	enum store_visibility visibility;
	enum store_on_decode_error on_decode_error;
	uint64_t max_document_bytes;
};

void store_config_get(struct store *store, struct store_config *ret_config);
/* Gives the configuration to `change` and puts what that makes of it into force; nobody else
 * changes it meanwhile. -EINVAL if a value is out of range, or what `change` returns: then it is as
 * before. */
int store_config_change(struct store *store,
			int (*change)(void *context, struct store_config *config,
				      struct error *error),
			void *context, struct error *error);

/* The longest input line that is taken, in bytes: four documents of the largest size, so that a
 * value and two snapshots have room for their escapes. */
uint64_t store_line_limit(struct store *store);

/* ---- writing ---- */

enum store_type { STORE_PUT = 1, STORE_DELETE, STORE_TRUNCATE, STORE_MESSAGE };

/* "PUT" and so on; NULL for no type. */
const char *store_type_name(enum store_type type);
/* 0 if the name is no type that a producer may send. */
enum store_type store_type_of(struct bytes name);

/*
 * One event as a producer gives it. All slices are borrowed during the call only. value, before
 * and after are raw documents (not JSON-escaped); the store writes them as JSON strings, or as
 * base64 with "encoding":"base64" in the metadata if one of them is not UTF-8.
 */
struct store_event {
	enum store_type type;
	struct bytes collection; /* absent: from the key, see store_key_collection() */
	struct bytes key;	 /* UTF-8, 1 to STORE_KEY_MAX bytes */
	struct bytes value;	 /* absent: null for DELETE, left out for TRUNCATE and MESSAGE */
	struct bytes before;	 /* absent: filled from the current document, as configured */
	struct bytes after;	 /* absent: the value, as configured */
	struct bytes metadata;	 /* a JSON object's text; absent: none */
	int64_t timestamp_ms;	 /* the producer's */
	bool encoded;		 /* the metadata already says "encoding":"base64" */
	/*
	 * When not NULL: called at the commit, under the log's order, with this event's `value` and
	 * the current document (absent if there is none), to make the value that is recorded.
	 * Appends it to ret_value; sets *ret_partial when a part is missing that no document could
	 * give: then "partial":true goes to the metadata and the document is not written.
	 */
	int (*patch)(struct bytes value, struct bytes current, struct buffer *ret_value,
		     bool *ret_partial);
	/* PUT: not recorded where the document is already these very bytes. */
	bool unless_same;
	/* Not 0: the document has to be the one that the event of this sequence wrote, else the
	 * whole batch fails with -ESTALE. */
	uint64_t expected;
	/* The document was changed through its own file, so who watches that has seen it. */
	bool through_file;
	/* The key whose document `patch` gets, as it stood before this batch's event just in front
	 * of this one (a change of key is a DELETE and a PUT). Absent: the event's own key, now. */
	struct bytes patch_key;
};

/* The collection of a key that has no table beside it: the part before the first ':', else "_". */
struct bytes store_key_collection(struct bytes key);

/* Events that are committed together, in their order, at the end of the log or not at all. */
struct store_batch;

struct store_batch *store_batch_new(struct store *store);
void store_batch_free(struct store_batch *batch);
void store_batch_clear(struct store_batch *batch);
size_t store_batch_count(const struct store_batch *batch);
/* Adds one event. -EINVAL, -EFBIG (key, document or line over its limit): the batch is as before.
 */
int store_batch_add(struct store_batch *batch, const struct store_event *event,
		    struct error *error);

/*
 * Ends a source's transaction: what was added since the last one's end (or the beginning) is it,
 * and `position` is the source's position after it. The name is copied: UTF-8 without NUL, 1 to
 * STORE_NAME_MAX bytes, else -EINVAL. At the commit `position` is compared with the stored one: not
 * above it and `time_us` not newer than the newest seen: the transaction is skipped whole, it has
 * been here before; not above it and newer: -ESTALE for the whole batch, this is another server.
 * time_us is 0 where the producer gives none.
 */
int store_batch_source(struct store_batch *batch, struct bytes name, uint64_t position,
		       int64_t time_us);

/* A place in a batch, to go back to: what was added since is taken out again. */
struct store_batch_mark {
	size_t events, bytes, records, transactions;
};

struct store_batch_mark store_batch_mark(const struct store_batch *batch);
void store_batch_rollback(struct store_batch *batch, struct store_batch_mark mark);
/* Adds an ops event, recorded in the same commit. `details` is a JSON object's text, copied and not
 * checked, or absent. */
int store_batch_ops(struct store_batch *batch, const char *type, struct bytes details);

/* Adds a dead letter, kept in the same commit: `members` are those of its JSON object behind
 * "dlq_sequence" and "enqueued_at_ms", without the braces. 0 or -ENOMEM. */
int store_batch_dead_letter(struct store_batch *batch, struct bytes members);
/* True if a commit of it would do nothing. */
bool store_batch_is_empty(const struct store_batch *batch);

struct store_committed {
	uint64_t first; /* sequences; both 0 if nothing was recorded */
	uint64_t last;
	bool skipped; /* the sources had sent all of it before */
};

/* Commits and clears the batch. On return readers see it and it survives a crash of the process;
 * with `sync`, a power cut. On error nothing of it is there: -ENOSPC, -ESTALE, -EIO. The batch is
 * left as it was on error. ret_committed may be NULL. */
int store_commit(struct store *store, struct store_batch *batch, bool sync,
		 struct store_committed *ret_committed, struct error *error);
/* Makes all that was committed before this call survive a power cut. */
int store_sync(struct store *store, struct error *error);

/* Called after each commit by the committing thread, without any lock, once readers see it. */
void store_set_listener(struct store *store, void (*listener)(void *context), void *context);

/* ---- the floor and the gaps ---- */

/* The lowest sequence that is retained: the log holds [floor, next). */
uint64_t store_floor(struct store *store);
/* The newest sequence that readers see, 0 in a new store. */
uint64_t store_last_sequence(struct store *store);
/* Moves the floor up to `sequence`; -EINVAL beyond last + 1. Readers obey at once. With a `rule` an
 * ops event tells what left the log and why; NULL: none does. */
int store_floor_set(struct store *store, uint64_t sequence, const char *rule, struct error *error);

/* Sequences that no event will ever have, because a recovery went on past a reservation. */
struct store_gap {
	uint64_t from; /* the first missing sequence; from - 1 is the last survivor */
	uint64_t to;   /* the last missing one */
};

/* The gaps in order; they change only at store_open(). Borrowed until store_close(). */
const struct store_gap *store_gaps(struct store *store, size_t *ret_count);

/* ---- collections ---- */

/* Collection ids are 1, 2, 3 … up to this number; 0 stands for the whole log. */
uint32_t store_collection_count(struct store *store);
/* When a collection came or went last: commit time of the newest one's first event, or a removal
 * since the store was opened; the store's birth if there is none. */
int64_t store_collection_newest_ms(struct store *store);
/* Makes an empty collection, or lets one that was removed appear again. -EEXIST: it is there;
 * -EINVAL: not a collection's name. */
int store_collection_create(struct store *store, struct bytes name, struct error *error);
/*
 * Removes a collection that has no documents: it counts as removed until its next event.
 * -ENOTEMPTY. Its number, its name and its events stay.
 */
int store_collection_remove(struct store *store, uint32_t id, struct error *error);
bool store_collection_is_removed(struct store *store, uint32_t id);
/* False: none is. */
bool store_collections_any_removed(struct store *store);
/* It was made by store_collection_create(), since the store was opened. */
bool store_collection_is_made(struct store *store, uint32_t id);
/* The id, or -ENOENT. */
int store_collection_find(struct store *store, struct bytes name, uint32_t *ret_id);
/* Borrowed until store_close(). Absent if there is no such id. */
struct bytes store_collection_name(struct store *store, uint32_t id);

/* ---- reading streams ---- */

struct store_stream {
	uint64_t base;	 /* position of the first retained event, or end */
	uint64_t end;	 /* position behind the newest event */
	uint64_t events; /* how many it has ever had */
	uint64_t last_sequence;
	int64_t last_ms; /* commit time of the newest event; the birth if there is none */
};

int store_stream_stat(struct store *store, uint32_t collection, struct store_stream *ret_stream);
/* Only the end, without touching the disk: what a waiting reader asks. */
uint64_t store_stream_end(struct store *store, uint32_t collection);
/* The position of the first event whose sequence is above `sequence`; the end if there is none. */
int store_stream_seek(struct store *store, uint32_t collection, uint64_t sequence,
		      uint64_t *ret_position, struct error *error);
/* The position behind the last event whose sequence is below or equal to `sequence`; 0 if there is
 * none on the disk. */
int store_stream_tell(struct store *store, uint32_t collection, uint64_t sequence,
		      uint64_t *ret_position, struct error *error);
/*
 * Copies up to `size` bytes from `position` on; returns how many. 0 at the end. Stops before a
 * hole. -ESTALE: the position is below the floor. -EBADMSG: the store is damaged there.
 */
ssize_t store_stream_read(struct store *store, uint32_t collection, uint64_t position, char *p,
			  size_t size, struct error *error);

/*
 * What is left of the line at a position, also below the floor, as long as it is on the disk: its
 * bytes from there on are appended to `text` unless the position is its first byte. ret_next is the
 * sequence of the first line that begins at or behind the position.
 */
int store_stream_line(struct store *store, uint32_t collection, uint64_t position,
		      uint64_t *ret_next, struct buffer *text, struct error *error);

struct store_event_info {
	uint64_t sequence;
	uint32_t collection;
	enum store_type type;
	int64_t timestamp_ms; /* the producer's */
	int64_t commit_ms;
	uint32_t length;     /* of the line, with its \n */
	unsigned char flags; /* the store's own, see keys.h */
	bool through_file;   /* see struct store_event */
};

/* One event; its line is appended to `line` unless that is NULL. -ENOENT: trimmed or not yet. */
int store_event_get(struct store *store, uint64_t sequence, struct store_event_info *ret_info,
		    struct buffer *line, struct error *error);

/* The collection of an event, also below the floor, as long as it is on the disk. -ENOENT. */
int store_event_collection(struct store *store, uint64_t sequence, uint32_t *ret_collection,
			   struct error *error);

/* Walks a collection's retained events up to the end that there was when it was opened. */
struct store_event_cursor;
int store_event_cursor_open(struct store *store, uint32_t collection, uint64_t from,
			    struct store_event_cursor **ret_cursor, struct error *error);
/* 1 and the next sequence, 0 at the end. */
int store_event_cursor_next(struct store_event_cursor *cursor, uint64_t *ret_sequence,
			    struct error *error);
/* Goes on with the first event whose sequence is at least `from`. */
void store_event_cursor_seek(struct store_event_cursor *cursor, uint64_t from);
void store_event_cursor_close(struct store_event_cursor *cursor);

/* ---- documents ---- */

struct store_document {
	uint64_t sequence; /* of the event that wrote it */
	int64_t timestamp_ms;
	uint64_t size;
};

/* The current document; its text is appended to `text` unless that is NULL. -ENOENT. */
int store_document_get(struct store *store, uint32_t collection, struct bytes key,
		       struct store_document *ret_document, struct buffer *text,
		       struct error *error);

/* Walks the documents of a collection as they were when it was opened, in byte order of keys. */
struct store_document_cursor;
int store_document_cursor_open(struct store *store, uint32_t collection,
			       struct store_document_cursor **ret_cursor, struct error *error);
/* 1, 0 at the end. The key is borrowed until the next call. */
int store_document_cursor_next(struct store_document_cursor *cursor, struct bytes *ret_key,
			       struct store_document *ret_document, struct error *error);
/* Goes on with `key` itself or what follows it; an absent key: from the start. */
void store_document_cursor_seek(struct store_document_cursor *cursor, struct bytes key);
void store_document_cursor_close(struct store_document_cursor *cursor);

/* ---- sources ---- */

struct store_source {
	struct bytes name; /* borrowed during the callback */
	uint64_t position;
	int64_t time_us;
	uint64_t events;
	uint64_t skipped; /* batches that had been here before, since the store was opened */
};

/* Calls `each` for every source in the order of names, until it returns other than 0. */
int store_source_each(struct store *store,
		      int (*each)(void *context, const struct store_source *source), void *context);
/* Forgets the positions of sources, all or none, each recorded as an ops event. -ENOENT. */
int store_sources_forget(struct store *store, const struct bytes *names, size_t count,
			 struct error *error);

/* ---- attributes: modes and owners of what shows the store, kept for it ---- */

enum {
	STORE_ATTRIBUTE_MODE = 1,
	STORE_ATTRIBUTE_UID = 2,
	STORE_ATTRIBUTE_GID = 4,
	STORE_ATTRIBUTES_ALL = 7,
};

struct store_attributes {
	unsigned set; /* which of them were ever set */
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	int64_t changed_ms;
};

/* Keeps the attributes of what has this name, in the place of those that it had; with `set` 0 they
 * are forgotten. On return they survive a power cut. -ENOSPC, -EIO: it has the old ones. */
int store_attributes_set(struct store *store, struct bytes name,
			 const struct store_attributes *attributes, struct error *error);
/* Calls `each` for all names, in byte order, until it returns other than 0; the name is borrowed
 * during the call. 0, what `each` returned if negative, or -EBADMSG. */
int store_attributes_each(struct store *store,
			  int (*each)(void *context, struct bytes name,
				      const struct store_attributes *attributes),
			  void *context, struct error *error);

/* ---- records beside the log: ops events and dead letters, numbered 1, 2, 3 … ---- */

enum store_record_kind { STORE_OPS_EVENT, STORE_DEAD_LETTER };

/* One record's line, appended to `line` unless that is NULL; *ret_size are its bytes, *ret_ms is
 * when it was written. -ENOENT. */
int store_record_get(struct store *store, enum store_record_kind kind, uint64_t number,
		     size_t *ret_size, int64_t *ret_ms, struct buffer *line, struct error *error);
/* 1 and the first number above `after`, 0 if there is none. */
int store_record_next(struct store *store, enum store_record_kind kind, uint64_t after,
		      uint64_t *ret_number, struct error *error);
/* The newest record's number and when it was written; 0 and the store's birth if there is none. */
int store_record_last(struct store *store, enum store_record_kind kind, uint64_t *ret_number,
		      int64_t *ret_ms);

/* ---- the state of things ---- */

enum store_last_end { STORE_END_NEW, STORE_END_CLEAN, STORE_END_CRASH, STORE_END_REBOOT };

struct store_stats {
	char identity[33]; /* the store's own, 32 hexadecimal digits */
	int64_t created_ms;
	enum store_last_end last_end;
	uint64_t first_sequence; /* 0 when empty */
	uint64_t last_sequence;
	uint64_t log_bytes; /* of retained lines */
	uint64_t disk_bytes;
	uint64_t commits; /* since it was opened; events and syncs likewise */
	uint64_t events;
	uint64_t syncs;
};

int store_stats_get(struct store *store, struct store_stats *ret_stats);
/* Bytes on disk and bytes that may still be written, for statfs. */
int store_room(struct store *store, uint64_t *ret_used, uint64_t *ret_free);

/* Verifies the invariants of the log, its index, its positions and counts, and of the documents, in
 * a store that was opened read-only; calls `report` for each fault. Returns the number of faults.
 */
int store_check(struct store *store, void (*report)(void *context, const char *fault),
		void *context);
