#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Writing into in/events, and what happens to that which cannot be accepted.
bats_require_minimum_version 1.5.0
load helpers

@test "100,000 events through one cat: all there, once, in order" {
	config '{"snapshots":"none"}'
	make_events 1 100000 >"$WORK/lines"
	begin=$(now_ms)
	cat "$WORK/lines" >"$MNT/in/events"
	echo "100,000 events took $(($(now_ms) - begin)) ms"
	cmp "$WORK/lines" <(unnumbered "$MNT/feed/log.ndjson")
	numbered_from 1 <"$MNT/feed/log.ndjson"
	[ "$(stats .last_sequence)" -eq 100000 ]
}

@test "100,000 events from eight writers at once: none lost, none interleaved, each writer's in order" {
	config '{"snapshots":"none"}'
	for w in 1 2 3 4 5 6 7 8; do
		make_events 1 12500 "w$w" >"$WORK/part$w"
	done
	for w in 1 2 3 4 5 6 7 8; do
		start cat "$WORK/part$w" >"$MNT/in/events"
	done
	for child in "${CHILDREN[@]}"; do
		wait "$child"
	done
	unnumbered "$MNT/feed/log.ndjson" >"$WORK/all"
	[ "$(wc -l <"$WORK/all")" -eq 100000 ]
	numbered_from 1 <"$MNT/feed/log.ndjson"
	for w in 1 2 3 4 5 6 7 8; do
		grep -F "\"key\":\"w$w:" "$WORK/all" | cmp - "$WORK/part$w"
		cmp <(unnumbered "$MNT/feed/w$w/log.ndjson") "$WORK/part$w"
	done
}

# Lines of exactly 64 bytes, for dd.
padded_lines() {
	seq "$1" | awk -v w="$2" '{ line = sprintf("{\"type\":\"PUT\",\"key\":\"w%s:%d\",\"value\":%d", w, $1, $1); printf "%-62s}\n", line }'
}

@test "16 writers that fsync each event share their syncs" {
	padded_lines 300 0 >"$WORK/part0"
	begin=$(now_ms)
	dd if="$WORK/part0" of="$MNT/in/events" bs=64 oflag=dsync,append conv=notrunc status=none
	one=$(($(now_ms) - begin + 1))
	for w in $(seq 16); do
		padded_lines 300 "$w" >"$WORK/part$w"
	done
	syncs=$(jq .syncs "$MNT/ctl/stats.json")
	begin=$(now_ms)
	for w in $(seq 16); do
		start dd if="$WORK/part$w" of="$MNT/in/events" bs=64 oflag=dsync,append conv=notrunc status=none
	done
	for child in "${CHILDREN[@]}"; do
		wait "$child"
	done
	sixteen=$(($(now_ms) - begin + 1))
	echo "# fsync each event: one writer $((300 * 1000 / one))/s, sixteen $((4800 * 1000 / sixteen))/s" >&3
	for w in $(seq 0 16); do
		[ "$(jq -r .value "$MNT/feed/w$w/log.ndjson" | cmp - <(seq 300) && echo same)" = same ]
	done
	syncs=$(($(jq .syncs "$MNT/ctl/stats.json") - syncs))
	echo "# 4800 events of sixteen writers took $syncs syncs" >&3
	[ "$syncs" -lt 4800 ] # more than one a sync, at least now and then
}

@test "fsync of in/events succeeds, before and after events, and by sync(1)" {
	sync "$MNT/in/events"
	put user:a 1
	sync "$MNT/in/events"
	dd if=<(send_line user:b) of="$MNT/in/events" conv=fsync,notrunc status=none
	log_has 2
}

send_line() {
	printf '{"type":"PUT","key":"%s","value":1}\n' "$1"
}

@test "every way of writing is an append: >, >>, tee, cp, dd with seek" {
	send_line user:1 >"$WORK/line"
	cat "$WORK/line" >"$MNT/in/events"
	cat "$WORK/line" >>"$MNT/in/events"
	tee "$MNT/in/events" <"$WORK/line" >/dev/null
	tee -a "$MNT/in/events" <"$WORK/line" >/dev/null
	cp "$WORK/line" "$MNT/in/events"
	dd if="$WORK/line" of="$MNT/in/events" bs=4k seek=7 status=none
	dd if="$WORK/line" of="$MNT/in/events" conv=notrunc status=none
	log_has 7
	touch "$MNT/in/events"
	truncate -s 0 "$MNT/in/events"
	log_has 7
}

