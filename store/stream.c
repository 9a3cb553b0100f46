/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a stream by byte position, and finding a sequence's place in it. */
#include <errno.h>
#include <stdlib.h>

#include "store/internal.h"

/* A read of at least this size is a scan, which should not push other things out of the cache. */
#define SCAN_SIZE (64 << 10)
/* But a block that is so many times larger will be needed again for the next piece. */
#define LARGE 4

int stream_block(struct db_iterator *it, uint64_t sequence, struct block *ret_block,
		 struct error *error)
{
	struct key key = key_log(sequence);
	struct bytes k, v;

	db_iterator_seek(it, KEY_BYTES(key));
	int rc = db_iterator_get(it, &k, &v, error);
	if (rc <= 0)
		return rc < 0 ? rc : -ENOENT;
	rc = block_parse(v, ret_block, error);
	if (rc < 0)
		return rc;
	return ret_block->first <= sequence ? 0 : -ENOENT;
}

int index_entry_parse(struct bytes key, struct bytes value, struct index_entry *ret_entry,
		      struct error *error)
{
	if (key.n != KEY_INDEX_SIZE || value.n < INDEX_S_HEAD)
		return error_set(error, -EBADMSG, "an entry of the index is cut");
	*ret_entry = (struct index_entry){
		.first = get_be64(key.p + 5),
		.position = get_le64(value.p),
		.count = get_le32(value.p + 8),
		.bytes = get_le32(value.p + 12),
		.runs = {value.p + INDEX_S_HEAD, value.n - INDEX_S_HEAD},
	};
	return 0;
}

/* ---- where a sequence stands in a stream ---- */

/* The end of what is at or below a sequence, and the start of what is above it; between them is a
 * hole, or nothing. */
struct place {
	uint64_t behind;
	uint64_t ahead;
};

/* The position of the collection's next entry, where the iterator stands; else the stream's end. */
static int next_position(struct store *store, struct db_iterator *it, uint32_t collection,
			 uint64_t *ret_position, struct error *error)
{
	struct bytes k, v;
	uint64_t first = 0;
	struct index_entry entry = {0};

	int rc = db_iterator_get(it, &k, &v, error);
	if (rc < 0)
		return rc;
	if (rc == 0 || !key_index_read(k, 'S', collection, &first)) {
		*ret_position = store_stream_end(store, collection);
		return 0;
	}
	rc = index_entry_parse(k, v, &entry, error);
	if (rc == 0)
		*ret_position = entry.position;
	return rc;
}

/* The end of the last block whose events are all at or below the sequence; 0 if there is none. */
static int end_below(struct store *store, uint64_t sequence, uint64_t *ret_end, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_LOG, false);
	struct key key = key_log(sequence);
	struct bytes k, v;
	struct block b = {0};

	db_iterator_seek_back(it, KEY_BYTES(key));
	int rc = db_iterator_get(it, &k, &v, error);
	if (rc > 0)
		rc = block_parse(v, &b, error);
	*ret_end = rc == 0 && b.count ? block_end(&b) : 0;
	db_iterator_close(it);
	return rc;
}

static int place_in_log(struct store *store, uint64_t sequence, struct place *ret_place,
			struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_LOG, false);
	struct key key = key_log(sequence + 1);
	struct bytes k, v;
	struct block b = {0};

	db_iterator_seek(it, KEY_BYTES(key));
	int rc = db_iterator_get(it, &k, &v, error);
	if (rc > 0)
		rc = block_parse(v, &b, error);
	bool inside = rc == 0 && b.count && b.first <= sequence;
	if (inside)
		ret_place->ahead =
			b.position + block_line_offset(&b, (uint32_t)(sequence - b.first) + 1);
	else if (rc == 0)
		ret_place->ahead = b.count ? b.position : store_stream_end(store, 0);
	db_iterator_close(it);
	ret_place->behind = ret_place->ahead;
	/* Only in front of a block, and only where a gap is, there can be a hole. */
	return rc == 0 && !inside && store->gap_count
		       ? end_below(store, sequence, &ret_place->behind, error)
		       : rc;
}

