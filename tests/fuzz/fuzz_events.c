/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "layout/formats/format.h"
#include "layout/formats/json.h"
#include "tests/unit/fake_batch.h"

static void check_event(const struct store_event *event)
{
	MUST(store_type_name(event->type));
	MUST(event->key.n > 0 && event->key.n <= STORE_KEY_MAX && bytes_are_utf8(event->key));
	MUST(event->collection.n > 0 && bytes_are_utf8(event->collection));
	MUST(event->timestamp_ms >= 0);
	MUST(event->value.p || event->type != STORE_PUT);
	MUST(!event->value.p || event->type == STORE_PUT || event->type == STORE_MESSAGE);
	MUST(!event->after.p || event->type == STORE_PUT);
	if (event->metadata.p) {
		MUST(json_check(event->metadata, NULL) == 0 && bytes_are_utf8(event->metadata));
		MUST(json_text_is_object(event->metadata));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes input = fuzz_input(data, size), line;
	struct store_batch *batch = store_batch_new(NULL);
	struct format_state *state;

	MUST(format_events.open(BYTES(""), &state) == 0);
	while (fuzz_line(&input, &line)) {
		size_t before = store_batch_count(batch);
		struct error error = {""};
		int rc = format_events.line(state, batch, line, true, &error);
		size_t added = store_batch_count(batch) - before;
		MUST(rc == FORMAT_TAKEN || (rc < 0 && error.text[0] && added == 0));
		MUST(rc < 0 || added <= 2 /* a dead letter and its ops event */);
		if (added == 1)
			check_event(&batch->events[before].event);
	}
	format_events.close(state);
	store_batch_free(batch);
	return 0;
}
