#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ctl/: what the system says of itself, and what can be changed while it runs.
bats_require_minimum_version 1.5.0
load helpers

@test "ctl/ lists its files" {
	[ "$(names "$MNT/ctl")" = "config.json errors sources.json stats.json trim" ]
}

@test "stats.json is JSON and tells the truth" {
	jq -e '.last_sequence == 0 and .events == 0 and .readers.open == 0' "$MNT/ctl/stats.json"
	put user:a 1 user:b 2 order:c 3
	jq -e '.first_sequence == 1 and .last_sequence == 3 and .events == 3 and .commits >= 3 and .collections == 2
		and .readers.waiting == 0 and .disk_bytes > 0' "$MNT/ctl/stats.json"
	[ "$(stats .log_bytes)" -eq "$(stat -c %s "$MNT/feed/log.ndjson")" ]
	[ "$(stats .store)" = "$STORE" ]
	[ "changefs $(stats .version)" = "$("$CHANGEFS" --version | head -n 1)" ]
	[[ "$(stats .identity)" =~ ^[0-9a-f]{32}$ ]]
}

@test "the identity stays over a restart, and another store has another" {
	identity=$(stats .identity)
	remount
	[ "$(stats .identity)" = "$identity" ]
	stop_daemon
	OTHER_STORES+=("$WORK/other")
	STORE=$WORK/other start_daemon
	[ "$(stats .identity)" != "$identity" ]
}

@test "stats.json counts open and waiting readers" {
	put user:a 1
	start cat "$MNT/feed/tail" >/dev/null
	start cat "$MNT/feed/user/tail" >/dev/null
	wait_until 10 readers_wait 2
	[ "$(stats .readers.open)" -eq 2 ]
}

@test "an open stats.json does not change under its reader; a new look is new" {
	exec 7<"$MNT/ctl/stats.json"
	put user:a 1
	[ "$(jq .last_sequence <&7)" -eq 0 ]
	exec 7<&-
	[ "$(stats .last_sequence)" -eq 1 ]
}

@test "config.json shows its defaults" {
	[ "$(jq -c '[.snapshots, .visibility, .max_document_bytes]' "$MNT/ctl/config.json")" = '["both","written",8388608]' ]
}

@test "writing config.json changes the named fields only, and they stay" {
	config '{"snapshots":"none"}'
	[ "$(jq -c '[.snapshots, .visibility, .max_document_bytes]' "$MNT/ctl/config.json")" = '["none","written",8388608]' ]
	config '{"max_document_bytes":1048576,"visibility":"durable"}'
	[ "$(jq -c '[.snapshots, .visibility, .max_document_bytes]' "$MNT/ctl/config.json")" = '["none","durable",1048576]' ]
	remount
	[ "$(jq -c '[.snapshots, .visibility, .max_document_bytes]' "$MNT/ctl/config.json")" = '["none","durable",1048576]' ]
}

@test "config.json is applied by the write that completes its value: multi-line printf, pieces, cp, jq" {
	printf '{\n  "snapshots":\n  "before"\n}\n' >"$MNT/ctl/config.json"
	[ "$(jq -r .snapshots "$MNT/ctl/config.json")" = before ]
	{
		/usr/bin/printf '{"snap'
		/usr/bin/printf 'shots": "no'
		/usr/bin/printf 'ne"}'
	} >"$MNT/ctl/config.json"
	[ "$(jq -r .snapshots "$MNT/ctl/config.json")" = none ]
	jq '.snapshots = "both"' "$MNT/ctl/config.json" >"$WORK/new"
	cp "$WORK/new" "$MNT/ctl/config.json"
	[ "$(jq -r .snapshots "$MNT/ctl/config.json")" = both ]
	echo '{"snapshots":"none"}' | tee "$MNT/ctl/config.json"
	[ "$(jq -r .snapshots "$MNT/ctl/config.json")" = none ]
	cp "$MNT/ctl/config.json" "$WORK/saved"
	cat "$WORK/saved" >"$MNT/ctl/config.json"
	[ "$(jq -r .snapshots "$MNT/ctl/config.json")" = none ]
}

@test "a wrong config is EINVAL, ctl/errors names the field, and the old one stays" {
	before=$(cat "$MNT/ctl/config.json")
	for text in '{"snapshots":"sometimes"}' '{"snapshots":1}' '{"visibility":"never"}' '{"max_document_bytes":0}' \
		'{"max_document_bytes":"8388608"}' '{"max_document_bytes":-1}' '{"max_document_bytes":1.5}' \
		'{"max_document_bytes":68719476736}' '{"unheard_of":1}' '{"snapshots":"none","visibility":"never"}'; do
		run bash -c 'echo "$1" >"$2"' - "$text" "$MNT/ctl/config.json"
		echo "$text: $status, $output"
		[ "$status" -ne 0 ]
		[[ "$output" == *"Invalid argument"* ]]
		refused EINVAL /ctl/config.json
		field=$(jq -r 'keys_unsorted | last' <<<"$text")
		[[ "$(last_error | jq -r .reason)" == *"$field"* ]]
		[ "$(cat "$MNT/ctl/config.json")" = "$before" ]
	done
	for text in '[]' '42' '"text"' 'nonsense' '{"snapshots" "none"}' '}'; do
		run bash -c 'echo "$1" >"$2"' - "$text" "$MNT/ctl/config.json"
		echo "$text: $status, $output"
		[ "$status" -ne 0 ]
		refused EINVAL /ctl/config.json
		[ "$(cat "$MNT/ctl/config.json")" = "$before" ]
	done
}

