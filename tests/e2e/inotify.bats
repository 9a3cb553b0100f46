#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# inotify: what comes in by itself is told to those who watch, by inotifywait and by a program of its own.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	SEEN=$WORK/seen
	if [ "$BATS_TEST_DESCRIPTION" != "noannounce: inotifywait sees nothing, and everything else works" ]; then
		start_daemon
	fi
}

# watch ARGUMENTS: inotifywait that writes `PATH EVENTS` to $SEEN, paths below the mount.
watch() {
	: >"$WORK/watching"
	wait_until 10 caught_up
	: >"$SEEN"
	start inotifywait -m --format '%w%f %e' "$@" >>"$SEEN" 2>"$WORK/watching"
	wait_until 10 file_contains "$WORK/watching" 'Watches established'
}

# seen REGEX: the lines that match, without the mount's path.
seen() {
	sed "s,^$MNT/,," "$SEEN" | grep -E "$1" || true
}

seen_count() {
	seen "$1" | wc -l
}

saw() {
	[ "$(seen_count "$1")" -ge "$2" ]
}

# What has come so far is told or passed over.
caught_up() {
	announced '.announce.state == "off" or .announce.sequence == .last_sequence'
}

announced() {
	jq -e "$1" "$MNT/ctl/stats.json" >/dev/null
}

# event_files FIRST LAST: their names.
event_files() {
	seq -f '%016.0f.json' "$1" "$2"
}

# Each of the sequences was created and closed once, in order, in feed/$1.
told_once() {
	wait_until 20 saw "^feed/$1/[0-9]+.json CLOSE_WRITE" $(($3 - $2 + 1))
	diff <(event_files "$2" "$3") <(seen "^feed/$1/[0-9]+.json CREATE" | sed "s,^feed/$1/,,; s, .*,,")
	diff <(event_files "$2" "$3") <(seen "^feed/$1/[0-9]+.json CLOSE_WRITE" | sed "s,^feed/$1/,,; s, .*,,")
}

# An end of in/events that stays open whatever becomes of the mount point.
open_events() {
	exec 7>"$MNT/in/events"
}

# The directories that are beneath the mount point, and must stay as they are.
lay_beneath() {
	mkdir -p "$1/feed/user" "$1/data/user" "$1/dlq" "$1/ops"
	(cd "$1" && find . | sort) >"$WORK/beneath"
}

nothing_beneath() {
	(cd "$1" && find . | sort) | diff "$WORK/beneath" -
}

@test "inotifywait on feed/user: each event once and in order, from in/events and a second writer at once" {
	put user:first 1
	watch "$MNT/feed/user"
	for i in $(seq 60); do put "user:$i" "$i"; done &
	first=$!
	for i in $(seq 60); do put "user:b$i" "$i"; done
	wait "$first"
	told_once user 2 121
	announced '.announce.state == "on" and .announce.announced > 0 and .announce.skipped == 0'
}

@test "inotifywait on feed/user: in/wal2json, and events of other collections are not seen" {
	put user:first 1 t:first 1
	watch "$MNT/feed/t"
	printf '%s\n' '{"action":"B","timestamp":"2026-01-01 00:00:01+00","lsn":"0/100","nextlsn":"0/FFFFFF0"}' \
		'{"action":"I","timestamp":"2026-01-01 00:00:01+00","lsn":"0/10","schema":"public","table":"t","columns":[{"name":"id","type":"integer","value":1}],"pk":[{"name":"id","type":"integer"}]}' \
		'{"action":"I","timestamp":"2026-01-01 00:00:01+00","lsn":"0/20","schema":"public","table":"t","columns":[{"name":"id","type":"integer","value":2}],"pk":[{"name":"id","type":"integer"}]}' \
		'{"action":"C","timestamp":"2026-01-01 00:00:01+00","lsn":"0/100","nextlsn":"0/FFFFFF0"}' >"$MNT/in/wal2json"
	put user:other 1 t:last 1
	wait_until 10 saw 'feed/t/0000000000000006.json CLOSE_WRITE' 1
	[ "$(seen 'json CREATE' | sed 's,.*/,,; s, .*,,' | xargs)" = "0000000000000003.json 0000000000000004.json 0000000000000006.json" ]
}

