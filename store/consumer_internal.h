/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Consumer groups, from inside.
 *
 * Above its offset a group keeps a *window*: an entry for each event that passed the filter and was
 * looked at, in the order of sequences. `scan` is the sequence that is looked at next. Events at or
 * below the offset, or below the floor, that were given back (store_dead_letter_redeliver()) stand
 * in a list of their own, `extra`, with their line kept in the database.
 *
 * Locks: groups.lock guards the table; a group's mutex all of the group. A group that was removed
 * stays in memory, marked `gone`, until the store is closed. Who needs the lead of a commit (a dead
 * letter, an ops event) takes it BEFORE the group's mutex; nobody waits for the lead, or calls the
 * listener, with a group's mutex held. Two groups' mutexes are never held together.
 *
 * What changes in memory puts its records into g->out, and group_write() writes them with the
 * group's own record as one batch. If that fails the group is loaded again.
 */
#include "store/consumer.h"
#include "store/internal.h"

enum entry_state {
	ENTRY_NEW, /* never delivered; an earlier one with its key is not done, or it is next */
	ENTRY_LEASED,
	ENTRY_WAITING, /* to be delivered again */
	ENTRY_DYING,   /* its attempts are used up, or it was refused for good */
	ENTRY_DONE,
	ENTRY_RELEASED, /* as done, because the filter does not take it any more */
};

enum entry_failure {
	FAILURE_NONE,
	FAILURE_TIMEOUT,
	FAILURE_CLOSED,
	FAILURE_REFUSED,
	FAILURE_RESTART,
};

/* A record 'L'; it goes when no entry's newest delivery is in it. */
struct lease_record {
	uint64_t first;
	uint32_t live;
};

struct heap {
	struct entry **p;
	size_t n, capacity;
};

struct entry {
	uint64_t sequence;
	uint64_t delivery; /* the newest; 0: none */
	int64_t due;	   /* on the group's clock; leased: the lease's end, waiting: not before */
	int64_t delivered_ms, first_failure_ms, last_failure_ms; /* wall clock */
	uint64_t hash;	 /* of collection and key, where the order asks for it */
	uint32_t length; /* of its line; 0: not known */
	uint32_t attempts;
	unsigned char state, failure;
	bool has_line;	/* in a record 'R' */
	bool is_stored; /* in a record 'P' */
	bool is_extra;
	bool is_dead; /* refused for good */
	bool is_chained;
	char *reason; /* of the last refusal; owned */
	struct lease_record *record;
	struct store_group_reader *reader;
	struct entry *older, *newer;   /* of its reader, in the order of deliveries */
	struct entry *before, *behind; /* in its bucket of `chains` */
	struct heap *heap;
	size_t heap_at;
	uint64_t heap_key;
};

/* Entries in the order of their sequences. */
struct entries {
	struct entry **p;
	size_t head, n, capacity;
};

struct store_group_reader {
	struct group *group;
	pid_t pid;
	struct entry *oldest, *newest;
	_Atomic uint64_t pending;
	struct store_group_reader *next;
};

struct bucket {
	struct entry *head, *tail;
};

#define CHAIN_BUCKETS ((size_t)1 << 14)

struct group {
	struct store *store;
	uint32_t number;
	char *name;
	struct buffer quoted; /* the name as a JSON string */
	pthread_mutex_t mutex;
	_Atomic bool gone;
	struct store_group_config config;
	struct buffer matches; /* by collection id: 0 not known, 1 taken, 2 not */

	uint64_t offset;
	uint64_t scan;
	uint64_t next_delivery;
	bool started; /* it has delivered, or was moved */
	bool dirty;   /* the record 'O' is behind */
	bool broken;  /* its records cannot be read: nothing is changed any more */
	uint64_t delivered, acknowledged, redelivered, refused, dead_lettered;

	struct entries window, extra;
	struct heap ready; /* what can be delivered again, and what no earlier key holds back */
	struct heap due;   /* leases and delays */
	struct heap dying;
	struct bucket *chains; /* of what is not done, by hash; NULL if the order does not ask */
	size_t leased, waiting, unfinished; /* counts of entries in those states; not done */

	double tokens;
	int64_t refilled;
	const char *stalled;

	struct store_group_reader *readers;
	uint32_t reader_count;

	struct db_batch *own, *out; /* out: own, or the leader's for a while */
	uint64_t records[2];	    /* the leader's next_record before it */
	struct buffer scratch, line, key;

	/* The block that the scan stands in, copied. */
	struct buffer block_bytes;
	struct block block;
	uint32_t block_index;
	size_t block_offset;

	/* For store_group_ready() and others who do not lock. */
	_Atomic uint64_t seen_offset, seen_scan, seen_ready, seen_window;
	_Atomic int64_t seen_due, seen_rate;
	_Atomic uint32_t seen_in_flight;
};

struct groups {
	pthread_rwlock_t lock;
	struct group **by_number; /* by_number[number - 1]; NULL: never loaded, or removed */
	uint32_t count;
	uint32_t capacity;
	_Atomic int64_t room; /* bytes that may be written before the disk is asked again */
};

/* ---- consumer.c ---- */

int64_t group_clock(const struct store *store); /* monotonic ms */
int64_t group_wall(const struct store *store);
/* The group, or NULL. */
struct group *group_find(struct store *store, uint32_t number);
/* The same, locked. */
struct group *group_lock(struct store *store, uint32_t number);
/* Lets others see what they look at without the lock, and unlocks. */
void group_unlock(struct group *g);
struct group *group_new(struct store *store, uint32_t number, struct bytes name);
void group_free(struct group *g);
void group_call_listener(struct store *store);
/* Takes the lead, then the group's mutex; what the group writes goes into the leader's batch.
 * -ENOENT: it is gone. Else group_lead_end() follows. */
