/* SPDX-License-Identifier: Apache-2.0 */
/* The scanner accepts and refuses what jansson does, and says the same of what both accept. */
#include "fuzz.h"
#include "tests/unit/json_compare.h"

/* A text that nobody has checked may be walked; only then can it be one that json_check() takes. */
static void walk(struct bytes text, bool accepted)
{
	struct json_walk walk;
	struct bytes name, value;
	int rc;

	if (json_walk_start(&walk, text) < 0)
		return;
	while ((rc = json_walk_next(&walk, &name, &value)) > 0)
		MUST(json_check(value, NULL) == 0);
	bool good = rc == 0 && json_walk_end(&walk) == 0;
	MUST(good == accepted || depth_of(text) > JSON_DEPTH_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes text = fuzz_input(data, size);
	bool accepted;

	MUST(json_agrees(text, &accepted));
	walk(text, accepted);
	return 0;
}
