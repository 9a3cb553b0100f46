/* SPDX-License-Identifier: Apache-2.0 */
/* What a group is set to: its values, its record, and what its filter takes. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "store/consumer_internal.h"

#define CONFIG_FORMAT 1
#define MS_MAX	      (UINT64_C(30) * 24 * 3600 * 1000)
#define BATCH_MAX     10000
#define ATTEMPTS_MAX  1000000
#define RATE_MAX      1e9
#define TYPES_ALL                                                                                  \
	(1u << STORE_PUT | 1u << STORE_DELETE | 1u << STORE_TRUNCATE | 1u << STORE_MESSAGE)

int group_config_defaults(struct store_group_config *ret_config)
{
	*ret_config = (struct store_group_config){
		.ack_timeout_ms = 30000,
		.max_attempts = 5,
		.backoff_ms = {1000, 2000, 5000, 10000},
		.backoff_count = 4,
		.max_in_flight = 1000,
		.batch = 1,
	};
	return 0;
}

void store_group_config_free(struct store_group_config *config)
{
	for (size_t i = 0; i < config->collection_count; i++)
		free(config->collections[i]);
	free(config->key_prefix);
	config->collection_count = 0;
	config->key_prefix = NULL;
}

static int copy(const struct store_group_config *from, struct store_group_config *ret_config)
{
	*ret_config = *from;
	ret_config->collection_count = 0;
	ret_config->key_prefix = NULL;
	int rc = 0;
	for (size_t i = 0; i < from->collection_count && rc == 0; i++) {
		ret_config->collections[i] = strdup(from->collections[i]);
		rc = ret_config->collections[i] ? 0 : -ENOMEM;
		ret_config->collection_count += rc == 0;
	}
	if (rc == 0 && from->key_prefix && from->key_prefix[0]) {
		ret_config->key_prefix = strdup(from->key_prefix);
		rc = ret_config->key_prefix ? 0 : -ENOMEM;
	}
	if (rc < 0)
		store_group_config_free(ret_config);
	return rc;
}

/* ---- values ---- */

static int check_number(const char *field, uint64_t value, uint64_t least, uint64_t most,
			struct error *error)
{
	if (value >= least && value <= most)
		return 0;
	return error_set(error, -EINVAL, "%s must be from %llu to %llu", field,
			 (unsigned long long)least, (unsigned long long)most);
}

static int check_filter(const struct store_group_config *c, struct error *error)
{
	int rc = check_number("the number of collections", c->collection_count, 0,
			      STORE_GROUP_COLLECTIONS, error);

	for (size_t i = 0; i < c->collection_count && rc == 0; i++) {
		struct bytes name = bytes_of(c->collections[i]);
		if (!name.n || name.n > STORE_NAME_MAX || !bytes_are_utf8(name))
			rc = error_set(error, -EINVAL,
				       "collections: a name must be UTF-8 of 1 to %d bytes",
				       STORE_NAME_MAX);
	}
	if (rc == 0 && c->key_prefix &&
	    (strlen(c->key_prefix) > STORE_KEY_MAX || !bytes_are_utf8(bytes_of(c->key_prefix))))
		rc = error_set(error, -EINVAL, "key_prefix must be UTF-8 of up to %d bytes",
			       STORE_KEY_MAX);
	if (rc == 0 && c->types & ~TYPES_ALL)
		rc = error_set(error, -EINVAL, "types: there is no such type");
	return rc;
}

