/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_batch.h"

#include <errno.h>
#include <stdlib.h>

static const char *const type_names[] = {
	[STORE_PUT] = "PUT",
	[STORE_DELETE] = "DELETE",
	[STORE_TRUNCATE] = "TRUNCATE",
	[STORE_MESSAGE] = "MESSAGE",
};

const char *store_type_name(enum store_type type)
{
	return type >= STORE_PUT && type <= STORE_MESSAGE ? type_names[type] : NULL;
}

enum store_type store_type_of(struct bytes name)
{
	for (int i = STORE_PUT; i <= STORE_MESSAGE; i++)
		if (bytes_equal(name, bytes_of(type_names[i])))
			return (enum store_type)i;
	return 0;
}

struct bytes store_key_collection(struct bytes key)
{
	const char *colon = key.n ? memchr(key.p, ':', key.n) : NULL;

	return !colon || colon == key.p ? BYTES("_")
					: (struct bytes){key.p, (size_t)(colon - key.p)};
}

struct store_batch *store_batch_new(struct store *store)
{
	(void)store;
	return calloc(1, sizeof(struct store_batch));
}

/* The copy has a NUL behind it, for tests that print. */
static struct bytes copy(struct bytes s)
{
	if (!s.p)
		return s;
	char *p = malloc(s.n + 1);
	if (!p)
		abort();
	memcpy(p, s.p, s.n);
	p[s.n] = '\0';
	return (struct bytes){p, s.n};
}

static void free_copy(struct bytes s)
{
	char *p;

	memcpy(&p, &s.p, sizeof(p)); /* it is only const to the others */
	free(p);
}

static void free_event(struct store_event *event)
{
	free_copy(event->collection);
	free_copy(event->key);
	free_copy(event->value);
	free_copy(event->before);
	free_copy(event->after);
	free_copy(event->metadata);
	free_copy(event->patch_key);
}

void store_batch_clear(struct store_batch *batch)
{
	for (size_t i = 0; i < batch->count; i++)
		free_event(&batch->events[i].event);
	free(batch->events);
	batch->events = NULL;
	batch->count = 0;
	batch->has_source = false;
	batch->source.n = 0;
}

void store_batch_free(struct store_batch *batch)
{
	if (!batch)
		return;
	store_batch_clear(batch);
	buffer_free(&batch->source);
	free(batch);
}

size_t store_batch_count(const struct store_batch *batch)
{
	return batch->count;
}

static void push(struct store_batch *batch, struct fake_event event)
{
	batch->events = realloc(batch->events, (batch->count + 1) * sizeof(event));
	if (!batch->events)
		abort();
	batch->events[batch->count++] = event;
}

int store_batch_add(struct store_batch *batch, const struct store_event *event, struct error *error)
{
	struct fake_event mine = {.event = *event};

	if (batch->fail_at && ++batch->added == batch->fail_at)
		return error_set(error, -EFBIG, "the fake batch is told to fail");
	mine.event.collection = copy(event->collection);
	mine.event.key = copy(event->key);
	mine.event.value = copy(event->value);
	mine.event.before = copy(event->before);
	mine.event.after = copy(event->after);
	mine.event.metadata = copy(event->metadata);
	mine.event.patch_key = copy(event->patch_key);
	push(batch, mine);
	return 0;
}

int store_batch_source(struct store_batch *batch, struct bytes name, uint64_t position,
		       int64_t time_us)
{
	batch->has_source = true;
	batch->source.n = 0;
	batch->position = position;
	batch->time_us = time_us;
	return buffer_add_bytes(&batch->source, name);
}

int store_batch_ops(struct store_batch *batch, const char *type, struct bytes details)
{
	struct fake_event mine = {.ops = type, .event = {.value = copy(details)}};

	push(batch, mine);
	return 0;
}

int store_batch_dead_letter(struct store_batch *batch, struct bytes members)
{
	return store_batch_ops(batch, "dead letter", members);
}

struct store_batch_mark store_batch_mark(const struct store_batch *batch)
{
	return (struct store_batch_mark){.events = batch->count};
}

void store_batch_rollback(struct store_batch *batch, struct store_batch_mark mark)
{
	while (batch->count > mark.events)
		free_event(&batch->events[--batch->count].event);
}
