/* SPDX-License-Identifier: Apache-2.0 */
/* Finding one's way in the node table. */
#include "layout/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout/formats/format.h"
#include "layout/names.h"

/* ---- nodes ---- */

void node_free(struct node *node)
{
	free(node->text);
	node->text = NULL;
	node->text_size = 0;
}

void node_move(struct node *to, struct node *from)
{
	*to = *from;
	from->text = NULL;
	from->text_size = 0;
}

void node_take_text(struct node *node, struct buffer *text)
{
	free(node->text);
	node->text = text->p;
	node->text_size = text->n;
	*text = (struct buffer){0};
}

/* Row in the upper bits, the collection or sequence in the lower 54: below 2^62. */
static uint64_t fixed_number(enum row_id row, uint64_t number)
{
	return (uint64_t)row << 54 | number;
}

uint64_t node_fixed_id(const struct node *node)
{
	switch (node->row->key) {
	case NODE_BY_ROW:
		return fixed_number(row_of(node), 0);
	case NODE_BY_COLLECTION:
		return fixed_number(row_of(node), node->collection);
	case NODE_BY_SEQUENCE:
		return fixed_number(row_of(node), node->number);
	case NODE_FREE:
		break;
	}
	return 0;
}

int node_from_fixed_id(struct layout *layout, uint64_t id, struct node *ret_node)
{
	uint64_t row = id >> 54, number = id & ((UINT64_C(1) << 54) - 1);

	if (row <= ROW_NONE || row >= ROWS || node_rows[row].key == NODE_FREE)
		return -ESTALE;
	*ret_node = (struct node){.row = &node_rows[row]};
	if (ret_node->row->key == NODE_BY_COLLECTION)
		ret_node->collection = (uint32_t)number;
	else if (ret_node->row->key == NODE_BY_SEQUENCE)
		ret_node->number = number;
	return 0;
}

bool node_id_is_directory(uint64_t id)
{
	uint64_t row = id >> 54;

	return row > ROW_NONE && row < ROWS && node_rows[row].flags & NODE_DIRECTORY;
}

bool node_same_file(const struct node *a, const struct node *b)
{
	if (a->row != b->row || a->collection != b->collection)
		return false;
	return row_of(a) != ROW_DOCUMENT || bytes_equal(node_text(a), node_text(b));
}

bool node_equal(const struct node *a, const struct node *b)
{
	return node_same_file(a, b) && a->number == b->number &&
	       bytes_equal(node_text(a), node_text(b));
}

