/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel asks for. Each request finds its node, lets the layout do it, and answers.
 * Extended attributes, locks and access checks are left out on purpose: the kernel remembers that
 * and says EOPNOTSUPP by itself, or does them without us.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "fs/fs.h"

#define LONG		(24.0 * 3600) /* seconds that the kernel may remember what never changes */
#define SHORT		1.0	      /* and what changes by itself but need not be seen at once */
#define READERS_FIRST	4	      /* woken readers that are answered before their writer */
#define BACKGROUND	64	      /* read-aheads and releases on their way at a time */
#define STATFS_BLOCK	4096
#define MIN_DIRENT_PLUS 152 /* bytes of the shortest entry in an answer to READDIRPLUS */

static struct changefs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

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

/* ---- names and attributes ---- */

static double attr_timeout(unsigned flags)
{
	if (flags & NODE_IMMUTABLE)
		return LONG;
	return flags & (NODE_DIRECTORY | NODE_LINK) ? SHORT : 0;
}

static double entry_timeout(unsigned flags)
{
	if (flags & NODE_FRESH)
		return 0;
	if (flags & (NODE_IMMUTABLE | NODE_STATIC))
		return LONG;
	return flags & NODE_DIRECTORY ? SHORT : 0;
}

/* The attributes of a node as its open handles see it. */
static int stat_node(struct changefs *fs, const struct node_ref *ref, struct stat *ret_stat,
		     struct error *error)
{
	int r;

	if (!ref->inode || !(node_flags(ref->node) & NODE_CONTENT))
		return layout_stat(fs->layout, ref->node, NULL, ret_stat, error);
	pthread_mutex_lock(&ref->inode->lock);
	r = layout_stat(fs->layout, ref->node, ref->inode->content, ret_stat, error);
	pthread_mutex_unlock(&ref->inode->lock);
	return r;
}

/* Fills an entry for a node that was looked up with these attributes, and counts the lookup. Takes
 * ownership of the node. */
static int fill_entry(struct changefs *fs, struct node *node, const struct stat *st,
		      struct fuse_entry_param *ret_entry, struct error *error)
{
	struct node_ref ref;
	unsigned flags;
	int r = nodes_intern(fs->nodes, node, &ret_entry->ino, &ref);

