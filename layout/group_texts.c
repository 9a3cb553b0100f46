/* SPDX-License-Identifier: Apache-2.0 */
/* A group's offset, lag, settings and numbers, as text that is rendered when it is looked up; and
 * its settings as they are written. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "layout/tree.h"
#include "store/consumer.h"

static int show_number(struct node *node, uint64_t number)
{
	_cleanup_(buffer_free) struct buffer text = {0};

	int rc = buffer_printf(&text, "%llu\n", (unsigned long long)number);
	if (rc == 0)
		node_take_text(node, &text);
	return rc;
}

int group_render_offset(struct layout *layout, const struct node *parent, const char *name,
			struct node *ret_node, struct error *error)
{
	uint64_t offset;

	int rc = store_group_offset(layout->store, parent->collection, &offset);
	return rc < 0 ? rc : show_number(ret_node, offset);
}

int group_render_lag(struct layout *layout, const struct node *parent, const char *name,
		     struct node *ret_node, struct error *error)
{
	struct store_group_stats stats;

	int rc = store_group_stats_get(layout->store, parent->collection, &stats);
	return rc < 0 ? rc : show_number(ret_node, stats.lag);
}

/* ---- stats.json ---- */

static int add_reader(void *context, pid_t pid, uint64_t pending)
{
	json_t *reader =
		json_pack("{s:I, s:I}", "pid", (json_int_t)pid, "pending", (json_int_t)pending);

	return json_array_append_new(context, reader) < 0 ? -ENOMEM : 0;
}

int group_render_stats(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error)
{
	json_t *readers = json_array();
	struct store_group_stats s;

	int rc = readers ? store_group_stats_get(layout->store, parent->collection, &s) : -ENOMEM;
	if (rc == 0)
		rc = store_group_readers_each(layout->store, parent->collection, add_reader,
					      readers);
	if (rc < 0) {
		json_decref(readers);
		return rc;
	}
	return node_take_json(
		ret_node,
		json_pack("{s:I, s:I, s:I, s:I, s:o, s:{s:I, s:I, s:I}, s:I, s:I, s:I, s:I, s:I, "
			  "s:I, s:I, s:s?}",
			  "offset", (json_int_t)s.offset, "last_sequence", (json_int_t)s.end, "lag",
			  (json_int_t)s.lag, "lag_ms", (json_int_t)s.lag_ms, "readers", readers,
			  "pending", "count", (json_int_t)s.pending, "oldest_ms",
			  (json_int_t)s.oldest_pending_ms, "most_attempts",
			  (json_int_t)s.most_attempts, "delayed", (json_int_t)s.delayed, "window",
			  (json_int_t)s.window, "delivered", (json_int_t)s.delivered,
			  "acknowledged", (json_int_t)s.acknowledged, "redelivered",
			  (json_int_t)s.redelivered, "refused", (json_int_t)s.refused,
			  "dead_lettered", (json_int_t)s.dead_lettered, "stalled", s.stalled));
}

/* ---- config.json ---- */

static const char *const start_words[] = {"earliest", "latest", NULL};
static const char *const order_words[] = {"none", "key", NULL};

static json_t *show_types(unsigned types)
{
	json_t *array = json_array();

	for (int type = STORE_PUT; type <= STORE_MESSAGE; type++)
		if (types & 1u << type)
			json_array_append_new(array,
					      json_string(store_type_name((enum store_type)type)));
	return array;
}

static json_t *show_config(const struct store_group_config *c)
{
	json_t *collections = json_array(), *backoff = json_array();
	double rate = c->max_events_per_second;

	for (size_t i = 0; i < c->collection_count; i++)
		json_array_append_new(collections, json_string(c->collections[i]));
	for (size_t i = 0; i < c->backoff_count; i++)
		json_array_append_new(backoff, json_integer((json_int_t)c->backoff_ms[i]));
	return json_pack("{s:s, s:o, s:s, s:o, s:I, s:I, s:o, s:I, s:I, s:s, s:o}", "start",
			 start_words[c->start], "collections", collections, "key_prefix",
			 c->key_prefix ? c->key_prefix : "", "types", show_types(c->types),
			 "ack_timeout_ms", (json_int_t)c->ack_timeout_ms, "max_attempts",
			 (json_int_t)c->max_attempts, "backoff_ms", backoff, "max_in_flight",
			 (json_int_t)c->max_in_flight, "batch", (json_int_t)c->batch, "order",
			 order_words[c->order], "max_events_per_second",
			 rate == (double)(json_int_t)rate ? json_integer((json_int_t)rate)
							  : json_real(rate));
}

int group_render_config(struct layout *layout, const struct node *parent, const char *name,
			struct node *ret_node, struct error *error)
{
	struct store_group_config config;

	int rc = store_group_config_get(layout->store, parent->collection, &config);
	if (rc < 0)
		return rc;
	rc = node_take_json(ret_node, show_config(&config));
	store_group_config_free(&config);
	return rc;
}

static int set_start(struct store_group_config *c, const json_t *value, struct error *error)
{
	int word = json_word(start_words, value);

	if (word < 0)
		return error_set(error, -EINVAL, "start is one of earliest, latest");
	c->start = (enum store_group_start)word;
	return 0;
}

static int set_order(struct store_group_config *c, const json_t *value, struct error *error)
{
	int word = json_word(order_words, value);

	if (word < 0)
		return error_set(error, -EINVAL, "order is one of none, key");
	c->order = (enum store_group_order)word;
	return 0;
}

