/* SPDX-License-Identifier: Apache-2.0 */
#include "store/commit_group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Sequences and positions are reserved in steps of this size, ahead of their use. */
#define RESERVE_SEQUENCES (UINT64_C(1) << 20)
#define RESERVE_BYTES	  (UINT64_C(1) << 30)

#define KEEP_BYTES ((size_t)8 << 20)

static int grow_lists(struct commit *c, size_t need)
{
	if (need <= c->list_capacity)
		return 0;
	size_t capacity = c->list_capacity ? c->list_capacity * 2 : 64;
	struct collection **touched = realloc(c->touched, capacity * sizeof(*touched));
	if (touched)
		c->touched = touched;
	struct collection **in_block = realloc(c->in_block, capacity * sizeof(*in_block));
	if (in_block)
		c->in_block = in_block;
	if (!touched || !in_block)
		return -ENOMEM;
	c->list_capacity = capacity;
	return 0;
}

static int touch(struct commit *c, struct collection *it)
{
	if (it->touched)
		return 0;
	if (grow_lists(c, c->touched_count + 1) < 0)
		return -ENOMEM;
	it->touched = true;
	if (!atomic_load(&it->visible))
		atomic_store(&it->created_ms, c->commit_ms);
	c->touched[c->touched_count++] = it;
	return 0;
}

struct collection *group_touch(struct store *store, struct bytes name)
{
	struct collection *it = collections_intern(&store->collections, name);

	return it && touch(&store->commit, it) == 0 ? it : NULL;
}

/* ---- the document ---- */

static struct document_change *new_change(struct commit *c)
{
	if (c->change_count == c->change_capacity) {
		size_t capacity = c->change_capacity ? c->change_capacity * 2 : 256;
		struct document_change *changes = realloc(c->changes, capacity * sizeof(*changes));
		if (!changes)
			return NULL;
		c->changes = changes;
		c->change_capacity = capacity;
	}
	return &c->changes[c->change_count++];
}

/* Notes what becomes of the documents, for when the log is written. */
static int change_document(struct store *store, const struct resolved *r, uint64_t sequence)
{
	struct commit *c = &store->commit;
	enum store_type type = r->prepared->type;

	if (r->partial || type == STORE_MESSAGE)
		return 0;
	struct document_change *change = new_change(c);
	if (!change)
		return -ENOMEM;
	*change = (struct document_change){
		.entry = {.collection = r->collection->id,
			  .key = span_bytes(r->batch, r->prepared->key),
			  .sequence = sequence,
			  .timestamp_ms = r->prepared->timestamp_ms},
		.truncate = type == STORE_TRUNCATE,
	};
	if (type == STORE_PUT) {
		change->entry.text = r->value;
		change->entry.binary = r->binary;
	}
	if (type == STORE_TRUNCATE)
		overlay_truncate(&c->overlay, r->collection->id);
	else
		overlay_set(r->entry, (struct document_text){change->entry.text,
							     change->entry.binary, sequence});
	return 0;
}

/* ---- blocks and the index ---- */

static int end_run(struct collection *it)
{
	char p[20];
	size_t n = varint_write(p, it->run_start - it->run_base);

	n += varint_write(p + n, it->run_length);
	it->run_base = it->run_start + it->run_length;
	return buffer_add(&it->runs, p, n);
}

static int count_event(struct commit *c, struct collection *it, uint64_t sequence, size_t length)
{
	int rc = 0;

	if (!it->in_block) {
		it->in_block = true;
		it->block_first = it->run_start = it->run_base = sequence;
		it->block_position = it->pending.position;
		it->block_count = 0;
		it->run_length = 0;
		it->runs.n = 0;
		c->in_block[c->in_block_count++] = it; /* there is room: it is touched too */
	} else if (sequence != it->run_start + it->run_length) {
		rc = end_run(it);
		it->run_start = sequence;
		it->run_length = 0;
	}
	it->run_length++;
	it->block_count++;
	it->pending.position += length;
	it->pending.events++;
	it->pending.last_sequence = sequence;
	it->pending.last_ms = c->commit_ms;
	return rc;
}

static int index_collection(struct store *store, struct collection *it)
{
	struct db_batch *batch = store->commit.db_batch;
	struct key s = key_index('S', it->id, it->block_first);
	struct key p = key_index('P', it->id, it->block_position);
	char head[INDEX_S_HEAD], first[8];

	if (end_run(it) < 0)
		return -ENOMEM;
	put_le64(head, it->block_position);
	put_le32(head + 8, it->block_count);
	put_le32(head + 12, (uint32_t)(it->pending.position - it->block_position));
	put_le64(first, it->block_first);
	db_batch_put2(store->db, batch, DB_INDEX, KEY_BYTES(s), (struct bytes){head, sizeof(head)},
		      buffer_bytes(&it->runs));
	db_batch_put(store->db, batch, DB_INDEX, KEY_BYTES(p), (struct bytes){first, 8});
	it->in_block = false;
	return 0;
}

