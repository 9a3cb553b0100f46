/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Buffers for replies. They are large and must stay warm, and there are far more threads than reads
 * at one moment: so they belong to nobody, and the one that was used last is given first.
 */
#include <pthread.h>
#include <stddef.h>

#define POOL_BUFFER_SIZE ((size_t)1 << 20) /* the largest read that the kernel asks for */
#define POOL_KEPT	 8

struct pool {
	pthread_mutex_t lock;
	char *kept[POOL_KEPT];
	unsigned count;
};

void pool_init(struct pool *pool);
void pool_destroy(struct pool *pool);
/* A buffer of POOL_BUFFER_SIZE, NULL if there is no memory. */
char *pool_take(struct pool *pool);
void pool_give(struct pool *pool, char *buffer); /* takes NULL */
