#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# data/: the current documents, and the snapshots that events carry.
bats_require_minimum_version 1.5.0
load helpers

# Of the newest event: before and after, `-` for one that is not there.
snapshots() {
	tail -n 1 "$MNT/feed/log.ndjson" |
		jq -r '[if has("before_snapshot") then .before_snapshot else "-" end,
			if has("after_snapshot") then .after_snapshot else "-" end] | join(" ")'
}

@test "data/ holds the newest document of each key" {
	put user:a '{"v":1}' user:b '{"v":2}' user:a '{"v":3}' order:a '{"v":4}'
	same_bytes "$MNT/data/user/a.json" '{"v":3}'
	same_bytes "$MNT/data/user/b.json" '{"v":2}'
	same_bytes "$MNT/data/order/a.json" '{"v":4}'
	[ "$(find "$MNT/data" -type f -printf '%P\n' | sort | xargs)" = "order/a.json user/a.json user/b.json" ]
	[ "$(stat -c %s "$MNT/data/user/a.json")" -eq 7 ]
}

@test "snapshots are filled by themselves: none before an insert, none after a delete" {
	put user:a '{"v":1}'
	[ "$(snapshots)" = '- {"v":1}' ]
	put user:a '{"v":2}'
	[ "$(snapshots)" = '{"v":1} {"v":2}' ]
	send '{"type":"DELETE","key":"user:a"}'
	[ "$(snapshots)" = '{"v":2} -' ]
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq -c '[.value, has("value")]')" = '[null,true]' ]
	[ ! -e "$MNT/data/user/a.json" ]
	send '{"type":"DELETE","key":"user:a"}'
	[ "$(snapshots)" = '- -' ]
	put user:a '{"v":3}'
	[ "$(snapshots)" = '- {"v":3}' ]
}

@test "within one write each event sees the one before it" {
	printf '%s\n' '{"type":"PUT","key":"user:a","value":1}' '{"type":"PUT","key":"user:a","value":2}' \
		'{"type":"DELETE","key":"user:a"}' '{"type":"PUT","key":"user:a","value":3}' >"$WORK/lines"
	cat "$WORK/lines" >"$MNT/in/events"
	[ "$(jq -r '[.before_snapshot // "-", .after_snapshot // "-"] | join(":")' "$MNT/feed/log.ndjson" | xargs)" = "-:1 1:2 2:- -:3" ]
	same_bytes "$MNT/data/user/a.json" 3
}

@test "snapshots = before" {
	config '{"snapshots":"before"}'
	put user:a 1
	[ "$(snapshots)" = '- -' ]
	put user:a 2
	[ "$(snapshots)" = '1 -' ]
	send '{"type":"DELETE","key":"user:a"}'
	[ "$(snapshots)" = '2 -' ]
}

@test "snapshots = none, changed at run time and kept over a restart" {
	put user:a 1
	config '{"snapshots":"none"}'
	put user:a 2
	[ "$(snapshots)" = '- -' ]
	remount
	put user:a 3
	[ "$(snapshots)" = '- -' ]
	same_bytes "$MNT/data/user/a.json" 3
	config '{"snapshots":"both"}'
	put user:a 4
	[ "$(snapshots)" = '3 4' ]
}

@test "snapshots that the producer gave are kept unchecked" {
	put user:a 1
	send '{"type":"PUT","key":"user:a","value":"2","before_snapshot":"theirs","after_snapshot":{"own":1.10}}'
	[ "$(snapshots)" = 'theirs {"own":1.10}' ]
	same_bytes "$MNT/data/user/a.json" 2
}

@test "DELETE removes the document and its name, and the collection's directory stays" {
	put user:a 1 user:b 2
	send '{"type":"DELETE","key":"user:a"}'
	[ "$(ls "$MNT/data/user")" = b.json ]
	send '{"type":"DELETE","key":"user:b"}'
	[ -z "$(ls -A "$MNT/data/user")" ]
	[ -d "$MNT/data/user" ]
	run cat "$MNT/data/user/a.json"
	[[ "$output" == *"No such file"* ]]
}

