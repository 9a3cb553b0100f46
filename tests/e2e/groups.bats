#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# groups/: making and removing, what hands out events, what is acknowledged, and what a look at it changes.
# shellcheck disable=SC2016 # the programs of other shells
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	start_daemon
	G=$MNT/groups/g
}

# A test that fails may leave its readers open.
teardown() {
	exec 5<&- 6<&-
	changefs_teardown
}

# group CONFIG [NAME]
group() {
	mkdir "$MNT/groups/${2:-g}"
	[ -z "$1" ] || echo "$1" >"$MNT/groups/${2:-g}/config.json"
}

fill() {
	make_events 1 "$1" >"$MNT/in/events"
}

group_stats() {
	jq -r "$1" "$G/stats.json"
}

# The next event of descriptor 5 or 6, into $line.
get() {
	line=
	IFS= read -r -u "$1" line
}

delivery_of() {
	jq -r '"\(.sequence)#\(.delivery.id)"' <<<"$1"
}

# taken FD SEQUENCE/ATTEMPT: the next event is this one.
taken() {
	get "$1"
	[ "$(jq -r '"\(.sequence)/\(.delivery.attempt)"' <<<"$line")" = "$2" ] || { echo "expected $2: $line" >&2; return 1; }
}

# refuses ERRNO-TEXT FILE TEXT: the write fails, and nothing of the group has changed.
refuses() {
	local before after
	before=$(group_stats '[.offset, .pending.count, .acknowledged, .refused, .dead_lettered] | @csv')
	run bash -c '/usr/bin/printf "%s\n" "$1" >"$2"' - "$3" "$G/$2"
	after=$(group_stats '[.offset, .pending.count, .acknowledged, .refused, .dead_lettered] | @csv')
	echo "$3 > $2: $status, $output; $before, $after"
	[ "$status" -ne 0 ]
	[[ $output == *"$1"* ]]
	[ "$before" = "$after" ]
}

pending_is() {
	[ "$(find "$G/pending" -name '*.json' -printf '%f\n' | sed 's/^0*//; s/\.json$//' | sort -n | xargs)" = "$1" ]
}

offset_is() {
	[ "$(cat "$G/offset")" = "$1" ]
}

readers_are() {
	[ "$(group_stats '.readers | length')" -eq "$1" ]
}

letters_are() {
	[ "$(find "$MNT/dlq" -name '*.json' | wc -l)" -eq "$1" ]
}

# ---- the directory ----

@test "mkdir makes a group, ls shows its files, rmdir ends it" {
	group ''
	[ "$(names "$MNT/groups")" = g ]
	[ "$(names "$G")" = "ack config.json events lag nack offset pending stats.json" ]
	[ "$(readlink "$G/events")" = .events ]
	[ "$(cat "$G/offset" "$G/lag")" = "$(printf '0\n0')" ]
	[ "$(stat -c %s "$G/offset")" -eq 2 ]
	run mkdir "$G"
	[ "$status" -ne 0 ]
	[[ $output == *"File exists"* ]]
	remount
	[ "$(names "$MNT/groups")" = g ]
	rmdir "$G"
	[ "$(names "$MNT/groups")" = "" ]
	run cat "$G/offset"
	[[ $output == *"No such file"* ]]
	mkdir "$G" "$MNT/groups/50%25 off" "$MNT/groups/a b"
	[ "$(find "$MNT/groups" -mindepth 1 -maxdepth 1 | wc -l)" -eq 3 ]
	run mkdir "$MNT/groups/50%"
	[ "$status" -ne 0 ]
	refused EINVAL /groups/50%
	run touch "$MNT/groups/file"
	[[ $output == *"not permitted"* ]]
}

@test "rmdir of a group that has a reader is EBUSY" {
	group ''
	exec 5<"$G/events"
	run rmdir "$G"
	[ "$status" -ne 0 ]
	[[ $output == *busy* ]]
	refused EBUSY /groups/g
	exec 5<&-
	wait_until 10 readers_are 0
	rmdir "$G"
}

