/* SPDX-License-Identifier: Apache-2.0 */
/* Modes and owners that the store keeps for whoever shows it: by name, and both mean nothing here.
 */
#include <errno.h>

#include "store/internal.h"

#define RECORD_SIZE 21

static int attributes_key(struct bytes name, struct buffer *ret_key)
{
	return buffer_add(ret_key, "M", 1) < 0 || buffer_add_bytes(ret_key, name) < 0 ? -ENOMEM : 0;
}

int store_attributes_set(struct store *store, struct bytes name,
			 const struct store_attributes *attributes, struct error *error)
{
	_cleanup_(buffer_free) struct buffer key = {0};
	char value[RECORD_SIZE];

	if (attributes_key(name, &key) < 0)
		return -ENOMEM;
	put_le64(value, (uint64_t)attributes->changed_ms);
	value[8] = (char)attributes->set;
	put_le32(value + 9, attributes->mode);
	put_le32(value + 13, attributes->uid);
	put_le32(value + 17, attributes->gid);
	struct db_batch *batch = commit_turn_start(store);
	if (attributes->set)
		db_batch_put(store->db, batch, DB_META, buffer_bytes(&key),
			     (struct bytes){value, RECORD_SIZE});
	else
		db_batch_delete(store->db, batch, DB_META, buffer_bytes(&key));
	int rc = commit_write(store, true, error);
	commit_turn_end(store);
	return rc;
}

static bool read_record(struct bytes value, struct store_attributes *ret_attributes)
{
	if (value.n != RECORD_SIZE)
		return false;
	*ret_attributes = (struct store_attributes){
		.changed_ms = (int64_t)get_le64(value.p),
		.set = (unsigned char)value.p[8],
		.mode = get_le32(value.p + 9),
		.uid = get_le32(value.p + 13),
		.gid = get_le32(value.p + 17),
	};
	return ret_attributes->set && ret_attributes->set <= STORE_ATTRIBUTES_ALL;
}

int store_attributes_each(struct store *store,
			  int (*each)(void *context, struct bytes name,
				      const struct store_attributes *attributes),
			  void *context, struct error *error)
{
	struct db_iterator *it = db_iterator_open(store->db, DB_META, false);
	struct key from = key_meta('M');
	struct store_attributes attributes;
	struct bytes key, value;
	int rc;

	db_iterator_seek(it, KEY_BYTES(from));
	while ((rc = db_iterator_get(it, &key, &value, error)) > 0 && key.p[0] == 'M') {
		struct bytes name = {key.p + 1, key.n - 1};
		if (!read_record(value, &attributes))
			rc = error_set(error, -EBADMSG, "the attributes of %.*s are malformed",
				       (int)name.n, name.p);
		else
			rc = each(context, name, &attributes);
		if (rc != 0)
			break;
		db_iterator_next(it);
	}
	db_iterator_close(it);
	return rc < 0 ? rc : 0;
}
