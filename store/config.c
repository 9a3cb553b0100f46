/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration, changed at run time. */
#include <errno.h>

#include "store/internal.h"

void store_config_get(struct store *store, struct store_config *ret_config)
{
	pthread_mutex_lock(&store->settings_mutex);
	*ret_config = store->config;
	pthread_mutex_unlock(&store->settings_mutex);
}

static int config_check(const struct store_config *c, struct error *error)
{
	if ((unsigned)c->snapshots > STORE_SNAPSHOTS_NONE ||
	    (unsigned)c->visibility > STORE_VISIBLE_DURABLE ||
	    (unsigned)c->on_decode_error > STORE_DECODE_ERROR_TO_DLQ)
		return error_set(error, -EINVAL, "a setting has no such value");
	if (c->max_document_bytes < 1 || c->max_document_bytes > STORE_DOCUMENT_LIMIT)
		return error_set(error, -EINVAL, "max_document_bytes must be from 1 to %llu",
				 (unsigned long long)STORE_DOCUMENT_LIMIT);
	return 0;
}

static int config_write(struct store *store, const struct store_config *c, struct error *error)
{
	char value[11] = {(char)c->snapshots, (char)c->visibility};
	struct key key = key_meta('K');

	put_le64(value + 2, c->max_document_bytes);
	value[10] = (char)c->on_decode_error;
	db_batch_put(store->db, store->commit.db_batch, DB_META, KEY_BYTES(key),
		     (struct bytes){value, sizeof(value)});
	int rc = commit_write(store, true, error);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&store->settings_mutex);
	store->config = *c;
	pthread_mutex_unlock(&store->settings_mutex);
	atomic_store(&store->max_document_bytes, c->max_document_bytes);
	return 0;
}

int store_config_change(struct store *store,
			int (*change)(void *context, struct store_config *config,
				      struct error *error),
			void *context, struct error *error)
{
	commit_turn_start(store);
	struct store_config config = store->config;
	int rc = change(context, &config, error);
	if (rc == 0)
		rc = config_check(&config, error);
	if (rc == 0)
		rc = config_write(store, &config, error);
	commit_turn_end(store);
	return rc;
}

uint64_t store_line_limit(struct store *store)
{
	return 4 * atomic_load(&store->max_document_bytes) + (64 << 10);
}
