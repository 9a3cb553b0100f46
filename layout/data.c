/* SPDX-License-Identifier: Apache-2.0 */
/* data/: the current documents. A document's node is one version of it: its number is the sequence
 * of the event that wrote it, its text the key. */
#include <errno.h>
#include <stdlib.h>

#include "layout/names.h"
#include "layout/tree.h"

/* A listing remembers every so many-th key, to find its way back for seekdir(3). */
#define MARK_STEP 1024

static struct bytes key_of(const struct node *node)
{
	return (struct bytes){node->text, node->text_size};
}

int data_find_document(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error)
{
	_cleanup_(buffer_free) struct buffer key = {0};
	struct store_document document;

	int rc = name_document_read(store_collection_name(layout->store, parent->collection), name,
				    &key);
	if (rc < 0)
		return rc == -EINVAL ? -ENOENT : rc;
	rc = store_document_get(layout->store, parent->collection, buffer_bytes(&key), &document,
				NULL, error);
	if (rc < 0)
		return rc;
	ret_node->number = document.sequence;
	node_take_text(ret_node, &key);
	return 0;
}

int data_stat_document(struct layout *layout, const struct node *node,
		       const struct content *content, struct stat *st, struct error *error)
{
	struct store_document document;

	st->st_ino = ino_of_text(ROW_DOCUMENT, node->collection, key_of(node));
	if (content) {
		st->st_size = (off_t)content->bytes.n;
		st->st_mtim = content->time;
		return 0;
	}
	int rc = store_document_get(layout->store, node->collection, key_of(node), &document, NULL,
				    error);
	if (rc < 0)
		return rc;
	st->st_size = (off_t)document.size;
	st->st_mtim = time_of_ms(document.timestamp_ms);
	return 0;
}

struct document_file {
	struct file file;
	struct content *content;
};

static int document_open(struct file *file, struct content **shared, struct error *error)
{
	struct document_file *f = (struct document_file *)file;
	struct content *content = *shared;
	struct store_document document;

	if (!content) {
		content = calloc(1, sizeof(*content));
		if (!content)
			return -ENOMEM;
		int rc = store_document_get(file->layout->store, file->node.collection,
					    key_of(&file->node), &document, &content->bytes, error);
		if (rc < 0) {
			buffer_free(&content->bytes);
			free(content);
			return rc;
		}
		content->time = time_of_ms(document.timestamp_ms);
		*shared = content;
	}
	f->content = content;
	return 0;
}

/* The slot keeps the content until the node's last handle has closed. */
static ssize_t document_read(struct file *file, uint64_t offset, char *p, size_t size,
			     struct error *error)
{
	struct document_file *f = (struct document_file *)file;

	return read_bytes(buffer_bytes(&f->content->bytes), offset, p, size);
}

const struct file_operations file_of_document = {
	.size = sizeof(struct document_file),
	.open = document_open,
	.read = document_read,
};

/* ---- listing ---- */

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
	do { /* a name that is too long for a file is not listed */
		rc = next_document(directory, &key, &document, error);
		if (rc <= 0)
			return rc;
		rc = name_document_write(store_collection_name(store, directory->node.collection),
					 key, &ret_listed->name);
	} while (rc == -ENAMETOOLONG);
	ret_listed->place = directory->documents_at;
	ret_listed->node.number = document.sequence;
	if (rc == 0) {
		struct buffer text = {0};
		rc = buffer_add_bytes(&text, key);
		node_take_text(&ret_listed->node, &text);
	}
	return rc < 0 ? rc : 1;
}
