/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The command line.
 */
#include "store/base.h"

enum options_command { OPTIONS_MOUNT, OPTIONS_CHECK };

struct options {
	enum options_command command;
	const char *store;	/* as given */
	const char *mountpoint; /* as given */
	bool foreground;
	bool read_only;
	bool sync;	 /* every write is one with O_SYNC */
	bool no_streams; /* listings leave the links to endless files out */
	bool allow_other;
	bool allow_root;
	bool no_announce;
	uid_t uid;
	gid_t gid;
	mode_t umask;
	struct buffer kernel; /* what goes on to the kernel, each with a comma in front */
};

/* Reads the command line and prints what is wrong with it, or what was asked for (--help). -1: go
 * on; else the exit status. The options borrow from argv; options_free() in any case. */
int options_parse(int argc, char **argv, struct options *ret_options);
void options_free(struct options *options);