@test "inotifywait: an event that somebody opened at once is told all the same" {
	put user:first 1
	watch "$MNT/feed/user"
	for i in $(seq 2 41); do
		put "user:$i" "$i"
		cat "$MNT/feed/user/$(printf '%016d' "$i").json" >/dev/null
		ls -l "$MNT/feed/user" >/dev/null
	done
	wait_until 10 saw 'feed/user/[0-9]+.json CREATE' 40
	diff <(event_files 2 41) <(seen 'json CREATE' | sed 's,.*/,,; s, .*,,')
}

@test "inotifywait: a handler that opens each named file at once gets whole JSON" {
	put user:first 1
	mkfifo "$WORK/names"
	# shellcheck disable=SC2016
	start bash -c 'while read -r file; do
		case $file in
		*.ndjson | */.tail) continue ;;
		esac
		jq -c "if type == \"object\" then .key // .n else error(\"no object\") end" "$file" || echo "broken: $file"
	done <"$1"' - "$WORK/names" >>"$WORK/handled" 2>&1
	start inotifywait -m -q -e close_write --format '%w%f' "$MNT/feed/user" "$MNT/data/user" >"$WORK/names" 2>/dev/null
	watching() {
		put user:probe '{"n":0}'
		[ -s "$WORK/handled" ]
	}
	wait_until 10 watching
	: >"$WORK/handled"
	for i in $(seq 30); do put "user:k$i" "{\"n\":$i}"; done
	handled() {
		[ "$(grep -c '^"user:k[0-9]*"$' "$WORK/handled")" -eq 30 ] && grep -qx 30 "$WORK/handled"
	}
	wait_until 20 handled
	run ! grep -E 'broken|error' "$WORK/handled"
}

@test "inotifywait on data/user: CREATE for a new key, MODIFY for a change, DELETE for an end" {
	put user:a 1
	watch "$MNT/data/user"
	put user:b '{"n":1}'
	wait_until 10 saw 'data/user/b.json CLOSE_WRITE' 1
	put user:b '{"n":2}'
	wait_until 10 saw 'data/user/b.json CLOSE_WRITE' 2
	send '{"type":"DELETE","key":"user:b"}'
	wait_until 10 saw 'data/user/b.json DELETE' 1
	put user:b '{"n":3}'
	wait_until 10 saw 'data/user/b.json CLOSE_WRITE' 3
	[ "$(seen 'b.json (CREATE|MODIFY|DELETE)' | sed 's,.* ,,' | xargs)" = "CREATE MODIFY DELETE CREATE" ]
	[ "$(cat "$MNT/data/user/b.json")" = '{"n":3}' ]
	# A name with what a file name cannot carry; a key that comes and goes in one write is no document.
	send '{"type":"PUT","key":"user:x/y","value":1}' '{"type":"PUT","key":"user:gone","value":1}' \
		'{"type":"DELETE","key":"user:gone"}' '{"type":"PUT","key":"user:last","value":1}'
	wait_until 10 saw 'data/user/last.json CLOSE_WRITE' 1
	[ "$(seen_count 'data/user/x%2Fy.json CREATE')" -eq 1 ]
	[ "$(seen_count 'data/user/gone.json CREATE')" -eq 0 ]
	[ ! -e "$MNT/data/user/gone.json" ]
}

@test "inotifywait on data/ and on one document: what is written there is seen once, in feed/ too" {
	put user:a 1
	watch "$MNT/data" "$MNT/data/user" "$MNT/feed" "$MNT/feed/user"
	echo '{"n":1}' >"$MNT/data/user/b.json"
	wait_until 10 saw 'feed/user/0000000000000002.json CLOSE_WRITE' 1
	rm "$MNT/data/user/b.json"
	mkdir "$MNT/data/order"
	put user:last 1
	wait_until 10 saw 'data/user/last.json CLOSE_WRITE' 1
	[ "$(seen 'data/user/b.json (CREATE|CLOSE_WRITE|DELETE)' | sed 's,.* ,,' | xargs)" = "CREATE CLOSE_WRITE,CLOSE DELETE" ]
	[ "$(seen_count '^feed/user/[0-9]+.json CREATE')" -eq 3 ]
	[ "$(seen_count '^data/order CREATE,ISDIR')" -eq 1 ]
	[ "$(seen_count '^feed/order CREATE,ISDIR')" -eq 1 ]
	start inotifywait -m --format %e "$MNT/data/user/a.json" >"$WORK/one" 2>"$WORK/watching"
	wait_until 10 file_contains "$WORK/watching" 'Watches established'
	cat "$MNT/data/user/a.json" >/dev/null # the name has a new node now
	put user:a 2
	wait_until 10 file_contains "$WORK/one" MODIFY
	wait_until 10 file_contains "$WORK/one" CLOSE_WRITE
	[ "$(cat "$MNT/data/user/a.json")" = 2 ]
}

