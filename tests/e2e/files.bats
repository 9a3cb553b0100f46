#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the tree's files promise to the tools that walk, copy and compare them.
bats_require_minimum_version 1.5.0
load helpers

# Three collections, taking turns, with updates and a delete.
fill() {
	for i in $(seq "$1"); do
		make_events "$i" "$i" user
		make_events "$i" "$i" order 100
		make_events 1 1 item
	done >"$WORK/lines"
	cat "$WORK/lines" >"$MNT/in/events"
	send '{"type":"DELETE","key":"item:1"}'
}

@test "find | sort | xargs cat equals log.ndjson, for the log and each collection" {
	fill 200
	for collection in user order item; do
		find "$MNT/feed/$collection" -name '*.json' | sort | xargs cat |
			cmp - "$MNT/feed/$collection/log.ndjson"
	done
	find "$MNT"/feed/*/ -name '*.json' -printf '%f %p\n' | sort | cut -d' ' -f2 | xargs cat |
		cmp - "$MNT/feed/log.ndjson"
	[ "$(find "$MNT/feed/user" -name '*.json' | wc -l)" -eq 200 ]
}

@test "log.ndjson equals the accepted lines, in order" {
	config '{"snapshots":"none"}'
	make_events 1 5000 user >"$WORK/lines"
	cat "$WORK/lines" >"$MNT/in/events"
	make_events 1 100 order >"$WORK/more"
	while read -r line; do
		printf '%s\n' "$line" >"$MNT/in/events"
	done <"$WORK/more"
	cat "$WORK/lines" "$WORK/more" | cmp - <(unnumbered "$MNT/feed/log.ndjson")
	numbered_from 1 <"$MNT/feed/log.ndjson"
	cmp <(unnumbered "$MNT/feed/order/log.ndjson") "$WORK/more"
}

@test "an empty log: the directories are there, log.ndjson is empty" {
	for directory in feed data in ctl; do
		[ -d "$MNT/$directory" ]
	done
	[ "$(stat -c %s "$MNT/feed/log.ndjson")" -eq 0 ]
	[ -z "$(cat "$MNT/feed/log.ndjson")" ]
	[ -z "$(find "$MNT/feed" -name '*.json')" ]
}

@test "stat -c %s is exact on every listed file" {
	fill 50
	counted=0
	while read -r file; do
		size=$(stat -c %s "$file")
		bytes=$(within 10 cat "$file" | wc -c)
		echo "$file: $size, $bytes"
		case $file in
		*/ctl/*) continue ;; # each lookup renders anew: the next test looks through one handle
		esac
		[ "$size" -eq "$bytes" ]
		counted=$((counted + 1))
	done < <(find "$MNT" -type f)
	[ "$counted" -gt 150 ]
}

@test "through one handle, fstat and read agree on every listed file; blocks and links are right" {
	fill 20
	within 60 python3 - "$MNT" <<-'END'
	import os, stat, sys
	files = 0
	for directory, names, leaves in os.walk(sys.argv[1]):
	    there = os.lstat(directory)
	    assert there.st_nlink == 2 + len(names), (directory, there.st_nlink, names)
	    for leaf in leaves:
	        path = os.path.join(directory, leaf)
	        if stat.S_ISLNK(os.lstat(path).st_mode):
	            assert os.lstat(path).st_size == len(os.readlink(path)), path
	            continue
	        fd = os.open(path, os.O_RDONLY)
	        before = os.fstat(fd)
	        assert stat.S_ISREG(before.st_mode) and before.st_nlink == 1, path
	        assert before.st_blocks > 0 or before.st_size == 0, path
	        size = 0
	        while True:
	            piece = os.read(fd, 100000)
	            if not piece:
	                break
	            size += len(piece)
	        assert size == before.st_size == os.fstat(fd).st_size, (path, size, before.st_size)
	        os.close(fd)
	        files += 1
	assert files > 60, files
	END
}

@test "files that take writes only give end of file, at once" {
	for file in in/events in/wal2json in/wal2json@other ctl/trim; do
		[ "$(within 5 cat "$MNT/$file" | wc -c)" -eq 0 ]
		[ "$(stat -c %s "$MNT/$file")" -eq 0 ]
	done
}

@test "any number of leading zeros opens the same event, in its collection and in feed/ itself" {
	fill 20
	want=$(sed -n 4p "$MNT/feed/log.ndjson")
	for name in 4 04 000004 0000000000000004 00000000000000000000004; do
		[ "$(cat "$MNT/feed/user/$name.json")" = "$want" ]
		[ "$(cat "$MNT/feed/$name.json")" = "$want" ]
	done
	[ "$(cat "$MNT/feed/000005.json")" = "$(sed -n 5p "$MNT/feed/log.ndjson")" ]
	[ "$(stat -c %i "$MNT/feed/user/4.json")" = "$(stat -c %i "$MNT/feed/user/0000000000000004.json")" ]
	[ -z "$(find "$MNT/feed" -maxdepth 1 -name '*.json')" ]
}

@test "what is not there is ENOENT" {
	fill 3
	for name in feed/user/2.json feed/user/0.json feed/user/x.json feed/user/-1.json feed/user/1.jsonx \
		feed/user/99.json feed/99.json feed/0.json feed/nobody feed/user/1 data/user/nobody.json \
		data/nobody data/user/1 in/nothing in/wal2json@ in/events@x ctl/nothing nothing \
		feed/user/9007199254740992.json feed/user/99999999999999999999999999.json; do
		run -1 stat "$MNT/$name"
		[[ "$output" == *"No such file"* ]]
	done
}

@test "an event's file is there the moment its write returns, also when it was looked for before" {
	for i in $(seq 50); do
		[ ! -e "$MNT/feed/$i.json" ]
		[ ! -e "$MNT/feed/user/$i.json" ]
		[ ! -e "$MNT/data/user/$i.json" ]
		put "user:$i" "$i"
		[ -e "$MNT/feed/$i.json" ]
		[ -e "$MNT/feed/user/$i.json" ]
		[ -e "$MNT/data/user/$i.json" ]
	done
}

# name, inode of readdir, inode of stat, for everything that is listed
inodes() {
	within 60 python3 - "$MNT" <<-'END' | sort
	import os, sys
	root = sys.argv[1]
	seen = {}
	def walk(path):
	    for entry in sorted(os.scandir(path), key=lambda e: e.name):
	        inode = os.lstat(entry.path).st_ino
	        assert entry.inode() == inode, (entry.path, entry.inode(), inode)
	        assert seen.setdefault(inode, entry.path) == entry.path, (inode, entry.path, seen[inode])
	        print(os.path.relpath(entry.path, root), inode)
	        if entry.is_dir(follow_symlinks=False):
	            walk(entry.path)
	walk(root)
	END
}

@test "readdir and stat give the same inode, unique, and the same after a remount and after kill -9" {
	fill 30
	inodes >"$WORK/before"
	[ "$(wc -l <"$WORK/before")" -gt 100 ]
	remount
	inodes >"$WORK/after"
	[ -z "$(comm -23 "$WORK/before" "$WORK/after")" ] # nothing is missing or other; ops/ has more
	kill_daemon
	start_daemon
	inodes >"$WORK/after"
	[ -z "$(comm -23 "$WORK/before" "$WORK/after")" ]
	ls -i "$MNT/feed/user" >/dev/null
}

@test "find -inum and ls -i agree with stat" {
	fill 3
	inode=$(stat -c %i "$MNT/feed/user/1.json")
	[ "$(find "$MNT/feed" -inum "$inode")" = "$MNT/feed/user/0000000000000001.json" ]
	[ "$(ls -i "$MNT/feed/user/0000000000000001.json")" = "$inode $MNT/feed/user/0000000000000001.json" ]
}

@test "an event file can be mapped, and read in any piece" {
	fill 10
	python3 - "$MNT/feed/user/1.json" <<-'END'
	import mmap, sys
	with open(sys.argv[1], "rb") as f:
	    whole = f.read()
	    with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
	        assert m[:] == whole
	END
	[ "$(dd if="$MNT/feed/user/1.json" bs=1 skip=2 count=8 status=none)" = sequence ]
}

@test "a listing is frozen at opendir, and a new one has what came" {
	fill 5
	python3 - "$MNT" <<-'END'
	import os, sys
	mnt = sys.argv[1]
	with os.scandir(mnt + "/feed/user") as names:
	    first = next(names)
	    with open(mnt + "/in/events", "wb", buffering=0) as f:
	        for i in range(1000):
	            f.write(b'{"type":"PUT","key":"user:more","value":%d}\n' % i)
	    rest = [entry.name for entry in names]
	assert len(rest) + 1 == 5 + 2, len(rest)
	assert len(os.listdir(mnt + "/feed/user")) == 1005 + 2
	END
	python3 - "$MNT" <<-'END'
	import ctypes, sys
	libc = ctypes.CDLL(None)
	libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
	for call in (libc.readdir, libc.rewinddir, libc.closedir):
	    call.argtypes = [ctypes.c_void_p]
	def count():
	    n = 0
	    while libc.readdir(d):
	        n += 1
	    return n
	d = libc.opendir((sys.argv[1] + "/feed/user").encode())
	before = count()
	with open(sys.argv[1] + "/in/events", "wb", buffering=0) as f:
	    f.write(b'{"type":"PUT","key":"user:yet","value":1}\n')
	assert count() == 0
	libc.rewinddir(d)
	assert count() == before + 1
	libc.closedir(d)
	END
}

@test "a directory of 20,000 events lists all of them once, in order" {
	make_events 1 20000 >"$MNT/in/events"
	# shellcheck disable=SC2010
	ls -f "$MNT/feed/user" | grep '\.json$' >"$WORK/names"
	seq -f '%016.0f.json' 1 20000 | cmp - "$WORK/names"
	ls -l "$MNT/feed/user" >"$WORK/long"
	[ "$(wc -l <"$WORK/long")" -eq 20003 ]
}

@test "times: an event's file has the event's time, the logs that of their newest event" {
	put user:a 1
	now=$(date +%s)
	for file in feed/log.ndjson feed/.tail feed/user/log.ndjson data/user/a.json feed/user/1.json; do
		mtime=$(stat -c %Y "$MNT/$file")
		[ $((now - mtime)) -le 60 ]
		[ $((mtime - now)) -le 1 ]
	done
}

@test "df tells the store's size and the room left" {
	fill 100
	df -k --output=size,used,avail "$MNT" | tail -n 1 >"$WORK/df"
	read -r size used avail <"$WORK/df"
	[ "$size" -gt 0 ]
	[ "$used" -gt 0 ]
	[ "$avail" -gt 0 ]
	real=$(df -k --output=avail "$STORE" | tail -n 1)
	[ "$avail" -le $((real + 1024 * 1024)) ]
}

@test "blocks: tail in small pieces, logs in large ones" {
	fill 2
	[ "$(stat -c %o "$MNT/feed/.tail")" -eq 4096 ]
	[ "$(stat -c %o "$MNT/feed/log.ndjson")" -eq 1048576 ]
}

# What the daemon has read from its files, in bytes.
daemon_read() {
	awk '/^rchar/ { print $2 }' "/proc/$DAEMON/io"
}

@test "dd: a large event is read in small pieces without reading it anew for each" {
	local before
	mkdir "$MNT/data/big"
	awk 'BEGIN { printf "\""; for (i = 0; i < 600000; i++) printf "0123456789"; print "\"" }' >"$MNT/data/big/a.json"
	tr 0 x <"$MNT/data/big/a.json" >"$MNT/data/big/b.json"
	remount
	for file in feed/2.json feed/big/0000000000000002.json feed/log.ndjson feed/big/log.ndjson; do
		before=$(daemon_read)
		dd if="$MNT/$file" bs=8k status=none | cmp - "$MNT/$file"
		echo "$file: $(($(daemon_read) - before)) bytes read"
		[ $(($(daemon_read) - before)) -lt 200000000 ]
	done
}
