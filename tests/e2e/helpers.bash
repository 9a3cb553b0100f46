#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What every suite needs: a daemon on a fresh store, waiting with a deadline, and an end that leaves
# nothing behind.
#
# CHANGEFS   the program; CHANGEFS_SLOW  a factor for deadlines and an excuse for nothing else
# STORE MNT  of the default daemon, DAEMON its process id while it runs in front

: "${CHANGEFS:=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")/build/changefs}"
export CHANGEFS

changefs_setup() {
	WORK=$BATS_TEST_TMPDIR
	STORE=$WORK/store
	MNT=$WORK/mnt
	DAEMON=
	DAEMON_STDERR=$WORK/stderr
	# A regular expression of lines that a test provokes. This one is the library's, when the last unmount meets a
	# request on its way; the exit code tells that it was an orderly end.
	EXPECTED_STDERR='^fuse: reading device: Software caused connection abort$'
	OTHER_STORES=()      # stores to check at the end, besides STORE
	CHILDREN=()           # processes to end at the end
	mkdir -p "$MNT"
	: >"$DAEMON_STDERR"
	export STORE MNT
	[ -x "$CHANGEFS" ] || { echo "no program $CHANGEFS: build it, or use tests/run" >&2; return 1; }
}

# What most suites want; one that wants something else defines its own behind `load helpers`.
setup() {
	changefs_setup
	start_daemon
}

teardown() {
	changefs_teardown
}

# ---- time ----

now_ms() {
	local t=${EPOCHREALTIME/[.,]/}
	echo $((t / 1000))
}

# wait_until SECONDS COMMAND…: repeats the command until it succeeds; fails at the deadline.
wait_until() {
	local end=$(($(now_ms) + $1 * 1000 * ${CHANGEFS_SLOW:-1}))
	shift
	until "$@" >/dev/null 2>&1; do
		if [ "$(now_ms)" -gt "$end" ]; then
			echo "waited in vain for: $*" >&2
			return 1
		fi
		sleep 0.02
	done
}

# within SECONDS COMMAND…: runs it; a command that blocks is ended and fails.
within() {
	local seconds=$(($1 * ${CHANGEFS_SLOW:-1}))
	shift
	timeout --foreground --kill-after=2 "$seconds" "$@" 3>&-
}

# ---- processes ----

process_gone() {
	local state
	[ -e "/proc/$1" ] || return 0
	state=$(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)
	[ -z "$state" ] || [ "$state" = Z ]
}

# A command in the background, as a terminal starts it: SIGINT ends it, and it has our stdin. CHILD is
# its process id.
start() {
	env --default-signal=INT,QUIT "$@" <&0 3>&- &
	CHILD=$!
	CHILDREN+=("$CHILD")
}

# The process sleeps in a system call inside the mount (a parked read).
process_reads() {
	local target
	for target in /proc/"$1"/fd/*; do
		target=$(readlink "$target") || continue
		[[ $target != *"$2" ]] || return 0
	done
	return 1
}

# ---- the daemon ----

is_mounted() {
	awk -v dir="$1" '$2 == dir && $3 == "fuse.changefs" { found = 1 } END { exit !found }' /proc/mounts
}

# A stat may be answered from the kernel's memory after the daemon has died; opening a file may not.
is_served() {
	is_mounted "$1" && cat "$1/ctl/stats.json" >/dev/null 2>&1
}

not_mounted() {
	! is_mounted "$1"
}

unmount() {
	if [ "$(id -u)" -eq 0 ]; then
		umount "$@"
	else
		fusermount3 -u "${@/#-l/-z}"
	fi
}

served_or_dead() {
	is_served "$MNT" || process_gone "$DAEMON"
}

# In front, in the background of the test: its exit code and its stderr are seen. Arguments: options.
start_daemon() {
	"$CHANGEFS" "$STORE" "$MNT" -f "$@" >>"$DAEMON_STDERR" 2>&1 3>&- </dev/null &
	DAEMON=$!
	wait_until 20 served_or_dead
	if ! is_served "$MNT"; then
		echo "the daemon did not mount:" >&2
		cat "$DAEMON_STDERR" >&2
		kill -KILL "$DAEMON" 2>/dev/null || true
		wait "$DAEMON" || true
		DAEMON=
		return 1
	fi
}

# Waits for the daemon's own end and gives its exit code.
daemon_exit_code() {
	local code=0
	if ! wait_until 20 process_gone "$DAEMON"; then
		echo "the daemon does not end; its threads wait in: $(cat "/proc/$DAEMON"/task/*/wchan | tr '\0' ' ')" >&2
		return 255
	fi
	wait "$DAEMON" || code=$?
	DAEMON=
	return "$code"
}

# The orderly end: umount, and the daemon's exit code must be 0.
stop_daemon() {
	[ -n "$DAEMON" ] || return 0
	wait_until 10 unmount "$MNT"
	daemon_exit_code
}

kill_daemon() {
	kill -KILL "$DAEMON"
	wait_until 10 process_gone "$DAEMON"
	wait "$DAEMON" 2>/dev/null || true
	DAEMON=
}

remount() {
	stop_daemon
	start_daemon "$@"
}

store_is_clean() {
	local out
	if ! out=$("$CHANGEFS" check "$1" 2>&1); then
		echo "changefs check $1:" >&2
		echo "$out" >&2
		return 1
	fi
}

error_like='error|fail|assert|abort|sanitizer|corrupt|leak|overflow|panic|segmentation|damage|warning'

