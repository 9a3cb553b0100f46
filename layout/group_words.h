/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The words that groups/G/ and dlq/ take. White space is a space, a tab, a carriage return or a
 * newline. All numbers are decimal digits, at most STORE_SEQUENCE_MAX; a leading zero is allowed.
 *
 *   offset   one of   42   earliest   latest   +5   -5   @TIME   with white space around it;
 *            TIME is RFC 3339: 2026-01-31T12:00:00.5+01:00 or …Z
 *   ack      42   40-45   42#DELIVERY   separated by white space
 *   nack     a line:   42   42#DELIVERY   and perhaps   delay=MILLISECONDS   or   dlq REASON
 *   numbers  all, or numbers separated by white space
 */
#include "store/consumer.h"

/* -EINVAL with the reason. */
int words_offset(struct bytes text, enum store_group_move *ret_move, int64_t *ret_number,
		 struct error *error);

/* Take the first word or line off `text` and read it: 1, 0 at the end, -EINVAL with the reason,
 * which names the word. A reason is borrowed from the text. */
int words_next_ack(struct bytes *text, struct store_group_ack *ret_ack, struct error *error);
int words_next_nack(struct bytes *text, struct store_group_nack *ret_nack, struct error *error);
/* 0 is "all". */
int words_next_number(struct bytes *text, uint64_t *ret_number, struct error *error);
