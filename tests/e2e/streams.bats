#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Endless files: feed/tail, of an empty, a short and a long log, with the tools people use.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	start_daemon
	OUT=$WORK/out
	: >"$OUT"
}

fill() {
	make_events 1 "$1" >"$MNT/in/events"
}

# OUT without the newline that an empty stream begins with.
shows_log() {
	cmp <(sed '/^$/d' "$OUT") "$MNT/feed/log.ndjson"
}

ends_with_the_log() {
	cmp <(tail -n "$1" "$OUT") <(tail -n "$1" "$MNT/feed/log.ndjson")
}

child_gone() {
	process_gone "$CHILD"
}

child_reads() {
	process_reads "$CHILD" "${1:-/feed/.tail}"
}

@test "tail is a link to an unlisted sibling, everywhere" {
	fill 2
	[ "$(readlink "$MNT/feed/tail")" = .tail ]
	[ "$(readlink "$MNT/feed/user/tail")" = .tail ]
	[ -f "$MNT/feed/.tail" ]
	[ -f "$MNT/feed/user/.tail" ]
	run ls -a "$MNT/feed" "$MNT/feed/user"
	[[ "$output" != *.tail* ]]
}

@test "tail -f on an empty log starts and shows each event as it comes" {
	start tail -f "$MNT/feed/tail" >"$OUT"
	wait_until 10 child_reads
	fill 1
	wait_until 10 shows_log
	put user:a '{"n":1}' user:b 2
	wait_until 10 shows_log
	[ "$(wc -l <"$MNT/feed/log.ndjson")" -eq 3 ]
	kill -INT "$CHILD"
	wait_until 5 child_gone
}

@test "tail -f on a short log shows it, and what comes after" {
	fill 3
	start tail -f "$MNT/feed/tail" >"$OUT"
	wait_until 10 shows_log
	put user:new 1
	wait_until 10 shows_log
}

@test "tail -F follows over many appends and says nothing of truncation" {
	fill 3
	start tail -F "$MNT/feed/tail" >"$OUT" 2>"$WORK/err"
	wait_until 10 shows_log
	for i in 1 2 3; do
		make_events $((i * 100)) $((i * 100 + 50)) >"$MNT/in/events"
		wait_until 10 ends_with_the_log 10
	done
	kill -INT "$CHILD"
	wait_until 5 child_gone
	[ ! -s "$WORK/err" ]
}

@test "tail -n 3 ends, on a short and on a long log" {
	fill 2
	within 10 tail -n 3 "$MNT/feed/tail" >"$OUT"
	cmp "$OUT" "$MNT/feed/log.ndjson"
	make_events 3 5000 >"$MNT/in/events"
	within 10 tail -n 3 "$MNT/feed/tail" >"$OUT"
	cmp "$OUT" <(tail -n 3 "$MNT/feed/log.ndjson")
	[ "$(wc -l <"$OUT")" -eq 3 ]
}

@test "tail -n 3 ends on an empty log" {
	within 10 tail -n 3 "$MNT/feed/tail" >"$OUT"
	[ -z "$(tr -d '\n' <"$OUT")" ]
}

@test "tail -n 1000 -f on a log of 5,000 shows the last thousand and goes on" {
	fill 5000
	start tail -n 1000 -f "$MNT/feed/tail" >"$OUT"
	wait_until 10 at_least_lines "$OUT" 1000
	cmp "$OUT" <(tail -n 1000 "$MNT/feed/log.ndjson")
	make_events 5001 5003 >"$MNT/in/events"
	wait_until 10 at_least_lines "$OUT" 1003
	cmp "$OUT" <(tail -n 1003 "$MNT/feed/log.ndjson")
}

@test "tail -n 1000 -f on an empty and on a short log" {
	start tail -n 1000 -f "$MNT/feed/tail" >"$OUT"
	wait_until 10 child_reads
	fill 5
	wait_until 10 shows_log
	kill -INT "$CHILD"
	wait_until 5 child_gone
	start tail -n 1000 -f "$MNT/feed/tail" >"$OUT"
	wait_until 10 shows_log
	put user:x 1
	wait_until 10 shows_log
}

