/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the announcer asks for, answered so that the kernel sees a change where none is made: a name
 * that is there is not found, so that it is created; a byte is taken and dropped; what has gone is
 * still found, so that it is removed. Nobody else ever gets these answers, and the kernel may keep
 * none of them.
 */
#include <errno.h>

#include "fs/ops.h"

/* An announcer that is not root may write only where the attributes let it. Others ask for theirs
 * before the kernel judges by them, and what they may not write is refused here in any case. */
static void let_write(fuse_req_t req, struct stat *st)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	if (ctx->uid == 0)
		return;
	st->st_uid = ctx->uid;
	st->st_mode |= S_IWUSR;
}

void announce_reply_attr(fuse_req_t req, struct stat *st)
{
	let_write(req, st);
	fuse_reply_attr(req, st, 0);
}

/* Looks a name up as everyone else does. */
static int look_up(struct changefs *fs, fuse_ino_t parent, const char *name, struct node *ret_node,
		   struct stat *ret_stat)
{
	struct error error = {0};
	struct node_ref ref;
	int r = nodes_ref(fs->nodes, parent, &ref);

	if (r < 0)
		return r;
	r = layout_lookup(fs->layout, ref.node, name, ret_node, ret_stat, &error);
	nodes_unref(fs->nodes, &ref);
	return r;
}

/* An entry for a name as it is. */
static int fill_known(struct changefs *fs, fuse_ino_t parent, const char *name,
		      struct fuse_entry_param *ret_entry, unsigned *ret_flags)
{
	struct node node = {0};
	struct stat st;
	int r = look_up(fs, parent, name, &node, &st);

	if (r < 0)
		return r;
	*ret_flags = node_flags(&node);
	return fill_entry(fs, &node, &st, ret_entry);
}

/* An entry for another node of the same file, which somebody may watch. */
static int fill_same(struct changefs *fs, struct node *node, uint64_t stamp,
		     struct fuse_entry_param *ret_entry)
{
	struct error error = {0};
	struct node_ref ref;
	int r;

	if (!(node_flags(node) & NODE_SEVERAL))
		return -ENOENT;
	r = nodes_find_same(fs->nodes, node, stamp, &ret_entry->ino, &ref);
	if (r < 0)
		return r;
	r = stat_node(fs, &ref, &ret_entry->attr, &error);
	nodes_unref(fs->nodes, &ref);
	if (r < 0)
		nodes_forget(fs->nodes, ret_entry->ino, 1);
	return r;
}

static int fill_modified(struct changefs *fs, fuse_ino_t parent, const char *name, uint64_t stamp,
			 struct fuse_entry_param *ret_entry)
{
	struct node node = {0};
	struct stat st;
	int r = look_up(fs, parent, name, &node, &st);

	if (r < 0)
		return r;
	if (fill_same(fs, &node, stamp, ret_entry) < 0)
		return fill_entry(fs, &node, &st, ret_entry);
	node_free(&node);
	return 0;
}

static int fill_vanished(struct changefs *fs, fuse_ino_t parent, const char *name,
			 struct fuse_entry_param *ret_entry)
{
	struct node node = {0};
	struct node_ref ref;
	int r = nodes_ref(fs->nodes, parent, &ref);

	if (r < 0)
		return r;
	r = layout_vanished(fs->layout, ref.node, name, &node, &ret_entry->attr);
	nodes_unref(fs->nodes, &ref);
	if (r == 0)
		r = nodes_intern(fs->nodes, &node, &ret_entry->ino, &ref);
	if (r == 0)
		nodes_unref(fs->nodes, &ref);
	return r;
}

bool announce_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct changefs *fs = fs_of(req);
	struct fuse_entry_param entry = {0};
	struct announcer_action action;
	int r = -ENOENT;

	if (!announce_meet(fs, req, parent, name)) {
		if (!announce_is_me(fs, req) || !announce_action(fs, parent, name, &action))
			return false;
		if (action.kind == ANNOUNCER_MODIFY)
			r = fill_modified(fs, parent, name, action.stamp, &entry);
		else if (action.kind == ANNOUNCER_REMOVE)
			r = fill_vanished(fs, parent, name, &entry);
	}
	entry.entry_timeout = entry.attr_timeout = 0;
	let_write(req, &entry.attr);
	if (r < 0)
		fuse_reply_err(req, -r);
	else if (fuse_reply_entry(req, &entry) < 0)
		nodes_forget(fs->nodes, entry.ino, 1);
	return true;
}

/* A handle that stands for no file, and of which nothing is kept in memory. */
static void open_nothing(struct fuse_file_info *fi)
{
	fi->fh = 0;
	fi->direct_io = 1;
	fi->keep_cache = 1;
	fi->noflush = 1;
}

/* What is made is there already. `fi`: it is a file. */
static bool make(fuse_req_t req, enum announcer_kind kind, fuse_ino_t parent, const char *name,
		 struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct fuse_entry_param entry = {0};
	struct announcer_action action;
	unsigned flags = 0;
	int r = -EPERM;

	if (!announce_is_me(fs, req))
		return false;
	if (announce_action(fs, parent, name, &action) && action.kind == kind)
		r = fill_known(fs, parent, name, &entry, &flags);
	if (r < 0) {
		fuse_reply_err(req, -r);
		return true;
	}
	entry.entry_timeout = entry_timeout(flags);
	if (fi)
		open_nothing(fi);
	if ((fi ? fuse_reply_create(req, &entry, fi) : fuse_reply_entry(req, &entry)) < 0)
		nodes_forget(fs->nodes, entry.ino, 1);
	return true;
}

bool announce_create(fuse_req_t req, fuse_ino_t parent, const char *name, struct fuse_file_info *fi)
{
	return make(req, ANNOUNCER_CREATE, parent, name, fi);
}

bool announce_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	return make(req, ANNOUNCER_MKDIR, parent, name, NULL);
}

bool announce_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct changefs *fs = fs_of(req);
	struct announcer_action action;
	bool known;

	if (!announce_is_me(fs, req))
		return false;
	known = announce_action(fs, parent, name, &action) && action.kind == ANNOUNCER_REMOVE;
	fuse_reply_err(req, known ? 0 : EPERM);
	return true;
}

bool announce_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);

	if (!announce_is_me(fs, req))
		return false;
	nodes_stamp(fs->nodes, ino, announce_stamp(fs));
	open_nothing(fi);
	fuse_reply_open(req, fi);
	return true;
}
