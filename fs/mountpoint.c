/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/mountpoint.h"
#include "store/base.h"

#define OUR_TYPE "fuse.changefs"

static void free_text(char **text)
{
	free(*text);
}

/* The parent resolved, and the name as it is: for what is missing. */
static int resolve_parent(char *path, char **ret_path)
{
	_cleanup_(free_text) char *parent = NULL;
	char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -ENOENT;
	if (slash)
		*slash = '\0';
	parent = realpath(!slash ? "." : *path ? path : "/", NULL);
	if (!parent)
		return -errno;
	if (asprintf(ret_path, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) < 0)
		return -ENOMEM;
	return 0;
}

int path_resolve(const char *path, char **ret_path)
{
	_cleanup_(free_text) char *copy = strdup(path);
	size_t n = copy ? strlen(copy) : 0;

	if (!copy)
		return -ENOMEM;
	/* With a slash at its end a dead mount is looked into, and cannot be resolved. */
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	*ret_path = realpath(copy, NULL);
	if (*ret_path)
		return 0;
	return errno == ENOENT ? resolve_parent(copy, ret_path) : -errno;
}

bool path_is_below(const char *path, const char *directory)
{
	size_t n = strlen(directory);

	if (strcmp(directory, "/") == 0)
		return true;
	return strncmp(path, directory, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Undoes mountinfo's \040 for blanks and its like, in place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *p = text; *p; p++) {
		unsigned c;

		if (*p == '\\' && sscanf(p + 1, "%3o", &c) == 1 && strspn(p + 1, "01234567") >= 3) {
			*to++ = (char)c;
			p += 3;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
}

/* If a line of mountinfo is about this place: sets the device, -1 if the type is not ours. */
static void scan_line(char *line, const char *mountpoint, int64_t *ret_device)
{
	char *type = strstr(line, " - "), *place = NULL, *fields[5];
	unsigned major, minor;

	if (!type)
		return;
	*type = '\0';
	type += strlen(" - ");
	/* The third field is the device, the fifth the mount point. */
	for (int i = 0; i < 5; i++) {
		fields[i] = strtok_r(i == 0 ? line : NULL, " ", &place);
		if (!fields[i])
			return;
	}
	unescape(fields[4]);
	if (strcmp(fields[4], mountpoint) != 0)
		return;
	*ret_device = -1;
	if (strncmp(type, OUR_TYPE " ", strlen(OUR_TYPE " ")) == 0 &&
	    sscanf(fields[2], "%u:%u", &major, &minor) == 2)
		*ret_device = (int64_t)makedev(major, minor);
}

int64_t mountpoint_device(const char *mountpoint)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	int64_t device = -1;
	char *line = NULL;
	size_t size = 0;

	if (!file)
		return -1;
	/* If several are mounted there, the last line is about the topmost. */
	while (getline(&line, &size, file) > 0)
		scan_line(line, mountpoint, &device);
	free(line);
	fclose(file);
	return device;
}

/* Unmounting as an ordinary user is the setuid helper's work. */
static int run_fusermount(const char *mountpoint)
{
	const char *const argv[] = {"fusermount3", "-u", "-z", "--", mountpoint, NULL};
	pid_t child;
	int status;
	int r = posix_spawnp(&child, argv[0], NULL, NULL, (char *const *)argv, environ);

	if (r != 0)
		return -r;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

static int unmount(const char *mountpoint)
{
	if (umount2(mountpoint, MNT_DETACH) == 0)
		return 0;
	return geteuid() == 0 ? -errno : run_fusermount(mountpoint);
}

int mountpoint_clear(const char *mountpoint)
{
	struct statfs st;
	int r;

	/* Not stat(2): for a second after the daemon's death the kernel still knows the answer.
	 * Aborted is what was asked while it died. */
	do
		r = statfs(mountpoint, &st);
	while (r < 0 && errno == ECONNABORTED);
	if (r == 0 || errno != ENOTCONN || mountpoint_device(mountpoint) < 0)
		return 0;
	return unmount(mountpoint);
}

void mountpoint_leave(const char *mountpoint, int64_t device)
{
	if (device >= 0 && mountpoint_device(mountpoint) == device)
		unmount(mountpoint);
}