@test "inotifywait -r: a new collection is a new directory in feed/ and data/, and what comes in it is seen" {
	put user:a 1
	watch -r "$MNT/feed" "$MNT/data"
	put order:1 1
	wait_until 10 saw '^(feed|data)/order CREATE,ISDIR' 2
	new_one() {
		put order:2 2
		saw 'feed/order/[0-9]+.json CREATE' 1 && saw 'data/order/2.json' 1
	}
	wait_until 10 new_one
	[ "$(seen_count '^feed/order CREATE,ISDIR')" -eq 1 ]
	[ "$(seen_count '^data/order CREATE,ISDIR')" -eq 1 ]
	[ "$(names "$MNT/data")" = "order user" ]
}

@test "inotifywait on dlq/ and ops/: dead letters and ops events" {
	config '{"on_decode_error":"dlq"}'
	watch "$MNT/dlq" "$MNT/ops"
	send nonsense 'more nonsense'
	wait_until 10 saw 'ops/0000000000000003.json CLOSE_WRITE' 1
	wait_until 10 saw 'dlq/0000000000000002.json CLOSE_WRITE' 1
	[ "$(seen CREATE | sort | xargs)" = "dlq/0000000000000001.json CREATE dlq/0000000000000002.json CREATE ops/0000000000000002.json CREATE ops/0000000000000003.json CREATE" ]
	jq -e '.kind == "decode-error"' "$MNT/dlq/0000000000000002.json"
}

@test "inotifywait on feed/ and feed/user: .tail and log.ndjson are modified, the other collection's are not" {
	put user:a 1 order:a 1
	watch "$MNT/feed" "$MNT/feed/user" "$MNT/feed/order"
	before=$(wc -c <"$MNT/feed/log.ndjson")
	put user:b 1
	for file in feed/.tail feed/log.ndjson feed/user/.tail feed/user/log.ndjson; do
		wait_until 10 saw "^$file MODIFY" 1
		wait_until 10 saw "^$file CLOSE_WRITE" 1
	done
	[ "$(seen_count 'feed/order/.* MODIFY')" -eq 0 ]
	[ "$(stat -c %s "$MNT/feed/log.ndjson")" -eq $((before + $(tail -n 1 "$MNT/feed/log.ndjson" | wc -c))) ]
	[ "$(wc -l <"$MNT/feed/user/log.ndjson")" -eq 2 ]
}

@test "inotifywait on one file: feed/.tail, feed/log.ndjson, feed/tail, born empty and over a trim" {
	watch "$MNT/feed/.tail" "$MNT/feed/log.ndjson"
	put user:a 1
	wait_until 10 saw 'feed/.tail MODIFY' 1
	wait_until 10 saw 'feed/log.ndjson MODIFY' 1
	put user:b 1
	echo 2 >"$MNT/ctl/trim"
	cat "$MNT/feed/log.ndjson" >/dev/null # the name has a new node now
	: >"$SEEN"
	put user:c 1
	wait_until 10 saw 'feed/.tail MODIFY' 1
	wait_until 10 saw 'feed/log.ndjson MODIFY' 1
	[ "$(seen_count DELETE_SELF)" -eq 0 ]
	[ "$(jq -c .sequence "$MNT/feed/log.ndjson" | xargs)" = "2 3" ]
	start inotifywait -q -e modify "$MNT/feed/tail" >"$WORK/link" 2>&1
	link=$CHILD
	one_more() {
		put user:d 1
		process_gone "$link"
	}
	wait_until 10 one_more
	file_contains "$WORK/link" MODIFY
}

