/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Open files and directories: what stands behind fuse_file_info.fh.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "fs/nodes.h"

struct changefs;
struct fuse_req;
struct waiter;

struct handle {
	struct handle *next, *prev; /* in struct handles */
	struct node_ref ref;
	pthread_mutex_t lock; /* held while the layout works on file or directory */
	struct file *file;
	struct directory *directory;
	bool shares; /* the content is in ref.inode */
	bool endless;
	bool opened;		   /* below struct handles' lock: file is there to be looked at */
	bool timed;		   /* settle_soon() follows what is done with it */
	_Atomic uint64_t read_end; /* where the reader of an endless file is: poll has no offset */
	pid_t pid;		   /* who opened it: a RELEASE does not tell */
	uid_t uid;
	/* Below park->lock: */
	struct waiter *poll; /* who wants to hear of more, or NULL */
	unsigned parked;     /* reads that wait */
};

/* All of them: at the end of the mount some are still open. */
struct handles {
	pthread_mutex_t lock;
	struct handle *first;
	uint64_t endless;
};

void handles_init(struct handles *handles);
/* Closes what is open; nobody uses it any more. */
void handles_destroy(struct changefs *fs);
uint64_t handles_endless(struct handles *handles);
/* The attributes of a node that is gone, by a file that somebody has still open. -ENOENT: there is
 * none. */
int handles_stat(struct handles *handles, const struct node *node, struct stat *ret_stat);

/* Finds the node; opens nothing yet. -ESTALE, -ENOMEM. End with handle_close(). */
int handle_new(struct changefs *fs, uint64_t id, pid_t pid, uid_t uid, struct handle **ret_handle);
/* One of these two, once. */
int handle_open_file(struct changefs *fs, struct handle *handle, int flags, struct error *error);
int handle_open_directory(struct changefs *fs, struct handle *handle, struct error *error);
/* What could not be kept is noted for ctl/errors. */
void handle_close(struct changefs *fs, struct handle *handle);

/* Around every call of the layout that works on the handle. A commit in between detaches the
 * readers it wakes; call park_answer() after handle_leave(). */
void handle_enter(struct handle *handle);
void handle_leave(struct handle *handle);

/* Reads and answers the request. -EAGAIN: there is nothing yet, and the request is not answered. */
int handle_reply_read(struct changefs *fs, struct handle *handle, struct fuse_req *req, size_t size,
		      uint64_t offset);
