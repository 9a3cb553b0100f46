/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The process that goes through the mount, as any program does, so that the kernel tells those who
 * watch. It is no thread of ours, because a thread that waits for an answer from its own process
 * cannot be killed with it: until it has gone the process's end of the connection stays open, and
 * until that closes it is not let go. It has nothing open between two batches.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define ANNOUNCER_BATCH 10
#define ANNOUNCER_NONE	(-1)

enum announcer_kind {
	ANNOUNCER_HELLO, /* looks the name up */
	ANNOUNCER_CREATE,
	ANNOUNCER_MKDIR,
	ANNOUNCER_MODIFY,
	ANNOUNCER_REMOVE,
};

struct announcer_action {
	enum announcer_kind kind;
	uint64_t directory;	  /* for who answers; as for the kernel */
	uint64_t stamp;		  /* likewise */
	char path[NAME_MAX + 16]; /* of the directory, below the mount's root */
	char name[NAME_MAX + 1];
	int result; /* 0 or a negative errno */
};

/* What both see. The daemon writes it while the announcer waits. */
struct announcer_batch {
	int64_t device; /* of the mount: nothing is done anywhere else */
	size_t count;
	struct announcer_action actions[ANNOUNCER_BATCH];
	_Atomic int current; /* the action at hand, or ANNOUNCER_NONE */
	int result;	     /* of finding the mount: 0, -EXDEV, … */
	int64_t elapsed_ns;
};

struct announcer {
	struct announcer_batch *batch;
	int fd; /* one byte starts a batch, one tells that it is done */
	pid_t pid;
};

/* Forks; call it while there are no threads. 0 or a negative errno; end with announcer_end(). */
int announcer_start(struct announcer *announcer, const char *mountpoint);
/* Does the batch and waits. -EPIPE: the announcer has ended, or was interrupted. */
int announcer_run(struct announcer *announcer);
/* Ends announcer_run() in another thread, and all later ones. */
void announcer_interrupt(struct announcer *announcer);
/* Ends the process. */
void announcer_end(struct announcer *announcer);
