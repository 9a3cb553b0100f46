#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# dlq/ and ops/: input that could not become an event, and what the system itself did.
# shellcheck disable=SC2016 # the programs of other shells
bats_require_minimum_version 1.5.0
load helpers

letters() {
	find "$MNT/dlq" -name '*.json' | wc -l
}

letters_are() {
	[ "$(letters)" -eq "$1" ]
}

@test "by default a bad line fails the write and leaves no dead letter" {
	run bash -c 'echo nonsense >"$1"' - "$MNT/in/events"
	[ "$status" -ne 0 ]
	letters_are 0
}

@test "on_decode_error = dlq: a bad line is kept whole with its reason, and all around it goes on" {
	config '{"on_decode_error":"dlq"}'
	printf '{"type":"PUT","key":"user:1","value":1}\nbad \xff line\n{"type":"PUT","key":"user:2","value":2}\n{"type":"PUT"}\n' >"$WORK/lines"
	cat "$WORK/lines" >"$MNT/in/events"
	[ "$(jq -r .key "$MNT/feed/log.ndjson" | xargs)" = "user:1 user:2" ]
	letters_are 2
	jq -e '.dlq_sequence == 1 and .kind == "decode-error" and .source == "events" and .attempt_count == 1
		and (.failure_reason | length > 0) and .enqueued_at_ms > 0' "$MNT/dlq/1.json"
	[ "$(jq -r .raw "$MNT/dlq/1.json")" = "$(printf 'bad \xff line' | base64)" ]
	[ "$(jq -r .raw "$MNT/dlq/0000000000000002.json")" = '{"type":"PUT"}' ]
	[ "$(cat "$MNT"/ops/*.json | jq -r .type | grep -c decode-error-dlq)" -eq 2 ]
	for file in "$MNT"/dlq/*.json "$MNT"/ops/*.json; do
		[ "$(stat -c %s "$file")" -eq "$(wc -c <"$file")" ]
	done
	cat "$MNT"/dlq/*.json >"$WORK/before"
	kill_daemon
	start_daemon
	cat "$MNT"/dlq/*.json | cmp - "$WORK/before"
	remount
	cat "$MNT"/dlq/*.json | cmp - "$WORK/before"
	echo 'a third one' >"$MNT/in/events"
	[ "$(jq .dlq_sequence "$MNT/dlq/3.json")" -eq 3 ]
	log_has 2
}

@test "an unfinished line becomes a dead letter too; a line over its own limit is refused all the same" {
	config '{"on_decode_error":"dlq","max_document_bytes":1000}'
	printf '{"type":"PUT","key":"user:unfinished","va' >"$WORK/line"
	cat "$WORK/line" >"$MNT/in/events"
	wait_until 5 letters_are 1
	jq -j .raw "$MNT/dlq/1.json" | cmp - "$WORK/line"
	printf '{"type":"PUT","key":"user:over","value":"%s"}\n' "$(head -c 70000 /dev/zero | tr '\0' d)" >"$WORK/line"
	run bash -c 'cat "$1" >"$2"' - "$WORK/line" "$MNT/in/events"
	[ "$status" -ne 0 ]
	refused EFBIG /in/events
	letters_are 1
	log_has 0
}

@test "ops/ tells of starts, and how the last run ended" {
	types() {
		cat "$MNT"/ops/*.json | jq -r '[.type, .details.last_end // "-"] | join(":")' | grep startup | xargs
	}
	[ "$(types)" = "startup:new" ]
	remount
	[ "$(types)" = "startup:new startup:clean" ]
	kill_daemon
	start_daemon
	[ "$(types)" = "startup:new startup:clean startup:crash" ]
	cat "$MNT"/ops/*.json | jq -es 'all(.v == 1 and (.type | type) == "string" and .ts_ms > 0 and has("server") and has("resume_seq") and has("details"))'
	[ ! -e "$MNT/ops/99.json" ]
	[ ! -e "$MNT/dlq/1.json" ]
}

@test "a key or a document over its limit is a dead letter too, and what follows is taken" {
	config '{"on_decode_error":"dlq","max_document_bytes":100}'
	key=$(printf 'k%.0s' $(seq 4097))
	value=$(printf 'v%.0s' $(seq 101))
	printf '{"type":"PUT","key":"%s","value":1}\n{"type":"PUT","key":"user:1","value":"%s"}\n{"type":"PUT","key":"user:2","value":2}\n' \
		"$key" "$value" >"$MNT/in/events"
	letters_are 2
	jq -e '.failure_reason | contains("4097")' "$MNT/dlq/1.json"
	jq -e '.failure_reason | contains("101")' "$MNT/dlq/2.json"
	[ "$(jq -r .key "$MNT/feed/log.ndjson")" = user:2 ]
}

# ---- what a group could not handle ----

# A group whose first COUNT events are dead letters 1, 2 …
dead_letters() {
	make_events 1 "$1" >"$MNT/in/events"
	mkdir "$MNT/groups/g"
	echo "{\"batch\":$1}" >"$MNT/groups/g/config.json"
	exec 5<"$MNT/groups/g/events"
	for ((i = 1; i <= $1; i++)); do
		read -r -u 5 line
		echo "$i dlq reason $i" >"$MNT/groups/g/nack"
	done
	exec 5<&-
	letters_are "$1"
}

numbers() {
	find "$MNT/dlq" -name '*.json' -printf '%f\n' | sed 's/^0*//; s/\.json$//' | sort -n | xargs
}

