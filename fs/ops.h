/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The handlers of the kernel's requests, by the file they are in, and what they share.
 */
#include "fs/fs.h"

static inline struct changefs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* NULL for the announcer's. */
static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

/* ops.c: finds a node; end with nodes_unref(). False: there is none, and the request is answered.
 */
bool find_node(fuse_req_t req, fuse_ino_t ino, struct node_ref *ret_ref);
/* A handle of the caller's, or NULL and the request is answered. */
struct handle *new_handle(fuse_req_t req, fuse_ino_t ino);
void set_caching(const struct handle *handle, struct fuse_file_info *fi);
/* RELEASE, and RELEASEDIR. */
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

/* entry.c: fills an entry for a node that was looked up with these attributes, and counts the
 * lookup. Takes ownership of the node. */
int fill_entry(struct changefs *fs, struct node *node, const struct stat *st,
	       struct fuse_entry_param *ret_entry);
/* How many seconds the kernel may remember a name. */
double entry_timeout(unsigned flags);
/* The attributes of a node as its open handles see it. */
int stat_node(struct changefs *fs, const struct node_ref *ref, struct stat *ret_stat,
	      struct error *error);
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_statfs(fuse_req_t req, fuse_ino_t ino);

/* announce_ops.c: what the announcer asks for. Each answers the request if that is so, and returns
 * whether it did. */
bool announce_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
bool announce_create(fuse_req_t req, fuse_ino_t parent, const char *name,
		     struct fuse_file_info *fi);
bool announce_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name);
bool announce_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
bool announce_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* Attributes that let the announcer write. */
void announce_reply_attr(fuse_req_t req, struct stat *st);

/* change.c */
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);

/* listing.c */
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
