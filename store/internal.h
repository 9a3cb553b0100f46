/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the files of the store share.
 *
 * Locks, in the order in which they may be taken together:
 *   dead_letters      who takes entries out of the DLQ; before the lead of a commit
 *   a group's mutex   consumer_internal.h; after the lead, never before it
 *   commit.mutex      the queue of waiting commits, and who leads
 *   documents.mutex   the thread that moves documents into the database
 *   documents.lock    the tables of changed documents (a reader-writer lock)
 *   settings_mutex    configuration and sources, as they stand in memory
 *   collections.lock  the table of collections (a reader-writer lock)
 *   sync.mutex        who syncs, and how far
 * The leader of a commit holds none of them while it writes; what only the leader touches is
 * marked so. What readers need without a lock is atomic and only grows.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "store/block.h"
#include "store/db.h"
#include "store/documents.h"
#include "store/keys.h"
#include "store/overlay.h"
#include "store/store.h"

/* How far a stream has come. */
struct progress {
	uint64_t position;
	uint64_t events;
	uint64_t last_sequence;
	int64_t last_ms;
};

struct collection {
	uint32_t id;
	char *name;
	size_t name_size;
	struct collection *next_in_bucket;
	_Atomic int64_t created_ms; /* commit time of its first event */

	/* Leader only: the group in the making, and the block in it. */
	struct progress pending;
	bool touched;
	bool in_block;
	uint64_t block_first;
	uint64_t block_position;
	uint32_t block_count;
	uint64_t run_start; /* the run of sequences that is being counted */
	uint64_t run_length;
	uint64_t run_base; /* end of the run before it */
	struct buffer runs;

	/* What readers see. */
	_Atomic bool visible;
	_Atomic bool made;	  /* without an event, since the store was opened */
	_Atomic uint64_t removed; /* last_sequence + 1 when it was removed; 0: never */
	_Atomic uint64_t end;
	_Atomic uint64_t events;
	_Atomic uint64_t last_sequence;
	_Atomic int64_t last_ms;
};

struct collections {
	pthread_rwlock_t lock;
	struct collection **by_id; /* by_id[id - 1] */
	uint32_t count;
	uint32_t capacity;
	struct collection **buckets;
	uint32_t bucket_count; /* a power of two */
	_Atomic bool any_removed;
	_Atomic int64_t
		changed_ms; /* when one was removed, or came back; 0: not since the opening */
};

struct source {
	char *name;
	uint64_t position;
	int64_t time_us;
	uint64_t events;
	uint64_t skipped;
	bool known; /* a position was committed */
	struct source *next;

	/* What the group in the making leaves; the leader's, but under the mutex. */
	struct {
		uint64_t position;
		int64_t time_us;
		uint64_t events;
		uint64_t skipped;
		bool known;
	} pending;
};

struct span {
	size_t at;
	size_t n;
	bool there;
};

/* An event in a batch: slices of the batch's arena, and its line but for the sequence and what the
 * commit adds. */
struct prepared {
	enum store_type type;
	bool base64;  /* texts are shown as base64 */
	bool encoded; /* and the metadata said so from the start */
	bool binary;  /* the value is not UTF-8 */
	bool unless_same;
	bool through_file;
	bool is_again; /* recorded before: the line is whole, and the document is not written */
	uint64_t expected;
	int64_t timestamp_ms;
	struct span collection, key, value, metadata, before, after, patch_key;
	struct span part;   /* ,"type":… up to the metadata */
	struct span quoted; /* the value as it stands in part */
	int (*patch)(struct bytes value, struct bytes current, struct buffer *ret_value,
		     bool *ret_partial);
};

enum source_verdict { SOURCE_NEW, SOURCE_SEEN, SOURCE_OTHER_SERVER };

/* A source's transaction in a batch: all up to these ends that the one before it has not. */
struct transaction {
	struct span source;
	uint64_t position;
	int64_t time_us;
	size_t events_end;
	size_t records_end;
	enum source_verdict verdict; /* by the leader */
};

