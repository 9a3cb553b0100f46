/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * File names and what they stand for. Each thing has exactly one name, and only that one is read
 * back: a name that no encoding gives (%41 for 'A', %2f for '/') is -EINVAL. So distinct things
 * never share a name, and distinct names never open the same thing.
 *
 *   sequence    DIGITS, written with 16 and read with any number of leading zeros; 0 is none
 *   text        the bytes as they are, but %XX (two upper-case hexadecimal digits) for '/', '%',
 *               control characters (0x00-0x1f, 0x7f), bytes that are not UTF-8, and a '.' at the
 *               very start; the empty text is `%.`
 *   collection  its text; where the text would be `tail` or `log.ndjson` or would end in `.json` or
 *               `.ndjson`, its last byte is written %XX too (`tai%6C`, `log.ndjso%6E`)
 *   document    REST.json, where REST is the text of the key behind "COLLECTION:" (a key that is
 *               "COLLECTION:" and no more is `%..json`); a key without that prefix is %_KEY.json,
 *               with the text of the whole key
 *   source      like a collection, but never cut
 *
 * A name has at most 255 bytes. The text of a longer one is cut where a character ends (neither in
 * %XX nor in a UTF-8 sequence), as late as may be, and the name is PREFIX~HASH of a collection,
 * PREFIX~HASH.json of a document: HASH are the first 32 digits, in lower case, of the SHA-256 over
 * all bytes of the collection's name, or of the whole key ("COLLECTION:" included, where the name
 * leaves that out). So that no other name looks like it, the last byte of a text that ends in ~ and
 * 32 such digits of its own is written %XX. What a cut name stands for only a search can tell,
 * among all things that begin as its PREFIX says.
 *
 * The name of a database's table becomes a collection by name_table_write(), before all this.
 */
#include "store/store.h"

#define NAME_SEQUENCE_DIGITS 16
#define NAME_BYTES_MAX	     255

/* "0000000000000042" + suffix into p (at least 16 + strlen(suffix) + 1 bytes, more beyond 10^16).
 */
void name_sequence_write(uint64_t sequence, const char *suffix, char *p);
/* Reads DIGITS + suffix. -EINVAL: not such a name, 0, or above STORE_SEQUENCE_MAX. */
int name_sequence_read(const char *name, const char *suffix, uint64_t *ret_sequence);

/* Append the encoded name, with a NUL behind it that n does not count. 0 or -ENOMEM; then the
 * buffer is as before. */
int name_collection_write(struct bytes collection, struct buffer *ret_name);
int name_document_write(struct bytes collection, struct bytes key, struct buffer *ret_name);

/* Append what the name stands for. -EINVAL: no encoding gives this name, or it is cut; -ENOMEM. On
 * an error the buffer is as before. */
int name_collection_read(const char *name, struct buffer *ret_collection);
int name_document_read(struct bytes collection, const char *name, struct buffer *ret_key);

/* Append the bytes that the collection's name or the key begins with, of which this is the cut
 * name: what has another beginning has another name. -EINVAL: it is no cut name; -ENOMEM. On an
 * error the buffer is as before. */
int name_collection_read_cut(const char *name, struct buffer *ret_start);
int name_document_read_cut(struct bytes collection, const char *name, struct buffer *ret_start);

/* Says why a name was not read: that no `what` has it, and how names are written. Returns `code`.
 */
int name_refuse(int code, const char *what, struct error *error);

/*
 * Appends the collection of a database's table: `table` in the schema public, else `schema.table`.
 * A '.' or '%' inside either's own name is written %2E or %25, so that "a.b" in public, "a"."b" and
 * "a"."b.c" beside "a.b"."c" are collections of their own. 0 or -ENOMEM.
 */
int name_table_write(struct bytes schema, struct bytes table, struct buffer *ret_collection);