@test "rm discards a dead letter; a number is never given again, also after drain and a restart" {
	dead_letters 3
	rm "$MNT/dlq/2.json"
	[ "$(numbers)" = "1 3" ]
	run rm "$MNT/dlq/2.json"
	[[ $output == *"No such file"* ]]
	run rm "$MNT/dlq/replay"
	[[ $output == *"not permitted"* ]]
	cat "$MNT/dlq/1.json" >/dev/null
	echo 1 >"$MNT/dlq/drain"
	[ ! -e "$MNT/dlq/0000000000000001.json" ]
	echo all >"$MNT/dlq/drain"
	[ "$(numbers)" = "" ]
	kill_daemon
	start_daemon
	config '{"on_decode_error":"dlq"}'
	echo bad >"$MNT/in/events"
	[ "$(numbers)" = 4 ]
	[ "$(jq .dlq_sequence "$MNT/dlq/4.json")" -eq 4 ]
}

@test "replay records the event again at the end of the log, and touches no newer document" {
	dead_letters 3
	put user:1 '{"newer":true}'
	echo 1 2 >"$MNT/dlq/replay"
	[ "$(numbers)" = 3 ]
	log_has 6
	jq -e '.key == "user:1" and .metadata.replay_of == 1 and .type == "PUT"' "$MNT/feed/5.json"
	jq -e '.key == "user:2" and .metadata.replay_of == 2' "$MNT/feed/6.json"
	[ "$(cat "$MNT/data/user/1.json")" = '{"newer":true}' ]
	[ "$(jq -r .value "$MNT/feed/5.json")" = "$(jq -r .value "$MNT/feed/1.json")" ]
	echo all >"$MNT/dlq/replay"
	[ "$(numbers)" = "" ]
	log_has 7
}

@test "redeliver gives an event back to its group with attempts reset, several at once too" {
	dead_letters 3
	[ "$(cat "$MNT/groups/g/offset")" -eq 3 ]
	printf '2\n3\n' >"$MNT/dlq/redeliver"
	[ "$(numbers)" = 1 ]
	exec 5<"$MNT/groups/g/events"
	read -r -u 5 line
	jq -e '.sequence == 2 and .delivery.attempt == 1' <<<"$line"
	jq -e '.sequence == 2' "$MNT/groups/g/pending/2.json"
	echo 2 >"$MNT/groups/g/ack"
	read -r -u 5 line
	jq -e '.sequence == 3 and .delivery.attempt == 1' <<<"$line"
	echo 3 >"$MNT/groups/g/ack"
	exec 5<&-
}

@test "redeliver wakes a reader that waits" {
	dead_letters 1
	start bash -c 'head -n 1 "$1" >"$2"' - "$MNT/groups/g/events" "$WORK/out"
	wait_until 10 readers_wait 1
	echo 1 >"$MNT/dlq/redeliver"
	wait_until 10 line_count "$WORK/out" 1
	[ "$(jq .sequence "$WORK/out")" -eq 1 ]
}

@test "a wrong number or word for replay, redeliver and drain fails the whole write" {
	dead_letters 2
	config '{"on_decode_error":"dlq"}'
	echo bad >"$MNT/in/events"
	for file in replay redeliver drain; do
		for text in x 9 '1 9' '1 x' 1-2 0; do
			run bash -c 'echo "$1" >"$2"' - "$text" "$MNT/dlq/$file"
			[ "$status" -ne 0 ]
			refused EINVAL "/dlq/$file"
			[ "$(numbers)" = "1 2 3" ]
		done
	done
	for file in replay redeliver; do
		run bash -c 'echo 3 >"$1"' - "$MNT/dlq/$file" # of no group, and no event
		[ "$status" -ne 0 ]
		refused EINVAL "/dlq/$file"
	done
	echo all >"$MNT/dlq/redeliver" # what can be
	[ "$(numbers)" = 3 ]
}

@test "dlq/ and ops/: log.ndjson has all, tail -f shows what comes, looking takes nothing" {
	[ "$(names "$MNT/dlq")" = "drain log.ndjson redeliver replay tail" ]
	[ ! -s "$MNT/dlq/log.ndjson" ]
	start tail -f "$MNT/dlq/tail" >"$WORK/tailed"
	start cat "$MNT/ops/tail" >"$WORK/ops"
	wait_until 10 readers_wait 1
	dead_letters 3
	wait_until 10 at_least_lines "$WORK/tailed" 3
	grep . "$WORK/tailed" | cmp - "$MNT/dlq/log.ndjson"
	cat "$MNT"/dlq/*.json | cmp - "$MNT/dlq/log.ndjson"
	cat "$MNT"/ops/*.json | cmp - "$MNT/ops/log.ndjson"
	[ "$(stat -c %s "$MNT/dlq/log.ndjson")" -eq "$(wc -c <"$MNT/dlq/log.ndjson")" ]
	[ "$(within 10 tail -n 2 "$MNT/dlq/tail" | jq .dlq_sequence | xargs)" = "2 3" ]
	[ "$(within 10 head -n 1 "$MNT/dlq/tail" | jq .dlq_sequence)" -eq 1 ]
	config '{"on_decode_error":"dlq"}'
	echo bad >"$MNT/in/events"
	wait_until 10 at_least_lines "$WORK/tailed" 4
	ops_followed() { cmp "$WORK/ops" "$MNT/ops/log.ndjson"; }
	wait_until 10 ops_followed
	[ "$(numbers)" = "1 2 3 4" ]
}
