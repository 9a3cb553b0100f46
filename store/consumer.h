/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Consumer groups: a durable offset over the log, events leased to readers, acknowledgements, and
 * dead letters for what cannot be handled. At least once: an event that was delivered is delivered
 * again until it is acknowledged or set aside.
 *
 * A group's *offset* N says that all events up to N are done. Above it each event that passes the
 * group's filter is new, leased to a reader, waiting to be delivered again, or done already. A
 * *delivery* is one handing over of one event; its number is never used twice in a group.
 *
 * All functions may be called from any thread; a reader belongs to one thread at a time, but for
 * store_group_ready(). Each change is one atomic batch, and survives a crash of the process when
 * the call returns. 0 or positive, or a negative errno with the reason in `error`. -ENOSPC: the
 * disk is full, nothing changed; -EBADMSG: the group's records are damaged, others go on.
 *
 * The store's listener is called also when something may be deliverable that was not.
 */
#include "store/store.h"

#define STORE_GROUP_BACKOFFS	16
#define STORE_GROUP_COLLECTIONS 256
/* Events of one group that are delivered, delayed or done above the offset, together. */
#define STORE_GROUP_WINDOW 100000

/* ---- groups ---- */

/* A group's number: 1 and up, never used twice. The name is as a collection's. -EEXIST, -EINVAL. */
int store_group_create(struct store *store, struct bytes name, uint32_t *ret_group,
		       struct error *error);
/* -EBUSY: it has readers; -ENOENT. */
int store_group_remove(struct store *store, uint32_t group, struct error *error);
/* -ENOENT. */
int store_group_find(struct store *store, struct bytes name, uint32_t *ret_group);
/* The first group whose number is above `after`: 1, or 0. */
int store_group_next(struct store *store, uint32_t after, uint32_t *ret_group);
/* Appends the name. -ENOENT. */
int store_group_name(struct store *store, uint32_t group, struct buffer *ret_name);

enum store_group_start { STORE_START_EARLIEST, STORE_START_LATEST };
enum store_group_order { STORE_ORDER_NONE, STORE_ORDER_KEY };

/* The strings are owned by who fills it in; store_group_config_free() ends what a get gave. */
struct store_group_config {
	enum store_group_start start; /* of a group that has delivered nothing yet */
	char *collections[STORE_GROUP_COLLECTIONS];
	size_t collection_count; /* 0: all */
	char *key_prefix;	 /* NULL: all keys */
	unsigned types;		 /* bits 1 << enum store_type; 0: all */
	uint64_t ack_timeout_ms;
	uint32_t max_attempts;
	uint64_t backoff_ms[STORE_GROUP_BACKOFFS]; /* before the second attempt, the third …; the
						      last one holds on */
	size_t backoff_count;
	uint32_t max_in_flight; /* of one reader */
	uint32_t batch;		/* events that one read takes at most */
	enum store_group_order order;
	double max_events_per_second; /* 0: no limit */
};

int store_group_config_get(struct store *store, uint32_t group,
			   struct store_group_config *ret_config);
void store_group_config_free(struct store_group_config *config);
/* Copies it. A changed filter holds above the offset; pending events that no longer match are
 * released. -EINVAL: a value is out of range, the error names the field; then nothing changes. */
int store_group_config_set(struct store *store, uint32_t group,
			   const struct store_group_config *config, struct error *error);

/* ---- the offset ---- */

int store_group_offset(struct store *store, uint32_t group, uint64_t *ret_offset);

enum store_group_move {
	STORE_MOVE_COMMIT, /* to `number`: forward it is an acknowledgement of all up to it */
	STORE_MOVE_EARLIEST,
	STORE_MOVE_LATEST,
	STORE_MOVE_BY,	 /* `number` (signed) events of the log; back at most to the earliest */
	STORE_MOVE_TIME, /* in front of the first event that was committed at or after `number` ms
			  */
};
/*
 * Ends the leases that it passes. Beyond the log's end: -EINVAL, nothing changes. What is no commit
 * forward is recorded as two ops events `offsets-set` (applying, applied); `who` (an operator, such
 * as uid and pid) goes into them and may be absent.
 */
int store_group_move(struct store *store, uint32_t group, enum store_group_move move,
		     int64_t number, struct bytes who, struct error *error);

/* ---- readers ---- */

struct store_group_reader;

int store_group_reader_open(struct store *store, uint32_t group, pid_t pid,
			    struct store_group_reader **ret_reader, struct error *error);
/*
 * Returns at once what it has not acknowledged. The oldest of it keeps its attempt counted (the
 * reader may have died of it), the others get theirs back. Takes NULL.
 */
