/* SPDX-License-Identifier: Apache-2.0 */
/* data/: open documents and scratch files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "layout/data.h"
#include "layout/formats/json.h"

/* ---- recording ---- */

int data_commit_put(struct layout *layout, struct store_batch *batch, uint32_t collection,
		    struct bytes key, bool sync, struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	struct departure *away;

	pthread_mutex_lock(&drafts->lock);
	while ((away = drafts_departure(drafts, collection, key)) && away->busy)
		pthread_cond_wait(&drafts->left, &drafts->lock);
	if (away)
		away->busy = true; /* should this fail, it leaves all the same */
	pthread_mutex_unlock(&drafts->lock);
	int rc = store_commit(layout->store, batch, sync, NULL, error);
	pthread_mutex_lock(&drafts->lock);
	if (rc == 0)
		drafts_drop_new(drafts, collection, key);
	if (away)
		drafts_leave(drafts, away, rc == 0);
	pthread_mutex_unlock(&drafts->lock);
	return rc;
}

int data_put(struct layout *layout, uint32_t collection, struct bytes key, struct bytes text,
	     int64_t timestamp_ms, bool sync, struct error *error)
{
	const struct store_event event = {.key = key, .value = text, .timestamp_ms = timestamp_ms};
	struct store_batch *batch = store_batch_new(layout->store);

	int rc = batch ? json_check(text, error) : -ENOMEM;
	if (rc == 0)
		rc = data_add_event(layout, batch, collection, event, error);
	if (rc == 0)
		rc = data_commit_put(layout, batch, collection, key, sync, error);
	store_batch_free(batch);
	return rc;
}

/* What is recorded of a draft, copied while nobody writes it. */
struct version {
	uint32_t collection;
	struct buffer key, text;
	int64_t timestamp_ms;
};

static int take_version(const struct draft *draft, struct version *ret_version)
{
	ret_version->collection = draft->collection;
	ret_version->timestamp_ms = draft_event_ms(draft);
	return buffer_add_bytes(&ret_version->key, buffer_bytes(&draft->key)) < 0 ||
			       buffer_add_bytes(&ret_version->text, buffer_bytes(&draft->bytes)) < 0
		       ? -ENOMEM
		       : 0;
}

int data_record(struct layout *layout, struct draft *draft, bool sync, struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	struct version version = {0};
	int rc = 0;

	pthread_mutex_lock(&drafts->lock);
	bool needed = draft->is_document && draft->dirty;
	draft->flushed = draft->dirty && !needed;
	if (needed && draft->refused)
		rc = draft_refused(draft, error);
	if (needed)
		draft->dirty = false;
	if (needed && rc == 0)
		rc = take_version(draft, &version);
	pthread_mutex_unlock(&drafts->lock);
	if (needed && rc == 0)
		rc = data_put(layout, version.collection, buffer_bytes(&version.key),
			      buffer_bytes(&version.text), version.timestamp_ms, sync, error);
	pthread_mutex_lock(&drafts->lock);
	draft->recorded |= needed && rc == 0;
	/* Not the text's fault: the next flush tries again. */
	draft->dirty |= needed && rc < 0 && rc != -EINVAL && rc != -EFBIG;
	pthread_mutex_unlock(&drafts->lock);
	buffer_free(&version.key);
	buffer_free(&version.text);
	return rc;
}

/* ---- open files ---- */

struct document_file {
	struct file file;
	struct content *content; /* what readers of the node share */
	struct draft *draft;	 /* of a writer, and of who reads a writer's own file */
	bool appends;
	bool syncs;   /* what is flushed is to survive a power cut */
	bool emptied; /* by open(2) */
};

static int load(struct file *file, struct content **ret_content, struct error *error)
{
	struct content *content = calloc(1, sizeof(*content));
	struct store_document document = {0};

	if (!content)
		return -ENOMEM;
	int rc = data_get(file->layout, file->node.collection, node_text(&file->node), &document,
			  &content->bytes, error);
	if (rc < 0) {
		content_free(content);
		return rc;
	}
	content->time = time_of_ms(document.timestamp_ms);
	*ret_content = content;
	return 0;
}

/* A writer's own text, which begins as the document's or empty. */
static int begin_draft(struct document_file *f, struct error *error)
{
	struct layout *layout = f->file.layout;
	struct store_document document = {0};
	struct buffer text = {0};
	struct draft *draft = NULL;

	int rc = data_get(layout, f->file.node.collection, node_text(&f->file.node), &document,
			  f->emptied ? NULL : &text, error);
	if (rc == 0)
		rc = draft_new(&layout->drafts, f->file.node.collection, false, &draft, error);
	if (rc == 0) {
		pthread_mutex_lock(&layout->drafts.lock);
		draft_start(draft, &text);
		rc = draft_set_key(draft, node_text(&f->file.node));
		pthread_mutex_unlock(&layout->drafts.lock);
	}
	buffer_free(&text);
	f->draft = draft;
	return rc;
}

