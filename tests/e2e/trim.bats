#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ctl/trim: what leaves the log, and what those notice who read it at that moment.
bats_require_minimum_version 1.5.0
load helpers

# fill FROM TO
fill() {
	make_events "$1" "$2" >"$MNT/in/events"
}

trim() {
	echo "$1" >"$MNT/ctl/trim"
}

sequences() {
	jq -R 'fromjson? | .sequence // .type' "$1" | xargs
}

@test "trim takes a sequence and removes what is strictly below it; an ops event tells it" {
	put user:a 1 order:b 2 user:c 3 order:d 4
	bytes=$(head -n 2 "$MNT/feed/log.ndjson" | wc -c)
	trim 3
	[ "$(sequences "$MNT/feed/log.ndjson")" = "3 4" ]
	[ "$(names "$MNT/feed/user")" = "0000000000000003.json log.ndjson tail" ]
	[ "$(stats .first_sequence)" -eq 3 ]
	[ "$(cat "$MNT"/data/*/*.json | tr -d '\n')" = "2413" ]
	tail -n 1 "$(find "$MNT/ops" -name '*.json' | sort | tail -n 1)" |
		jq -e --arg bytes "$bytes" '.type == "retention-trimmed" and .details == {"from_sequence":"1",
			"to_sequence":"2","events":"2","bytes":$bytes,"rule":"trim"}'
	remount
	[ "$(sequences "$MNT/feed/log.ndjson")" = "3 4" ]
}

@test "trim to the end leaves an empty log, and a lower one changes nothing" {
	put user:a 1 user:b 2
	trim 3
	[ "$(stat -c %s "$MNT/feed/log.ndjson")" -eq 0 ]
	count=$(find "$MNT/ops" -name '*.json' | wc -l)
	trim 1
	trim 3
	[ "$(find "$MNT/ops" -name '*.json' | wc -l)" -eq "$count" ]
	put user:c 3
	[ "$(sequences "$MNT/feed/log.ndjson")" = 3 ]
}

@test "trim refuses what is no sequence, and what is beyond the end; reading it gives nothing" {
	put user:a 1 user:b 2
	for value in 0 -1 +1 x '2 x' 1.0 1e0 '' 9007199254740992 11111111111111111111111111111111111111111 '"2"' '2\0x'; do
		run bash -c 'printf "%b\n" "$1" >"$2"' - "$value" "$MNT/ctl/trim"
		[[ "$output" == *"Invalid argument"* ]]
		refused EINVAL /ctl/trim
	done
	run bash -c 'echo 4 >"$1"' - "$MNT/ctl/trim"
	[[ "$output" == *"Invalid argument"* ]]
	last_error | jq -e '.reason | contains("beyond the end")'
	[ "$(sequences "$MNT/feed/log.ndjson")" = "1 2" ]
	[ "$(within 5 cat "$MNT/ctl/trim" | wc -c)" -eq 0 ]
	[ "$(stat -c %s "$MNT/ctl/trim")" -eq 0 ]
	printf 2 >"$MNT/ctl/trim" # a newline is not needed
	[ "$(sequences "$MNT/feed/log.ndjson")" = 2 ]
}

@test "tail -F and tail -f across a trim go on and say nothing" {
	fill 1 100
	start tail -n 3 -s 0.1 -F "$MNT/feed/tail" >"$WORK/F" 2>"$WORK/F.err"
	start tail -n 3 -s 0.1 -f "$MNT/feed/log.ndjson" >"$WORK/f" 2>"$WORK/f.err"
	wait_until 10 line_count "$WORK/F" 3
	wait_until 10 line_count "$WORK/f" 3
	trim 50
	fill 101 110
	wait_until 10 line_count "$WORK/F" 13
	wait_until 10 line_count "$WORK/f" 13
	trim 105
	fill 111 120
	wait_until 15 line_count "$WORK/F" 23
	wait_until 15 line_count "$WORK/f" 23
	diff <(seq 98 120) <(jq .sequence "$WORK/F")
	diff <(seq 98 120) <(jq .sequence "$WORK/f")
	[ ! -s "$WORK/F.err" ]
	[ ! -s "$WORK/f.err" ]
}

