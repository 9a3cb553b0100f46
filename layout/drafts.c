/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/drafts.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "layout/formats/json.h"

/* As in/events takes it. */
#define TIMESTAMP_MAX_MS ((int64_t)STORE_SEQUENCE_MAX)

/* Up to here a text's beginning is checked at each write, beyond that when it has doubled. */
#define CHECK_ALWAYS ((size_t)64 << 10)

int64_t clock_steady_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int drafts_init(struct drafts *drafts)
{
	int rc = pthread_mutex_init(&drafts->lock, NULL);

	return -(rc ? rc : pthread_cond_init(&drafts->left, NULL));
}

/* The place of the first draft whose id is at least `id`. */
static size_t place_of(const struct drafts *drafts, uint64_t id)
{
	size_t low = 0, high = drafts->count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (drafts->all[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void unlink_draft(struct draft *draft)
{
	struct drafts *drafts = draft->owner;
	struct draft **at = drafts->all + place_of(drafts, draft->id);

	drafts->count--;
	memmove(at, at + 1, (size_t)(drafts->all + drafts->count - at) * sizeof(*at));
	drafts->bytes -= draft->bytes.n;
	free(draft->name);
	buffer_free(&draft->key);
	buffer_free(&draft->bytes);
	free(draft);
}

void drafts_free(struct drafts *drafts)
{
	while (drafts->count)
		unlink_draft(drafts->all[drafts->count - 1]);
	while (drafts->departures)
		drafts_leave(drafts, drafts->departures, true);
	free(drafts->all);
	pthread_cond_destroy(&drafts->left);
	pthread_mutex_destroy(&drafts->lock);
}

/* ---- one draft ---- */

static int link_draft(struct drafts *drafts, struct draft *draft, bool named, struct error *error)
{
	if (drafts->count >= (named ? DRAFTS_MAX : 2 * DRAFTS_MAX))
		return error_set(error, -ENOSPC, "there are %zu files that are no documents yet",
				 drafts->count);
	if (drafts->count == drafts->capacity) {
		size_t capacity = drafts->capacity ? 2 * drafts->capacity : 64;
		struct draft **all = realloc(drafts->all, capacity * sizeof(struct draft *));
		if (!all)
			return -ENOMEM;
		drafts->all = all;
		drafts->capacity = capacity;
	}
	draft->id = ++drafts->last_id;
	drafts->all[drafts->count++] = draft;
	return 0;
}

int draft_new(struct drafts *drafts, uint32_t collection, bool named, struct draft **ret_draft,
	      struct error *error)
{
	struct draft *draft = calloc(1, sizeof(*draft));

	if (!draft)
		return -ENOMEM;
	*draft = (struct draft){.owner = drafts, .references = 1, .collection = collection};
	clock_gettime(CLOCK_REALTIME, &draft->time);
	pthread_mutex_lock(&drafts->lock);
	int rc = link_draft(drafts, draft, named, error);
	pthread_mutex_unlock(&drafts->lock);
	if (rc == 0)
		*ret_draft = draft;
	else
		free(draft);
	return rc;
}

void draft_ref(struct draft *draft)
{
	draft->references++;
}

void draft_unref_locked(struct draft *draft)
{
	if (--draft->references == 0 && !draft->name)
		unlink_draft(draft);
}

void draft_unref(struct draft *draft)
{
	if (!draft)
		return;
	struct drafts *drafts = draft->owner;
	pthread_mutex_lock(&drafts->lock);
	draft_unref_locked(draft);
	pthread_mutex_unlock(&drafts->lock);
}

int draft_set_name(struct draft *draft, const char *name)
{
	char *copy = strdup(name);

	if (!copy)
		return -ENOMEM;
	free(draft->name);
	draft->name = copy;
	return 0;
}

int draft_set_key(struct draft *draft, struct bytes key)
{
	struct buffer copy = {0};

	if (buffer_add_bytes(&copy, key) < 0)
		return -ENOMEM;
	buffer_free(&draft->key);
	draft->key = copy;
	draft->is_document = true;
	return 0;
}

void draft_drop_name(struct draft *draft)
{
	free(draft->name);
	draft->name = NULL;
	if (!draft->references)
		unlink_draft(draft);
}

/* ---- finding ---- */

struct draft *drafts_find_name(struct drafts *drafts, uint32_t collection, const char *name)
{
	for (size_t i = 0; i < drafts->count; i++) {
		struct draft *d = drafts->all[i];
		if (d->collection == collection && d->name && strcmp(d->name, name) == 0)
			return d;
	}
	return NULL;
}

struct draft *drafts_find_id(struct drafts *drafts, uint64_t id)
{
	size_t i = place_of(drafts, id);

	return i < drafts->count && drafts->all[i]->id == id ? drafts->all[i] : NULL;
}

uint64_t drafts_last_id(struct drafts *drafts)
{
	pthread_mutex_lock(&drafts->lock);
	uint64_t id = drafts->last_id;
	pthread_mutex_unlock(&drafts->lock);
	return id;
}

struct draft *drafts_next(struct drafts *drafts, uint32_t collection, uint64_t id)
{
	for (size_t i = place_of(drafts, id + 1); i < drafts->count; i++)
		if (drafts->all[i]->collection == collection && drafts->all[i]->name)
			return drafts->all[i];
	return NULL;
}

static bool is_of(const struct draft *d, uint32_t collection, struct bytes key)
{
	return d->is_document && d->collection == collection &&
	       bytes_equal(buffer_bytes(&d->key), key);
}

static struct draft *find_new(struct drafts *drafts, uint32_t collection, struct bytes key)
{
	for (size_t i = 0; i < drafts->count; i++)
		if (drafts->all[i]->name && is_of(drafts->all[i], collection, key))
			return drafts->all[i];
	return NULL;
}

bool drafts_has_new(struct drafts *drafts, uint32_t collection, struct bytes key)
{
	return find_new(drafts, collection, key);
}

void drafts_drop_new(struct drafts *drafts, uint32_t collection, struct bytes key)
{
	struct draft *d = find_new(drafts, collection, key);

	if (d)
		draft_drop_name(d);
}

size_t drafts_count_writers(struct drafts *drafts, uint32_t collection, struct bytes key)
{
	size_t n = 0;

	for (size_t i = 0; i < drafts->count; i++)
		n += !drafts->all[i]->name && is_of(drafts->all[i], collection, key);
	return n;
}

void drafts_move_writers(struct drafts *drafts, uint32_t collection, struct bytes key,
			 uint32_t to_collection, struct bytes to_key)
{
	for (size_t i = 0; i < drafts->count; i++) {
		struct draft *d = drafts->all[i];
		if (d->name || !is_of(d, collection, key))
			continue;
		d->is_document = to_key.p && draft_set_key(d, to_key) == 0;
		if (d->is_document)
			d->collection = to_collection;
	}
}

/* ---- bytes ---- */

static bool beginning_is_due(size_t before, size_t after)
{
	size_t power = CHECK_ALWAYS;

	while (power <= before)
		power *= 2;
	return after <= CHECK_ALWAYS || after >= power;
}

static int make_room(struct draft *draft, uint64_t size, uint64_t limit, struct error *error)
{
	struct drafts *drafts = draft->owner;
	uint64_t more = size > draft->bytes.n ? size - draft->bytes.n : 0;

	if (draft->is_document && size > limit)
		return error_set(error, -EFBIG, "a document may have %llu bytes",
				 (unsigned long long)limit);
	if (size > DRAFT_BYTES_MAX ||
	    drafts->bytes + more > (draft->is_document ? 2 : 1) * DRAFT_BYTES_MAX)
		return error_set(error, -ENOSPC,
				 "files that are no documents yet may have %llu bytes",
				 (unsigned long long)DRAFT_BYTES_MAX);
	return buffer_reserve(&draft->bytes, more);
}

/* The room is there. */
static void set_size(struct draft *draft, size_t size)
{
	if (size > draft->bytes.n)
		memset(draft->bytes.p + draft->bytes.n, 0, size - draft->bytes.n);
	draft->owner->bytes += size;
	draft->owner->bytes -= draft->bytes.n;
	draft->bytes.n = size;
	draft->dirty = true;
	draft->flushed = false;
	draft->time_set = false;
	clock_gettime(CLOCK_REALTIME, &draft->time);
}

void draft_start(struct draft *draft, struct buffer *text)
{
	draft->bytes = *text;
	draft->owner->bytes += text->n;
	*text = (struct buffer){0};
}

int draft_refused(const struct draft *draft, struct error *error)
{
	return error_set(error, draft->refused, "a write was refused before: %s",
			 draft->reason.text);
}

int draft_write(struct draft *draft, struct bytes text, uint64_t at, uint64_t limit,
		struct error *error)
{
	size_t before = draft->bytes.n;
	struct error reason = {0};
	int rc = 0;

	draft->written = true;
	if (draft->is_document && draft->refused)
		return draft_refused(draft, error);
	if (at == UINT64_MAX)
		at = before;
	if (at > DRAFT_BYTES_MAX)
		rc = error_set(&reason, -EFBIG, "this is far behind the largest document's end");
	if (rc == 0)
		rc = make_room(draft, at + text.n, limit, &reason);
	if (rc == 0) {
		set_size(draft, at + text.n > before ? at + text.n : before);
		if (text.n)
			memcpy(draft->bytes.p + at, text.p, text.n);
		if (draft->is_document && at == before && beginning_is_due(before, draft->bytes.n))
			rc = json_check_beginning(buffer_bytes(&draft->bytes), &reason);
	}
	if (rc < 0) {
		draft->refused = rc;
		error_set(&draft->reason, rc, "%s", reason.text);
		error_set(error, rc, "%s", reason.text);
	}
	return rc;
}

int draft_resize(struct draft *draft, uint64_t size, uint64_t limit, struct error *error)
{
	int rc = make_room(draft, size, limit, error);

	if (rc < 0)
		return rc;
	set_size(draft, size);
	if (size == 0)
		draft->refused = 0;
	return 0;
}

int64_t draft_event_ms(const struct draft *draft)
{
	if (!draft->time_set)
		return clock_wall_ms();
	if (draft->time.tv_sec < 0)
		return 0;
	if (draft->time.tv_sec >= TIMESTAMP_MAX_MS / 1000)
		return TIMESTAMP_MAX_MS;
	return (int64_t)draft->time.tv_sec * 1000 + draft->time.tv_nsec / 1000000;
}

/* ---- departures ---- */

struct departure *drafts_departure(struct drafts *drafts, uint32_t collection, struct bytes key)
{
	struct departure *d = drafts->departures;

	while (d && (d->collection != collection || !bytes_equal(buffer_bytes(&d->key), key)))
		d = d->next;
	return d;
}

int drafts_depart(struct drafts *drafts, uint32_t collection, struct bytes key, uint64_t sequence)
{
	struct departure *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	*d = (struct departure){.collection = collection,
				.sequence = sequence,
				.due_ms = clock_steady_ms() + DEPARTURE_DELAY_MS,
				.time_ms = clock_wall_ms(),
				.next = drafts->departures};
	if (buffer_add_bytes(&d->key, key) < 0) {
		free(d);
		return -ENOMEM;
	}
	drafts->departures = d;
	return 0;
}

void drafts_leave(struct drafts *drafts, struct departure *departure, bool ended)
{
	struct departure **at = &drafts->departures;

	departure->busy = false;
	pthread_cond_broadcast(&drafts->left);
	if (!ended)
		return;
	while (*at != departure)
		at = &(*at)->next;
	*at = departure->next;
	buffer_free(&departure->key);
	free(departure);
}