@test "TRUNCATE empties its collection and no other" {
	put user:a 1 user:b 2 users:c 3 order:d 4
	send '{"type":"TRUNCATE","key":"user:"}'
	[ -z "$(ls -A "$MNT/data/user")" ]
	[ "$(names "$MNT/data/users") $(names "$MNT/data/order")" = "c.json d.json" ]
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq -c 'del(.timestamp_ms)')" = '{"sequence":5,"type":"TRUNCATE","key":"user:"}' ]
	put user:a 5
	[ "$(snapshots)" = '- 5' ]
	[ "$(ls "$MNT/data/user")" = a.json ]
	remount
	[ "$(ls "$MNT/data/user")" = a.json ]
}

@test "a TRUNCATE between two PUTs of one write" {
	printf '%s\n' '{"type":"PUT","key":"user:a","value":1}' '{"type":"TRUNCATE","key":"user:"}' \
		'{"type":"PUT","key":"user:b","value":2}' >"$WORK/lines"
	cat "$WORK/lines" >"$MNT/in/events"
	[ "$(ls "$MNT/data/user")" = b.json ]
}

@test "MESSAGE is in the log and has no document" {
	send '{"type":"MESSAGE","key":"audit","value":"hello","metadata":{"by":"me"}}'
	[ "$(jq -c 'del(.timestamp_ms)' "$MNT/feed/log.ndjson")" = '{"sequence":1,"type":"MESSAGE","key":"audit","value":"hello","metadata":{"by":"me"}}' ]
	[ -z "$(find "$MNT/data" -type f)" ]
}

@test "an open document stays as it was while a newer one is recorded" {
	put user:a '{"v":1}'
	exec 7<"$MNT/data/user/a.json"
	put user:a '{"v":22222}'
	[ "$(cat <&7)" = '{"v":1}' ]
	exec 7<&-
	same_bytes "$MNT/data/user/a.json" '{"v":22222}'
	[ "$(stat -c %s "$MNT/data/user/a.json")" -eq 11 ]
}

@test "a document's stat follows at once: size and time" {
	for i in 1 22 333 4444 55555; do
		put user:a "$i"
		[ "$(stat -c %s "$MNT/data/user/a.json")" -eq ${#i} ]
		[ "$(cat "$MNT/data/user/a.json")" = "$i" ]
	done
}

@test "with -o ro data/ is read-only: what would change it is refused" {
	put user:a 1
	remount -o ro
	# shellcheck disable=SC2016
	for command in 'echo 2 >"$1/a.json"' 'echo 2 >"$1/b.json"' 'rm -f "$1/a.json"' 'mv "$1/a.json" "$1/b.json"' \
		'echo 2 >"$1/.scratch"' 'mkdir "$1/../new"' 'rmdir "$1"' 'truncate -s 0 "$1/a.json"' 'ln -s a "$1/c.json"'; do
		run within 5 bash -c "$command" - "$MNT/data/user"
		echo "$command: $status, $output"
		[ "$status" -ne 0 ]
		[ "$status" -lt 124 ]
		[[ "$output" == *"Read-only"* ]]
	done
	same_bytes "$MNT/data/user/a.json" 1
	log_has 1
}

@test "20,000 documents are listed once each and open" {
	make_events 1 20000 >"$MNT/in/events"
	find "$MNT/data/user" -name '*.json' -printf '%f\n' | sort >"$WORK/names"
	seq -f '%.0f.json' 1 20000 | sort | cmp - "$WORK/names"
	[ "$(cat "$MNT/data/user/20000.json")" = '{"n":20000,"filler":""}' ]
}

@test "documents survive kill -9, with what the newest event said" {
	make_events 1 2000 >"$MNT/in/events"
	put user:5 '"newest"'
	send '{"type":"DELETE","key":"user:6"}'
	kill_daemon
	start_daemon
	same_bytes "$MNT/data/user/5.json" newest
	[ ! -e "$MNT/data/user/6.json" ]
	[ "$(find "$MNT/data/user" -name '*.json' | wc -l)" -eq 1999 ]
	log_has 2002
}
