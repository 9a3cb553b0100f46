/* SPDX-License-Identifier: Apache-2.0 */
/* data/: making, removing and renaming. Each call changes the log by one commit, or only what is in
 * memory. */
#include <errno.h>

#include "layout/data.h"
#include "layout/names.h"
#include "store/consumer.h"

static const struct bytes no_key = {0};

/* A name below data/COLLECTION, and what has it. */
struct place {
	uint32_t collection;
	const char *name;
	bool scratch;
	struct buffer key;		/* of a document's name */
	struct store_document document; /* sequence 0: none is recorded */
	bool there;
};

static void place_free(struct place *place)
{
	buffer_free(&place->key);
}

static int find_scratch(struct layout *layout, struct place *place)
{
	struct drafts *drafts = &layout->drafts;

	pthread_mutex_lock(&drafts->lock);
	place->there = drafts_find_name(drafts, place->collection, place->name);
	pthread_mutex_unlock(&drafts->lock);
	return 0;
}

static int find_document(struct layout *layout, struct place *place, struct error *error)
{
	int rc = data_get(layout, place->collection, buffer_bytes(&place->key), &place->document,
			  NULL, error);

	place->there = rc == 0;
	return rc == -ENOENT ? 0 : rc;
}

/* -EINVAL: no key has this name; -ENOENT: it is cut, and no document has it. */
static int find_place(struct layout *layout, const struct node *parent, const char *name,
		      struct place *ret_place, struct error *error)
{
	*ret_place = (struct place){.collection = parent->collection, .name = name};
	if (strlen(name) > NAME_BYTES_MAX)
		return -ENAMETOOLONG;
	ret_place->scratch = data_name_is_scratch(name);
	if (ret_place->scratch)
		return find_scratch(layout, ret_place);
	int rc = document_name_find(layout, parent->collection, name, &ret_place->key, error);
	if (rc == 0 && (!ret_place->key.n || !bytes_are_utf8(buffer_bytes(&ret_place->key))))
		rc = -EINVAL;
	if (rc == -EINVAL)
		return name_refuse(rc, "key", error);
	return rc < 0 ? rc : find_document(layout, ret_place, error);
}

/* For what need not be there. -EPERM: the name is cut, so that it does not tell the key (mv takes
 * EINVAL for something else). */
static int find_target(struct layout *layout, const struct node *parent, const char *name,
		       struct place *ret_place, struct error *error)
{
	int rc = find_place(layout, parent, name, ret_place, error);

	if (rc == -ENOENT)
		return error_set(error, -EPERM,
				 "a name with a hash does not tell the key of a new document: "
				 "write it to in/events");
	return rc;
}

/* ---- making ---- */

static int make_draft(struct layout *layout, const struct place *place, const struct stat *as,
		      struct node *ret_node, struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	struct draft *draft;

	int rc = draft_new(drafts, place->collection, place->scratch, &draft, error);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&drafts->lock);
	rc = draft_set_name(draft, place->name);
	if (rc == 0 && !place->scratch)
		rc = draft_set_key(draft, buffer_bytes(&place->key));
	draft->mode = S_IFREG | (as->st_mode & 07777);
	draft->uid = as->st_uid;
	draft->gid = as->st_gid;
	ret_node->number = draft->id;
	if (rc < 0 && draft->name)
		draft_drop_name(draft);
	draft_unref_locked(draft);
	pthread_mutex_unlock(&drafts->lock);
	return rc;
}

static int data_create(struct layout *layout, const struct node *parent, const char *name,
		       const struct stat *as, bool exclusive, struct node *ret_node,
		       struct error *error)
{
	_cleanup_(place_free) struct place place = {0};

	int rc = find_target(layout, parent, name, &place, error);
	if (rc == 0 && place.there && exclusive)
		rc = -EEXIST;
	if (rc == 0 && !place.there)
		rc = make_draft(layout, &place, as, ret_node, error);
	if (rc < 0)
		return rc;
	return layout_lookup_node(layout, parent, name, ret_node, error);
}

/* ---- removing ---- */

/* A DELETE of the document that is there. */
static int add_delete(struct layout *layout, struct store_batch *batch, const struct place *place,
		      int64_t timestamp_ms, struct error *error)
{
	const struct store_event event = {.key = buffer_bytes(&place->key),
					  .timestamp_ms = timestamp_ms,
					  .expected = place->document.sequence};

	return data_add_event(layout, batch, place->collection, event, error);
}

