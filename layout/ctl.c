/* SPDX-License-Identifier: Apache-2.0 */
/* ctl/: texts that are rendered when their name is looked up, and settings that are written. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "layout/names.h"
#include "layout/tree.h"

#define VALUE_MAX (64 << 10)

int ctl_stat_text(struct layout *layout, const struct node *node, const struct content *content,
		  struct stat *st, struct error *error)
{
	struct store_stream stream;

	/* Not the time of the rendering: tar takes a new time for a change while it reads. */
	int rc = store_stream_stat(layout->store, 0, &stream);
	st->st_size = (off_t)node->text_size;
	st->st_mtim =
		time_of_ms(rc == 0 && stream.last_ms > layout->started_ms ? stream.last_ms
									  : layout->started_ms);
	return rc;
}

int node_take_json(struct node *node, json_t *object)
{
	char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
	_cleanup_(buffer_free) struct buffer b = {0};

	json_decref(object);
	if (!text)
		return -ENOMEM;
	int rc = buffer_printf(&b, "%s\n", text);
	free(text);
	if (rc == 0)
		node_take_text(node, &b);
	return rc;
}

/* ---- stats.json and errors ---- */

int ctl_render_stats(struct layout *layout, const struct node *parent, const char *name,
		     struct node *ret_node, struct error *error)
{
	static const char *const ends[] = {"new", "clean", "crash", "reboot"};
	const struct layout_options *o = &layout->options;
	struct layout_announcing announcing = {0};
	uint64_t open = 0, waiting = 0;
	struct store_stats s;

	int rc = store_stats_get(layout->store, &s);
	if (rc < 0)
		return rc;
	o->host.readers(o->host.context, &open, &waiting);
	o->host.announcing(o->host.context, &announcing);
	return node_take_json(
		ret_node,
		json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			  "s:{s:I, s:I}, s:{s:s, s:s*, s:I, s:I, s:I}}",
			  "version", o->version, "store", o->store_path, "identity", s.identity,
			  "created_ms", (json_int_t)s.created_ms, "started_ms",
			  (json_int_t)layout->started_ms, "last_end", ends[s.last_end],
			  "first_sequence", (json_int_t)s.first_sequence, "last_sequence",
			  (json_int_t)s.last_sequence, "log_bytes", (json_int_t)s.log_bytes,
			  "disk_bytes", (json_int_t)s.disk_bytes, "collections",
			  (json_int_t)store_collection_count(layout->store), "events",
			  (json_int_t)s.events, "commits", (json_int_t)s.commits, "syncs",
			  (json_int_t)s.syncs, "readers", "open", (json_int_t)open, "waiting",
			  (json_int_t)waiting, "announce", "state",
			  announcing.reason[0] ? "off" : "on", "reason",
			  announcing.reason[0] ? announcing.reason : NULL, "announced",
			  (json_int_t)announcing.announced, "skipped",
			  (json_int_t)announcing.skipped, "sequence",
			  (json_int_t)announcing.sequence));
}

int ctl_render_errors(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error)
{
	const struct layout_host *host = &layout->options.host;
	_cleanup_(buffer_free) struct buffer text = {0};

	int rc = host->errors(host->context, &text);
	if (rc == 0)
		node_take_text(ret_node, &text);
	return rc;
}

/* ---- files that take one JSON object ---- */

/* One whole value is applied by the write that completes it; it may come in pieces. */
struct value_file {
	struct file file;
	struct buffer pending;
};

static int apply_config(struct layout *layout, json_t *object, struct error *error);
static int apply_sources(struct layout *layout, json_t *object, struct error *error);

static int apply_value(struct file *file, json_t *value, struct error *error)
{
	if (!json_is_object(value))
		return error_set(error, -EINVAL, "the value is not a JSON object");
	switch (row_of(&file->node)) {
	case ROW_CTL_CONFIG:
		return apply_config(file->layout, value, error);
	case ROW_GROUP_CONFIG:
		return group_apply_config(file->layout, file->node.collection, value, error);
	default:
		return apply_sources(file->layout, value, error);
	}
}

/* 0: applied, or waiting for more. */
static int try_value(struct value_file *f, bool is_last, struct error *error)
{
	json_error_t fault;
	json_t *value = json_loadb(f->pending.p, f->pending.n, JSON_REJECT_DUPLICATES, &fault);
	int rc;

	if (value)
		rc = apply_value(&f->file, value, error);
	else if (!is_last && json_error_code(&fault) == json_error_premature_end_of_input)
		return 0;
	else
		rc = error_set(error, -EINVAL, "line %d, column %d: %s", fault.line, fault.column,
			       fault.text);
	json_decref(value);
	f->pending.n = 0;
	return rc;
}

static ssize_t value_write(struct file *file, const char *p, size_t size, uint64_t offset,
			   int flags, struct error *error)
{
	struct value_file *f = (struct value_file *)file;
	size_t blank = 0;

	while (!f->pending.n && blank < size && memchr(" \t\r\n", p[blank], 4))
		blank++;
	if (f->pending.n + size > VALUE_MAX) {
		f->pending.n = 0;
		return error_set(error, -EFBIG, "the value is longer than %d bytes", VALUE_MAX);
	}
	if (buffer_add(&f->pending, p + blank, size - blank) < 0)
		return -ENOMEM;
	int rc = f->pending.n ? try_value(f, false, error) : 0;
	return rc < 0 ? rc : (ssize_t)size;
}

static int value_close(struct file *file, struct error *error)
{
	struct value_file *f = (struct value_file *)file;

	int rc = f->pending.n ? try_value(f, true, error) : 0;
	buffer_free(&f->pending);
	return rc;
}

