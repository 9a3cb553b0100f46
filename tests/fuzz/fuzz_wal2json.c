/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "layout/formats/format.h"
#include "layout/formats/json.h"
#include "tests/unit/fake_batch.h"

/* Patches with no document, with the newest value, and with a line that may be anything. */
static void check_patch(const struct store_event *event, struct bytes newest, struct bytes line)
{
	const struct bytes currents[] = {{NULL, 0}, newest, line};

	for (size_t i = 0; i < ARRAY_SIZE(currents); i++) {
		struct buffer out = {0};
		bool partial = false;
		MUST(event->patch(event->value, currents[i], &out, &partial) == 0);
		MUST(json_check(buffer_bytes(&out), NULL) == 0);
		MUST(json_text_is_object(buffer_bytes(&out)));
		buffer_free(&out);
	}
}

static void check_event(const struct store_event *event, struct bytes newest, struct bytes line)
{
	MUST(event->key.n > 0 && event->key.n <= STORE_KEY_MAX && bytes_are_utf8(event->key));
	MUST(event->collection.p && bytes_are_utf8(event->collection));
	MUST(json_check(event->metadata, NULL) == 0 && bytes_are_utf8(event->metadata));
	if (event->type == STORE_PUT)
		MUST(json_check(event->value, NULL) == 0);
	if (event->before.p)
		MUST(json_check(event->before, NULL) == 0);
	if (event->patch)
		check_patch(event, newest, line);
}

static void check_batch(const struct store_batch *batch, struct bytes line)
{
	struct bytes newest = {NULL, 0};

	MUST(batch->has_source);
	for (size_t i = 0; i < batch->count; i++) {
		const struct fake_event *fake = &batch->events[i];
		if (fake->ops)
			MUST(json_check(fake->event.value, NULL) == 0);
		else
			check_event(&fake->event, newest, line);
		newest = fake->event.value;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes input = fuzz_input(data, size), line;
	struct store_batch *batch = store_batch_new(NULL);
	struct format_state *state;

	MUST(format_wal2json.open(BYTES("a \"source\""), &state) == 0);
	while (fuzz_line(&input, &line)) {
		struct error error = {""};
		int rc = format_wal2json.line(state, batch, line, true, &error);
		MUST(rc >= 0 || error.text[0]);
		if (rc == FORMAT_TAKEN) {
			check_batch(batch, line);
			store_batch_clear(batch);
		}
		MUST(batch->count == 0 && !batch->has_source);
	}
	format_wal2json.close(state);
	store_batch_free(batch);
	return 0;
}