struct store_batch {
	struct store *store;
	struct buffer arena;
	struct prepared *events;
	size_t count;
	size_t capacity;
	struct transaction *transactions;
	size_t transaction_count, transaction_capacity;
	struct buffer records; /* each: 'o' type NUL details NUL, 'd' members NUL, or 'x' the number
				* of a dead letter to be removed NUL */
};

static inline struct bytes span_bytes(const struct store_batch *batch, struct span s)
{
	return s.there ? (struct bytes){batch->arena.p + s.at, s.n} : (struct bytes){0};
}

struct waiter;

/* The leader's tools, reused from commit to commit. */
struct commit {
	pthread_mutex_t mutex;
	struct waiter *head;
	struct waiter **tail;
	bool leading;
	unsigned turns_waiting; /* for commit_turn_start() */
	pthread_cond_t turn;

	/* Leader only. */
	struct db_batch *db_batch;
	struct block_builder block;
	struct overlay overlay;
	struct buffer scratch;
	struct document_change *changes;
	size_t change_count, change_capacity;
	struct collection **touched;
	size_t touched_count;
	struct collection **in_block;
	size_t in_block_count;
	size_t list_capacity; /* of both lists */
	uint64_t next_sequence;
	uint64_t position;
	int64_t commit_ms;
	uint64_t next_record[2]; /* by enum store_record_kind */
	uint64_t room_bytes;	 /* bytes that may be written before the disk is asked again */
};

#define KNOWN_EVENTS 1024

struct store {
	char *path;
	bool read_only;
	int lock_fd;
	struct db *db;
	char identity[33];
	int64_t created_ms;
	enum store_last_end last_end;

	struct collections collections;
	struct store_gap *gaps;
	size_t gap_count;

	pthread_mutex_t settings_mutex;
	struct store_config config; /* changed by who leads and under the mutex */
	_Atomic uint64_t max_document_bytes;
	struct source *sources; /* in the order of names */

	struct documents documents;
	struct groups *groups;
	pthread_mutex_t dead_letters;
	const _Atomic int64_t *clock_ms; /* of a test */
	struct commit commit;
	uint64_t reserved_sequence; /* leader only */
	uint64_t reserved_position;

	/* What readers see; last_sequence is stored before end, so that a line that is seen has a
	 * name that is found. */
	_Atomic uint64_t last_sequence;
	_Atomic uint64_t end;
	_Atomic uint64_t events;
	_Atomic int64_t last_ms;
	_Atomic uint64_t floor;

	_Atomic uint64_t commits;
	_Atomic uint64_t written_events;
	_Atomic uint64_t syncs;
	_Atomic uint64_t written; /* counts writes, to know what a sync covered */

	struct {
		pthread_mutex_t mutex;
		struct store_event_info events[KNOWN_EVENTS]; /* by sequence */
	} known;

	struct {
		pthread_mutex_t mutex;
		pthread_cond_t done;
		bool running;
		uint64_t synced; /* the value of `written` that is on the disk */
	} sync;

	void (*listener)(void *context);
	void *listener_context;
};

/* batch.c */

/* What a line is made of, but for the sequence and the snapshots. */
struct line_parts {
	enum store_type type;
	struct bytes key, value, metadata;
	int64_t timestamp_ms;
	bool base64;
	bool add_encoding;
	bool add_partial;
};

/* Appends ,"type":… to the metadata; ret_quoted is where in `out` the value stands. */
int line_render(struct buffer *out, const struct line_parts *parts, struct span *ret_quoted);
/* Reads back what line_render() wrote: the key, and the value unless it is null or left out; the
 * buffers are overwritten. -EBADMSG. */
int line_read(struct bytes line, bool base64, struct buffer *ret_key, struct buffer *ret_value);
/* The key alone. -EBADMSG. */
int line_read_key(struct bytes line, struct buffer *ret_key);
/* A JSON string with its quotes, as the store writes it, decoded. -EBADMSG. */
int line_read_text(struct bytes quoted, struct buffer *ret_text);
/* Appends a document's text as a JSON string. */
int line_render_text(struct buffer *out, struct bytes text, bool base64);