/* FNV-1a, 64 bits, with a last mix (both by their published constants). */
static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
	const unsigned char *c = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ c[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Mixed, since a number that is only XORed in can cancel a text's first byte. */
static uint64_t hash_start(enum row_id row, uint32_t collection)
{
	uint64_t h = ((uint64_t)row << 32 | collection) * UINT64_C(0x9e3779b97f4a7c15);

	return h ^ h >> 32;
}

uint64_t node_hash(const struct node *node)
{
	uint64_t h = hash_start(row_of(node), node->collection);

	bool several = node->row->flags & NODE_SEVERAL;

	if (!several)
		h = hash_bytes(h, &node->number, sizeof(node->number));
	if (!several || row_of(node) == ROW_DOCUMENT)
		h = hash_bytes(h, node->text, node->text_size);
	return h ^ h >> 32;
}

uint64_t ino_of_draft(uint64_t id)
{
	return fixed_number(ROW_SCRATCH, id);
}

uint64_t ino_of_row(enum row_id row)
{
	return fixed_number(row, 0);
}

uint64_t ino_of_text(enum row_id row, uint32_t collection, struct bytes text)
{
	uint64_t h = hash_start(row, collection);

	h = hash_bytes(h, text.p, text.n);
	h ^= h >> 31;
	h *= UINT64_C(0x9e3779b97f4a7c15);
	return UINT64_C(1) << 62 | h >> 2;
}

unsigned node_flags(const struct node *node)
{
	return node->row->flags;
}

int layout_root(struct layout *layout, struct node *ret_node)
{
	*ret_node = (struct node){.row = &node_rows[ROW_ROOT]};
	return 0;
}

/* ---- attributes ---- */

struct timespec time_of_ms(int64_t ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	if (t.tv_nsec < 0) {
		t.tv_sec--;
		t.tv_nsec += 1000000000;
	}
	return t;
}

/* Those that feed/ or data/ shows. */
static uint32_t count_collections(struct layout *layout, enum row_id row)
{
	uint32_t all = store_collection_count(layout->store), n = all;

	if (!store_collections_any_removed(layout->store))
		return all;
	for (uint32_t id = 1; id <= all; id++)
		n -= row == ROW_DATA ? store_collection_is_removed(layout->store, id)
				     : feed_collection_is_gone(layout->store, id);
	return n;
}

/* Directories change when a name comes or goes: those with fixed names never do. */
static int stat_directory(struct layout *layout, const struct node *node, struct stat *st)
{
	enum row_id row = row_of(node);
	struct store_stream stream;
	int rc = 0;

	st->st_nlink = 2;
	for (int i = 0; i < ROWS; i++)
		if (node_rows[i].parent == row && node_rows[i].name && S_ISDIR(node_rows[i].mode))
			st->st_nlink++;
	st->st_size = 4096;
	if (row == ROW_FEED || row == ROW_DATA) {
		st->st_nlink += count_collections(layout, row);
		st->st_mtim = time_of_ms(store_collection_newest_ms(layout->store));
	} else if (row == ROW_GROUPS) {
		st->st_nlink += groups_count(layout);
		st->st_mtim = time_of_ms(atomic_load(&layout->groups_changed));
	} else if (row == ROW_GROUP || row == ROW_GROUP_PENDING) {
		rc = ctl_stat_text(layout, node, NULL, st, NULL);
		st->st_size = 4096;
	} else if (row == ROW_DLQ || row == ROW_OPS) {
		st->st_mtim = time_of_ms(records_last_ms(layout, row));
	} else if (node->collection) {
		rc = store_stream_stat(layout->store, node->collection, &stream);
		st->st_mtim = time_of_ms(stream.last_ms);
	}
	return rc;
}

struct stat stat_common(struct layout *layout, const struct node *node)
{
	const struct node_row *row = node->row;
	struct stat st = {
		.st_ino = node_fixed_id(node),
		.st_mode = row->mode & ~(S_ISLNK(row->mode) ? 0 : layout->options.umask),
		.st_nlink = 1,
		.st_uid = layout->options.uid,
		.st_gid = layout->options.gid,
		.st_blksize = 4096,
		.st_mtim = time_of_ms(layout->created_ms),
	};

	if (!st.st_ino)
		st.st_ino = fixed_number(row_of(node), node->collection);
	return st;
}

void stat_complete(struct stat *st)
{
	st->st_blocks = st->st_size > 512 ? (st->st_size + 511) / 512 : 1;
	st->st_atim = st->st_ctim = st->st_mtim;
}

int layout_stat(struct layout *layout, const struct node *node, const struct content *content,
		struct stat *ret_stat, struct error *error)
{
	const struct node_row *row = node->row;
	struct stat st = stat_common(layout, node);
	int rc = 0;

	if (row->flags & NODE_DIRECTORY)
		rc = stat_directory(layout, node, &st);
	else if (row->flags & NODE_LINK)
		st.st_size = (off_t)strlen(row->target);
	else
		rc = row->stat(layout, node, content, &st, error);
	stat_complete(&st);
	if (rc == 0)
		rc = attributes_apply(layout, node, &st);
	*ret_stat = st;
	return rc;
}

const char *layout_readlink(const struct node *node)
{
	return node->row->target;
}

/* ---- names ---- */

static int find_in_row(struct layout *layout, const struct node *parent, const struct node_row *row,
		       const char *name, struct node *ret_node, struct error *error)
{
	if (row->parent != row_of(parent) || (row->name && strcmp(row->name, name) != 0))
		return -ENOENT;
	*ret_node = (struct node){.row = row, .collection = parent->collection};
	return row->find ? row->find(layout, parent, name, ret_node, error) : 0;
}

int layout_lookup_node(struct layout *layout, const struct node *parent, const char *name,
		       struct node *ret_node, struct error *error)
{
	int rc = -ENOENT;

	if (!(parent->row->flags & NODE_DIRECTORY))
		return -ENOTDIR;
	if (strlen(name) > 255)
		return -ENAMETOOLONG;
	for (int i = 1; i < ROWS && rc == -ENOENT; i++)
		rc = find_in_row(layout, parent, &node_rows[i], name, ret_node, error);
	return rc;
}

int layout_lookup(struct layout *layout, const struct node *parent, const char *name,
		  struct node *ret_node, struct stat *ret_stat, struct error *error)
{
	struct node node = {0};

	int rc = layout_lookup_node(layout, parent, name, &node, error);
	if (rc == 0)
		rc = layout_stat(layout, &node, NULL, ret_stat, error);
	if (rc < 0) {
		node_free(&node);
		return rc;
	}
	node_move(ret_node, &node);
	return 0;
}

size_t layout_changed_directories(uint32_t collection, uint64_t ret_ids[2])
{
	struct node feed = {.row = &node_rows[collection ? ROW_COLLECTION : ROW_FEED]};
	struct node data = {.row = &node_rows[collection ? ROW_DOCUMENTS : ROW_DATA]};

	feed.collection = data.collection = collection;
	ret_ids[0] = node_fixed_id(&feed);
	ret_ids[1] = node_fixed_id(&data);
	return 2;
}

/* ---- the layout ---- */

int layout_open(struct store *store, const struct layout_options *options,
		struct layout **ret_layout)
{
	struct store_stats stats;

	int rc = store_stats_get(store, &stats);
	if (rc < 0)
		return rc;
	struct layout *layout = calloc(1, sizeof(*layout));
	if (!layout)
		return -ENOMEM;
	layout->store = store;
	layout->options = *options;
	layout->started_ms = clock_wall_ms();
	layout->created_ms = stats.created_ms;
	atomic_store(&layout->groups_changed, layout->started_ms);
	pthread_mutex_init(&layout->live.lock, NULL);
	pthread_mutex_init(&layout->configuring, NULL);
	rc = drafts_init(&layout->drafts);
	if (rc == 0)
		rc = attributes_load(layout);
	if (rc == 0)
		rc = layout_readme(layout, &layout->readme);
	if (rc < 0) {
		layout_close(layout);
		return rc;
	}
	*ret_layout = layout;
	return 0;
}

void layout_close(struct layout *layout)
{
	if (!layout)
		return;
	layout_settle(layout, true);
	drafts_free(&layout->drafts);
	attributes_free(layout);
	pthread_mutex_destroy(&layout->configuring);
	pthread_mutex_destroy(&layout->live.lock);
	buffer_free(&layout->readme);
	free(layout);
}
