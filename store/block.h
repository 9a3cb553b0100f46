/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A block of the log: events with consecutive sequences and their lines; keys.h draws it. */
#include "store/store.h"

#define BLOCK_HEAD_SIZE		48
#define BLOCK_ENTRY_SIZE	24
#define BLOCK_FLAG_BASE64	1
#define BLOCK_FLAG_PARTIAL	2
#define BLOCK_FLAG_THROUGH_FILE 4
/* Lines are gathered into blocks of about this size; one longer line is a block of its own. */
#define BLOCK_TARGET ((size_t)128 << 10)

/* A parsed block; borrows the bytes it was parsed from. */
struct block {
	uint64_t first;
	uint64_t position;
	int64_t commit_ms;
	uint64_t segment;
	uint32_t generation;
	uint32_t count;
	const char *entries;
	struct bytes lines;
};

/* -EBADMSG if it is no block, or its numbers do not agree. */
int block_parse(struct bytes value, struct block *ret_block, struct error *error);

static inline uint64_t block_end(const struct block *block)
{
	return block->position + block->lines.n;
}

/* Event `i` of the block. */
struct store_event_info block_event(const struct block *block, uint32_t i);
/* Offset of line `i` in the block's lines. */
size_t block_line_offset(const struct block *block, uint32_t i);

/* A block in the making: the head and entries, and the lines. */
struct block_builder {
	struct buffer head;
	struct buffer lines;
	uint64_t first;
	uint32_t count;
};

void block_builder_start(struct block_builder *b, uint64_t first);
/* Adds an entry for a line that is already at the end of b->lines. */
int block_builder_add(struct block_builder *b, const struct store_event_info *event);
/* Writes the header. */
void block_builder_finish(struct block_builder *b, uint64_t position, int64_t commit_ms,
			  uint64_t segment);
void block_builder_free(struct block_builder *b);
