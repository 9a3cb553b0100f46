/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "fs/fs.h"

void handles_init(struct handles *handles)
{
	*handles = (struct handles){0};
	pthread_mutex_init(&handles->lock, NULL);
}

void handles_destroy(struct changefs *fs)
{
	while (fs->handles.first)
		handle_close(fs, fs->handles.first);
	pthread_mutex_destroy(&fs->handles.lock);
}

uint64_t handles_endless(struct handles *handles)
{
	uint64_t n;

	pthread_mutex_lock(&handles->lock);
	n = handles->endless;
	pthread_mutex_unlock(&handles->lock);
	return n;
}

int handles_stat(struct handles *handles, const struct node *node, struct stat *ret_stat)
{
	int r = -ENOENT;

	pthread_mutex_lock(&handles->lock);
	for (struct handle *handle = handles->first; handle && r < 0; handle = handle->next)
		if (handle->opened && node_equal(handle->ref.node, node))
			r = layout_file_stat(handle->file, ret_stat);
	pthread_mutex_unlock(&handles->lock);
	return r;
}

int handle_new(struct changefs *fs, uint64_t id, pid_t pid, uid_t uid, struct handle **ret_handle)
{
	struct handles *handles = &fs->handles;
	struct handle *handle = calloc(1, sizeof(*handle));
	int r;

	if (!handle)
		return -ENOMEM;
	r = nodes_ref(fs->nodes, id, &handle->ref);
	if (r < 0) {
		free(handle);
		return r;
	}
	handle->endless = node_flags(handle->ref.node) & NODE_ENDLESS;
	handle->timed = node_flags(handle->ref.node) & NODE_TIMED;
	handle->pid = handle->endless && handle->timed ? process_of(pid) : pid;
	handle->uid = uid;
	handle->shares = handle->ref.inode && node_flags(handle->ref.node) & NODE_CONTENT;
	pthread_mutex_init(&handle->lock, NULL);
	pthread_mutex_lock(&handles->lock);
	handle->next = handles->first;
	if (handle->next)
		handle->next->prev = handle;
	handles->first = handle;
	handles->endless += handle->endless;
	pthread_mutex_unlock(&handles->lock);
	*ret_handle = handle;
	return 0;
}

void handle_enter(struct handle *handle)
{
	pthread_mutex_lock(&handle->lock);
	park_hold();
}

void handle_leave(struct handle *handle)
{
	park_let_go();
	pthread_mutex_unlock(&handle->lock);
}

/* The last handle of a node takes the content with it. Below inode->lock. */
static void drop_content(struct inode *inode)
{
	if (inode->opens > 0)
		return;
	content_free(inode->content);
	inode->content = NULL;
}

static struct layout_caller caller_of(const struct handle *handle)
{
	return (struct layout_caller){.pid = handle->pid, .uid = handle->uid};
}

static int open_shared(struct changefs *fs, struct handle *handle, int flags, struct error *error)
{
	struct inode *inode = handle->ref.inode;
	int r;

	pthread_mutex_lock(&inode->lock);
	r = layout_file_open(fs->layout, handle->ref.node, flags, caller_of(handle),
			     &inode->content, &handle->file, error);
	if (r == 0)
		inode->opens++;
	drop_content(inode);
	pthread_mutex_unlock(&inode->lock);
	return r;
}

int handle_open_file(struct changefs *fs, struct handle *handle, int flags, struct error *error)
{
	int r;

	handle_enter(handle);
	if (handle->shares)
		r = open_shared(fs, handle, flags, error);
	else
		r = layout_file_open(fs->layout, handle->ref.node, flags, caller_of(handle), NULL,
				     &handle->file, error);
	handle_leave(handle);
	pthread_mutex_lock(&fs->handles.lock);
	handle->opened = r == 0;
	pthread_mutex_unlock(&fs->handles.lock);
	return r;
}

int handle_open_directory(struct changefs *fs, struct handle *handle, struct error *error)
{
	int r;

	handle_enter(handle);
	r = layout_directory_open(fs->layout, handle->ref.node, &handle->directory, error);
	handle_leave(handle);
	return r;
}

static int close_shared(struct handle *handle, struct error *error)
{
	struct inode *inode = handle->ref.inode;
	int r;

	pthread_mutex_lock(&inode->lock);
	r = layout_file_close(handle->file, error);
	inode->opens--;
	drop_content(inode);
	pthread_mutex_unlock(&inode->lock);
	return r;
}

static void close_file(struct changefs *fs, struct handle *handle)
{
	struct caller caller = {.pid = handle->pid, .uid = handle->uid};
	struct error error = {0};
	int r;

	handle_enter(handle);
	if (handle->shares)
		r = close_shared(handle, &error);
	else
		r = layout_file_close(handle->file, &error);
	handle_leave(handle);
	if (r < 0)
		changefs_note(fs, &caller, handle->ref.node, NULL, r, &error);
}

static void unlink_handle(struct handles *handles, struct handle *handle)
{
	pthread_mutex_lock(&handles->lock);
	if (handle->prev)
		handle->prev->next = handle->next;
	else
		handles->first = handle->next;
	if (handle->next)
		handle->next->prev = handle->prev;
	handles->endless -= handle->endless;
	pthread_mutex_unlock(&handles->lock);
}

void handle_close(struct changefs *fs, struct handle *handle)
{
	unlink_handle(&fs->handles, handle);
	park_forget(fs->park, handle);
	if (handle->file)
		close_file(fs, handle);
	if (handle->directory)
		layout_directory_close(handle->directory);
	nodes_unref(fs->nodes, &handle->ref);
	pthread_mutex_destroy(&handle->lock);
	free(handle);
}

static ssize_t read_file(struct changefs *fs, struct handle *handle, char *p, size_t size,
			 uint64_t offset, struct error *error)
{
	ssize_t n;

	handle_enter(handle);
	n = layout_file_read(handle->file, offset, p, size, error);
	handle_leave(handle);
	if (handle->timed && handle->endless)
		settle_soon(fs->settle);
	if (handle->endless && (n >= 0 || n == -EAGAIN))
		handle->read_end = offset + (n > 0 ? (uint64_t)n : 0);
	return n;
}

int handle_reply_read(struct changefs *fs, struct handle *handle, struct fuse_req *req, size_t size,
		      uint64_t offset)
{
	char *p = pool_take(&fs->pool);
	struct error error = {0};
	ssize_t n = -ENOMEM;

	if (p)
		n = read_file(fs, handle, p, size < POOL_BUFFER_SIZE ? size : POOL_BUFFER_SIZE,
			      offset, &error);
	/* Once it is answered the handle may be gone. */
	if (n >= 0)
		fuse_reply_buf(req, p, (size_t)n);
	else if (n != -EAGAIN)
		changefs_refuse(req, handle->ref.node, NULL, (int)n, &error);
	pool_give(&fs->pool, p);
	return n == -EAGAIN ? -EAGAIN : 0;
}
