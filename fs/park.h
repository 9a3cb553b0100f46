/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Readers of endless files that wait for more: reads that are not answered yet, and polls that want
 * to hear. A waiting read holds its request and no thread.
 *
 * A waiter belongs to whoever took it out of the list: the committing thread, the interrupt, or the
 * end of the mount. Only that one answers it.
 */
#include "fs/handles.h"

struct fuse_pollhandle;
struct park;

struct park *park_new(struct changefs *fs);
/* Answers all that wait with ENOTCONN, and from now on those who want to. */
void park_close(struct park *park);
void park_free(struct park *park); /* takes NULL; closed before */

/* Answers a read of an endless file, now or later. */
void park_read(struct park *park, struct fuse_req *req, struct handle *handle, size_t size,
	       uint64_t offset);
/* True if the file has more than its reader has read. Takes ownership of `ph`, which is told at the
 * next commit that brings more; NULL leaves the one before. */
bool park_poll(struct park *park, struct handle *handle, struct fuse_pollhandle *ph);
/* The handle is about to close. */
void park_forget(struct park *park, struct handle *handle);
uint64_t park_waiting(struct park *park);

/* After each commit, in the committing thread: takes out those for whom there is more, and answers
 * them unless the thread is between park_hold() and park_let_go(). */
void park_wake(void *context);
/* The thread holds a handle's or a node's lock: whom it wakes is answered later, by park_answer().
 */
void park_hold(void);
void park_let_go(void);
/* Answers up to `at_most` of those whom this thread woke; holds no lock. */
void park_answer(struct park *park, unsigned at_most);
