/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "layout/formats/json.h"
#include "layout/formats/wal2json.h"

static const struct bytes member_names[WAL_MEMBER_COUNT] = {
	[WAL_ACTION] = {"action", 6},
	[WAL_TIMESTAMP] = {"timestamp", 9},
	[WAL_LSN] = {"lsn", 3},
	[WAL_XID] = {"xid", 3},
	[WAL_SCHEMA] = {"schema", 6},
	[WAL_TABLE] = {"table", 5},
	[WAL_TRANSACTIONAL] = {"transactional", 13},
	[WAL_PREFIX] = {"prefix", 6},
	[WAL_CONTENT] = {"content", 7},
	[WAL_CHANGE] = {"change", 6},
	[WAL_COLUMNS] = {"columns", 7},
	[WAL_IDENTITY] = {"identity", 8},
	[WAL_PK] = {"pk", 2},
};

/* ---- lists of columns ---- */

static struct wal_column *add_column(struct wal_columns *columns)
{
	if (columns->n == columns->capacity) {
		size_t capacity = columns->capacity ? columns->capacity * 2 : 32;
		struct wal_column *p = realloc(columns->p, capacity * sizeof(*p));
		if (!p)
			return NULL;
		columns->p = p;
		columns->capacity = capacity;
	}
	columns->p[columns->n] = (struct wal_column){{NULL, 0}, {NULL, 0}};
	return &columns->p[columns->n++];
}

/* One `{"name":…,"type":…,"value":…}`; what else is in it depends on wal2json's options. */
static int read_column(struct json_walk *list, struct wal_column *column)
{
	struct json_walk walk;
	struct bytes name, value;
	int rc = json_walk_enter(list, &walk);

	if (rc < 0 || !walk.object)
		return -EINVAL;
	while ((rc = json_walk_next(&walk, &name, &value)) > 0) {
		if (json_name_is(name, "name") && json_text_is_string(value))
			column->name = (struct bytes){value.p + 1, value.n - 2};
		else if (json_name_is(name, "value"))
			column->value = value;
	}
	if (rc < 0 || !column->name.p)
		return -EINVAL;
	return json_walk_leave(list, &walk);
}

/* Reads the list that is the next value of the line's walk. */
static int read_columns(struct json_walk *line, bool values, struct wal_columns *columns)
{
	struct json_walk list;
	struct bytes none;
	int rc = json_walk_enter(line, &list);

	columns->n = 0;
	if (rc < 0 || list.object)
		return -EINVAL;
	while ((rc = json_walk_name(&list, &none)) > 0) {
		struct wal_column *column = add_column(columns);
		if (!column)
			return -ENOMEM;
		rc = read_column(&list, column);
		if (rc < 0 || (values && !column->value.p))
			return -EINVAL;
	}
	return rc < 0 ? rc : json_walk_leave(line, &list);
}

/* ---- the line ---- */

static int version_one(struct error *error)
{
	return error_set(error, -EINVAL,
			 "this is wal2json's format version 1: give pg_recvlogical the option "
			 "-o format-version=2");
}

/* Format version 1 may come in pieces (pretty-print, write-in-chunks), none of them an object. */
static int not_an_object(struct bytes line, struct error *error)
{
	if (memmem(line.p, line.n, "\"change\"", 8) || line.n == 1 ||
	    (line.p[0] && strchr("\t,]}", line.p[0])))
		return version_one(error);
	if (json_check(line, error) < 0)
		return -EINVAL;
	return error_set(error, -EINVAL,
			 "a line of wal2json has to be an object, with lists of columns as its "
			 "\"columns\", \"identity\" and \"pk\"");
}

static struct wal_columns *list_of(struct wal_line *line, enum wal_member member)
{
	switch (member) {
	case WAL_COLUMNS:
		return &line->columns;
	case WAL_IDENTITY:
		return &line->identity;
	case WAL_PK:
		return &line->pk;
	default:
		return NULL;
	}
}

