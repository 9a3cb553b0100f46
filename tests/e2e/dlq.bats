#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# dlq/ and ops/: input that could not become an event, and what the system itself did.
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
