#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Groups and dlq/: what clumsy and hostile programs write.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	start_daemon
	G=$MNT/groups/g
	mkdir "$G"
	make_events 1 10 >"$MNT/in/events"
}

teardown() {
	exec 5<&-
	changefs_teardown
}

# take COUNT: with descriptor 5.
take() {
	local i
	exec 5<"$G/events"
	for ((i = 0; i < $1; i++)); do
		IFS= read -r -u 5
	done
}

group_stats() {
	jq -r "$1" "$G/stats.json"
}

# refuses FILE TEXT: as one write, without a newline behind it.
refuses() {
	run python3 -c 'import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY), sys.argv[2].encode())' "$MNT/$1" "$2"
	[ "$status" -ne 0 ]
	[[ $output == *"Invalid argument"* ]]
	refused EINVAL "/$1"
}

@test "python3: a last line that is wrong and has no newline takes nothing before it along" {
	take 4
	echo '1 dlq first' >"$G/nack"
	refuses groups/g/ack $'2\n3\nx'
	refuses groups/g/nack $'2 dlq a\n3 dlq b\nx'
	refuses dlq/drain $'1\nx'
	refuses dlq/redeliver $'1\nx'
	[ "$(group_stats '[.offset, .pending.count, .acknowledged, .dead_lettered] | @csv')" = 1,3,0,1 ]
	[ -e "$MNT/dlq/1.json" ]
	printf '2\n3' | dd of="$G/ack" bs=1 conv=notrunc status=none
	[ "$(cat "$G/offset")" -eq 3 ]
}

@test "nack: a reason that is not UTF-8 makes no dead letter that is not JSON" {
	take 3
	printf '1 dlq caf\xe9 \xc3\xa9\xc3\n2 dlq a\0b\n' >"$G/nack"
	[ "$(jq -r .failure_reason "$MNT/dlq/log.ndjson")" = $'caf? é?\na?b' ]
	iconv -f UTF-8 -t UTF-8 "$MNT/dlq/log.ndjson" | cmp - "$MNT/dlq/log.ndjson"
	printf '3 delay=600000\n3 dlq \xff\n' >"$G/nack"
	exec 5<&-
	remount
	[ "$(jq -r .failure_reason "$MNT/dlq/3.json")" = '?' ]
}

@test "ack: two hundred ranges that overlap cost no more than one" {
	make_events 11 20000 >"$MNT/in/events"
	echo '{"batch":10000,"max_in_flight":20000}' >"$G/config.json"
	start cat "$G/events" >"$WORK/out"
	wait_until 60 at_least_lines "$WORK/out" 20000
	store_bytes() { du -sb "$STORE" | cut -f 1; }
	before=$(store_bytes)
	yes 2-20000 | head -n 200 >"$WORK/acks"
	cat "$WORK/acks" >"$G/ack"
	[ $(($(store_bytes) - before)) -lt 50000000 ]
	[ "$(group_stats .acknowledged)" -eq 19999 ]
	echo '1 1-3 2-5 7' >"$G/ack"
	[ "$(cat "$G/offset")" -eq 20000 ]
}

@test "stats.json: stalled ends with what it tells of" {
	echo '{"max_in_flight":1,"order":"key"}' >"$G/config.json"
	stalled_is() { [ "$(group_stats .stalled)" = "$1" ]; }
	start cat "$G/events" >"$WORK/out"
	wait_until 10 stalled_is max_in_flight
	kill -KILL "$CHILD"
	wait_until 10 stalled_is null
	take 1
	python3 -c 'import os, sys; os.set_blocking(5, False); os.read(5, 4096)' 2>/dev/null || true
	stalled_is max_in_flight
	echo 1 >"$G/ack"
	stalled_is null
}