/* Bytes of the collection's lines in a block up to `sequence`, and whether more follow. */
static size_t bytes_up_to(const struct block *b, uint32_t collection, uint64_t sequence,
			  bool *ret_more)
{
	size_t n = 0;

	*ret_more = false;
	for (uint32_t i = 0; i < b->count; i++) {
		struct store_event_info e = block_event(b, i);
		if (e.collection != collection)
			continue;
		if (e.sequence > sequence) {
			*ret_more = true;
			break;
		}
		n += e.length;
	}
	return n;
}

static int place_in_entry(struct store *store, const struct index_entry *entry, uint32_t collection,
			  uint64_t sequence, struct place *ret_place, bool *ret_more,
			  struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_LOG, false);
	struct block b = {0};

	int rc = stream_block(it, entry->first, &b, error);
	if (rc == 0)
		ret_place->behind = ret_place->ahead =
			entry->position + bytes_up_to(&b, collection, sequence, ret_more);
	db_iterator_close(it);
	return rc == -ENOENT ? error_set(error, -EBADMSG, "sequence %llu is missing in the log",
					 (unsigned long long)entry->first)
			     : rc;
}

static int place_in_collection(struct store *store, uint32_t collection, uint64_t sequence,
			       struct place *ret_place, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_INDEX, false);
	struct key key = key_index('S', collection, sequence);
	struct index_entry entry = {0};
	struct bytes k, v;
	uint64_t first = 0;
	bool more = false;

	db_iterator_seek_back(it, KEY_BYTES(key));
	int rc = db_iterator_get(it, &k, &v, error);
	if (rc > 0 && key_index_read(k, 'S', collection, &first)) {
		rc = index_entry_parse(k, v, &entry, error);
		if (rc == 0)
			rc = place_in_entry(store, &entry, collection, sequence, ret_place, &more,
					    error);
		db_iterator_next(it);
	} else if (rc >= 0) {
		ret_place->behind = 0;
		db_iterator_seek(it, KEY_BYTES(key));
		rc = 0;
	}
	if (rc == 0 && !more)
		rc = next_position(store, it, collection, &ret_place->ahead, error);
	db_iterator_close(it);
	return rc;
}

static int place_of(struct store *store, uint32_t collection, uint64_t sequence,
		    struct place *ret_place, struct error *error)
{
	uint64_t end = store_stream_end(store, collection);

	int rc = collection ? place_in_collection(store, collection, sequence, ret_place, error)
			    : place_in_log(store, sequence, ret_place, error);
	/* What was committed since is not asked for. */
	if (ret_place->ahead > end)
		ret_place->ahead = end;
	if (ret_place->behind > end)
		ret_place->behind = end;
	return rc;
}

int store_stream_seek(struct store *store, uint32_t collection, uint64_t sequence,
		      uint64_t *ret_position, struct error *error)
{
	struct place place = {0};
	uint64_t floor = store_floor(store);

	if (sequence < floor - 1)
		sequence = floor - 1;
	if (sequence == 0 && store->gap_count == 0) {
		*ret_position = 0;
		return 0;
	}
	int rc = place_of(store, collection, sequence, &place, error);
	if (rc == 0)
		*ret_position = place.ahead;
	return rc;
}

int store_stream_tell(struct store *store, uint32_t collection, uint64_t sequence,
		      uint64_t *ret_position, struct error *error)
{
	struct place place = {0};

	int rc = place_of(store, collection, sequence, &place, error);
	if (rc == 0)
		*ret_position = place.behind;
	return rc;
}

uint64_t store_stream_end(struct store *store, uint32_t collection)
{
	if (!collection)
		return atomic_load(&store->end);
	struct collection *c = collections_get(&store->collections, collection);
	return c ? atomic_load(&c->end) : 0;
}

int store_stream_stat(struct store *store, uint32_t collection, struct store_stream *ret_stream)
{
	struct store_stream s = {0};

	if (collection) {
		struct collection *c = collections_get(&store->collections, collection);
		if (!c)
			return -ENOENT;
		s.end = atomic_load(&c->end);
		s.events = atomic_load(&c->events);
		s.last_sequence = atomic_load(&c->last_sequence);
		s.last_ms = atomic_load(&c->last_ms);
	} else {
		s.end = atomic_load(&store->end);
		s.events = atomic_load(&store->events);
		s.last_sequence = atomic_load(&store->last_sequence);
		s.last_ms = atomic_load(&store->last_ms);
	}
	int rc = store_stream_seek(store, collection, store_floor(store) - 1, &s.base, NULL);
	if (s.base > s.end)
		s.end = s.base;
	*ret_stream = s;
	return rc;
}

