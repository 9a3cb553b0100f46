/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Every key and value of every column family. Integers are big-endian in keys, so that the byte
 * order is the order of the numbers, and little-endian in values. `str` is u32 length + bytes.
 *
 *   log    last:u64                            a block (below): events up to that sequence
 *   index  'P' collection:u32 position:u64     first:u64
 *          'S' collection:u32 first:u64        position:u64 count:u32 bytes:u32 runs
 *   state  collection:u32 key 00 00 version:u64  sequence:u64 timestamp_ms:i64 flags:u8 text
 *   groups 'N'                                 number:u32, of the next group
 *          'G' group:u32                       format:u8 (1) name:str and the configuration, as
 *                                              consumer_config.c writes it
 *          'O' group:u32                       offset:u64 next delivery:u64 started:u8
 * delivered:u64 acknowledged:u64 redelivered:u64 refused:u64 dead-lettered:u64 'L' group:u32
 * delivery:u64          delivered_ms:i64, then for this delivery and those that follow it:
 * sequence:u64 attempts:u32 'P' group:u32 sequence:u64          state:u8 (2 waiting, 3 refused for
 * good, 4 done, 5 released) failure:u8 attempts:u32 delivery:u64 delivered_ms:i64 due_ms:i64
 * first_failure_ms:i64 last_failure_ms:i64 reason 'R' group:u32 sequence:u64 collection:u32 type:u8
 * flags:u8 line ops    number:u64                          written_ms:i64 one line of JSON dlq
 * number:u64                          the same meta   'F' format:u32 'I' identity:16 bytes
 * created_ms:i64 'U'                                 running:u8 boot_id:str dev:u64 ino:u64
 *                                              incarnation:16 bytes
 *          'R'                                 sequence:u64 position:u64, reserved below them
 *          'E'                                 sequence:u64 position:u64 commit_ms:i64, the next
 *          'L'                                 sequence:u64, the floor
 *          'A'                                 sequence:u64, family state has all up to it
 *          'G' from:u64                        to:u64, sequences that no event has
 *          'K'                                 snapshots:u8 visibility:u8 max_document_bytes:u64
 *                                              on_decode_error:u8
 *          'C' collection:u32                  position:u64 events:u64 last_sequence:u64
 *                                              last_ms:i64 created_ms:i64 name
 *          'D' collection:u32                  last_sequence:u64 + 1, when it was removed
 *          'S' name                            position:u64 time_us:i64 events:u64
 *          'N'                                 number:u64, the next dead letter's at least
 *          'M' name                            changed_ms:i64 set:u8 mode:u32 uid:u32 gid:u32
 *
 * index: P finds the block of a byte position, S the block of a sequence, both within one stream;
 * collection 0 is the whole log, which has P entries only, its S being the log itself. `first` is
 * the stream's first sequence in that block (log: a block's key is its last
 * sequence, so that one step forward from any sequence finds its block), `runs` are pairs of
 * varints: how many sequences to leave out behind the last run, and how many follow one another
 * from there.
 *
 * groups: what became of an event is told by the record with the highest delivery, and 'P' counts
 * before 'L' of the same one; an event in no record, or only in an 'L' at or below the offset
 * without an 'R', is new or done, as the offset says. 'R' is the line of an event that was given
 * back to its group after the offset, or the floor, had passed it.
 *
 * state: in the key a byte 00 is written 00 ff, so that 00 00 ends it and the order is kept.
 * Version 0 is the current document; others, the inverted sequence of an event that replaced or
 * deleted it, are versions that a snapshot still needs. flags: 1 if the text is not UTF-8.
 *
 * A block:
 *    0 format:u8 (1)     1 flags:u8 (0)     2 entry size:u16 (24)     4 generation:u32
 *    8 first sequence:u64     16 position in the whole log:u64     24 commit_ms:i64
 *   32 count:u32     36 lines size:u32     40 first sequence of its segment:u64
 *   48 for each event: length:u32 collection:u32 timestamp_ms:i64 commit delta in ms:u32
 *      type:u8 flags:u8 (2 bytes zero); flags: 1 texts are base64, 2 its document is not written,
 *      4 it was recorded through the document's own file
 *      … the lines, back to back
 * Its events have consecutive sequences. A generation above 0 is a segment that was written anew.
 */
#include "store/base.h"

#define KEYS_FORMAT 1

#define KEY_LOG_SIZE   8
#define KEY_INDEX_SIZE 13
#define KEY_STATE_MAX  (4 + 2 * 4096 + 2 + 8)

static inline void put_be32(char *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, 4);
}

static inline void put_be64(char *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, 8);
}

static inline uint32_t get_be32(const char *p)
{
	uint32_t v;
	memcpy(&v, p, 4);
	return __builtin_bswap32(v);
}

static inline uint64_t get_be64(const char *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return __builtin_bswap64(v);
}