static int end_block(struct store *store)
{
	struct commit *c = &store->commit;
	struct block_builder *b = &c->block;

	if (!b->count)
		return 0;
	uint64_t position = c->position - b->lines.n;
	struct key log = key_log(b->first + b->count - 1), p = key_index('P', 0, position);
	char first[8];
	block_builder_finish(b, position, c->commit_ms, 1);
	put_le64(first, b->first);
	db_batch_put2(store->db, c->db_batch, DB_LOG, KEY_BYTES(log), buffer_bytes(&b->head),
		      buffer_bytes(&b->lines));
	db_batch_put(store->db, c->db_batch, DB_INDEX, KEY_BYTES(p), (struct bytes){first, 8});
	for (size_t i = 0; i < c->in_block_count; i++)
		if (index_collection(store, c->in_block[i]) < 0)
			return -ENOMEM;
	c->in_block_count = 0;
	block_builder_start(b, c->next_sequence);
	return 0;
}

static unsigned char flags_of(const struct resolved *r)
{
	return (r->base64 ? BLOCK_FLAG_BASE64 : 0) | (r->partial ? BLOCK_FLAG_PARTIAL : 0) |
	       (r->prepared->through_file ? BLOCK_FLAG_THROUGH_FILE : 0);
}

/* 0 if the event is to be recorded, 1 if it would change nothing, -ESTALE. */
static int judge_document(const struct resolved *r, struct error *error)
{
	const struct prepared *p = r->prepared;
	struct document_text now = r->entry ? r->entry->current : (struct document_text){0};

	if (p->expected && (!now.text.p || now.sequence != p->expected))
		return error_set(error, -ESTALE, "the document has changed meanwhile");
	return p->unless_same && now.text.p && bytes_equal(now.text, r->value);
}

static int add_event(struct store *store, const struct store_batch *batch, const struct prepared *p,
		     struct error *error)
{
	struct commit *c = &store->commit;
	struct block_builder *b = &c->block;
	struct resolved r;

	if (c->next_sequence > STORE_SEQUENCE_MAX)
		return error_set(error, -ENOSPC, "the sequences are used up");
	int rc = group_resolve(store, batch, p, &r, error);
	if (rc < 0)
		return rc;
	rc = judge_document(&r, error);
	if (rc)
		return rc < 0 ? rc : 0;
	if (b->count && b->lines.n + r.part.n > 2 * BLOCK_TARGET) {
		rc = end_block(store);
		if (rc < 0)
			return rc;
	}
	size_t start = b->lines.n;
	uint64_t sequence = c->next_sequence++;
	rc = group_render(store, &r, sequence, &b->lines);
	if (rc < 0)
		return rc;
	size_t length = b->lines.n - start;
	struct store_event_info info = {
		.collection = r.collection->id,
		.type = p->type,
		.timestamp_ms = p->timestamp_ms,
		.length = (uint32_t)length,
		.flags = flags_of(&r),
	};
	rc = block_builder_add(b, &info);
	if (rc == 0)
		rc = count_event(c, r.collection, sequence, length);
	if (rc == 0)
		rc = change_document(store, &r, sequence);
	if (rc < 0)
		return rc;
	c->position += length;
	return b->lines.n >= BLOCK_TARGET ? end_block(store) : 0;
}

/* ---- the group ---- */

static void group_start(struct store *store)
{
	struct commit *c = &store->commit;
	int64_t now = clock_wall_ms(), last = atomic_load(&store->last_ms);

	c->commit_ms = now > last ? now : last;
	db_batch_clear(c->db_batch);
	block_builder_start(&c->block, c->next_sequence);
	c->in_block_count = 0;
	c->touched_count = 0;
	c->change_count = 0;
}

/* What a group may have to go back to. */
struct mark {
	uint64_t sequence;
	uint64_t position;
	uint64_t record[2];
};

static void group_revert(struct store *store, const struct mark *mark)
{
	struct commit *c = &store->commit;

	for (size_t i = 0; i < c->touched_count; i++) {
		collection_revert(c->touched[i]);
		c->touched[i]->touched = false;
		c->touched[i]->in_block = false;
	}
	collections_drop_invisible(&store->collections);
	sources_revert(store);
	overlay_clear(&c->overlay);
	c->next_sequence = mark->sequence;
	c->position = mark->position;
	memcpy(c->next_record, mark->record, sizeof(c->next_record));
}

