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
