/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "store/internal.h"

#define RECORD_SIZE 24

static int source_key(struct bytes name, struct buffer *ret_key)
{
	ret_key->n = 0;
	return buffer_add(ret_key, "S", 1) < 0 || buffer_add_bytes(ret_key, name) < 0 ? -ENOMEM : 0;
}

/* Where the source stands in the ordered list, or where it belongs. */
static struct source **find(struct store *store, struct bytes name)
{
	struct source **at = &store->sources;

	for (; *at; at = &(*at)->next) {
		struct bytes other = bytes_of((*at)->name);
		size_t n = other.n < name.n ? other.n : name.n;
		int order = memcmp(other.p, name.p, n);
		if (order > 0 || (order == 0 && other.n >= name.n))
			break;
	}
	return at;
}

static bool is_named(const struct source *s, struct bytes name)
{
	return s && bytes_equal(bytes_of(s->name), name);
}

static struct source *insert(struct source **at, struct bytes name)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->name = strndup(name.p, name.n);
	if (!s->name) {
		free(s);
		return NULL;
	}
	s->next = *at;
	*at = s;
	return s;
}

static void pending_reset(struct source *s)
{
	s->pending.position = s->position;
	s->pending.time_us = s->time_us;
	s->pending.events = s->events;
	s->pending.skipped = s->skipped;
	s->pending.known = s->known;
}

int sources_load(struct store *store, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_META, false);
	struct key from = key_meta('S');
	struct bytes key, value;
	int rc;

	db_iterator_seek(it, KEY_BYTES(from));
	while ((rc = db_iterator_get(it, &key, &value, error)) > 0 && key.p[0] == 'S') {
		struct bytes name = {key.p + 1, key.n - 1};
		if (value.n != RECORD_SIZE) {
			rc = error_set(error, -EBADMSG, "the record of a source is malformed");
			break;
		}
		struct source *s = insert(find(store, name), name);
		if (!s) {
			rc = -ENOMEM;
			break;
		}
		s->position = get_le64(value.p);
		s->time_us = (int64_t)get_le64(value.p + 8);
		s->events = get_le64(value.p + 16);
		s->known = true;
		pending_reset(s);
		db_iterator_next(it);
	}
	db_iterator_close(it);
	return rc < 0 ? rc : 0;
}

void sources_free(struct store *store)
{
	while (store->sources) {
		struct source *s = store->sources;
		store->sources = s->next;
		free(s->name);
		free(s);
	}
}

/*
 * Positions rise within one server. The newest time that was seen is kept, not the last one's:
 * commit times are taken before the commit is written, so neighbours may stand in the other order.
 */
static enum source_verdict judge(struct source *s, uint64_t position, int64_t time_us)
{
	if (s->pending.known && position <= s->pending.position) {
		if (time_us > s->pending.time_us)
			return SOURCE_OTHER_SERVER;
		s->pending.skipped++;
		return SOURCE_SEEN;
	}
	s->pending.known = true;
	s->pending.position = position;
	if (time_us > s->pending.time_us)
		s->pending.time_us = time_us;
	return SOURCE_NEW;
}

int source_judge(struct store *store, struct bytes name, struct transaction *t)
{
	pthread_mutex_lock(&store->settings_mutex);
	struct source **at = find(store, name);
	struct source *s = is_named(*at, name) ? *at : insert(at, name);
	if (s)
		t->verdict = judge(s, t->position, t->time_us);
	pthread_mutex_unlock(&store->settings_mutex);
	return s ? 0 : -ENOMEM;
}

int source_put(struct store *store, struct db_batch *batch, struct bytes name, uint64_t events)
{
	_cleanup_(buffer_free) struct buffer key = {0};
	char value[RECORD_SIZE];

	if (source_key(name, &key) < 0)
		return -ENOMEM;
	pthread_mutex_lock(&store->settings_mutex);
	struct source *s = *find(store, name);
	assert(s); /* source_judge() made it */
	s->pending.events += events;
	put_le64(value, s->pending.position);
	put_le64(value + 8, (uint64_t)s->pending.time_us);
	put_le64(value + 16, s->pending.events);
	pthread_mutex_unlock(&store->settings_mutex);
	db_batch_put(store->db, batch, DB_META, buffer_bytes(&key),
		     (struct bytes){value, RECORD_SIZE});
	return 0;
}

void sources_publish(struct store *store)
{
	pthread_mutex_lock(&store->settings_mutex);
	for (struct source *s = store->sources; s; s = s->next) {
		s->position = s->pending.position;
		s->time_us = s->pending.time_us;
		s->events = s->pending.events;
		s->skipped = s->pending.skipped;
		s->known = s->pending.known;
	}
	pthread_mutex_unlock(&store->settings_mutex);
}

void sources_revert(struct store *store)
{
	pthread_mutex_lock(&store->settings_mutex);
	for (struct source *s = store->sources; s; s = s->next)
		pending_reset(s);
	pthread_mutex_unlock(&store->settings_mutex);
}

int store_source_each(struct store *store,
		      int (*each)(void *context, const struct store_source *source), void *context)
{
	int rc = 0;

	pthread_mutex_lock(&store->settings_mutex);
	for (struct source *s = store->sources; s && rc == 0; s = s->next) {
		if (!s->known)
			continue;
		struct store_source source = {bytes_of(s->name), s->position, s->time_us, s->events,
					      s->skipped};
		rc = each(context, &source);
	}
	pthread_mutex_unlock(&store->settings_mutex);
	return rc;
}

static int put_forgetting(struct store *store, struct bytes name, struct db_batch *batch,
			  struct error *error)
{
	_cleanup_(buffer_free) struct buffer key = {0};
	_cleanup_(buffer_free) struct buffer details = {0};

	pthread_mutex_lock(&store->settings_mutex);
	struct source *s = *find(store, name);
	bool known = is_named(s, name) && s->known;
	uint64_t position = known ? s->position : 0;
	pthread_mutex_unlock(&store->settings_mutex);
	if (!known)
		return error_set(error, -ENOENT, "there is no source %.*s", (int)name.n, name.p);
	if (source_key(name, &key) < 0 || buffer_printf(&details, "{\"connector\":") < 0 ||
	    buffer_add_json_string(&details, name) < 0 ||
	    buffer_printf(&details,
			  ",\"command\":\"forget\",\"direction\":\"backward\","
			  "\"previous_offset\":\"%llu\",\"new_offset\":\"none\","
			  "\"outcome\":\"applied\"}",
			  (unsigned long long)position) < 0)
		return -ENOMEM;
	db_batch_delete(store->db, batch, DB_META, buffer_bytes(&key));
	return record_put_ops(store, batch, "offsets-set", buffer_bytes(&details));
}

int store_sources_forget(struct store *store, const struct bytes *names, size_t count,
			 struct error *error)
{
	struct db_batch *batch = commit_turn_start(store);
	uint64_t record = store->commit.next_record[STORE_OPS_EVENT];
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++)
		rc = put_forgetting(store, names[i], batch, error);
	if (rc == 0)
		rc = commit_write(store, true, error);
	if (rc < 0)
		store->commit.next_record[STORE_OPS_EVENT] = record;
	pthread_mutex_lock(&store->settings_mutex);
	for (size_t i = 0; i < count && rc == 0; i++) {
		struct source *s = *find(store, names[i]);
		assert(s);
		s->known = false;
		s->position = s->events = s->skipped = 0;
		s->time_us = 0;
		pending_reset(s);
	}
	pthread_mutex_unlock(&store->settings_mutex);
	commit_turn_end(store);
	if (rc == 0 && store->listener)
		store->listener(store->listener_context);
	return rc;
}
