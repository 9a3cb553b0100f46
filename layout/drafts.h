/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What is being written below data/ and is not in the log: in memory, capped, gone at a restart.
 *
 * A draft is one of these:
 *   a scratch file     it has a name that no document can have (.alice.json.Xy12, alice.json~)
 *   a document's text  as its writers have made it so far; it has no name, and is recorded when it
 *                      is flushed
 *   a new document     it has a document's name and no text: it was created and nothing was
 *                      recorded yet
 * A scratch file that was renamed onto a document's name becomes a document's text: who has it open
 * goes on writing the document.
 *
 * A departure is a document whose name was given up by renaming it to a scratch file. It is hidden,
 * and becomes a DELETE some time later if its name is not written again: so that editors that first
 * move the old text away record one PUT.
 *
 * One lock guards all of it. It is held for memory only, never over a call of the store.
 */
#include <pthread.h>
#include <sys/stat.h>

#include "store/store.h"

/* Of all scratch files together. Documents' texts may have as much beside that, so that forgotten
 * scratch files never keep a document from being written. */
#define DRAFTS_MAX	   10000
#define DRAFT_BYTES_MAX	   (UINT64_C(256) << 20)
#define DEPARTURE_DELAY_MS 2000

struct drafts;

struct draft {
	struct drafts *owner;
	unsigned references;
	uint64_t id;
	uint32_t collection;
	char *name;	  /* NULL: it has none, or none any more */
	bool is_document; /* `key` says whose text it is, or whose name it keeps */
	struct buffer key;

	struct buffer bytes;
	struct timespec time; /* of the last write, or as it was set */
	bool time_set;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	bool dirty;    /* since the last flush */
	bool flushed;  /* since then, but it was no document yet */
	bool written;  /* ever */
	bool recorded; /* ever */
	int refused;   /* errno of a refused write, else 0: until it is emptied nothing of it is
			* recorded */
	struct error reason; /* of that */
};

struct departure {
	struct departure *next;
	uint32_t collection;
	struct buffer key;
	uint64_t sequence; /* of the document that has left */
	int64_t due_ms;	   /* of the monotonic clock */
	int64_t time_ms;   /* of the wall clock, when it left */
	bool busy;	   /* somebody records its DELETE, or a PUT of its key, and has this */
};

struct drafts {
	pthread_mutex_t lock;
	pthread_cond_t left; /* a departure is not busy any more */
	struct draft **all;  /* in the order of ids */
	size_t count, capacity;
	uint64_t bytes;
	uint64_t last_id;
	struct departure *departures;
};

int drafts_init(struct drafts *drafts);
/* Nobody holds a draft any more. */
void drafts_free(struct drafts *drafts);

/* ---- all but draft_new() and draft_unref(): below the lock ---- */

/* A draft without a name; caller unrefs. -ENOSPC: too many, fewer for one that is to get a name. */
int draft_new(struct drafts *drafts, uint32_t collection, bool named, struct draft **ret_draft,
	      struct error *error);
void draft_ref(struct draft *draft);
/* Takes NULL. A draft ends when it has neither a name nor a reference. */
void draft_unref(struct draft *draft);
void draft_unref_locked(struct draft *draft);

/* NULL if there is none. Not referenced. */
struct draft *drafts_find_name(struct drafts *drafts, uint32_t collection, const char *name);
struct draft *drafts_find_id(struct drafts *drafts, uint64_t id);
uint64_t drafts_last_id(struct drafts *drafts); /* takes the lock */
/* The first one with a name in the collection whose id is above `id`. */
struct draft *drafts_next(struct drafts *drafts, uint32_t collection, uint64_t id);

/* -ENOMEM: it is as before. */
int draft_set_name(struct draft *draft, const char *name);
int draft_set_key(struct draft *draft, struct bytes key);
/* It has no name any more, and may be gone. */
void draft_drop_name(struct draft *draft);
/* The name of a document that is there now is no new document's any more. */
void drafts_drop_new(struct drafts *drafts, uint32_t collection, struct bytes key);
bool drafts_has_new(struct drafts *drafts, uint32_t collection, struct bytes key);
/* The key's document is gone, or is another one: what its writers still have is not recorded. With
 * to_key it went there, and its writers with it. */
void drafts_move_writers(struct drafts *drafts, uint32_t collection, struct bytes key,
			 uint32_t to_collection, struct bytes to_key);
/* How many texts of the document there are, apart from the recorded one. */
size_t drafts_count_writers(struct drafts *drafts, uint32_t collection, struct bytes key);

/* Takes the buffer's bytes as the new draft's text, which counts as unwritten. */
void draft_start(struct draft *draft, struct buffer *text);
/*
 * `at` is the file offset, or UINT64_MAX for the end. A document's text may not be longer than
 * `limit` bytes, and its beginning must be one of a JSON value as far as that is cheap to tell. 0,
 * -EFBIG, -ENOSPC, -EINVAL.
 */
int draft_write(struct draft *draft, struct bytes text, uint64_t at, uint64_t limit,
		struct error *error);
/* Says again why a write was refused, and with what errno. */
int draft_refused(const struct draft *draft, struct error *error);
int draft_resize(struct draft *draft, uint64_t size, uint64_t limit, struct error *error);

/* The time of the event that records it: the one that was set, in an event's bounds, else now. */
int64_t draft_event_ms(const struct draft *draft);

/* NULL if the document is not away. */
struct departure *drafts_departure(struct drafts *drafts, uint32_t collection, struct bytes key);
int drafts_depart(struct drafts *drafts, uint32_t collection, struct bytes key, uint64_t sequence);
/* It is not busy any more; and it has ended, or is still to leave. */
void drafts_leave(struct drafts *drafts, struct departure *departure, bool ended);

int64_t clock_steady_ms(void);