/* ---- bytes by position ---- */

/* What a read has copied so far. */
struct copy {
	char *p;
	size_t size;
	size_t done;
	uint64_t position; /* of the next byte */
};

static void copy_some(struct copy *copy, const char *from, size_t n)
{
	size_t left = copy->size - copy->done;

	n = n < left ? n : left;
	memcpy(copy->p + copy->done, from, n);
	copy->done += n;
	copy->position += n;
}

/* Below the floor nothing is given any more, whatever is still on the disk. */
static int check_floor(struct store *store, uint64_t sequence)
{
	return sequence < store_floor(store) ? -ESTALE : 0;
}

/* The sequence of the line that byte `offset` of the block's lines belongs to. */
static uint64_t sequence_at(const struct block *b, size_t offset)
{
	uint32_t i = 0;

	for (size_t end = block_event(b, 0).length; i + 1 < b->count && end <= offset; i++)
		end += block_event(b, i + 1).length;
	return b->first + i;
}

static int copy_block(struct store *store, const struct block *b, struct copy *copy)
{
	if (copy->position < b->position || copy->position >= block_end(b))
		return 0; /* a hole */
	size_t offset = copy->position - b->position;
	if (!copy->done && b->first < store_floor(store)) {
		int rc = check_floor(store, sequence_at(b, offset));
		if (rc < 0)
			return rc;
	}
	copy_some(copy, b->lines.p + offset, b->lines.n - offset);
	return 1;
}

/* The block that a position of a stream lies in, and the position where the stream enters it. */
static int block_of_position(struct store *store, struct db_iterator *log, uint32_t collection,
			     uint64_t position, struct block *ret_block, uint64_t *ret_start,
			     struct error *error)
{
	struct db_iterator *index = db_iterator_open(store->db, DB_INDEX, false);
	struct key key = key_index('P', collection, position);
	struct bytes k, v;

	db_iterator_seek_back(index, KEY_BYTES(key));
	int rc = db_iterator_get(index, &k, &v, error);
	if (rc > 0 && key_index_read(k, 'P', collection, ret_start) && v.n == 8)
		rc = stream_block(log, get_le64(v.p), ret_block, error);
	else if (rc >= 0)
		rc = -ENOENT;
	db_iterator_close(index);
	return rc;
}

/* Reads a large block again, through the cache. */
static int keep_large(struct store *store, struct db_iterator **log, struct block *b,
		      const struct copy *copy, struct error *error)
{
	uint64_t first = b->first;

	if (copy->size < SCAN_SIZE || b->lines.n <= LARGE * copy->size)
		return 0;
	db_iterator_close(*log);
	*log = db_iterator_open(store->db, DB_LOG, false);
	return stream_block(*log, first, b, error);
}

static int read_log(struct store *store, struct copy *copy, struct error *error)
{
	struct db_iterator *log = db_iterator_open(store->db, DB_LOG, copy->size >= SCAN_SIZE);
	struct bytes k, v;
	struct block b = {0};
	uint64_t start = 0;

	int rc = block_of_position(store, log, 0, copy->position, &b, &start, error);
	if (rc == 0)
		rc = keep_large(store, &log, &b, copy, error);
	if (rc == -ENOENT)
		rc = error_set(error, -EBADMSG, "the log has no block for position %llu",
			       (unsigned long long)copy->position);
	while (rc == 0 && (rc = copy_block(store, &b, copy)) > 0 && copy->done < copy->size) {
		db_iterator_next(log);
		rc = db_iterator_get(log, &k, &v, error);
		if (rc <= 0)
			break;
		rc = block_parse(v, &b, error);
	}
	db_iterator_close(log);
	return rc < 0 ? rc : 0;
}

