/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Announcing: the kernel tells inotify only of what goes through it. So what came by itself is made
 * once more through the mount by a process of ours (announcer.h), which we recognize, so that its
 * requests change nothing. A thread says what there is to announce, a few at a time: the rest of
 * the time is for others, and for who wants to unmount.
 */
#include <pthread.h>

#include "layout/layout.h"

#include "fs/announcer.h"

struct announce;
struct changefs;
struct fuse_req;

/* Forks the announcer: call it while there are no threads. The path is only used now. 0 or a
 * negative errno. All that follows takes NULL. */
int announce_new(const char *mountpoint, struct announce **ret_announce);
/* Starts the thread; `device` is the mount's, -1 if its mount point is unknown. */
int announce_start(struct announce *announce, struct changefs *fs, int64_t device);
/* Ends the thread. It waits for nothing that the mount's serving threads do. */
void announce_stop(struct announce *announce);
/* Ends the announcer; when it may be waiting in the mount the connection has to be gone. */
void announce_free(struct announce *announce);
/* After a commit, from any thread. */
void announce_wake(struct announce *announce);
void announce_tell(struct announce *announce, struct layout_announcing *ret_announcing);

/* ---- for those who answer requests; from any thread ---- */

/* The request is the announcer's. */
bool announce_is_me(const struct changefs *fs, struct fuse_req *req);
/* The name of this node is still to be announced. */
bool announce_awaits(const struct changefs *fs, const struct node *node);
/* The first lookup of the secret name tells who the announcer is; true if this is it. */
bool announce_meet(struct changefs *fs, struct fuse_req *req, uint64_t parent, const char *name);
/* The action at hand, if it is about this name. */
bool announce_action(struct changefs *fs, uint64_t parent, const char *name,
		     struct announcer_action *ret_action);
/* The stamp of the action at hand; 0: none is. */
uint64_t announce_stamp(struct changefs *fs);