	if (r < 0)
		return r;
	flags = node_flags(ref.node);
	ret_entry->attr = *st;
	ret_entry->attr_timeout = attr_timeout(flags);
	ret_entry->entry_timeout = entry_timeout(flags);
	/* Others may have it open, and then its size is that of what they share. */
	if (ref.inode && flags & NODE_CONTENT)
		r = stat_node(fs, &ref, &ret_entry->attr, error);
	nodes_unref(fs->nodes, &ref);
	if (r < 0)
		nodes_forget(fs->nodes, ret_entry->ino, 1);
	return r;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct changefs *fs = fs_of(req);
	struct fuse_entry_param entry = {0};
	struct error error = {0};
	struct node_ref ref;
	struct node node = {0};
	struct stat st;
	int r = nodes_ref(fs->nodes, parent, &ref);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	r = layout_lookup(fs->layout, ref.node, name, &node, &st, &error);
	if (r == 0)
		r = fill_entry(fs, &node, &st, &entry, &error);
	/* ENOENT as an error, not as an entry: the kernel must not remember it. */
	if (r == -ENOENT)
		fuse_reply_err(req, ENOENT);
	else if (r < 0)
		changefs_refuse(req, ref.node, name, r, &error);
	else if (fuse_reply_entry(req, &entry) < 0)
		nodes_forget(fs->nodes, entry.ino, 1);
	nodes_unref(fs->nodes, &ref);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	nodes_forget(fs_of(req)->nodes, ino, lookups);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		nodes_forget(fs_of(req)->nodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void reply_attr(fuse_req_t req, const struct node_ref *ref)
{
	struct error error = {0};
	struct stat st;
	int r = stat_node(fs_of(req), ref, &st, &error);

	if (r < 0)
		changefs_refuse(req, ref->node, NULL, r, &error);
	else
		fuse_reply_attr(req, &st, attr_timeout(node_flags(ref->node)));
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct node_ref ref;
	int r = nodes_ref(fs->nodes, ino, &ref);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	reply_attr(req, &ref);
	nodes_unref(fs->nodes, &ref);
}

static unsigned layout_bits(int to_set)
{
	const int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
			  FUSE_SET_ATTR_MTIME_NOW;

	return (to_set & FUSE_SET_ATTR_SIZE ? LAYOUT_SET_SIZE : 0u) |
	       (to_set & times ? LAYOUT_SET_TIMES : 0u) |
	       (to_set & FUSE_SET_ATTR_MODE ? LAYOUT_SET_MODE : 0u) |
	       (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) ? LAYOUT_SET_OWNER : 0u);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct error error = {0};
	struct node_ref ref;
	int r = nodes_ref(fs->nodes, ino, &ref);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	r = layout_set(fs->layout, ref.node, layout_bits(to_set), &error);
	if (r < 0)
		changefs_refuse(req, ref.node, NULL, r, &error);
	else
		reply_attr(req, &ref);
	nodes_unref(fs->nodes, &ref);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct changefs *fs = fs_of(req);
	struct node_ref ref;
	int r = nodes_ref(fs->nodes, ino, &ref);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	if (node_flags(ref.node) & NODE_LINK)
		fuse_reply_readlink(req, layout_readlink(ref.node));
	else
		fuse_reply_err(req, EINVAL);
	nodes_unref(fs->nodes, &ref);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st = {.f_bsize = STATFS_BLOCK,
			     .f_frsize = STATFS_BLOCK,
			     .f_namemax = NAME_MAX};
	uint64_t used, room;
	int r = store_room(fs_of(req)->store, &used, &room);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	st.f_blocks = (used + STATFS_BLOCK - 1) / STATFS_BLOCK + room / STATFS_BLOCK;
	st.f_bfree = st.f_bavail = room / STATFS_BLOCK;
	fuse_reply_statfs(req, &st);
}

/* ---- what changes the tree: nothing of it is the kernel's to decide ---- */

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

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	refuse_change(req, parent, name);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	refuse_change(req, parent, name);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	refuse_change(req, parent, name);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	refuse_change(req, parent, name);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags)
{
	refuse_change(req, parent, name);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	refuse_change(req, new_parent, new_name);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	refuse_change(req, parent, name);
}

/* ---- files ---- */

static struct handle *new_handle(fuse_req_t req, fuse_ino_t ino)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct handle *handle;
	int r = handle_new(fs_of(req), ino, &handle);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return NULL;
	}
	handle->pid = ctx->pid;
	handle->uid = ctx->uid;
	return handle;
}

static void set_caching(const struct handle *handle, struct fuse_file_info *fi)
{
	unsigned flags = node_flags(handle->ref.node);

	fi->direct_io = !!(flags & NODE_DIRECT);
	fi->keep_cache = !!(flags & NODE_IMMUTABLE);
	fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct handle *handle = new_handle(req, ino);
	struct error error = {0};
	int r;

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
	struct error error = {0};
	ssize_t n;

	handle_enter(handle);
	n = layout_file_write(handle->file, p, size, flags, &error);
	handle_leave(handle);
	/* A few readers are awake sooner so; for many the writer need not wait. */
	park_answer(fs->park, READERS_FIRST);
	if (n < 0)
		changefs_refuse(req, handle->ref.node, NULL, (int)n, &error);
	else
		fuse_reply_write(req, (size_t)n);
	park_answer(fs->park, UINT_MAX);
}

/* FLUSH and FSYNC: lets the layout do it with the handle's file. */
static void with_file(fuse_req_t req, struct fuse_file_info *fi,
		      int (*act)(struct file *file, struct error *error))
{
	struct changefs *fs = fs_of(req);
	struct handle *handle = handle_of(fi);
	struct error error = {0};
	int r;

	handle_enter(handle);
	r = act(handle->file, &error);
	handle_leave(handle);
	if (r < 0)
		changefs_refuse(req, handle->ref.node, NULL, r, &error);
	else
		fuse_reply_err(req, 0);
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
static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);

	handle_close(fs, handle_of(fi));
	fuse_reply_err(req, 0);
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