@test "an unfinished config changes nothing, and is named" {
	before=$(cat "$MNT/ctl/config.json")
	printf '{"snapshots":"no' >"$MNT/ctl/config.json" || true
	[ "$(cat "$MNT/ctl/config.json")" = "$before" ]
	wait_until 5 refused EINVAL /ctl/config.json
}

@test "visibility durable: events are there when the write returns, and blocked readers wake" {
	config '{"visibility":"durable"}'
	start cat "$MNT/feed/tail" >"$WORK/out"
	wait_until 10 readers_wait 1
	put user:a 1
	sync "$MNT/in/events"
	wait_until 10 file_contains "$WORK/out" user:a
	log_has 1
}

@test "ctl/errors is empty at first, and cannot be written" {
	[ -z "$(cat "$MNT/ctl/errors")" ]
	run bash -c 'echo x >"$1"' - "$MNT/ctl/errors"
	[ "$status" -ne 0 ]
	run bash -c 'echo x >"$1"' - "$MNT/ctl/stats.json"
	[ "$status" -ne 0 ]
	[ "$(jq -r .path "$MNT/ctl/errors" | xargs)" = "/ctl/errors /ctl/stats.json" ]
}

@test "ctl/errors escapes control characters, and has its time" {
	run cat "$MNT/feed/"$'no\nsuch\x01'
	run bash -c 'printf "%s\n" "$1" >"$2"' - $'{"type":"PUT\x02\t"' "$MNT/in/events"
	[ "$status" -ne 0 ]
	[ "$(wc -l <"$MNT/ctl/errors")" -eq "$(jq -c . "$MNT/ctl/errors" | wc -l)" ]
	run -1 grep -P '[\x00-\x09\x0b-\x1f]' "$MNT/ctl/errors"
	last_error | jq -e '.time | tostring | length > 0'
}

@test "looking for what is not there is no refusal" {
	run stat "$MNT/feed/user/7.json" "$MNT/nothing"
	[ -z "$(cat "$MNT/ctl/errors")" ]
}

# wal2json's lines for one transaction that inserts id $1 at commit lsn $2 and time $3
transaction() {
	printf '{"action":"B","timestamp":"%s","lsn":"%s","nextlsn":"0/FFFFFF0"}\n' "$3" "$2"
	printf '{"action":"I","timestamp":"%s","lsn":"0/10","schema":"public","table":"t","columns":[{"name":"id","type":"integer","value":%s}],"pk":[{"name":"id","type":"integer"}]}\n' "$3" "$1"
	printf '{"action":"C","timestamp":"%s","lsn":"%s","nextlsn":"0/FFFFFF0"}\n' "$3" "$2"
}

@test "sources.json shows each source; writing null forgets one" {
	[ "$(jq -c . "$MNT/ctl/sources.json")" = '{}' ]
	transaction 1 0/100 '2026-01-01 00:00:01+00' >"$MNT/in/wal2json"
	transaction 2 0/200 '2026-01-01 00:00:02+00' >"$MNT/in/wal2json@shop"
	[ "$(jq -c keys "$MNT/ctl/sources.json")" = '["default","shop"]' ]
	jq . "$MNT/ctl/sources.json"
	printf '{"shop":null}\n' >"$MNT/ctl/sources.json"
	[ "$(jq -c keys "$MNT/ctl/sources.json")" = '["default"]' ]
	remount
	[ "$(jq -c keys "$MNT/ctl/sources.json")" = '["default"]' ]
	log_has 2
	run bash -c 'printf "{\"nobody\":null}\n" >"$1"' - "$MNT/ctl/sources.json"
	[ "$status" -ne 0 ]
	refused EINVAL /ctl/sources.json
	run bash -c 'printf "{\"default\":7}\n" >"$1"' - "$MNT/ctl/sources.json"
	[ "$status" -ne 0 ]
	refused EINVAL /ctl/sources.json
	[ "$(jq -c keys "$MNT/ctl/sources.json")" = '["default"]' ]
}

@test "a source skips what it has, refuses an older place with a newer time, and takes it once forgotten" {
	transaction 1 0/200 '2026-01-01 00:00:02+00' >"$MNT/in/wal2json@shop"
	transaction 1 0/200 '2026-01-01 00:00:02+00' >"$MNT/in/wal2json@shop"
	transaction 9 0/100 '2026-01-01 00:00:01+00' >"$MNT/in/wal2json@shop"
	log_has 1
	transaction 2 0/150 '2026-01-01 00:00:09+00' >"$WORK/restored"
	run bash -c 'cat "$1" >"$2"' - "$WORK/restored" "$MNT/in/wal2json@shop"
	[ "$status" -ne 0 ]
	[[ "$output" == *"Stale file handle"* ]]
	refused ESTALE /in/wal2json@shop
	log_has 1
	transaction 2 0/150 '2026-01-01 00:00:09+00' >"$MNT/in/wal2json@another"
	log_has 2
	printf '{"shop":null}\n' >"$MNT/ctl/sources.json"
	cat "$WORK/restored" >"$MNT/in/wal2json@shop"
	log_has 3
}