/* One member's value, its name has been taken. */
static int read_member(struct json_walk *walk, struct bytes name, struct wal_line *line)
{
	size_t member = json_name_find(name, member_names, WAL_MEMBER_COUNT);
	struct wal_columns *list = list_of(line, (enum wal_member)member);
	struct bytes value;

	if (list) {
		line->members[member] = name;
		return read_columns(walk, member != WAL_PK, list);
	}
	int rc = json_walk_value(walk, &value);
	if (rc == 0 && member < WAL_MEMBER_COUNT)
		line->members[member] = value;
	return rc;
}

static int read_members(struct bytes text, struct wal_line *line, struct error *error)
{
	struct json_walk walk;
	struct bytes name;
	int rc;

	if (json_walk_start(&walk, text) < 0 || !walk.object)
		return not_an_object(text, error);
	while ((rc = json_walk_name(&walk, &name)) > 0) {
		rc = read_member(&walk, name, line);
		if (rc < 0)
			break;
	}
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0 || json_walk_end(&walk) < 0)
		return not_an_object(text, error);
	return 0;
}

static void clear(struct wal_line *line)
{
	line->action = 0;
	memset(line->members, 0, sizeof(line->members));
	line->columns.n = line->identity.n = line->pk.n = 0;
}

void wal_line_free(struct wal_line *line)
{
	free(line->columns.p);
	free(line->identity.p);
	free(line->pk.p);
}

int wal_line_read(struct bytes line, struct wal_line *ret_line, struct error *error)
{
	clear(ret_line);
	int rc = read_members(line, ret_line, error);
	if (rc < 0)
		return rc;
	struct bytes action = ret_line->members[WAL_ACTION];
	if (ret_line->members[WAL_CHANGE].p && !action.p)
		return version_one(error);
	if (!action.p)
		return error_set(error, -EINVAL,
				 "no line of wal2json: the member \"action\" is missing");
	if (action.n != 3 || !strchr("BIUDTMC", action.p[1]))
		return error_set(error, -EINVAL, "wal2json's action %.*s is not known",
				 (int)(action.n < 40 ? action.n : 40), action.p);
	ret_line->action = action.p[1];
	return 0;
}

/* ---- positions ---- */

static bool read_hex(const char **p, const char *end, uint64_t *value)
{
	const char *start = *p;

	for (*value = 0; *p < end && *p - start < 8; ++*p) {
		static const char digits[] = "0123456789ABCDEF";
		const char *digit = **p ? strchr(digits, **p) : NULL;
		if (!digit)
			break;
		*value = *value << 4 | (uint64_t)(digit - digits);
	}
	return *p > start;
}

int wal_line_lsn(const struct wal_line *line, uint64_t *ret_lsn, struct bytes *ret_text,
		 struct error *error)
{
	struct bytes text = line->members[WAL_LSN];

	if (!json_text_is_string(text))
		return error_set(error, -EINVAL,
				 "wal2json's line %c has no lsn: give pg_recvlogical the option "
				 "-o include-lsn=1",
				 line->action);
	text = (struct bytes){text.p + 1, text.n - 2};
	const char *p = text.p, *end = p + text.n;
	uint64_t high, low;
	bool good = read_hex(&p, end, &high) && p < end && *p++ == '/' && read_hex(&p, end, &low) &&
		    p == end;
	if (!good)
		return error_set(error, -EINVAL, "\"%.*s\" is no LSN (such as 0/16B3748)",
				 (int)(text.n < 40 ? text.n : 40), text.p);
	*ret_lsn = high << 32 | low;
	if (ret_text)
		*ret_text = text;
	return 0;
}

/* ---- times ---- */

/* Takes from `least` to `most` digits and the character that has to follow (0: any). */
static bool read_number(const char **p, const char *end, int least, int most, char next,
			int64_t *value)
{
	int n = 0;

	for (*value = 0; *p < end && n < most && **p >= '0' && **p <= '9'; n++)
		*value = *value * 10 + (*(*p)++ - '0');
	if (n < least || (next && (*p == end || *(*p)++ != next)))
		return false;
	return true;
}

