#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The matrix of tools.bats once more: without the kernel's caches, in two mounts at once, beside writers.
bats_require_minimum_version 1.5.0
load helpers
load tools

setup_file() {
	tools_setup_file
}

teardown_file() {
	changefs_teardown
}

setup() {
	rm -f "$WORK/stop"
	WRITERS=()
}

teardown() {
	touch "$WORK/stop"
	wait
	[ ! -d "$WORK/other" ] || end_other_mount
}

# ---- caches ----

# Nothing that the mount's files have in them is ever dirty, so no sync is needed.
drop_caches() {
	{ echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null && return
	cat >&2 <<-'END_OF_CURE'
	/proc/sys/vm/drop_caches may not be written: run this test as root, and in a container that has /proc/sys
	writable (docker run --privileged).
	END_OF_CURE
	return 1
}

@test "every tool, with the kernel's caches dropped before each" {
	every_tool drop_caches
}

# ---- two mounts ----

end_other_mount() {
	wait_until 10 unmount "$WORK/other_mnt"
	wait_until 20 store_is_clean "$WORK/other"
	rm -r "$WORK/other" "$WORK/other_mnt"
}

@test "every tool in two mounts of two stores at the same time" {
	mkdir "$WORK/other_mnt"
	within 20 "$CHANGEFS" "$WORK/other" "$WORK/other_mnt"
	MNT=$WORK/other_mnt fill_and_copy 2
	run ! cmp -s "$COPY/feed/log.ndjson" "$WORK/copy.2/feed/log.ndjson"
	every_tool true "$WORK/other_mnt" "$WORK/copy.2" 3>&- &
	every_tool true
	wait $!
}

# ---- writers ----

# Appends to in/events a line at a time, a few lines at a time and a piece of a line at a time.
append_until_stopped() {
	local n=0
	until [ -e "$WORK/stop" ]; do
		n=$((n + 1))
		printf '{"type":"PUT","key":"busy:%d-%d","value":{"n":%d}}\n' "$1" $((n % 20)) "$n" >"$MNT/in/events"
		make_events 1 $((n % 4)) busy $((n % 7 * 500)) >"$MNT/in/events"
		sleep 0.05
	done
}

start_writers() {
	local i
	"$BATS_TEST_DIRNAME/live.py" "$MNT" busy "$WORK/stop" >"$WORK/live" 3>&- &
	WRITERS=("$!")
	for i in $(seq 8); do
		append_until_stopped "$i" 3>&- &
		WRITERS+=("$!")
	done
	wait_until 10 test -e "$MNT/feed/busy"
}

# All of them, and who read beside them, ended well.
stop_writers() {
	local pid
	touch "$WORK/stop"
	for pid in "${WRITERS[@]}"; do
		wait "$pid"
	done
	echo "# read beside eight writers: $(cat "$WORK/live")" >&3
	[ -z "$(cat "$MNT/ctl/errors")" ]
}

@test "every tool while eight writers append to in/events: what is there stays as it is" {
	start_writers
	every_tool true
	stop_writers
}

# is_part_of_mount DIRECTORY: a copy of the mount at some time. Every file of it is what the mount still shows,
# and the logs are what they were then, up to a line's end.
is_part_of_mount() {
	local log
	for log in log.ndjson busy/log.ndjson user/log.ndjson; do
		[ -s "$1/feed/$log" ]
		cmp "$1/feed/$log" <(head -c "$(stat -c %s "$1/feed/$log")" "$MNT/feed/$log")
		[ "$(tail -c 1 "$1/feed/$log" | od -An -c)" = '  \n' ]
	done
	find "$1/feed" -name '*.json' -printf '%P\n' | sort >"$WORK/names"
	[ "$(wc -l <"$WORK/names")" -gt 240 ]
	(cd "$1/feed" && xargs cat <"$WORK/names" | md5sum) >"$WORK/copied"
	(cd "$MNT/feed" && xargs cat <"$WORK/names" | md5sum) | cmp - "$WORK/copied"
	find "$1/data/busy" -name '*.json' -print0 | xargs -0 jq -es 'length > 0' >/dev/null
}

# tar tells of what grew under it, as on every file system, and ends with 1: logs, directories, and control files,
# whose time is that of the newest event.
tar_that_may_grow() {
	local code=0
	within 60 tar -C "$MNT" -cf "$1" . 2>"$WORK/tar.err" || code=$?
	[ "$code" -le 1 ]
	[ "$code" -eq 0 ] || [ -s "$WORK/tar.err" ]
	run ! grep -vxE 'tar: \./((feed|feed/busy)/log\.ndjson|(feed|data)(/busy)?|(ctl|dlq|in)/[a-z0-9.]+): file changed as we read it' "$WORK/tar.err"
}

@test "rsync, cp and tar of the whole mount while eight writers append: every file is whole" {
	start_writers
	within 60 rsync -a "$MNT/" "$WORK/rsynced/"
	within 60 cp -r "$MNT" "$WORK/copied.cp"
	tar_that_may_grow "$WORK/tar"
	mkdir "$WORK/untarred"
	tar -C "$WORK/untarred" -xf "$WORK/tar"
	stop_writers
	is_part_of_mount "$WORK/rsynced"
	is_part_of_mount "$WORK/copied.cp"
	is_part_of_mount "$WORK/untarred"
}
