/* SPDX-License-Identifier: Apache-2.0 */
/* What changes the tree. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "fs/ops.h"

/* With -o sync a change survives a power cut when its call returns. */
static int make_durable(struct changefs *fs, struct error *error)
{
	return fs->options->sync ? store_sync(fs->store, error) : 0;
}

/* Lets the layout do it with a name, and answers. */
static void with_name(fuse_req_t req, fuse_ino_t parent, const char *name,
		      int (*act)(struct layout *layout, const struct node *parent, const char *name,
				 struct error *error))
{
	struct changefs *fs = fs_of(req);
	struct error error = {0};
	struct node_ref ref;
	int r;

	if (!find_node(req, parent, &ref))
		return;
	r = act(fs->layout, ref.node, name, &error);
	if (r == 0)
		r = make_durable(fs, &error);
	if (r < 0)
		changefs_refuse(req, ref.node, name, r, &error);
	else
		fuse_reply_err(req, 0);
	if (node_flags(ref.node) & NODE_TIMED)
		settle_soon(fs->settle);
	nodes_unref(fs->nodes, &ref);
}

/* ---- what cannot be made anywhere ---- */

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	with_name(req, parent, name, layout_refuse_change);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	with_name(req, parent, name, layout_refuse_change);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	with_name(req, new_parent, new_name, layout_refuse_change);
}

/* ---- removing ---- */

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!announce_unlink(req, parent, name))
		with_name(req, parent, name, layout_unlink);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	with_name(req, parent, name, layout_rmdir);
}

/* ---- making ---- */

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct stat as = {.st_mode = mode, .st_uid = ctx->uid, .st_gid = ctx->gid}, st;
	struct changefs *fs = fs_of(req);
	struct fuse_entry_param entry = {0};
	struct error error = {0};
	struct node node = {0};
	struct node_ref ref;
	int r;

	if (announce_mkdir(req, parent, name) || !find_node(req, parent, &ref))
		return;
	r = layout_mkdir(fs->layout, ref.node, name, &as, &node, &st, &error);
	if (r == 0)
		r = make_durable(fs, &error);
	if (r == 0)
		r = fill_entry(fs, &node, &st, &entry);
	if (r < 0)
		changefs_refuse(req, ref.node, name, r, &error);
	else if (fuse_reply_entry(req, &entry) < 0)
		nodes_forget(fs->nodes, entry.ino, 1);
	nodes_unref(fs->nodes, &ref);
}

/* Opens what was made, and answers. */
static int open_created(fuse_req_t req, const struct fuse_entry_param *entry,
			struct fuse_file_info *fi, struct error *error)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct changefs *fs = fs_of(req);
	struct handle *handle;
	int r = handle_new(fs, entry->ino, ctx->pid, ctx->uid, &handle);

	if (r == 0) {
		r = handle_open_file(fs, handle, fi->flags, error);
		if (r < 0)
			handle_close(fs, handle);
	}
	if (r < 0)
		return r;
	set_caching(handle, fi);
	fi->fh = (uintptr_t)handle;
	/* When nobody takes it there will be no RELEASE and no FORGET either. */
	if (fuse_reply_create(req, entry, fi) < 0) {
		handle_close(fs, handle);
		nodes_forget(fs->nodes, entry->ino, 1);
	}
	return 0;
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct stat as = {.st_mode = mode, .st_uid = ctx->uid, .st_gid = ctx->gid}, st;
	struct changefs *fs = fs_of(req);
	struct fuse_entry_param entry = {0};
	struct error error = {0};
	struct node node = {0};
	struct node_ref ref;
	int r;

	if (announce_create(req, parent, name, fi) || !find_node(req, parent, &ref))
		return;
	r = layout_create(fs->layout, ref.node, name, &as, fi->flags & O_EXCL, &node, &st, &error);
	if (r == 0)
		r = fill_entry(fs, &node, &st, &entry);
	if (r == 0) {
		r = open_created(req, &entry, fi, &error);
		if (r < 0)
			nodes_forget(fs->nodes, entry.ino, 1);
	}
	if (r < 0)
		changefs_refuse(req, ref.node, name, r, &error);
	nodes_unref(fs->nodes, &ref);
	park_answer(fs->park, UINT_MAX);
}

/* ---- renaming ---- */

static int rename_name(struct changefs *fs, const struct node_ref *ref, const char *name,
		       const struct node_ref *new_ref, const char *new_name, unsigned flags,
		       struct error *error)
{
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return error_set(error, -EINVAL, "names are not exchanged here");
	int r = layout_rename(fs->layout, ref->node, name, new_ref->node, new_name,
			      !(flags & RENAME_NOREPLACE), error);

	return r < 0 ? r : make_durable(fs, error);
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags)
{
	struct changefs *fs = fs_of(req);
	struct error error = {0};
	struct node_ref ref, new_ref = {0};
	int r = nodes_ref(fs->nodes, parent, &ref);

	if (r == 0)
		r = nodes_ref(fs->nodes, new_parent, &new_ref);
	if (r == 0)
		r = rename_name(fs, &ref, name, &new_ref, new_name, flags, &error);
	if (r < 0 && ref.node)
		changefs_refuse(req, ref.node, name, r, &error);
	else
		fuse_reply_err(req, -r);
	nodes_unref(fs->nodes, &new_ref);
	nodes_unref(fs->nodes, &ref);
	settle_wake(fs->settle);
}
