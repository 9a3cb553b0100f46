/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Input formats: what producers write into the files of in/, turned into batches of events.
 * A format sees one complete line at a time (without its \n) and knows nothing of files.
 */
#include "store/store.h"

struct format_state; /* what one open handle keeps between lines; NULL is allowed for a format */

struct format {
	const char *name;  /* as in in/NAME */
	const char *about; /* one sentence for README.md */
	bool has_source;   /* in/NAME@SOURCE exists; lines carry positions */
	/* 0 or -ENOMEM. `source` is the source's name, copied. */
	int (*open)(struct store *store, struct bytes source, struct format_state **ret_state);
	/*
	 * Takes one line. Events go to `batch`; the caller commits it when the format says so:
	 * FORMAT_COMMIT_ANY: what the batch holds may be committed whenever it suits (one write's
	 * lines are one batch); FORMAT_HOLD: the line belongs to an open transaction, do not commit
	 * yet; FORMAT_COMMIT_NOW: the transaction is complete, commit before the next line.
	 * On a negative errno the batch holds what it held before this line, and an open
	 * transaction is dropped.
	 */
	int (*line)(struct format_state *state, struct store_batch *batch, struct bytes line,
		    struct error *error);
	/* True if the state holds an unfinished transaction. */
	bool (*busy)(const struct format_state *state);
	void (*close)(struct format_state *state);
};

enum { FORMAT_COMMIT_ANY, FORMAT_HOLD, FORMAT_COMMIT_NOW };

extern const struct format format_events;
extern const struct format format_wal2json;

/* The table of all formats, ended by NULL. */
extern const struct format *const formats[];
