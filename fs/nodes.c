/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "fs/nodes.h"

#define ROOT_ID	       1
#define DYNAMIC	       (UINT64_C(1) << 63)
#define FIRST_CAPACITY 64 /* a power of two */

/*
 * Two chained tables over the same inodes, one by number and one by what the node is. One lock for
 * both: it is held for a few dozen instructions, and nodes with fixed numbers never come here.
 */
struct nodes {
	struct layout *layout;
	struct node root;
	pthread_mutex_t lock;
	struct inode **by_id, **by_node;
	size_t capacity; /* of both */
	size_t count;
	uint64_t last_id;
};

int nodes_new(struct layout *layout, struct nodes **ret_nodes)
{
	struct nodes *nodes = calloc(1, sizeof(*nodes));
	int r = -ENOMEM;

	if (!nodes)
		return r;
	pthread_mutex_init(&nodes->lock, NULL);
	nodes->layout = layout;
	nodes->capacity = FIRST_CAPACITY;
	nodes->last_id = DYNAMIC;
	nodes->by_id = calloc(FIRST_CAPACITY, sizeof(struct inode *));
	nodes->by_node = calloc(FIRST_CAPACITY, sizeof(struct inode *));
	if (nodes->by_id && nodes->by_node)
		r = layout_root(layout, &nodes->root);
	if (r < 0) {
		nodes_free(nodes);
		return r;
	}
	*ret_nodes = nodes;
	return 0;
}

static void inode_free(struct inode *inode)
{
	content_free(inode->content);
	pthread_mutex_destroy(&inode->lock);
	node_free(&inode->node);
	free(inode);
}

void nodes_free(struct nodes *nodes)
{
	if (!nodes)
		return;
	for (size_t i = 0; nodes->by_id && i < nodes->capacity; i++)
		for (struct inode *inode = nodes->by_id[i], *next; inode; inode = next) {
			next = inode->next_id;
			assert(inode->references == 0);
			inode_free(inode);
		}
	free(nodes->by_id);
	free(nodes->by_node);
	node_free(&nodes->root);
	pthread_mutex_destroy(&nodes->lock);
	free(nodes);
}

/* ---- the tables; all below the lock ---- */