@test "head takes the first lines and ends, of a short and a long log" {
	fill 3
	within 10 head -n 2 "$MNT/feed/tail" >"$OUT"
	cmp "$OUT" <(head -n 2 "$MNT/feed/log.ndjson")
	make_events 4 5000 >"$MNT/in/events"
	within 10 head -n 2000 "$MNT/feed/tail" >"$OUT"
	cmp "$OUT" <(head -n 2000 "$MNT/feed/log.ndjson")
	within 10 head -c 100000 "$MNT/feed/tail" >"$OUT"
	cmp "$OUT" <(head -c 100000 "$MNT/feed/log.ndjson")
}

@test "head on an empty log waits for its lines and ends by itself" {
	start head -n 3 "$MNT/feed/tail" >"$OUT"
	wait_until 10 readers_wait 1
	put user:a 1 user:b 2 user:c 3
	wait_until 10 child_gone
	cmp <(sed '/^$/d' "$OUT") <(head -n "$(grep -c . "$OUT")" "$MNT/feed/log.ndjson")
	[ "$(grep -c . "$OUT")" -ge 2 ]
}

@test "cat shows all there is, waits, shows what comes, and ends at ^C" {
	fill 2000
	start cat "$MNT/feed/tail" >"$OUT"
	wait_until 10 shows_log
	wait_until 10 readers_wait 1
	put user:x 1
	wait_until 10 shows_log
	kill -INT "$CHILD"
	wait_until 2 child_gone
}

@test "cat on an empty log" {
	start cat "$MNT/feed/tail" >"$OUT"
	wait_until 10 readers_wait 1
	put user:x 1
	wait_until 10 shows_log
}

@test "less +F in a terminal follows; ^C stops following and q leaves" {
	fill 10
	mkfifo "$WORK/keys"
	exec 9<>"$WORK/keys"
	start script -qfec "less +F $MNT/feed/tail" "$WORK/typescript" <"$WORK/keys" >"$WORK/screen"
	wait_until 10 file_contains "$WORK/screen" '"key":"user:10"'
	put user:fresh 1
	wait_until 10 file_contains "$WORK/screen" '"key":"user:fresh"'
	wait_until 15 leave_less
	exec 9>&-
}

# ^C and q. A ^C between two reads of less is lost, as is a q before the prompt: again, then.
leave_less() {
	printf '\003' >&9
	sleep 0.2
	printf 'q' >&9
	sleep 0.2
	child_gone
}

@test "less +F on an empty log shows the first event" {
	mkfifo "$WORK/keys"
	exec 9<>"$WORK/keys"
	start script -qfec "less +F $MNT/feed/tail" "$WORK/typescript" <"$WORK/keys" >"$WORK/screen"
	wait_until 10 readers_wait 1
	put user:fresh 1
	wait_until 10 file_contains "$WORK/screen" '"key":"user:fresh"'
	wait_until 15 leave_less
	exec 9>&-
}

@test "while read handles what is there and what comes" {
	put user:a 1 user:b 2
	cat >"$WORK/reader" <<-'END'
	while read -r line; do
		printf '%s\n' "$line"
		case $line in *'"key":"user:last"'*) break ;; esac
	done <"$1"
	END
	start bash "$WORK/reader" "$MNT/feed/tail" >"$OUT"
	wait_until 10 at_least_lines "$OUT" 2
	wait_until 10 readers_wait 1
	put user:c 3 user:last 4
	wait_until 10 child_gone
	shows_log
}

@test "while read on an empty and on a long log" {
	# shellcheck disable=SC2016
	start bash -c 'while read -r line; do printf "%s\n" "$line"; done <"$1"' - "$MNT/feed/tail" >"$OUT"
	wait_until 10 readers_wait 1
	fill 3000
	wait_until 30 shows_log
	kill -INT "$CHILD"
	wait_until 5 child_gone
}