static int empty_draft(struct layout *layout, struct draft *draft, struct error *error)
{
	pthread_mutex_lock(&layout->drafts.lock);
	bool dirty = draft->dirty;
	int rc = draft_resize(draft, 0, UINT64_MAX, error);
	draft->dirty = dirty; /* the text that follows makes it so */
	pthread_mutex_unlock(&layout->drafts.lock);
	return rc;
}

static int share_draft(struct document_file *f, struct content **shared)
{
	if (!*shared)
		*shared = calloc(1, sizeof(**shared));
	if (!*shared)
		return -ENOMEM;
	if ((*shared)->draft || (*shared)->bytes.p)
		return 0;
	pthread_mutex_lock(&f->file.layout->drafts.lock);
	(*shared)->draft = f->draft;
	draft_ref(f->draft);
	pthread_mutex_unlock(&f->file.layout->drafts.lock);
	return 0;
}

static int document_open(struct file *file, struct content **shared, struct error *error)
{
	struct document_file *f = (struct document_file *)file;
	struct content *content = *shared;
	int rc = 0;

	f->appends = file->flags & O_APPEND;
	f->emptied = file->flags & O_TRUNC;
	if (content && content->draft) {
		pthread_mutex_lock(&file->layout->drafts.lock);
		f->draft = content->draft;
		draft_ref(f->draft);
		pthread_mutex_unlock(&file->layout->drafts.lock);
		if (f->emptied)
			rc = empty_draft(file->layout, f->draft, error);
	} else if (file->writable) {
		rc = begin_draft(f, error);
		if (rc == 0)
			rc = share_draft(f, shared);
	} else if (!content) {
		rc = load(file, shared, error);
	}
	f->content = *shared;
	if (rc < 0)
		draft_unref(f->draft);
	return rc;
}

/* The slot keeps the content until the node's last handle has closed. */
static ssize_t document_read(struct file *file, uint64_t offset, char *p, size_t size,
			     struct error *error)
{
	struct document_file *f = (struct document_file *)file;
	ssize_t n;

	if (!f->draft)
		return read_bytes(buffer_bytes(&f->content->bytes), offset, p, size);
	pthread_mutex_lock(&file->layout->drafts.lock);
	n = read_bytes(buffer_bytes(&f->draft->bytes), offset, p, size);
	pthread_mutex_unlock(&file->layout->drafts.lock);
	return n;
}

static uint64_t limit_of(const struct file *file)
{
	struct store_config config;

	store_config_get(file->layout->store, &config);
	return config.max_document_bytes;
}

static ssize_t document_write(struct file *file, const char *p, size_t size, uint64_t offset,
			      int flags, struct error *error)
{
	struct document_file *f = (struct document_file *)file;
	uint64_t limit = limit_of(file);

	pthread_mutex_lock(&file->layout->drafts.lock);
	int rc = draft_write(f->draft, (struct bytes){p, size}, f->appends ? UINT64_MAX : offset,
			     limit, error);
	pthread_mutex_unlock(&file->layout->drafts.lock);
	f->syncs |= flags & O_DSYNC;
	return rc < 0 ? rc : (ssize_t)size;
}

static int document_truncate(struct file *file, uint64_t size, struct error *error)
{
	struct document_file *f = (struct document_file *)file;
	uint64_t limit = limit_of(file);
	int rc = 0;

	pthread_mutex_lock(&file->layout->drafts.lock);
	if (size != f->draft->bytes.n)
		rc = draft_resize(f->draft, size, limit, error);
	pthread_mutex_unlock(&file->layout->drafts.lock);
	return rc;
}

static int document_flush(struct file *file, struct error *error)
{
	struct document_file *f = (struct document_file *)file;

	return file->writable ? data_record(file->layout, f->draft, f->syncs, error) : 0;
}

static int document_sync(struct file *file, struct error *error)
{
	int rc = document_flush(file, error);

	return rc < 0 ? rc : store_sync(file->layout->store, error);
}

/* What a writer leaves behind that recorded nothing. */
static int end_writing(struct document_file *f, struct error *error)
{
	struct layout *layout = f->file.layout;
	struct draft *draft = f->draft;
	bool is_new, failed;

	pthread_mutex_lock(&layout->drafts.lock);
	struct bytes key = buffer_bytes(&draft->key);
	failed = draft->is_document && draft->written && !draft->recorded;
	is_new = drafts_has_new(&layout->drafts, draft->collection, key);
	if (failed && draft->references == 2 && /* the content's, and ours */
	    drafts_count_writers(&layout->drafts, draft->collection, key) == 1)
		drafts_drop_new(&layout->drafts, draft->collection, key);
	pthread_mutex_unlock(&layout->drafts.lock);
	if (f->emptied && !draft->written && !is_new)
		return error_set(error, -EINVAL,
				 "an empty file is no JSON: the document stays as it was");
	return 0;
}

