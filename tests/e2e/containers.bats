#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A mount in containers: bubblewrap's by examples/container/run, and namespaces of unshare(1).
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	RUN=$(readlink -f "$BATS_TEST_DIRNAME/../../examples/container/run")
	export RUN
}

contain() {
	within 30 "$RUN" "$@"
}

nobody_waits() {
	[ "$(stats .readers.waiting)" -eq 0 ]
}

@test "bwrap, the whole mount: tail -f sees the host's events, and every write is EROFS" {
	start_daemon
	put user:a 1
	start "$RUN" "$MNT" tail -n 100 -f /changes/feed/tail >"$WORK/out"
	wait_until 10 line_count "$WORK/out" 1
	put user:b 2
	wait_until 10 line_count "$WORK/out" 2
	cmp "$WORK/out" "$MNT/feed/log.ndjson"
	contain "$MNT" cat /changes/feed/log.ndjson | cmp - "$MNT/feed/log.ndjson"
	for file in in/events ctl/config.json feed/1.json data/user/a.json new; do
		# shellcheck disable=SC2016
		run contain "$MNT" bash -c 'echo "{}" >"$1"' - "/changes/$file"
		[ "$status" -ne 0 ]
		[[ "$output" == *"Read-only file system"* ]]
	done
	log_has 2
}

@test "bwrap, one collection: its tail and its events, read as they come, and nothing else is there" {
	start_daemon
	put user:a 1 order:1 1
	start "$RUN" "$MNT/feed/user" cat /changes/tail >"$WORK/out"
	wait_until 10 line_count "$WORK/out" 1
	put order:2 2 user:b 2
	wait_until 10 line_count "$WORK/out" 2
	cmp "$WORK/out" "$MNT/feed/user/log.ndjson"
	[ "$(contain "$MNT/feed/user" jq -r .key /changes/0000000000000004.json)" = user:b ]
	contain "$MNT/feed/user" head -n 1 /changes/.tail@1 | jq -e '.sequence == 4'
	[ "$(contain "$MNT/feed/user" find / -path /usr -prune -o -path /proc -prune -o -name log.ndjson -print)" = /changes/log.ndjson ]
}

@test "bwrap, in/ alone: what is written there arrives, nothing can be read, a bad line is refused" {
	start_daemon
	contain -w "$MNT/in" bash -c 'echo "{\"type\":\"PUT\",\"key\":\"user:a\",\"value\":1}" >/changes/events'
	make_events 1 500 >"$WORK/lines"
	contain -w "$MNT/in" dd of=/changes/events bs=64k conv=fsync,notrunc status=none <"$WORK/lines"
	log_has 501
	run contain -w "$MNT/in" bash -c 'echo nonsense >/changes/events'
	[ "$status" -ne 0 ]
	[[ "$output" == *"Invalid argument"* ]]
	refused EINVAL /in/events
	[ "$(contain -w "$MNT/in" cat /changes/events | wc -c)" -eq 0 ]
	[ "$(contain -w "$MNT/in" ls /changes | xargs)" = "events wal2json" ]
}

@test "bwrap: a container that is killed while it waits leaves no reader behind" {
	start_daemon
	start "$RUN" "$MNT" cat /changes/feed/tail
	wait_until 10 readers_wait 1
	kill -KILL "$CHILD"
	wait_until 10 nobody_waits
	stop_daemon
}

@test "bwrap: umount on the host takes nothing from a container that reads and writes; the daemon ends with it" {
	start_daemon
	mkfifo "$WORK/lines"
	exec 9<>"$WORK/lines"
	start "$RUN" -w "$MNT" bash -c 'cat /changes/feed/tail & cat >/changes/in/events; wait' <"$WORK/lines" >"$WORK/out"
	wait_until 10 readers_wait 1
	unmount "$MNT"
	not_mounted "$MNT"
	echo '{"type":"PUT","key":"user:a","value":1}' >&9
	wait_until 10 grep -q user:a "$WORK/out"
	kill -0 "$DAEMON"
	kill -KILL "$CHILD"
	daemon_exit_code
	exec 9>&-
}

@test "bwrap with users of its own: owners and modes are seen through its map" {
	start_daemon -o umask=077
	put user:a 1
	as_1000() {
		within 20 bwrap --unshare-user --uid 1000 --gid 1000 --bind / / "$@"
	}
	[ "$(as_1000 stat -c %u:%g "$MNT/feed")" = 1000:1000 ]
	as_1000 cat "$MNT/feed/log.ndjson" | cmp - "$MNT/feed/log.ndjson"
	# shellcheck disable=SC2016
	as_1000 bash -c 'echo "{\"type\":\"PUT\",\"key\":\"user:b\",\"value\":1}" >"$MNT/in/events"'
	log_has 2
	remount -o uid=12345,gid=12345,umask=022
	[ "$(as_1000 stat -c %u:%g "$MNT/feed")" = 65534:65534 ]
	as_1000 cat "$MNT/feed/log.ndjson" | cmp - "$MNT/feed/log.ndjson"
}