static int add_put(struct layout *layout, struct store_batch *batch, const struct place *place,
		   struct bytes text, int64_t timestamp_ms, struct error *error)
{
	const struct store_event event = {.key = buffer_bytes(&place->key),
					  .value = text,
					  .timestamp_ms = timestamp_ms};

	return data_add_event(layout, batch, place->collection, event, error);
}

/* -ESTALE: it is another document by now. */
static int delete_document(struct layout *layout, const struct place *place, int64_t timestamp_ms,
			   struct error *error)
{
	struct store_batch *batch = store_batch_new(layout->store);

	int rc = batch ? add_delete(layout, batch, place, timestamp_ms, error) : -ENOMEM;
	if (rc == 0)
		rc = store_commit(layout->store, batch, false, NULL, error);
	store_batch_free(batch);
	return rc;
}

/* The name of a scratch file, or of a new document, goes. */
static int drop_name(struct layout *layout, const struct place *place)
{
	struct drafts *drafts = &layout->drafts;

	pthread_mutex_lock(&drafts->lock);
	struct draft *draft = drafts_find_name(drafts, place->collection, place->name);
	if (draft)
		draft_drop_name(draft);
	if (!place->scratch)
		drafts_move_writers(drafts, place->collection, buffer_bytes(&place->key), 0,
				    no_key);
	pthread_mutex_unlock(&drafts->lock);
	return draft || !place->scratch ? 0 : -ENOENT;
}

static int data_unlink(struct layout *layout, const struct node *parent, const char *name,
		       struct error *error)
{
	_cleanup_(place_free) struct place place = {0};

	int rc = find_place(layout, parent, name, &place, error);
	while (rc == 0 && place.there && place.document.sequence) {
		rc = delete_document(layout, &place, clock_wall_ms(), error);
		if (rc == 0)
			return drop_name(layout, &place);
		if (rc == -ESTALE)
			rc = find_document(layout, &place, error);
	}
	if (rc == 0 && !place.there)
		rc = -ENOENT;
	return rc < 0 ? rc : drop_name(layout, &place);
}

/* ---- renaming ---- */

/* A scratch file, or a new document, becomes another one: only in memory. */
static int rename_draft(struct layout *layout, struct place *from, struct place *to)
{
	struct drafts *drafts = &layout->drafts;
	int rc = -ENOENT;

	pthread_mutex_lock(&drafts->lock);
	struct draft *draft = drafts_find_name(drafts, from->collection, from->name);
	struct draft *target = drafts_find_name(drafts, to->collection, to->name);
	if (draft)
		rc = draft == target ? 0 : draft_set_name(draft, to->name);
	if (rc == 0 && draft != target) {
		draft->collection = to->collection;
		if (target)
			draft_drop_name(target);
		if (!from->scratch)
			drafts_move_writers(drafts, from->collection, buffer_bytes(&from->key),
					    to->collection,
					    to->scratch ? no_key : buffer_bytes(&to->key));
		draft->is_document = false;
		if (!to->scratch)
			rc = draft_set_key(draft, buffer_bytes(&to->key));
	}
	pthread_mutex_unlock(&drafts->lock);
	return rc;
}

/* A scratch file becomes a document: a PUT of its text, with its time if one was set. */
static int record_scratch(struct layout *layout, struct place *from, struct place *to,
			  struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	struct buffer text = {0};
	int64_t timestamp_ms = 0;
	int rc = -ENOENT;

	pthread_mutex_lock(&drafts->lock);
	struct draft *draft = drafts_find_name(drafts, from->collection, from->name);
	if (draft) {
		draft_ref(draft);
		rc = buffer_add_bytes(&text, buffer_bytes(&draft->bytes));
		draft->dirty = false; /* what is written from here on is not in this text */
		timestamp_ms = draft_event_ms(draft);
	}
	pthread_mutex_unlock(&drafts->lock);
	if (rc == 0)
		rc = data_put(layout, to->collection, buffer_bytes(&to->key), buffer_bytes(&text),
			      timestamp_ms, false, error);
	buffer_free(&text);
	if (!draft)
		return rc;
	bool late = false; /* a writer's last flush came in between */
	pthread_mutex_lock(&drafts->lock);
	if (rc == 0 && draft->name) {
		drafts_move_writers(drafts, to->collection, buffer_bytes(&to->key), 0, no_key);
		draft->collection = to->collection;
		draft->recorded = true;
		rc = draft_set_key(draft, buffer_bytes(&to->key));
		draft_drop_name(draft);
		late = draft->dirty && draft->flushed;
	}
	pthread_mutex_unlock(&drafts->lock);
	if (rc == 0 && late)
		rc = data_record(layout, draft, false, error);
	draft_unref(draft);
	return rc;
}