static int document_close(struct file *file, struct error *error)
{
	struct document_file *f = (struct document_file *)file;
	int rc = file->writable ? end_writing(f, error) : 0;

	draft_unref(f->draft);
	return rc;
}

const struct file_operations file_of_document = {
	.size = sizeof(struct document_file),
	.writable = true,
	.open = document_open,
	.read = document_read,
	.write = document_write,
	.truncate = document_truncate,
	.flush = document_flush,
	.sync = document_sync,
	.close = document_close,
};

/* ---- scratch files ---- */

static int scratch_open(struct file *file, struct content **shared, struct error *error)
{
	struct document_file *f = (struct document_file *)file;
	struct drafts *drafts = &file->layout->drafts;
	int rc = 0;

	f->appends = file->flags & O_APPEND;
	pthread_mutex_lock(&drafts->lock);
	f->draft = drafts_find_id(drafts, file->node.number);
	if (f->draft)
		draft_ref(f->draft);
	pthread_mutex_unlock(&drafts->lock);
	if (!f->draft)
		return -ENOENT;
	if (file->flags & O_TRUNC)
		rc = empty_draft(file->layout, f->draft, error);
	if (rc < 0)
		draft_unref(f->draft);
	return rc;
}

static int scratch_close(struct file *file, struct error *error)
{
	draft_unref(((struct document_file *)file)->draft);
	return 0;
}

const struct file_operations file_of_scratch = {
	.size = sizeof(struct document_file),
	.writable = true,
	.open = scratch_open,
	.read = document_read,
	.write = document_write,
	.truncate = document_truncate,
	.flush = document_flush,
	.sync = document_sync,
	.close = scratch_close,
};

/* ---- attributes ---- */

static void set_time(struct draft *draft, const struct stat *attributes)
{
	draft->time = attributes->st_mtim;
	draft->time_set = true;
}

/* truncate(2) by name: as an open, a change of size and a close. */
static int truncate_document(struct layout *layout, const struct node *node, uint64_t size,
			     struct error *error)
{
	struct content *shared = NULL;
	struct error ignored;
	struct file *file;

	int rc = layout_file_open(layout, node, O_WRONLY, (struct layout_caller){0}, &shared, &file,
				  error);
	if (rc < 0)
		return rc;
	rc = layout_file_truncate(file, size, error);
	if (rc == 0)
		rc = layout_file_flush(file, error);
	layout_file_close(file, &ignored);
	content_free(shared);
	return rc;
}

/* Who and when are the event's; changing them succeeds and means nothing, as cp -p and rsync -a
 * expect. What a writer sets before it closes is the event's time. */
int data_set_document(struct layout *layout, const struct node *node, struct content *content,
		      const struct stat *attributes, unsigned to_set, struct error *error)
{
	if (to_set & LAYOUT_SET_SIZE)
		return truncate_document(layout, node, (uint64_t)attributes->st_size, error);
	if (content && content->draft && to_set & LAYOUT_SET_TIMES) {
		pthread_mutex_lock(&layout->drafts.lock);
		set_time(content->draft, attributes);
		pthread_mutex_unlock(&layout->drafts.lock);
	}
	return 0;
}

int data_set_scratch(struct layout *layout, const struct node *node, struct content *content,
		     const struct stat *attributes, unsigned to_set, struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	int rc = 0;

	pthread_mutex_lock(&drafts->lock);
	struct draft *draft = drafts_find_id(drafts, node->number);
	if (!draft)
		rc = -ENOENT;
	if (rc == 0 && to_set & LAYOUT_SET_SIZE)
		rc = draft_resize(draft, (uint64_t)attributes->st_size, UINT64_MAX, error);
	if (rc == 0 && to_set & LAYOUT_SET_TIMES)
		set_time(draft, attributes);
	if (rc == 0 && to_set & LAYOUT_SET_MODE)
		draft->mode = S_IFREG | (attributes->st_mode & 07777);
	if (rc == 0 && to_set & (LAYOUT_SET_UID | LAYOUT_SET_GID)) {
		draft->uid = attributes->st_uid;
		draft->gid = attributes->st_gid;
	}
	pthread_mutex_unlock(&drafts->lock);
	return rc;
}

int data_scratch_name(struct layout *layout, const struct node *node, struct buffer *ret_name)
{
	struct drafts *drafts = &layout->drafts;

	pthread_mutex_lock(&drafts->lock);
	const struct draft *draft = drafts_find_id(drafts, node->number);
	int rc = buffer_add_bytes(ret_name, bytes_of(draft && draft->name ? draft->name : "?"));
	pthread_mutex_unlock(&drafts->lock);
	return rc;
}