/* Spreads the bits: numbers are consecutive and a hash may be weak. */
static size_t slot(const struct nodes *nodes, uint64_t x)
{
	return (size_t)((x * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (nodes->capacity - 1);
}

static void link_inode(struct nodes *nodes, struct inode *inode)
{
	struct inode **head = &nodes->by_id[slot(nodes, inode->id)];

	inode->next_id = *head;
	*head = inode;
	if (!inode->listed)
		return;
	head = &nodes->by_node[slot(nodes, inode->hash)];
	inode->next_node = *head;
	*head = inode;
}

static void unlink_inode(struct nodes *nodes, struct inode *inode)
{
	struct inode **p = &nodes->by_id[slot(nodes, inode->id)];

	while (*p != inode)
		p = &(*p)->next_id;
	*p = inode->next_id;
	nodes->count--;
	if (!inode->listed)
		return;
	p = &nodes->by_node[slot(nodes, inode->hash)];
	while (*p != inode)
		p = &(*p)->next_node;
	*p = inode->next_node;
}

/* Doubles the tables when the chains get long. Without memory they just get longer. */
static void grow(struct nodes *nodes)
{
	size_t old = nodes->capacity;
	struct inode **was = nodes->by_id;
	struct inode **by_id, **by_node;

	if (nodes->count < old)
		return;
	by_id = calloc(2 * old, sizeof(*by_id));
	by_node = calloc(2 * old, sizeof(*by_node));
	if (!by_id || !by_node) {
		free(by_id);
		free(by_node);
		return;
	}
	free(nodes->by_node);
	nodes->by_id = by_id;
	nodes->by_node = by_node;
	nodes->capacity = 2 * old;
	for (size_t i = 0; i < old; i++)
		for (struct inode *inode = was[i], *next; inode; inode = next) {
			next = inode->next_id;
			link_inode(nodes, inode);
		}
	free(was);
}

static struct inode *find_id(const struct nodes *nodes, uint64_t id)
{
	struct inode *inode = nodes->by_id[slot(nodes, id)];

	while (inode && inode->id != id)
		inode = inode->next_id;
	return inode;
}

static struct inode *find_node(const struct nodes *nodes, const struct node *node, uint64_t hash)
{
	struct inode *inode = nodes->by_node[slot(nodes, hash)];

	while (inode && (inode->hash != hash || !node_equal(&inode->node, node)))
		inode = inode->next_node;
	return inode;
}

/* Takes it out of the tables if nobody has it any more; the caller then frees it. */
static struct inode *take_unused(struct nodes *nodes, struct inode *inode)
{
	if (inode->lookups > 0 || inode->references > 0)
		return NULL;
	unlink_inode(nodes, inode);
	return inode;
}

/* ---- for the daemon ---- */

int nodes_ref(struct nodes *nodes, uint64_t id, struct node_ref *ret_ref)
{
	int r;

	*ret_ref = (struct node_ref){0};
	if (id == ROOT_ID) {
		ret_ref->node = &nodes->root;
		return 0;
	}
	if (!(id & DYNAMIC)) {
		r = node_from_fixed_id(nodes->layout, id, &ret_ref->fixed);
		if (r == 0)
			ret_ref->node = &ret_ref->fixed;
		return r;
	}
	pthread_mutex_lock(&nodes->lock);
	ret_ref->inode = find_id(nodes, id);
	if (ret_ref->inode)
		ret_ref->inode->references++;
	pthread_mutex_unlock(&nodes->lock);
	if (!ret_ref->inode)
		return -ESTALE;
	ret_ref->node = &ret_ref->inode->node;
	return 0;
}

void nodes_unref(struct nodes *nodes, struct node_ref *ref)
{
	struct inode *unused;

	if (!ref->inode) {
		node_free(&ref->fixed);
	} else {
		pthread_mutex_lock(&nodes->lock);
		ref->inode->references--;
		unused = take_unused(nodes, ref->inode);
		pthread_mutex_unlock(&nodes->lock);
		if (unused)
			inode_free(unused);
	}
	*ref = (struct node_ref){0};
}

static struct inode *inode_new(struct node *node)
{
	struct inode *inode = calloc(1, sizeof(*inode));

	if (!inode)
		return NULL;
	node_move(&inode->node, node);
	inode->listed =
		!(node_flags(&inode->node) & NODE_FRESH) || node_flags(&inode->node) & NODE_SEVERAL;
	if (inode->listed)
		inode->hash = node_hash(&inode->node);
	pthread_mutex_init(&inode->lock, NULL);
	return inode;
}

/* Finds the equal of `fresh` or puts it in. Returns the one that is not needed, if any. */
static struct inode *intern(struct nodes *nodes, struct inode *fresh, struct inode **ret_inode)
{
	struct inode *inode = NULL;

	pthread_mutex_lock(&nodes->lock);
	if (!(node_flags(&fresh->node) & NODE_FRESH))
		inode = find_node(nodes, &fresh->node, fresh->hash);
	if (!inode) {
		grow(nodes);
		inode = fresh;
		fresh = NULL;
		inode->id = ++nodes->last_id;
		nodes->count++;
		link_inode(nodes, inode);
	}
	inode->lookups++;
	inode->references++;
	pthread_mutex_unlock(&nodes->lock);
	*ret_inode = inode;
	return fresh;
}

static int count_directory(struct nodes *nodes, uint64_t id)
{
	struct inode *inode;

	pthread_mutex_lock(&nodes->lock);
	inode = find_id(nodes, id);
	if (!inode && (inode = calloc(1, sizeof(*inode)))) {
		grow(nodes);
		pthread_mutex_init(&inode->lock, NULL);
		inode->id = id;
		nodes->count++;
		link_inode(nodes, inode);
	}
	if (inode)
		inode->lookups++;
	pthread_mutex_unlock(&nodes->lock);
	return inode ? 0 : -ENOMEM;
}

int nodes_intern(struct nodes *nodes, struct node *node, uint64_t *ret_id, struct node_ref *ret_ref)
{
	uint64_t id = node_fixed_id(node);
	struct inode *fresh, *unneeded;

	*ret_ref = (struct node_ref){0};
	if (id != 0) {
		assert(id > ROOT_ID && !(id & DYNAMIC));
		if (node_id_is_directory(id) && count_directory(nodes, id) < 0) {
			node_free(node);
			return -ENOMEM;
		}
		node_move(&ret_ref->fixed, node);
		ret_ref->node = &ret_ref->fixed;
		*ret_id = id;
		return 0;
	}
	fresh = inode_new(node);
	if (!fresh) {
		node_free(node);
		return -ENOMEM;
	}
	unneeded = intern(nodes, fresh, &ret_ref->inode);
	if (unneeded)
		inode_free(unneeded);
	ret_ref->node = &ret_ref->inode->node;
	*ret_id = ret_ref->inode->id;
	return 0;
}

void nodes_forget(struct nodes *nodes, uint64_t id, uint64_t lookups)
{
	struct inode *inode, *unused = NULL;

	if (!(id & DYNAMIC) && !node_id_is_directory(id))
		return;
	pthread_mutex_lock(&nodes->lock);
	inode = find_id(nodes, id);
	if (inode) {
		inode->lookups -= inode->lookups < lookups ? inode->lookups : lookups;
		unused = take_unused(nodes, inode);
	}
	pthread_mutex_unlock(&nodes->lock);
	if (unused)
		inode_free(unused);
}

/* ---- for announcing ---- */

bool nodes_hold_directory(struct nodes *nodes, uint64_t id)
{
	bool held;

	pthread_mutex_lock(&nodes->lock);
	held = id == ROOT_ID || find_id(nodes, id);
	pthread_mutex_unlock(&nodes->lock);
	return held;
}

/* The next one in the chain that shows the same file and that the kernel knows. A document that is
 * open may be in the making: to write to it would move its end in the kernel. */
static struct inode *next_same(struct inode *inode, const struct node *node, uint64_t hash)
{
	bool is_fresh = node_flags(node) & NODE_FRESH;

	while (inode && (inode->hash != hash || !inode->lookups ||
			 (is_fresh && inode->references) || !node_same_file(&inode->node, node)))
		inode = inode->next_node;
	return inode;
}

size_t nodes_count_same(struct nodes *nodes, const struct node *node)
{
	uint64_t hash = node_hash(node);
	size_t count = 0;

	pthread_mutex_lock(&nodes->lock);
	for (struct inode *inode = nodes->by_node[slot(nodes, hash)];
	     (inode = next_same(inode, node, hash)); inode = inode->next_node)
		count++;
	pthread_mutex_unlock(&nodes->lock);
	return count;
}

int nodes_find_same(struct nodes *nodes, const struct node *node, uint64_t stamp, uint64_t *ret_id,
		    struct node_ref *ret_ref)
{
	uint64_t hash = node_hash(node);
	bool is_fresh = node_flags(node) & NODE_FRESH;
	struct inode *inode;

	*ret_ref = (struct node_ref){0};
	pthread_mutex_lock(&nodes->lock);
	inode = next_same(nodes->by_node[slot(nodes, hash)], node, hash);
	while (inode && (inode->stamp == stamp || (!is_fresh && node_equal(&inode->node, node))))
		inode = next_same(inode->next_node, node, hash);
	if (inode) {
		inode->lookups++;
		inode->references++;
		*ret_id = inode->id;
		*ret_ref = (struct node_ref){.node = &inode->node, .inode = inode};
	}
	pthread_mutex_unlock(&nodes->lock);
	return inode ? 0 : -ENOENT;
}

void nodes_stamp(struct nodes *nodes, uint64_t id, uint64_t stamp)
{
	struct inode *inode;

	pthread_mutex_lock(&nodes->lock);
	inode = find_id(nodes, id);
	if (inode)
		inode->stamp = stamp;
	pthread_mutex_unlock(&nodes->lock);
}