@test "inotifywait on feed/user: trimmed events are deleted" {
	put user:a 1 user:b 2 user:c 3
	put order:a 1 user:d 4
	watch "$MNT/feed/user" "$MNT/ops"
	cat "$MNT/feed/user/0000000000000001.json" >/dev/null
	echo 5 >"$MNT/ctl/trim"
	wait_until 10 saw '^feed/user/.* DELETE' 3
	wait_until 10 saw '^ops/.* CREATE' 1
	diff <(event_files 1 3) <(seen '^feed/user/.* DELETE' | sed 's,.*/,,; s, .*,,')
	[ "$(names "$MNT/feed/user")" = "0000000000000005.json log.ndjson tail" ]
	[ ! -e "$MNT/feed/user/0000000000000003.json" ]
}

@test "inotifywait: 20,000 events at once are a few announcements, the newest among them, and nothing else suffers" {
	put user:first 1
	watch "$MNT/feed/user" "$MNT/data/user"
	make_events 1 20000 >"$WORK/burst"
	cat "$WORK/burst" >"$MNT/in/events"
	log_has 20001
	wait_until 20 saw 'feed/user/0000000000020001.json CLOSE_WRITE' 1
	wait_until 20 saw 'data/user/20000.json CLOSE_WRITE' 1
	[ "$(seen_count 'feed/user/[0-9]+.json CREATE')" -le 1000 ]
	[ "$(seen 'feed/user/[0-9]+.json CREATE' | tail -n 1)" = "feed/user/0000000000020001.json CREATE" ]
	announced '.announce.skipped > 10000'
	tail -n +2 "$MNT/feed/log.ndjson" | unnumbered | cut -d, -f1-3 | cmp - <(cut -d, -f1-3 "$WORK/burst")
	# Afterwards each is told again.
	: >"$SEEN"
	put user:after 1
	wait_until 10 saw 'feed/user/0000000000020002.json CLOSE_WRITE' 1
}

@test "noannounce: inotifywait sees nothing, and everything else works" {
	start_daemon -o noannounce
	announced '.announce.state == "off" and (.announce.reason | contains("noannounce"))'
	[ -z "$(pgrep -P "$DAEMON")" ]
	put user:first 1
	watch "$MNT/feed/user" "$MNT/feed"
	put user:b 1
	# What follows would be told after it.
	cat "$MNT/feed/user/0000000000000002.json" >/dev/null
	wait_until 5 saw '0000000000000002.json CLOSE_NOWRITE' 1
	[ "$(seen_count 'CREATE|MODIFY|CLOSE_WRITE')" -eq 0 ]
}

@test "another file system mounted over the mount point: not one file is made in it" {
	put user:first 1
	ls "$MNT/feed/user" "$MNT/data/user" >/dev/null
	open_events
	make_events 1 200 >&7
	mount -t tmpfs none "$MNT"
	lay_beneath "$MNT"
	make_events 201 600 >&7
	exec 8<"$DAEMON_STDERR"
	mkdir "$WORK/other"
	mount --bind "$MNT" "$WORK/other"
	umount "$MNT"
	off_or_past() {
		announced '.announce.skipped > 0'
	}
	wait_until 10 off_or_past
	nothing_beneath "$WORK/other"
	umount "$WORK/other"
	# It goes on when the place is free again.
	watch "$MNT/feed/user"
	put user:after 1
	wait_until 10 saw '0000000000000602.json CLOSE_WRITE' 1
	announced '.announce.state == "on"'
	exec 7>&- 8<&-
}

@test "a file system mounted over feed/user: not one file is made in it" {
	put user:first 1
	ls "$MNT/feed/user" >/dev/null
	mount -t tmpfs none "$MNT/feed/user"
	watch "$MNT/data/user"
	put user:b 1
	wait_until 10 saw 'data/user/b.json CLOSE_WRITE' 1
	[ -z "$(names "$MNT/feed/user")" ]
	umount "$MNT/feed/user"
}