/* Reads a document that was recorded when it was found. -ENOENT: it has gone since, and perhaps a
 * new one that has no text yet has its name. */
static int read_recorded(struct layout *layout, struct place *place, struct buffer *text,
			 struct error *error)
{
	int rc = data_get(layout, place->collection, buffer_bytes(&place->key), &place->document,
			  text, error);

	return rc == 0 && !place->document.sequence ? -ENOENT : rc;
}

/* A document becomes a scratch file: its text is copied, and its name is given up. */
static int depart(struct layout *layout, struct place *from, struct place *to, struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	struct stat as = {.st_mode = 0666 & ~layout->options.umask,
			  .st_uid = layout->options.uid,
			  .st_gid = layout->options.gid};
	struct buffer text = {0};
	struct node node = {0};

	int rc = read_recorded(layout, from, &text, error);
	if (rc == 0)
		rc = make_draft(layout, to, &as, &node, error);
	if (rc == 0) {
		pthread_mutex_lock(&drafts->lock);
		struct draft *draft = drafts_find_id(drafts, node.number);
		rc = draft ? draft_write(draft, buffer_bytes(&text), 0, UINT64_MAX, error)
			   : -ENOENT;
		if (rc == 0)
			rc = drafts_depart(drafts, from->collection, buffer_bytes(&from->key),
					   from->document.sequence);
		struct draft *old = drafts_find_name(drafts, to->collection, to->name);
		if (rc == 0) {
			draft->time = time_of_ms(from->document.timestamp_ms);
			if (old && old != draft)
				draft_drop_name(old);
			drafts_move_writers(drafts, from->collection, buffer_bytes(&from->key), 0,
					    no_key);
		} else if (draft) {
			draft_drop_name(draft);
		}
		pthread_mutex_unlock(&drafts->lock);
	}
	buffer_free(&text);
	return rc;
}

/* Document to document: a DELETE and a PUT, both or none. */
static int move_document(struct layout *layout, struct place *from, struct place *to,
			 struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	struct store_batch *batch = store_batch_new(layout->store);
	struct buffer text = {0};
	int64_t now = clock_wall_ms();
	int rc = batch ? -ESTALE : -ENOMEM;

	while (rc == -ESTALE) {
		text.n = 0;
		rc = read_recorded(layout, from, &text, error);
		if (rc < 0)
			break;
		store_batch_clear(batch);
		rc = add_delete(layout, batch, from, now, error);
		if (rc == 0)
			rc = add_put(layout, batch, to, buffer_bytes(&text), now, error);
		if (rc == 0)
			rc = data_commit_put(layout, batch, to->collection, buffer_bytes(&to->key),
					     false, error);
	}
	store_batch_free(batch);
	buffer_free(&text);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&drafts->lock);
	drafts_move_writers(drafts, to->collection, buffer_bytes(&to->key), 0, no_key);
	drafts_move_writers(drafts, from->collection, buffer_bytes(&from->key), to->collection,
			    buffer_bytes(&to->key));
	pthread_mutex_unlock(&drafts->lock);
	return 0;
}

static int data_rename(struct layout *layout, const struct node *parent, const char *name,
		       const struct node *new_parent, const char *new_name, bool replace,
		       struct error *error)
{
	_cleanup_(place_free) struct place from = {0};
	_cleanup_(place_free) struct place to = {0};

	int rc = find_place(layout, parent, name, &from, error);
	if (rc == 0)
		rc = find_target(layout, new_parent, new_name, &to, error);
	if (rc != 0)
		return rc;
	if (!from.there)
		return -ENOENT;
	if (to.there && !replace)
		return -EEXIST;
	if (from.collection == to.collection && strcmp(name, new_name) == 0)
		return 0;
	if (from.document.sequence)
		return to.scratch ? depart(layout, &from, &to, error)
				  : move_document(layout, &from, &to, error);
	if (from.scratch && !to.scratch)
		return record_scratch(layout, &from, &to, error);
	if (!from.scratch && to.document.sequence)
		return error_set(error, -EINVAL, "an empty file is no JSON");
	return rename_draft(layout, &from, &to);
}

/* ---- collections ---- */