static int check(const struct store_group_config *c, struct error *error)
{
	int rc = check_filter(c, error);

	if (rc == 0 && (unsigned)c->start > STORE_START_LATEST)
		rc = error_set(error, -EINVAL, "start must be earliest or latest");
	if (rc == 0 && (unsigned)c->order > STORE_ORDER_KEY)
		rc = error_set(error, -EINVAL, "order must be none or key");
	if (rc == 0)
		rc = check_number("ack_timeout_ms", c->ack_timeout_ms, 1, MS_MAX, error);
	if (rc == 0)
		rc = check_number("max_attempts", c->max_attempts, 1, ATTEMPTS_MAX, error);
	if (rc == 0)
		rc = check_number("the number of backoff_ms", c->backoff_count, 0,
				  STORE_GROUP_BACKOFFS, error);
	for (size_t i = 0; i < c->backoff_count && rc == 0; i++)
		rc = check_number("backoff_ms", c->backoff_ms[i], 0, MS_MAX, error);
	if (rc == 0)
		rc = check_number("max_in_flight", c->max_in_flight, 1, STORE_GROUP_WINDOW, error);
	if (rc == 0)
		rc = check_number("batch", c->batch, 1, BATCH_MAX, error);
	if (rc == 0 && !(c->max_events_per_second >= 0 && c->max_events_per_second <= RATE_MAX))
		rc = error_set(error, -EINVAL, "max_events_per_second must be from 0 to %.0f",
			       RATE_MAX);
	return rc;
}

/* ---- the record ---- */

static int add_number(struct buffer *b, uint64_t v)
{
	char p[8];

	put_le64(p, v);
	return buffer_add(b, p, 8);
}

static int add_string(struct buffer *b, const char *s)
{
	char p[4];
	size_t n = s ? strlen(s) : 0;

	put_le32(p, (uint32_t)n);
	return buffer_add(b, p, 4) < 0 || buffer_add(b, s, n) < 0 ? -ENOMEM : 0;
}

/* The record: format, name, then the numbers and strings in this order. */
int group_put_config(struct group *g)
{
	const struct store_group_config *c = &g->config;
	struct key key = key_group('G', g->number);
	struct buffer *b = &g->scratch;
	uint64_t rate;
	int rc = 0;

	memcpy(&rate, &c->max_events_per_second, 8);
	const uint64_t numbers[] = {
		c->start,	  c->types, c->ack_timeout_ms, c->max_attempts,
		c->max_in_flight, c->batch, c->order,	       rate,
	};
	b->n = 0;
	rc |= buffer_add(b, "\1", 1);
	rc |= add_string(b, g->name);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		rc |= add_number(b, numbers[i]);
	rc |= add_number(b, c->backoff_count);
	for (size_t i = 0; i < c->backoff_count; i++)
		rc |= add_number(b, c->backoff_ms[i]);
	rc |= add_string(b, c->key_prefix);
	rc |= add_number(b, c->collection_count);
	for (size_t i = 0; i < c->collection_count; i++)
		rc |= add_string(b, c->collections[i]);
	if (rc)
		return -ENOMEM;
	db_batch_put(g->store->db, g->out, DB_GROUPS, KEY_BYTES(key), buffer_bytes(b));
	return 0;
}

static bool read_number(struct bytes *from, uint64_t *ret_v)
{
	if (from->n < 8)
		return false;
	*ret_v = get_le64(from->p);
	from->p += 8;
	from->n -= 8;
	return true;
}

/* The copy is the caller's; NULL if it is cut or there is no memory. */
static char *read_string(struct bytes *from)
{
	if (from->n < 4 || from->n - 4 < get_le32(from->p))
		return NULL;
	size_t n = get_le32(from->p);
	char *s = strndup(from->p + 4, n);
	from->p += 4 + n;
	from->n -= 4 + n;
	return s;
}

static bool read_strings(struct bytes *from, struct store_group_config *c)
{
	uint64_t n;

	c->key_prefix = read_string(from);
	if (!c->key_prefix || !read_number(from, &n) || n > STORE_GROUP_COLLECTIONS)
		return false;
	if (!c->key_prefix[0]) {
		free(c->key_prefix);
		c->key_prefix = NULL;
	}
	for (; c->collection_count < n; c->collection_count++) {
		c->collections[c->collection_count] = read_string(from);
		if (!c->collections[c->collection_count])
			return false;
	}
	return true;
}