int group_lead_start(struct group *g, struct error *error);
/* With `rc` 0 writes all; gives up the mutex and the lead, and calls the listener. If that fails,
 * or rc is negative, what was `touched` is loaded again. Returns rc, or the write's error. */
int group_lead_end(struct group *g, int rc, bool touched, struct error *error);

/* ---- consumer_store.c: the records ---- */

/* -ENOSPC if the disk has no room for so many bytes. */
int group_room(struct group *g, uint64_t bytes, struct error *error);
/* Writes g->out with the group's record. */
int group_write(struct group *g, struct error *error);
void group_put(struct group *g);
void entry_put(struct group *g, struct entry *e);
void entry_delete_records(struct group *g, struct entry *e);
/* The records 'L' and 'P' no longer tell what became of it. */
void entry_leave_record(struct group *g, struct entry *e);
/* The events of one delivery, for a record 'L'. */
struct leases {
	uint64_t first;
	struct lease_record *record;
};
void leases_start(struct group *g, struct leases *leases);
int leases_add(struct group *g, struct leases *leases, struct entry *e);
void leases_put(struct group *g, const struct leases *leases);
/* The record 'R': written, and read into g->line. -ENOENT. */
void entry_put_line(struct group *g, struct entry *e, uint32_t collection, enum store_type type,
		    unsigned char flags, struct bytes line);
int entry_get_line(struct group *g, const struct entry *e, struct store_event_info *ret_info,
		   struct error *error);
/* Deletes the records L, P and R; of the kinds named. */
void group_delete_records(struct group *g, const char *kinds);
/* Loads all but the configuration. */
int group_load_state(struct group *g, struct error *error);
/* After a failure: back to what the database says. */
void group_reload(struct group *g);

/* ---- consumer_config.c ---- */

int group_config_defaults(struct store_group_config *ret_config);
int group_put_config(struct group *g);
int group_read_config(struct group *g, struct bytes value, struct error *error);
/* True if the group takes the event. 1, 0, negative. */
int group_matches(struct group *g, uint32_t collection, enum store_type type, struct bytes line,
		  struct error *error);
/* Chains all that is not done by its keys, if the order asks for it. */
int group_chain_all(struct group *g, struct error *error);
/* Of collection and key. */
int group_hash(struct group *g, uint32_t collection, struct bytes line, uint64_t *ret_hash);

/* ---- consumer_window.c ---- */

struct entry *entries_find(const struct entries *list, uint64_t sequence);
/* Index of the first entry at or above the sequence. */
size_t entries_lower(const struct entries *list, uint64_t sequence);
static inline struct entry *entries_at(const struct entries *list, size_t i)
{
	return list->p[list->head + i];
}

/* In the window or extra. */
struct entry *group_entry(const struct group *g, uint64_t sequence);
/* A new entry of state NEW, not placed yet. NULL: no memory. */
struct entry *group_add(struct group *g, uint64_t sequence, bool extra);
/* From the window to `extra`. */
int group_make_extra(struct group *g, struct entry *e);
/* Takes it out of all lists, and frees it; its records go. */
void group_drop(struct group *g, struct entry *e);
/* Sets the state and all that follows from it: reader, heaps, chains, counts. */
void entry_set(struct group *g, struct entry *e, enum entry_state state, int64_t due);
/* Puts it into the heap that fits, again. */
void entry_place(struct group *g, struct entry *e);
bool entry_is_held(const struct group *g, const struct entry *e);
void entry_lease(struct group *g, struct entry *e, struct store_group_reader *reader, int64_t now);
void entry_chain(struct group *g, struct entry *e);
void group_unchain_all(struct group *g);
/* An acknowledgement, or something like it. The entry may be gone after it if it is extra. */
void entry_finish(struct group *g, struct entry *e, enum entry_state state);
/* Moves the offset over what is done at the front of the window. */
void group_advance(struct group *g);
/* Ends leases and delays whose time has come. */
void group_expire(struct group *g, int64_t now);
/* Forgets all entries; the records stay. */
void group_forget(struct group *g);
void heap_free(struct heap *h);
void entry_fail(struct group *g, struct entry *e, enum entry_failure failure);

/* ---- consumer_scan.c ---- */

struct scanner {
	struct group *g;
	struct db_iterator *it;
	uint64_t last; /* the log's end when it began */
	size_t budget; /* bytes of the log that may still be looked at */
	bool on_block;
};

void scanner_start(struct scanner *s, struct group *g, size_t budget);
void scanner_end(struct scanner *s);
/* The event that stands at g->scan, which is moved over what the group does not take; the line is
 * borrowed until the next call. 1; 0: the end, or the budget is used up; negative. */
int scanner_next(struct scanner *s, struct store_event_info *ret_info, struct bytes *ret_line,
		 struct error *error);
/* Moves the scan, and the offset, over what the group does not take. */
int group_skip(struct group *g, size_t budget, struct error *error);
#define GROUP_SKIP ((size_t)4 << 20) /* for calls that are to be quick */
/* The line of an entry into g->line, and what it is. -ENOENT: the log has trimmed it. */
int entry_line(struct group *g, const struct entry *e, struct store_event_info *ret_info,
	       struct error *error);
/* True if the floor has passed the offset, and no reader was told. */
bool group_has_gap(const struct group *g);
/* Goes on at this floor. */
int group_pass_gap(struct group *g, uint64_t floor);

/* ---- dead_letter.c ---- */

/* Makes dead letters of all that is dying; takes the lead. 0 also if there is nothing. */
int group_bury(struct group *g, struct error *error);
