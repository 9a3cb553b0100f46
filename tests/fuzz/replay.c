/* SPDX-License-Identifier: Apache-2.0 */
/* Runs files through a fuzz target, so that its corpus is a test that needs no fuzzer. */
#include "fuzz.h"

/* The input has its exact size, so that a sanitizer sees a read behind its end. */
static bool replay(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct buffer input = {0};
	char piece[4096];
	size_t n;

	if (!file)
		return false;
	while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
		MUST(buffer_add(&input, piece, n) == 0);
	bool good = !ferror(file);
	fclose(file);
	uint8_t *exact = malloc(input.n ? input.n : 1);
	MUST(exact);
	memcpy(exact, buffer_bytes(&input).p, input.n);
	LLVMFuzzerTestOneInput(exact, input.n);
	free(exact);
	buffer_free(&input);
	return good;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s FILE...\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++) {
		if (!replay(argv[i])) {
			fprintf(stderr, "cannot read %s\n", argv[i]);
			return 1;
		}
	}
	printf("%d files replayed\n", argc - 1);
	return 0;
}
