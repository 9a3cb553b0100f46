/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "layout/formats/json.h"
#include "layout/formats/wal2json.h"
#include "layout/names.h"

/* ---- tables ---- */

/* The place of the id in the order; *ret_found says whether it is there. */
static size_t search_table(const struct wal_tables *tables, struct bytes id, bool *ret_found)
{
	size_t low = 0, high = tables->n;

	*ret_found = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = bytes_compare(id, buffer_bytes(&tables->p[middle]->id));
		if (order == 0) {
			*ret_found = true;
			return middle;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void table_free(struct wal_table *table)
{
	if (!table)
		return;
	buffer_free(&table->id);
	buffer_free(&table->collection);
	buffer_free(&table->metadata);
	buffer_free(&table->columns);
	free(table);
}

static int name_collection(struct wal_table *table, const struct wal_line *line,
			   struct error *error)
{
	_cleanup_(buffer_free) struct buffer schema = {0};
	_cleanup_(buffer_free) struct buffer own = {0};
	int rc = json_string_decode(line->members[WAL_SCHEMA], &schema, error);

	if (rc == 0)
		rc = json_string_decode(line->members[WAL_TABLE], &own, error);
	if (rc < 0)
		return rc;
	return name_table_write(buffer_bytes(&schema), buffer_bytes(&own), &table->collection);
}

static int begin_metadata(struct wal_table *table, const struct wal_line *line)
{
	struct buffer *b = &table->metadata;
	int rc = buffer_add_bytes(b, BYTES("{\"table\":"));

	if (rc == 0)
		rc = buffer_add_json_string(b, buffer_bytes(&table->collection));
	if (rc == 0)
		rc = buffer_add_bytes(b, BYTES(",\"schema\":"));
	if (rc == 0)
		rc = buffer_add_bytes(b, line->members[WAL_SCHEMA]);
	return rc;
}

static int fill_table(struct wal_table *table, const struct wal_line *line, struct bytes id,
		      struct error *error)
{
	if (!bytes_are_utf8(id))
		return error_set(error, -EINVAL, "the table's name %.*s is not UTF-8",
				 (int)(id.n < 100 ? id.n : 100), id.p);
	int rc = buffer_add_bytes(&table->id, id);
	if (rc == 0)
		rc = name_collection(table, line, error);
	return rc < 0 ? rc : begin_metadata(table, line);
}

static int insert_table(struct wal_tables *tables, size_t at, struct wal_table *table)
{
	if (tables->n == tables->capacity) {
		size_t capacity = tables->capacity ? tables->capacity * 2 : 16;
		struct wal_table **p = realloc(tables->p, capacity * sizeof(struct wal_table *));
		if (!p)
			return -ENOMEM;
		tables->p = p;
		tables->capacity = capacity;
	}
	memmove(tables->p + at + 1, tables->p + at, (tables->n - at) * sizeof(struct wal_table *));
	tables->p[at] = table;
	tables->n++;
	return 0;
}

static int find_or_make(struct wal_tables *tables, const struct wal_line *line, struct bytes id,
			struct wal_table **ret_table, struct error *error)
{
	bool found;
	size_t at = search_table(tables, id, &found);

	if (found) {
		*ret_table = tables->p[at];
		return 0;
	}
	struct wal_table *table = calloc(1, sizeof(*table));
	int rc = table ? fill_table(table, line, id, error) : -ENOMEM;
	if (rc == 0)
		rc = insert_table(tables, at, table);
	if (rc < 0) {
		table_free(table);
		return rc;
	}
	*ret_table = table;
	return 0;
}

int wal_tables_get(struct wal_tables *tables, const struct wal_line *line,
		   struct wal_table **ret_table, struct error *error)
{
	struct bytes schema = line->members[WAL_SCHEMA], name = line->members[WAL_TABLE];

	if (!json_text_is_string(name))
		return error_set(error, -EINVAL, "wal2json's line %c names no table", line->action);
	if (!json_text_is_string(schema))
		return error_set(error, -EINVAL,
				 "wal2json's line %c for table %.*s has no schema: give "
				 "pg_recvlogical the option -o include-schemas=1",
				 line->action, (int)(name.n < 100 ? name.n : 100), name.p);
	_cleanup_(buffer_free) struct buffer id = {0};
	if (buffer_add_bytes(&id, schema) < 0 || buffer_add_bytes(&id, name) < 0)
		return -ENOMEM;
	if (!tables->newest || !bytes_equal(buffer_bytes(&id), buffer_bytes(&tables->newest->id))) {
		int rc = find_or_make(tables, line, buffer_bytes(&id), &tables->newest, error);
		if (rc < 0)
			return rc;
	}
	*ret_table = tables->newest;
	return 0;
}

void wal_tables_free(struct wal_tables *tables)
{
	for (size_t i = 0; i < tables->n; i++)
		table_free(tables->p[i]);
	free(tables->p);
	*tables = (struct wal_tables){0};
}

/* ---- what is known of a table's columns ---- */

/* Takes the next name off a table's list; false at its end. No raw name has a newline in it. */
static bool next_name(struct bytes *names, struct bytes *ret_name)
{
	const char *end = names->n ? memchr(names->p, '\n', names->n) : NULL;

	if (!end)
		return false;
	*ret_name = (struct bytes){names->p, (size_t)(end - names->p)};
	names->n -= ret_name->n + 1;
	names->p = end + 1;
	return true;
}

/* True if the list is exactly these columns in this order. */
static bool names_equal(struct bytes names, const struct wal_columns *columns)
{
	struct bytes name;

	for (size_t i = 0; i < columns->n; i++)
		if (!next_name(&names, &name) || !bytes_equal(name, columns->p[i].name))
			return false;
	return names.n == 0;
}

int wal_table_learn(struct wal_table *table, const struct wal_columns *columns)
{
	if (names_equal(buffer_bytes(&table->columns), columns))
		return 0;
	table->columns.n = 0;
	for (size_t i = 0; i < columns->n; i++) {
		if (buffer_add_bytes(&table->columns, columns->p[i].name) < 0 ||
		    buffer_add(&table->columns, "\n", 1) < 0) {
			table->columns.n = 0;
			return -ENOMEM;
		}
	}
	return 0;
}

static bool is_known(const struct wal_table *table, struct bytes column)
{
	struct bytes names = buffer_bytes(&table->columns), name;

	while (next_name(&names, &name))
		if (bytes_equal(name, column))
			return true;
	return false;
}

bool wal_table_complete(struct wal_table *table, const struct wal_columns *columns)
{
	if (table->columns.n == 0)
		return false;
	if (names_equal(buffer_bytes(&table->columns), columns))
		return true;
	for (size_t i = 0; i < columns->n; i++)
		if (!is_known(table, columns->p[i].name))
			table->columns.n = 0;
	return false;
}

enum wal_full wal_table_full(const struct wal_table *table, const struct wal_columns *columns,
			     const struct wal_columns *identity, const struct wal_columns *pk)
{
	struct bytes names = buffer_bytes(&table->columns), name;

	if (identity->n == 0 || (columns && !wal_columns_contain(identity, columns)))
		return WAL_FULL_NOT;
	if (names.n == 0)
		return pk->n && wal_columns_contain(pk, identity) ? WAL_FULL_NOT : WAL_FULL_LIKELY;
	for (size_t i = 0; next_name(&names, &name); i++)
		if (!wal_columns_find(identity, name, i))
			return WAL_FULL_NOT;
	return WAL_FULL_SURE;
}

/* ---- the current document's share of an update ---- */

struct member {
	struct bytes name;
	struct bytes value;
	bool used;
};

struct members {
	struct member *p;
	size_t n;
	size_t capacity;
};

static int members_read(struct members *members, struct bytes object)
{
	struct json_walk walk;
	struct bytes name, value;
	int rc;

	if (json_walk_start(&walk, object) < 0 || !walk.object)
		return -EINVAL;
	while ((rc = json_walk_next(&walk, &name, &value)) > 0) {
		if (members->n == members->capacity) {
			size_t capacity = members->capacity ? members->capacity * 2 : 32;
			struct member *p = realloc(members->p, capacity * sizeof(*p));
			if (!p)
				return -ENOMEM;
			members->p = p;
			members->capacity = capacity;
		}
		members->p[members->n++] = (struct member){name, value, false};
	}
	return rc;
}

static struct member *members_find(const struct members *members, struct bytes name, size_t hint)
{
	for (size_t i = 0; i < members->n; i++) {
		struct member *member = &members->p[(hint + i) % members->n];
		if (bytes_equal(member->name, name))
			return member;
	}
	return NULL;
}

/*
 * Could PostgreSQL have stored this value out of line? Only values of more than 24 bytes with their
 * header move, so a shorter one that an update lacks belongs to a dropped column. A number's or a
 * text's own bytes are no more than those of its JSON; arrays, composites, ranges and jsonb are
 * larger in the database than as text.
 */
static bool may_be_toasted(struct bytes value)
{
	if (!json_text_is_string(value))
		return value.n > 24;
	if (value.p[1] == '{' || value.p[1] == '[' || value.p[1] == '(')
		return value.n > 4;
	return value.n > 22;
}

static int add_member(struct buffer *out, char *separator, struct bytes name, struct bytes value)
{
	char before[2] = {*separator, '"'};
	int rc = buffer_add(out, before, 2);

	*separator = ',';
	if (rc == 0)
		rc = buffer_add_bytes(out, name);
	if (rc == 0)
		rc = buffer_add(out, "\":", 2);
	return rc < 0 ? rc : buffer_add_bytes(out, value);
}

static int merge(struct members *row, const struct members *document, struct buffer *out)
{
	char separator = '{';
	int rc = 0;

	for (size_t i = 0, hint = 0; i < document->n && rc == 0; i++) {
		const struct member *old = &document->p[i];
		struct member *new = members_find(row, old->name, hint);
		if (new && !new->used) {
			new->used = true;
			hint = (size_t)(new - row->p) + 1;
			rc = add_member(out, &separator, new->name, new->value);
		} else if (!new &&may_be_toasted(old->value)) {
			rc = add_member(out, &separator, old->name, old->value);
		}
	}
	for (size_t i = 0; i < row->n && rc == 0; i++)
		if (!row->p[i].used)
			rc = add_member(out, &separator, row->p[i].name, row->p[i].value);
	if (rc == 0 && separator == '{')
		rc = buffer_add(out, "{", 1);
	return rc < 0 ? rc : buffer_add(out, "}", 1);
}

/* A current document that is no object is as good as none: it was no row of this table. */
static int patch(struct bytes value, struct bytes current, struct buffer *ret_value,
		 bool partial_without, bool *ret_partial)
{
	struct members row = {0}, document = {0};
	size_t start = ret_value->n;
	int rc = current.p ? members_read(&document, current) : -EINVAL;

	if (rc == -EINVAL) {
		*ret_partial |= partial_without;
		rc = buffer_add_bytes(ret_value, value);
	} else {
		if (rc == 0)
			rc = members_read(&row, value);
		if (rc == 0)
			rc = merge(&row, &document, ret_value);
	}
	if (rc < 0)
		ret_value->n = start;
	free(row.p);
	free(document.p);
	return rc;
}

int wal_patch_row(struct bytes value, struct bytes current, struct buffer *ret_value,
		  bool *ret_partial)
{
	return patch(value, current, ret_value, true, ret_partial);
}

int wal_patch_full(struct bytes value, struct bytes current, struct buffer *ret_value,
		   bool *ret_partial)
{
	return patch(value, current, ret_value, false, ret_partial);
}