/* Copies the collection's lines from a block; `skip` bytes of them were read before. */
static int copy_collection(struct store *store, const struct block *b, uint32_t collection,
			   size_t skip, struct copy *copy)
{
	const char *line = b->lines.p;

	for (uint32_t i = 0; i < b->count && copy->done < copy->size; i++) {
		struct store_event_info e = block_event(b, i);
		size_t from = skip < e.length ? skip : e.length;
		if (e.collection == collection) {
			skip -= from;
			if (from < e.length && !copy->done && check_floor(store, e.sequence) < 0)
				return -ESTALE;
			copy_some(copy, line + from, e.length - from);
		}
		line += e.length;
	}
	return 0;
}

/* One block's part of a collection's stream: the entry's first sequence finds the block. */
static int read_entry(struct store *store, struct db_iterator **log, uint32_t collection,
		      uint64_t entry_position, struct bytes value, struct copy *copy,
		      struct error *error)
{
	struct block b = {0};
	size_t before = copy->done;

	if (value.n != 8)
		return error_set(error, -EBADMSG, "an entry of the index is cut");
	int rc = stream_block(*log, get_le64(value.p), &b, error);
	if (rc == 0)
		rc = keep_large(store, log, &b, copy, error);
	if (rc == 0)
		rc = copy_collection(store, &b, collection, copy->position - entry_position, copy);
	if (rc == -ENOENT || (rc == 0 && copy->done == before && !before))
		rc = error_set(error, -EBADMSG, "the log lacks sequence %llu",
			       (unsigned long long)get_le64(value.p));
	return rc;
}

static int read_collection(struct store *store, uint32_t collection, struct copy *copy,
			   struct error *error)
{
	bool scan = copy->size >= SCAN_SIZE;
	struct db_iterator *index = db_iterator_open(store->db, DB_INDEX, false);
	struct db_iterator *log = db_iterator_open(store->db, DB_LOG, scan);
	struct key key = key_index('P', collection, copy->position);
	struct bytes k, v;
	uint64_t at = 0;
	int rc;

	db_iterator_seek_back(index, KEY_BYTES(key));
	while ((rc = db_iterator_get(index, &k, &v, error)) > 0 && copy->done < copy->size) {
		if (!key_index_read(k, 'P', collection, &at) ||
		    (copy->done && at != copy->position))
			break; /* the end, or a hole */
		rc = read_entry(store, &log, collection, at, v, copy, error);
		if (rc < 0)
			break;
		db_iterator_next(index);
	}
	db_iterator_close(log);
	db_iterator_close(index);
	return rc < 0 ? rc : 0;
}

ssize_t store_stream_read(struct store *store, uint32_t collection, uint64_t position, char *p,
			  size_t size, struct error *error)
{
	uint64_t end = store_stream_end(store, collection);

	if (position >= end || !size)
		return 0;
	if (end - position < size)
		size = end - position;
	struct copy copy = {.p = p, .size = size, .position = position};
	int rc = collection ? read_collection(store, collection, &copy, error)
			    : read_log(store, &copy, error);
	if (rc < 0 && !copy.done)
		return rc;
	if (!copy.done)
		return error_set(error, -EBADMSG, "the stream has nothing at position %llu",
				 (unsigned long long)position);
	return (ssize_t)copy.done;
}

int store_stream_line(struct store *store, uint32_t collection, uint64_t position,
		      uint64_t *ret_next, struct buffer *text, struct error *error)
{
	struct db_iterator *log = db_iterator_open(store->db, DB_LOG, false);
	struct block b = {0};
	uint64_t at = 0;

	int rc = block_of_position(store, log, collection, position, &b, &at, error);
	const char *line = rc == 0 ? b.lines.p : NULL;
	for (uint32_t i = 0; rc == 0 && i < b.count; i++) {
		struct store_event_info e = block_event(&b, i);
		if (!collection || e.collection == collection) {
			*ret_next = e.sequence + (position > at);
			if (position < at + e.length) {
				size_t skip = position > at ? position - at : 0;
				rc = skip ? buffer_add(text, line + skip, e.length - skip) : 0;
				break;
			}
			at += e.length;
			*ret_next = e.sequence + 1;
		}
		line += e.length;
	}
	db_iterator_close(log);
	return rc;
}
