/* SPDX-License-Identifier: Apache-2.0 */
/* Every text has a name that reads back, and every name that reads is the one that is written. The
 * input's first byte says how many of its next bytes are the collection. */
#include <errno.h>

#include "fuzz.h"
#include "layout/names.h"

static struct buffer name, back;

/* What a name reads back as: the text, or of a cut name the text's beginning. */
static void must_lead_back(int rc, int rc_cut, struct bytes text)
{
	MUST(name.n <= NAME_BYTES_MAX && strlen(name.p) == name.n && name.p[0] != '.');
	MUST(bytes_are_utf8(buffer_bytes(&name)));
	if (rc == 0)
		MUST(bytes_equal(buffer_bytes(&back), text));
	else
		MUST(rc == -EINVAL && rc_cut == 0 && bytes_start_with(text, buffer_bytes(&back)));
}

static void text_to_name(struct bytes collection, struct bytes key)
{
	int cut = 0;

	name.n = back.n = 0;
	MUST(name_collection_write(collection, &name) == 0);
	int rc = name_collection_read(name.p, &back);
	if (rc)
		cut = name_collection_read_cut(name.p, &back);
	must_lead_back(rc, cut, collection);
	name.n = back.n = 0;
	MUST(name_document_write(collection, key, &name) == 0);
	rc = name_document_read(collection, name.p, &back);
	if (rc)
		cut = name_document_read_cut(collection, name.p, &back);
	must_lead_back(rc, cut, key);
}

static void name_to_text(struct bytes collection, const char *text)
{
	uint64_t sequence;

	name.n = back.n = 0;
	if (name_collection_read(text, &back) == 0) {
		MUST(name_collection_write(buffer_bytes(&back), &name) == 0);
		MUST(strcmp(name.p, text) == 0);
	}
	name.n = back.n = 0;
	if (name_document_read(collection, text, &back) == 0) {
		MUST(name_document_write(collection, buffer_bytes(&back), &name) == 0);
		MUST(strcmp(name.p, text) == 0);
	}
	if (name_sequence_read(text, ".json", &sequence) == 0) {
		char written[NAME_SEQUENCE_DIGITS + sizeof(".json")];
		uint64_t again;
		MUST(sequence > 0 && sequence <= STORE_SEQUENCE_MAX);
		name_sequence_write(sequence, ".json", written);
		MUST(name_sequence_read(written, ".json", &again) == 0 && again == sequence);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	size_t n = data[0] < size ? data[0] : size - 1;
	struct bytes collection = fuzz_input(data + 1, n);
	struct bytes key = fuzz_input(data + 1 + n, size - 1 - n);
	char *text = strndup(key.p, key.n);

	MUST(text);
	text_to_name(collection, key);
	name_to_text(collection, text);
	free(text);
	buffer_free(&name);
	buffer_free(&back);
	return 0;
}