@test "a reader of .tail that is overtaken gets the GAP line and goes on; one that waits gets what comes" {
	fill 1 300
	exec 7<"$MNT/feed/.tail"
	read -r line <&7
	[ "$(jq .sequence <<<"$line")" -eq 1 ]
	start cat "$MNT/feed/user/tail" >"$WORK/waiting"
	wait_until 10 line_count "$WORK/waiting" 300
	trim 299
	within 10 head -n 3 <&7 >"$WORK/rest"
	exec 7<&-
	[ "$(head -n 1 "$WORK/rest")" = '{"type":"GAP","from_sequence":2,"to_sequence":298,"reason":"retention"}' ]
	[ "$(sequences "$WORK/rest")" = "GAP 299 300" ]
	fill 301 301
	wait_until 10 line_count "$WORK/waiting" 301
	diff <(seq 301) <(jq .sequence "$WORK/waiting")
}

@test "an old handle of log.ndjson: ESTALE below the floor, and the old bytes above it" {
	fill 1 10
	exec 7<"$MNT/feed/log.ndjson"
	below=$(head -n 5 "$MNT/feed/log.ndjson" | wc -c)
	tail -n +6 "$MNT/feed/log.ndjson" >"$WORK/kept"
	trim 6
	run bash -c 'cat <&7'
	[[ "$output" == *"Stale file handle"* ]]
	dd bs=4096 iflag=skip_bytes skip="$below" status=none <&7 | cmp - "$WORK/kept"
	exec 7<&-
	cmp "$MNT/feed/log.ndjson" "$WORK/kept"
}

@test "a trimmed event's file is gone, and a handle that was open can be read" {
	put user:a 1 user:b 2
	line=$(head -n 1 "$MNT/feed/log.ndjson")
	exec 7<"$MNT/feed/user/0000000000000001.json"
	cat "$MNT/feed/user/0000000000000001.json" >/dev/null
	trim 2
	gone() {
		[[ "$(cat "$MNT/feed/user/0000000000000001.json" 2>&1)" == *"No such file"* ]]
	}
	wait_until 5 gone
	[ "$(cat <&7)" = "$line" ]
	exec 7<&-
}

@test "readdir and seekdir while a trim goes on: no name twice, none missed that stays" {
	fill 1 3000
	python3 - "$MNT" <<-'END'
		import ctypes, sys
		mnt = sys.argv[1]
		libc = ctypes.CDLL(None)
		class dirent(ctypes.Structure):
		    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("len", ctypes.c_uint16),
		                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]
		libc.opendir.restype = ctypes.c_void_p
		libc.readdir.restype = ctypes.POINTER(dirent)
		libc.telldir.restype = ctypes.c_long
		libc.readdir.argtypes = libc.telldir.argtypes = libc.closedir.argtypes = [ctypes.c_void_p]
		libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
		d = libc.opendir((mnt + "/feed/user").encode())
		names, places = [], []
		def read():
		    entry = libc.readdir(d)
		    return entry.contents.name.decode() if entry else None
		while len(names) < 1000:
		    names.append(read())
		    places.append(libc.telldir(d))
		def trim(sequence):
		    with open(mnt + "/ctl/trim", "w") as f:
		        f.write("%d\n" % sequence)
		trim(501)
		while name := read():
		    names.append(name)
		events = [n for n in names if n.endswith(".json")]
		assert len(set(names)) == len(names)
		assert events == ["%016d.json" % i for i in range(1, 3001)], (len(events), events[:3])
		trim(2001)
		libc.seekdir(d, places[700])
		again = []
		while name := read():
		    again.append(name)
		again = [n for n in again if n.endswith(".json")]
		assert again[-1000:] == ["%016d.json" % i for i in range(2001, 3001)], again[:3]
		assert len(set(again)) == len(again)
		libc.closedir(d)
	END
	[ "$(find "$MNT/feed/user" -name '*.json' | wc -l)" -eq 1000 ]
}

@test "trim while a writer writes and a reader reads: the reader has every event, or a GAP that names it" {
	start tail -n +1 -f "$MNT/feed/.tail" >/dev/null
	for i in $(seq 1 20); do make_events "$i" "$i"; done >"$MNT/in/events"
	start cat "$MNT/feed/tail" >"$WORK/read"
	for i in $(seq 1 40); do
		fill 1 50
		trim $((i * 50))
	done
	last=$(stats .last_sequence)
	told() {
		[ "$(tail -n 1 "$WORK/read" | jq '.sequence // .to_sequence')" -eq "$last" ]
	}
	wait_until 20 told
	jq -s 'reduce .[] as $e (1; if $e.type == "GAP" then
			if $e.from_sequence == . then $e.to_sequence + 1 else error("a GAP of what was read") end
		elif $e.sequence == . then . + 1 else error("sequence \($e.sequence) instead of \(.)") end)' "$WORK/read"
}
