#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The program: its command line, how it starts, its options, and check.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
}

# The process that serves MNT when it went to the background by itself.
served_by() {
	pgrep -f -- "$STORE $MNT" | head -n 1
}

# Ends a daemon that went to the background, and waits until it has.
stop_background() {
	local pid
	pid=$(served_by)
	wait_until 10 unmount "$MNT"
	wait_until 20 process_gone "$pid"
}

@test "--help tells the usage within 80 columns and ends with 0" {
	run -0 "$CHANGEFS" --help
	[[ "$output" == *"changefs STORE MOUNTPOINT"* ]]
	[[ "$output" == *"check STORE"* ]]
	[[ "$output" == *"--version"* ]]
	[ "$(awk 'length($0) > 80' <<<"$output" | wc -l)" -eq 0 ]
	run -0 "$CHANGEFS" -h
}

@test "--version" {
	run -0 "$CHANGEFS" --version
	[[ "${lines[0]}" =~ ^changefs\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "wrong usage ends with 2 and says what to do" {
	run -2 "$CHANGEFS"
	run -2 "$CHANGEFS" "$STORE"
	run -2 "$CHANGEFS" "$STORE" "$MNT" more
	run -2 "$CHANGEFS" --unknown
	[[ "$output" == *unknown* ]]
	run -2 "$CHANGEFS" "$STORE" "$MNT" -o nonsense
	[[ "$output" == *nonsense* ]]
	run -2 "$CHANGEFS" "$STORE" "$MNT" -o uid=nobody-knows-whom
	run -2 "$CHANGEFS" "$STORE" "$MNT" -o umask=999
	run -2 "$CHANGEFS" check
	run -2 "$CHANGEFS" check a b
	[ ! -e "$STORE" ]
	not_mounted "$MNT"
}

@test "what cannot work ends with 1 and says why" {
	run -1 "$CHANGEFS" "$STORE" "$WORK/no-such-place"
	[[ "$output" == *no-such-place* ]]
	touch "$WORK/file"
	run -1 "$CHANGEFS" "$WORK/file" "$MNT"
	[[ "$output" == *"$WORK/file"* ]]
	run -1 "$CHANGEFS" "$WORK/no/such/parent/store" "$MNT"
	run -1 "$CHANGEFS" check "$WORK/no-such-store"
	[[ "$output" == *no-such-store* ]]
	not_mounted "$MNT"
}

@test "a directory that is no store is refused and left alone" {
	mkdir "$WORK/photos"
	echo precious >"$WORK/photos/file"
	run -1 "$CHANGEFS" "$WORK/photos" "$MNT"
	[[ "$output" == *photos* ]]
	[ "$(ls -A "$WORK/photos")" = file ]
	run -1 "$CHANGEFS" check "$WORK/photos"
	not_mounted "$MNT"
}

@test "it goes to the background when mounted and ready, and tells its parent so" {
	run -0 within 20 "$CHANGEFS" "$STORE" "$MNT"
	[ -z "$output" ]
	[ -d "$MNT/feed" ]
	pid=$(served_by)
	[ "$(cut -d' ' -f6 "/proc/$pid/stat")" -eq "$pid" ] # a session of its own
	[ "$(readlink "/proc/$pid/cwd")" = / ]
	put user:a 1
	log_has 1
	stop_background
}

@test "relative paths work in the background too" {
	cd "$WORK"
	run -0 within 20 "$CHANGEFS" store mnt
	put user:a 1
	[ "$(stats .store)" = "$STORE" ]
	pid=$(pgrep -f -- "$CHANGEFS store mnt" | head -n 1)
	cd /
	wait_until 10 unmount "$MNT"
	wait_until 20 process_gone "$pid"
	store_is_clean "$STORE"
}

@test "the background daemon's failure to start is its parent's exit code" {
	start_daemon
	mkdir "$WORK/mnt2"
	run -1 within 20 "$CHANGEFS" "$STORE" "$WORK/mnt2"
	not_mounted "$WORK/mnt2"
}

@test "two stores on two places at once" {
	start_daemon
	put user:a 1
	first=$MNT
	OTHER_STORES+=("$WORK/store2")
	mkdir "$WORK/mnt2"
	run -0 within 20 "$CHANGEFS" "$WORK/store2" "$WORK/mnt2"
	MNT=$WORK/mnt2 put user:b 2
	[ "$(jq -r .key "$first/feed/log.ndjson")" = user:a ]
	[ "$(jq -r .key "$WORK/mnt2/feed/log.ndjson")" = user:b ]
	pid=$(pgrep -f -- "$WORK/store2 $WORK/mnt2" | head -n 1)
	wait_until 10 unmount "$WORK/mnt2"
	wait_until 20 process_gone "$pid"
}

@test "-o ro: reading works, writing is EROFS in the daemon, the store is unchanged" {
	start_daemon
	put user:a 1
	remount -o ro
	[ "$(wc -l <"$MNT/feed/log.ndjson")" -eq 1 ]
	for file in in/events in/wal2json ctl/config.json feed/1.json data/user/a.json new; do
		run bash -c 'echo "{}" >"$1"' - "$MNT/$file"
		[ "$status" -ne 0 ]
		[[ "$output" == *"Read-only file system"* ]]
	done
	run mkdir "$MNT/new"
	[[ "$output" == *"Read-only file system"* ]]
	remount
	put user:b 2
	log_has 2
}

@test "-o uid, gid and umask are what files show" {
	start_daemon -o uid=1234,gid=2345,umask=027
	put user:a 1
	for path in . feed feed/log.ndjson feed/user/1.json data/user/a.json in/events ctl/stats.json; do
		[ "$(stat -c %u:%g "$MNT/$path")" = 1234:2345 ]
		mode=$(stat -c %a "$MNT/$path")
		[ $((0$mode & 027)) -eq 0 ]
	done
}

@test "default modes: events and documents can only be read, in/ takes writes" {
	start_daemon
	put user:a 1
	[ $((0$(stat -c %a "$MNT/feed/user/1.json") & 0222)) -eq 0 ]
	[ $((0$(stat -c %a "$MNT/feed/log.ndjson") & 0222)) -eq 0 ]
	[ $((0$(stat -c %a "$MNT/in/events") & 0200)) -ne 0 ]
	[ "$(stat -c %u "$MNT/feed")" -eq "$(id -u)" ]
}

@test "default_permissions holds: modes are obeyed by another user" {
	start_daemon -o allow_other,umask=077
	put user:a 1
	if [ "$(id -u)" -eq 0 ]; then
		run setpriv --reuid=65534 --regid=65534 --clear-groups cat "$MNT/feed/log.ndjson"
		[ "$status" -ne 0 ]
		[[ "$output" == *"Permission denied"* ]]
	fi
	grep -F " $MNT " /proc/mounts | grep -q default_permissions
	grep -F " $MNT " /proc/mounts | grep -q allow_other
}

@test "without allow_other another user sees nothing" {
	start_daemon
	grep -F " $MNT " /proc/mounts | grep -qv allow_other
}

@test "README.md of the mount tells what there is" {
	start_daemon
	put user:a 1
	[ "$(stat -c %s "$MNT/README.md")" -eq "$(wc -c <"$MNT/README.md")" ]
	for name in feed/ data/ in/ groups/ dlq/ ops/ ctl/ README.md tail log.ndjson events wal2json stats.json errors config.json sources.json trim; do
		grep -qF -- "$name" "$MNT/README.md"
	done
	for name in "$MNT"/*; do
		grep -qF -- "${name##*/}" "$MNT/README.md"
	done
	for absent in segments/ snapshots/ query/ changes/ debezium maxwell transaction; do
		run grep -F -- "$absent" "$MNT/README.md"
		[ "$status" -ne 0 ]
	done
}

@test "the root lists what the README promises, and nothing else" {
	start_daemon
	[ "$(names "$MNT")" = "README.md ctl data dlq feed groups in ops" ]
	[ "$(names "$MNT/in")" = "events wal2json" ]
}

@test "check says what it looked at, finds a clean store clean, and changes nothing" {
	start_daemon
	make_events 1 1000 >"$MNT/in/events"
	stop_daemon
	find "$STORE" -type f -exec sha256sum {} + | sort >"$WORK/before"
	run -0 "$CHANGEFS" check "$STORE"
	find "$STORE" -type f -exec sha256sum {} + | sort >"$WORK/after"
	diff "$WORK/before" "$WORK/after"
}

@test "check finds a damaged store, and the daemon says EBADMSG or refuses, and never invents" {
	start_daemon
	make_events 1 20000 user 200 >"$MNT/in/events"
	stop_daemon
	start_daemon # what the first run left in the WAL is in tables now
	stop_daemon
	cp -r "$STORE" "$WORK/damaged"
	file=$(find "$WORK/damaged" -type f \( -name '*.sst' -o -name '*.log' \) -printf '%s %p\n' | sort -rn | head -n 1 | cut -d' ' -f2-)
	size=$(stat -c %s "$file")
	[ "$size" -gt 100000 ]
	dd if=/dev/urandom of="$file" bs=1 seek=$((size / 2)) count=64 conv=notrunc status=none
	run "$CHANGEFS" check "$WORK/damaged"
	echo "$output"
	[ "$status" -eq 1 ]
	[ -n "$output" ]
}

@test "a start is quick with a long log" {
	start_daemon
	config '{"snapshots":"none"}'
	make_events 1 200000 user 100 >"$MNT/in/events"
	stop_daemon
	begin=$(now_ms)
	start_daemon
	took=$(($(now_ms) - begin))
	echo "# started in $took ms with 200,000 events" >&3
	kill_daemon
	begin=$(now_ms)
	start_daemon
	echo "# started in $(($(now_ms) - begin)) ms after kill -9" >&3
	log_has 200000
}
