/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* data/: what its files share. data.c finds and lists, data_file.c has the open files,
 * data_change.c changes names. */
#include "layout/drafts.h"
#include "layout/tree.h"

/* True for a name that no document can have. */
bool data_name_is_scratch(const char *name);

/*
 * What data/ shows for a key: the current document, unless it has left; a new document that nothing
 * was recorded of yet is empty, with sequence 0. The text is appended unless that is NULL. -ENOENT.
 */
int data_get(struct layout *layout, uint32_t collection, struct bytes key,
	     struct store_document *ret_document, struct buffer *text, struct error *error);

/*
 * Adds an event of a document's own file to a batch: with a value a PUT, which is not recorded
 * where the document is the same already, without one a DELETE. The caller gives the key, the time
 * and, if it matters, what is expected. -ENOMEM, and the errors of store_batch_add().
 */
int data_add_event(struct layout *layout, struct store_batch *batch, uint32_t collection,
		   struct store_event event, struct error *error);

/*
 * Commits a batch that has a PUT of this key: its document stays, if it was about to leave, and its
 * name is no new document's any more. The errors of store_commit(): then nothing has changed.
 */
int data_commit_put(struct layout *layout, struct store_batch *batch, uint32_t collection,
		    struct bytes key, bool sync, struct error *error);

/*
 * Records a PUT, unless the document is already these bytes. -EINVAL: it is not JSON, -EFBIG and
 * those of store_commit(): then nothing has changed.
 */
int data_put(struct layout *layout, uint32_t collection, struct bytes key, struct bytes text,
	     int64_t timestamp_ms, bool sync, struct error *error);

/* Records what was written to a draft, if it is a document's text. */
int data_record(struct layout *layout, struct draft *draft, bool sync, struct error *error);
