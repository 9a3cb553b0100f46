/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "fs/errors.h"

struct errors {
	pthread_mutex_t lock;
	struct buffer lines[ERRORS_MAX]; /* a ring of rendered lines */
	size_t next;			 /* the oldest one, which the next replaces */
};

struct errors *errors_new(void)
{
	struct errors *errors = calloc(1, sizeof(*errors));

	if (errors)
		pthread_mutex_init(&errors->lock, NULL);
	return errors;
}

void errors_free(struct errors *errors)
{
	if (!errors)
		return;
	for (size_t i = 0; i < ERRORS_MAX; i++)
		buffer_free(&errors->lines[i]);
	pthread_mutex_destroy(&errors->lock);
	free(errors);
}

static int add_time(struct buffer *line)
{
	int64_t now = clock_wall_ms();
	time_t seconds = (time_t)(now / 1000);
	char text[32];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	return buffer_printf(line, "{\"time\":\"%s.%03dZ\"", text, (int)(now % 1000));
}

/* A string from outside: names and lines need not be UTF-8, JSON has to be. */
static int add_text(struct buffer *line, struct bytes text)
{
	struct buffer ascii = {0};
	int r;

	if (bytes_are_utf8(text))
		return buffer_add_json_string(line, text);
	r = buffer_add_bytes(&ascii, text);
	for (size_t i = 0; r == 0 && i < ascii.n; i++)
		if (ascii.p[i] & 0x80)
			ascii.p[i] = '?';
	if (r == 0)
		r = buffer_add_json_string(line, buffer_bytes(&ascii));
	buffer_free(&ascii);
	return r;
}

static int add_errno(struct buffer *line, int code)
{
	const char *name = strerrorname_np(-code);

	if (name)
		return buffer_printf(line, ",\"errno\":\"%s\"", name);
	return buffer_printf(line, ",\"errno\":\"%d\"", -code);
}

static int render_record(struct buffer *line, const struct errors_record *record)
{
	int r = add_time(line);

	if (r == 0)
		r = buffer_printf(line, ",\"pid\":%d,\"uid\":%u,\"path\":", record->pid,
				  record->uid);
	if (r == 0)
		r = add_text(line, record->path);
	if (r == 0)
		r = add_errno(line, record->code);
	if (r == 0)
		r = buffer_add(line, ",\"reason\":", strlen(",\"reason\":"));
	if (r == 0)
		r = add_text(line, bytes_of(record->reason));
	if (r == 0)
		r = buffer_add(line, "}\n", 2);
	return r;
}

void errors_add(struct errors *errors, const struct errors_record *record)
{
	struct buffer line = {0}, oldest;

	if (render_record(&line, record) < 0) {
		buffer_free(&line);
		return;
	}
	pthread_mutex_lock(&errors->lock);
	oldest = errors->lines[errors->next];
	errors->lines[errors->next] = line;
	errors->next = (errors->next + 1) % ERRORS_MAX;
	pthread_mutex_unlock(&errors->lock);
	buffer_free(&oldest);
}

int errors_render(void *context, struct buffer *ret_text)
{
	struct errors *errors = context;
	int r = 0;

	pthread_mutex_lock(&errors->lock);
	for (size_t i = 0; r == 0 && i < ERRORS_MAX; i++)
		r = buffer_add_bytes(ret_text,
				     buffer_bytes(&errors->lines[(errors->next + i) % ERRORS_MAX]));
	pthread_mutex_unlock(&errors->lock);
	return r;
}