@test "a collection's tail shows its own events only" {
	put user:a 1 order:1 2 user:b 3 order:2 4
	start cat "$MNT/feed/order/tail" >"$OUT"
	wait_until 10 line_count "$OUT" 2
	put user:c 5 order:3 6
	wait_until 10 line_count "$OUT" 3
	[ "$(jq -r .key "$OUT" | xargs)" = "order:1 order:2 order:3" ]
	cmp "$OUT" "$MNT/feed/order/log.ndjson"
}

@test ".tail@SEQ is the stream after that sequence, of the log and of a collection" {
	put user:a 1 order:1 2 user:b 3 order:2 4 user:c 5
	within 10 head -n 3 "$MNT/feed/.tail@2" >"$OUT"
	cmp "$OUT" <(tail -n 3 "$MNT/feed/log.ndjson")
	within 10 head -n 5 "$MNT/feed/.tail@0" >"$OUT"
	cmp "$OUT" "$MNT/feed/log.ndjson"
	within 10 head -n 1 "$MNT/feed/user/.tail@2" >"$OUT"
	[ "$(jq .sequence "$OUT")" -eq 3 ]
	within 10 head -n 1 "$MNT/feed/order/.tail@0000000000000002" >"$OUT"
	[ "$(jq .sequence "$OUT")" -eq 4 ]
	start tail -f "$MNT/feed/.tail@5" >"$OUT"
	wait_until 10 child_reads /feed/.tail@5
	put user:d 6
	wait_until 10 file_contains "$OUT" user:d
	[ "$(sed '/^$/d' "$OUT" | jq .sequence)" -eq 6 ]
}

@test ".tail@ with anything but a sequence is no file" {
	put user:a 1
	for name in .tail@ .tail@x .tail@-1 .tail@1x .tail@99999999999999999999 .tailx; do
		run cat "$MNT/feed/$name"
		[ "$status" -ne 0 ]
		[[ "$output" == *"No such file"* ]]
	done
}

@test "a reader that opens with O_NONBLOCK gets EAGAIN at the end" {
	fill 500
	run -1 within 10 dd if="$MNT/feed/tail" of="$OUT" iflag=nonblock bs=64k
	[[ "$output" == *"Resource temporarily unavailable"* ]]
	cmp "$OUT" "$MNT/feed/log.ndjson"
}

@test "O_NONBLOCK set later by fcntl, poll and epoll" {
	fill 3
	within 20 python3 - "$MNT" <<-'END'
	import fcntl, os, select, sys
	mnt = sys.argv[1]
	fd = os.open(mnt + "/feed/tail", os.O_RDONLY)
	want = open(mnt + "/feed/log.ndjson", "rb").read()
	poll = select.poll()
	poll.register(fd, select.POLLIN)
	assert poll.poll(5000), "there is something to read"
	got = b""
	fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
	while True:
	    try:
	        got += os.read(fd, 4096)
	    except BlockingIOError:
	        break
	assert got == want, (got, want)
	assert not poll.poll(100), "nothing to read at the end"
	epoll = select.epoll()
	epoll.register(fd, select.EPOLLIN)
	assert not epoll.poll(0.1)
	with open(mnt + "/in/events", "wb", buffering=0) as f:
	    f.write(b'{"type":"PUT","key":"user:x","value":1}\n')
	assert poll.poll(5000), "poll wakes"
	assert epoll.poll(5), "epoll wakes"
	assert b'"user:x"' in os.read(fd, 4096)
	END
}

@test "a poll that waits is woken by an append" {
	fill 1
	start python3 -c '
import os, select, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.read(fd, 65536)
poll = select.poll()
poll.register(fd, select.POLLIN)
print("waiting", flush=True)
print(poll.poll(), os.read(fd, 65536), flush=True)
' "$MNT/feed/tail" >"$OUT"
	wait_until 10 file_contains "$OUT" waiting
	put user:woken 1
	wait_until 10 file_contains "$OUT" user:woken
}

