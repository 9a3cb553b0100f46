/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/announcer.h"

#define FIRST_FD 3 /* behind the standard ones */
#define NAME	 "changefs-tell"

/* ---- in the announcer ---- */

/* Opens nothing outside of the mount whose root or directory `at` is. */
static int open_below(int at, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.mode = flags & O_CREAT ? 0600 : 0,
		.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
	};
	long fd = syscall(SYS_openat2, at, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static int result_of(int rc)
{
	return rc < 0 ? -errno : 0;
}

static int open_and_close(int at, const char *name, uint64_t flags, bool write)
{
	int fd = open_below(at, name, flags);
	int r;

	if (fd < 0)
		return fd;
	r = write ? result_of((int)pwrite(fd, "", 1, 0)) : 0;
	close(fd);
	return r;
}

static int act(int directory, const struct announcer_action *action)
{
	struct stat st;

	switch (action->kind) {
	case ANNOUNCER_HELLO:
		fstatat(directory, action->name, &st, AT_SYMLINK_NOFOLLOW);
		return 0;
	case ANNOUNCER_CREATE:
		return open_and_close(directory, action->name, O_CREAT | O_WRONLY, false);
	case ANNOUNCER_MKDIR:
		return result_of(mkdirat(directory, action->name, 0700));
	case ANNOUNCER_MODIFY:
		return open_and_close(directory, action->name, O_WRONLY, true);
	case ANNOUNCER_REMOVE:
		return result_of(unlinkat(directory, action->name, 0));
	}
	return -EINVAL;
}

static void act_all(struct announcer_batch *batch, int root)
{
	const char *path = NULL;
	int directory = -1;

	for (size_t i = 0; i < batch->count; i++) {
		struct announcer_action *action = &batch->actions[i];

		if (!path || strcmp(path, action->path) != 0) {
			if (directory >= 0)
				close(directory);
			path = action->path;
			directory = open_below(root, path, O_PATH | O_DIRECTORY);
		}
		atomic_store(&batch->current, (int)i);
		action->result = directory < 0 ? directory : act(directory, action);
		atomic_store(&batch->current, ANNOUNCER_NONE);
	}
	if (directory >= 0)
		close(directory);
}

/*
 * The root of our own mount and of no other; what is cached will do, since another file system's
 * may not answer. Root takes a copy of the mount that nobody else sees and that ends when it is
 * closed: then the mount itself is not busy and can be unmounted at any time.
 */
static int open_root(const char *mountpoint, int64_t device)
{
	int root = open_tree(AT_FDCWD, mountpoint,
			     OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
	struct statx st;

	if (root < 0)
		root = open(mountpoint, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (root < 0)
		return -errno;
	if (statx(root, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) == 0 &&
	    (int64_t)makedev(st.stx_dev_major, st.stx_dev_minor) == device)
		return root;
	close(root);
	return -EXDEV;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void serve(struct announcer_batch *batch, int fd, const char *mountpoint)
{
	char byte;

	while (read(fd, &byte, 1) == 1) {
		int64_t start = now_ns();
		int root = open_root(mountpoint, batch->device);

		batch->result = root < 0 ? root : 0;
		if (root >= 0) {
			act_all(batch, root);
			close(root);
		}
		batch->elapsed_ns = now_ns() - start;
		if (write(fd, "", 1) != 1)
			break;
	}
}

/* Who looks for the daemon by its arguments is to find one process: the arguments' place, which
 * begins with the program's name, is written over. */
static void take_name(void)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	char piece[4096];
	size_t size = 0;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, piece, sizeof(piece))) > 0)
		size += (size_t)n;
	if (fd >= 0)
		close(fd);
	if (size > sizeof(NAME)) {
		memset(program_invocation_name, 0, size);
		memcpy(program_invocation_name, NAME, sizeof(NAME));
	}
	prctl(PR_SET_NAME, NAME);
}

/* Keeps nothing of the daemon's: neither its descriptors, which may be somebody's pipes, nor a
 * directory. Signals that end the daemon are blocked here; the daemon's end is ours. */
static void be_announcer(struct announcer_batch *batch, int fd, const char *mountpoint)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	take_name();
	for (int i = 0; i < FIRST_FD; i++)
		dup2(null, i);
	if (fd != FIRST_FD)
		dup2(fd, FIRST_FD);
	close_range(FIRST_FD + 1, ~0u, 0);
	if (null >= 0 && chdir("/") == 0)
		serve(batch, FIRST_FD, mountpoint);
	_exit(EXIT_SUCCESS);
}

/* ---- in the daemon ---- */

int announcer_start(struct announcer *announcer, const char *mountpoint)
{
	int fds[2], r;

	*announcer = (struct announcer){.fd = -1};
	announcer->batch = mmap(NULL, sizeof(*announcer->batch), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (announcer->batch == MAP_FAILED) {
		announcer->batch = NULL;
		return -errno;
	}
	atomic_store(&announcer->batch->current, ANNOUNCER_NONE);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	announcer->fd = fds[0];
	announcer->pid = fork();
	r = result_of(announcer->pid);
	if (announcer->pid == 0)
		be_announcer(announcer->batch, fds[1], mountpoint);
	close(fds[1]);
	return r;
}

int announcer_run(struct announcer *announcer)
{
	char byte;
	ssize_t n;

	if (send(announcer->fd, "", 1, MSG_NOSIGNAL) != 1)
		return -EPIPE;
	do
		n = read(announcer->fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : -EPIPE;
}

void announcer_interrupt(struct announcer *announcer)
{
	shutdown(announcer->fd, SHUT_RDWR);
}

void announcer_end(struct announcer *announcer)
{
	if (announcer->fd >= 0)
		close(announcer->fd);
	if (announcer->pid > 0) {
		kill(announcer->pid, SIGKILL);
		while (waitpid(announcer->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (announcer->batch)
		munmap(announcer->batch, sizeof(*announcer->batch));
}