@test "umount -l during a burst: not one file is made in the directory beneath, and the daemon says that it stopped" {
	lay_beneath "$MNT" 2>/dev/null || true
	put user:first 1
	ls "$MNT/feed/user" "$MNT/data/user" >/dev/null
	open_events
	exec 6<"$MNT/ctl"
	make_events 1 400 >&7
	unmount -l "$MNT"
	lay_beneath "$MNT"
	make_events 401 800 >&7
	off() {
		jq -e '.announce.state == "off" and (.announce.reason | contains("mount point"))' /proc/self/fd/6/stats.json
	}
	wait_until 10 off
	nothing_beneath "$MNT"
	exec 6<&- 7>&-
	daemon_exit_code
	nothing_beneath "$MNT"
}

@test "umount during a burst works at once or soon, and no process stays" {
	for _ in $(seq 5); do
		ls "$MNT/feed/user" "$MNT/data/user" >/dev/null 2>&1 || true
		helper=$(pgrep -P "$DAEMON")
		make_events 1 450 >"$MNT/in/events"
		tries=0
		until unmount "$MNT" 2>/dev/null; do
			tries=$((tries + 1))
			[ "$tries" -lt 100 ]
		done
		daemon_exit_code
		process_gone "$helper"
		start_daemon
	done
}

@test "SIGTERM and kill -9 during a burst: the daemon ends, and so does its announcer" {
	for signal in TERM KILL TERM KILL TERM KILL; do
		put user:first 1
		ls "$MNT/feed/user" "$MNT/data/user" >/dev/null
		helper=$(pgrep -P "$DAEMON")
		make_events 1 450 >"$MNT/in/events"
		wait_until 5 announced '.announce.announced > 2'
		kill -"$signal" "$DAEMON"
		wait_until 10 process_gone "$DAEMON"
		wait_until 10 process_gone "$helper"
		daemon_exit_code || [ "$signal" = KILL ]
		start_daemon
	done
}

@test "kill -9 of the announcer: the daemon goes on and says so" {
	put user:first 1
	ls "$MNT/feed/user" >/dev/null
	kill -KILL "$(pgrep -P "$DAEMON")"
	stopped() {
		put user:b 1
		announced '.announce.state == "off" and (.announce.reason | contains("ended"))'
	}
	wait_until 10 stopped
	cat "$MNT/feed/log.ndjson" >/dev/null
}

@test "env --ignore-signal=CHLD, kill -9 of the announcer: nobody else gets its number, and is taken for it" {
	stop_daemon
	printf '#!/bin/sh\nexec env --ignore-signal=CHLD "%s" "$@"\n' "$CHANGEFS" >"$WORK/starter"
	chmod +x "$WORK/starter"
	CHANGEFS=$WORK/starter start_daemon
	helper=$(pgrep -P "$DAEMON")
	kill -KILL "$helper"
	wait_until 10 grep -q '^State:.*zombie' "/proc/$helper/status"
}

@test "-o ro: the kernel knows a mount that can be written, and inotify is announced to" {
	put user:first 1
	remount -o ro
	awk -v dir="$MNT" '$2 == dir { print $4 }' /proc/mounts | grep -q '^rw'
	wait_until 5 announced '.announce.state == "on"'
	run bash -c 'echo 1 >"$1"' - "$MNT/ctl/trim"
	[[ "$output" == *"Read-only file system"* ]]
}

@test "a mount that the kernel knows as read-only ends the announcing" {
	put user:first 1
	ls "$MNT/feed/user" >/dev/null
	mkdir "$WORK/writable"
	mount --bind "$MNT" "$WORK/writable"
	mount -i -o remount,bind,ro "$MNT"
	echo '{"type":"PUT","key":"user:b","value":1}' >"$WORK/writable/in/events"
	wait_until 10 announced '.announce.state == "off" and (.announce.reason | contains("read-only"))'
	umount "$WORK/writable"
}

@test "nobody else gets what the announcer gets: history can be neither written nor made nor removed" {
	put user:a 1
	for file in feed/.tail feed/user/log.ndjson feed/user/0000000000000001.json; do
		run bash -c 'echo x >>"$1"' - "$MNT/$file"
		[ "$status" -ne 0 ]
		[ "$(stat -c %a "$MNT/$file")" = 444 ]
	done
	run ! touch "$MNT/feed/user/0000000000000002.json"
	run ! rm -f "$MNT/feed/user/0000000000000001.json"
	run ! mkdir "$MNT/feed/order"
	[ "$(jq .sequence "$MNT/feed/user/0000000000000001.json")" -eq 1 ]
}