static bool read_all(struct bytes *from, struct store_group_config *c)
{
	uint64_t numbers[8], n;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (!read_number(from, &numbers[i]))
			return false;
	c->start = (enum store_group_start)numbers[0];
	c->types = (unsigned)numbers[1];
	c->ack_timeout_ms = numbers[2];
	c->max_attempts = (uint32_t)numbers[3];
	c->max_in_flight = (uint32_t)numbers[4];
	c->batch = (uint32_t)numbers[5];
	c->order = (enum store_group_order)numbers[6];
	memcpy(&c->max_events_per_second, &numbers[7], 8);
	if (!read_number(from, &n) || n > STORE_GROUP_BACKOFFS)
		return false;
	c->backoff_count = n;
	for (size_t i = 0; i < c->backoff_count; i++)
		if (!read_number(from, &c->backoff_ms[i]))
			return false;
	return read_strings(from, c);
}

int group_read_config(struct group *g, struct bytes value, struct error *error)
{
	struct store_group_config c = {0};
	struct bytes from = {value.p + 1, value.n - 1};

	if (!value.n || value.p[0] != CONFIG_FORMAT)
		return error_set(error, -EBADMSG, "the record of group %u has another format",
				 g->number);
	char *name = read_string(&from);
	if (!name || !read_all(&from, &c) || from.n || check(&c, NULL) < 0) {
		free(name);
		store_group_config_free(&c);
		return error_set(error, -EBADMSG, "the record of group %u is malformed", g->number);
	}
	free(g->name);
	g->name = name;
	store_group_config_free(&g->config);
	g->config = c;
	g->quoted.n = 0;
	return buffer_add_json_string(&g->quoted, bytes_of(name));
}

/* ---- the filter ---- */

static bool takes_collection(struct group *g, uint32_t id)
{
	if (!g->config.collection_count)
		return true;
	while (g->matches.n <= id)
		if (buffer_add(&g->matches, "", 1) < 0)
			return false;
	if (!g->matches.p[id]) {
		struct bytes name = store_collection_name(g->store, id);
		g->matches.p[id] = 2;
		for (size_t i = 0; i < g->config.collection_count; i++)
			if (bytes_equal(name, bytes_of(g->config.collections[i])))
				g->matches.p[id] = 1;
	}
	return g->matches.p[id] == 1;
}

int group_matches(struct group *g, uint32_t collection, enum store_type type, struct bytes line,
		  struct error *error)
{
	const struct store_group_config *c = &g->config;

	if ((c->types && !(c->types & 1u << type)) || !takes_collection(g, collection))
		return 0;
	if (!c->key_prefix)
		return 1;
	int rc = line_read_key(line, &g->key);
	if (rc < 0)
		return error_set(error, rc, "a line of the log has no key");
	return bytes_start_with(buffer_bytes(&g->key), bytes_of(c->key_prefix));
}

int group_hash(struct group *g, uint32_t collection, struct bytes line, uint64_t *ret_hash)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ collection;

	int rc = line_read_key(line, &g->key);
	for (size_t i = 0; i < g->key.n; i++)
		h = (h ^ (unsigned char)g->key.p[i]) * UINT64_C(0x100000001b3);
	*ret_hash = h ^ h >> 29;
	return rc;
}

/* ---- get and set ---- */

int store_group_config_get(struct store *store, uint32_t group,
			   struct store_group_config *ret_config)
{
	struct group *g = group_lock(store, group);

	if (!g)
		return -ENOENT;
	int rc = copy(&g->config, ret_config);
	group_unlock(g);
	return rc;
}

/* Releases what the filter no longer takes, and takes back what it had released. */
static int filter_again(struct group *g, struct entry *e, struct error *error)
{
	struct store_event_info info;

	if (e->state == ENTRY_DONE)
		return 0;
	int rc = entry_line(g, e, &info, error);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	rc = group_matches(g, info.collection, info.type, buffer_bytes(&g->line), error);
	if (rc > 0 && e->state == ENTRY_RELEASED) {
		e->attempts = 0;
		entry_set(g, e, ENTRY_WAITING, 0);
		entry_put(g, e);
	} else if (rc == 0 && e->state != ENTRY_RELEASED) {
		bool extra = e->is_extra;
		entry_finish(g, e, ENTRY_RELEASED);
		if (!extra)
			entry_put(g, e);
	}
	return rc < 0 ? rc : 0;
}

