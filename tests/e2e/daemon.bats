#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The program: its command line, its life, and its ends, orderly and not.
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

@test "a second daemon on the same store is refused, with the first one's pid and mount point" {
	start_daemon
	mkdir "$WORK/mnt2"
	run -1 within 20 "$CHANGEFS" "$STORE" "$WORK/mnt2" -f
	[[ "$output" == *"$DAEMON"* ]]
	[[ "$output" == *"$MNT"* ]]
	put user:a 1
	run -1 "$CHANGEFS" check "$STORE"
	[[ "$output" == *"$DAEMON"* ]]
	log_has 1
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

@test "umount ends the daemon with 0, and everything is there the next time" {
	start_daemon
	make_events 1 500 >"$MNT/in/events"
	cat "$MNT/feed/log.ndjson" >"$WORK/before"
	wait_until 10 unmount "$MNT"
	daemon_exit_code
	start_daemon
	cmp "$WORK/before" "$MNT/feed/log.ndjson"
	put user:501 1
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq .sequence)" -eq 501 ]
}

@test "TERM, INT and HUP each unmount and end with 0, with a reader that waits too" {
	for signal in TERM INT HUP; do
		start_daemon
		put user:a 1
		start cat "$MNT/feed/tail" >/dev/null 2>&1
		wait_until 10 readers_wait 1
		kill -"$signal" "$DAEMON"
		daemon_exit_code
		not_mounted "$MNT"
		wait_until 5 process_gone "$CHILD"
		[ -z "$(ls -A "$MNT")" ]
	done
	start_daemon
	log_has 3
}

@test "umount is refused while a reader waits, and succeeds when it has gone" {
	start_daemon
	start cat "$MNT/feed/tail" >/dev/null
	wait_until 10 readers_wait 1
	run unmount "$MNT"
	[ "$status" -ne 0 ]
	is_served "$MNT"
	kill -INT "$CHILD"
	wait_until 5 process_gone "$CHILD"
	stop_daemon
}

@test "umount -l: the place is free at once, the daemon ends with the last reader" {
	start_daemon
	put user:a 1
	start cat "$MNT/feed/tail" >"$WORK/out"
	wait_until 10 readers_wait 1
	unmount -l "$MNT"
	not_mounted "$MNT"
	kill -0 "$DAEMON"
	kill -INT "$CHILD"
	daemon_exit_code
	start_daemon
	log_has 1
}

@test "umount -f: the daemon leaves, nothing stays mounted, and the next start works" {
	start_daemon
	put user:a 1
	start cat "$MNT/feed/tail" >/dev/null 2>&1
	wait_until 10 readers_wait 1
	if [ "$(id -u)" -eq 0 ]; then
		umount -f "$MNT" || true
	else
		# what umount -f does, for the owner of the connection
		echo 1 >"/sys/fs/fuse/connections/$(stat -c %d "$MNT")/abort"
	fi
	wait_until 20 process_gone "$DAEMON"
	wait "$DAEMON" || true
	DAEMON=
	wait_until 10 not_mounted "$MNT"
	start_daemon
	log_has 1
}

@test "kill -9: readers get an error, a start on the same place recovers it" {
	start_daemon
	make_events 1 1000 >"$MNT/in/events"
	start cat "$MNT/feed/tail" >"$WORK/out" 2>/dev/null
	wait_until 10 readers_wait 1
	kill_daemon
	wait_until 5 process_gone "$CHILD"
	run stat "$MNT/feed"
	[[ "$output" == *"not connected"* ]]
	start_daemon
	log_has 1000
	cmp "$WORK/out" "$MNT/feed/log.ndjson"
	put user:x 1
	numbered_from 1 <"$MNT/feed/log.ndjson"
	[ "$(awk -v m="$MNT" '$2 == m' /proc/mounts | wc -l)" -eq 1 ]
}

@test "kill -9 ten times, with writes in between: nothing lost, no sequence twice" {
	for i in $(seq 10); do
		start_daemon
		make_events $((i * 100 - 99)) $((i * 100)) >"$MNT/in/events"
		kill_daemon
	done
	start_daemon
	log_has 1000
	numbered_from 1 <"$MNT/feed/log.ndjson"
	jq -r .key "$MNT/feed/log.ndjson" | cmp - <(seq -f 'user:%.0f' 1 1000)
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

@test "options that mount(8) passes along are accepted" {
	start_daemon -o rw,nosuid,nodev,noexec,noatime,relatime,user=someone,exec,dev,suid,fsname=shop
	put user:a 1
	log_has 1
}

@test "mount -t fuse.changefs, and umount" {
	if [ "$(id -u)" -eq 0 ]; then
		# mount(8) looks in the system's own directories only: in a mount namespace, the program is in one
		# shellcheck disable=SC2016
		within 20 unshare -m --propagation private bash -euc '
			mount --bind "$(dirname "$CHANGEFS")" /usr/local/sbin
			mount -t fuse.changefs "$STORE" "$MNT" -o nofail,umask=022
			echo "{\"type\":\"PUT\",\"key\":\"user:a\",\"value\":1}" >"$MNT/in/events"
			wc -l <"$MNT/feed/log.ndjson"
			umount "$MNT"' >"$WORK/out"
	else
		within 20 /sbin/mount.fuse3 "$CHANGEFS#$STORE" "$MNT" -o nofail,umask=022
		put user:a 1
		wc -l <"$MNT/feed/log.ndjson" >"$WORK/out"
		stop_background
	fi
	[ "$(cat "$WORK/out")" -eq 1 ]
	wait_until 10 store_is_clean "$STORE"
}

@test "README.md of the mount tells what there is" {
	start_daemon
	put user:a 1
	[ "$(stat -c %s "$MNT/README.md")" -eq "$(wc -c <"$MNT/README.md")" ]
	for name in feed/ data/ in/ dlq/ ops/ ctl/ README.md tail log.ndjson events wal2json stats.json errors config.json sources.json; do
		grep -qF -- "$name" "$MNT/README.md"
	done
	for name in "$MNT"/*; do
		grep -qF -- "${name##*/}" "$MNT/README.md"
	done
	for absent in groups/ segments/ snapshots/ query/ changes/ debezium maxwell transaction; do
		run grep -F -- "$absent" "$MNT/README.md"
		[ "$status" -ne 0 ]
	done
}

@test "the root lists what the README promises, and nothing else" {
	start_daemon
	[ "$(names "$MNT")" = "README.md ctl data dlq feed in ops" ]
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

@test "umount and at once check, or start again: they wait for the daemon's end" {
	"$CHANGEFS" "$STORE" "$MNT"
	echo '{"type":"PUT","key":"user:1","value":1}' >"$MNT/in/events"
	umount "$MNT" && "$CHANGEFS" check "$STORE"
	"$CHANGEFS" "$STORE" "$MNT"
	umount "$MNT" && "$CHANGEFS" "$STORE" "$MNT"
	umount "$MNT" && "$CHANGEFS" check "$STORE"
}
