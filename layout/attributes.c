/* SPDX-License-Identifier: Apache-2.0 */
/* Modes and owners: what was set is kept in the store by the node's path, since that is what stays
 * the same; what was never set is as the mount's options say. */
#include <errno.h>
#include <stdlib.h>

#include "layout/tree.h"

struct kept_attributes {
	struct buffer path;
	struct store_attributes attributes;
};

/* ---- the table ---- */

/* Where the path stands, or belongs. */
static size_t find(const struct attributes *t, struct bytes path, bool *ret_found)
{
	size_t from = 0, to = t->count;

	*ret_found = false;
	while (from < to && !*ret_found) {
		size_t middle = from + (to - from) / 2;
		int order = bytes_compare(buffer_bytes(&t->kept[middle].path), path);
		if (order < 0)
			from = middle + 1;
		else
			to = middle;
		*ret_found = order == 0;
	}
	return to;
}

static int insert(struct attributes *t, size_t at, struct bytes path)
{
	struct buffer copy = {0};

	if (t->count == t->capacity) {
		size_t capacity = 2 * t->capacity + 16;
		struct kept_attributes *kept = realloc(t->kept, capacity * sizeof(*kept));
		if (!kept)
			return -ENOMEM;
		t->kept = kept;
		t->capacity = capacity;
	}
	if (buffer_add_bytes(&copy, path) < 0)
		return -ENOMEM;
	memmove(t->kept + at + 1, t->kept + at, (t->count - at) * sizeof(*t->kept));
	t->kept[at] = (struct kept_attributes){.path = copy};
	t->count++;
	return 0;
}

static int put(struct attributes *t, struct bytes path, const struct store_attributes *attributes)
{
	bool found;
	int rc = 0;

	pthread_rwlock_wrlock(&t->lock);
	size_t at = find(t, path, &found);
	if (!found)
		rc = insert(t, at, path);
	if (rc == 0)
		t->kept[at].attributes = *attributes;
	pthread_rwlock_unlock(&t->lock);
	return rc;
}

/* All zero if nothing was ever set. */
static struct store_attributes get(struct attributes *t, struct bytes path)
{
	struct store_attributes attributes = {0};
	bool found;

	pthread_rwlock_rdlock(&t->lock);
	size_t at = find(t, path, &found);
	if (found)
		attributes = t->kept[at].attributes;
	pthread_rwlock_unlock(&t->lock);
	return attributes;
}

static int load_one(void *context, struct bytes path, const struct store_attributes *attributes)
{
	return put(context, path, attributes);
}

int attributes_load(struct layout *layout)
{
	struct attributes *t = &layout->attributes;

	pthread_mutex_init(&t->changing, NULL);
	pthread_rwlock_init(&t->lock, NULL);
	return store_attributes_each(layout->store, load_one, t, NULL);
}

void attributes_free(struct layout *layout)
{
	struct attributes *t = &layout->attributes;

	for (size_t i = 0; i < t->count; i++)
		buffer_free(&t->kept[i].path);
	free(t->kept);
	pthread_rwlock_destroy(&t->lock);
	pthread_mutex_destroy(&t->changing);
}

/* ---- what is shown ---- */

static struct node like(const struct node *node)
{
	return (struct node){.row = &node_rows[node->row->like], .collection = node->collection};
}

static bool is_later(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/* The mode that is set counts as far as `limit` has its bits. */
static int apply_own(struct layout *layout, const struct node *node, mode_t limit, struct stat *st)
{
	_cleanup_(buffer_free) struct buffer path = {0};

	int rc = layout_path(layout, node, &path);
	if (rc < 0)
		return rc;
	struct store_attributes a = get(&layout->attributes, buffer_bytes(&path));
	mode_t mode = a.mode & limit;
	if (a.set & STORE_ATTRIBUTE_MODE)
		st->st_mode = (st->st_mode & S_IFMT) | mode;
	if (a.set & STORE_ATTRIBUTE_UID)
		st->st_uid = a.uid;
	if (a.set & STORE_ATTRIBUTE_GID)
		st->st_gid = a.gid;
	if (a.set && is_later(time_of_ms(a.changed_ms), st->st_ctim))
		st->st_ctim = time_of_ms(a.changed_ms);
	return 0;
}

static int apply(struct layout *layout, const struct node *node, mode_t limit, struct stat *st)
{
	struct node other = like(node);
	int rc = 0;

	if (node->row->like)
		rc = apply(layout, &other,
			   S_ISDIR(other.row->mode) ? limit & node->row->mode : limit, st);
	if (rc == 0 && node->row->attributes == ATTRIBUTES_KEPT)
		rc = apply_own(layout, node, limit, st);
	return rc;
}

int attributes_apply(struct layout *layout, const struct node *node, struct stat *st)
{
	return apply(layout, node, 07777, st);
}

void attributes_limit(struct stat *st, const struct stat *directory)
{
	bool same_owners = st->st_uid == directory->st_uid && st->st_gid == directory->st_gid;

	/* Two pairs of owners do not fit into one mode, unless one of them lets everyone in. */
	if (!same_owners && (st->st_mode & 0444) != 0444)
		st->st_mode &= ~0444u;
	st->st_mode &= S_IFMT | (directory->st_mode & 0111) << 2;
	st->st_uid = directory->st_uid;
	st->st_gid = directory->st_gid;
}

/* ---- what is set ---- */

/* Below `changing`. */
static int replace(struct layout *layout, struct bytes path, struct store_attributes *a,
		   struct error *error)
{
	a->changed_ms = clock_wall_ms();
	int rc = store_attributes_set(layout->store, path, a, error);
	return rc < 0 ? rc : put(&layout->attributes, path, a);
}

/* What is as the options say goes on following them. */
static unsigned differing(const struct layout_options *options, const struct stat *st)
{
	return ((st->st_mode & 07777) != (0777 & ~options->umask) ? LAYOUT_SET_MODE : 0u) |
	       (st->st_uid != options->uid ? LAYOUT_SET_UID : 0u) |
	       (st->st_gid != options->gid ? LAYOUT_SET_GID : 0u);
}

int attributes_begin(struct layout *layout, const struct node *node, const struct stat *as,
		     struct error *error)
{
	struct attributes *t = &layout->attributes;
	_cleanup_(buffer_free) struct buffer path = {0};
	struct stat st = *as;

	st.st_mode &= ~layout->options.umask;
	int rc = layout_path(layout, node, &path);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&t->changing);
	struct store_attributes a = {differing(&layout->options, &st), st.st_mode & 07777,
				     st.st_uid, st.st_gid, 0};
	if (a.set || get(t, buffer_bytes(&path)).set)
		rc = replace(layout, buffer_bytes(&path), &a, error);
	pthread_mutex_unlock(&t->changing);
	return rc;
}

