/* SPDX-License-Identifier: Apache-2.0 */
/* Names and attributes: what the kernel knows of a node. */
#include <errno.h>
#include <limits.h>
#include <sys/statvfs.h>

#include "fs/ops.h"

#define LONG	     (24.0 * 3600) /* seconds that the kernel may remember what never changes */
#define SHORT	     1.0	   /* and what changes by itself but need not be seen at once */
#define STATFS_BLOCK 4096

static double attr_timeout(unsigned flags)
{
	if (flags & NODE_IMMUTABLE)
		return LONG;
	/* A group's directory gives its files their owner and mode. */
	return flags & (NODE_DIRECTORY | NODE_LINK) && !(flags & NODE_TIMED) ? SHORT : 0;
}

double entry_timeout(unsigned flags)
{
	if (flags & NODE_FRESH)
		return 0;
	if (flags & (NODE_IMMUTABLE | NODE_STATIC))
		return LONG;
	return flags & NODE_DIRECTORY ? SHORT : 0;
}

/* The attributes of a node as its open handles see it. */
int stat_node(struct changefs *fs, const struct node_ref *ref, struct stat *ret_stat,
	      struct error *error)
{
	int r;

	if (!ref->inode || !(node_flags(ref->node) & NODE_CONTENT)) {
		r = layout_stat(fs->layout, ref->node, NULL, ret_stat, error);
		return r == -ENOENT ? handles_stat(&fs->handles, ref->node, ret_stat) : r;
	}
	pthread_mutex_lock(&ref->inode->lock);
	r = layout_stat(fs->layout, ref->node, ref->inode->content, ret_stat, error);
	pthread_mutex_unlock(&ref->inode->lock);
	return r;
}

/* Fills an entry for a node that was looked up with these attributes, and counts the lookup. Takes
 * ownership of the node. */
int fill_entry(struct changefs *fs, struct node *node, const struct stat *st,
	       struct fuse_entry_param *ret_entry)
{
	struct node_ref ref;
	unsigned flags;
	int r = nodes_intern(fs->nodes, node, &ret_entry->ino, &ref);

	if (r < 0)
		return r;
	flags = node_flags(ref.node);
	ret_entry->attr = *st;
	ret_entry->attr_timeout = attr_timeout(flags);
	/* A name that is still to be announced has to be new to the kernel then. */
	ret_entry->entry_timeout = announce_awaits(fs, ref.node) ? 0 : entry_timeout(flags);
	nodes_unref(fs->nodes, &ref);
	return 0;
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct changefs *fs = fs_of(req);
	struct fuse_entry_param entry = {0};
	struct error error = {0};
	struct node_ref ref;
	struct node node = {0};
	struct stat st;
	int r;

	if (announce_lookup(req, parent, name) || !find_node(req, parent, &ref))
		return;
	r = layout_lookup(fs->layout, ref.node, name, &node, &st, &error);
	if (r == 0)
		r = fill_entry(fs, &node, &st, &entry);
	/* ENOENT as an error, not as an entry: the kernel must not remember it. */
	if (r == -ENOENT)
		fuse_reply_err(req, ENOENT);
	else if (r < 0)
		changefs_refuse(req, ref.node, name, r, &error);
	else if (fuse_reply_entry(req, &entry) < 0)
		nodes_forget(fs->nodes, entry.ino, 1);
	nodes_unref(fs->nodes, &ref);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	nodes_forget(fs_of(req)->nodes, ino, lookups);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
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
	else if (announce_is_me(fs_of(req), req) && !S_ISDIR(st.st_mode))
		announce_reply_attr(req, &st);
	else
		fuse_reply_attr(req, &st, attr_timeout(node_flags(ref->node)));
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct node_ref ref;

	if (!find_node(req, ino, &ref))
		return;
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
	       (to_set & FUSE_SET_ATTR_UID ? LAYOUT_SET_UID : 0u) |
	       (to_set & FUSE_SET_ATTR_GID ? LAYOUT_SET_GID : 0u);
}

/* The kernel has checked it by what it remembers of this node, and a file that has been open for
 * long may have got another owner through another one. */
static int check_owner(fuse_req_t req, const struct node_ref *ref, unsigned to_set,
		       struct error *error)
{
	uid_t uid = fuse_req_ctx(req)->uid;
	struct stat st;
	int r;

	if (uid == 0 || !(to_set & LAYOUT_SET_ATTRIBUTES))
		return 0;
	r = stat_node(fs_of(req), ref, &st, error);
	if (r == 0 && st.st_uid != uid)
		r = error_set(error, -EPERM, "only root and the owner, %u, may do that", st.st_uid);
	return r;
}

/* What is there, with what is asked for over it. */
static void merge_attributes(struct stat *st, const struct stat *asked, int to_set)
{
	if (to_set & FUSE_SET_ATTR_SIZE)
		st->st_size = asked->st_size;
	if (to_set & FUSE_SET_ATTR_MODE)
		st->st_mode = asked->st_mode;
	if (to_set & FUSE_SET_ATTR_UID)
		st->st_uid = asked->st_uid;
	if (to_set & FUSE_SET_ATTR_GID)
		st->st_gid = asked->st_gid;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		clock_gettime(CLOCK_REALTIME, &st->st_mtim);
	else if (to_set & FUSE_SET_ATTR_MTIME)
		st->st_mtim = asked->st_mtim;
}

static int set_attributes(struct changefs *fs, const struct node_ref *ref, const struct stat *asked,
			  int to_set, struct error *error)
{
	bool shares = ref->inode && node_flags(ref->node) & NODE_CONTENT;
	struct stat st;
	int r = stat_node(fs, ref, &st, error);

	if (r < 0)
		return r;
	merge_attributes(&st, asked, to_set);
	if (shares) {
		park_hold(); /* truncate(2) commits: nobody is answered below this lock */
		pthread_mutex_lock(&ref->inode->lock);
	}
	r = layout_set(fs->layout, ref->node, shares ? ref->inode->content : NULL, &st,
		       layout_bits(to_set), error);
	if (shares) {
		pthread_mutex_unlock(&ref->inode->lock);
		park_let_go();
	}
	return r;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi)
{
	struct changefs *fs = fs_of(req);
	struct error error = {0};
	struct node_ref ref;
	int r = 0;

	if (!find_node(req, ino, &ref))
		return;
	if (fi && to_set & FUSE_SET_ATTR_SIZE) {
		struct handle *handle = handle_of(fi);
		handle_enter(handle);
		r = layout_file_truncate(handle->file, (uint64_t)attr->st_size, &error);
		handle_leave(handle);
		to_set &= ~FUSE_SET_ATTR_SIZE;
	}
	if (r == 0)
		r = check_owner(req, &ref, layout_bits(to_set), &error);
	if (r == 0)
		r = set_attributes(fs, &ref, attr, to_set, &error);
	if (r < 0)
		changefs_refuse(req, ref.node, NULL, r, &error);
	else
		reply_attr(req, &ref);
	if (node_flags(ref.node) & NODE_TIMED)
		settle_soon(fs->settle);
	nodes_unref(fs->nodes, &ref);
	park_answer(fs->park, UINT_MAX);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct changefs *fs = fs_of(req);
	struct node_ref ref;

	if (!find_node(req, ino, &ref))
		return;
	if (node_flags(ref.node) & NODE_LINK)
		fuse_reply_readlink(req, layout_readlink(ref.node));
	else
		fuse_reply_err(req, EINVAL);
	nodes_unref(fs->nodes, &ref);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
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
