/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Input formats: what producers write into the files of in/, turned into batches of events.
 * A format sees one complete line at a time (without its \n) and knows nothing of files.
 */
#include "store/store.h"

struct format_state; /* what one open handle keeps between lines; NULL is allowed for a format */

struct format {
	bool has_source; /* in/NAME@SOURCE exists; lines carry positions */
	/* 0 or -ENOMEM. `source` is the source's name, copied. */
	int (*open)(struct bytes source, struct format_state **ret_state);
	/*
	 * Takes one line. Events go to `batch`; the caller commits it when the format says so:
	 * FORMAT_TAKEN: the line is in the batch, or ended a transaction that is now; what the
	 * batch holds may be committed whenever it suits; FORMAT_HOLD: the line belongs to a
	 * transaction that the format holds until its end. On a negative errno the batch holds what
	 * it held before this line, and an open transaction is dropped. With `dead_letters` what
	 * cannot be decoded goes to the dead letters instead, and an ops event says so, unless that
	 * would hide damage of the source.
	 */
	int (*line)(struct format_state *state, struct store_batch *batch, struct bytes line,
		    bool dead_letters, struct error *error);
	/* A line was refused before the format saw it, and an open transaction with it. May be
	 * NULL. */
	void (*fail)(struct format_state *state, int code, const struct error *reason);
	void (*close)(struct format_state *state);
};

enum { FORMAT_TAKEN, FORMAT_HOLD };

extern const struct format format_events;
extern const struct format format_wal2json;

/* The members of a dead letter: its kind, where it came from, why, and its bytes. `more` are
 * further members, each with a comma in front, or absent. */
int format_dead_letter(struct buffer *out, const char *kind, struct bytes source,
		       const char *reason, struct bytes line, struct bytes more);