@test "a Python program with inotify of its own reads each event's file as it is named" {
	put user:first 1
	cat >"$WORK/watch.py" <<-'END'
		import ctypes, json, os, struct, sys
		libc = ctypes.CDLL(None, use_errno=True)
		directory, count = sys.argv[1].encode(), int(sys.argv[2])
		fd = libc.inotify_init1(0)
		assert libc.inotify_add_watch(fd, directory, 0x100) >= 0  # IN_CREATE
		print("ready", flush=True)
		found = []
		while len(found) < count:
		    events = os.read(fd, 65536)
		    while events:
		        _, mask, _, length = struct.unpack_from("iIII", events)
		        name = events[16:16 + length].rstrip(b"\0")
		        events = events[16 + length:]
		        with open(os.path.join(directory, name)) as file:
		            found.append(json.load(file)["sequence"])
		print(*found)
	END
	start python3 "$WORK/watch.py" "$MNT/feed/user" 50 >"$WORK/python" 2>&1
	python=$CHILD
	wait_until 10 file_contains "$WORK/python" ready
	for i in $(seq 50); do put "user:$i" 1; done
	wait_until 20 process_gone "$python"
	[ "$(tail -n 1 "$WORK/python")" = "$(seq 2 51 | xargs)" ]
}

@test "an ordinary user's daemon: inotifywait sees CREATE, MODIFY and CLOSE_WRITE" {
	stop_daemon
	chmod 711 "$WORK" "${WORK%/*}" "${WORK%/*/*}"
	mkdir -p "$WORK/user/mnt" "$WORK/dev"
	chown -R nobody "$WORK/user"
	cat >"$WORK/script" <<-'END'
		set -e
		mnt=$1/mnt
		trap 'kill $(jobs -p) 2>/dev/null || true; fusermount3 -u -z "$mnt" || true' EXIT
		"$CHANGEFS" "$1/store" "$mnt"
		echo '{"type":"PUT","key":"user:a","value":1}' >"$mnt/in/events"
		inotifywait -m --format '%w%f %e' "$mnt/feed" "$mnt/feed/user" "$mnt/data/user" >"$1/seen" 2>"$1/watching" &
		until grep -q established "$1/watching"; do sleep 0.02; done
		echo '{"type":"PUT","key":"user:a","value":2}' >"$mnt/in/events"
		until grep -q 'data/user/a.json CLOSE_WRITE' "$1/seen"; do sleep 0.02; done
		stat -c '%a %U' "$mnt/feed/.tail" "$mnt/data/user/a.json"
		! echo x >"$mnt/feed/.tail" || exit 3
		jq -c .announce "$mnt/ctl/stats.json"
	END
	mount -t tmpfs none "$WORK/dev"
	mknod -m 666 "$WORK/dev/fuse" c 10 229
	# A /dev/fuse of its own, in a mount namespace of its own.
	# shellcheck disable=SC2016
	run within 30 unshare -m bash -c 'mount --bind "$1/dev/fuse" /dev/fuse &&
		exec setpriv --reuid=nobody --regid=nogroup --clear-groups bash "$1/script" "$1/user"' - "$WORK"
	umount "$WORK/dev"
	[ "$status" -eq 0 ]
	[[ "$output" == *'444 nobody'* && "$output" == *'"state":"on"'* ]]
	for event in 'feed/.tail MODIFY' 'feed/log.ndjson MODIFY' 'feed/user/.tail MODIFY' \
		'feed/user/0000000000000002.json CREATE' 'feed/user/0000000000000002.json CLOSE_WRITE' 'data/user/a.json MODIFY'; do
		grep -q "$event" "$WORK/user/seen"
	done
	OTHER_STORES+=("$WORK/user/store")
}

@test "pgrep finds one process by the daemon's arguments, and the announcer by its name" {
	[ "$(pgrep -f -- "$STORE $MNT")" = "$DAEMON" ]
	[ "$(pgrep -P "$DAEMON" -x changefs-tell)" = "$(pgrep -P "$DAEMON")" ]
}
