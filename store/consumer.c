/* SPDX-License-Identifier: Apache-2.0 */
/* The table of groups: made, found, removed, loaded and saved. */
#include "store/consumer.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "store/consumer_internal.h"

int64_t group_clock(const struct store *store)
{
	struct timespec t;

	if (store->clock_ms)
		return atomic_load(store->clock_ms);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t group_wall(const struct store *store)
{
	return store->clock_ms ? atomic_load(store->clock_ms) : clock_wall_ms();
}

void group_call_listener(struct store *store)
{
	if (store->listener)
		store->listener(store->listener_context);
}

/* ---- one group ---- */

struct group *group_new(struct store *store, uint32_t number, struct bytes name)
{
	struct group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->store = store;
	g->number = number;
	g->offset = store_floor(store) - 1;
	g->scan = g->offset + 1;
	g->next_delivery = 1;
	g->refilled = group_clock(store);
	g->tokens = 1;
	pthread_mutex_init(&g->mutex, NULL);
	group_config_defaults(&g->config);
	g->name = strndup(name.p, name.n);
	g->own = g->out = db_batch_new();
	if (!g->name || buffer_add_json_string(&g->quoted, name) < 0) {
		group_free(g);
		return NULL;
	}
	return g;
}

void group_free(struct group *g)
{
	if (!g)
		return;
	group_forget(g);
	heap_free(&g->ready);
	heap_free(&g->due);
	heap_free(&g->dying);
	store_group_config_free(&g->config);
	buffer_free(&g->quoted);
	buffer_free(&g->matches);
	buffer_free(&g->scratch);
	buffer_free(&g->line);
	buffer_free(&g->key);
	buffer_free(&g->block_bytes);
	db_batch_free(g->own);
	pthread_mutex_destroy(&g->mutex);
	free(g->name);
	free(g);
}

struct group *group_find(struct store *store, uint32_t number)
{
	struct groups *all = store->groups;

	pthread_rwlock_rdlock(&all->lock);
	struct group *g = number && number <= all->count ? all->by_number[number - 1] : NULL;
	pthread_rwlock_unlock(&all->lock);
	return g && !atomic_load(&g->gone) ? g : NULL;
}

struct group *group_lock(struct store *store, uint32_t number)
{
	struct group *g = group_find(store, number);

	if (!g)
		return NULL;
	pthread_mutex_lock(&g->mutex);
	if (!atomic_load(&g->gone))
		return g;
	pthread_mutex_unlock(&g->mutex);
	return NULL;
}

static void show(struct group *g)
{
	atomic_store(&g->seen_offset, g->offset);
	atomic_store(&g->seen_scan, g->scan);
	atomic_store(&g->seen_ready, g->ready.n + g->dying.n);
	atomic_store(&g->seen_window, g->window.n);
	atomic_store(&g->seen_due, g->due.n ? g->due.p[0]->due : INT64_MAX);
	atomic_store(&g->seen_in_flight, g->config.max_in_flight);
}

void group_unlock(struct group *g)
{
	show(g);
	pthread_mutex_unlock(&g->mutex);
}

int group_lead_start(struct group *g, struct error *error)
{
	struct db_batch *batch = commit_turn_start(g->store);

	pthread_mutex_lock(&g->mutex);
	int rc = atomic_load(&g->gone) ? error_set(error, -ENOENT, "the group was removed")
		 : g->broken	       ? -EBADMSG
				       : 0;
	/* What earlier changes left to be written later. */
	if (rc == 0)
		rc = group_write(g, error);
	if (rc < 0) {
		pthread_mutex_unlock(&g->mutex);
		commit_turn_end(g->store);
		return rc;
	}
	g->out = batch;
	memcpy(g->records, g->store->commit.next_record, sizeof(g->records));
	return 0;
}

int group_lead_end(struct group *g, int rc, bool touched, struct error *error)
{
	struct store *store = g->store;

	if (rc == 0) {
		group_put(g);
		rc = commit_write(store, false, error);
		g->dirty = rc < 0;
	}
	g->out = g->own;
	if (rc < 0)
		memcpy(store->commit.next_record, g->records, sizeof(g->records));
	if (rc < 0 && touched)
		group_reload(g);
	group_unlock(g);
	commit_turn_end(store);
	group_call_listener(store);
	return rc;
}

/* ---- the table ---- */

static int table_reserve(struct groups *all, uint32_t number)
{
	if (number <= all->capacity)
		return 0;
	uint32_t capacity = all->capacity ? all->capacity : 16;
	while (capacity < number)
		capacity *= 2;
	struct group **p = realloc(all->by_number, capacity * sizeof(struct group *));
	if (!p)
		return -ENOMEM;
	memset(p + all->capacity, 0, (capacity - all->capacity) * sizeof(struct group *));
	all->by_number = p;
	all->capacity = capacity;
	return 0;
}

/* Under groups.lock. */
static struct group *find_name(const struct groups *all, struct bytes name)
{
	for (uint32_t i = 0; i < all->count; i++) {
		struct group *g = all->by_number[i];
		if (g && !atomic_load(&g->gone) && bytes_equal(bytes_of(g->name), name))
			return g;
	}
	return NULL;
}

static int create(struct groups *all, struct store *store, struct bytes name, uint32_t *ret_group,
		  struct error *error)
{
	struct key next = key_meta('N');
	uint32_t number = all->count + 1;
	char value[4];

	if (find_name(all, name))
		return -EEXIST;
	if (table_reserve(all, number) < 0)
		return -ENOMEM;
	struct group *g = group_new(store, number, name);
	if (!g)
		return -ENOMEM;
	put_le32(value, number + 1);
	db_batch_put(store->db, g->out, DB_GROUPS, KEY_BYTES(next), (struct bytes){value, 4});
	int rc = group_room(g, 4096, error);
	if (rc == 0)
		rc = group_put_config(g);
	if (rc == 0) {
		group_put(g);
		rc = db_write(store->db, g->out, false, error);
		db_batch_clear(g->out);
	}
	if (rc < 0) {
		group_free(g);
		return rc;
	}
	atomic_fetch_add(&store->written, 1);
	show(g);
	all->by_number[number - 1] = g;
	all->count = number;
	*ret_group = number;
	return 0;
}

int store_group_create(struct store *store, struct bytes name, uint32_t *ret_group,
		       struct error *error)
{
	if (!name.n || name.n > STORE_NAME_MAX || memchr(name.p, 0, name.n) ||
	    !bytes_are_utf8(name))
		return error_set(error, -EINVAL, "a group's name must be UTF-8 of 1 to %d bytes",
				 STORE_NAME_MAX);
	pthread_rwlock_wrlock(&store->groups->lock);
	int rc = create(store->groups, store, name, ret_group, error);
	pthread_rwlock_unlock(&store->groups->lock);
	if (rc == 0)
		group_call_listener(store);
	return rc;
}

static int remove_locked(struct group *g, struct error *error)
{
	struct key config = key_group('G', g->number), offset = key_group('O', g->number);

	if (g->reader_count)
		return error_set(error, -EBUSY, "the group has %u readers", g->reader_count);
	int rc = g->broken ? 0 : group_room(g, 4096, error);
	if (rc < 0)
		return rc;
	db_batch_clear(g->out);
	group_delete_records(g, "LPR");
	db_batch_delete(g->store->db, g->out, DB_GROUPS, KEY_BYTES(config));
	db_batch_delete(g->store->db, g->out, DB_GROUPS, KEY_BYTES(offset));
	rc = db_write(g->store->db, g->out, false, error);
	db_batch_clear(g->out);
	if (rc < 0) {
		group_reload(g);
		return rc;
	}
	atomic_fetch_add(&g->store->written, 1);
	group_forget(g);
	buffer_free(&g->block_bytes);
	g->block.count = 0;
	g->dirty = false;
	atomic_store(&g->gone, true);
	return 0;
}

int store_group_remove(struct store *store, uint32_t group, struct error *error)
{
	struct group *g = group_lock(store, group);

	if (!g)
		return -ENOENT;
	int rc = remove_locked(g, error);
	group_unlock(g);
	if (rc == 0)
		group_call_listener(store);
	return rc;
}

int store_group_find(struct store *store, struct bytes name, uint32_t *ret_group)
{
	pthread_rwlock_rdlock(&store->groups->lock);
	struct group *g = find_name(store->groups, name);
	if (g)
		*ret_group = g->number;
	pthread_rwlock_unlock(&store->groups->lock);
	return g ? 0 : -ENOENT;
}

int store_group_next(struct store *store, uint32_t after, uint32_t *ret_group)
{
	struct groups *all = store->groups;
	int found = 0;

	pthread_rwlock_rdlock(&all->lock);
	for (uint32_t i = after; i < all->count && !found; i++) {
		found = all->by_number[i] && !atomic_load(&all->by_number[i]->gone);
		if (found)
			*ret_group = i + 1;
	}
	pthread_rwlock_unlock(&all->lock);
	return found;
}

int store_group_name(struct store *store, uint32_t group, struct buffer *ret_name)
{
	struct group *g = group_find(store, group);

	return g ? buffer_add_bytes(ret_name, bytes_of(g->name)) : -ENOENT;
}

int store_group_offset(struct store *store, uint32_t group, uint64_t *ret_offset)
{
	struct group *g = group_lock(store, group);

	if (!g)
		return -ENOENT;
	int rc = group_skip(g, GROUP_SKIP, NULL);
	*ret_offset = g->offset;
	group_unlock(g);
	return rc < 0 ? rc : 0;
}

uint64_t store_groups_low_water(struct store *store)
{
	struct groups *all = store->groups;
	uint64_t low = UINT64_MAX;

	pthread_rwlock_rdlock(&all->lock);
	for (uint32_t i = 0; i < all->count; i++) {
		struct group *g = all->by_number[i];
		uint64_t offset =
			g && !atomic_load(&g->gone) ? atomic_load(&g->seen_offset) : UINT64_MAX;
		low = offset < low ? offset : low;
	}
	pthread_rwlock_unlock(&all->lock);
	return low;
}

/* ---- load and save ---- */

static int load_group(struct store *store, uint32_t number, struct bytes value, struct error *error)
{
	struct groups *all = store->groups;

	if (!number || number > all->count)
		return error_set(error, -EBADMSG, "group %u is beyond their count", number);
	struct group *g = group_new(store, number, BYTES("?"));
	if (!g)
		return -ENOMEM;
	all->by_number[number - 1] = g;
	int rc = group_read_config(g, value, error);
	if (rc < 0)
		return rc;
	rc = group_load_state(g, error);
	if (rc == -EBADMSG) { /* the other groups go on */
		group_forget(g);
		g->broken = true;
		rc = 0;
	}
	show(g);
	return rc;
}

static int load_count(struct store *store, struct error *error)
{
	struct groups *all = store->groups;
	struct key key = key_meta('N');
	struct db_value v = {0};

	int rc = db_get(store->db, DB_GROUPS, KEY_BYTES(key), &v, error);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	all->count = v.bytes.n == 4 && get_le32(v.bytes.p) ? get_le32(v.bytes.p) - 1 : UINT32_MAX;
	db_value_free(&v);
	if (all->count > UINT32_MAX / 4)
		return error_set(error, -EBADMSG, "the count of groups is malformed");
	return table_reserve(all, all->count);
}

int groups_load(struct store *store, struct error *error)
{
	struct key from = key_meta('G');
	struct bytes k, v;

	store->groups = calloc(1, sizeof(*store->groups));
	if (!store->groups)
		return -ENOMEM;
	pthread_rwlock_init(&store->groups->lock, NULL);
	int rc = load_count(store, error);
	if (rc < 0)
		return rc;
	struct db_iterator *it = db_iterator_open(store->db, DB_GROUPS, false);
	db_iterator_seek(it, KEY_BYTES(from));
	while ((rc = db_iterator_get(it, &k, &v, error)) > 0 && k.p[0] == 'G' && k.n == 5) {
		rc = load_group(store, get_be32(k.p + 1), v, error);
		if (rc < 0)
			break;
		db_iterator_next(it);
	}
	db_iterator_close(it);
	return rc < 0 ? rc : 0;
}

int groups_flush(struct store *store)
{
	int rc = 0;

	for (uint32_t i = 0; i < store->groups->count; i++) {
		struct group *g = store->groups->by_number[i];
		if (!g)
			continue;
		pthread_mutex_lock(&g->mutex);
		if (g->dirty && group_room(g, 4096, NULL) == 0)
			rc = group_write(g, NULL);
		group_unlock(g);
	}
	return rc;
}

void groups_free(struct store *store)
{
	struct groups *all = store->groups;

	if (!all)
		return;
	for (uint32_t i = 0; i < all->count; i++)
		group_free(all->by_number[i]);
	pthread_rwlock_destroy(&all->lock);
	free(all->by_number);
	free(all);
	store->groups = NULL;
}
