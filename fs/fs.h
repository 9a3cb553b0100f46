/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The daemon: what one mount consists of.
 *
 * Lock order. A thread may take a lock only while it holds none or such as stand above it here:
 *
 *   1. handle->lock   one open file or directory, held while the layout works on it; a thread holds
 *                     at most one of them
 *   2. inode->lock    the content that the open handles of one node share
 *      then one of the layout's own locks: drafts.lock (layout/drafts.h), attributes.changing,
 *      configuring or live.lock (layout/tree.h)
 *   3. the store's locks
 *   4. park->lock     who waits for more; held while asking layout_file_ready(), so the
 *                     store's locks that this takes may not be held by a thread that comes here
 *   5. leaves         nodes->lock, handles->lock, errors->lock, pool->lock, refresh->lock,
 *                     settle->lock, announce->lock, the layout's attributes.lock: nothing is
 *                     called there
 *
 * libfuse: the interrupt callback comes with the request's lock held and takes park->lock; below
 * park->lock only fuse_req_interrupted() is called, which takes the session's lock. No reply and no
 * notification is sent below any lock.
 *
 * A commit calls park_wake() in the committing thread, which may hold its own handle's or node's
 * lock (park_hold()). Then park_wake() only takes the readers out of the list (park->lock); they
 * are answered, each under its own handle's lock, once the thread has let go (park_answer()).
 */
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "layout/layout.h"
#include "store/store.h"

#include "fs/announce.h"
#include "fs/daemon.h"
#include "fs/errors.h"
#include "fs/handles.h"
#include "fs/nodes.h"
#include "fs/options.h"
#include "fs/park.h"
#include "fs/pool.h"
#include "fs/refresh.h"
#include "fs/settle.h"

struct changefs {
	const struct options *options;
	struct store *store;
	struct layout *layout;
	struct fuse_session *session;
	struct nodes *nodes;
	struct park *park;
	struct refresh *refresh;
	struct settle *settle;
	struct announce *announce; /* NULL with noannounce */
	struct errors *errors;
	struct handles handles;
	struct pool pool;
	struct daemon daemon;
};

extern const struct fuse_lowlevel_ops changefs_ops;

/* Who asked for what is refused. */
struct caller {
	pid_t pid; /* as the kernel says it: a thread's */
	uid_t uid;
};

/* Notes a refused operation on a node, or on a name in it, for ctl/errors, if the layout has given
 * a reason. `name` may be NULL. */
void changefs_note(struct changefs *fs, const struct caller *caller, const struct node *node,
		   const char *name, int code, const struct error *error);
/* The same, and answers the request with the error. */
void changefs_refuse(fuse_req_t req, const struct node *node, const char *name, int code,
		     const struct error *error);

/* The process that a thread belongs to. */
pid_t process_of(pid_t thread);

/* Mounts and serves until the end; prints what goes wrong. The exit status. */
int changefs_mount(const struct options *options);