static inline void put_le16(char *p, uint16_t v)
{
	memcpy(p, &v, 2);
}

static inline void put_le32(char *p, uint32_t v)
{
	memcpy(p, &v, 4);
}

static inline void put_le64(char *p, uint64_t v)
{
	memcpy(p, &v, 8);
}

static inline uint16_t get_le16(const char *p)
{
	uint16_t v;
	memcpy(&v, p, 2);
	return v;
}

static inline uint32_t get_le32(const char *p)
{
	uint32_t v;
	memcpy(&v, p, 4);
	return v;
}

static inline uint64_t get_le64(const char *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return v;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "values are written as they lie in memory");

/* A key in the making: enough for any of them but meta 'S' and 'M' + name and state, which use
 * buffers. */
struct key {
	char p[16];
	size_t n;
};

#define KEY_BYTES(k) ((struct bytes){(k).p, (k).n})

static inline struct key key_log(uint64_t sequence)
{
	struct key k = {.n = KEY_LOG_SIZE};
	put_be64(k.p, sequence);
	return k;
}

static inline struct key key_index(char kind, uint32_t collection, uint64_t number)
{
	struct key k = {.n = KEY_INDEX_SIZE};
	k.p[0] = kind;
	put_be32(k.p + 1, collection);
	put_be64(k.p + 5, number);
	return k;
}

/* True if an index key is of that kind and collection; then its number. */
static inline bool key_index_read(struct bytes key, char kind, uint32_t collection,
				  uint64_t *ret_number)
{
	if (key.n != KEY_INDEX_SIZE || key.p[0] != kind || get_be32(key.p + 1) != collection)
		return false;
	*ret_number = get_be64(key.p + 5);
	return true;
}

/* kind is 'G' or 'O'; and what all keys of the kinds 'L', 'P' and 'R' of a group begin with. */
static inline struct key key_group(char kind, uint32_t group)
{
	struct key k = {.p = {kind}, .n = 5};
	put_be32(k.p + 1, group);
	return k;
}

/* kind is 'L', 'P' or 'R'; key_index_read() reads it back. */
static inline struct key key_group_entry(char kind, uint32_t group, uint64_t number)
{
	return key_index(kind, group, number);
}

static inline struct key key_meta(char kind)
{
	return (struct key){.p = {kind}, .n = 1};
}

/* kind is 'C' or 'D'. */
static inline struct key key_meta_collection(char kind, uint32_t collection)
{
	struct key k = {.p = {kind}, .n = 5};
	put_be32(k.p + 1, collection);
	return k;
}

static inline struct key key_meta_gap(uint64_t from)
{
	struct key k = {.p = {'G'}, .n = 9};
	put_be64(k.p + 1, from);
	return k;
}

/* All keys of a collection's documents begin with this. */
static inline struct key key_state_prefix(uint32_t collection)
{
	struct key k = {.n = 4};
	put_be32(k.p, collection);
	return k;
}

/* Writes the key of a document's version; p has KEY_STATE_MAX bytes. */
static inline size_t key_state_write(uint32_t collection, struct bytes key, uint64_t version,
				     char *p)
{
	size_t n = 4;

	put_be32(p, collection);
	for (size_t i = 0; i < key.n; i++) {
		p[n++] = key.p[i];
		if (!key.p[i])
			p[n++] = (char)0xff;
	}
	p[n++] = 0;
	p[n++] = 0;
	put_be64(p + n, version);
	return n + 8;
}

/* Reads it back; the document's key is written to `key`, which has 4096 bytes. False if it is
 * malformed. */
static inline bool key_state_read(struct bytes from, uint32_t *ret_collection, char *key,
				  size_t *ret_size, uint64_t *ret_version)
{
	size_t n = 0, end = from.n - 10;

	if (from.n < 14 || from.n > KEY_STATE_MAX || from.p[end] || from.p[end + 1])
		return false;
	*ret_collection = get_be32(from.p);
	*ret_version = get_be64(from.p + end + 2);
	for (size_t i = 4; i < end; i++) {
		if (n == 4096 || (!from.p[i] && (unsigned char)from.p[i + 1] != 0xff))
			return false;
		key[n++] = from.p[i];
		i += !from.p[i];
	}
	*ret_size = n;
	return true;
}

#define STATE_VALUE_HEAD  17
#define STATE_FLAG_BINARY 1

#define INDEX_S_HEAD 16

static inline size_t varint_write(char *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (char)(v | 0x80);
	p[n++] = (char)v;
	return n;
}

/* Bytes read, 0 if it is malformed. */
static inline size_t varint_read(struct bytes from, uint64_t *ret_value)
{
	uint64_t v = 0;

	for (size_t n = 0; n < from.n && n < 10; n++) {
		v |= (uint64_t)(from.p[n] & 0x7f) << (7 * n);
		if (!(from.p[n] & 0x80)) {
			*ret_value = v;
			return n + 1;
		}
	}
	return 0;
}