@test "stat: sizes are exact, inode numbers are those of readdir and stay" {
	fill 3
	group ''
	exec 5<"$G/events"
	taken 5 1/1
	find "$MNT/groups" -printf '%i %P\n' | sort >"$WORK/before"
	while read -r file; do
		python3 -c 'import os, sys; f = open(sys.argv[1]); sys.exit(os.fstat(f.fileno()).st_size != len(f.read()))' "$file"
	done < <(find "$MNT/groups" -type f)
	[ "$(sort -u -k 1,1 "$WORK/before" | wc -l)" -eq "$(wc -l <"$WORK/before")" ]
	find "$MNT/groups" -printf '%i %P\n' | sort | cmp - "$WORK/before"
	while read -r ino path; do
		[ "$(stat -c %i "$MNT/groups/$path")" = "$ino" ]
	done <"$WORK/before"
	exec 5<&-
}

@test "chown and chmod of a group: its files belong to its owner and are as open as it is" {
	fill 1
	group ''
	exec 5<"$G/events"
	taken 5 1/1
	[ "$(stat -c '%U %a' "$G/offset" "$G/lag" "$G/pending" | sort -u | xargs)" = "root 444 root 644 root 755" ]
	chown games:games "$G"
	chmod 700 "$G"
	[ "$(stat -c '%U %a' "$G/offset" "$G/lag" "$G/pending" "$G/pending/1.json" | xargs)" = "games 600 games 400 games 700 games 600" ]
	chmod 660 "$G/ack"
	[ "$(stat -c '%U %a' "$G/ack")" = "games 660" ]
	exec 5<&-
	wait_until 10 readers_are 0
	rmdir "$G"
	mkdir "$G"
	[ "$(stat -c '%U %a' "$G" "$G/ack" | xargs)" = "root 755 root 644" ]
}

# ---- delivering and acknowledging ----

@test "bash: while read takes events one by one, echo acknowledges, the offset follows" {
	fill 5
	group ''
	[ "$(cat "$G/lag")" -eq 5 ]
	exec 5<"$G/events"
	taken 5 1/1
	taken 5 2/1
	taken 5 3/1
	pending_is "1 2 3"
	echo 2 >"$G/ack"
	offset_is 0
	pending_is "1 3"
	echo 1 >"$G/ack"
	offset_is 2
	echo 1-3 >"$G/ack" # what is done already is skipped
	offset_is 3
	[ "$(cat "$G/lag")" -eq 2 ]
	pending_is ""
	[ "$(group_stats '[.offset, .last_sequence, .lag, .delivered, .acknowledged, .dead_lettered, .readers[0].pending] | @csv')" = 3,5,2,3,3,0,0 ]
	[ "$(group_stats '.readers[0].pid')" -eq "$BASHPID" ]
	exec 5<&-
	remount
	offset_is 3
}

@test "an event's line is the log's with the delivery at its end; ids are never used twice" {
	fill 2
	group '{"max_attempts":10}'
	for attempt in 1 2 3; do
		exec 5<"$G/events"
		get 5
		jq -e --argjson attempt "$attempt" '.delivery.group == "g" and .delivery.attempt == $attempt' <<<"$line"
		[ "$(jq -c 'del(.delivery)' <<<"$line")" = "$(head -n 1 "$MNT/feed/log.ndjson" | jq -c .)" ]
		[[ $line == "$(head -n 1 "$MNT/feed/log.ndjson" | head -c -2)"* ]]
		jq .delivery.id <<<"$line" >>"$WORK/ids"
		exec 5<&-
		wait_until 10 readers_are 0
	done
	[ "$(sort -u "$WORK/ids" | wc -l)" -eq 3 ]
}

