#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# data/: what once went wrong when documents were written in unusual ways.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	start_daemon
	DATA=$MNT/data/user
	mkdir "$DATA"
	printf '[1]\n' >"$DATA/alice.json"
}

teardown() {
	changefs_teardown
	! mountpoint -q "$WORK/disk" || umount -l "$WORK/disk"
}

@test "ls: a document that was moved away and came back through in/events is listed" {
	mv "$DATA/alice.json" "$DATA/.alice"
	[ "$(names "$DATA")" = ".alice" ]
	put user:alice '[2]'
	[ "$(names "$DATA")" = ".alice alice.json" ]
	same_bytes "$DATA/alice.json" '[2]'
}

@test "rm -r: a collection whose document was moved away a moment ago goes, and its DELETE is in the log" {
	mv "$DATA/alice.json" "$DATA/alice.json~"
	rm -r "$DATA"
	[ ! -e "$DATA" ]
	log_has 2
	tail -n 1 "$MNT/feed/log.ndjson" |
		jq -e '.type == "DELETE" and .key == "user:alice" and .before_snapshot == "[1]\n"' >/dev/null
}

@test "touch -d, mv: a file's time becomes one that in/events takes too" {
	local time
	for time in -1000 4611686018427387904 9223372036854775807 9007199254741; do
		printf '"%s"' "$time" >"$DATA/.new"
		touch -d "@$time" "$DATA/.new"
		mv "$DATA/.new" "$DATA/alice.json"
	done
	[ "$(tail -n 4 "$MNT/feed/log.ndjson" | jq -c .timestamp_ms | xargs)" = \
		"0 9007199254740991 9007199254740991 9007199254740991" ]
	cat "$MNT/feed/log.ndjson" >"$WORK/log"
	cat "$WORK/log" >"$MNT/in/events"
	log_has 10
}

@test "cp -a, tar, mv: directories of documents come in whole, and a collection moves" {
	mkdir -p "$WORK/from/car"
	printf '[1]' >"$WORK/from/car/a.json"
	chmod "$(stat -c %a "$DATA")" "$WORK/from/car"
	cp -a "$WORK/from/car" "$MNT/data/"
	tar cf - -C "$WORK/from" car | tar xpf - -C "$MNT/data" --overwrite
	mv "$MNT/data/car" "$MNT/data/bus"
	same_bytes "$MNT/data/bus/a.json" '[1]'
	[ "$(names "$MNT/data")" = "bus user" ]
}

@test "10,000 forgotten scratch files: no more of them, documents are written all the same" {
	python3 - "$DATA" <<-'END'
		import errno, os, sys
		d = sys.argv[1]
		made = 0
		try:
		    for made in range(20000):
		        os.close(os.open('%s/t%d' % (d, made), os.O_CREAT | os.O_WRONLY))
		except OSError as e:
		    assert e.errno == errno.ENOSPC
		assert 9990 <= made <= 10000, made
		assert len(os.listdir(d)) == made + 1
	END
	refused ENOSPC "/data/user/t$(stat -c %n "$DATA"/t* | wc -l)"
	printf '[2]' >"$DATA/alice.json"
	printf '[3]' >"$DATA/bob.json"
	log_has 3
	find "$DATA" -name 't*' -delete
	printf x >"$DATA/t1"
	[ "$(names "$DATA")" = "alice.json bob.json t1" ]
}

@test "256 MiB of scratch files: ENOSPC for more, documents are written all the same" {
	run dd if=/dev/zero of="$DATA/zeros" bs=1M count=300 status=none
	[ "$status" -eq 1 ]
	[[ $output == *"No space left"* ]]
	refused ENOSPC /data/user/zeros
	printf '[2]' >"$DATA/alice.json"
	awk 'BEGIN { printf "["; for (i = 0; i < 600000; i++) printf "%d,", i; print "0]" }' >"$DATA/big.json"
	log_has 3
	rm "$DATA/zeros"
	printf x >"$DATA/t1"
}

