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
	struct key key = key_meta_collection('C', c->id);

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

static void note_removed(struct store *store, struct collection *c, uint64_t removed)
{
	atomic_store(&c->removed, removed);
	atomic_store(&store->collections.any_removed, true);
}

static int load_removed(struct store *store, struct bytes key, struct bytes value,
			struct error *error)
{
	uint32_t id = key.n == 5 ? get_be32(key.p + 1) : 0;

	if (value.n != 8 || id < 1 || id > store->collections.count)
		return error_set(error, -EBADMSG,
				 "the record of a removed collection is malformed");
	note_removed(store, store->collections.by_id[id - 1], get_le64(value.p));
	return 0;
}

int collections_load(struct store *store, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_META, false);
	struct key from = key_meta('C');
	struct bytes key, value;
	int rc;

	db_iterator_seek(it, KEY_BYTES(from));
	while ((rc = db_iterator_get(it, &key, &value, error)) > 0 &&
	       (key.p[0] == 'C' || key.p[0] == 'D')) {
		rc = key.p[0] == 'C' ? load_one(store, key, value, error)
				     : load_removed(store, key, value, error);
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
	int64_t came = c ? atomic_load(&c->created_ms) : store->created_ms;
	int64_t went = atomic_load(&store->collections.changed_ms);

	return came > went ? came : went;
}

bool store_collections_any_removed(struct store *store)
{
	return atomic_load(&store->collections.any_removed);
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

/* ---- made and removed without an event ---- */

static bool is_removed(const struct collection *c)
{
	uint64_t removed = atomic_load(&c->removed);

	return removed && removed == atomic_load(&c->last_sequence) + 1;
}

bool store_collection_is_removed(struct store *store, uint32_t id)
{
	struct collection *c = collections_get(&store->collections, id);

	return c && is_removed(c);
}

bool store_collection_is_made(struct store *store, uint32_t id)
{
	struct collection *c = collections_get(&store->collections, id);

	return c && atomic_load(&c->made);
}

static int create(struct store *store, struct db_batch *batch, struct collection *c,
		  struct error *error)
{
	struct key removed = key_meta_collection('D', c->id);

	if (!atomic_load(&c->visible)) {
		c->pending.last_ms = clock_wall_ms();
		atomic_store(&c->created_ms, c->pending.last_ms);
	} else if (!is_removed(c))
		return -EEXIST;
	collection_put(store, batch, c);
	db_batch_delete(store->db, batch, DB_META, KEY_BYTES(removed));
	int rc = commit_write(store, false, error);
	if (rc < 0)
		return rc;
	if (atomic_exchange(&c->removed, 0))
		atomic_store(&store->collections.changed_ms, clock_wall_ms());
	atomic_store(&c->made, true);
	collection_publish(c);
	return 0;
}

int store_collection_create(struct store *store, struct bytes name, struct error *error)
{
	if (!name.n || name.n > STORE_NAME_MAX || !bytes_are_utf8(name))
		return error_set(error, -EINVAL,
				 "a collection's name must be UTF-8 of 1 to %d bytes",
				 STORE_NAME_MAX);
	struct db_batch *batch = commit_turn_start(store);
	struct collection *c = collections_intern(&store->collections, name);
	int rc = c ? create(store, batch, c, error) : -ENOMEM;
	if (rc < 0)
		collections_drop_invisible(&store->collections);
	commit_turn_end(store);
	if (rc == 0 && store->listener)
		store->listener(store->listener_context);
	return rc;
}

static int check_empty(struct store *store, uint32_t id, struct error *error)
{
	struct store_document_cursor *cursor = NULL;
	struct store_document document;
	struct bytes key;

	int rc = store_document_cursor_open(store, id, &cursor, error);
	if (rc == 0)
		rc = store_document_cursor_next(cursor, &key, &document, error);
	store_document_cursor_close(cursor);
	return rc > 0 ? error_set(error, -ENOTEMPTY, "the collection has documents") : rc;
}

static int remove_at(struct store *store, struct collection *c, uint64_t last, struct error *error)
{
	struct key key = key_meta_collection('D', c->id);
	struct db_batch *batch = commit_turn_start(store);
	char value[8];
	int rc;

	put_le64(value, last + 1);
	db_batch_put(store->db, batch, DB_META, KEY_BYTES(key), (struct bytes){value, 8});
	/* An event that came since it was found empty may have given it a document. */
	rc = atomic_load(&c->last_sequence) == last ? commit_write(store, false, error) : -EAGAIN;
	if (rc == 0) {
		note_removed(store, c, last + 1);
		atomic_store(&store->collections.changed_ms, clock_wall_ms());
	}
	commit_turn_end(store);
	return rc;
}

int store_collection_remove(struct store *store, uint32_t id, struct error *error)
{
	struct collection *c = collections_get(&store->collections, id);
	int rc;

	if (!c || is_removed(c))
		return -ENOENT;
	do {
		uint64_t last = atomic_load(&c->last_sequence);
		rc = check_empty(store, id, error);
		if (rc == 0)
			rc = remove_at(store, c, last, error);
	} while (rc == -EAGAIN);
	return rc;
}
