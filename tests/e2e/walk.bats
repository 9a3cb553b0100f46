#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Walks over the whole mount: what ends by itself, copies all and changes nothing, and what follows links.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	start_daemon
	config '{"on_decode_error":"dlq"}'
	"$BATS_TEST_DIRNAME/tree.py" 3 "$WORK/lines" "$WORK/oracle"
	cat "$WORK/lines" >"$MNT/in/events"
	send 'no event' 'none either' '{"type":"PUT","key":"after:dead letters","value":1}'
	wait_until 20 all_announced # its numbers in stats.json stand still then
}

all_announced() {
	[ "$(stats '.announce.sequence == .last_sequence')" = true ]
}

# equals_mount COPY: all of it, names, kinds and bytes, and there was something.
equals_mount() {
	within 60 diff -r --no-dereference "$MNT" "$1"
	cmp <(cd "$MNT" && find . | sort) <(cd "$1" && find . | sort)
	[ "$(find "$1/feed" -name '*.json' | wc -l)" -eq 241 ]
	[ "$(find "$1/dlq" -name '*.json' | wc -l)" -eq 2 ]
}

# times_of DIRECTORY [FORMAT]: of all files and directories in it.
times_of() {
	(cd "$1" && find . -mindepth 1 ! -type l -printf "%P ${2:-%T@}\n" | sort)
}

in_seconds='%TY-%Tm-%Td %TH:%TM'

@test "rsync -a of the whole mount: all is there, with its times; a second run sends nothing" {
	within 60 rsync -a "$MNT/" "$WORK/copy/"
	equals_mount "$WORK/copy"
	cmp <(times_of "$MNT" | grep json) <(times_of "$WORK/copy" | grep json)
	for options in -ai -aic; do
		run -0 within 60 rsync "$options" --delete "$MNT/" "$WORK/copy/"
		[ -z "$output" ]
	done
	run -2 within 60 diff -r "$MNT/feed" "$WORK/copy/feed"
	[[ "$output" == *"copy/feed/tail: No such file"* ]]
	put user:new 1
	run -0 within 60 rsync -ai "$MNT/feed/" "$WORK/copy/feed/"
	[ "$(grep -c '^>f+' <<<"$output")" -eq 1 ]
	[ "$(grep -c '^>f\.s.*log.ndjson' <<<"$output")" -eq 2 ]
	within 60 diff -r --no-dereference "$MNT/feed" "$WORK/copy/feed"
}

@test "cp -r and cp -a of the whole mount: all is there, and -a keeps the times" {
	within 60 cp -r "$MNT" "$WORK/copy"
	equals_mount "$WORK/copy"
	within 60 cp -a "$MNT" "$WORK/archive"
	equals_mount "$WORK/archive"
	cmp <(times_of "$MNT") <(times_of "$WORK/archive")
}

@test "tar of the whole mount: ends with 0, compares equal, unpacks to all of it with its times" {
	within 60 tar -C "$MNT" --format=posix -cf "$WORK/tar" .
	within 60 tar -C "$MNT" -df "$WORK/tar"
	mkdir "$WORK/copy"
	tar -C "$WORK/copy" -xf "$WORK/tar"
	equals_mount "$WORK/copy"
	cmp <(times_of "$MNT") <(times_of "$WORK/copy")
}

@test "cpio, out and in, and through, of the whole mount: all is there, with its times" {
	cd "$MNT"
	find . -depth -print0 | within 60 cpio --quiet -0oH newc >"$WORK/cpio"
	mkdir "$WORK/copy" "$WORK/through"
	(cd "$WORK/copy" && cpio --quiet -idm <"$WORK/cpio")
	equals_mount "$WORK/copy"
	cmp <(times_of "$MNT" "$in_seconds") <(times_of "$WORK/copy" "$in_seconds")
	find . -depth -print0 | within 60 cpio --quiet -0pdm "$WORK/through"
	equals_mount "$WORK/through"
	cd /
}

