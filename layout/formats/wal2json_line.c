/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "layout/formats/json.h"
#include "layout/formats/wal2json.h"

static const char *const member_names[WAL_MEMBER_COUNT] = {
	[WAL_ACTION] = "action",   [WAL_TIMESTAMP] = "timestamp",
	[WAL_LSN] = "lsn",	   [WAL_XID] = "xid",
	[WAL_SCHEMA] = "schema",   [WAL_TABLE] = "table",
	[WAL_COLUMNS] = "columns", [WAL_IDENTITY] = "identity",
	[WAL_PK] = "pk",	   [WAL_TRANSACTIONAL] = "transactional",
	[WAL_PREFIX] = "prefix",   [WAL_CONTENT] = "content",
	[WAL_CHANGE] = "change",
};

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
	if (memmem(line.p, line.n, "\"change\"", 8) || memchr("\t,]}", line.p[0], 4) || line.n == 1)
		return version_one(error);
	int rc = json_check(line, error);
	return rc < 0 ? rc : error_set(error, -EINVAL, "a line of wal2json has to be an object");
}

static int read_members(struct bytes line, struct wal_line *ret_line, struct error *error)
{
	struct json_walk walk;
	struct bytes name, value;
	int rc;

	if (json_walk_start(&walk, line) < 0 || !walk.object)
		return not_an_object(line, error);
	while ((rc = json_walk_next(&walk, &name, &value)) > 0) {
		for (int i = 0; i < WAL_MEMBER_COUNT; i++) {
			if (json_name_is(name, member_names[i])) {
				ret_line->members[i] = value;
				break;
			}
		}
	}
	if (rc < 0 || json_walk_end(&walk) < 0)
		return not_an_object(line, error);
	return 0;
}

int wal_line_read(struct bytes line, struct wal_line *ret_line, struct error *error)
{
	*ret_line = (struct wal_line){0};
	int rc = read_members(line, ret_line, error);
	if (rc < 0)
		return rc;
	struct bytes action = ret_line->members[WAL_ACTION];
	if (ret_line->members[WAL_CHANGE].p && !action.p)
		return version_one(error);
	if (!action.p)
		return error_set(error, -EINVAL,
				 "no line of wal2json: the member \"action\" is missing");
	if (action.n != 3 || !memchr("BIUDTMC", action.p[1], 7))
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
	return &columns->p[columns->n++];
}

/* One `{"name":…,"type":…,"value":…}`; what else is in it depends on wal2json's options. */
static bool read_column(struct bytes text, struct wal_column *column)
{
	struct json_walk walk;
	struct bytes name, value;

	*column = (struct wal_column){{NULL, 0}, {NULL, 0}};
	if (json_walk_start(&walk, text) < 0 || !walk.object)
		return false;
	while (json_walk_next(&walk, &name, &value) > 0) {
		if (json_name_is(name, "name") && json_text_is_string(value))
			column->name = (struct bytes){value.p + 1, value.n - 2};
		else if (json_name_is(name, "value"))
			column->value = value;
	}
	return column->name.p;
}

int wal_columns_read(const struct wal_line *line, enum wal_member member,
		     struct wal_columns *columns, struct error *error)
{
	struct bytes text = line->members[member], none, value;
	struct json_walk walk;

	columns->n = 0;
	if (!text.p)
		return 0;
	bool good = json_text_is_array(text) && json_walk_start(&walk, text) == 0;
	while (good && json_walk_next(&walk, &none, &value) > 0) {
		struct wal_column *column = add_column(columns);
		if (!column)
			return -ENOMEM;
		good = read_column(value, column) && (member == WAL_PK || column->value.p);
	}
	if (!good)
		return error_set(error, -EINVAL, "wal2json's member \"%s\" is no list of columns",
				 member_names[member]);
	return 0;
}

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
