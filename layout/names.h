/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * File names and what they stand for. Every encoding has its inverse, and distinct things never
 * share a name.
 *
 *   sequence    digits, written with 16, read with any number of leading zeros; 0 is none
 *   collection  percent-encoded (%2F): '/', control characters (0x00-0x1f, 0x7f), '%', a leading
 *               '.', bytes of no valid UTF-8; the reserved names `tail`, `log.ndjson` and names
 *               that end in `.json` or `.ndjson` have their last byte encoded
 *   document    KEY.json, where KEY is the key without "COLLECTION:", encoded the same way (no
 *               name is reserved behind .json); a key without that prefix is marked by `%_` in
 *               front; an empty rest is `%_` alone behind the prefix form `%.`
 *   source      like a collection
 */
#include "store/store.h"

#define NAME_SEQUENCE_DIGITS 16

/* "0000000000000042" + suffix into p (at least 16 + strlen(suffix) + 1 bytes, more beyond 10^16).
 */
void name_sequence_write(uint64_t sequence, const char *suffix, char *p);
/* Reads DIGITS + suffix. -EINVAL: not such a name, 0, or above STORE_SEQUENCE_MAX. */
int name_sequence_read(const char *name, const char *suffix, uint64_t *ret_sequence);

/* Appends the encoded name; 0, -ENOMEM, -ENAMETOOLONG (over 255 bytes). */
int name_collection_write(struct bytes collection, struct buffer *ret_name);
/* Appends the collection that the name stands for. -EINVAL: no encoding gives this name. */
int name_collection_read(const char *name, struct buffer *ret_collection);

int name_document_write(struct bytes collection, struct bytes key, struct buffer *ret_name);
int name_document_read(struct bytes collection, const char *name, struct buffer *ret_key);
