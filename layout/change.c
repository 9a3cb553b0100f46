/* SPDX-License-Identifier: Apache-2.0 */
/* What changes the tree: which directory does it, or why nothing is done. */
#include <errno.h>

#include "layout/tree.h"

int layout_refuse_change(struct layout *layout, const struct node *parent, const char *name,
			 struct error *error)
{
	if (layout->options.read_only)
		return error_set(error, -EROFS, "the mount is read-only");
	switch (row_of(parent)) {
	case ROW_FEED:
	case ROW_COLLECTION:
		return error_set(error, -EPERM, "%s: the feed is history; write to in/", name);
	case ROW_DATA:
		return error_set(error, -EPERM, "%s: here are collections only", name);
	case ROW_DOCUMENTS:
		return error_set(error, -EPERM, "%s: here are plain files only", name);
	case ROW_GROUPS:
		return error_set(error, -EPERM, "%s: here are groups only: mkdir and rmdir", name);
	case ROW_GROUP_PENDING:
		return error_set(error, -EPERM, "%s: only a delivery puts an event here", name);
	case ROW_DLQ:
	case ROW_OPS:
		return error_set(error, -EPERM, "%s: what is recorded here stays", name);
	default:
		return error_set(error, -EPERM, "%s: the names here are fixed", name);
	}
}

static const struct directory_operations nothing = {0};

static const struct directory_operations *changes_of(struct layout *layout,
						     const struct node *parent)
{
	const struct directory_operations *ops = parent->row->directory;

	return ops && !layout->options.read_only ? ops : &nothing;
}

/* As whom something is made in a directory that hands its group on. */
static int inherit(struct layout *layout, const struct node *parent, const struct stat *as,
		   struct stat *ret_as, struct error *error)
{
	struct stat st;

	int rc = layout_stat(layout, parent, NULL, &st, error);
	*ret_as = *as;
	if (rc == 0 && st.st_mode & S_ISGID) {
		ret_as->st_gid = st.st_gid;
		ret_as->st_mode |= S_ISGID;
	}
	return rc;
}

/* What a new node is given with. */
static int complete(struct layout *layout, int rc, struct node *node, struct stat *ret_stat,
		    struct error *error)
{
	if (rc == 0)
		rc = layout_stat(layout, node, NULL, ret_stat, error);
	if (rc < 0)
		node_free(node);
	return rc;
}

int layout_create(struct layout *layout, const struct node *parent, const char *name,
		  const struct stat *as, bool exclusive, struct node *ret_node,
		  struct stat *ret_stat, struct error *error)
{
	const struct directory_operations *ops = changes_of(layout, parent);
	struct stat whose;

	*ret_node = (struct node){0};
	if (!ops->create)
		return layout_refuse_change(layout, parent, name, error);
	int rc = inherit(layout, parent, as, &whose, error);
	whose.st_mode &= ~(mode_t)(S_ISUID | S_ISGID);
	if (rc == 0)
		rc = ops->create(layout, parent, name, &whose, exclusive, ret_node, error);
	return complete(layout, rc, ret_node, ret_stat, error);
}

int layout_mkdir(struct layout *layout, const struct node *parent, const char *name,
		 const struct stat *as, struct node *ret_node, struct stat *ret_stat,
		 struct error *error)
{
	const struct directory_operations *ops = changes_of(layout, parent);
	struct stat whose;

	*ret_node = (struct node){0};
	if (!ops->mkdir)
		return layout_refuse_change(layout, parent, name, error);
	int rc = inherit(layout, parent, as, &whose, error);
	if (rc == 0)
		rc = ops->mkdir(layout, parent, name, ret_node, error);
	if (rc == 0)
		rc = attributes_begin(layout, ret_node, &whose, error);
	return complete(layout, rc, ret_node, ret_stat, error);
}

int layout_unlink(struct layout *layout, const struct node *parent, const char *name,
		  struct error *error)
{
	const struct directory_operations *ops = changes_of(layout, parent);

	return ops->unlink ? ops->unlink(layout, parent, name, error)
			   : layout_refuse_change(layout, parent, name, error);
}

int layout_rmdir(struct layout *layout, const struct node *parent, const char *name,
		 struct error *error)
{
	const struct directory_operations *ops = changes_of(layout, parent);

	return ops->rmdir ? ops->rmdir(layout, parent, name, error)
			  : layout_refuse_change(layout, parent, name, error);
}

int layout_rename(struct layout *layout, const struct node *parent, const char *name,
		  const struct node *new_parent, const char *new_name, bool replace,
		  struct error *error)
{
	const struct directory_operations *ops = changes_of(layout, parent);

	if (!ops->rename)
		return layout_refuse_change(layout, parent, name, error);
	if (new_parent->row != parent->row)
		return layout_refuse_change(layout, new_parent, new_name, error);
	return ops->rename(layout, parent, name, new_parent, new_name, replace, error);
}

int layout_set(struct layout *layout, const struct node *node, struct content *content,
	       const struct stat *attributes, unsigned to_set, struct error *error)
{
	const struct file_operations *ops = node->row->file;
	/* What is written there is a line or a value, not a place in a file. */
	unsigned harmless = ops && ops->writable ? LAYOUT_SET_SIZE | LAYOUT_SET_TIMES : 0;

	if (layout->options.read_only)
		return error_set(error, -EROFS, "the mount is read-only");
	if (node->row->set)
		return node->row->set(layout, node, content, attributes, to_set, error);
	if (node->row->directory) /* tar and rsync set them when they have filled it */
		harmless |= LAYOUT_SET_TIMES;
	if (to_set & ~(harmless | LAYOUT_SET_ATTRIBUTES))
		return error_set(error, -EPERM, "this is history, which does not change");
	if (!(to_set & LAYOUT_SET_ATTRIBUTES))
		return 0;
	return attributes_set(layout, node, attributes, to_set, error);
}
