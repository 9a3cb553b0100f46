/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/fs.h"

static void print_fault(void *context, const char *fault)
{
	puts(fault);
}

static int check(const char *path)
{
	struct store_options options = {.read_only = true};
	struct error error = {0};
	struct store *store;
	int faults, r = store_open(path, &options, &store, &error);

	if (r < 0) {
		fprintf(stderr, "changefs: %s: %s\n", path,
			error.text[0] ? error.text : strerror(-r));
		return EXIT_FAILURE;
	}
	faults = store_check(store, print_fault, NULL);
	store_close(store);
	if (faults < 0)
		fprintf(stderr, "changefs: %s: %s\n", path, strerror(-faults));
	else if (faults == 0)
		printf("%s: clean\n", path);
	else
		printf("%s: %d fault%s\n", path, faults, faults == 1 ? "" : "s");
	return faults == 0 && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A descriptor below 3 that is closed would be given to the store's files, and then be printed to.
 */
static int open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	return fd < 0 ? fd : close(fd);
}

int main(int argc, char **argv)
{
	struct options options;
	int status;

	if (open_standard() < 0)
		return EXIT_FAILURE;
	status = options_parse(argc, argv, &options);
	if (status < 0)
		status = options.command == OPTIONS_CHECK ? check(options.store)
							  : changefs_mount(&options);
	options_free(&options);
	return status;
}
