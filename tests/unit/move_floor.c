/* SPDX-License-Identifier: Apache-2.0 */
/* move_floor STORE SEQUENCE: moves the floor of a store that nobody has open, for the tests of
 * files that a floor has passed. */
#include <stdio.h>
#include <stdlib.h>

#include "store/store.h"

int main(int argc, char **argv)
{
	struct store_options options = {.owner = "move_floor"};
	struct store *store = NULL;
	struct error error = {""};

	if (argc != 3 || store_open(argv[1], &options, &store, &error) < 0) {
		fprintf(stderr, "move_floor: %s\n", error.text);
		return 1;
	}
	int rc = store_floor_set(store, strtoull(argv[2], NULL, 10), NULL, &error);
	if (rc < 0)
		fprintf(stderr, "move_floor: %s\n", error.text);
	return store_close(store) < 0 || rc < 0;
}
