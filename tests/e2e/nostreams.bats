#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# -o nostreams: no listing shows an endless file, and tools that follow links as they walk end.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	start_daemon -o nostreams
	put user:alice '{"name":"Alice"}' order:1 '{"total":5}'
}

@test "listings have no link (find, ls)" {
	[ -z "$(find "$MNT" -type l)" ]
	[ "$(names "$MNT/feed")" = "log.ndjson order user" ]
	[ "$(ls -a "$MNT/feed/user")" = $'.\n..\n0000000000000001.json\nlog.ndjson' ]
	[ "$(find "$MNT/feed" -name '*.json' | wc -l)" -eq 2 ]
}

@test "what is not listed opens by its name (head, tail, readlink, test)" {
	[ "$(within 10 head -n 1 "$MNT/feed/tail" | jq .sequence)" -eq 1 ]
	[ "$(within 10 tail -n 1 "$MNT/feed/order/tail" | jq .sequence)" -eq 2 ]
	[ "$(readlink "$MNT/feed/tail" "$MNT/feed/user/tail" | xargs)" = ".tail .tail" ]
	[ -L "$MNT/feed/tail" ]
}

@test "cat feed/tail waits for what comes" {
	start cat "$MNT/feed/tail" >"$WORK/seen"
	wait_until 10 at_least_lines "$WORK/seen" 2
	wait_until 10 readers_wait 1
	put user:bob '{"name":"Bob"}'
	wait_until 10 file_contains "$WORK/seen" user:bob
}

@test "tools that follow links as they walk end (grep -R, cp -rL, zip -r, busybox grep, find -L, diff -r)" {
	within 20 grep -R alice "$MNT/feed" "$MNT/data" >"$WORK/found"
	[ "$(wc -l <"$WORK/found")" -ge 2 ]
	within 20 cp -rL "$MNT/feed" "$WORK/copy"
	within 20 diff -r "$MNT/feed" "$WORK/copy"
	within 20 busybox grep -r alice "$MNT/feed" | grep -q alice
	(cd "$MNT" && within 20 zip -qr "$WORK/feed.zip" feed)
	unzip -p "$WORK/feed.zip" feed/log.ndjson | cmp - "$MNT/feed/log.ndjson"
	within 20 find -L "$MNT" -type f -exec cat {} + >"$WORK/all"
	file_contains "$WORK/all" '"key":"order:1"'
}

@test "without the option the links are there, also after a mount that had it (ls)" {
	remount
	[ "$(ls "$MNT/feed")" = $'log.ndjson\norder\ntail\nuser' ]
	[ "$(find "$MNT" -type l | wc -l)" -eq 5 ]
}
