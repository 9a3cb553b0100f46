/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The newest refused operations, for ctl/errors: one line of JSON each, oldest first.
 */
#include "store/base.h"

#define ERRORS_MAX 256

struct errors;

struct errors *errors_new(void);
void errors_free(struct errors *errors); /* takes NULL */

struct errors_record {
	pid_t pid;
	uid_t uid;
	struct bytes path; /* inside the mount, such as /in/events */
	int code;	   /* a negative errno */
	const char *reason;
};

/* Notes one with the time of now; the oldest one goes. What there is no memory for is left out. */
void errors_add(struct errors *errors, const struct errors_record *record);
/* Appends the text of ctl/errors; a layout_host callback. */
int errors_render(void *context, struct buffer *ret_text);
