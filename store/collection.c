/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "store/internal.h"

#define RECORD_HEAD 40

int collections_init(struct collections *c)
{
	c->bucket_count = 256;
	c->buckets = calloc(c->bucket_count, sizeof(*c->buckets));
	if (!c->buckets)
		return -ENOMEM;
	return -pthread_rwlock_init(&c->lock, NULL);
}

static void collection_free(struct collection *it)
{
	free(it->name);
	buffer_free(&it->runs);
	free(it);
}

void collections_free(struct collections *c)
{
	for (uint32_t i = 0; i < c->count; i++)
		collection_free(c->by_id[i]);
	free(c->by_id);
	free(c->buckets);
	if (c->buckets)
		pthread_rwlock_destroy(&c->lock);
	*c = (struct collections){0};
}

static uint32_t hash_name(struct bytes name)
{
	uint32_t h = 0x811c9dc5; /* FNV-1a, 32 bits */

	for (size_t i = 0; i < name.n; i++)
		h = (h ^ (unsigned char)name.p[i]) * 0x01000193;
	return h ^ h >> 15;
}

static struct collection *find(struct collections *c, struct bytes name)
{
	struct collection *it = c->buckets[hash_name(name) & (c->bucket_count - 1)];

	while (it && !bytes_equal((struct bytes){it->name, it->name_size}, name))
		it = it->next_in_bucket;
	return it;
}

static void link_in(struct collections *c, struct collection *it)
{
	struct bytes name = {it->name, it->name_size};
	struct collection **bucket = &c->buckets[hash_name(name) & (c->bucket_count - 1)];

	it->next_in_bucket = *bucket;
	*bucket = it;
}

/* Many collections: twice the buckets. Without memory the chains just grow. */
static void spread(struct collections *c)
{
	struct collection **more = calloc((size_t)c->bucket_count * 2, sizeof(*more));

	if (!more)
		return;
	free(c->buckets);
	c->buckets = more;
	c->bucket_count *= 2;
	for (uint32_t i = 0; i < c->count; i++)
		link_in(c, c->by_id[i]);
}

static struct collection *add(struct collections *c, struct bytes name)
{
	if (c->count == c->capacity) {
		uint32_t capacity = c->capacity ? c->capacity * 2 : 64;
		struct collection **by_id = realloc(c->by_id, capacity * sizeof(*by_id));
		if (!by_id)
			return NULL;
		c->by_id = by_id;
		c->capacity = capacity;
	}
	struct collection *it = calloc(1, sizeof(*it));
	char *copy = malloc(name.n);
	if (!it || !copy) {
		free(it);
		free(copy);
		return NULL;
	}
	memcpy(copy, name.p, name.n);
	it->name = copy;
	it->name_size = name.n;
	it->id = c->count + 1;
	c->by_id[c->count++] = it;
	link_in(c, it);
	if (c->count > c->bucket_count)
		spread(c);
	return it;
}

struct collection *collections_intern(struct collections *c, struct bytes name)
{
	struct collection *it = find(c, name); /* only the leader changes the table */

	if (it)
		return it;
	pthread_rwlock_wrlock(&c->lock);
	it = add(c, name);
	pthread_rwlock_unlock(&c->lock);
	return it;
}

/* Readers cannot hold one: they are given none that is not visible. */
void collections_drop_invisible(struct collections *c)
{
	while (c->count && !atomic_load(&c->by_id[c->count - 1]->visible)) {
		pthread_rwlock_wrlock(&c->lock);
		struct collection *it = c->by_id[--c->count];
		struct bytes name = {it->name, it->name_size};
		struct collection **at = &c->buckets[hash_name(name) & (c->bucket_count - 1)];
		while (*at != it)
			at = &(*at)->next_in_bucket;
		*at = it->next_in_bucket;
		pthread_rwlock_unlock(&c->lock);
		collection_free(it);
	}
}

struct collection *collections_get(struct collections *c, uint32_t id)
{
	struct collection *it = NULL;

