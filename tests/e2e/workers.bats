#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Workers that die: many of them at one group, and the examples.
# shellcheck disable=SC2016 # the programs of other shells
bats_require_minimum_version 1.5.0
load helpers

examples=$(readlink -f "$BATS_TEST_DIRNAME/../../examples")

setup() {
	changefs_setup
	start_daemon
	G=$MNT/groups/g
	mkdir "$G"
}

all_done() {
	[ "$(cat "$G/lag")" -eq 0 ]
}

# Handles events: a line in a file of its own, then the acknowledgement.
cat_worker='
while read -r event; do
	sequence=${event#*:} id=${event##*:}
	delivery="${sequence%%,*}#${id%%\}*}"
	echo "${sequence%%,*}" >>"$2"
	echo "$delivery" >"$1/ack"
done <"$1/events"'

start_worker() {
	worker=$((worker + 1))
	start bash -c "$cat_worker" - "$G" "$WORK/handled.$worker" 2>>"$WORK/worker-errors"
	pids[$1]=$CHILD
	numbers[$1]=$worker
}

@test "eight bash workers and kill -9 at random on 20,000 events: all handled, twice only where a worker died" {
	make_events 1 20000 >"$MNT/in/events"
	echo '{"batch":50,"max_attempts":100}' >"$G/config.json"
	RANDOM=$$
	echo "RANDOM=$$"
	worker=0 pids=() numbers=() killed=()
	for slot in 0 1 2 3 4 5 6 7; do
		start_worker "$slot"
	done
	end=$(($(now_ms) + 120000 * ${CHANGEFS_SLOW:-1}))
	until all_done; do
		[ "$(now_ms)" -lt "$end" ]
		sleep "0.$((RANDOM % 20 + 10))"
		slot=$((RANDOM % 8))
		kill -KILL "${pids[slot]}"
		wait "${pids[slot]}" || true
		killed+=("${numbers[slot]}")
		start_worker "$slot"
	done
	echo "${#killed[@]} were killed"
	[ "${#killed[@]}" -ge 5 ]
	[ "$(cat "$G/offset")" -eq 20000 ]
	[ "$(find "$MNT/dlq" -name '*.json' | wc -l)" -eq 0 ]
	[ ! -s "$WORK/worker-errors" ]
	sort -n -u "$WORK"/handled.* | cmp - <(seq 20000)
	# Handled twice: the last event of a worker that was killed, and nothing else.
	sort -n "$WORK"/handled.* | uniq -d >"$WORK/twice"
	for number in "${killed[@]}"; do
		[ ! -f "$WORK/handled.$number" ] || tail -n 1 "$WORK/handled.$number"
	done | sort -n -u >"$WORK/last"
	[ -z "$(comm -23 <(sort "$WORK/twice") <(sort "$WORK/last"))" ]
	[ "$(sort -n "$WORK"/handled.* | wc -l)" -le $((20000 + ${#killed[@]})) ]
}

@test "examples/work-queue: a worker in under 15 lines; four in parallel; a failing command ends in dlq/" {
	[ "$(wc -l <"$examples/work-queue/worker")" -lt 15 ]
	make_events 1 200 >"$MNT/in/events"
	echo '{"max_attempts":2}' >"$G/config.json"
	cat >"$WORK/handle" <<-'END'
		#!/bin/bash
		read -r event
		[[ $event != *'"key":"user:77"'* ]] || exit 1
		echo "$event" >>"$1"
	END
	chmod +x "$WORK/handle"
	start "$examples/work-queue/workers" "$G" "$WORK/handle" "$WORK/out"
	four() { [ "$(jq '.readers | length' "$G/stats.json")" -eq "$1" ]; }
	wait_until 10 four 4
	# One worker dies in the middle of it.
	wait_until 20 at_least_lines "$WORK/out" 20
	kill -KILL "$(jq '.readers[0].pid' "$G/stats.json")"
	wait_until 60 all_done
	jq .sequence "$WORK/out" | sort -n -u | cmp - <(seq 200 | grep -vx 77)
	[ "$(jq .event.sequence "$MNT/dlq/1.json")" -eq 77 ]
	[ "$(find "$MNT/dlq" -name '*.json' | wc -l)" -eq 1 ]
	kill -TERM "$CHILD"
	wait_until 10 four 0
}

@test "examples/checkpoint: python3 and SQLite count each change exactly once, over kill -9 of both sides" {
	db=$WORK/totals.db
	total() {
		python3 -c 'import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("SELECT sum(number) FROM changes").fetchone()[0])' "$db"
	}
	counted() { [ "$(total)" = "$1" ]; }
	some() { [ "$(total)" -ge "$1" ]; }
	make_events 1 300 user >"$MNT/in/events"
	make_events 1 300 order >"$MNT/in/events"
	for n in 50 200 350; do
		start "$examples/checkpoint/checkpoint" "$MNT" totals "$db"
		wait_until 30 some "$n"
		kill -KILL "$CHILD"
		wait "$CHILD" || true
	done
	kill_daemon
	start_daemon
	start "$examples/checkpoint/checkpoint" "$MNT" totals "$db"
	put user:last 1
	wait_until 60 counted 601
	no_lag() { [ "$(cat "$MNT/groups/totals/lag")" -eq 0 ]; }
	wait_until 10 no_lag
	[ "$(cat "$MNT/groups/totals/offset")" -eq 601 ]
	kill "$CHILD"
	wait "$CHILD" || true
}