/* Appends the path of the first one at or behind `at` that begins with `start`. 1, or 0. */
static int next_below(struct attributes *t, struct bytes start, struct buffer *ret_path)
{
	bool found;
	int rc = 0;

	pthread_rwlock_rdlock(&t->lock);
	size_t at = find(t, start, &found);
	while (at < t->count && !t->kept[at].attributes.set)
		at++;
	if (at < t->count && bytes_start_with(buffer_bytes(&t->kept[at].path), start))
		rc = buffer_add_bytes(ret_path, buffer_bytes(&t->kept[at].path)) < 0 ? -ENOMEM : 1;
	pthread_rwlock_unlock(&t->lock);
	return rc;
}

int attributes_forget_below(struct layout *layout, const struct node *directory,
			    struct error *error)
{
	struct attributes *t = &layout->attributes;
	_cleanup_(buffer_free) struct buffer start = {0}, path = {0};

	int rc = layout_path(layout, directory, &start);
	if (rc == 0)
		rc = buffer_add(&start, "/", 1);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&t->changing);
	while ((rc = next_below(t, buffer_bytes(&start), &path)) > 0) {
		struct store_attributes none = {0};
		rc = replace(layout, buffer_bytes(&path), &none, error);
		path.n = 0;
		if (rc < 0)
			break;
	}
	pthread_mutex_unlock(&t->changing);
	return rc;
}

static int keep(struct layout *layout, const struct node *node, const struct stat *attributes,
		unsigned to_set, struct error *error)
{
	struct attributes *t = &layout->attributes;
	_cleanup_(buffer_free) struct buffer path = {0};

	int rc = layout_path(layout, node, &path);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&t->changing);
	struct store_attributes a = get(t, buffer_bytes(&path));
	/* The kernel runs nothing from here as another user, so files have no use for these bits.
	 */
	if (to_set & LAYOUT_SET_MODE)
		a.mode = attributes->st_mode &
			 (S_ISDIR(node->row->mode) ? 07777u : 07777u & ~(S_ISUID | S_ISGID));
	if (to_set & LAYOUT_SET_UID)
		a.uid = attributes->st_uid;
	if (to_set & LAYOUT_SET_GID)
		a.gid = attributes->st_gid;
	a.set |= to_set & LAYOUT_SET_ATTRIBUTES;
	rc = replace(layout, buffer_bytes(&path), &a, error);
	pthread_mutex_unlock(&t->changing);
	return rc;
}

/* A script that sets what is so already does no harm. */
static int refuse_other(struct layout *layout, const struct node *node,
			const struct stat *attributes, unsigned to_set, struct error *error)
{
	struct stat st;

	int rc = layout_stat(layout, node, NULL, &st, error);
	if (rc < 0)
		return rc;
	if ((to_set & LAYOUT_SET_MODE && (attributes->st_mode ^ st.st_mode) & 07777) ||
	    (to_set & LAYOUT_SET_UID && attributes->st_uid != st.st_uid) ||
	    (to_set & LAYOUT_SET_GID && attributes->st_gid != st.st_gid))
		return error_set(error, -EPERM, "this is history, which keeps its mode and owner");
	return 0;
}

int attributes_set(struct layout *layout, const struct node *node, const struct stat *attributes,
		   unsigned to_set, struct error *error)
{
	struct node other = like(node);

	switch (node->row->attributes) {
	case ATTRIBUTES_KEPT:
		return keep(layout, node, attributes, to_set, error);
	case ATTRIBUTES_SHARED:
		return keep(layout, &other, attributes, to_set, error);
	case ATTRIBUTES_FIXED:
		break;
	}
	return refuse_other(layout, node, attributes, to_set, error);
}
