/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters of deliveries: written, removed, recorded again, given back to their group. */
#include <errno.h>
#include <stdlib.h>

#include "store/consumer_internal.h"

#define BURY_BYTES  ((size_t)8 << 20)
#define BURY_COUNT  1024
#define DETAIL_ROOM 1024 /* bytes of a dead letter beside event, names and reason, at most */

/* ---- written ---- */

static int render_reason(struct group *g, const struct entry *e, struct buffer *out)
{
	switch (e->failure) {
	case FAILURE_CLOSED:
		return buffer_printf(out, "\"its reader ended without acknowledging it\"");
	case FAILURE_RESTART:
		return buffer_printf(out, "\"changefs ended before it was acknowledged\"");
	case FAILURE_REFUSED:
		return e->reason ? buffer_add_json_string(out, bytes_of(e->reason))
				 : buffer_printf(out, "\"refused\"");
	default:
		return buffer_printf(out, "\"not acknowledged within %llu ms\"",
				     (unsigned long long)g->config.ack_timeout_ms);
	}
}

/* The members of its dead letter; -ENOENT: its line is gone. */
static int render(struct group *g, const struct entry *e, struct buffer *out, struct error *error)
{
	struct store_event_info info;

	int rc = entry_line(g, e, &info, error);
	if (rc < 0)
		return rc;
	if (buffer_printf(out, "\"kind\":\"delivery\",\"group\":") < 0 ||
	    buffer_add_bytes(out, buffer_bytes(&g->quoted)) < 0 ||
	    buffer_printf(out, ",\"attempt_count\":%u,\"failure_reason\":", e->attempts) < 0 ||
	    render_reason(g, e, out) < 0 ||
	    buffer_printf(out,
			  ",\"first_failure_ms\":%lld,\"last_failure_ms\":%lld,\"collection\":",
			  (long long)e->first_failure_ms, (long long)e->last_failure_ms) < 0 ||
	    buffer_add_json_string(out, store_collection_name(g->store, info.collection)) < 0 ||
	    buffer_add(out, ",\"event\":", 9) < 0)
		return -ENOMEM;
	return buffer_add(out, g->line.p, g->line.n - 1);
}

struct burial {
	struct entry *entries[BURY_COUNT];
	size_t ends[BURY_COUNT]; /* of their members in `text`; the same as before: no line */
	size_t count;
	struct buffer text;
};

static int by_sequence(const void *a, const void *b)
{
	const struct entry *const *x = a, *const *y = b;

	return (*x)->sequence < (*y)->sequence ? -1 : (*x)->sequence > (*y)->sequence;
}

static int collect(struct group *g, struct burial *b, struct error *error)
{
	size_t n = g->dying.n < BURY_COUNT ? g->dying.n : BURY_COUNT;

	if (!n)
		return 0;
	memcpy(b->entries, g->dying.p, n * sizeof(struct entry *));
	qsort(b->entries, n, sizeof(struct entry *), by_sequence);
	while (b->count < n && b->text.n < BURY_BYTES) {
		size_t start = b->text.n;
		int rc = render(g, b->entries[b->count], &b->text, error);
		if (rc == -ENOENT) /* trimmed: the group is told by the GAP */
			b->text.n = start;
		else if (rc < 0)
			return rc;
		b->ends[b->count++] = b->text.n;
	}
	return 0;
}

static int write_burial(struct group *g, const struct burial *b)
{
	size_t start = 0;
	int rc = 0;

	for (size_t i = 0; i < b->count && rc == 0; i++) {
		struct entry *e = b->entries[i];
		bool extra = e->is_extra;
		if (b->ends[i] > start) {
			rc = record_put_dead_letter(g->store, g->out,
						    (struct bytes){b->text.p + start,
								   b->ends[i] - start});
			g->dead_lettered++;
		}
		start = b->ends[i];
		entry_finish(g, e, ENTRY_DONE);
		if (!extra)
			entry_put(g, e);
	}
	group_advance(g);
	return rc;
}

static int bury_some(struct group *g, bool *ret_more, struct error *error)
{
	struct burial *b = calloc(1, sizeof(*b));
	int rc = b ? group_lead_start(g, error) : -ENOMEM;

	if (rc < 0) {
		free(b);
		return rc;
	}
	rc = collect(g, b, error);
	if (rc == 0)
		rc = commit_room(g->store, b->text.n + b->count * DETAIL_ROOM, error);
	bool touched = rc == 0;
	if (rc == 0)
		rc = write_burial(g, b);
	*ret_more = g->dying.n > 0;
	rc = group_lead_end(g, rc, touched, error);
	buffer_free(&b->text);
	free(b);
	return rc;
}

int group_bury(struct group *g, struct error *error)
{
	bool more = true;
	int rc = 0;

	while (more && rc == 0)
		rc = bury_some(g, &more, error);
	return rc;
}

/* ---- read ---- */