@test "a line may come in many pieces, from several children on one handle" {
	{
		/usr/bin/printf '{"type":"PUT",'
		/usr/bin/printf '"key":"user:1",'
		log_has 0
		/usr/bin/printf '"value":1}'
		/usr/bin/printf '\n{"type":"PUT","key":"user:2","value":2}\n{"type"'
		log_has 2
		/usr/bin/printf ':"PUT","key":"user:3","value":3}\n'
		log_has 3
	} >"$MNT/in/events"
	log_has 3
	[ "$(jq -r .key "$MNT/feed/log.ndjson" | xargs)" = "user:1 user:2 user:3" ]
}

@test "unfinished lines of two handles do not mix" {
	exec 7>"$MNT/in/events" 8>"$MNT/in/events"
	printf '{"type":"PUT","key":"user:7",' >&7
	printf '{"type":"PUT","key":"user:8",' >&8
	printf '"value":7}\n' >&7
	printf '"value":8}\n' >&8
	exec 7>&- 8>&-
	[ "$(jq -r .key "$MNT/feed/log.ndjson" | xargs)" = "user:7 user:8" ]
}

@test "an unfinished line at the last close: committed if valid, else dropped and named" {
	printf '{"type":"PUT","key":"user:1","value":1}' >"$MNT/in/events"
	wait_until 5 log_has 1
	printf '{"type":"PUT","key":"user:2","va' >"$MNT/in/events"
	wait_until 5 refused EINVAL /in/events
	log_has 1
	put user:3 3
	log_has 2
}

@test "a write(2) of many lines is visible as a whole when it returns" {
	python3 - "$MNT" <<-'END'
	import os, sys
	mnt = sys.argv[1]
	fd = os.open(mnt + "/in/events", os.O_WRONLY)
	for n in (1, 10, 1000):
	    before = os.stat(mnt + "/feed/log.ndjson").st_size
	    data = b"".join(b'{"type":"PUT","key":"user:%d","value":1}\n' % i for i in range(n))
	    assert os.write(fd, data) == len(data)
	    with open(mnt + "/feed/log.ndjson", "rb") as f:
	        f.seek(before)
	        assert f.read().count(b"\n") == n
	END
}

@test "a line of three mebibytes, cut by the kernel, is one event" {
	{
		printf '{"type":"PUT","key":"user:big","value":"'
		head -c 3145728 /dev/zero | tr '\0' y
		printf '"}\n'
		send_line user:after
	} >"$WORK/lines"
	cat "$WORK/lines" >"$MNT/in/events"
	log_has 2
	[ "$(wc -c <"$MNT/data/user/big.json")" -eq 3145728 ]
}

@test "a bad line in the middle: what was before it is committed, the tool says so, ctl/errors names it" {
	{
		send_line user:1
		send_line user:2
		echo 'this is no JSON'
		send_line user:4
	} >"$WORK/lines"
	run bash -c 'cat "$1" >"$2"' - "$WORK/lines" "$MNT/in/events"
	[ "$status" -eq 1 ]
	[[ "$output" == *"Invalid argument"* ]]
	[ "$(jq -r .key "$MNT/feed/log.ndjson" | xargs)" = "user:1 user:2" ]
	refused EINVAL /in/events
	[ "$(last_error | jq .uid)" -eq "$(id -u)" ]
}

@test "the write that holds a bad line ends short, the next one fails with EINVAL, then all goes on" {
	python3 - "$MNT" <<-'END'
	import errno, os, sys
	fd = os.open(sys.argv[1] + "/in/events", os.O_WRONLY)
	good = b'{"type":"PUT","key":"user:1","value":1}\n'
	data = good * 3 + b"bad\n" + good
	assert os.write(fd, data) == 3 * len(good)
	for _ in range(2):
	    try:
	        os.write(fd, data[3 * len(good):])
	        raise SystemExit("was accepted")
	    except OSError as e:
	        assert e.errno == errno.EINVAL, e
	assert os.write(fd, good) == len(good)
	os.close(fd)
	END
	log_has 4
}