static int add_records(struct store *store, const struct store_batch *batch, size_t from, size_t to)
{
	struct db_batch *out = store->commit.db_batch;
	int rc = 0;

	if (from == to) /* there may be no buffer */
		return 0;
	const char *p = batch->records.p + from, *end = batch->records.p + to;
	while (p < end && rc == 0) {
		char kind = *p;
		const char *type = kind == 'o' ? p + 1 : NULL;
		struct bytes text = bytes_of(type ? type + strlen(type) + 1 : p + 1);
		p = text.p + text.n + 1;
		if (kind == 'x')
			record_remove_dead_letter(store, out, strtoull(text.p, NULL, 10));
		else
			rc = type ? record_put_ops(store, out, type, text)
				  : record_put_dead_letter(store, out, text);
	}
	return rc;
}

static int refuse_server(struct waiter *w, struct bytes name)
{
	return error_set(w->error, -ESTALE,
			 "source %.*s: a position not above the stored one but with a newer time: "
			 "this is another or a restored server; to accept it, write "
			 "{\"%.*s\":null} to ctl/sources.json",
			 (int)name.n, name.p, (int)name.n, name.p);
}

/* Judges all transactions of a batch, and wants the documents of what is new. */
static int judge_batch(struct store *store, struct waiter *w)
{
	struct store_batch *batch = w->batch;
	size_t from = 0;
	int rc = 0;

	for (size_t i = 0; i < batch->transaction_count && rc == 0; i++) {
		struct transaction *t = &batch->transactions[i];
		rc = source_judge(store, span_bytes(batch, t->source), t);
		if (rc == 0 && t->verdict == SOURCE_OTHER_SERVER)
			rc = refuse_server(w, span_bytes(batch, t->source));
		if (rc == 0 && t->verdict == SOURCE_NEW)
			rc = group_want_documents(store, batch, from, t->events_end);
		from = t->events_end;
	}
	return rc < 0 ? rc : group_want_documents(store, batch, from, batch->count);
}

static int add_events(struct store *store, struct waiter *w, size_t from, size_t to)
{
	const struct store_batch *batch = w->batch;
	uint64_t first = store->commit.next_sequence;
	int rc = 0;

	for (; from < to && rc == 0; from++)
		rc = add_event(store, batch, &batch->events[from], w->error);
	if (store->commit.next_sequence == first)
		return rc; /* no event was recorded */
	if (!w->committed.first)
		w->committed.first = first;
	w->committed.last = store->commit.next_sequence - 1;
	return rc;
}

static int add_batch(struct store *store, struct waiter *w)
{
	const struct store_batch *batch = w->batch;
	size_t events = 0, records = 0;
	int rc = 0;

	w->committed = (struct store_committed){.skipped = batch->transaction_count > 0};
	for (size_t i = 0; i < batch->transaction_count && rc == 0; i++) {
		const struct transaction *t = &batch->transactions[i];
		if (t->verdict == SOURCE_NEW) {
			w->committed.skipped = false;
			rc = add_events(store, w, events, t->events_end);
			if (rc == 0)
				rc = add_records(store, batch, records, t->records_end);
			if (rc == 0)
				rc = source_put(store, store->commit.db_batch,
						span_bytes(batch, t->source),
						t->events_end - events);
		}
		events = t->events_end;
		records = t->records_end;
	}
	if (events < batch->count || records < batch->records.n)
		w->committed.skipped = false;
	if (rc == 0)
		rc = add_events(store, w, events, batch->count);
	return rc < 0 ? rc : add_records(store, batch, records, batch->records.n);
}

/* Judges the sources, and loads the documents that the batches need which are taken. */
static int group_load(struct store *store, struct waiter *list, struct error *error)
{
	for (struct waiter *w = list; w; w = w->next) {
		if (w->rc == 0)
			w->rc = judge_batch(store, w);
		if (w->rc < 0 && !w->failed) {
			w->failed = true;
			return -EAGAIN;
		}
	}
	return overlay_load(&store->commit.overlay, store, error);
}

/* Makes the database's batch of all that have not failed. -EAGAIN: one failed alone, make it anew
 * without that one. */
static int group_make(struct store *store, struct waiter *list, struct error *error)
{
	group_start(store);
	int rc = group_load(store, list, error);
	if (rc < 0)
		return rc;
	for (struct waiter *w = list; w; w = w->next) {
		if (w->rc < 0)
			continue;
		w->rc = add_batch(store, w);
		w->failed = w->rc < 0;
		if (w->failed)
			return -EAGAIN;
	}
	return end_block(store);
}