@test "INT, TERM, HUP and KILL each end a blocked reader at once" {
	fill 1
	for signal in INT TERM HUP KILL; do
		start cat "$MNT/feed/tail" >/dev/null
		wait_until 10 readers_wait 1
		begin=$(now_ms)
		kill -"$signal" "$CHILD"
		wait_until 2 child_gone
		echo "$signal: $(($(now_ms) - begin)) ms"
		wait_until 5 no_reader
	done
}

no_reader() {
	[ "$(stats .readers.waiting)" -eq 0 ] && [ "$(stats .readers.open)" -eq 0 ]
}

@test "200 blocked readers: stat stays quick, an append wakes all, ^C ends each" {
	fill 3
	mkdir "$WORK/outs"
	readers=()
	for i in $(seq 200); do
		start cat "$MNT/feed/tail" >"$WORK/outs/$i"
		readers+=("$CHILD")
	done
	wait_until 30 readers_wait 200

	begin=$(now_ms)
	for _ in $(seq 20); do
		within 30 stat "$MNT/feed/user/0000000000000001.json" "$MNT/feed/.tail" "$MNT/in/events" "$MNT/data/user/1.json" >/dev/null
	done
	took=$(($(now_ms) - begin))
	echo "# 200 readers wait: 20 times stat of 4 files took $took ms" >&3

	begin=$(now_ms)
	put user:for-all 1
	wait_until 10 all_outs_have 4
	echo "all awake after $(($(now_ms) - begin)) ms"
	for i in $(seq 200); do
		cmp "$WORK/outs/$i" "$MNT/feed/log.ndjson"
	done

	wait_until 10 readers_wait 200
	begin=$(now_ms)
	for reader in "${readers[@]}"; do
		kill -INT "$reader"
	done
	wait_until 5 all_gone "${readers[@]}"
	echo "all gone after $(($(now_ms) - begin)) ms"
	wait_until 5 no_reader
}

all_outs_have() {
	[ "$(cat "$WORK"/outs/* | wc -l)" -eq $((200 * $1)) ]
}

all_gone() {
	local pid
	for pid; do
		process_gone "$pid" || return 1
	done
}

@test "a reader at its own pace: pread at any offset gives the log's bytes" {
	fill 2000
	within 20 python3 - "$MNT" <<-'END'
	import os, random, sys
	mnt = sys.argv[1]
	log = open(mnt + "/feed/log.ndjson", "rb").read()
	seed = random.randrange(1 << 32)
	print("seed", seed)
	rnd = random.Random(seed)
	for name in ("/feed/.tail", "/feed/log.ndjson", "/feed/user/.tail", "/feed/user/log.ndjson"):
	    fd = os.open(mnt + name, os.O_RDONLY)
	    for _ in range(200):
	        at = rnd.randrange(len(log))
	        size = rnd.choice((1, 7, 100, 4096, 65536))
	        want = log[at:at + size]
	        got = b""
	        while len(got) < len(want):
	            piece = os.pread(fd, len(want) - len(got), at + len(got))
	            assert piece
	            got += piece
	        assert got == want, (name, at, size)
	    os.close(fd)
	END
}

@test "a blocked reader gets a line of one mebibyte whole" {
	start cat "$MNT/feed/tail" >"$OUT"
	wait_until 10 readers_wait 1
	{
		printf '{"type":"PUT","key":"user:big","value":{"s":"'
		head -c 1048576 /dev/zero | tr '\0' x
		printf '"}}\n'
	} >"$WORK/big"
	cat "$WORK/big" >"$MNT/in/events"
	wait_until 10 shows_log
	[ "$(sed '/^$/d' "$OUT" | jq -r '.value | length')" -eq $((1048576 + 8)) ]
}

@test "fifty readers that come and go while they wait leave nothing open" {
	for _ in $(seq 50); do
		timeout 0.05 cat "$MNT/feed/tail" 3>&- >/dev/null || true
	done
	wait_until 5 no_reader
	fill 1
	log_has 1
}

move_floor() {
	echo "$1" >"$MNT/ctl/trim"
}