@test "a full disk: what was recorded is listed and read, more is refused, and room mends it" {
	stop_daemon
	[ "$(id -u)" -eq 0 ] || { echo "a small file system is needed: run this as root" >&2; return 1; }
	rm -r "$STORE"
	mkdir "$WORK/disk"
	mount -t tmpfs -o size=160m changefs-test "$WORK/disk"
	STORE=$WORK/disk/store
	start_daemon
	make_events 1 50 >"$MNT/in/events"
	printf '"old"' >"$DATA/2.json"
	[ "$(names "$DATA" | wc -w)" -eq 50 ] # they are in the database
	printf '"new"' >"$DATA/1.json"
	printf '"new"' >"$DATA/51.json"
	rm "$DATA/2.json"
	dd if=/dev/zero of="$WORK/disk/fill" bs=1M status=none || true
	find "$DATA" -name '*.json' -printf '%f\n' | sort -n >"$WORK/names"
	{ echo 1.json; seq -f '%.0f.json' 3 51; } | cmp - "$WORK/names"
	find "$DATA" -name '*.json' -exec cat {} + >/dev/null
	[ "$(cat "$DATA/1.json" "$DATA/51.json")" = '"new""new"' ]
	run bash -c 'printf 1 >"$1/3.json"; cat "$1/3.json"' - "$DATA"
	[[ $output == *'"n":3'* || $output == 1 ]]
	mv "$DATA/4.json" "$DATA/.4"
	{ printf '"'; head -c 6000000 /dev/zero | tr '\0' x; printf '"'; } >"$WORK/big"
	run cp "$WORK/big" "$DATA/4.json"
	[[ $status -eq 1 && $output == *"No space left"* ]]
	[ ! -e "$DATA/4.json" ]
	rm "$WORK/disk/fill"
	wait_until 10 file_contains "$MNT/feed/log.ndjson" '"DELETE","key":"user:4"'
	printf '"room"' >"$DATA/3.json"
	[ "$(cat "$DATA/3.json")" = '"room"' ]
	mv "$DATA/.4" "$DATA/4.json"
	[ "$(names "$DATA" | wc -w)" -eq 50 ]
	printf '"late"' >"$DATA/5.json"
	dd if=/dev/zero of="$WORK/disk/fill" bs=1M status=none || true
	truncate -s -20M "$WORK/disk/fill" # room to end in, but not to settle the documents
	stop_daemon
	rm "$WORK/disk/fill"
	start_daemon
	[ "$(cat "$DATA/5.json")" = '"late"' ]
	stop_daemon
	store_is_clean "$STORE"
	umount "$WORK/disk"
	STORE=$WORK/store
}

@test "stat: data/ and feed/ count what they show, and changed when a collection went or came back" {
	local before
	mkdir "$MNT/data/empty"
	[ "$(stat -c %h "$MNT/data" "$MNT/feed" | xargs)" = "4 4" ]
	before=$(stat -c %Y "$MNT/data")
	rmdir "$MNT/data/empty"
	wait_until 5 links "3 3"
	[ "$(stat -c %Y "$MNT/data")" -ge "$before" ]
	rm "$DATA/alice.json"
	rmdir "$DATA"
	wait_until 5 links "2 3"
	mkdir "$DATA"
	wait_until 5 links "3 3"
	remount
	links "3 3"
}

links() {
	[ "$(stat -c %h "$MNT/data" "$MNT/feed" | xargs)" = "$1" ]
}

@test "a writer who flushes its scratch file just before it is renamed has all of it recorded" {
	python3 - "$DATA" <<-'END'
		import os, sys, threading
		d = sys.argv[1]
		for i in range(200):
		    f = os.open(d + '/.new', os.O_CREAT | os.O_WRONLY)
		    os.write(f, b'[1]')
		    t = threading.Thread(target=os.rename, args=(d + '/.new', d + '/alice.json'))
		    t.start()
		    os.write(f, b' ')
		    os.close(f)
		    t.join()
		    text = open(d + '/alice.json').read()
		    assert text == '[1] ', (i, text)
		    os.unlink(d + '/alice.json')
	END
}