# All that there is of state: the log, its numbers, documents, dead letters, records, settings, refusals.
state() {
	md5sum "$MNT/feed/log.ndjson"
	stats 'del(.disk_bytes)'
	find "$MNT/data" "$MNT/dlq" "$MNT/ops" "$MNT/in" "$MNT/feed" | sort
	find "$MNT/data" "$MNT/dlq" "$MNT/ops" -type f -print0 | sort -z | xargs -0 cat | md5sum
	cat "$MNT/ctl/config.json" "$MNT/ctl/sources.json" "$MNT/ctl/errors"
}

# walks_harmlessly SHELL-TEXT: it ends by itself with 0, prints something and changes nothing.
walks_harmlessly() {
	echo "$1"
	within 60 bash -o pipefail -c "$1" - "$MNT" "$WORK" >"$WORK/out"
	[ -s "$WORK/out" ]
	cmp "$WORK/state" <(state)
}

# shellcheck disable=SC2016 # the walks' own shells expand them
walks=(
	'find "$1" -type f -exec cat {} +'
	'find "$1" -type f -exec md5sum {} \;'
	'find "$1" -ls'
	'find -L "$1" -size -1000k'
	'grep -r PUT "$1"'
	'grep -rc . "$1"'
	'du -a "$1"'
	'du -aL "$1"'
	'ls -lRa "$1"'
	'ls -lRL "$1"'
	'stat "$1" "$1"/* "$1"/*/* "$1"/*/*/*'
	'find "$1" -print0 | xargs -0 stat -c %i | sort | uniq -u'
	'find "$1" -type l -exec readlink -f {} +'
	'tar -c "$1" 2>/dev/null | tar -tv'
	'busybox find "$1" -type f -exec busybox cat {} +'
	'busybox tar -c -C "$1" . | tar -t'
	'rm -f "$2/zip"; zip -qry "$2/zip" "$1"; unzip -tq "$2/zip"'
	'diff -rq --no-dereference "$1/feed" "$1/data" || echo "ends with $?"'
	'python3 -c "import os, sys; print([os.stat(os.path.join(d, f)) for d, _, n in os.walk(sys.argv[1]) for f in n])" "$1"'
	'df -a "$1"/*/*'
)

@test "a walk of the whole mount ends and changes nothing: find, grep -r, du, ls -R, stat, tar, zip -y, busybox" {
	state >"$WORK/state"
	for walk in "${walks[@]}"; do
		walks_harmlessly "$walk"
	done
}

@test "a walk of the whole mount ends also while readers wait at the tails" {
	for file in feed/tail feed/user/tail; do
		start cat "$MNT/$file" >"$WORK/tail"
	done
	wait_until 10 readers_wait 2
	state >"$WORK/state"
	for walk in "${walks[@]}"; do
		walks_harmlessly "$walk"
	done
	readers_wait 2
}

# ---- what the README warns of ----

no_reader() {
	[ "$(stats .readers.open)" -eq 0 ]
}

# shellcheck disable=SC2016 # the commands' own shells expand them
@test "what follows links or takes every name waits at the tail, and ends when it is told to" {
	for command in 'grep -R PUT "$1/feed"' 'busybox grep -r PUT "$1/feed"' 'zip -qr "$2/x.zip" "$1/feed"' \
		'cp -rL "$1/feed" "$2/followed"' 'gzip -rc "$1/feed"' 'find -L "$1/feed" -type f -exec cat {} +' \
		'wc "$1"/feed/*' 'cat "$1"/feed/user/*' 'md5sum "$1"/feed/user/*' 'cp "$1"/feed/user/* "$2"' \
		'tail -n +5 "$1/feed/tail"' 'wc -l "$1/feed/tail"' 'busybox tail -n 3 "$1/feed/tail"' 'sort "$1/feed/tail"'; do
		echo "$command"
		start setsid bash -c "exec $command" - "$MNT" "$WORK" >"$WORK/out" 2>&1
		wait_until 10 readers_wait 1
		kill -TERM -- "-$CHILD"
		wait_until 5 no_reader
	done
}