@test "echo of a bad line fails visibly" {
	for line in 'nonsense' '{}' '[]' '42' '"text"' '{"type":"PUT"}' '{"key":"user:1","value":1}' \
		'{"type":"PUT","key":"","value":1}' '{"type":"PUT","key":7,"value":1}' \
		'{"type":"put","key":"user:1","value":1}' '{"type":"GAP","key":"user:1"}' \
		'{"type":"COMMIT"}' '{"type":"COMMIT","key":"user:1"}' '{"type":"NOPE","key":"user:1","value":1}' \
		'{"type":"PUT","key":"user:1","value":1} trailing' '{"type":"PUT","key":"user:1","value":01}' \
		'{"type":"PUT","key":"user:1","value":1,}' '{"type":"PUT","key":"user:1","value":{"a":}}' \
		'{"type":"PUT","key":"user:1","value":1,"timestamp_ms":"soon"}' \
		'{"type":"PUT","key":"user:1","value":1,"timestamp_ms":1.5}' \
		'{"type":"PUT","key":"user:1","value":1,"metadata":[]}' \
		'{"type":"PUT","key":"user:1","value":1'; do
		run bash -c 'echo "$1" >"$2"' - "$line" "$MNT/in/events"
		echo "line: $line, status $status, $output"
		[ "$status" -ne 0 ]
		[[ "$output" == *"Invalid argument"* ]]
		refused EINVAL /in/events
	done
	log_has 0
}

@test "keys: 4,096 bytes are accepted, 4,097 are EFBIG" {
	key=user:$(head -c 4091 /dev/zero | tr '\0' k)
	put "$key" 1
	run bash -c 'printf "{\"type\":\"PUT\",\"key\":\"%s\",\"value\":1}\n" "$1" >"$2"' - "${key}k" "$MNT/in/events"
	[ "$status" -ne 0 ]
	[[ "$output" == *"File too large"* ]]
	refused EFBIG /in/events
	log_has 1
	[ "$(jq -r .key "$MNT/feed/log.ndjson")" = "$key" ]
}

@test "documents: at the limit accepted, one byte over it EFBIG, and the lines before it stay" {
	config '{"max_document_bytes":65536}'
	{
		send_line user:before
		printf '{"type":"PUT","key":"user:at","value":"%s"}\n' "$(head -c 65536 /dev/zero | tr '\0' d)"
		printf '{"type":"PUT","key":"user:over","value":"%s"}\n' "$(head -c 65537 /dev/zero | tr '\0' d)"
		send_line user:after
	} >"$WORK/lines"
	run bash -c 'cat "$1" >"$2"' - "$WORK/lines" "$MNT/in/events"
	[ "$status" -ne 0 ]
	[[ "$output" == *"File too large"* ]]
	refused EFBIG /in/events
	[ "$(jq -r .key "$MNT/feed/log.ndjson" | xargs)" = "user:before user:at" ]
	[ "$(wc -c <"$MNT/data/user/at.json")" -eq 65536 ]
}

@test "the default limit of a document is 8 MiB" {
	{
		printf '{"type":"PUT","key":"user:at","value":"'
		head -c 8388608 /dev/zero | tr '\0' d
		printf '"}\n'
	} >"$WORK/at"
	cat "$WORK/at" >"$MNT/in/events"
	[ "$(stat -c %s "$MNT/data/user/at.json")" -eq 8388608 ]
	sed 's/user:at/user:over/; s/ddd/dddd/' "$WORK/at" >"$WORK/over"
	run bash -c 'cat "$1" >"$2"' - "$WORK/over" "$MNT/in/events"
	[ "$status" -ne 0 ]
	[[ "$output" == *"File too large"* ]]
	refused EFBIG /in/events
	log_has 1
}

@test "a line that never ends is EFBIG, and nothing of it stays" {
	config '{"max_document_bytes":65536}'
	run bash -c 'head -c 20000000 /dev/zero | tr "\0" a >"$1"' - "$MNT/in/events"
	[[ "$output" == *"File too large"* ]]
	refused EFBIG /in/events
	put user:1 1
	log_has 1
}

