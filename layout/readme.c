/* SPDX-License-Identifier: Apache-2.0 */
/* README.md in the mount's root: the node table, for people. */
#include <errno.h>

#include "layout/tree.h"

static ssize_t readme_read(struct file *file, uint64_t offset, char *p, size_t size,
			   struct error *error)
{
	return read_bytes(buffer_bytes(&file->layout->readme), offset, p, size);
}

const struct file_operations file_of_readme = {.size = sizeof(struct file), .read = readme_read};

int readme_stat(struct layout *layout, const struct node *node, const struct content *content,
		struct stat *st, struct error *error)
{
	st->st_size = (off_t)layout->readme.n;
	return 0;
}

static int describe(struct buffer *out, enum row_id parent, const struct buffer *path)
{
	int rc = 0;

	for (int i = 1; i < ROWS && rc == 0; i++) {
		const struct node_row *row = &node_rows[i];
		const char *slash = S_ISDIR(row->mode) ? "/" : "";
		_cleanup_(buffer_free) struct buffer own = {0};
		if (row->parent != parent)
			continue;
		rc = buffer_printf(&own, "%.*s%s%s", (int)path->n, path->n ? path->p : "",
				   row->name ? row->name : row->shown, slash);
		if (rc == 0)
			rc = buffer_printf(out, "| `%s` | %s |\n", own.p, row->about);
		if (rc == 0)
			rc = describe(out, (enum row_id)i, &own);
	}
	return rc;
}

int layout_readme(struct layout *layout, struct buffer *ret_text)
{
	struct buffer root = {0};

	int rc = buffer_printf(
		ret_text,
		"# A change log, mounted (changefs %s)\n\n"
		"Database changes as files. Watch them: `tail -f feed/tail`. Look at one:\n"
		"`jq . feed/COLLECTION/0000000000000042.json`. The newest value of a key:\n"
		"`cat data/COLLECTION/KEY.json`. Record a change:\n\n"
		"    echo "
		"'{\"type\":\"PUT\",\"key\":\"user:alice\",\"value\":{\"name\":\"Alice\"}}' "
		"> in/events\n\n"
		"A refused operation has an errno, and its reason is a line of `ctl/errors`.\n\n"
		"Keys and collections are file names with `%%25` for a percent sign, `%%2F` for a "
		"slash, "
		"and so on\nfor control characters and a dot at the start; a collection called "
		"`tail`, "
		"`log.ndjson` or\n`x.json` is `tai%%6C`, `log.ndjso%%6E`, `x.jso%%6E`. A "
		"document's name is its "
		"key without `COLLECTION:`;\nthat of a key without this prefix begins with `%%_`. "
		"A name over "
		"255 bytes is cut and ends in `~` and\n32 hexadecimal digits, before `.json`.\n\n"
		"| path | what it is |\n|---|---|\n",
		layout->options.version);
	return rc < 0 ? rc : describe(ret_text, ROW_ROOT, &root);
}