@test "bash read takes 4096 bytes and seeks back: with batch 100 each event comes once; a line larger than that too" {
	fill 300
	put big:1 "\"$(head -c 20000 /dev/zero | tr '\0' b)\""
	fill 3
	group '{"batch":100}'
	while IFS= read -r event; do
		sequence=${event#*:}
		echo "${sequence%%,*} ${#event}" >>"$WORK/got"
		echo "${sequence%%,*}" >"$G/ack"
		[ "${sequence%%,*}" -lt 304 ] || break
	done <"$G/events"
	cut -d ' ' -f 1 "$WORK/got" | cmp - <(seq 304)
	[ "$(sed -n 's/^301 //p' "$WORK/got")" -gt 20000 ]
	offset_is 304
}

@test "python3 seeks back by a MiB: after each read of 5 MB it gets the same bytes again, and ESTALE for the first" {
	python3 - >"$MNT/in/events" <<-'END'
		for i in range(5000):
		    print('{"type":"PUT","key":"user:%d","value":"%s"}' % (i, "x" * 900))
	END
	group '{"batch":200,"max_in_flight":5000}'
	python3 - "$G/events" <<-'END'
		import errno, os, sys
		fd, got = os.open(sys.argv[1], os.O_RDONLY), b""
		while got.count(b"\n") < 5000:
		    got += os.pread(fd, 1 << 20, len(got))
		    start = max(0, len(got) - (1 << 20))
		    back = b""
		    while start + len(back) < len(got):
		        back += os.pread(fd, len(got) - start - len(back), start + len(back))
		    assert back == got[start:], (start, len(got))
		assert len(got) > 4500000
		try:
		    os.pread(fd, 1, 0)
		    sys.exit("the first byte was given again")
		except OSError as error:
		    assert error.errno == errno.ESTALE, error
	END
}

@test "a waiting reader gets what comes; two readers never get the same" {
	group ''
	start bash -c 'while IFS= read -r e; do echo "$e"; done <"$1" >"$2"' - "$G/events" "$WORK/a"
	start bash -c 'while IFS= read -r e; do echo "$e"; done <"$1" >"$2"' - "$G/events" "$WORK/b"
	wait_until 10 readers_wait 2
	fill 50
	both() { [ "$(cat "$WORK/a" "$WORK/b" | wc -l)" -eq "$1" ]; }
	wait_until 10 both 50
	make_events 51 100 >"$MNT/in/events"
	wait_until 10 both 100
	jq .sequence "$WORK/a" "$WORK/b" | sort -n | cmp - <(seq 100)
}

@test "head, cat, sed -u and python3 read a group; tail -f too" {
	fill 3
	group '{"max_attempts":100}'
	[ "$(within 10 head -n 1 "$G/events" | jq .sequence)" -eq 1 ]
	[ "$(within 10 sed -u 1q "$G/events" | jq .sequence)" -eq 1 ]
	[ "$(within 10 python3 -c 'import sys; print(next(open(sys.argv[1])))' "$G/events" | jq .sequence)" -eq 1 ]
	start cat "$G/events" >"$WORK/out"
	wait_until 10 at_least_lines "$WORK/out" 3
	kill "$CHILD"
	wait_until 10 readers_are 0
	pending_is "1 2 3"
	start tail -f "$G/events" >"$WORK/tailed"
	wait_until 20 at_least_lines "$WORK/tailed" 3
	put user:late 1
	wait_until 20 at_least_lines "$WORK/tailed" 4
	[ "$(jq .sequence "$WORK/tailed" | xargs)" = "1 2 3 4" ]
}

@test "O_NONBLOCK gives EAGAIN at the end, poll tells when there is more" {
	group ''
	run within 10 dd if="$G/events" iflag=nonblock bs=64k count=1
	[[ $output == *"temporarily unavailable"* ]]
	start python3 -c '
import os, select, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
poll = select.poll()
poll.register(fd, select.POLLIN)
print("empty" if not poll.poll(0) else "ready", flush=True)
poll.poll()
print(os.read(fd, 65536).decode(), end="", flush=True)' "$G/events" >"$WORK/out"
	wait_until 10 line_count "$WORK/out" 1
	fill 1
	wait_until 10 line_count "$WORK/out" 2
	[ "$(head -n 1 "$WORK/out")" = empty ]
	[ "$(tail -n 1 "$WORK/out" | jq .sequence)" -eq 1 ]
}

@test "ack takes words and lines, in pieces and in one large write; printf without a newline too" {
	fill 10000
	group '{"batch":10000,"max_in_flight":10000}'
	start cat "$G/events" >"$WORK/out"
	wait_until 20 at_least_lines "$WORK/out" 10000
	printf '1 2\n3-5\t6\n' >"$G/ack"
	offset_is 6
	printf 7 >"$G/ack"
	offset_is 7
	printf '8\n10\n9\n' | dd of="$G/ack" bs=3 conv=notrunc status=none # a number comes in two pieces
	offset_is 10
	jq -r '"\(.sequence)#\(.delivery.id)"' "$WORK/out" >"$WORK/acks"
	cat "$WORK/acks" >"$G/ack"
	offset_is 10000
	[ "$(cat "$G/lag")" -eq 0 ]
}

@test "a malformed token fails the whole write and changes nothing" {
	fill 10
	group '{"batch":10}'
	exec 5<"$G/events"
	taken 5 1/1
	for text in x 4x '1 x' $'1\n2\nx' 2-1 0 '1#' '1#x' '#1' -1 1,2 1.json 99999999999999999999; do
		refuses "Invalid argument" ack "$text"
		refused EINVAL /groups/g/ack
	done
	refuses "Invalid argument" ack 11 # not there yet
	for text in x '1 2' '1 delay' '1 delay=x' '1 delay=-1' '1 dlqx' $'1\n2 no' 1-2; do
		refuses "Invalid argument" nack "$text"
		refused EINVAL /groups/g/nack
	done
	for text in x '' '1 2' 11 +11 -- @yesterday @2026-02-30T00:00:00Z; do
		refuses "Invalid argument" offset "$text"
		refused EINVAL /groups/g/offset
	done
	exec 5<&-
}

@test "ack of an old delivery is ESTALE: after a nack, after its lease ended, and after the group was moved back" {
	fill 3
	group '{"max_attempts":100,"backoff_ms":[]}'
	exec 5<"$G/events" 6<"$G/events"
	taken 5 1/1
	stale() {
		refuses "Stale file handle" ack "$old"
		refused ESTALE /groups/g/ack
		refuses "Stale file handle" ack "2 $old" # all or none
		refuses "Stale file handle" nack "$old dlq too late"
	}
	get 5
	[ "$(jq .sequence <<<"$line")" -eq 2 ]
	echo 1 >"$G/nack"
	get 6
	old=$(delivery_of "$line")
	[ "${old%#*}" -eq 1 ]
	echo "$old" >"$G/nack"
	stale
	get 5
	[ "$(jq .sequence <<<"$line")" -eq 1 ]
	stale
	old=$(delivery_of "$line")

	lease_ended() { [ "$(jq .delivery.pid "$G/pending/1.json")" -eq 0 ]; }
	echo '{"ack_timeout_ms":50}' >"$G/config.json"
	touch "$G/pending/1.json"
	wait_until 10 lease_ended
	stale
	echo '{"ack_timeout_ms":60000}' >"$G/config.json"
	get 6
	[ "$(jq .sequence <<<"$line")" -eq 1 ]
	stale
	old=$(delivery_of "$line")

	echo latest >"$G/offset"
	echo earliest >"$G/offset"
	stale_alone() { refuses "Stale file handle" ack "$old" && refused ESTALE /groups/g/ack; }
	stale_alone
	get 5
	[ "$(jq .sequence <<<"$line")" -eq 1 ]
	stale_alone
	delivery_of "$line" >"$G/ack"
	offset_is 1
	exec 5<&- 6<&-
}

@test "nack delivers again, later with delay, and sets aside with dlq and its reason" {
	fill 3
	group '{"backoff_ms":[]}'
	exec 5<"$G/events"
	taken 5 1/1
	echo 1 >"$G/nack"
	taken 5 1/2
	began=$(now_ms)
	echo "$(delivery_of "$line") delay=300" >"$G/nack"
	taken 5 2/1
	echo 2 >"$G/ack"
	taken 5 3/1
	echo 3 >"$G/ack"
	[ "$(group_stats .delayed)" -eq 1 ]
	taken 5 1/3
	[ $(($(now_ms) - began)) -ge 290 ]
	echo "1 dlq no such customer" >"$G/nack"
	offset_is 3
	jq -e '.kind == "delivery" and .group == "g" and .failure_reason == "no such customer" and .attempt_count == 3 and .event.sequence == 1' "$MNT/dlq/1.json"
	[ "$(group_stats '[.refused, .dead_lettered, .acknowledged] | @csv')" = 3,1,2 ]
	exec 5<&-
}

@test "backoff_ms delays the second and the third attempt" {
	fill 1
	group '{"backoff_ms":[150,300]}'
	exec 5<"$G/events"
	taken 5 1/1
	began=$(now_ms)
	echo 1 >"$G/nack"
	taken 5 1/2
	[ $(($(now_ms) - began)) -ge 140 ]
	began=$(now_ms)
	echo 1 >"$G/nack"
	taken 5 1/3
	[ $(($(now_ms) - began)) -ge 290 ]
	exec 5<&-
}

@test "touch renews a lease and never makes one; rm acknowledges" {
	fill 3
	group '{"ack_timeout_ms":60000,"batch":3}'
	exec 5<"$G/events"
	taken 5 1/1
	due() { jq .delivery.due_ms "$G/pending/$1.json"; }
	before=$(due 1)
	jq -e '.sequence == 1 and .key == "user:1" and .delivery.attempt == 1 and .delivery.pid > 0' "$G/pending/1.json"
	renewed() { touch "$G/pending/0000000000000001.json" && [ "$(due 1)" -gt "$before" ]; }
	wait_until 10 renewed
	run touch "$G/pending/9.json"
	[[ $output == *"not permitted"* ]]
	refused EPERM /groups/g/pending/9.json
	run bash -c 'echo 1 >"$1"' - "$G/pending/1.json"
	[ "$status" -ne 0 ]
	pending_is "1 2 3"
	rm "$G/pending/2.json" "$G/pending/0000000000000001.json"
	offset_is 2
	run rm "$G/pending/2.json"
	[[ $output == *"No such file"* ]]
	rm "$G"/pending/*
	offset_is 3
	exec 5<&-
}

@test "a lease that is not renewed ends, and a waiting reader gets the event" {
	fill 1
	group '{"ack_timeout_ms":200}'
	exec 5<"$G/events"
	taken 5 1/1
	start bash -c 'head -n 1 "$1" >"$2"' - "$G/events" "$WORK/out"
	wait_until 10 line_count "$WORK/out" 1
	[ "$(jq .delivery.attempt "$WORK/out")" -ge 2 ]
	exec 5<&-
}

# ---- what dies ----

@test "kill -9 of a reader returns what it had at once; only the oldest has used an attempt" {
	fill 10
	group '{"batch":10}'
	start bash -c 'exec 3<"$1"; read -r e <&3; echo "$e"; exec tail -f /dev/null' - "$G/events" >"$WORK/out"
	wait_until 10 line_count "$WORK/out" 1
	[ "$(group_stats '.readers[0].pid')" -eq "$CHILD" ]
	pending_is "1 2 3 4 5 6 7 8 9 10"
	kill -KILL "$CHILD"
	exec 5<"$G/events"
	taken 5 1/2
	taken 5 2/1
	taken 5 3/1
	exec 5<&-
}

@test "cat events | head over and over dead-letters at most the event at the front" {
	fill 20
	group '{"batch":5}'
	mkfifo "$WORK/fifo"
	for _ in 1 2 3 4 5 6 7 8; do
		start bash -c 'exec cat "$1" >"$2"' - "$G/events" "$WORK/fifo"
		head -n 1 "$WORK/fifo" >>"$WORK/out"
		kill "$CHILD" || true # cat may wait at the end, and not see that head has gone
		wait_until 10 readers_are 0
	done
	[ "$(jq .sequence "$WORK/out" | xargs)" = "1 1 1 1 1 2 2 2" ]
	letters_are 1
	jq -e '.event.sequence == 1 and .attempt_count == 5' "$MNT/dlq/1.json"
	offset_is 1
}

@test "one killer event in a read of a hundred takes no innocent one along" {
	fill 100
	group '{"batch":100,"max_attempts":3}'
	worker() {
		local event sequence
		while read -r event; do
			sequence=${event#*:}
			sequence=${sequence%%,*}
			[ "$sequence" -ne 50 ] || return 1 # it dies of it
			echo "$sequence" >"$G/ack"
			echo "$sequence" >>"$WORK/done"
			[ "$sequence" -ne 100 ] || return 0
		done <"$G/events"
	}
	deaths=0
	until worker; do
		deaths=$((deaths + 1))
		[ "$deaths" -lt 10 ]
	done
	[ "$deaths" -eq 3 ]
	sort -n "$WORK/done" | cmp - <(seq 100 | grep -vx 50)
	letters_are 1
	jq -e '.event.sequence == 50 and .attempt_count == 3' "$MNT/dlq/1.json"
	wait_until 10 offset_is 100
}

@test "kill -9 of the daemon: offset, acknowledgements and attempts stay, what was out comes again" {
	fill 10
	group '{"batch":5}'
	exec 5<"$G/events"
	taken 5 1/1
	echo 1 3 >"$G/ack"
	echo "4 delay=60000" >"$G/nack"
	kill_daemon
	exec 5<&-
	start_daemon
	offset_is 1
	pending_is "2 4 5"
	[ "$(group_stats .delayed)" -ge 1 ]
	exec 5<"$G/events"
	taken 5 2/2
	delivery_of "$line" >"$G/ack"
	get 5
	[ "$(jq -r .sequence <<<"$line")" = 5 ]
	exec 5<&-
	jq -e '.batch == 5' "$G/config.json"
}

# ---- the offset ----

@test "a program that only writes offset; lag follows, and it stays" {
	fill 10
	group ''
	for n in 1 2 5 9; do
		echo "$n" >"$G/offset"
		offset_is "$n"
		[ "$(cat "$G/lag")" -eq $((10 - n)) ]
	done
	dd if=<(echo 10) of="$G/offset" conv=notrunc status=none
	offset_is 10
	[ "$(cat "$MNT"/ops/*.json | jq -r .type | grep -c offsets-set)" -eq 0 ]
	kill_daemon
	start_daemon
	offset_is 10
}

@test "offset moves: earliest, latest, +N, -N, a number below, @time; each is told in ops/" {
	fill 5
	wait_until 10 test "$(date +%s%3N)" -gt "$(stat -c %.3Y "$MNT/feed/log.ndjson" | tr -d .)"
	sleep 0.05
	between=$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)
	sleep 0.05
	make_events 6 10 >"$MNT/in/events"
	group ''
	moved() {
		echo "$1" >"$G/offset"
		offset_is "$2"
	}
	moved latest 10
	moved earliest 0
	moved +4 4
	moved -3 1
	moved "@$between" 5
	moved "@$(date -d "$between" +%Y-%m-%dT%H:%M:%S.%3N%:z)" 5
	moved @2001-01-01T00:00:00Z 0
	moved 8 8
	moved 3 3
	[ "$(cat "$MNT"/ops/*.json | jq -r 'select(.type == "offsets-set") | "\(.details.outcome) \(.details.new_offset) \(.details.direction)"' | tail -n 2 | xargs -d '\n')" = "applying 3 backward applied 3 backward" ]
	[ "$(cat "$MNT"/ops/*.json | jq -r 'select(.type == "offsets-set") | .details.group' | sort | uniq -c | xargs)" = "16 g" ]
	[[ "$(cat "$MNT"/ops/*.json | jq -r 'select(.type == "offsets-set") | .details.operator' | tail -n 1)" == *"uid $(id -u)"* ]]
	run bash -c 'echo 11 >"$1"' - "$G/offset"
	[ "$status" -ne 0 ]
	refused EINVAL /groups/g/offset
	offset_is 3
}

@test "a move forward ends the leases that it passes" {
	fill 10
	group '{"batch":10}'
	exec 5<"$G/events"
	taken 5 1/1
	echo 7 >"$G/offset"
	pending_is "8 9 10"
	echo latest >"$G/offset"
	pending_is ""
	exec 5<&-
}

# ---- the settings ----

@test "config.json shows its defaults and takes what it shows" {
	group ''
	[ "$(jq -c . "$G/config.json")" = '{"start":"earliest","collections":[],"key_prefix":"","types":[],"ack_timeout_ms":30000,"max_attempts":5,"backoff_ms":[1000,2000,5000,10000],"max_in_flight":1000,"batch":1,"order":"none","max_events_per_second":0}' ]
	jq '.batch = 7 | .types = ["PUT", "DELETE"] | .backoff_ms = [1, 2]' "$G/config.json" >"$WORK/config"
	cp "$WORK/config" "$G/config.json"
	cmp "$WORK/config" <(jq . "$G/config.json")
	printf '{\n  "order":\n  "key"\n}\n' >"$G/config.json"
	[ "$(jq -c '[.order, .batch]' "$G/config.json")" = '["key",7]' ]
	remount
	[ "$(jq -c '[.order, .batch, .types]' "$G/config.json")" = '["key",7,["PUT","DELETE"]]' ]
}

@test "a config with one wrong field changes nothing and says which field" {
	group '{"batch":3}'
	before=$(cat "$G/config.json")
	for text in '{"batch":5,"max_attempts":0}' '{"batch":5,"max_attempts":"3"}' '{"start":"now"}' '{"collections":"user"}' \
		'{"collections":[1]}' '{"key_prefix":1}' '{"types":["INSERT"]}' '{"types":"PUT"}' '{"ack_timeout_ms":0}' \
		'{"backoff_ms":5}' '{"backoff_ms":[-1]}' '{"max_in_flight":0}' '{"batch":0}' '{"batch":1.5}' '{"order":"any"}' \
		'{"max_events_per_second":-1}' '{"batch":5,"unheard_of":1}'; do
		run bash -c 'echo "$1" >"$2"' - "$text" "$G/config.json"
		echo "$text: $status, $output"
		[ "$status" -ne 0 ]
		[[ $output == *"Invalid argument"* ]]
		refused EINVAL /groups/g/config.json
		[[ "$(last_error | jq -r .reason)" == *"$(jq -r 'keys_unsorted | last' <<<"$text")"* ]]
		[ "$(cat "$G/config.json")" = "$before" ]
	done
}

@test "filters by collection, key prefix and type; what they leave out moves the offset" {
	put user:a 1 order:b 2 user:c 3
	send '{"type":"DELETE","key":"user:a"}'
	put other:d 5
	group '{"collections":["user"],"types":["DELETE"]}'
	exec 5<"$G/events"
	taken 5 4/1
	echo 4 >"$G/ack"
	wait_until 10 offset_is 5
	[ "$(cat "$G/lag")" -eq 0 ]
	exec 5<&-
	group '{"key_prefix":"order:"}' h
	exec 5<"$MNT/groups/h/events"
	taken 5 2/1
	exec 5<&-
	group '{"collections":["nothing"]}' none
	no_lag() { [ "$(cat "$MNT/groups/none/lag")" -eq 0 ]; }
	wait_until 10 no_lag
}

@test "start latest: a new group begins at the end" {
	fill 5
	group '{"start":"latest"}'
	exec 5<"$G/events"
	put user:new 1
	taken 5 6/1
	exec 5<&-
}

@test "order key: an event waits while an earlier one with its key is out" {
	put user:a 1 user:b 2 user:a 3 user:b 4 user:c 5
	group '{"order":"key"}'
	exec 5<"$G/events" 6<"$G/events"
	taken 5 1/1
	taken 6 2/1
	taken 5 5/1
	echo 2 >"$G/ack"
	taken 6 4/1
	echo 1 >"$G/ack"
	taken 6 3/1
	exec 5<&- 6<&-
}

@test "max_in_flight holds a reader back until it acknowledges; stats.json says so" {
	fill 10
	group '{"max_in_flight":2}'
	start cat "$G/events" >"$WORK/out"
	wait_until 10 line_count "$WORK/out" 2
	wait_until 10 readers_wait 1
	[ "$(group_stats .stalled)" = max_in_flight ]
	echo 1 >"$G/ack"
	wait_until 10 line_count "$WORK/out" 3
	[ "$(group_stats .pending.count)" -eq 2 ]
}

@test "max_events_per_second holds all readers back" {
	fill 40
	group '{"max_events_per_second":20}'
	began=$(now_ms)
	start cat "$G/events" >"$WORK/out"
	wait_until 20 line_count "$WORK/out" 40
	[ $(($(now_ms) - began)) -ge 900 ]
}

# ---- looking changes nothing ----

@test "cp -r, grep -r, tar, rsync, find and ls -lR of the mount change no group" {
	fill 20
	group '{"batch":2}'
	exec 5<"$G/events"
	taken 5 1/1
	state() { group_stats 'del(.lag_ms, .pending.oldest_ms)'; }
	state >"$WORK/before"
	pending_is "1 2"
	within 60 cp -r "$MNT" "$WORK/copy"
	within 60 grep -rc alice "$MNT" >/dev/null || [ $? -le 1 ]
	within 60 tar -cf "$WORK/t.tar" -C "$MNT" .
	within 60 rsync -a "$MNT/" "$WORK/rsync/"
	within 60 find "$MNT" -exec stat {} + >/dev/null
	within 60 ls -laR "$MNT" >/dev/null
	within 60 du -s "$MNT" >/dev/null
	within 10 stat "$G/events" "$G/.events" >/dev/null
	state | diff "$WORK/before" -
	[ "$(readlink "$WORK/copy/groups/g/events")" = .events ]
	cmp "$WORK/copy/groups/g/offset" <(echo 0)
	[ -f "$WORK/rsync/groups/g/pending/0000000000000001.json" ]
	exec 5<&-
}

@test "on a mount with -o ro a group is looked at and never read" {
	fill 3
	group ''
	stop_daemon
	start_daemon -o ro
	[ "$(cat "$G/lag")" -eq 3 ]
	run head -n 1 "$G/events"
	[[ $output == *"Read-only"* ]]
	run mkdir "$MNT/groups/h"
	[[ $output == *"Read-only"* ]]
}

@test "a trim that has overtaken the group: a GAP line first, then it goes on" {
	fill 10
	group ''
	exec 5<"$G/events"
	taken 5 1/1
	echo 6 >"$MNT/ctl/trim"
	read -r -u 5 line
	jq -e '.type == "GAP" and .from_sequence == 1 and .to_sequence == 5' <<<"$line"
	taken 5 6/1
	echo 6 >"$G/ack"
	offset_is 6
	exec 5<&-
}
