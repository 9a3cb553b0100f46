/* SPDX-License-Identifier: Apache-2.0 */
/* The documents against the log, and the log against the documents. */
#include <errno.h>
#include <stdlib.h>

#include "store/check.h"

#define U(v) ((unsigned long long)(v))

/* ---- from the log to the documents ---- */

static uint64_t hash_of(uint32_t collection, struct bytes key)
{
	uint64_t h = document_hash(collection, key);

	return h ? h : 1;
}

static struct orphan *slot_of(struct check *c, uint64_t hash)
{
	size_t i = hash & (c->orphan_slots - 1);

	while (c->orphans[i].hash && c->orphans[i].hash != hash)
		i = (i + 1) & (c->orphan_slots - 1);
	return &c->orphans[i];
}

/* Twice the slots; what was adopted since (sequence 0) is dropped on the way. */
static bool grow(struct check *c)
{
	size_t slots = c->orphan_slots;
	struct orphan *old = c->orphans;

	c->orphan_slots = slots ? slots * 2 : 1024;
	c->orphans = calloc(c->orphan_slots, sizeof(*c->orphans));
	if (!c->orphans) {
		c->orphans = old;
		c->orphan_slots = slots;
		return false;
	}
	c->orphan_count = 0;
	for (size_t i = 0; i < slots; i++) {
		if (!old[i].sequence)
			continue;
		*slot_of(c, old[i].hash) = old[i];
		c->orphan_count++;
	}
	free(old);
	return true;
}

static void set_orphan(struct check *c, uint64_t hash, uint32_t collection, uint64_t sequence)
{
	if (c->orphan_count * 2 >= c->orphan_slots && !grow(c))
		return;
	struct orphan *o = slot_of(c, hash);
	c->orphan_count += !o->hash;
	*o = (struct orphan){hash, sequence, collection};
}

static void adopt(struct check *c, uint64_t hash)
{
	struct orphan *o = c->orphan_slots ? slot_of(c, hash) : NULL;

	if (o && o->hash)
		o->sequence = 0;
}

static void truncate_collection(struct check *c, const struct store_event_info *e)
{
	c->tallies[e->collection].truncated = e->sequence;
	for (size_t i = 0; i < c->orphan_slots; i++)
		if (c->orphans[i].collection == e->collection)
			c->orphans[i].sequence = 0;
}

void check_event_document(struct check *c, const struct store_event_info *e, struct bytes line)
{
	struct store_document d = {0};
	struct error error = {""};

	if (e->type == STORE_TRUNCATE && !(e->flags & BLOCK_FLAG_PARTIAL) &&
	    e->collection <= c->collections)
		truncate_collection(c, e);
	if ((e->type != STORE_PUT && e->type != STORE_DELETE) || (e->flags & BLOCK_FLAG_PARTIAL))
		return;
	if (line_read(line, e->flags & BLOCK_FLAG_BASE64, &c->key, &c->text) < 0) {
		check_fault(c, "the line of sequence %llu cannot be read", U(e->sequence));
		return;
	}
	struct bytes key = buffer_bytes(&c->key);
	uint64_t hash = hash_of(e->collection, key);
	int rc = store_document_get(c->store, e->collection, key, &d, NULL, &error);
	if (rc < 0 && rc != -ENOENT)
		check_fault(c, "document %.*s: %s", (int)key.n, key.p, error.text);
	else if (e->type == STORE_DELETE && rc == 0 && d.sequence < e->sequence)
		check_fault(c, "document %.*s is there, though sequence %llu deleted it",
			    (int)key.n, key.p, U(e->sequence));
	else if (e->type == STORE_DELETE || (rc == 0 && d.sequence >= e->sequence))
		adopt(c, hash);
	else if (rc == 0)
		check_fault(c, "document %.*s is of sequence %llu, though %llu wrote it later",
			    (int)key.n, key.p, U(d.sequence), U(e->sequence));
	else
		set_orphan(c, hash, e->collection, e->sequence);
}

void check_orphans(struct check *c)
{
	for (size_t i = 0; i < c->orphan_slots; i++)
		if (c->orphans[i].sequence)
			check_fault(c, "the document that sequence %llu wrote is missing",
				    U(c->orphans[i].sequence));
}

/* ---- from the documents to the log ---- */

/* What is said of the newest version of a document. */
static void check_document(struct check *c, const struct table_entry *d)
{
	struct store_event_info e;
	int n = (int)d->key.n;

	if (d->sequence >= c->store->commit.next_sequence)
		check_fault(c, "document %.*s is of sequence %llu, which there is not yet", n,
			    d->key.p, U(d->sequence));
	if (d->sequence < c->tallies[d->collection].truncated)
		check_fault(c, "document %.*s is older than the TRUNCATE of its collection", n,
			    d->key.p);
	if (d->sequence < store_floor(c->store))
		return;
	c->line.n = 0;
	if (store_event_get(c->store, d->sequence, &e, &c->line, NULL) < 0)
		check_fault(c, "document %.*s is of sequence %llu, which the log lacks", n,
			    d->key.p, U(d->sequence));
	else if (e.type != STORE_PUT || e.collection != d->collection ||
		 line_read(buffer_bytes(&c->line), e.flags & BLOCK_FLAG_BASE64, &c->key, &c->text) <
			 0 ||
		 !bytes_equal(buffer_bytes(&c->key), d->key))
		check_fault(c, "document %.*s is of sequence %llu, which is no PUT of it", n,
			    d->key.p, U(d->sequence));
	else if (!bytes_equal(buffer_bytes(&c->text), d->text))
		check_fault(c, "document %.*s differs from sequence %llu, which wrote it", n,
			    d->key.p, U(d->sequence));
}

/* A record of family state, unless a change in memory is newer. */
static void check_record(struct check *c, struct bytes k, struct bytes v)
{
	char key[STORE_KEY_MAX];
	struct table_entry d = {0}, newer;
	uint64_t version;

	d.key.p = key;
	if (!key_state_read(k, &d.collection, key, &d.key.n, &version) || v.n < STATE_VALUE_HEAD ||
	    d.collection < 1 || d.collection > c->collections) {
		check_fault(c, "a document has a malformed record");
		return;
	}
	if (version || documents_find(c->store, d.collection, d.key, &newer))
		return;
	d.sequence = get_le64(v.p);
	d.text = (struct bytes){v.p + STATE_VALUE_HEAD, v.n - STATE_VALUE_HEAD};
	check_document(c, &d);
}

void check_documents(struct check *c)
{
	struct db_iterator *it = db_iterator_open(c->store->db, DB_STATE, true);
	const struct table *table = c->store->documents.active;
	struct error error = {""};
	struct bytes k, v;
	int rc;

	db_iterator_seek(it, BYTES(""));
	for (; (rc = db_iterator_get(it, &k, &v, &error)) > 0; db_iterator_next(it))
		check_record(c, k, v);
	if (rc < 0)
		check_fault(c, "%s", error.text);
	db_iterator_close(it);
	for (size_t i = 0; i < table->count; i++)
		if (table->entries[i].text.p)
			check_document(c, &table->entries[i]);
}