@test "a log whose floor has moved: tail, head, cat, less +F, while read begin at the floor" {
	fill 5000
	tail -n +3001 "$MNT/feed/log.ndjson" >"$WORK/kept"
	move_floor 3001
	cmp "$MNT/feed/log.ndjson" "$WORK/kept"
	[ "$(stat -c %s "$MNT/feed/log.ndjson")" -eq "$(wc -c <"$WORK/kept")" ]
	cmp "$MNT/feed/user/log.ndjson" "$WORK/kept"

	within 10 tail -n 3 "$MNT/feed/tail" >"$OUT"
	cmp "$OUT" <(tail -n 3 "$WORK/kept")
	within 10 head -n 2 "$MNT/feed/tail" >"$OUT"
	cmp "$OUT" <(head -n 2 "$WORK/kept")

	start tail -f "$MNT/feed/tail" >"$OUT"
	wait_until 10 line_count "$OUT" 10
	cmp "$OUT" <(tail -n 10 "$WORK/kept")
	start tail -n 1000 -f "$MNT/feed/user/tail" >"$WORK/out2"
	wait_until 10 line_count "$WORK/out2" 1000
	start cat "$MNT/feed/tail" >"$WORK/out3"
	wait_until 10 cmp "$WORK/out3" "$WORK/kept"
	# shellcheck disable=SC2016
	start bash -c 'while read -r line; do printf "%s\n" "$line"; done <"$1"' - "$MNT/feed/tail" >"$WORK/out4"
	wait_until 30 cmp "$WORK/out4" "$WORK/kept"
	mkfifo "$WORK/keys"
	exec 9<>"$WORK/keys"
	start script -qfec "less +F $MNT/feed/tail" "$WORK/typescript" <"$WORK/keys" >"$WORK/screen"
	wait_until 10 file_contains "$WORK/screen" '"key":"user:5000"'

	put user:fresh 1
	wait_until 10 line_count "$OUT" 11
	wait_until 10 line_count "$WORK/out2" 1001
	wait_until 10 cmp "$WORK/out3" "$MNT/feed/log.ndjson"
	wait_until 10 cmp "$WORK/out4" "$MNT/feed/log.ndjson"
	wait_until 10 file_contains "$WORK/screen" '"key":"user:fresh"'
	wait_until 15 leave_less
	exec 9>&-
}

@test "what lies below the floor is gone: names, listings, bookmarks with a GAP line; documents stay" {
	put user:a 1 order:b 2 user:c 3 user:d 4 order:e 5
	move_floor 4
	for name in 1 2 3 user/1 user/3 order/2; do
		[ ! -e "$MNT/feed/$name.json" ]
	done
	[ "$(names "$MNT/feed/user")" = "0000000000000004.json log.ndjson tail" ]
	[ "$(names "$MNT/feed/order")" = "0000000000000005.json log.ndjson tail" ]
	[ "$(jq .sequence "$MNT/feed/log.ndjson" | xargs)" = "4 5" ]
	[ "$(stats .first_sequence)" -eq 4 ]
	within 10 head -n 3 "$MNT/feed/.tail@1" >"$OUT"
	[ "$(head -n 1 "$OUT")" = '{"type":"GAP","from_sequence":2,"to_sequence":3,"reason":"retention"}' ]
	cmp <(tail -n 2 "$OUT") "$MNT/feed/log.ndjson"
	within 10 head -n 2 "$MNT/feed/.tail@3" >"$OUT"
	cmp "$OUT" "$MNT/feed/log.ndjson"
	[ "$(cat "$MNT"/data/*/*.json | tr -d '\n')" = "25134" ]
	put user:f 6
	[ "$(jq .sequence "$MNT/feed/log.ndjson" | xargs)" = "4 5 6" ]
	move_floor 7
	[ "$(stat -c %s "$MNT/feed/log.ndjson")" -eq 0 ]
	start tail -f "$MNT/feed/tail" >"$OUT"
	wait_until 10 child_reads
	put user:g 7
	wait_until 10 shows_log
	[ "$(jq .sequence "$MNT/feed/log.ndjson")" -eq 7 ]
}
