/* SPDX-License-Identifier: Apache-2.0 */
#include "store/block.h"

#include <errno.h>

#include "store/keys.h"

int block_parse(struct bytes value, struct block *ret_block, struct error *error)
{
	if (value.n < BLOCK_HEAD_SIZE || value.p[0] != 1 ||
	    get_le16(value.p + 2) != BLOCK_ENTRY_SIZE)
		return error_set(error, -EBADMSG, "a block of the log has no valid header");
	struct block b = {
		.generation = get_le32(value.p + 4),
		.first = get_le64(value.p + 8),
		.position = get_le64(value.p + 16),
		.commit_ms = (int64_t)get_le64(value.p + 24),
		.count = get_le32(value.p + 32),
		.segment = get_le64(value.p + 40),
		.entries = value.p + BLOCK_HEAD_SIZE,
	};
	size_t head = BLOCK_HEAD_SIZE + (size_t)b.count * BLOCK_ENTRY_SIZE;
	b.lines.n = get_le32(value.p + 36);
	if (!b.count || value.n != head + b.lines.n)
		return error_set(error, -EBADMSG, "the block of sequence %llu is cut or too long",
				 (unsigned long long)b.first);
	b.lines.p = value.p + head;
	if (block_line_offset(&b, b.count) != b.lines.n)
		return error_set(error, -EBADMSG, "the lines of block %llu do not fill it",
				 (unsigned long long)b.first);
	*ret_block = b;
	return 0;
}

struct store_event_info block_event(const struct block *block, uint32_t i)
{
	const char *e = block->entries + (size_t)i * BLOCK_ENTRY_SIZE;

	return (struct store_event_info){
		.sequence = block->first + i,
		.length = get_le32(e),
		.collection = get_le32(e + 4),
		.timestamp_ms = (int64_t)get_le64(e + 8),
		.commit_ms = block->commit_ms + get_le32(e + 16),
		.type = (enum store_type)(unsigned char)e[20],
		.flags = (unsigned char)e[21],
		.through_file = (unsigned char)e[21] & BLOCK_FLAG_THROUGH_FILE,
	};
}

size_t block_line_offset(const struct block *block, uint32_t i)
{
	size_t offset = 0;

	for (uint32_t k = 0; k < i; k++)
		offset += get_le32(block->entries + (size_t)k * BLOCK_ENTRY_SIZE);
	return offset;
}

void block_builder_start(struct block_builder *b, uint64_t first)
{
	b->lines.n = 0;
	b->count = 0;
	b->first = first;
	b->head.n = 0;
}

int block_builder_add(struct block_builder *b, const struct store_event_info *event)
{
	if (buffer_reserve(&b->head, BLOCK_HEAD_SIZE + BLOCK_ENTRY_SIZE) < 0)
		return -ENOMEM;
	if (!b->head.n)
		b->head.n = BLOCK_HEAD_SIZE;
	char *e = b->head.p + b->head.n;
	put_le32(e, event->length);
	put_le32(e + 4, event->collection);
	put_le64(e + 8, (uint64_t)event->timestamp_ms);
	put_le32(e + 16, 0);
	put_le32(e + 20, (uint32_t)event->type | (uint32_t)event->flags << 8);
	b->head.n += BLOCK_ENTRY_SIZE;
	b->count++;
	return 0;
}

void block_builder_finish(struct block_builder *b, uint64_t position, int64_t commit_ms,
			  uint64_t segment)
{
	char *h = b->head.p;

	memset(h, 0, BLOCK_HEAD_SIZE);
	h[0] = 1;
	put_le16(h + 2, BLOCK_ENTRY_SIZE);
	put_le64(h + 8, b->first);
	put_le64(h + 16, position);
	put_le64(h + 24, (uint64_t)commit_ms);
	put_le32(h + 32, b->count);
	put_le32(h + 36, (uint32_t)b->lines.n);
	put_le64(h + 40, segment);
}

void block_builder_free(struct block_builder *b)
{
	buffer_free(&b->head);
	buffer_free(&b->lines);
}
