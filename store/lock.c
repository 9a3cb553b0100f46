/* SPDX-License-Identifier: Apache-2.0 */
#include "store/lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define INCARNATION_SIZE 16
#define LOCK_WAIT_S	 3

static int cannot(struct error *error, const char *what, const char *path)
{
	int code = -errno;

	return error_set(error, code, "%s cannot %s: %s", path, what, strerror(-code));
}

static bool has_entry(const char *path, const char *name)
{
	_cleanup_(buffer_free) struct buffer full = {0};

	return buffer_printf(&full, "%s/%s", path, name) == 0 && access(full.p, F_OK) == 0;
}

static int check_empty(const char *path, struct error *error)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int rc = 0;

	if (!d)
		return cannot(error, "be read", path);
	while (rc == 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    strcmp(e->d_name, "lock") != 0 && strcmp(e->d_name, "lost+found") != 0)
			rc = error_set(error, -ENOTEMPTY,
				       "%s is neither empty nor a store: it holds %s", path,
				       e->d_name);
	closedir(d);
	return rc;
}

static int make_directory(const char *path, const struct store_options *options,
			  struct error *error)
{
	if (has_entry(path, "db/CURRENT"))
		return 0;
	if (errno != ENOENT && errno != ENOTDIR)
		return cannot(error, "be read", path);
	if (!options->create)
		return error_set(error, -ENOENT, "%s holds no store", path);
	if (mkdir(path, 0700) == 0)
		return 0;
	if (errno != EEXIST)
		return cannot(error, "be made", path);
	/* A database without CURRENT was being made when its maker was killed. */
	return has_entry(path, "db") && has_entry(path, "lock") ? 0 : check_empty(path, error);
}

static int tell_owner(int fd, const char *path, struct error *error)
{
	char text[512] = "";
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	char *end = n > 0 ? strchr(text, '\n') : NULL;

	if (!end)
		return error_set(error, -EBUSY, "%s is in use by another process", path);
	*end = 0;
	char *owner = strchr(text, ' ');
	if (owner)
		*owner++ = 0;
	return error_set(error, -EBUSY, "%s is in use by process %s%s%s", path, text,
			 owner && *owner ? ", mounted on " : "", owner ? owner : "");
}

/* umount(8) returns before the daemon has ended: who comes right behind it waits for that. */
static int wait_for_lock(int fd, int kind)
{
	const struct timespec pause = {.tv_nsec = 50000000};

	for (int tries = LOCK_WAIT_S * 20; flock(fd, kind | LOCK_NB) < 0; tries--) {
		if (errno != EWOULDBLOCK || tries == 0)
			return -errno;
		nanosleep(&pause, NULL);
	}
	return 0;
}

int lock_take(const char *path, const struct store_options *options, int *ret_fd,
	      struct error *error)
{
	_cleanup_(buffer_free) struct buffer name = {0};

	int rc = make_directory(path, options, error);
	if (rc < 0)
		return rc;
	if (buffer_printf(&name, "%s/lock", path) < 0)
		return -ENOMEM;
	int access = options->read_only ? O_RDONLY : O_RDWR | O_CREAT;
	int fd = open(name.p, access | O_CLOEXEC, 0600);
	if (fd < 0)
		return cannot(error, "be opened", name.p);
	rc = wait_for_lock(fd, options->read_only ? LOCK_SH : LOCK_EX);
	if (rc < 0) {
		rc = rc == -EWOULDBLOCK ? tell_owner(fd, path, error) : rc;
		close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

int lock_place(int fd, const char *path, uint64_t *ret_dev, uint64_t *ret_ino,
	       char *ret_incarnation)
{
	char text[1024] = "";
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	*ret_dev = st.st_dev;
	*ret_ino = st.st_ino;
	memset(ret_incarnation, 0, INCARNATION_SIZE);
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	const char *p = n > 0 ? strchr(text, '\n') : NULL;
	if (!p || strlen(p) < 1 + 2 * INCARNATION_SIZE)
		return 0;
	for (int i = 0; i < INCARNATION_SIZE; i++) {
		char digits[3] = {p[1 + 2 * i], p[2 + 2 * i], 0};
		ret_incarnation[i] = (char)strtoul(digits, NULL, 16);
	}
	return 0;
}

int lock_mark(int fd, const char *owner, const char *incarnation)
{
	_cleanup_(buffer_free) struct buffer text = {0};

	int rc = buffer_printf(&text, "%ld %.400s", (long)getpid(), owner ? owner : "");
	for (size_t i = 0; i < text.n; i++) /* one line, whatever the path is */
		if ((unsigned char)text.p[i] < 0x20)
			text.p[i] = '?';
	if (rc == 0)
		rc = buffer_add(&text, "\n", 1);
	for (int i = 0; i < INCARNATION_SIZE && rc == 0; i++)
		rc = buffer_printf(&text, "%02x", (unsigned char)incarnation[i]);
	if (rc == 0)
		rc = buffer_add(&text, "\n", 1);
	if (rc < 0)
		return rc;
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text.p, text.n, 0) != (ssize_t)text.n ||
	    fsync(fd) < 0)
		return errno ? -errno : -EIO;
	return 0;
}

void lock_release(int fd)
{
	close(fd);
}

int random_bytes(char *p, size_t n)
{
	return getrandom(p, n, 0) == (ssize_t)n ? 0 : -EIO;
}

int boot_id_read(const char *given, char *p, size_t size)
{
	FILE *f = given ? NULL : fopen("/proc/sys/kernel/random/boot_id", "re");
	int rc = 0;

	if (given)
		snprintf(p, size, "%s", given);
	else if (!f || !fgets(p, (int)size, f))
		rc = -EIO;
	else
		p[strcspn(p, "\n")] = 0;
	if (f)
		fclose(f);
	return rc;
}
