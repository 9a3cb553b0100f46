/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "files.h"

/* ---- a recording of wal2json ---- */

static void print_row(uint64_t i, char action, uint64_t lsn, uint64_t *state)
{
	unsigned long long r = draw(state), id = r % KEYS;

	printf("{\"action\":\"%c\",\"timestamp\":\"2026-01-31 12:00:%02u.%06u+00\","
	       "\"lsn\":\"0/%llX\",\"schema\":\"public\",\"table\":\"orders\",\"columns\":["
	       "{\"name\":\"id\",\"type\":\"bigint\",\"value\":%llu},"
	       "{\"name\":\"status\",\"type\":\"text\",\"value\":\"shipped\"},"
	       "{\"name\":\"customer\",\"type\":\"integer\",\"value\":%llu},"
	       "{\"name\":\"total\",\"type\":\"numeric(10,2)\",\"value\":%llu.50},"
	       "{\"name\":\"note\",\"type\":\"text\",\"value\":\"%016llx leave it at the door\"}],",
	       action, (unsigned)(i / 20000 % 60), (unsigned)(i * 50 % 1000000),
	       (unsigned long long)lsn, id, (r >> 20) % 100000, (r >> 40) % 10000, r);
	if (action == 'U')
		printf("\"identity\":[{\"name\":\"id\",\"type\":\"bigint\",\"value\":%llu}],", id);
	printf("\"pk\":[{\"name\":\"id\",\"type\":\"bigint\"}]}\n");
}

static void print_edge(uint64_t i, char action, uint64_t lsn)
{
	printf("{\"action\":\"%c\",\"timestamp\":\"2026-01-31 12:00:%02u.%06u+00\","
	       "\"lsn\":\"0/%llX\"}\n",
	       action, (unsigned)(i / 20000 % 60), (unsigned)(i * 50 % 1000000),
	       (unsigned long long)lsn);
}

/* Format version 2, with transactions of one to three rows: as pg_recvlogical writes it. */
static void wal2json(const struct bench_options *options)
{
	uint64_t lsn = 0x1000000, state = UINT64_C(88172645463325252), i = 0;

	while (i < options->events) {
		uint64_t rows = 1 + draw(&state) % 3, commit = lsn + rows * 400;
		print_edge(i, 'B', commit);
		for (; rows && i < options->events; rows--, i++, lsn += 400)
			print_row(i, draw(&state) % 3 ? 'U' : 'I', lsn, &state);
		lsn = commit + 48;
		print_edge(i, 'C', commit);
	}
}

static const struct bench_job jobs[] = {
	{"append", 1, files_append, "FILE                  events/s"},
	{"read", 1, files_read, "FILE                  MB/s"},
	{"latency", 2, files_latency, "IN TAIL               us: p50 p99 max"},
	{"make", 1, files_make, "DIR                   makes one file an event"},
	{"open", 1, files_open, "DIR                   files/s: first, again"},
	{"group", 1, files_group, "GROUP                 events/s"},
	{"readers", 4, files_readers, "PID TAIL STATS FILE   us: p50 p99 max; KiB: before, with"},
	{"wal2json", 0, wal2json, "                      writes a recording to standard output"},
};

int main(int argc, char **argv)
{
	return bench_main(argc, argv, jobs, sizeof(jobs) / sizeof(*jobs));
}