static ssize_t value_read(struct file *file, uint64_t offset, char *p, size_t size,
			  struct error *error)
{
	return file_of_text.read(file, offset, p, size, error);
}

const struct file_operations file_of_value = {
	.size = sizeof(struct value_file),
	.writable = true,
	.read = value_read,
	.write = value_write,
	.close = value_close,
};

/* ---- config.json ---- */

static const char *const snapshots_words[] = {"both", "before", "none", NULL};
static const char *const visibility_words[] = {"written", "durable", NULL};
static const char *const decode_error_words[] = {"fail", "dlq", NULL};

int ctl_render_config(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error)
{
	struct store_config c;

	store_config_get(layout->store, &c);
	return node_take_json(ret_node,
			      json_pack("{s:s, s:s, s:s, s:I}", "snapshots",
					snapshots_words[c.snapshots], "visibility",
					visibility_words[c.visibility], "on_decode_error",
					decode_error_words[c.on_decode_error], "max_document_bytes",
					(json_int_t)c.max_document_bytes));
}

int json_word(const char *const *words, const json_t *value)
{
	for (int i = 0; words[i]; i++)
		if (json_is_string(value) && strcmp(json_string_value(value), words[i]) == 0)
			return i;
	return -1;
}

static int set_field(struct store_config *c, const char *name, const json_t *value,
		     struct error *error)
{
	int n;

	if (strcmp(name, "snapshots") == 0) {
		n = json_word(snapshots_words, value);
		if (n < 0)
			return error_set(error, -EINVAL, "snapshots is one of both, before, none");
		c->snapshots = (enum store_snapshots)n;
	} else if (strcmp(name, "visibility") == 0) {
		n = json_word(visibility_words, value);
		if (n < 0)
			return error_set(error, -EINVAL, "visibility is one of written, durable");
		c->visibility = (enum store_visibility)n;
	} else if (strcmp(name, "on_decode_error") == 0) {
		n = json_word(decode_error_words, value);
		if (n < 0)
			return error_set(error, -EINVAL, "on_decode_error is one of fail, dlq");
		c->on_decode_error = (enum store_on_decode_error)n;
	} else if (strcmp(name, "max_document_bytes") == 0) {
		if (!json_is_integer(value) || json_integer_value(value) < 1)
			return error_set(error, -EINVAL,
					 "max_document_bytes is a number of bytes above 0");
		c->max_document_bytes = (uint64_t)json_integer_value(value);
	} else {
		return error_set(error, -EINVAL, "there is no setting %s", name);
	}
	return 0;
}

static int change_config(void *context, struct store_config *config, struct error *error)
{
	const char *name;
	json_t *value;
	int rc = 0;

	json_object_foreach((json_t *)context, name, value)
	{
		rc = set_field(config, name, value, error);
		if (rc < 0)
			break;
	}
	return rc;
}

static int apply_config(struct layout *layout, json_t *object, struct error *error)
{
	return store_config_change(layout->store, change_config, object, error);
}

/* ---- sources.json ---- */

static int add_source(void *context, const struct store_source *source)
{
	char lsn[40];

	snprintf(lsn, sizeof(lsn), "%llX/%llX", (unsigned long long)(source->position >> 32),
		 (unsigned long long)(source->position & 0xffffffff));
	json_t *entry =
		json_pack("{s:I, s:s, s:I, s:I, s:I}", "position", (json_int_t)source->position,
			  "lsn", lsn, "time_ms", (json_int_t)(source->time_us / 1000), "events",
			  (json_int_t)source->events, "skipped", (json_int_t)source->skipped);
	return json_object_set_new(context, source->name.p, entry) < 0 ? -ENOMEM : 0;
}

int ctl_render_sources(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error)
{
	json_t *object = json_object();

	int rc = object ? store_source_each(layout->store, add_source, object) : -ENOMEM;
	if (rc < 0) {
		json_decref(object);
		return rc;
	}
	return node_take_json(ret_node, object);
}

static int apply_sources(struct layout *layout, json_t *object, struct error *error)
{
	struct bytes *names = calloc(json_object_size(object) + 1, sizeof(*names));
	size_t count = 0;
	const char *name;
	json_t *value;
	int rc = names ? 0 : -ENOMEM;

	json_object_foreach(object, name, value)
	{
		if (rc == 0 && !json_is_null(value))
			rc = error_set(error, -EINVAL,
				       "%s: only null, to forget a source, can be written", name);
		if (rc == 0)
			names[count++] = bytes_of(name);
	}
	if (rc == 0)
		rc = store_sources_forget(layout->store, names, count, error);
	free(names);
	return rc == -ENOENT ? -EINVAL : rc; /* the file is there, the value is wrong */
}

/* ---- trim ---- */

/* A write is one whole value. */
static ssize_t trim_write(struct file *file, const char *p, size_t size, uint64_t offset, int flags,
			  struct error *error)
{
	static const char blank[] = " \t\r\n";
	char text[32];
	uint64_t sequence;
	size_t n = size;

	while (n && memchr(blank, p[n - 1], strlen(blank)))
		n--;
	if (n >= sizeof(text) || memchr(p, 0, n))
		n = 0;
	memcpy(text, p, n);
	text[n] = 0;
	if (name_sequence_read(text, "", &sequence) < 0)
		return error_set(error, -EINVAL, "a sequence is expected: a number from 1 on");
	int rc = store_floor_set(file->layout->store, sequence, "trim", error);
	return rc < 0 ? rc : (ssize_t)size;
}

const struct file_operations file_of_trim = {
	.size = sizeof(struct file),
	.writable = true,
	.write = trim_write,
};
