/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fs/fs.h"
#include "fs/mountpoint.h"

/*
 * A writer with fsync keeps its thread until the disk has answered, and many of them share one
 * sync: so there are to be more threads than such writers. Idle ones are kept, because starting
 * them anew costs more than they do.
 */
#define THREADS_MAX  64
#define THREADS_IDLE 64
#define LARGE_PIECE  (1 << 20)
/* A queue of its own for each thread. */
#define CLONE_FD 0

struct mount {
	struct changefs fs;
	char *store_path;
	char *mountpoint;
	bool mounted;
	int64_t device;
};

static int complain(const char *what, int r, const struct error *error)
{
	const char *reason = error && error->text[0] ? error->text : strerror(-r);

	fprintf(stderr, "changefs: %s: %s\n", what, reason);
	return r;
}

/* ---- before it goes into the background ---- */

static int resolve_paths(struct mount *mount)
{
	const struct options *options = mount->fs.options;
	struct stat st;
	int r = path_resolve(options->store, &mount->store_path);

	if (r < 0)
		return complain(options->store, r, NULL);
	r = path_resolve(options->mountpoint, &mount->mountpoint);
	if (r == 0)
		r = mountpoint_clear(mount->mountpoint);
	if (r == 0 && stat(mount->mountpoint, &st) < 0)
		r = -errno;
	else if (r == 0)
		r = S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	if (r < 0)
		return complain(options->mountpoint, r, NULL);
	/* The store would be hidden by the mount that it serves. */
	if (path_is_below(mount->store_path, mount->mountpoint)) {
		fprintf(stderr, "changefs: %s: the store is inside the mount point\n",
			mount->store_path);
		return -EINVAL;
	}
	return 0;
}

/* A kernel that ends requests after a time ends the whole mount with the first reader that waits
 * longer. */
static void warn_of_timeout(const char *name)
{
	char path[64];
	unsigned seconds = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/sys/fs/fuse/%s", name);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fscanf(file, "%u", &seconds) == 1 && seconds != 0)
		fprintf(stderr,
			"changefs: warning: %s is %u: a reader that waits longer ends the mount\n",
			path, seconds);
	fclose(file);
}

/* ---- opening ---- */

static void count_readers(void *context, uint64_t *ret_open, uint64_t *ret_waiting)
{
	struct changefs *fs = context;

	*ret_open = handles_endless(&fs->handles);
	*ret_waiting = park_waiting(fs->park);
}

static void tell_announcing(void *context, struct layout_announcing *ret_announcing)
{
	struct changefs *fs = context;

	announce_tell(fs->announce, ret_announcing);
}

static int render_errors(void *context, struct buffer *ret_text)
{
	struct changefs *fs = context;

	return errors_render(fs->errors, ret_text);
}

/* After each commit, in the committing thread. */
static void committed(void *context)
{
	struct changefs *fs = context;

	park_wake(fs->park);
	refresh_wake(fs->refresh);
	announce_wake(fs->announce);
}

static int open_store(struct mount *mount)
{
	struct store_options options = {.create = !mount->fs.options->read_only,
					.owner = mount->mountpoint,
					.version = CHANGEFS_VERSION};
	struct error error = {0};
	int r = store_open(mount->store_path, &options, &mount->fs.store, &error);

	return r < 0 ? complain(mount->store_path, r, &error) : 0;
}

static int open_layout(struct mount *mount)
{
	struct changefs *fs = &mount->fs;
	struct layout_options options = {
		.uid = fs->options->uid,
		.gid = fs->options->gid,
		.umask = fs->options->umask,
		.read_only = fs->options->read_only,
		.no_streams = fs->options->no_streams,
		.version = CHANGEFS_VERSION,
		.store_path = mount->store_path,
		.host = {.context = fs,
			 .errors = render_errors,
			 .readers = count_readers,
			 .announcing = tell_announcing},
	};
	int r = layout_open(fs->store, &options, &fs->layout);

	if (r == 0)
		r = nodes_new(fs->layout, &fs->nodes);
	fs->park = park_new(fs);
	fs->errors = errors_new();
	if (r == 0 && (!fs->park || !fs->errors))
		r = -ENOMEM;
	if (r < 0)
		return complain(mount->store_path, r, NULL);
	return 0;
}

/* In a mount option a comma and a backslash need a backslash. */
static int add_escaped(struct buffer *options, const char *text)
{
	int r = 0;

	for (; r == 0 && *text; text++)
		r = buffer_printf(options, *text == ',' || *text == '\\' ? "\\%c" : "%c", *text);
	return r;
}

static int mount_options(const struct mount *mount, struct buffer *ret_text)
{
	const struct options *options = mount->fs.options;
	int r = buffer_printf(ret_text, "default_permissions,subtype=changefs");

	if (r == 0 && options->allow_other)
		r = buffer_printf(ret_text, ",allow_other");
	if (r == 0 && options->allow_root)
		r = buffer_printf(ret_text, ",allow_root");
	if (r == 0)
		r = buffer_add_bytes(ret_text, buffer_bytes(&options->kernel));
	if (r == 0)
		r = buffer_printf(ret_text, ",fsname=");
	if (r == 0)
		r = add_escaped(ret_text, mount->store_path);
	return r < 0 ? r : buffer_add(ret_text, "", 1);
}