@test "event files are history: write, truncate, remove, rename, chmod and create are refused" {
	put user:1 1
	file=$MNT/feed/user/0000000000000001.json
	before=$(cat "$file")
	# shellcheck disable=SC2016
	for command in 'echo x >"$1"' 'echo x >>"$1"' 'truncate -s 0 "$1"' 'rm -f "$1"' 'mv "$1" "$1.old"' \
		'chmod 600 "$1"' 'ln "$1" "$1.link"' 'sed -i s/a/b/ "$1"' 'echo x >"${1%/*}/new.json"' \
		'mkdir "${1%/*}/new"' 'rmdir "${1%/*}"' 'echo x >"${1%/*}/log.ndjson"' 'rm -f "${1%/*}/tail"' \
		'ln -s a "${1%/*}/link"' 'mkdir "${1%/*}/../new"' 'echo x >"${1%/*}/.tail"'; do
		run within 5 bash -c "$command" - "$file"
		echo "$command: $status, $output"
		[ "$status" -ne 0 ]
		[ "$status" -lt 124 ]
		[[ "$output" == *"not permitted"* || "$output" == *"Read-only"* || "$output" == *"denied"* ]]
	done
	[ "$(cat "$file")" = "$before" ]
}

@test "writing to an event file is in ctl/errors" {
	put user:1 1
	run bash -c 'echo x >"$1"' - "$MNT/feed/user/0000000000000001.json"
	[ "$status" -ne 0 ]
	[[ "$output" == *"Operation not permitted"* ]]
	refused EPERM /feed/user/0000000000000001.json
}

@test "what cannot be made is refused with a reason: new files and directories anywhere" {
	for path in new in/new feed/new ctl/new; do
		run bash -c 'echo x >"$1"' - "$MNT/$path"
		[ "$status" -ne 0 ]
		[[ "$output" == *"not permitted"* || "$output" == *"Read-only"* || "$output" == *"denied"* ]]
		run mkdir "$MNT/$path"
		[ "$status" -ne 0 ]
		[[ "$output" == *"not permitted"* || "$output" == *"Read-only"* || "$output" == *"denied"* ]]
	done
}

@test "a killed writer leaves whole events only" {
	make_events 1 200000 >"$WORK/lines"
	start cat "$WORK/lines" >"$MNT/in/events"
	wait_until 10 at_least_lines "$MNT/feed/log.ndjson" 1000
	kill -KILL "${CHILDREN[0]}"
	wait "${CHILDREN[0]}" || true
	wait_until 5 no_torn_line
	jq -r .key "$MNT/feed/log.ndjson" >"$WORK/keys"
	seq -f 'user:%.0f' 1 "$(wc -l <"$WORK/keys")" | cmp - "$WORK/keys"
}

no_torn_line() {
	[ "$(tail -c 1 "$MNT/feed/log.ndjson" | od -An -c | tr -d ' ')" = '\n' ]
}

@test "ctl/errors keeps the last 256, each one JSON object a line, newest last" {
	for i in $(seq 300); do
		printf 'bad %d\n' "$i"
	done >"$WORK/bad"
	while read -r line; do
		echo "$line" 2>/dev/null >"$MNT/in/events" || true
	done <"$WORK/bad"
	[ "$(wc -l <"$MNT/ctl/errors")" -eq 256 ]
	[ "$(jq -r .errno "$MNT/ctl/errors" | sort -u)" = EINVAL ]
}

@test "a bad line that the kernel cuts into pieces fails the tool, and its tail is no event" {
	python3 - "$WORK" <<'END'
import sys
head = b'{"type":"PUT","key":"big:1","value":"'
after = b'{"type":"PUT","key":"big:2","value":1}\n'
def line(size, end):
    return head + b"x" * (size - len(head) - len(end)) + end
open(sys.argv[1] + "/large", "wb").write(line(9 << 20, b'"}') + b"\n" + after)
open(sys.argv[1] + "/wrong", "wb").write(line(1 << 20, b'"!') + b"\n" + after)
open(sys.argv[1] + "/torn", "wb").write(b"x" * (1 << 20) + after)
END
	for file in large wrong torn; do
		run dd if="$WORK/$file" of="$MNT/in/events" bs=16M status=none
		[ "$status" -ne 0 ]
		case $file in
		wrong) refused EINVAL /in/events ;;
		large) refused EFBIG /in/events ;;
		torn) refused EINVAL /in/events ;;
		esac
		log_has 0
	done
	run -0 dd if=<(printf '{"type":"PUT","key":"user:1","value":1}\n') of="$MNT/in/events" bs=16M status=none
	log_has 1
}
