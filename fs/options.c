/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/options.h"

#define EXIT_USAGE 2
#define GO_ON	   (-1)

static const char help[] =
	"Usage: changefs STORE MOUNTPOINT [-o OPTIONS] [-f]\n"
	"       changefs check STORE\n"
	"\n"
	"Mounts the change log that is kept in the directory STORE as a file system; a\n"
	"missing or empty STORE is made. Returns when the mount is ready and goes on in\n"
	"the background until it is unmounted or gets SIGTERM. README.md in the mount\n"
	"tells about the files.\n"
	"\n"
	"'check' verifies a store that is not mounted and names every fault. A store that\n"
	"is itself called 'check' is mounted as ./check.\n"
	"\n"
	"  -o OPTIONS         mount options with commas between them; may be repeated\n"
	"  -f                 stay in the foreground, errors on standard error\n"
	"  -h, --help         print this and exit\n"
	"  -V, --version      print the version and exit\n"
	"\n"
	"Mount options:\n"
	"  ro                 refuse every change\n"
	"  sync               every write returns only when it would survive a power cut\n"
	"  nostreams          leave the links named 'tail' out of listings, for tools\n"
	"                     that follow links as they walk; they still open by name\n"
	"  noannounce         do not tell inotify of what comes in by itself\n"
	"  uid=N, gid=N       who owns the files (default: who mounts)\n"
	"  umask=OCTAL        the permissions to leave out (default: the caller's umask)\n"
	"  allow_other        let other users in, as far as the permissions allow\n"
	"  allow_root         let root in, as far as the permissions allow\n"
	"  noexec, noatime, nodiratime, dirsync\n"
	"                     go on to the kernel; nosuid and nodev are always on\n"
	"What mount(8) passes along for itself (rw, user, noauto, nofail, _netdev, x-*\n"
	"and so on) is accepted and has no effect. The kernel always checks permissions.\n"
	"\n"
	"Exit status: 0 done, 1 failed, 2 wrong usage.\n";

/* Options that are for mount(8), or that say what is so in any case. A name that ends in '=' takes
 * any value; one that ends in '-' is a prefix. */
static const char *const dropped[] = {
	"rw",	      "suid",	     "dev",	      "exec",
	"async",      "atime",	     "diratime",      "relatime",
	"norelatime", "strictatime", "nostrictatime", "lazytime",
	"nolazytime", "user",	     "user=",	      "users",
	"nouser",     "nousers",     "owner",	      "noowner",
	"group",      "nogroup",     "auto",	      "noauto",
	"nofail",     "fail",	     "_netdev",	      "defaults",
	"fsname=",    "subtype=",    "comment=",      "x-",
	"X-",	      "silent",	     "loud",	      "default_permissions",
	"nosuid",     "nodev",
};

static const char *const for_kernel[] = {"noexec", "noatime", "nodiratime", "dirsync"};

static int usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("changefs: ", stderr);
	vfprintf(stderr, format, args);
	fputs("\nTry 'changefs --help'.\n", stderr);
	va_end(args);
	return EXIT_USAGE;
}

static bool option_matches(const char *option, const char *pattern)
{
	size_t n = strlen(pattern);

	if (pattern[n - 1] == '=' || pattern[n - 1] == '-')
		return strncmp(option, pattern, n) == 0;
	return strcmp(option, pattern) == 0;
}

static bool option_in(const char *option, const char *const *patterns, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (option_matches(option, patterns[i]))
			return true;
	return false;
}

/* Digits only: strtoull alone would take a sign and blanks. */
static bool parse_number(const char *text, int base, unsigned long long max,
			 unsigned long long *ret_value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret_value = strtoull(text, &end, base);
	return errno == 0 && *end == '\0' && *ret_value <= max;
}