/* An event that was recorded before: `part` is its line from ,"type": on up to the last brace. */
struct again {
	enum store_type type;
	struct bytes collection, key, part;
	int64_t timestamp_ms;
	bool base64;
};

/* Adds it, to be recorded as it is and without a change of its document. */
int batch_add_again(struct store_batch *batch, const struct again *again);
/* Adds the removal of a dead letter. */
int batch_remove_dead_letter(struct store_batch *batch, uint64_t number);

/* collection.c */

int collections_init(struct collections *c);
void collections_free(struct collections *c);
/* Loads all records of the database. */
int collections_load(struct store *store, struct error *error);
/* Leader only: the collection of that name, made (invisible yet) if there is none. NULL: no memory.
 */
struct collection *collections_intern(struct collections *c, struct bytes name);
/* NULL if there is no such id or readers do not see it yet. */
struct collection *collections_get(struct collections *c, uint32_t id);
/* Puts the record of its pending progress into the batch. */
void collection_put(struct store *store, struct db_batch *batch, const struct collection *c);
/* Lets readers see the pending progress, but for the end, which comes last. */
void collection_publish(struct collection *c);
void collection_publish_end(struct collection *c);
/* Leader only: takes out again what no commit has written. */
void collections_drop_invisible(struct collections *c);
/* Throws the pending progress away. */
void collection_revert(struct collection *c);

/* commit.c */

int commit_init(struct store *store);
void commit_free(struct commit *commit);
/*
 * Leader only: writes the leader's batch, if the disk has room for it; with `sync` it and all
 * before it survive a power cut. -ENOSPC, -EIO: nothing is written.
 */
int commit_write(struct store *store, bool sync, struct error *error);
/* Leader only: sees to it that commit_write() of up to so many bytes finds room. */
int commit_room(struct store *store, uint64_t bytes, struct error *error);
/* -ENOSPC if the disk has no room for so many bytes and what is still in memory. */
int commit_check_disk(struct store *store, uint64_t bytes, struct error *error);
/* Takes the lead without a commit of one's own, for a change of settings: no commit runs until
 * commit_turn_end(). Returns the leader's empty batch, which the caller writes. */
struct db_batch *commit_turn_start(struct store *store);
void commit_turn_end(struct store *store);

/* source.c */

int sources_load(struct store *store, struct error *error);
void sources_free(struct store *store);
/* Leader only: what is to be done with a transaction, after those that the group has judged before
 * it. -ENOMEM. */
int source_judge(struct store *store, struct bytes name, struct transaction *t);
/* Puts the record of a source's pending position into the batch, with so many more events. */
int source_put(struct store *store, struct db_batch *batch, struct bytes name, uint64_t events);
/* The group is written, or not. */
void sources_publish(struct store *store);
void sources_revert(struct store *store);

/* record.c */

int records_load(struct store *store, struct error *error);
/* Put a record into a batch that the leader, or store_open(), writes. */
int record_put_ops(struct store *store, struct db_batch *batch, const char *type,
		   struct bytes details);
int record_put_dead_letter(struct store *store, struct db_batch *batch, struct bytes members);

/* Removes one dead letter, or all (number 0). */
void record_remove_dead_letter(struct store *store, struct db_batch *batch, uint64_t number);

/* consumer.c */

int groups_load(struct store *store, struct error *error);
/* Saves what is saved lazily. */
int groups_flush(struct store *store);
void groups_free(struct store *store);

/* stream.c */

/* The block that holds `sequence`; the iterator, of family log, stands on it and pins it. -ENOENT.
 */
int stream_block(struct db_iterator *it, uint64_t sequence, struct block *ret_block,
		 struct error *error);

/* An entry of the index under 'S'. */
struct index_entry {
	uint64_t first;
	uint64_t position;
	uint32_t count;
	uint32_t bytes;
	struct bytes runs;
};

int index_entry_parse(struct bytes key, struct bytes value, struct index_entry *ret_entry,
		      struct error *error);
