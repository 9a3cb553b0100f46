/* SPDX-License-Identifier: Apache-2.0 */
/* The floor below which nothing is retained, the gaps, and the numbers of what is there. */
#include <errno.h>
#include <sys/statvfs.h>

#include "store/internal.h"

/* ---- the floor and the gaps ---- */

uint64_t store_floor(struct store *store)
{
	return atomic_load(&store->floor);
}

uint64_t store_last_sequence(struct store *store)
{
	return atomic_load(&store->last_sequence);
}

const struct store_gap *store_gaps(struct store *store, size_t *ret_count)
{
	*ret_count = store->gap_count;
	return store->gaps;
}

/* ---- numbers ---- */

/* Bytes of the log's positions from there on that no line has. */
static uint64_t holes_behind(struct store *store, uint64_t position)
{
	uint64_t behind, ahead, bytes = 0;

	for (size_t i = 0; i < store->gap_count; i++)
		if (store_stream_tell(store, 0, store->gaps[i].from - 1, &behind, NULL) == 0 &&
		    store_stream_seek(store, 0, store->gaps[i].to, &ahead, NULL) == 0 &&
		    ahead > position)
			bytes += ahead - (behind > position ? behind : position);
	return bytes;
}

/* The floor's, unless that lies in a gap. */
static uint64_t first_sequence(struct store *store)
{
	uint64_t first = store_floor(store);

	for (size_t i = 0; i < store->gap_count; i++)
		if (store->gaps[i].from <= first && first <= store->gaps[i].to)
			first = store->gaps[i].to + 1;
	return first;
}

/* Numbers of the events from the floor up to what is to be the next one. */
static int put_trimming(struct store *store, struct db_batch *batch, uint64_t sequence,
			const char *rule, struct error *error)
{
	uint64_t from = first_sequence(store), base = 0, end = 0, events = sequence - from;
	_cleanup_(buffer_free) struct buffer details = {0};

	if (from >= sequence)
		return 0; /* only a gap */
	for (size_t i = 0; i < store->gap_count; i++) {
		const struct store_gap *gap = &store->gaps[i];
		if (gap->from >= from && gap->from < sequence)
			events -= (gap->to < sequence ? gap->to + 1 : sequence) - gap->from;
	}
	int rc = store_stream_seek(store, 0, from - 1, &base, error);
	if (rc == 0)
		rc = store_stream_seek(store, 0, sequence - 1, &end, error);
	if (rc == 0)
		rc = buffer_printf(&details,
				   "{\"from_sequence\":\"%llu\",\"to_sequence\":\"%llu\","
				   "\"events\":\"%llu\",\"bytes\":\"%llu\",\"rule\":\"%s\"}",
				   (unsigned long long)from, (unsigned long long)sequence - 1,
				   (unsigned long long)events,
				   (unsigned long long)(end - base -
							(holes_behind(store, base) -
							 holes_behind(store, end))),
				   rule);
	return rc < 0 ? rc
		      : record_put_ops(store, batch, "retention-trimmed", buffer_bytes(&details));
}

int store_floor_set(struct store *store, uint64_t sequence, const char *rule, struct error *error)
{
	struct db_batch *batch = commit_turn_start(store);
	uint64_t record = store->commit.next_record[STORE_OPS_EVENT];
	bool higher = sequence > store_floor(store);
	char value[8];
	int rc = 0;

	if (sequence > store->commit.next_sequence)
		rc = error_set(error, -EINVAL, "sequence %llu is beyond the end, %llu",
			       (unsigned long long)sequence,
			       (unsigned long long)store->commit.next_sequence - 1);
	if (rc == 0 && higher && rule)
		rc = put_trimming(store, batch, sequence, rule, error);
	if (rc == 0 && higher) {
		put_le64(value, sequence);
		struct key key = key_meta('L');
		db_batch_put(store->db, batch, DB_META, KEY_BYTES(key), (struct bytes){value, 8});
		rc = commit_write(store, true, error);
	}
	if (rc == 0 && higher)
		atomic_store(&store->floor, sequence);
	else
		store->commit.next_record[STORE_OPS_EVENT] = record;
	commit_turn_end(store);
	if (rc == 0 && higher && store->listener)
		store->listener(store->listener_context);
	return rc;
}

int store_stats_get(struct store *store, struct store_stats *ret_stats)
{
	struct store_stream stream;

	int rc = store_stream_stat(store, 0, &stream);
	if (rc < 0)
		return rc;
	*ret_stats = (struct store_stats){
		.created_ms = store->created_ms,
		.last_end = store->last_end,
		.last_sequence = stream.last_sequence,
		.log_bytes = stream.end - stream.base - holes_behind(store, stream.base),
		.disk_bytes = db_disk_bytes(store->db),
		.commits = atomic_load(&store->commits),
		.events = atomic_load(&store->written_events),
		.syncs = atomic_load(&store->syncs),
	};
	memcpy(ret_stats->identity, store->identity, sizeof(ret_stats->identity));
	if (ret_stats->log_bytes)
		ret_stats->first_sequence = first_sequence(store);
	return 0;
}

int store_room(struct store *store, uint64_t *ret_used, uint64_t *ret_free)
{
	struct statvfs fs;

	if (statvfs(store->path, &fs) < 0)
		return -errno;
	*ret_used = db_disk_bytes(store->db);
	*ret_free = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}