/* Only now: a daemon that was ending when we started has left by the time the store is ours. */
static int check_place(const struct mount *mount)
{
	int r = mountpoint_clear(mount->mountpoint);

	if (r < 0)
		return complain(mount->mountpoint, r, NULL);
	if (mountpoint_device(mount->mountpoint) < 0)
		return 0;
	fprintf(stderr, "changefs: %s: a changefs is mounted here already\n", mount->mountpoint);
	return -EBUSY;
}

static int open_session(struct mount *mount)
{
	struct changefs *fs = &mount->fs;
	struct buffer options = {0};
	int r = mount_options(mount, &options);
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	if (r == 0 && (fuse_opt_add_arg(&args, "changefs") < 0 ||
		       fuse_opt_add_arg(&args, "-o") < 0 || fuse_opt_add_arg(&args, options.p) < 0))
		r = -ENOMEM;
	if (r == 0)
		fs->session = fuse_session_new(&args, &changefs_ops, sizeof(changefs_ops), fs);
	fuse_opt_free_args(&args);
	buffer_free(&options);
	if (!fs->session)
		return complain(mount->mountpoint, r < 0 ? r : -EINVAL, NULL);
	/* What went wrong is said by the library or by the helper. */
	if (fuse_session_mount(fs->session, mount->mountpoint) != 0) {
		fprintf(stderr, "changefs: %s: cannot mount here\n", mount->mountpoint);
		return -EPERM;
	}
	mount->mounted = true;
	mount->device = mountpoint_device(mount->mountpoint);
	return 0;
}

/* ---- serving, and the end ---- */

static int serve(struct changefs *fs, int64_t device)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	if (!config)
		return complain("serving", -ENOMEM, NULL);
	fuse_loop_cfg_set_max_threads(config, THREADS_MAX);
	fuse_loop_cfg_set_idle_threads(config, THREADS_IDLE);
	fuse_loop_cfg_set_clone_fd(config, CLONE_FD);
	fs->refresh = refresh_new(fs);
	fs->settle = settle_new(fs);
	r = fs->refresh && fs->settle ? daemon_watch(&fs->daemon, fs->session) : -ENOMEM;
	if (r == 0)
		r = announce_start(fs->announce, fs, device);
	if (r == 0) {
		store_set_listener(fs->store, committed, fs);
		/* 0 for every ordinary end: an unmount, a signal, an abort. */
		r = fuse_session_loop_mt(fs->session, config);
		if (r == -ECONNABORTED) /* the kernel ended it while a request was on its way */
			r = 0;
		daemon_unwatch(&fs->daemon);
	}
	fuse_loop_cfg_destroy(config);
	return r < 0 ? complain("serving", r, NULL) : 0;
}

/* No thread serves any more. Who waits is told before the connection ends, and who unmounts waits
 * for that; what writers had begun is then closed as by them. */
static void end_session(struct mount *mount)
{
	struct changefs *fs = &mount->fs;

	if (fs->store)
		store_set_listener(fs->store, NULL, NULL);
	refresh_free(fs->refresh);
	settle_free(fs->settle);
	announce_stop(fs->announce);
	if (fs->park)
		park_close(fs->park);
	if (mount->mounted) {
		fuse_session_unmount(fs->session);
		mountpoint_leave(mount->mountpoint, mount->device);
	}
	if (fs->session)
		fuse_session_destroy(fs->session);
	/* What it waits for in the mount has ended with the connection. */
	announce_free(fs->announce);
}

static int close_all(struct mount *mount)
{
	struct changefs *fs = &mount->fs;
	int r = 0;

	end_session(mount);
	handles_destroy(fs);
	nodes_free(fs->nodes);
	layout_close(fs->layout);
	if (fs->store) {
		r = store_close(fs->store);
	}
	park_free(fs->park);
	errors_free(fs->errors);
	pool_destroy(&fs->pool);
	return r < 0 ? complain(mount->store_path, r, NULL) : 0;
}

static int run(struct mount *mount)
{
	struct changefs *fs = &mount->fs;
	int r, closed;

	/* Large pieces go back to the system when they are freed, instead of growing the heap. */
	mallopt(M_MMAP_THRESHOLD, LARGE_PIECE);
	handles_init(&fs->handles);
	pool_init(&fs->pool);
	/* Before there are threads. */
	r = mount->fs.options->no_announce ? 0 : announce_new(mount->mountpoint, &fs->announce);
	if (r < 0)
		complain("announcing", r, NULL);
	if (r == 0)
		r = open_store(mount);
	if (r == 0)
		r = open_layout(mount);
	if (r == 0)
		r = check_place(mount);
	if (r == 0)
		r = open_session(mount);
	if (r == 0)
		r = serve(fs, mount->device);
	closed = close_all(mount);
	return r < 0 ? r : closed;
}

int changefs_mount(const struct options *options)
{
	struct mount mount = {.fs.options = options};
	int r = resolve_paths(&mount);

	if (r == 0) {
		warn_of_timeout("max_request_timeout");
		warn_of_timeout("default_request_timeout");
		r = daemon_start(&mount.fs.daemon, options->foreground);
		if (r < 0)
			complain("starting", r, NULL);
	}
	if (r == 0)
		r = run(&mount);
	free(mount.store_path);
	free(mount.mountpoint);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
