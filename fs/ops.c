/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel asks for. Each request finds its node, lets the layout do it, and answers.
 * Extended attributes, locks and access checks are left out on purpose: the kernel remembers that
 * and says EOPNOTSUPP by itself, or does them without us. Here: the start, the open files, and the
 * table of all.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>

#include "fs/ops.h"

#define READERS_FIRST 4	 /* woken readers that are answered before their writer */
#define BACKGROUND    64 /* read-aheads and releases on their way at a time */

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct changefs *fs = userdata;

	/* Sizes are as the kernel offers them: reads and writes of 1 MiB. */
	conn->want |= conn->capable & (FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_PARALLEL_DIROPS |
				       FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_CACHE_SYMLINKS);
	/* The kernel would keep what was written, and the writer would not see why it is refused.
	 */
	conn->want &= ~(unsigned)FUSE_CAP_WRITEBACK_CACHE;
	conn->max_background = BACKGROUND;
	conn->congestion_threshold = BACKGROUND * 3 / 4;
	daemon_ready(&fs->daemon);
}

bool find_node(fuse_req_t req, fuse_ino_t ino, struct node_ref *ret_ref)
{
	int r = nodes_ref(fs_of(req)->nodes, ino, ret_ref);

	if (r < 0)
		fuse_reply_err(req, -r);
	return r == 0;
}

/* ---- files ---- */

struct handle *new_handle(fuse_req_t req, fuse_ino_t ino)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct handle *handle;
	int r = handle_new(fs_of(req), ino, ctx->pid, ctx->uid, &handle);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return NULL;
	}
	return handle;
}

void set_caching(const struct handle *handle, struct fuse_file_info *fi)
{
	unsigned flags = node_flags(handle->ref.node);
	bool writes = (fi->flags & O_ACCMODE) != O_RDONLY;

	/* What a writer has written is not what others read. */
	fi->direct_io = flags & NODE_DIRECT || (writes && flags & NODE_CONTENT);
	fi->keep_cache = !!(flags & NODE_IMMUTABLE);
	fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct handle *handle;
	struct error error = {0};
	int r;

	if (announce_open(req, ino, fi))
		return;
	handle = new_handle(req, ino);
	if (!handle)
		return;
	r = handle_open_file(fs, handle, fi->flags, &error);
	if (r < 0) {
		changefs_refuse(req, handle->ref.node, NULL, r, &error);
		handle_close(fs, handle);
	} else {
		set_caching(handle, fi);
		fi->fh = (uintptr_t)handle;
		/* When nobody takes it there will be no RELEASE either. */
		if (fuse_reply_open(req, fi) < 0)
			handle_close(fs, handle);
	}
	park_answer(fs->park, UINT_MAX);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct handle *handle = handle_of(fi);

	/* The flags are those of now: fcntl(2) changes them after open(2). */
	if (handle->endless && !(fi->flags & O_NONBLOCK))
		park_read(fs->park, req, handle, size, (uint64_t)offset);
	else if (handle_reply_read(fs, handle, req, size, (uint64_t)offset) < 0)
		fuse_reply_err(req, EAGAIN);
	park_answer(fs->park, UINT_MAX);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *p, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct handle *handle = handle_of(fi);
	int flags = fs->options->sync ? fi->flags | O_SYNC : fi->flags;
	bool timed = handle && handle->timed;
	struct error error = {0};
	ssize_t n;

	if (!handle) { /* the announcer's byte goes nowhere */
		fuse_reply_write(req, size);
		return;
	}
	handle_enter(handle);
	n = layout_file_write(handle->file, p, size, (uint64_t)offset, flags, &error);
	handle_leave(handle);
	/* A few readers are awake sooner so; for many the writer need not wait. */
	park_answer(fs->park, READERS_FIRST);
	if (n < 0)
		changefs_refuse(req, handle->ref.node, NULL, (int)n, &error);
	else
		fuse_reply_write(req, (size_t)n);
	/* Once it is answered the handle may be gone. */
	if (timed)
		settle_soon(fs->settle);
	park_answer(fs->park, UINT_MAX);
}

/* FLUSH and FSYNC: lets the layout do it with the handle's file. */
static void with_file(fuse_req_t req, struct fuse_file_info *fi,
		      int (*act)(struct file *file, struct error *error))
{
	struct changefs *fs = fs_of(req);
	struct handle *handle = handle_of(fi);
	bool timed = handle && handle->timed;
	struct error error = {0};
	int r;

	if (!handle) {
		fuse_reply_err(req, 0);
		return;
	}
	handle_enter(handle);
	r = act(handle->file, &error);
	handle_leave(handle);
	if (r < 0)
		changefs_refuse(req, handle->ref.node, NULL, r, &error);
	else
		fuse_reply_err(req, 0);
	if (timed)
		settle_soon(fs->settle);
	park_answer(fs->park, UINT_MAX);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	with_file(req, fi, layout_file_flush);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	with_file(req, fi, layout_file_sync);
}

/* RELEASE, and RELEASEDIR. */
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct handle *handle = handle_of(fi);
	bool timed = handle && handle->timed;

	if (handle)
		handle_close(fs, handle);
	fuse_reply_err(req, 0);
	if (timed)
		settle_soon(fs->settle);
	park_answer(fs->park, UINT_MAX);
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		    struct fuse_pollhandle *ph)
{
	struct handle *handle = handle_of(fi);
	unsigned events = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;

	if (handle->endless)
		events = park_poll(fs_of(req)->park, handle, ph) ? POLLIN | POLLRDNORM : 0;
	else if (ph)
		fuse_pollhandle_destroy(ph);
	fuse_reply_poll(req, events);
}

const struct fuse_lowlevel_ops changefs_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.statfs = op_statfs,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.create = op_create,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.fsync = op_fsync,
	.release = op_release,
	.poll = op_poll,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_release,
	.fsyncdir = op_fsyncdir,
};
