/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The store's directory: who has it, and whether it is the one that it was. The file `lock` in it
 * says "PID OWNER\nINCARNATION\n" of the last process that opened the store for writing.
 */
#include "store/store.h"

/* Takes the lock, for reading only a shared one, and waits some seconds for it; makes the directory
 * if the options say so. -EBUSY with the owner in the error, -ENOENT, -ENOTEMPTY. */
int lock_take(const char *path, const struct store_options *options, int *ret_fd,
	      struct error *error);
/* The directory's device and inode, and the incarnation (16 bytes) that the lock file names; zeros
 * if it names none. */
int lock_place(int fd, const char *path, uint64_t *ret_dev, uint64_t *ret_ino,
	       char *ret_incarnation);
/* Writes who we are. */
int lock_mark(int fd, const char *owner, const char *incarnation);
void lock_release(int fd);

int random_bytes(char *p, size_t n);
/* The machine's boot id, or the one given. */
int boot_id_read(const char *given, char *p, size_t size);
