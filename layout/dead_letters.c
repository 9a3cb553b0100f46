/* SPDX-License-Identifier: Apache-2.0 */
/* dlq/: what is done with dead letters. */
#include <errno.h>
#include <stdlib.h>

#include "layout/group_words.h"
#include "layout/names.h"
#include "layout/tree.h"

static int dead_letters_unlink(struct layout *layout, const struct node *parent, const char *name,
			       struct error *error)
{
	uint64_t number;

	if (name_sequence_read(name, ".json", &number) < 0)
		return layout_refuse_change(layout, parent, name, error);
	return store_dead_letter_remove(layout->store, number, error);
}

const struct directory_operations directory_of_dead_letters = {.unlink = dead_letters_unlink};

static int do_one(struct layout *layout, enum row_id row, uint64_t number, struct error *error)
{
	switch (row) {
	case ROW_DLQ_REPLAY:
		return store_dead_letter_replay(layout->store, number, error);
	case ROW_DLQ_REDELIVER:
		return store_dead_letter_redeliver(layout->store, number, error);
	default:
		return store_dead_letter_remove(layout->store, number, error);
	}
}

/* Those that there are now. What cannot be done with one of them (it holds no event, or its group
 * is gone) is left to stay. */
static int do_all(struct layout *layout, enum row_id row, struct error *error)
{
	uint64_t last, number = 0;
	int64_t ms;

	if (row == ROW_DLQ_DRAIN)
		return store_dead_letter_remove(layout->store, 0, error);
	int rc = store_record_last(layout->store, STORE_DEAD_LETTER, &last, &ms);
	if (rc < 0)
		return rc;
	while ((rc = store_record_next(layout->store, STORE_DEAD_LETTER, number, &number, error)) >
		       0 &&
	       number <= last) {
		rc = do_one(layout, row, number, NULL);
		if (rc < 0 && rc != -EINVAL && rc != -ENOENT)
			return error_set(error, rc, "at dead letter %llu",
					 (unsigned long long)number);
	}
	return rc < 0 ? rc : 0;
}

/* Nothing is done before every word was read and every entry found. */
static int check(struct layout *layout, struct bytes text, struct error *error)
{
	uint64_t number;
	size_t size;
	int64_t ms;
	int rc;

	while ((rc = words_next_number(&text, &number, error)) > 0) {
		if (!number)
			continue;
		rc = store_record_get(layout->store, STORE_DEAD_LETTER, number, &size, &ms, NULL,
				      NULL);
		if (rc < 0)
			return error_set(error, rc == -ENOENT ? -EINVAL : rc,
					 "there is no dead letter %llu",
					 (unsigned long long)number);
	}
	return rc;
}

int dead_letters_apply(struct layout *layout, enum row_id row, struct bytes text,
		       struct error *error)
{
	uint64_t number;

	int rc = check(layout, text, error);
	while (rc == 0 && (rc = words_next_number(&text, &number, error)) > 0)
		rc = number ? do_one(layout, row, number, error) : do_all(layout, row, error);
	return rc == -ENOENT ? -EINVAL : rc; /* the file is there, the number is wrong */
}