/* The next sequence and position, and a new reservation if the old one is used up. True if the
 * reservation has to be on the disk before anyone sees what it covers. */
static bool put_ends(struct store *store)
{
	struct commit *c = &store->commit;
	struct key end = key_meta('E'), reserved = key_meta('R');
	char value[24];

	put_le64(value, c->next_sequence);
	put_le64(value + 8, c->position);
	put_le64(value + 16, (uint64_t)c->commit_ms);
	db_batch_put(store->db, c->db_batch, DB_META, KEY_BYTES(end), (struct bytes){value, 24});
	if (c->next_sequence <= store->reserved_sequence && c->position <= store->reserved_position)
		return false;
	put_le64(value, c->next_sequence + RESERVE_SEQUENCES);
	put_le64(value + 8, c->position + RESERVE_BYTES);
	db_batch_put(store->db, c->db_batch, DB_META, KEY_BYTES(reserved),
		     (struct bytes){value, 16});
	return true;
}

static int group_write(struct store *store, struct waiter *list, struct error *error)
{
	struct commit *c = &store->commit;
	bool sync = store->config.visibility == STORE_VISIBLE_DURABLE;

	for (struct waiter *w = list; w; w = w->next)
		sync |= w->sync && w->rc == 0;
	for (size_t i = 0; i < c->touched_count; i++)
		collection_put(store, c->db_batch, c->touched[i]);
	bool reserve = put_ends(store);
	int rc = commit_write(store, sync || reserve, error);
	if (rc == 0 && reserve) {
		store->reserved_sequence = c->next_sequence + RESERVE_SEQUENCES;
		store->reserved_position = c->position + RESERVE_BYTES;
	}
	return rc;
}

/* In this order: whoever sees a line finds its event file, its collection and its document. */
static void group_publish(struct store *store, uint64_t events, uint64_t bytes)
{
	struct commit *c = &store->commit;

	sources_publish(store);
	if (documents_apply(store, c->changes, c->change_count, bytes) < 0)
		abort(); /* the log has it, the documents would lack it: only a replay is right */
	for (size_t i = 0; i < c->touched_count; i++)
		collection_publish(c->touched[i]);
	if (events) {
		atomic_store(&store->last_ms, c->commit_ms);
		atomic_fetch_add(&store->events, events);
		atomic_store(&store->last_sequence, c->next_sequence - 1);
	}
	for (size_t i = 0; i < c->touched_count; i++) {
		collection_publish_end(c->touched[i]);
		c->touched[i]->touched = false;
	}
	atomic_store(&store->end, c->position);
	overlay_clear(&c->overlay);
	atomic_fetch_add(&store->commits, 1);
	atomic_fetch_add(&store->written_events, events);
}

/* After a large group: its tools do not keep the room that it needed. */
static void shrink(struct commit *c)
{
	struct db_batch *fresh;

	if (db_batch_bytes(c->db_batch) < KEEP_BYTES || !(fresh = db_batch_new()))
		return;
	db_batch_free(c->db_batch);
	c->db_batch = fresh;
	block_builder_free(&c->block);
	buffer_free(&c->scratch);
	overlay_free(&c->overlay);
	free(c->changes);
	c->changes = NULL;
	c->change_count = c->change_capacity = 0;
}

static bool any_left(const struct waiter *list)
{
	while (list && list->rc < 0)
		list = list->next;
	return list != NULL;
}

void group_commit(struct store *store, struct waiter *list)
{
	struct commit *c = &store->commit;
	struct mark mark = {c->next_sequence, c->position, {c->next_record[0], c->next_record[1]}};
	struct error error = {""};
	int rc;

	rc = documents_wait_for_room(store);
	if (rc < 0)
		error_set(&error, rc, "the documents cannot be written to the disk");
	while (rc == 0 && (rc = group_make(store, list, &error)) == -EAGAIN) {
		group_revert(store, &mark);
		rc = 0;
	}
	if (rc == 0 && !any_left(list))
		return;
	if (rc == 0)
		rc = group_write(store, list, &error);
	if (rc == 0) {
		group_publish(store, c->next_sequence - mark.sequence, c->position - mark.position);
		shrink(c);
		return;
	}
	group_revert(store, &mark);
	for (struct waiter *w = list; w; w = w->next) {
		if (w->rc < 0)
			continue;
		w->rc = error_set(w->error, rc, "%s", error.text);
		w->committed = (struct store_committed){0};
	}
}
