/* SPDX-License-Identifier: Apache-2.0 */
/* The documents against the log, and the log against the documents. */
#include <errno.h>
#include <stdlib.h>

#include "store/check.h"

#define U(v) ((unsigned long long)(v))

/* ---- from the log to the documents ---- */

static uint64_t hash_of(uint32_t collection, struct bytes key)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ collection; /* FNV-1a, 64 bits */

	for (size_t i = 0; i < key.n; i++)
		h = (h ^ (unsigned char)key.p[i]) * UINT64_C(0x100000001b3);
	h ^= h >> 31;
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

/* Decodes the escapes that the store itself writes. */
static char unescape(const char **p)
{
	static const char from[] = "btnfr", to[] = "\b\t\n\f\r";
	char c = *++*p;
	const char *at = strchr(from, c);

	if (c == 'u') {
		char digits[3] = {(*p)[3], (*p)[4], 0};
		*p += 4;
		return (char)strtoul(digits, NULL, 16);
	}
	return at && c ? to[at - from] : c;
}

/* The key of a line, as the store writes lines. False if there is none. */
static bool key_of_line(struct check *c, struct bytes line)
{
	static const char member[] = "\",\"key\":\"";
	const char *p = memmem(line.p, line.n, member, sizeof(member) - 1);
	const char *end = line.p + line.n - 6; /* room for the longest escape */

	c->key.n = 0;
	if (!p)
		return false;
	for (p += sizeof(member) - 1; p < end && *p != '"'; p++) {
		char byte = *p == '\\' ? unescape(&p) : *p;
		if (buffer_add(&c->key, &byte, 1) < 0)
			return false;
	}
	return p < end;
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
	static const char partial[] = "\"partial\":true";
	struct store_document d = {0};
	struct error error = {""};

	if (e->type == STORE_TRUNCATE && e->collection <= c->collections)
		truncate_collection(c, e);
	if ((e->type != STORE_PUT && e->type != STORE_DELETE) || !key_of_line(c, line))
		return;
	if (e->type == STORE_PUT && memmem(line.p, line.n, partial, sizeof(partial) - 1))
		return; /* recorded, but no whole document */
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

/* The line of a PUT has to hold the document as its value: it is rendered again and compared. */
static bool line_shows(struct bytes line, struct bytes text, bool base64, struct buffer *scratch)
{
	scratch->n = 0;
	if (buffer_add(scratch, ",\"value\":", 9) < 0 ||
	    line_render_text(scratch, text, base64) < 0)
		return true;
	return memmem(line.p, line.n, scratch->p, scratch->n) != NULL;
}

static void check_document(struct check *c, uint32_t collection, struct bytes key,
			   struct bytes value, struct buffer *line, struct buffer *scratch)
{
	uint64_t sequence = get_le64(value.p);
	struct bytes text = {value.p + STATE_VALUE_HEAD, value.n - STATE_VALUE_HEAD};
	struct store_event_info e;

	if (sequence >= c->store->commit.next_sequence)
		check_fault(c, "document %.*s is of sequence %llu, which there is not yet",
			    (int)key.n, key.p, U(sequence));
	if (sequence < c->tallies[collection].truncated)
		check_fault(c, "document %.*s is older than the TRUNCATE of its collection",
			    (int)key.n, key.p);
	if (sequence < store_floor(c->store))
		return;
	line->n = 0;
	if (store_event_get(c->store, sequence, &e, line, NULL) < 0) {
		check_fault(c, "document %.*s is of sequence %llu, which the log lacks", (int)key.n,
			    key.p, U(sequence));
		return;
	}
	scratch->n = 0;
	if (buffer_add(scratch, ",\"key\":", 7) < 0 || buffer_add_json_string(scratch, key) < 0)
		return;
	if (e.type != STORE_PUT || e.collection != collection ||
	    !memmem(line->p, line->n, scratch->p, scratch->n))
		check_fault(c, "document %.*s is of sequence %llu, which is no PUT of it",
			    (int)key.n, key.p, U(sequence));
	else if (!line_shows(buffer_bytes(line), text, false, scratch) &&
		 !line_shows(buffer_bytes(line), text, true, scratch))
		check_fault(c, "document %.*s differs from sequence %llu, which wrote it",
			    (int)key.n, key.p, U(sequence));
}

void check_documents(struct check *c)
{
	struct db_iterator *it = db_iterator_open(c->store->db, DB_STATE, true);
	_cleanup_(buffer_free) struct buffer line = {0}, scratch = {0};
	char key[STORE_KEY_MAX];
	struct error error = {""};
	struct bytes k, v;
	uint64_t version;
	uint32_t collection;
	size_t n;
	int rc;

	db_iterator_seek(it, BYTES(""));
	for (; (rc = db_iterator_get(it, &k, &v, &error)) > 0; db_iterator_next(it)) {
		if (!key_state_read(k, &collection, key, &n, &version) || v.n < STATE_VALUE_HEAD ||
		    collection < 1 || collection > c->collections)
			check_fault(c, "a document has a malformed record");
		else if (version == 0)
			check_document(c, collection, (struct bytes){key, n}, v, &line, &scratch);
	}
	if (rc < 0)
		check_fault(c, "%s", error.text);
	db_iterator_close(it);
}