static int data_mkdir(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer collection = {0};

	int rc = collection_name_find(layout, name, &collection);
	if (rc == -EINVAL || rc == -ENOENT)
		return error_set(error, -EINVAL,
				 "no collection has this name: README.md tells the encoding");
	if (rc == 0)
		rc = store_collection_create(layout->store, buffer_bytes(&collection), error);
	return rc < 0 ? rc : layout_lookup_node(layout, parent, name, ret_node, error);
}

static bool is_busy(struct drafts *drafts, uint32_t collection)
{
	struct departure *d = drafts->departures;

	while (d && (d->collection != collection || !d->busy))
		d = d->next;
	return d;
}

/* What has left the collection, and no file of it is there any more, will not come back. */
static void settle_collection(struct layout *layout, uint32_t collection)
{
	struct drafts *drafts = &layout->drafts;

	pthread_mutex_lock(&drafts->lock);
	for (struct departure *d = drafts->departures; d; d = d->next)
		if (d->collection == collection)
			d->due_ms = 0;
	pthread_mutex_unlock(&drafts->lock);
	layout_settle(layout, false);
	pthread_mutex_lock(&drafts->lock);
	while (is_busy(drafts, collection))
		pthread_cond_wait(&drafts->left, &drafts->lock);
	pthread_mutex_unlock(&drafts->lock);
}

static int data_rmdir(struct layout *layout, const struct node *parent, const char *name,
		      struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	struct node node = {0};

	int rc = layout_lookup_node(layout, parent, name, &node, error);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&drafts->lock);
	bool used = drafts_next(drafts, node.collection, 0);
	pthread_mutex_unlock(&drafts->lock);
	if (used)
		return error_set(error, -ENOTEMPTY, "there are files that are no documents");
	settle_collection(layout, node.collection);
	return store_collection_remove(layout->store, node.collection, error);
}

/* mv(1) then copies and removes: a collection's events keep their collection. */
static int data_rename_collection(struct layout *layout, const struct node *parent,
				  const char *name, const struct node *new_parent,
				  const char *new_name, bool replace, struct error *error)
{
	return -EXDEV;
}

const struct directory_operations directory_of_documents = {
	.create = data_create,
	.unlink = data_unlink,
	.rename = data_rename,
};

const struct directory_operations directory_of_collections = {
	.mkdir = data_mkdir,
	.rmdir = data_rmdir,
	.rename = data_rename_collection,
};

/* ---- what has left ---- */

static bool is_written(struct drafts *drafts, const struct departure *d)
{
	return drafts_count_writers(drafts, d->collection, buffer_bytes(&d->key)) > 0;
}

static struct departure *next_due(struct drafts *drafts, int64_t now, bool all, int64_t *ret_due)
{
	*ret_due = -1;
	for (struct departure *d = drafts->departures; d; d = d->next) {
		int64_t due = d->due_ms;
		if (!d->busy && (all || (due <= now && !is_written(drafts, d))))
			return d;
		if (due <= now)
			due = now + DEPARTURE_DELAY_MS; /* that may fail */
		if (*ret_due < 0 || due < *ret_due)
			*ret_due = due;
	}
	return NULL;
}

/* Its DELETE, without the lock. */
static int record_departure(struct layout *layout, struct departure *away)
{
	struct place place = {.collection = away->collection,
			      .key = away->key, /* it stays while it is busy */
			      .document = {.sequence = away->sequence}};
	int rc = delete_document(layout, &place, away->time_ms, NULL);

	return rc == -ESTALE ? 0 : rc; /* somebody wrote it in another way */
}

static int64_t settle_departures(struct layout *layout, bool all)
{
	struct drafts *drafts = &layout->drafts;
	int64_t due;
	struct departure *away;

	pthread_mutex_lock(&drafts->lock);
	while ((away = next_due(drafts, clock_steady_ms(), all, &due))) {
		away->busy = true;
		pthread_mutex_unlock(&drafts->lock);
		int rc = record_departure(layout, away);
		pthread_mutex_lock(&drafts->lock);
		away->due_ms = clock_steady_ms() + DEPARTURE_DELAY_MS;
		drafts_leave(drafts, away, rc == 0 || all);
	}
	pthread_mutex_unlock(&drafts->lock);
	return due;
}

int64_t layout_settle(struct layout *layout, bool all)
{
	int64_t due = settle_departures(layout, all);
	/* What is leased when the mount ends is delivered again by the next one. */
	int64_t groups_due = all ? -1 : store_groups_settle(layout->store);

	return due < 0 || (groups_due >= 0 && groups_due < due) ? groups_due : due;
}
