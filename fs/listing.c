/* SPDX-License-Identifier: Apache-2.0 */
/* Directories. */
#include <errno.h>
#include <stdlib.h>

#include "fs/ops.h"

#define MIN_DIRENT_PLUS 152 /* bytes of the shortest entry in an answer to READDIRPLUS */

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
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
	char *p = listing->p + listing->used;
	size_t room = listing->size - listing->used, n;

	if (!node || !node->row || fill_entry(fs, node, st, &param) < 0)
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

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		struct fuse_file_info *fi)
{
	reply_listing(req, handle_of(fi), size, offset, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	reply_listing(req, handle_of(fi), size, offset, true);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct error error = {0};
	int r = store_sync(fs_of(req)->store, &error);

	if (r < 0)
		changefs_refuse(req, handle_of(fi)->ref.node, NULL, r, &error);
	else
		fuse_reply_err(req, 0);
}
