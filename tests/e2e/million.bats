#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A million events in one directory. The tests share one mount and go on from each other.
bats_require_minimum_version 1.5.0
load helpers

MILLION=1000000

setup_file() {
	BATS_TEST_TMPDIR=$BATS_FILE_TMPDIR changefs_setup
	start_daemon
	config '{"snapshots":"none"}'
	export WORK DAEMON DIRECTORY=$MNT/feed/user
	: >"$WORK/calls"
	for last in $(seq 100000 100000 "$MILLION"); do
		make_events $((last - 99999)) "$last" |
			dd of="$MNT/in/events" bs=1M iflag=fullblock status=none
		count_calls >>"$WORK/calls"
	done
}

teardown_file() {
	changefs_teardown
}

setup() {
	:
}

teardown() {
	:
}

# How often a plain listing asks the kernel for more, with as many events as there are now.
count_calls() {
	within 60 strace -qqe trace=getdents64 -o "$WORK/strace" ls -f "$DIRECTORY" >/dev/null
	wc -l <"$WORK/strace"
}

# Prints how long a command took; that decides nothing.
timed() {
	local begin
	begin=$(now_ms)
	within 120 "$@"
	echo "# a million events: ${*//"$DIRECTORY"/feed/user} took $(($(now_ms) - begin)) ms" >&3
}

@test "ls -f: every event once, in the log's order" {
	timed ls -f "$DIRECTORY" >"$WORK/names"
	grep '\.json$' "$WORK/names" | cmp - <(seq -f '%016.0f.json' "$MILLION")
	[ "$(wc -l <"$WORK/names")" -eq $((MILLION + 4)) ] # with . .. tail log.ndjson
}

@test "ls: sorted by name, which is the log's order" {
	timed ls "$DIRECTORY" >"$WORK/names"
	cmp "$WORK/names" <(seq -f '%016.0f.json' "$MILLION"; echo log.ndjson; echo tail)
}

@test "find: all of them, by name and by type" {
	timed find "$DIRECTORY" -name '*.json' >"$WORK/names"
	[ "$(wc -l <"$WORK/names")" -eq "$MILLION" ]
	[ "$(sort -u "$WORK/names" | wc -l)" -eq "$MILLION" ]
	[ "$(find "$DIRECTORY" -type f | wc -l)" -eq $((MILLION + 1)) ]
}

@test "ls -l: the sizes of all files together are the log's" {
	timed ls -lU "$DIRECTORY" >"$WORK/long"
	awk '/\.json$/ { n++; sum += $5 } END { printf "%d %.0f\n", n, sum }' "$WORK/long" |
		grep -qx "$MILLION $(stat -c %s "$DIRECTORY/log.ndjson")"
}

@test "wc -l, tail and grep -c of the whole log; the first, a middle and the last event's file" {
	[ "$(wc -l <"$DIRECTORY/log.ndjson")" -eq "$MILLION" ]
	[ "$(tail -n 1 "$DIRECTORY/log.ndjson" | jq .sequence)" -eq "$MILLION" ]
	[ "$(grep -c '"sequence":[0-9]*77,' "$DIRECTORY/log.ndjson")" -eq $((MILLION / 100)) ]
	for sequence in 1 $((MILLION / 2)) "$MILLION"; do
		jq -e ".sequence == $sequence and .key == \"user:$sequence\"" "$DIRECTORY/$sequence.json"
	done
}

@test "cat *.json is over the shell's limit, which find and xargs know" {
	# shellcheck disable=SC2016 # the other shell expands it
	run -126 within 60 bash -c 'cat "$1"/*.json' - "$DIRECTORY"
	[[ "$output" == *"Argument list too long"* ]]
	find "$DIRECTORY" -name '00000000009999*.json' -print0 | xargs -0 cat | wc -l | grep -qx 100
}

# With every tenth more the listing took as many calls more as with the first.
@test "ls -f asks the kernel linearly often (strace)" {
	echo "# getdents64 calls of ls -f with each 100,000 events more: $(xargs <"$WORK/calls")" >&3
	awk 'NR == 1 { first = $1 } $1 < NR * first * 0.9 || $1 > NR * first * 1.1 { exit 1 } END { exit NR != 10 }' "$WORK/calls"
}

@test "seekdir, telldir and rewinddir are right while events arrive and are trimmed" {
	within 120 "$BATS_TEST_DIRNAME/listing.py" "$DIRECTORY" "$MILLION" "$MNT/in/events" "$MNT/ctl/trim"
}

# A sanitizer's own memory is not the daemon's: it gets more where it also gets more time.
@test "after all that the daemon never had 300 MiB in memory" {
	grep -E '^Vm(HWM|RSS)' "/proc/$DAEMON/status" | sed 's/^/# /' >&3
	awk -v limit=$((300 * 1024 * ${CHANGEFS_SLOW:-1})) '/^VmHWM/ { exit $2 >= limit }' "/proc/$DAEMON/status"
}
