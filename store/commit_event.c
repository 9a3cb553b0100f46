/* SPDX-License-Identifier: Apache-2.0 */
/* One event of a group: which document it needs, what it becomes, and its line. */
#include <errno.h>

#include "store/commit_group.h"

/* ---- which documents are needed ---- */

static bool fills_before(const struct store *store, const struct prepared *p)
{
	return store->config.snapshots != STORE_SNAPSHOTS_NONE && !p->before.there &&
	       !p->is_again && (p->type == STORE_PUT || p->type == STORE_DELETE);
}

static struct bytes document_key(const struct store_batch *batch, const struct prepared *p)
{
	return span_bytes(batch, p->patch && p->patch_key.there ? p->patch_key : p->key);
}

int group_want_documents(struct store *store, const struct store_batch *batch, size_t from,
			 size_t to)
{
	struct commit *c = &store->commit;

	for (size_t i = from; i < to; i++) {
		const struct prepared *p = &batch->events[i];
		bool before = fills_before(store, p) || p->unless_same || p->expected;
		if (!before && !p->patch)
			continue;
		struct collection *it = group_touch(store, span_bytes(batch, p->collection));
		if (!it)
			return -ENOMEM;
		if (before && overlay_want(&c->overlay, it->id, span_bytes(batch, p->key)) < 0)
			return -ENOMEM;
		if (p->patch && overlay_want(&c->overlay, it->id, document_key(batch, p)) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* ---- one event ---- */

static int patch_value(struct store *store, struct resolved *r, struct error *error)
{
	struct commit *c = &store->commit;
	const struct prepared *p = r->prepared;
	struct overlay_entry *e =
		overlay_find(&c->overlay, r->collection->id, document_key(r->batch, p));
	struct bytes current = p->patch_key.there ? e->previous.text : e->current.text;
	struct buffer text = {0};

	int rc = p->patch(r->value, current, &text, &r->partial);
	if (rc == 0 && text.n > store->config.max_document_bytes)
		rc = error_set(error, -EFBIG, "a document would have %zu bytes, the limit is %llu",
			       text.n, (unsigned long long)store->config.max_document_bytes);
	if (rc == 0)
		rc = overlay_keep(&c->overlay, &text, &r->value);
	buffer_free(&text);
	r->binary = !bytes_are_utf8(r->value);
	r->base64 |= r->binary;
	return rc;
}

static int render_again(struct store *store, struct resolved *r)
{
	const struct prepared *p = r->prepared;
	struct buffer *out = &store->commit.scratch;
	struct line_parts parts = {
		.type = p->type,
		.key = span_bytes(r->batch, p->key),
		.value = r->value,
		.metadata = span_bytes(r->batch, p->metadata),
		.timestamp_ms = p->timestamp_ms,
		.base64 = r->base64,
		.add_encoding = r->base64 && !p->encoded,
		.add_partial = r->partial,
	};
	struct span quoted;

	out->n = 0;
	if (line_render(out, &parts, &quoted) < 0)
		return -ENOMEM;
	r->part = buffer_bytes(out);
	r->quoted = quoted.there ? (struct bytes){out->p + quoted.at, quoted.n} : (struct bytes){0};
	return 0;
}

int group_resolve(struct store *store, const struct store_batch *batch, const struct prepared *p,
		  struct resolved *r, struct error *error)
{
	*r = (struct resolved){
		.batch = batch,
		.prepared = p,
		.collection = group_touch(store, span_bytes(batch, p->collection)),
		.value = span_bytes(batch, p->value),
		.part = span_bytes(batch, p->part),
		.quoted = span_bytes(batch, p->quoted),
		.base64 = p->base64,
		.binary = p->binary,
		.partial = p->is_again,
	};
	if (!r->collection)
		return -ENOMEM;
	r->entry =
		overlay_find(&store->commit.overlay, r->collection->id, span_bytes(batch, p->key));
	if (p->patch) {
		int rc = patch_value(store, r, error);
		if (rc < 0)
			return rc;
	}
	if (fills_before(store, p) && r->entry) {
		r->before = r->entry->current.text;
		r->base64 |= r->before.p && r->entry->current.binary;
	}
	return p->patch || r->base64 != p->base64 ? render_again(store, r) : 0;
}

static int add_member(struct buffer *out, struct bytes name, struct bytes text, bool base64)
{
	return buffer_add_bytes(out, name) < 0 || line_render_text(out, text, base64) < 0 ? -ENOMEM
											  : 0;
}

static int render_snapshots(struct store *store, const struct resolved *r, struct buffer *out)
{
	static const struct bytes before = {",\"before_snapshot\":", 19};
	static const struct bytes after = {",\"after_snapshot\":", 18};
	const struct prepared *p = r->prepared;
	struct bytes given = span_bytes(r->batch, p->before);

	if (!given.p)
		given = r->before;
	if (given.p && add_member(out, before, given, r->base64) < 0)
		return -ENOMEM;
	given = span_bytes(r->batch, p->after);
	if (given.p)
		return add_member(out, after, given, r->base64);
	if (p->type != STORE_PUT || store->config.snapshots != STORE_SNAPSHOTS_BOTH || r->partial)
		return 0;
	return buffer_add_bytes(out, after) < 0 || buffer_add_bytes(out, r->quoted) < 0 ? -ENOMEM
											: 0;
}

int group_render(struct store *store, const struct resolved *r, uint64_t sequence,
		 struct buffer *out)
{
	if (buffer_add(out, "{\"sequence\":", 12) < 0 || buffer_add_decimal(out, sequence) < 0 ||
	    buffer_add_bytes(out, r->part) < 0 || render_snapshots(store, r, out) < 0)
		return -ENOMEM;
	return buffer_add(out, "}\n", 2);
}
