/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A store_batch that only remembers, for tests of the input formats. Link fake_batch.c instead of
 * the store's batch. */
#include "store/store.h"

struct fake_event {
	struct store_event event; /* its slices point to copies that the batch owns */
	const char *ops;	  /* an ops event's type, or NULL; its details are event.value */
};

struct store_batch {
	struct fake_event *events;
	size_t count;
	struct buffer source;
	uint64_t position;
	int64_t time_us;
	bool has_source;
	/* The store_batch_add() that is to fail, counted from 1; 0: none. With -EFBIG. */
	size_t fail_at;
	size_t added;
};
