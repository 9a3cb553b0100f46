/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Compares the scanner with jansson: what both accept has to say the same. */
#include <stdbool.h>
#include <string.h>

#include <jansson.h>

#include "layout/formats/json.h"

static bool json_says_the_same(struct bytes text, json_t *value);

static bool string_says(struct bytes raw, const char *p, size_t n)
{
	struct buffer text = {0};
	bool same = json_string_decode(raw, &text, NULL) == 0 &&
		    bytes_equal(buffer_bytes(&text), (struct bytes){p, n});

	buffer_free(&text);
	return same;
}

static bool array_says(struct bytes text, json_t *array)
{
	struct json_walk walk;
	struct bytes name, value;
	size_t n = 0;

	if (json_walk_start(&walk, text) < 0 || walk.object)
		return false;
	for (; json_walk_next(&walk, &name, &value) > 0; n++)
		if (name.p || n >= json_array_size(array) ||
		    !json_says_the_same(value, json_array_get(array, n)))
			return false;
	return json_walk_end(&walk) == 0 && n == json_array_size(array);
}

/* The name is a slice inside its quotes, so the text around it is a JSON string. */
static struct bytes quoted(struct bytes name)
{
	return (struct bytes){name.p - 1, name.n + 2};
}

/* Finds the last member whose name, decoded, is `wanted`; the number of all goes to *ret_count. */
static bool last_member(struct bytes text, const char *wanted, struct bytes *ret_value,
			size_t *ret_count)
{
	struct json_walk walk;
	struct bytes name, value;
	struct buffer key = {0};
	bool found = false, good = json_walk_start(&walk, text) == 0 && walk.object;

	*ret_count = 0;
	while (good && json_walk_next(&walk, &name, &value) > 0) {
		key.n = 0;
		good = json_string_decode(quoted(name), &key, NULL) == 0;
		++*ret_count;
		if (good && bytes_equal(buffer_bytes(&key), bytes_of(wanted))) {
			*ret_value = value;
			found = true;
		}
	}
	buffer_free(&key);
	return good && found && json_walk_end(&walk) == 0;
}

static bool object_says(struct bytes text, json_t *object)
{
	const char *wanted;
	json_t *member;
	size_t count = 0;
	bool same = true;

	json_object_foreach(object, wanted, member)
	{
		struct bytes last;
		same = same && last_member(text, wanted, &last, &count) &&
		       json_says_the_same(last, member);
	}
	return same && count >= json_object_size(object);
}

static bool integer_says(struct bytes text, json_int_t wanted)
{
	int64_t number;

	return json_integer_read(text, &number) == 0 && number == wanted;
}

static bool json_says_the_same(struct bytes text, json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return json_text_is_object(text) && object_says(text, value);
	case JSON_ARRAY:
		return json_text_is_array(text) && array_says(text, value);
	case JSON_STRING:
		return json_text_is_string(text) &&
		       string_says(text, json_string_value(value), json_string_length(value));
	case JSON_INTEGER:
		return integer_says(text, json_integer_value(value));
	case JSON_REAL:
		return !json_text_is_string(text);
	case JSON_TRUE:
		return json_text_is_true(text);
	case JSON_FALSE:
		return json_text_is_false(text);
	default:
		return json_text_is_null(text);
	}
}

/* True if jansson refuses for a reason of its own: it wants UTF-8, whole surrogate pairs, numbers
 * that fit its types and names without NUL. */
static bool jansson_is_stricter(const json_error_t *error)
{
	switch (json_error_code(error)) {
	case json_error_invalid_utf8:
	case json_error_numeric_overflow:
	case json_error_null_byte_in_key:
		return true;
	default:
		return strstr(error->text, "invalid Unicode") ||
		       strstr(error->text, "unable to decode byte");
	}
}

static size_t depth_of(struct bytes text)
{
	size_t depth = 0, most = 0;

	for (size_t i = 0; i < text.n; i++) {
		if (strchr("[{", text.p[i]) && text.p[i] && ++depth > most)
			most = depth;
		if (strchr("]}", text.p[i]) && text.p[i] && depth)
			depth--;
	}
	return most;
}

static struct bytes trim(struct bytes text)
{
	while (text.n && memchr(" \t\r\n", text.p[0], 4)) {
		text.p++;
		text.n--;
	}
	while (text.n && memchr(" \t\r\n", text.p[text.n - 1], 4))
		text.n--;
	return text;
}

/* False if the two disagree. *ret_accepted: the scanner took it. */
static bool json_agrees(struct bytes text, bool *ret_accepted)
{
	json_error_t error = {0};
	struct error fault = {""};
	int rc = json_check(text, &fault);
	json_t *theirs = json_loadb(text.p, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
	bool same;

	*ret_accepted = rc == 0;
	if (rc < 0)
		/* jansson takes a NUL behind a value for the end of the text. */
		same = fault.text[0] &&
		       (!theirs || depth_of(text) > JSON_DEPTH_MAX || memchr(text.p, 0, text.n));
	else if (!theirs)
		same = jansson_is_stricter(&error);
	else
		same = json_says_the_same(trim(text), theirs);
	json_decref(theirs);
	return same;
}