static int filter_list(struct group *g, struct entries *list, struct error *error)
{
	int rc = 0;

	for (size_t i = list->n; i-- && rc == 0;)
		rc = filter_again(g, entries_at(list, i), error);
	return rc;
}

static int chain_list(struct group *g, struct entries *list, struct error *error)
{
	struct store_event_info info;
	int rc = 0;

	for (size_t i = 0; i < list->n && rc == 0; i++) {
		struct entry *e = entries_at(list, i);
		if (e->state == ENTRY_DONE || e->state == ENTRY_RELEASED)
			continue;
		rc = entry_line(g, e, &info, error);
		if (rc == 0)
			rc = group_hash(g, info.collection, buffer_bytes(&g->line), &e->hash);
		if (rc == 0)
			entry_chain(g, e);
		rc = rc == -ENOENT ? 0 : rc;
	}
	return rc;
}

int group_chain_all(struct group *g, struct error *error)
{
	group_unchain_all(g);
	if (g->config.order != STORE_ORDER_KEY)
		return 0;
	g->chains = calloc(CHAIN_BUCKETS, sizeof(*g->chains));
	if (!g->chains)
		return -ENOMEM;
	int rc = chain_list(g, &g->window, error);
	return rc < 0 ? rc : chain_list(g, &g->extra, error);
}

/* What was never delivered is looked at again under the new filter and order. */
static int apply(struct group *g, struct error *error)
{
	for (size_t i = g->window.n; i--;)
		if (entries_at(&g->window, i)->state == ENTRY_NEW)
			group_drop(g, entries_at(&g->window, i));
	g->matches.n = 0;
	g->scan = g->offset + 1;
	int rc = filter_list(g, &g->window, error);
	if (rc == 0)
		rc = filter_list(g, &g->extra, error);
	if (rc == 0)
		rc = group_chain_all(g, error);
	for (size_t i = 0; i < g->window.n; i++)
		entry_place(g, entries_at(&g->window, i));
	for (size_t i = 0; i < g->extra.n; i++)
		entry_place(g, entries_at(&g->extra, i));
	if (!g->started) {
		uint64_t floor = store_floor(g->store);
		g->offset = g->config.start == STORE_START_LATEST ? store_last_sequence(g->store)
								  : floor - 1;
		g->scan = g->offset + 1;
	}
	g->refilled = group_clock(g->store);
	g->tokens = 1;
	return rc;
}

static int config_change(struct group *g, struct store_group_config *config, struct error *error)
{
	int rc = group_room(g, 4096 + 128 * g->window.n, error);

	if (rc < 0)
		return rc;
	struct store_group_config old = g->config;
	g->config = *config;
	rc = group_put_config(g);
	if (rc == 0)
		rc = apply(g, error);
	if (rc == 0)
		rc = group_write(g, error);
	if (rc < 0) {
		g->config = old;
		g->matches.n = 0;
		group_reload(g);
		return rc;
	}
	store_group_config_free(&old);
	*config = (struct store_group_config){0};
	return 0;
}

int store_group_config_set(struct store *store, uint32_t group,
			   const struct store_group_config *config, struct error *error)
{
	struct store_group_config mine = {0};

	int rc = check(config, error);
	if (rc == 0)
		rc = copy(config, &mine);
	if (rc < 0)
		return rc;
	struct group *g = group_lock(store, group);
	rc = g ? config_change(g, &mine, error) : -ENOENT;
	if (g)
		group_unlock(g);
	store_group_config_free(&mine);
	if (rc == 0)
		group_call_listener(store);
	return rc;
}