changefs_teardown() {
	local child store failed=0
	for child in "${CHILDREN[@]}"; do
		kill -CONT "$child" 2>/dev/null || true
		kill -KILL "$child" 2>/dev/null || true
	done
	# Only now: one may wait for a descriptor's place that another one holds.
	for child in "${CHILDREN[@]}"; do
		wait "$child" 2>/dev/null || true
	done
	if [ -n "$DAEMON" ]; then
		stop_daemon || { echo "the daemon did not end well: $?" >&2; failed=1; }
	fi
	if [ -n "$DAEMON" ]; then
		kill -KILL "$DAEMON" 2>/dev/null || true
		wait "$DAEMON" 2>/dev/null || true
	fi
	while is_mounted "$MNT" && unmount -l "$MNT"; do
		echo "a mount stayed behind at $MNT" >&2
		failed=1
	done
	if grep -iE "$error_like" "$DAEMON_STDERR" | grep -vE "$EXPECTED_STDERR" >&2; then
		echo "the lines above are the daemon's" >&2
		failed=1
	fi
	for store in "$STORE" "${OTHER_STORES[@]}"; do
		[ ! -d "$store" ] || store_is_clean "$store" || failed=1
	done
	return "$failed"
}

# ---- a system of its own ----

# Runs a script in mount and process namespaces of its own, which end with it: the program is in the
# system's path, $WORK is /mnt with store, mnt and fstab, and /etc/fstab is that fstab. An ordinary
# user is root in there, and nobody else; or is real root, if the test sets ENTER to sudo.
in_system() {
	local enter=("${ENTER:-env}" unshare)
	[ "$(id -u)" -eq 0 ] || [ -n "$ENTER" ] || enter+=(--user --map-root-user)
	# shellcheck disable=SC2016
	within 60 "${enter[@]}" --mount --propagation private --pid --fork --kill-child --mount-proc bash -euc '
		mount --bind "$1" /usr/local/sbin
		mount --bind "$2" /mnt
		mount -t tmpfs none /run # the notes of mount(8)
		touch /mnt/fstab
		mount --bind /mnt/fstab /etc/fstab
		export MNT=/mnt/mnt
		not() { if "$@"; then return 1; fi; }
		open_fuse() { # with the mode that udev gives it
			mount -t tmpfs none /media
			mknod -m 666 /media/fuse c 10 229
			mount --bind /media/fuse /dev/fuse
		}
		mounted() { grep " /mnt/mnt fuse.changefs " /proc/mounts; }
		put() { echo "{\"type\":\"PUT\",\"key\":\"$1\",\"value\":1}" >/mnt/mnt/in/events; }
		'"$1" - "$(dirname "$CHANGEFS")" "$WORK"
}

# ---- writing and reading ----

# put KEY JSON…: one event a pair, one write each.
put() {
	while [ $# -ge 2 ]; do
		printf '{"type":"PUT","key":"%s","value":%s}\n' "$1" "$2" >"$MNT/in/events"
		shift 2
	done
}

send() {
	printf '%s\n' "$@" >"$MNT/in/events"
}

# make_events FROM TO [COLLECTION [PAD]]: lines as the log itself writes them, without their sequence.
make_events() {
	awk -v from="$1" -v to="$2" -v table="${3:-user}" -v pad="${4:-0}" 'BEGIN {
		filler = sprintf("%*s", pad, "")
		gsub(/ /, "x", filler)
		for (i = from; i <= to; i++)
			printf "{\"type\":\"PUT\",\"key\":\"%s:%d\",\"value\":\"{\\\"n\\\":%d,\\\"filler\\\":\\\"%s\\\"}\",\"timestamp_ms\":%.0f}\n",
				table, i, i, filler, 1700000000000 + i
	}'
}

# Takes the sequences off the lines.
unnumbered() {
	sed 's/^{"sequence":[0-9]*,/{/' "$@"
}

# The sequences of the lines are FROM, FROM+1, …
numbered_from() {
	awk -v next_one="$1" '{
		match($0, /^\{"sequence":[0-9]+/)
		if (substr($0, 13, RLENGTH - 12) != next_one) {
			print "line " NR ": expected sequence " next_one ": " substr($0, 1, 80)
			exit 1
		}
		next_one++
	}'
}

config() {
	printf '%s\n' "$1" >"$MNT/ctl/config.json"
}

# The names in a directory, hidden ones too, in one line.
names() {
	find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | LC_ALL=C sort | xargs
}

line_count() {
	[ "$(wc -l <"$1")" -eq "$2" ]
}

at_least_lines() {
	[ "$(wc -l <"$1")" -ge "$2" ]
}

log_has() {
	[ "$(wc -l <"$MNT/feed/log.ndjson")" -eq "$1" ]
}

file_contains() {
	grep -qF -- "$2" "$1"
}

# The newest refusal.
last_error() {
	tail -n 1 "$MNT/ctl/errors"
}

# refused ERRNO PATH: the newest line of ctl/errors says so, with a reason.
refused() {
	last_error | jq -e --arg errno "$1" --arg path "$2" \
		'.errno == $errno and .path == $path and (.reason | length > 0) and (.pid | type == "number")
		and (.uid | type == "number") and has("time")' >/dev/null ||
		{ echo "expected $1 for $2, ctl/errors ends with: $(last_error)" >&2; return 1; }
}

stats() {
	jq -r "$1" "$MNT/ctl/stats.json"
}

readers_wait() {
	[ "$(stats .readers.waiting)" -ge "$1" ]
}

# same_bytes FILE TEXT: the file holds exactly this text.
same_bytes() {
	cmp <(printf '%s' "$2") "$1"
}