void store_group_reader_close(struct store_group_reader *reader);
/*
 * Delivers up to `config.batch` events, overdue and returned ones first, then new ones, as many
 * whole lines as fit into `size` bytes but at least one: they are appended to `lines`, each with
 * ,"delivery":{"group":NAME,"attempt":N,"id":D}} at its end. An event's last attempt is delivered
 * alone. A floor that has passed the offset gives one GAP line first (no lease). Returns how many
 * lines, -EAGAIN if there is nothing now, -ENOENT if the group is gone.
 */
int store_group_deliver(struct store_group_reader *reader, size_t size, struct buffer *lines,
			struct error *error);
/* True if store_group_deliver() might give something. Cheap, from any thread. */
bool store_group_ready(const struct store_group_reader *reader);
/* Milliseconds of the monotonic clock when a lease, a delay or a rate limit of any group ends next,
 * so that waiting readers are to be asked again; -1: none. Dead letters of what has used up its
 * attempts are written here and at deliveries. */
int64_t store_groups_settle(struct store *store);

/* ---- acknowledging ---- */

struct store_group_ack {
	uint64_t from, to; /* sequences, both inclusive */
	uint64_t delivery; /* 0: any; else only that delivery */
};

/*
 * All or none. What is done already, or is not of this group, is skipped. -EINVAL: beyond the end
 * or not delivered yet; -ESTALE: the delivery is not the event's newest, or its lease was ended.
 */
int store_group_acknowledge(struct store *store, uint32_t group, const struct store_group_ack *acks,
			    size_t count, struct error *error);

struct store_group_nack {
	uint64_t sequence;
	uint64_t delivery;   /* 0: any */
	int64_t delay_ms;    /* until it is delivered again; -1: as the backoff says */
	bool dead;	     /* to the DLQ now */
	struct bytes reason; /* kept for the dead letter, as UTF-8; may be absent */
};

/* All or none; as store_group_acknowledge(). */
int store_group_refuse(struct store *store, uint32_t group, const struct store_group_nack *nacks,
		       size_t count, struct error *error);

/* ---- what is out ---- */

struct store_group_pending {
	uint64_t sequence;
	uint64_t delivery;
	uint32_t attempts;
	pid_t pid;	      /* of the reader; 0: it waits to be delivered again */
	int64_t delivered_ms; /* wall clock */
	int64_t due_ms;	      /* wall clock: when the lease or the delay ends */
};

/* The first pending event above `after`: 1, or 0. */
int store_group_pending_next(struct store *store, uint32_t group, uint64_t after,
			     struct store_group_pending *ret_pending);
/* -ENOENT. With `line` its event's line is appended, also when the log has trimmed it but the group
 * was given it back (store_dead_letter_redeliver()). */
int store_group_pending_get(struct store *store, uint32_t group, uint64_t sequence,
			    struct store_group_pending *ret_pending, struct buffer *line,
			    struct error *error);
/* Renews the lease. -ENOENT: it is not pending; -ESTALE: it waits to be delivered again. */
int store_group_renew(struct store *store, uint32_t group, uint64_t sequence, struct error *error);

struct store_group_stats {
	uint64_t offset, end; /* the log's newest sequence */
	uint64_t lag; /* events behind the offset, of those that could be delivered: an upper bound
		       * that is 0 exactly when nothing is left */
	int64_t lag_ms; /* age of the oldest event above the offset; 0 if there is none */
	/* Now: leased, waiting, and all above the offset that is kept. */
	uint64_t pending, delayed, window;
	int64_t oldest_pending_ms; /* age; 0 */
	uint32_t most_attempts;
	uint32_t readers;
	/* Since the group was made. */
	uint64_t delivered, acknowledged, redelivered, refused, dead_lettered;
	const char *stalled; /* NULL, or why nothing new is delivered: "window", "max_in_flight",
				"rate", "order" */
};

int store_group_stats_get(struct store *store, uint32_t group, struct store_group_stats *ret_stats);
/* Calls `each` for every reader. */
int store_group_readers_each(struct store *store, uint32_t group,
			     int (*each)(void *context, pid_t pid, uint64_t pending),
			     void *context);
/* The smallest offset of all groups; UINT64_MAX without one. */
uint64_t store_groups_low_water(struct store *store);

/* ---- dead letters ---- */

/* Removes one entry, or all (number 0). -ENOENT. */
int store_dead_letter_remove(struct store *store, uint64_t number, struct error *error);
/* Records its event again at the end of the log, with "replay_of":SEQUENCE in its metadata and
 * without changing a document, and removes the entry, in one batch. -EINVAL: it holds no event. */
int store_dead_letter_replay(struct store *store, uint64_t number, struct error *error);
/* Gives its event back to its group with attempts reset, also when the log has trimmed it or the
 * offset has passed it, and removes the entry, in one batch. -EINVAL: it is of no group; -ENOENT:
 * it or its group is gone. */
int store_dead_letter_redeliver(struct store *store, uint64_t number, struct error *error);
