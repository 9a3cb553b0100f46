/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Paths of the command line, made absolute, and the mount that a killed daemon leaves behind.
 */
#include <stdbool.h>
#include <stdint.h>

/* Caller frees. The last component need not exist. 0 or a negative errno. */
int path_resolve(const char *path, char **ret_path);
/* True if `path` is `directory` or below it; both are resolved. */
bool path_is_below(const char *path, const char *directory);
/* If a changefs is mounted there that nobody serves any more, unmounts it lazily. 0, also if there
 * was none, or a negative errno. */
int mountpoint_clear(const char *mountpoint);
/* The device of the changefs that is mounted there; -1 if none is. Asks nobody who serves it. */
int64_t mountpoint_device(const char *mountpoint);
/* Unmounts it lazily if it is that device: after an abort it is dead, but still there. */
void mountpoint_leave(const char *mountpoint, int64_t device);