/* uid=, gid= and umask=: GO_ON when it was one of them and good, 0 when it was none. */
static int parse_valued(struct options *options, const char *option)
{
	unsigned long long value;
	const char *text = strchr(option, '=');

	if (!text)
		return 0;
	text++;
	if (option_matches(option, "umask=")) {
		if (!parse_number(text, 8, 0777, &value))
			return usage("umask is an octal number up to 777, not '%s'", text);
		options->umask = (mode_t)value;
		return GO_ON;
	}
	if (!option_matches(option, "uid=") && !option_matches(option, "gid="))
		return 0;
	/* The last number means 'no user' to chown(2). */
	if (!parse_number(text, 10, UINT32_MAX - 1, &value))
		return usage("'%s': an id is a decimal number", option);
	if (*option == 'u')
		options->uid = (uid_t)value;
	else
		options->gid = (gid_t)value;
	return GO_ON;
}

static int parse_mount_option(struct options *options, const char *option)
{
	int r = parse_valued(options, option);

	if (r != 0)
		return r;
	if (strcmp(option, "ro") == 0)
		options->read_only = true;
	else if (strcmp(option, "rw") == 0)
		options->read_only = false;
	else if (strcmp(option, "sync") == 0)
		options->sync = true;
	else if (strcmp(option, "async") == 0)
		options->sync = false;
	else if (strcmp(option, "nostreams") == 0)
		options->no_streams = true;
	else if (strcmp(option, "allow_other") == 0)
		options->allow_other = true;
	else if (strcmp(option, "allow_root") == 0)
		options->allow_root = true;
	else if (strcmp(option, "noannounce") == 0)
		options->no_announce = true;
	else if (option_in(option, for_kernel, ARRAY_SIZE(for_kernel)))
		return buffer_printf(&options->kernel, ",%s", option) < 0 ? EXIT_FAILURE : GO_ON;
	else if (!option_in(option, dropped, ARRAY_SIZE(dropped)))
		return usage("unknown mount option '%s'", option);
	return GO_ON;
}

static int parse_mount_options(struct options *options, char *text)
{
	char *place = NULL;

	for (char *option = strtok_r(text, ",", &place); option;
	     option = strtok_r(NULL, ",", &place)) {
		int r = parse_mount_option(options, option);

		if (r != GO_ON)
			return r;
	}
	return GO_ON;
}

static int parse_operands(struct options *options, int count, char **operands)
{
	if (count == 0)
		return usage("what is to be mounted, and where?");
	if (count == 1)
		return usage("the mount point is missing");
	if (count > 2)
		return usage("'%s' is one operand too many", operands[2]);
	if (strcmp(operands[0], "check") == 0) {
		options->command = OPTIONS_CHECK;
		options->store = operands[1];
	} else {
		options->store = operands[0];
		options->mountpoint = operands[1];
	}
	if (options->allow_other && options->allow_root)
		return usage("allow_other and allow_root exclude each other");
	return GO_ON;
}

static mode_t current_umask(void)
{
	mode_t mask = umask(077);

	umask(mask);
	return mask;
}

int options_parse(int argc, char **argv, struct options *ret_options)
{
	static const struct option names[] = {
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.uid = getuid(), .gid = getgid(), .umask = current_umask()};
	int c, r = GO_ON;

	opterr = 0;
	while (r == GO_ON && (c = getopt_long(argc, argv, ":o:fhV", names, NULL)) != -1) {
		if (c == 'o')
			r = parse_mount_options(&options, optarg);
		else if (c == 'f')
			options.foreground = true;
		else if (c == 'h')
			r = fputs(help, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
		else if (c == 'V')
			r = puts("changefs " CHANGEFS_VERSION) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
		else if (c == ':')
			r = usage("'%s' needs a value", argv[optind - 1]);
		else
			r = usage("unknown option '%s'", argv[optind - 1]);
	}
	if (r == GO_ON)
		r = parse_operands(&options, argc - optind, argv + optind);
	*ret_options = options;
	return r;
}

void options_free(struct options *options)
{
	buffer_free(&options->kernel);
}
