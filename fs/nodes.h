/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The numbers by which the kernel knows nodes (FUSE nodeids):
 *
 *   1                 the root
 *   below 2^63        node_fixed_id(): the number says the node, nothing is kept but, for a
 *                     directory, how often it was looked up
 *   2^63 and above    given one after the other and never again, kept until the kernel forgets
 *
 * All functions may be called from any thread.
 */
#include <pthread.h>

#include "layout/layout.h"

struct nodes;

/* A node with a number of the last kind, or what the kernel knows of a directory. */
struct inode {
	struct node node;
	uint64_t id;
	uint64_t hash;
	uint64_t lookups;    /* what the kernel will forget */
	uint64_t references; /* what we hold */
	struct inode *next_id, *next_node;
	bool listed;	/* found by its node too, not only by its number */
	uint64_t stamp; /* the last one that nodes_stamp() gave it */

	pthread_mutex_t lock;	 /* guards what follows */
	struct content *content; /* what the open handles share */
	unsigned opens;
};

/* A node in use. It does not move: `node` may point into it. */
struct node_ref {
	const struct node *node;
	struct inode *inode; /* NULL for the other kinds */
	struct node fixed;
};

int nodes_new(struct layout *layout, struct nodes **ret_nodes);
/* Frees all; no node is in use any more. Takes NULL. */
void nodes_free(struct nodes *nodes);

/* Finds a node by its number. -ESTALE: there is no such. End with nodes_unref(). */
int nodes_ref(struct nodes *nodes, uint64_t id, struct node_ref *ret_ref);
void nodes_unref(struct nodes *nodes, struct node_ref *ref);
/* The number of a node that the kernel is about to be told; counts one lookup. Takes ownership of
 * the node in any case; end with nodes_unref(). -ENOMEM. */
int nodes_intern(struct nodes *nodes, struct node *node, uint64_t *ret_id,
		 struct node_ref *ret_ref);
/* The kernel forgets that many lookups. */
void nodes_forget(struct nodes *nodes, uint64_t id, uint64_t lookups);
/* True if the kernel knows this directory, so that somebody may watch it. */
bool nodes_hold_directory(struct nodes *nodes, uint64_t id);
/* How many nodes that show the same file the kernel knows (NODE_SEVERAL). */
size_t nodes_count_same(struct nodes *nodes, const struct node *node);
/* One of these that is not stamped so, other than what a lookup gives anyway; counts a lookup; end
 * with nodes_unref(). -ENOENT: there is none. */
int nodes_find_same(struct nodes *nodes, const struct node *node, uint64_t stamp, uint64_t *ret_id,
		    struct node_ref *ret_ref);
/* Any number but 0. Nodes with fixed numbers have no stamp. */
void nodes_stamp(struct nodes *nodes, uint64_t id, uint64_t stamp);