# shellcheck disable=SC2016 # the commands' own shells expand them
@test "what follows links but reads no further than a size or the first end: rsync -L, tar -h, cpio -L, copytree" {
	state >"$WORK/state"
	for command in 'rsync -aL "$1/feed" "$2/a"; cat "$2/a/feed/tail"' 'tar -chf - "$1/feed" 2>/dev/null | tar -xO' \
		'cd "$1" && find feed | cpio --quiet -oLH newc' \
		'python3 -c "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2])" "$1/feed" "$2/b"; cat "$2/b/tail"' \
		'busybox cat "$1/feed/tail"' 'busybox cp -rL "$1/feed" "$2/c"; cat "$2/c/tail"' 'tac "$1/feed/tail"' \
		'tail -n 3 "$1"/feed/*.ndjson "$1/feed/tail"' 'head -n 3 "$1/feed/tail"' 'less "$1/feed/tail"'; do
		walks_harmlessly "$command"
	done
	cmp "$WORK/a/feed/tail" "$MNT/feed/log.ndjson"
	cmp "$WORK/b/tail" "$MNT/feed/log.ndjson"
	cmp "$WORK/c/tail" "$MNT/feed/log.ndjson"
}

# One open each: everybody gets everything. One together: the events are shared out between them.
both_have() {
	[ "$(cat "$WORK/one" "$WORK/two" | wc -l)" -eq "$1" ]
}

@test "two workers: with an open each both get every event, with one together each event goes to one" {
	exec 7<"$MNT/feed/.tail@241"
	for out in one two; do
		start cat "$MNT/feed/.tail@241" >"$WORK/own.$out"
		start cat <&7 >"$WORK/$out"
	done
	exec 7<&-
	wait_until 10 readers_wait 3
	for i in $(seq 20); do
		put "user:$i" "$i"
		wait_until 10 both_have $((i + 1))
	done
	cmp <(cat "$WORK/one" "$WORK/two" | sed '/^$/d' | sort) <(tail -n 20 "$MNT/feed/log.ndjson" | sort)
	for out in one two; do
		wait_until 10 cmp <(sed '/^$/d' "$WORK/own.$out") <(tail -n 20 "$MNT/feed/log.ndjson")
	done
}

@test "jq, grep and sed print each event at once when they are told not to buffer" {
	start jq --unbuffered -r .key "$MNT/feed/.tail@241" >"$WORK/jq"
	start grep --line-buffered -o '"key":"[^"]*"' "$MNT/feed/.tail@241" >"$WORK/grep"
	start sed -un 's/.*"key":"\([^"]*\)".*/\1/p' "$MNT/feed/.tail@241" >"$WORK/sed"
	wait_until 10 readers_wait 3
	put user:quick 1
	for tool in jq grep sed; do
		wait_until 10 grep -q user:quick "$WORK/$tool"
	done
}

@test "mmap: shared of an event and a document, private of a log that grows; a log shared is ENODEV" {
	within 30 python3 - "$MNT" <<-'END'
	import errno, mmap, sys
	mnt = sys.argv[1]
	def mapped(path, **how):
	    with open(mnt + path, "rb") as f, mmap.mmap(f.fileno(), 0, **how) as m:
	        return m[:], f.read()
	shared, private = {"prot": mmap.PROT_READ}, {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ}
	for path in ("/feed/170.json", "/data/after/dead letters.json"):
	    for how in (shared, private):
	        assert len(set(mapped(path, **how))) == 1, path
	try:
	    mapped("/feed/log.ndjson", **shared)
	    sys.exit("a log can be mapped shared")
	except OSError as e:
	    assert e.errno == errno.ENODEV, e
	for i in range(50):
	    with open(mnt + "/in/events", "wb", buffering=0) as f:
	        f.write(b'{"type":"PUT","key":"user:more","value":%d}\n' % i)
	    one, other = mapped("/feed/log.ndjson", **private)
	    assert one == other and b"\0" not in one
	END
}