	pthread_rwlock_rdlock(&c->lock);
	if (id >= 1 && id <= c->count && atomic_load(&c->by_id[id - 1]->visible))
		it = c->by_id[id - 1];
	pthread_rwlock_unlock(&c->lock);
	return it;
}

void collection_put(struct store *store, struct db_batch *batch, const struct collection *c)
{
	char head[RECORD_HEAD];
	struct key key = key_meta_collection(c->id);

	put_le64(head, c->pending.position);
	put_le64(head + 8, c->pending.events);
	put_le64(head + 16, c->pending.last_sequence);
	put_le64(head + 24, (uint64_t)c->pending.last_ms);
	put_le64(head + 32, (uint64_t)atomic_load(&c->created_ms));
	db_batch_put2(store->db, batch, DB_META, KEY_BYTES(key), (struct bytes){head, RECORD_HEAD},
		      (struct bytes){c->name, c->name_size});
}

void collection_publish(struct collection *c)
{
	atomic_store(&c->events, c->pending.events);
	atomic_store(&c->last_sequence, c->pending.last_sequence);
	atomic_store(&c->last_ms, c->pending.last_ms);
	atomic_store(&c->visible, true);
}

void collection_publish_end(struct collection *c)
{
	atomic_store(&c->end, c->pending.position);
}

void collection_revert(struct collection *c)
{
	c->pending.position = atomic_load(&c->end);
	c->pending.events = atomic_load(&c->events);
	c->pending.last_sequence = atomic_load(&c->last_sequence);
	c->pending.last_ms = atomic_load(&c->last_ms);
}

static int load_one(struct store *store, struct bytes key, struct bytes value, struct error *error)
{
	struct collections *c = &store->collections;

	if (key.n != 5 || value.n <= RECORD_HEAD || get_be32(key.p + 1) != c->count + 1)
		return error_set(error, -EBADMSG, "the records of collections have a hole at %u",
				 c->count + 1);
	struct collection *it =
		add(c, (struct bytes){value.p + RECORD_HEAD, value.n - RECORD_HEAD});
	if (!it)
		return -ENOMEM;
	it->pending.position = get_le64(value.p);
	it->pending.events = get_le64(value.p + 8);
	it->pending.last_sequence = get_le64(value.p + 16);
	it->pending.last_ms = (int64_t)get_le64(value.p + 24);
	atomic_store(&it->created_ms, (int64_t)get_le64(value.p + 32));
	collection_publish(it);
	collection_publish_end(it);
	return 0;
}

int collections_load(struct store *store, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_META, false);
	struct key from = key_meta('C');
	struct bytes key, value;
	int rc;

	db_iterator_seek(it, KEY_BYTES(from));
	while ((rc = db_iterator_get(it, &key, &value, error)) > 0 && key.p[0] == 'C') {
		rc = load_one(store, key, value, error);
		if (rc < 0)
			break;
		db_iterator_next(it);
	}
	db_iterator_close(it);
	return rc < 0 ? rc : 0;
}

int64_t store_collection_newest_ms(struct store *store)
{
	struct collection *c = collections_get(&store->collections, store_collection_count(store));

	return c ? atomic_load(&c->created_ms) : store->created_ms;
}

uint32_t store_collection_count(struct store *store)
{
	struct collections *c = &store->collections;

	pthread_rwlock_rdlock(&c->lock);
	uint32_t n = c->count;
	while (n && !atomic_load(&c->by_id[n - 1]->visible))
		n--;
	pthread_rwlock_unlock(&c->lock);
	return n;
}

int store_collection_find(struct store *store, struct bytes name, uint32_t *ret_id)
{
	struct collections *c = &store->collections;

	pthread_rwlock_rdlock(&c->lock);
	struct collection *it = find(c, name);
	bool visible = it && atomic_load(&it->visible);
	if (visible)
		*ret_id = it->id;
	pthread_rwlock_unlock(&c->lock);
	return visible ? 0 : -ENOENT;
}

struct bytes store_collection_name(struct store *store, uint32_t id)
{
	struct collection *it = collections_get(&store->collections, id);

	return it ? (struct bytes){it->name, it->name_size} : (struct bytes){0};
}