/* ---- directories ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct handle *handle = new_handle(req, ino);
	struct error error = {0};
	int r;

	if (!handle)
		return;
	r = handle_open_directory(fs, handle, &error);
	if (r < 0) {
		changefs_refuse(req, handle->ref.node, NULL, r, &error);
		handle_close(fs, handle);
		return;
	}
	fi->fh = (uintptr_t)handle;
	if (fuse_reply_open(req, fi) < 0)
		handle_close(fs, handle);
}

/* An answer to READDIR or READDIRPLUS while it grows. */
struct listing {
	fuse_req_t req;
	struct directory *directory;
	char *p;
	size_t size, used;
	uint64_t cookie;
	bool plus;
	uint64_t *looked_up; /* what the kernel will know when it takes the answer */
	size_t count;
};

/* Adds an entry; false if there is no room for it. */
static bool add_entry(struct listing *listing, const struct directory_entry *entry,
		      struct node *node, const struct stat *st)
{
	struct changefs *fs = fs_of(listing->req);
	struct fuse_entry_param param = {0};
	struct error error = {0};
	char *p = listing->p + listing->used;
	size_t room = listing->size - listing->used, n;

	if (!node || !node->row || fill_entry(fs, node, st, &param, &error) < 0)
		param = (struct fuse_entry_param){0}; /* a name only */
	param.attr.st_ino = entry->ino;
	param.attr.st_mode |= param.ino ? 0 : entry->type;
	if (listing->plus)
		n = fuse_add_direntry_plus(listing->req, p, room, entry->name, &param,
					   (off_t)entry->cookie);
	else
		n = fuse_add_direntry(listing->req, p, room, entry->name, &param.attr,
				      (off_t)entry->cookie);
	if (n > room) {
		nodes_forget(fs->nodes, param.ino, 1);
		return false;
	}
	listing->used += n;
	listing->cookie = entry->cookie;
	if (param.ino)
		listing->looked_up[listing->count++] = param.ino;
	return true;
}

static int fill_listing(struct listing *listing, struct error *error)
{
	struct directory_entry entry;
	struct node node;
	struct stat st;
	int r;

	do {
		node = (struct node){0};
		r = layout_directory_next(listing->directory, listing->cookie, &entry,
					  listing->plus ? &node : NULL, listing->plus ? &st : NULL,
					  error);
	} while (r > 0 && add_entry(listing, &entry, listing->plus ? &node : NULL, &st));
	/* What is there goes out first; the next request meets the error again. */
	return listing->used > 0 || r > 0 ? 0 : r;
}

static void reply_listing(fuse_req_t req, struct handle *handle, size_t size, off_t offset,
			  bool plus)
{
	struct changefs *fs = fs_of(req);
	struct listing listing = {.req = req,
				  .directory = handle->directory,
				  .p = pool_take(&fs->pool),
				  .size = size < POOL_BUFFER_SIZE ? size : POOL_BUFFER_SIZE,
				  .cookie = (uint64_t)offset,
				  .plus = plus};
	struct error error = {0};
	int r = -ENOMEM;

	if (plus)
		listing.looked_up = malloc((size / MIN_DIRENT_PLUS + 1) * sizeof(uint64_t));
	if (listing.p && (listing.looked_up || !plus)) {
		handle_enter(handle);
		r = fill_listing(&listing, &error);
		handle_leave(handle);
	}
	if (r < 0)
		changefs_refuse(req, handle->ref.node, NULL, r, &error);
	else if (fuse_reply_buf(req, listing.p, listing.used) < 0)
		for (size_t i = 0; i < listing.count; i++)
			nodes_forget(fs->nodes, listing.looked_up[i], 1);
	free(listing.looked_up);
	pool_give(&fs->pool, listing.p);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	reply_listing(req, handle_of(fi), size, offset, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	reply_listing(req, handle_of(fi), size, offset, true);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct error error = {0};
	int r = store_sync(fs_of(req)->store, &error);

	if (r < 0)
		changefs_refuse(req, handle_of(fi)->ref.node, NULL, r, &error);
	else
		fuse_reply_err(req, 0);
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
	.rmdir = op_unlink,
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
