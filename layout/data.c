/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/: the current documents. A document's node is its key (the text); its number is the sequence
 * that it had when it was looked up. Each lookup is a node of its own, for the kernel has one size
 * and one page cache a node: so no reader shares them with a writer, nor with who reads another
 * version. Scratch files are nodes by the number of their draft.
 */
#include "layout/data.h"

#include <errno.h>
#include <stdlib.h>

#include "layout/names.h"

/* A listing remembers every so many-th key, to find its way back for seekdir(3). */
#define MARK_STEP 1024

/* ---- what is there ---- */

bool data_name_is_scratch(const char *name)
{
	size_t n = strlen(name), suffix = strlen(".json");

	return name[0] == '.' || n < suffix || strcmp(name + n - suffix, ".json") != 0;
}

int data_get(struct layout *layout, uint32_t collection, struct bytes key,
	     struct store_document *ret_document, struct buffer *text, struct error *error)
{
	struct drafts *drafts = &layout->drafts;
	size_t start = text ? text->n : 0;

	int rc = store_document_get(layout->store, collection, key, ret_document, text, error);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	pthread_mutex_lock(&drafts->lock);
	const struct departure *away = drafts_departure(drafts, collection, key);
	if (rc == 0 && away && away->sequence == ret_document->sequence)
		rc = -ENOENT;
	if (rc < 0 && drafts_has_new(drafts, collection, key)) {
		*ret_document = (struct store_document){.timestamp_ms = clock_wall_ms()};
		rc = 0;
		if (text)
			text->n = start;
	}
	pthread_mutex_unlock(&drafts->lock);
	if (rc < 0 && text)
		text->n = start;
	return rc;
}

int data_add_event(struct layout *layout, struct store_batch *batch, uint32_t collection,
		   struct store_event event, struct error *error)
{
	_cleanup_(buffer_free) struct buffer metadata = {0};

	event.type = event.value.p ? STORE_PUT : STORE_DELETE;
	event.collection = store_collection_name(layout->store, collection);
	event.unless_same = event.value.p;
	event.through_file = true;
	/* The line alone is to tell the collection. */
	if (!bytes_equal(store_key_collection(event.key), event.collection)) {
		if (buffer_printf(&metadata, "{\"table\":") < 0 ||
		    buffer_add_json_string(&metadata, event.collection) < 0 ||
		    buffer_add(&metadata, "}", 1) < 0)
			return -ENOMEM;
		event.metadata = buffer_bytes(&metadata);
	}
	return store_batch_add(batch, &event, error);
}

int data_find_collection(struct layout *layout, const struct node *parent, const char *name,
			 struct node *ret_node, struct error *error)
{
	int rc = feed_find_collection(layout, parent, name, ret_node, error);

	if (rc < 0)
		return rc;
	return store_collection_is_removed(layout->store, ret_node->collection) ? -ENOENT : 0;
}

int data_find_document(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer key = {0};
	struct store_document document;

	if (data_name_is_scratch(name))
		return -ENOENT;
	int rc = document_name_find(layout, parent->collection, name, &key, error);
	if (rc < 0)
		return rc == -EINVAL ? -ENOENT : rc;
	rc = data_get(layout, parent->collection, buffer_bytes(&key), &document, NULL, error);
	if (rc < 0)
		return rc;
	ret_node->number = document.sequence;
	node_take_text(ret_node, &key);
	return 0;
}

static int stat_draft(const struct draft *draft, struct stat *st)
{
	if (!draft)
		return -ENOENT;
	st->st_size = (off_t)draft->bytes.n;
	st->st_mtim = draft->time;
	return 0;
}

int data_stat_document(struct layout *layout, const struct node *node,
		       const struct content *content, struct stat *st, struct error *error)
{
	struct store_document document;
	int rc;

	st->st_ino = ino_of_text(ROW_DOCUMENT, node->collection, node_text(node));
	if (content && content->draft) {
		pthread_mutex_lock(&layout->drafts.lock);
		rc = stat_draft(content->draft, st);
		pthread_mutex_unlock(&layout->drafts.lock);
		return rc;
	}
	if (content) {
		st->st_size = (off_t)content->bytes.n;
		st->st_mtim = content->time;
		return 0;
	}
	rc = data_get(layout, node->collection, node_text(node), &document, NULL, error);
	if (rc < 0)
		return rc;
	st->st_size = (off_t)document.size;
	st->st_mtim = time_of_ms(document.timestamp_ms);
	return 0;
}

int data_find_scratch(struct layout *layout, const struct node *parent, const char *name,
		      struct node *ret_node, struct error *error)
{
	struct drafts *drafts = &layout->drafts;

	if (!data_name_is_scratch(name))
		return -ENOENT;
	pthread_mutex_lock(&drafts->lock);
	const struct draft *draft = drafts_find_name(drafts, parent->collection, name);
	if (draft)
		ret_node->number = draft->id;
	pthread_mutex_unlock(&drafts->lock);
	return draft ? 0 : -ENOENT;
}

int data_stat_scratch(struct layout *layout, const struct node *node, const struct content *content,
		      struct stat *st, struct error *error)
{
	struct drafts *drafts = &layout->drafts;

	pthread_mutex_lock(&drafts->lock);
	const struct draft *draft = drafts_find_id(drafts, node->number);
	int rc = stat_draft(draft, st);
	if (rc == 0) {
		st->st_ino = ino_of_draft(node->number);
		st->st_mode = draft->mode;
		st->st_uid = draft->uid;
		st->st_gid = draft->gid;
	}
	pthread_mutex_unlock(&drafts->lock);
	return rc;
}

/* ---- listing ---- */

