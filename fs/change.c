/* SPDX-License-Identifier: Apache-2.0 */
/* What changes the tree. */
#include <assert.h>
#include <errno.h>

#include "fs/ops.h"

static void refuse_change(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct changefs *fs = fs_of(req);
	struct error error = {0};
	struct node_ref ref;
	int r = nodes_ref(fs->nodes, parent, &ref);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	r = layout_refuse_change(fs->layout, ref.node, name, &error);
	assert(r < 0);
	changefs_refuse(req, ref.node, name, r, &error);
	nodes_unref(fs->nodes, &ref);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	refuse_change(req, parent, name);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	refuse_change(req, parent, name);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	refuse_change(req, parent, name);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	refuse_change(req, parent, name);
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags)
{
	refuse_change(req, parent, name);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	refuse_change(req, new_parent, new_name);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	refuse_change(req, parent, name);
}