@test "unshare: root in a container of another user gets in by allow_other only, and has that user's rights" {
	[ "$(id -u)" -eq 0 ] || export ENTER=sudo
	chmod 755 "$WORK"
	# shellcheck disable=SC2016
	in_system '
		contained() { setpriv --reuid=nobody --regid=65534 --clear-groups unshare -Urm "$@"; }
		changefs /mnt/store /mnt/mnt
		put user:a
		[ "$(contained id -u)" -eq 0 ]
		not contained ls /mnt/mnt
		umount /mnt/mnt
		changefs /mnt/store /mnt/mnt -o allow_other,umask=022
		contained cat /mnt/mnt/feed/log.ndjson | cmp - /mnt/mnt/feed/log.ndjson
		[ "$(contained stat -c %u /mnt/mnt/feed)" -eq 65534 ]
		not contained touch /mnt/mnt/in/events
		not contained tee /mnt/mnt/in/events <<<"{}"
		umount /mnt/mnt
		changefs /mnt/store /mnt/mnt -o allow_other,uid=65534
		[ "$(contained stat -c %u /mnt/mnt/feed)" -eq 0 ]
		contained tee /mnt/mnt/in/events <<<"{\"type\":\"PUT\",\"key\":\"user:b\",\"value\":1}"
		[ "$(wc -l </mnt/mnt/feed/log.ndjson)" -eq 2 ]
		umount /mnt/mnt
	'
}

@test "unshare -Urm: a daemon inside a container of an ordinary user is seen there only, and umount ends it" {
	export WORK
	# shellcheck disable=SC2016
	start unshare --user --map-root-user --mount --propagation private bash -euc '
		"$CHANGEFS" "$STORE" "$MNT"
		echo "{\"type\":\"PUT\",\"key\":\"user:a\",\"value\":1}" >"$MNT/in/events"
		cp "$MNT/feed/log.ndjson" "$WORK/inside"
		until [ -e "$WORK/go" ]; do sleep 0.02; done
		umount "$MNT"
		touch "$WORK/gone"'
	wait_until 20 test -s "$WORK/inside"
	not_mounted "$MNT"
	[ -z "$(ls -A "$MNT")" ]
	touch "$WORK/go"
	wait_until 20 test -e "$WORK/gone"
	start_daemon # waits for the end of the other
	cmp "$WORK/inside" "$MNT/feed/log.ndjson"
}

@test "bwrap: a daemon inside, which its container's end kills: the store goes on where it was" {
	# shellcheck disable=SC2016
	start bwrap --unshare-user --uid 0 --gid 0 --unshare-pid --die-with-parent --cap-add CAP_SYS_ADMIN \
		--bind / / --dev-bind /dev /dev --proc /proc bash -euc '
		"$CHANGEFS" "$STORE" "$MNT"
		echo "{\"type\":\"PUT\",\"key\":\"user:a\",\"value\":1}" >"$MNT/in/events"
		exec cat "$MNT/feed/tail"' >"$WORK/out"
	wait_until 20 line_count "$WORK/out" 1
	not_mounted "$MNT"
	kill -KILL "$CHILD"
	start_daemon
	cmp "$WORK/out" "$MNT/feed/log.ndjson"
	jq -e '.type == "startup" and .details.last_end == "crash"' "$MNT/ops/0000000000000002.json"
}

@test "bwrap: a daemon that starts again is seen in a container that has the directory above, in no other" {
	export RUN
	# shellcheck disable=SC2016
	in_system '
		until_has() { until grep -q "$2" "$1"; do sleep 0.02; done; }
		event() { echo "{\"type\":\"PUT\",\"key\":\"$1\",\"value\":1}" >/mnt/srv/log/in/events; }
		mkdir -p /mnt/srv/log
		not "$RUN" -r /mnt/srv true 2>/mnt/said # nothing is passed on from here
		grep make-shared /mnt/said
		mount --bind /mnt/srv /mnt/srv
		mount --make-shared /mnt/srv

		"$RUN" -r /mnt/srv bash -c "
			until cat /changes/log/feed/tail; do sleep 0.02; done
			echo over
			until cat /changes/log/feed/tail; do sleep 0.02; done" >/mnt/out 2>/dev/null &
		changefs /mnt/store /mnt/srv/log
		event user:a
		until_has /mnt/out user:a
		"$RUN" /mnt/srv/log bash -c "cat /changes/feed/tail; exec tail -f /dev/null" >/mnt/other 2>/dev/null &
		until_has /mnt/other user:a
		kill -KILL "$(pgrep -x changefs)"
		changefs /mnt/store /mnt/srv/log
		event user:b
		until_has /mnt/out user:b
		until pgrep -x tail; do sleep 0.02; done
		not ls "/proc/$(pgrep -x tail)/root/changes/feed" 2>/mnt/said
		grep "not connected" /mnt/said
		umount -l /mnt/srv/log
	'
	[ "$(grep -c user:b "$WORK/out")" -eq 1 ]
}
