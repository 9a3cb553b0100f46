/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "fs/fs.h"

/* People know processes; the kernel tells the thread. It waits for us, so it is still there. */
pid_t process_of(pid_t thread)
{
	char path[48], line[128];
	pid_t process = thread;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", thread);
	file = fopen(path, "re");
	if (!file)
		return thread;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Tgid: %d", &process) == 1)
			break;
	fclose(file);
	return process;
}

static int path_of(struct changefs *fs, const struct node *node, const char *name,
		   struct buffer *ret_path)
{
	int r = layout_path(fs->layout, node, ret_path);

	if (r < 0 || !name)
		return r;
	if (ret_path->n == 0 || ret_path->p[ret_path->n - 1] != '/')
		r = buffer_add(ret_path, "/", 1);
	return r < 0 ? r : buffer_add_bytes(ret_path, bytes_of(name));
}

void changefs_note(struct changefs *fs, const struct caller *caller, const struct node *node,
		   const char *name, int code, const struct error *error)
{
	struct errors_record record = {.uid = caller->uid, .code = code, .reason = error->text};
	struct buffer path = {0};

	if (error->text[0] == '\0' || code == -EINTR || code == -EAGAIN)
		return;
	if (path_of(fs, node, name, &path) == 0) {
		record.pid = process_of(caller->pid);
		record.path = buffer_bytes(&path);
		errors_add(fs->errors, &record);
	}
	buffer_free(&path);
}

void changefs_refuse(fuse_req_t req, const struct node *node, const char *name, int code,
		     const struct error *error)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct caller caller = {.pid = ctx->pid, .uid = ctx->uid};

	/* Before the answer: who sees the error may look at ctl/errors at once. */
	changefs_note(fuse_req_userdata(req), &caller, node, name, code, error);
	fuse_reply_err(req, -code);
}