int data_list_collections(struct directory *directory, uint64_t place, struct listed *ret_listed,
			  struct error *error)
{
	struct store *store = directory->layout->store;

	for (;;) {
		int rc = feed_list_collections(directory, place, ret_listed, error);
		if (rc <= 0 || !store_collection_is_removed(store, ret_listed->node.collection))
			return rc;
		place = ret_listed->place;
		ret_listed->name.n = 0;
	}
}

static int add_mark(struct directory *d, struct bytes key)
{
	uint32_t n = (uint32_t)key.n;
	size_t *offsets = realloc(d->mark_offsets, (d->mark_count + 1) * sizeof(*offsets));

	if (!offsets)
		return -ENOMEM;
	d->mark_offsets = offsets;
	offsets[d->mark_count++] = d->marks.n;
	return buffer_add(&d->marks, &n, sizeof(n)) < 0 || buffer_add_bytes(&d->marks, key) < 0
		       ? -ENOMEM
		       : 0;
}

/* Document number `n` + 1 and its key, counted from 0; marks are set on the way. */
static int next_document(struct directory *d, struct bytes *ret_key,
			 struct store_document *ret_document, struct error *error)
{
	int rc = store_document_cursor_next(d->documents, ret_key, ret_document, error);

	if (rc <= 0)
		return rc;
	if (d->documents_at % MARK_STEP == 0 && d->documents_at / MARK_STEP == d->mark_count &&
	    add_mark(d, *ret_key) < 0)
		return -ENOMEM;
	d->documents_at++;
	return 1;
}

/* Puts the cursor in front of document number `place`, counted from 0. */
static int go_to(struct directory *d, uint64_t place, struct error *error)
{
	struct store_document document;
	struct bytes key = {0};
	size_t mark = place / MARK_STEP;

	if (mark >= d->mark_count)
		mark = d->mark_count ? d->mark_count - 1 : 0;
	if (d->mark_count) {
		const char *p = d->marks.p + d->mark_offsets[mark];
		uint32_t n;
		memcpy(&n, p, sizeof(n));
		key = (struct bytes){p + sizeof(n), n};
	}
	store_document_cursor_seek(d->documents, key);
	d->documents_at = (uint64_t)mark * MARK_STEP;
	while (d->documents_at < place) {
		int rc = next_document(d, &key, &document, error);
		if (rc <= 0)
			return rc;
	}
	return 1;
}

/* True if the document has left data/ since the listing was frozen, or before: not if it was
 * written in another way after it had left. */
static bool is_away(struct directory *d, struct bytes key, uint64_t sequence)
{
	struct drafts *drafts = &d->layout->drafts;

	pthread_mutex_lock(&drafts->lock);
	const struct departure *away = drafts_departure(drafts, d->node.collection, key);
	bool is = away && away->sequence >= sequence;
	pthread_mutex_unlock(&drafts->lock);
	return is;
}

int data_list_documents(struct directory *directory, uint64_t place, struct listed *ret_listed,
			struct error *error)
{
	struct store *store = directory->layout->store;
	struct store_document document;
	struct bytes key;
	int rc = 1;

	if (!directory->documents)
		rc = store_document_cursor_open(store, directory->node.collection,
						&directory->documents, error);
	if (rc >= 0)
		rc = 1;
	if (rc > 0 && directory->documents_at != place)
		rc = go_to(directory, place, error);
	if (rc <= 0)
		return rc;
	do {
		rc = next_document(directory, &key, &document, error);
		if (rc <= 0)
			return rc;
	} while (is_away(directory, key, document.sequence));
	rc = name_document_write(store_collection_name(store, directory->node.collection), key,
				 &ret_listed->name);
	ret_listed->place = directory->documents_at;
	ret_listed->node.number = document.sequence;
	if (rc == 0) {
		struct buffer text = {0};
		rc = buffer_add_bytes(&text, key);
		node_take_text(&ret_listed->node, &text);
	}
	return rc < 0 ? rc : 1;
}

/* The next draft that has a name: 1, 0, -ENOMEM. */
static int next_draft(struct directory *directory, uint64_t place, struct listed *ret_listed)
{
	struct drafts *drafts = &directory->layout->drafts;
	struct buffer key = {0};
	int rc = 0;

	pthread_mutex_lock(&drafts->lock);
	const struct draft *draft = drafts_next(drafts, directory->node.collection, place);
	if (draft && draft->id <= directory->last_draft) {
		ret_listed->place = ret_listed->node.number = draft->id;
		rc = buffer_add_bytes(&ret_listed->name, bytes_of(draft->name));
		if (rc == 0 && draft->is_document)
			rc = buffer_add_bytes(&key, buffer_bytes(&draft->key));
		rc = rc < 0 ? rc : 1;
	}
	pthread_mutex_unlock(&drafts->lock);
	node_take_text(&ret_listed->node, &key);
	return rc;
}

/* Scratch files, and documents that nothing was recorded of yet. */
int data_list_scratch(struct directory *directory, uint64_t place, struct listed *ret_listed,
		      struct error *error)
{
	struct node *node = &ret_listed->node;
	struct store_document document;

	for (;;) {
		int rc = next_draft(directory, place, ret_listed);
		if (rc <= 0 || !node->text)
			return rc;
		node->row = &node_rows[ROW_DOCUMENT];
		node->number = 0;
		rc = data_get(directory->layout, node->collection, node_text(node), &document, NULL,
			      error);
		if (rc == 0 && document.sequence == 0)
			return 1;
		place = ret_listed->place; /* it is among the documents by now */
		node->row = &node_rows[ROW_SCRATCH];
		node_free(node);
		ret_listed->name.n = 0;
	}
}