/* Behind the value that begins at p; NULL if it is cut. The store wrote it, so it is JSON. */
static const char *skip_value(const char *p, const char *end)
{
	int depth = 0;

	for (; p < end; p++) {
		if (*p == '"') {
			for (p++; p < end && *p != '"'; p++)
				p += *p == '\\';
			if (p >= end)
				return NULL;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if (*p == '}' || *p == ']') {
			if (!depth)
				return p;
			depth--;
		} else if (*p == ',' && !depth) {
			return p;
		}
	}
	return NULL;
}

/* A member of the object, whose names have no escapes; absent if there is none. */
static struct bytes member(struct bytes object, const char *name)
{
	const char *p = object.p + 1, *end = object.p + object.n;
	size_t n = strlen(name);

	while (p < end && *p == '"') {
		const char *quote = memchr(p + 1, '"', (size_t)(end - p - 1));
		if (!quote || end - quote < 2 || quote[1] != ':')
			break;
		const char *value = quote + 2, *behind = skip_value(value, end);
		if (!behind)
			break;
		if ((size_t)(quote - p - 1) == n && memcmp(p + 1, name, n) == 0)
			return (struct bytes){value, (size_t)(behind - value)};
		p = behind + 1;
	}
	return (struct bytes){0};
}

/* A dead letter of a delivery, taken apart; borrows its line. */
struct letter {
	struct buffer line;
	struct bytes event, group; /* as JSON */
	struct buffer text;	   /* scratch */
	uint64_t sequence;
	enum store_type type;
	uint32_t collection;
	struct bytes metadata; /* of the event; absent: none */
	bool base64;
};

static void letter_free(struct letter *l)
{
	buffer_free(&l->line);
	buffer_free(&l->text);
}

static int letter_collection(struct store *store, struct letter *l, struct error *error)
{
	struct bytes name = member(buffer_bytes(&l->line), "collection");

	if (!name.p || line_read_text(name, &l->text) < 0 ||
	    store_collection_find(store, buffer_bytes(&l->text), &l->collection) < 0)
		return error_set(error, -EBADMSG, "the dead letter's collection is not known");
	return 0;
}

/* -ENOENT, -EINVAL: it holds no event. */
static int letter_read(struct store *store, uint64_t number, struct letter *l, struct error *error)
{
	size_t size;
	int64_t ms;

	int rc = store_record_get(store, STORE_DEAD_LETTER, number, &size, &ms, &l->line, error);
	if (rc == -ENOENT)
		return error_set(error, rc, "there is no dead letter %llu",
				 (unsigned long long)number);
	if (rc < 0)
		return rc;
	struct bytes line = buffer_bytes(&l->line);
	l->event = member(line, "event");
	l->group = member(line, "group");
	if (!l->event.p || l->event.n < 2 || l->event.p[0] != '{' || !l->group.p)
		return error_set(error, -EINVAL, "dead letter %llu holds no delivered event",
				 (unsigned long long)number);
	struct bytes type = member(l->event, "type");
	struct bytes sequence = member(l->event, "sequence");
	if (type.n < 2 || !sequence.n)
		return error_set(error, -EBADMSG, "the event of dead letter %llu is malformed",
				 (unsigned long long)number);
	((char *)l->event.p)[l->event.n] = '\n'; /* the letter's last brace: it is a line now */
	l->type = store_type_of((struct bytes){type.p + 1, type.n - 2});
	l->sequence = strtoull(sequence.p, NULL, 10);
	l->metadata = member(l->event, "metadata");
	struct bytes encoding = {0};
	if (l->metadata.p)
		encoding = member(l->metadata, "encoding");
	l->base64 = bytes_equal(encoding, BYTES("\"base64\""));
	return letter_collection(store, l, error);
}

/* ---- removed ---- */

int store_dead_letter_remove(struct store *store, uint64_t number, struct error *error)
{
	size_t size;
	int64_t ms;
	int rc = 0;

	pthread_mutex_lock(&store->dead_letters);
	struct db_batch *batch = commit_turn_start(store);
	if (number)
		rc = store_record_get(store, STORE_DEAD_LETTER, number, &size, &ms, NULL, error);
	if (rc == 0) {
		record_remove_dead_letter(store, batch, number);
		rc = commit_write(store, false, error);
	}
	commit_turn_end(store);
	pthread_mutex_unlock(&store->dead_letters);
	if (rc == 0)
		group_call_listener(store);
	return rc;
}

/* ---- given back ---- */

static int redeliver(struct group *g, const struct letter *l)
{
	struct entry *e = group_entry(g, l->sequence);
	bool extra = l->sequence <= g->offset || l->sequence < store_floor(g->store);

	if (!e)
		e = group_add(g, l->sequence, extra);
	if (!e)
		return -ENOMEM;
	if (e->state == ENTRY_LEASED)
		return 0;
	entry_leave_record(g, e);
	e->delivery = g->next_delivery++; /* so that older records of it do not count */
	e->attempts = 0;
	e->is_dead = false;
	e->first_failure_ms = e->last_failure_ms = 0;
	struct bytes line = {l->event.p, l->event.n + 1}; /* see letter_read() */
	entry_put_line(g, e, l->collection, l->type, l->base64 ? BLOCK_FLAG_BASE64 : 0, line);
	int rc = g->chains ? group_hash(g, l->collection, line, &e->hash) : 0;
	entry_set(g, e, ENTRY_WAITING, 0);
	entry_put(g, e);
	return rc;
}

static int redeliver_led(struct store *store, struct letter *l, uint64_t number,
			 struct error *error)
{
	uint32_t group;

	int rc = line_read_text(l->group, &l->text);
	if (rc == 0)
		rc = store_group_find(store, buffer_bytes(&l->text), &group);
	struct group *g = rc == 0 ? group_find(store, group) : NULL;
	if (!g)
		return error_set(error, -ENOENT, "the dead letter's group is gone");
	rc = group_lead_start(g, error);
	if (rc < 0)
		return rc;
	rc = commit_room(store, l->line.n + DETAIL_ROOM, error);
	bool touched = rc == 0;
	if (rc == 0)
		rc = redeliver(g, l);
	if (rc == 0)
		record_remove_dead_letter(store, g->out, number);
	return group_lead_end(g, rc, touched, error);
}

int store_dead_letter_redeliver(struct store *store, uint64_t number, struct error *error)
{
	struct letter l = {0};

	pthread_mutex_lock(&store->dead_letters);
	int rc = letter_read(store, number, &l, error);
	if (rc == 0)
		rc = redeliver_led(store, &l, number, error);
	pthread_mutex_unlock(&store->dead_letters);
	letter_free(&l);
	return rc;
}

/* ---- recorded again ---- */

/* Without the "replay_of" that the event has from an earlier time. */
static size_t without_replay(struct bytes metadata)
{
	static const char name[] = "\"replay_of\":";
	size_t n = metadata.n - 1, start = n;

	while (start && metadata.p[start - 1] >= '0' && metadata.p[start - 1] <= '9')
		start--;
	if (start == n || start < sizeof(name) ||
	    memcmp(metadata.p + start - (sizeof(name) - 1), name, sizeof(name) - 1) != 0)
		return n;
	start -= sizeof(name) - 1;
	return start - (metadata.p[start - 1] == ',');
}

static bool is_empty_object(const char *p, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (!memchr(" \t\r", p[i], 3))
			return false;
	return true;
}

/* The line from ,"type": on, with "replay_of" in its metadata. */
static int render_again(const struct letter *l, struct buffer *out)
{
	struct bytes stamp = member(l->event, "timestamp_ms");
	const char *from = l->event.p ? memchr(l->event.p, ',', l->event.n) : NULL;
	const char *end = l->event.p + l->event.n - 1;

	if (!from || !stamp.p)
		return -EBADMSG;
	const char *at = l->metadata.p ? l->metadata.p : stamp.p + stamp.n;
	if (buffer_add(out, from, (size_t)(at - from)) < 0)
		return -ENOMEM;
	if (l->metadata.p) {
		size_t n = without_replay(l->metadata);
		const char *comma = is_empty_object(l->metadata.p, n) ? "" : ",";
		at = l->metadata.p + l->metadata.n;
		if (buffer_add(out, l->metadata.p, n) < 0 || buffer_printf(out, "%s", comma) < 0)
			return -ENOMEM;
	} else if (buffer_printf(out, ",\"metadata\":{") < 0) {
		return -ENOMEM;
	}
	if (buffer_printf(out, "\"replay_of\":%llu}", (unsigned long long)l->sequence) < 0)
		return -ENOMEM;
	return buffer_add(out, at, (size_t)(end - at));
}

static int replay(struct store *store, struct letter *l, uint64_t number, struct error *error)
{
	_cleanup_(buffer_free) struct buffer part = {0};
	_cleanup_(buffer_free) struct buffer key = {0};
	struct bytes stamp = member(l->event, "timestamp_ms");
	struct store_batch *batch = store_batch_new(store);

	int rc = batch ? render_again(l, &part) : -ENOMEM;
	if (rc == 0)
		rc = line_read_text(member(l->event, "key"), &key);
	struct again again = {
		.type = l->type,
		.collection = store_collection_name(store, l->collection),
		.key = buffer_bytes(&key),
		.part = buffer_bytes(&part),
		.timestamp_ms = stamp.p ? strtoll(stamp.p, NULL, 10) : 0,
		.base64 = l->base64,
	};
	if (rc == 0)
		rc = batch_add_again(batch, &again);
	if (rc == 0)
		rc = batch_remove_dead_letter(batch, number);
	if (rc == 0)
		rc = store_commit(store, batch, false, NULL, error);
	store_batch_free(batch);
	return rc;
}

int store_dead_letter_replay(struct store *store, uint64_t number, struct error *error)
{
	struct letter l = {0};

	pthread_mutex_lock(&store->dead_letters);
	int rc = letter_read(store, number, &l, error);
	if (rc == 0)
		rc = replay(store, &l, number, error);
	pthread_mutex_unlock(&store->dead_letters);
	letter_free(&l);
	return rc;
}
