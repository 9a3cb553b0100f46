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
enum source_verdict source_judge(struct store *store, struct bytes name, uint64_t position,
				 int64_t time_us)
{
	enum source_verdict verdict = SOURCE_NEW;

	pthread_mutex_lock(&store->settings_mutex);
	struct source *s = *find(store, name);
	if (is_named(s, name) && s->known && position <= s->position)
		verdict = time_us > s->time_us ? SOURCE_OTHER_SERVER : SOURCE_SEEN;
	pthread_mutex_unlock(&store->settings_mutex);
	return verdict;
}

int source_put(struct store *store, struct db_batch *batch, struct bytes name, uint64_t position,
	       int64_t time_us, uint64_t events)
{
	_cleanup_(buffer_free) struct buffer key = {0};
	char value[RECORD_SIZE];

	pthread_mutex_lock(&store->settings_mutex);
	struct source **at = find(store, name);
	struct source *s = is_named(*at, name) ? *at : insert(at, name);
	if (s) {
		put_le64(value, position);
		put_le64(value + 8, (uint64_t)(time_us > s->time_us ? time_us : s->time_us));
		put_le64(value + 16, s->events + events);
	}
	pthread_mutex_unlock(&store->settings_mutex);
	if (!s || source_key(name, &key) < 0)
		return -ENOMEM;
	db_batch_put(store->db, batch, DB_META, buffer_bytes(&key),
		     (struct bytes){value, RECORD_SIZE});
	return 0;
}

void source_publish(struct store *store, struct bytes name, uint64_t position, int64_t time_us,
		    uint64_t events)
{
	pthread_mutex_lock(&store->settings_mutex);
	struct source *s = *find(store, name);
	assert(s); /* source_put() made it */
	s->position = position;
	s->time_us = time_us > s->time_us ? time_us : s->time_us;
	s->events += events;
	s->known = true;
	pthread_mutex_unlock(&store->settings_mutex);
}

void source_count_skipped(struct store *store, struct bytes name)
{
	pthread_mutex_lock(&store->settings_mutex);
	struct source *s = *find(store, name);
	if (is_named(s, name))
		s->skipped++;
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
	}
	pthread_mutex_unlock(&store->settings_mutex);
	commit_turn_end(store);
	return rc;
}
