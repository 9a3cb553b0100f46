/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fs/pool.h"

void pool_init(struct pool *pool)
{
	pthread_mutex_init(&pool->lock, NULL);
	pool->count = 0;
}

void pool_destroy(struct pool *pool)
{
	while (pool->count > 0)
		free(pool->kept[--pool->count]);
	pthread_mutex_destroy(&pool->lock);
}

char *pool_take(struct pool *pool)
{
	char *buffer = NULL;

	pthread_mutex_lock(&pool->lock);
	if (pool->count > 0)
		buffer = pool->kept[--pool->count];
	pthread_mutex_unlock(&pool->lock);
	return buffer ? buffer : malloc(POOL_BUFFER_SIZE);
}

void pool_give(struct pool *pool, char *buffer)
{
	pthread_mutex_lock(&pool->lock);
	if (buffer && pool->count < POOL_KEPT) {
		pool->kept[pool->count++] = buffer;
		buffer = NULL;
	}
	pthread_mutex_unlock(&pool->lock);
	free(buffer);
}