/* Days since 1970-01-01 in the Gregorian calendar; years begin in March here, so that the leap day
 * is a year's last. */
static int64_t days_since_1970(int64_t year, int64_t month, int64_t day)
{
	int64_t y = month > 2 ? year : year - 1;
	int64_t m = month > 2 ? month - 3 : month + 9;

	return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

/* Takes `.123456` if it is there: microseconds. */
static bool read_fraction(const char **p, const char *end, int64_t *us)
{
	*us = 0;
	if (*p == end || **p != '.')
		return true;
	const char *start = ++*p;
	if (!read_number(p, end, 1, 6, 0, us))
		return false;
	for (ptrdiff_t n = *p - start; n < 6; n++)
		*us *= 10;
	return true;
}

/* Takes `+02`, `-03:30` or `+05:30:15`: seconds east of Greenwich. */
static bool read_zone(const char **p, const char *end, int64_t *seconds)
{
	int64_t unit = 3600;

	*seconds = 0;
	if (*p == end || (**p != '+' && **p != '-'))
		return false;
	int64_t sign = *(*p)++ == '-' ? -1 : 1;
	for (;;) {
		int64_t part;
		if (!read_number(p, end, 2, 2, 0, &part))
			return false;
		*seconds += sign * part * unit;
		unit /= 60;
		if (*p == end || **p != ':' || unit == 0)
			return true;
		++*p;
	}
}

static bool read_time(struct bytes text, int64_t *ret_us)
{
	const char *p = text.p, *end = p + text.n;
	int64_t year, month, day, hour, minute, second, us, zone;

	bool good =
		read_number(&p, end, 4, 6, '-', &year) && read_number(&p, end, 2, 2, '-', &month) &&
		read_number(&p, end, 2, 2, ' ', &day) && read_number(&p, end, 2, 2, ':', &hour) &&
		read_number(&p, end, 2, 2, ':', &minute) &&
		read_number(&p, end, 2, 2, 0, &second) && read_fraction(&p, end, &us) &&
		read_zone(&p, end, &zone) && p == end;
	if (!good || month < 1 || month > 12 || day < 1 || day > 31 || year < 1970)
		return false;
	int64_t days = days_since_1970(year, month, day);
	*ret_us = (((days * 24 + hour) * 60 + minute) * 60 + second - zone) * 1000000 + us;
	return *ret_us >= 0;
}

int wal_line_time(const struct wal_line *line, int64_t *ret_us, struct error *error)
{
	struct bytes text = line->members[WAL_TIMESTAMP];

	if (!json_text_is_string(text))
		return error_set(error, -EINVAL,
				 "wal2json's line %c has no timestamp: give pg_recvlogical the "
				 "option -o include-timestamp=1",
				 line->action);
	text = (struct bytes){text.p + 1, text.n - 2};
	if (!read_time(text, ret_us))
		return error_set(error, -EINVAL,
				 "\"%.*s\" is no timestamp (such as 2026-01-31 12:00:00.5+00)",
				 (int)(text.n < 60 ? text.n : 60), text.p);
	return 0;
}

/* ---- columns ---- */

const struct wal_column *wal_columns_find(const struct wal_columns *columns, struct bytes name,
					  size_t hint)
{
	for (size_t i = 0; i < columns->n; i++) {
		size_t k = hint + i < columns->n ? hint + i : (hint + i) % columns->n;
		if (bytes_equal(columns->p[k].name, name))
			return &columns->p[k];
	}
	return NULL;
}

bool wal_columns_contain(const struct wal_columns *whole, const struct wal_columns *part)
{
	for (size_t i = 0; i < part->n; i++)
		if (!wal_columns_find(whole, part->p[i].name, i))
			return false;
	return true;
}