static int set_collections(struct store_group_config *c, const json_t *value, struct error *error)
{
	size_t count = json_array_size(value);

	if (!json_is_array(value) || count > STORE_GROUP_COLLECTIONS)
		return error_set(error, -EINVAL, "collections is a list of at most %d names",
				 STORE_GROUP_COLLECTIONS);
	while (c->collection_count)
		free(c->collections[--c->collection_count]);
	for (size_t i = 0; i < count; i++) {
		const char *name = json_string_value(json_array_get(value, i));
		if (!name)
			return error_set(error, -EINVAL, "collections is a list of names");
		c->collections[i] = strdup(name);
		if (!c->collections[i])
			return -ENOMEM;
		c->collection_count++;
	}
	return 0;
}

static int set_key_prefix(struct store_group_config *c, const json_t *value, struct error *error)
{
	const char *prefix = json_string_value(value);

	if (!prefix && !json_is_null(value))
		return error_set(error, -EINVAL, "key_prefix is a string");
	free(c->key_prefix);
	c->key_prefix = prefix && *prefix ? strdup(prefix) : NULL;
	return prefix && *prefix && !c->key_prefix ? -ENOMEM : 0;
}

static int set_types(struct store_group_config *c, const json_t *value, struct error *error)
{
	size_t count = json_array_size(value);

	c->types = 0;
	for (size_t i = 0; i < count; i++) {
		const char *name = json_string_value(json_array_get(value, i));
		enum store_type type = name ? store_type_of(bytes_of(name)) : 0;
		if (!type)
			break;
		c->types |= 1u << type;
		if (i + 1 == count)
			return 0;
	}
	return json_is_array(value) && !count
		       ? 0
		       : error_set(error, -EINVAL,
				   "types is a list of PUT, DELETE, TRUNCATE, MESSAGE");
}

static int set_backoff(struct store_group_config *c, const json_t *value, struct error *error)
{
	size_t count = json_array_size(value);

	if (!json_is_array(value) || count > STORE_GROUP_BACKOFFS)
		return error_set(error, -EINVAL,
				 "backoff_ms is a list of at most %d numbers of milliseconds",
				 STORE_GROUP_BACKOFFS);
	for (size_t i = 0; i < count; i++) {
		const json_t *one = json_array_get(value, i);
		if (!json_is_integer(one) || json_integer_value(one) < 0)
			return error_set(error, -EINVAL,
					 "backoff_ms is a list of numbers of milliseconds");
		c->backoff_ms[i] = (uint64_t)json_integer_value(one);
	}
	c->backoff_count = count;
	return 0;
}

static int set_rate(struct store_group_config *c, const json_t *value, struct error *error)
{
	if (!json_is_number(value) || json_number_value(value) < 0)
		return error_set(error, -EINVAL,
				 "max_events_per_second is a number, 0 for no limit");
	c->max_events_per_second = json_number_value(value);
	return 0;
}

static int set_number(const char *name, const json_t *value, uint64_t max, uint64_t *ret_number,
		      struct error *error)
{
	if (!json_is_integer(value) || json_integer_value(value) < 1 ||
	    (uint64_t)json_integer_value(value) > max)
		return error_set(error, -EINVAL, "%s is a number from 1 to %llu", name,
				 (unsigned long long)max);
	*ret_number = (uint64_t)json_integer_value(value);
	return 0;
}

static int set_small(const char *name, const json_t *value, uint32_t *ret_number,
		     struct error *error)
{
	uint64_t number = *ret_number;

	int rc = set_number(name, value, UINT32_MAX, &number, error);
	*ret_number = (uint32_t)number;
	return rc;
}

static int set_field(struct store_group_config *c, const char *name, const json_t *value,
		     struct error *error)
{
	if (strcmp(name, "start") == 0)
		return set_start(c, value, error);
	if (strcmp(name, "collections") == 0)
		return set_collections(c, value, error);
	if (strcmp(name, "key_prefix") == 0)
		return set_key_prefix(c, value, error);
	if (strcmp(name, "types") == 0)
		return set_types(c, value, error);
	if (strcmp(name, "ack_timeout_ms") == 0)
		return set_number(name, value, STORE_SEQUENCE_MAX, &c->ack_timeout_ms, error);
	if (strcmp(name, "max_attempts") == 0)
		return set_small(name, value, &c->max_attempts, error);
	if (strcmp(name, "backoff_ms") == 0)
		return set_backoff(c, value, error);
	if (strcmp(name, "max_in_flight") == 0)
		return set_small(name, value, &c->max_in_flight, error);
	if (strcmp(name, "batch") == 0)
		return set_small(name, value, &c->batch, error);
	if (strcmp(name, "order") == 0)
		return set_order(c, value, error);
	if (strcmp(name, "max_events_per_second") == 0)
		return set_rate(c, value, error);
	return error_set(error, -EINVAL, "there is no setting %s", name);
}

int group_apply_config(struct layout *layout, uint32_t group, json_t *object, struct error *error)
{
	struct store_group_config config;
	const char *name;
	json_t *value;

	pthread_mutex_lock(&layout->configuring);
	int rc = store_group_config_get(layout->store, group, &config);
	if (rc == 0) {
		json_object_foreach(object, name, value)
		{
			rc = set_field(&config, name, value, error);
			if (rc < 0)
				break;
		}
		if (rc == 0)
			rc = store_group_config_set(layout->store, group, &config, error);
		store_group_config_free(&config);
	}
	pthread_mutex_unlock(&layout->configuring);
	return rc;
}
