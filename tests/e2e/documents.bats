#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# data/ is written with the tools that people have: each save is one event.
# shellcheck disable=SC2016 # scripts for other shells
bats_require_minimum_version 1.5.0
load helpers

ALICE='{"name":"Alice"}'

setup() {
	changefs_setup
	start_daemon
	DATA=$MNT/data/user
	mkdir "$DATA"
	printf '%s\n' "$ALICE" >"$DATA/alice.json"
	log_has 1
}

newest() {
	tail -n 1 "$MNT/feed/log.ndjson"
}

# recorded COUNT TYPE KEY [VALUE [BEFORE]]: the log has COUNT events, and the newest is this one. A value
# is a document without its last newline.
recorded() {
	log_has "$1" || { echo "the log: $(cut -c1-120 "$MNT/feed/log.ndjson")" >&2; return 1; }
	newest | jq -e --arg type "$2" --arg key "$3" --arg value "${4-}" --arg before "${5-}" --argjson given $# '
		def text: if . == null then null else rtrimstr("\n") end;
		.type == $type and .key == $key
		and ($given < 4 or ((.value | text) == $value and .after_snapshot == .value))
		and ($given < 5 or (.before_snapshot | text) == $before)' >/dev/null ||
		{ echo "not the newest event: $(newest)" >&2; return 1; }
}

# one_put COMMAND…: saves {"name":"Bob"} as alice.json, in one event.
one_put() {
	printf '{"name":"Bob"}\n' >"$WORK/bob"
	"$@"
	recorded 2 PUT user:alice '{"name":"Bob"}' "$ALICE"
	cmp "$WORK/bob" "$DATA/alice.json"
	[ "$(stat -c %s "$DATA/alice.json")" -eq 15 ]
}

# ---- ways of saving ----

@test ">: a shell's redirection is one PUT" {
	one_put bash -c 'cat "$1" >"$2"' - "$WORK/bob" "$DATA/alice.json"
	[ "$(stat -c %U "$DATA/alice.json")" = "$(id -un)" ]
}

@test "> with a builtin: the flush in front of the first byte records nothing" {
	one_put bash -c 'echo "{\"name\":\"Bob\"}" >"$1"' - "$DATA/alice.json"
}

@test ">>: appending starts from the document" {
	printf '[1' >"$WORK/begun"
	printf '12' >"$DATA/n.json"
	printf '34\n' >>"$DATA/n.json"
	recorded 3 PUT user:n 1234 12
	run bash -c 'printf ",2]" >>"$1" && printf x' - "$DATA/n.json"
	[ "$status" -ne 0 ]
	recorded 3 PUT user:n 1234 12
}

@test "cp" { one_put cp "$WORK/bob" "$DATA/alice.json"; }

@test "cp -p: the event has the file's time" {
	printf '{"name":"Bob"}\n' >"$WORK/bob"
	touch -d '2024-05-06T07:08:09.123Z' "$WORK/bob"
	cp -p "$WORK/bob" "$DATA/alice.json"
	recorded 2 PUT user:alice
	[ "$(newest | jq .timestamp_ms)" -eq 1714979289123 ]
	[ "$(stat -c %Y "$DATA/alice.json")" -eq 1714979289 ]
}

@test "cp to a new name" {
	printf '[]' >"$WORK/new"
	cp "$WORK/new" "$DATA/new.json"
	recorded 2 PUT user:new '[]'
	[ "$(newest | jq 'has("before_snapshot")')" = false ]
}

@test "mv from another file system and install: a new name is one PUT" {
	printf '{"name":"Bob"}\n' >"$WORK/bob"
	cp "$WORK/bob" "$WORK/bob.2"
	mv "$WORK/bob.2" "$DATA/bob.json"
	recorded 2 PUT user:bob '{"name":"Bob"}'
	install -m 644 "$WORK/bob" "$DATA/bill.json"
	recorded 3 PUT user:bill '{"name":"Bob"}'
}

@test "mv from another file system and install unlink a name that is there: a DELETE and a PUT" {
	printf '{"name":"Bob"}\n' >"$WORK/bob"
	install -m 644 "$WORK/bob" "$DATA/alice.json"
	recorded 3 PUT user:alice '{"name":"Bob"}'
	printf '{"name":"Eve"}\n' >"$WORK/eve"
	mv "$WORK/eve" "$DATA/alice.json"
	recorded 5 PUT user:alice '{"name":"Eve"}'
	[ "$(jq -r .type "$MNT/feed/log.ndjson" | xargs)" = 'PUT DELETE PUT DELETE PUT' ]
}

@test "rsync" {
	one_put rsync "$WORK/bob" "$DATA/alice.json"
	[ -z "$(find "$DATA" -name '.*' -type f)" ]
}

@test "rsync -a: the event has the file's time, a second run sends nothing" {
	mkdir "$WORK/from"
	printf '{"name":"Bob"}\n' >"$WORK/from/alice.json"
	printf '{"name":"Eve"}\n' >"$WORK/from/eve.json"
	touch -d '2024-05-06T07:08:09Z' "$WORK"/from/*
	rsync -a --no-perms "$WORK/from/" "$DATA/"
	log_has 3
	[ "$(stat -c %Y "$DATA/eve.json")" -eq 1714979289 ]
	! rsync -a --no-perms --out-format=%n "$WORK/from/" "$DATA/" | grep -qv '/$' || return 1
	log_has 3
}

@test "rsync --inplace: longer, shorter, equal" {
	local n=1
	for text in '{"name":"a longer name than before, and by far"}' '{"n":1}' '{"n":2}'; do
		printf '%s\n' "$text" >"$WORK/file"
		rsync --inplace --no-whole-file -I "$WORK/file" "$DATA/alice.json"
		n=$((n + 1))
		recorded $n PUT user:alice "$text"
	done
	rsync --inplace --no-whole-file -I "$WORK/file" "$DATA/alice.json"
	log_has 4
}

@test "rsync --inplace of a document of 300 KB, changed in the middle" {
	awk 'BEGIN { printf "["; for (i = 0; i < 30000; i++) printf "%010d,", i + 1000000000; print "0]" }' >"$WORK/big"
	cp "$WORK/big" "$DATA/big.json"
	sed -i s/1000015000/9999999999/ "$WORK/big"
	rsync --inplace --no-whole-file -I "$WORK/big" "$DATA/big.json"
	log_has 3
	cmp "$WORK/big" "$DATA/big.json"
}

@test "sed -i" { one_put sed -i s/Alice/Bob/ "$DATA/alice.json"; }

@test "sed -i.bak: the old text is beside it, and one PUT" {
	one_put sed -i.bak s/Alice/Bob/ "$DATA/alice.json"
	[ "$(cat "$DATA/alice.json.bak")" = "$ALICE" ]
	departed
	[ "$(grep -c user:alice "$MNT/feed/log.ndjson")" -eq 2 ]
}

# The time after which a document that was renamed away is deleted has passed.
departed() {
	printf 1 >"$DATA/clock.json"
	mv "$DATA/clock.json" "$DATA/clock"
	wait_until 10 clock_deleted
}

clock_deleted() {
	grep -q '"type":"DELETE","key":"user:clock"' "$MNT/feed/log.ndjson"
}

@test "perl -i" { one_put perl -pi -e s/Alice/Bob/ "$DATA/alice.json"; }

# vim NAME… with a setting: saves and ends.
vim_saves() {
	printf '{"name":"Bob"}\n' >"$WORK/bob"
	within 20 vim -es -u NONE -i NONE -c "$1" -c '%s/Alice/Bob/' -c 'wq' "$DATA/alice.json" </dev/null
	recorded 2 PUT user:alice '{"name":"Bob"}' "$ALICE"
	[ -z "$(find "$DATA" -name '.*.sw?')" ]
}

@test "vim with its defaults" { vim_saves 'set nocompatible'; }
@test "vim, backupcopy=no: the old file is renamed away first" { vim_saves 'set nocompatible writebackup backupcopy=no backupskip='; }
@test "vim, backupcopy=yes: the old file is copied" { vim_saves 'set nocompatible writebackup backupcopy=yes backupskip='; }
@test "vim, backup: the old text stays beside it as a scratch file" {
	vim_saves 'set nocompatible backup backupcopy=no backupskip='
	[ "$(cat "$DATA/alice.json~")" = "$ALICE" ]
	departed
	[ "$(grep -c 'user:alice' "$MNT/feed/log.ndjson")" -eq 2 ]
}
@test "vim with a swap file in the directory" { vim_saves 'set nocompatible swapfile directory=.'; }

@test "nano" {
	# nano needs a terminal: ^K takes the line out, ^O saves, ^X leaves.
	printf '{"name":"Bob"}\n' >"$WORK/bob"
	start env TERM=xterm script -qec "nano -I '$DATA/alice.json'" /dev/null < <(
		wait_until 10 nano_has_it
		printf '\x0b{"name":"Bob"}\x0f\r\x18'
		wait_until 10 log_has 2
	)
	wait_until 15 log_has 2
	recorded 2 PUT user:alice '{"name":"Bob"}' "$ALICE"
}

nano_has_it() {
	pgrep -f "^nano -I $DATA/alice.json" >/dev/null && sleep 0.3
}

@test "tee" {
	one_put bash -c 'tee "$2" <"$1" >/dev/null' - "$WORK/bob" "$DATA/alice.json"
}

@test "tee -a" {
	printf 12 >"$DATA/n.json"
	printf 34 | tee -a "$DATA/n.json"
	recorded 3 PUT user:n 1234 12
}

@test "dd, with odd blocks and conv=fsync" {
	one_put dd if="$WORK/bob" of="$DATA/alice.json" bs=7 conv=fsync status=none
}

@test "dd conv=notrunc writes into the document" {
	printf 'Bobby' | dd of="$DATA/alice.json" conv=notrunc bs=1 seek=9 status=none
	recorded 2 PUT user:alice '{"name":"Bobby"}' "$ALICE"
}

@test "dd oflag=append conv=notrunc" {
	printf 12 >"$DATA/n.json"
	printf 34 | dd of="$DATA/n.json" oflag=append conv=notrunc status=none
	recorded 3 PUT user:n 1234
}

@test "Python: open and write, os.replace, r+, tempfile" {
	python3 - "$DATA" <<-'END'
		import json, os, sys, tempfile
		d = sys.argv[1]
		with open(d + '/alice.json', 'w') as f:
		    json.dump({'v': 1}, f, indent=1)
		with open(d + '/alice.json.tmp', 'w') as f:
		    f.write('{"v":2}')
		os.replace(d + '/alice.json.tmp', d + '/alice.json')
		with open(d + '/alice.json', 'r+') as f:
		    assert f.read() == '{"v":2}'
		    f.seek(5)
		    f.write('3')
		    f.flush()
		    assert os.stat(d + '/alice.json').st_size == 7
		    assert open(d + '/alice.json').read() == '{"v":2}', 'nobody sees it before the close'
		fd, name = tempfile.mkstemp(dir=d)
		os.write(fd, b'{"v":4}')
		os.fsync(fd)
		os.close(fd)
		os.rename(name, d + '/alice.json')
	END
	log_has 5
	[ "$(sed 1d "$MNT/feed/log.ndjson" | jq -r '.value | fromjson | .v' | xargs)" = '1 2 3 4' ]
	[ "$(sed 1,2d "$MNT/feed/log.ndjson" | jq -r '.before_snapshot | fromjson | .v' | xargs)" = '1 2 3' ]
}

@test "jq: from a document into another" {
	jq '.name = "Bob"' "$DATA/alice.json" >"$DATA/bob.json"
	recorded 2 PUT user:bob
	[ "$(jq -r .name "$DATA/bob.json")" = Bob ]
}

@test "tar x and cp -r into data/: a collection of documents" {
	mkdir -p "$WORK/tree/order"
	for i in 1 2 3; do printf '{"n":%d}' $i >"$WORK/tree/order/$i.json"; done
	tar -C "$WORK/tree" -cf "$WORK/tree.tar" order
	tar -C "$MNT/data" --no-same-owner -xf "$WORK/tree.tar"
	log_has 4
	diff -r "$WORK/tree/order" "$MNT/data/order"
	cp -r "$WORK/tree/order" "$MNT/data/copy"
	log_has 7
	diff -r "$WORK/tree/order" "$MNT/data/copy"
	[ "$(names "$MNT/data")" = 'copy order user' ]
}

@test "git: a repository beside the documents tracks them" {
	git -C "$DATA" --git-dir="$WORK/git" --work-tree=. init -q
	git --git-dir="$WORK/git" --work-tree="$DATA" add alice.json
	git --git-dir="$WORK/git" --work-tree="$DATA" -c user.name=a -c user.email=a@b commit -qm one
	printf '{"name":"Bob"}\n' >"$DATA/alice.json"
	[ "$(git --git-dir="$WORK/git" --work-tree="$DATA" status --porcelain)" = ' M alice.json' ]
	git --git-dir="$WORK/git" --work-tree="$DATA" checkout -q alice.json
	[ "$(cat "$DATA/alice.json")" = "$ALICE" ]
	recorded 4 PUT user:alice "$ALICE" # git unlinks the file and makes it anew
}

@test "fsync records before the close" {
	python3 - "$DATA/alice.json" "$MNT/feed/log.ndjson" <<-'END'
		import os, sys
		count = lambda: len(open(sys.argv[2]).readlines())
		fd = os.open(sys.argv[1], os.O_RDWR)
		os.write(fd, b'{"name":"Bobby"}\n')
		assert count() == 1
		os.fsync(fd)
		assert count() == 2
		os.fsync(fd)
		os.close(fd)
	END
	recorded 2 PUT user:alice '{"name":"Bobby"}'
}

@test "flush at each close of a duplicate: the last one wins" {
	{ cat <(printf '[1'); cat <(printf ',2]'); } >"$DATA/list.json" || true
	recorded 2 PUT user:list '[1,2]'
}

# ---- removing and renaming ----

@test "rm is a DELETE with the last text" {
	rm "$DATA/alice.json"
	recorded 2 DELETE user:alice
	[ "$(newest | jq -c '[.value, .before_snapshot]')" = "$(jq -nc --arg a "$ALICE"$'\n' '[null, $a]')" ]
	[ ! -e "$DATA/alice.json" ]
	run rm "$DATA/alice.json"
	[ "$status" -eq 1 ]
	log_has 2
}

@test "mv of a document to another name is a DELETE and a PUT, together" {
	mv "$DATA/alice.json" "$DATA/bob.json"
	log_has 3
	[ "$(sed 1d "$MNT/feed/log.ndjson" | jq -r '[.type, .key] | join(" ")' | xargs)" = 'DELETE user:alice PUT user:bob' ]
	[ "$(cat "$DATA/bob.json")" = "$ALICE" ]
	[ "$(names "$DATA")" = bob.json ]
}

@test "mv of a document onto another, and into another collection" {
	printf '{}' >"$DATA/bob.json"
	mv -f "$DATA/alice.json" "$DATA/bob.json"
	recorded 4 PUT user:bob "$ALICE" '{}'
	mkdir "$MNT/data/customer"
	mv "$DATA/bob.json" "$MNT/data/customer/"
	recorded 6 PUT customer:bob "$ALICE"
	[ -z "$(names "$DATA")" ]
	run mv -n "$MNT/data/customer/bob.json" "$MNT/data/customer/bob.json"
	log_has 6
}

@test "mv to a scratch name: the name is gone at once, the DELETE comes after two seconds" {
	local start
	start=$(now_ms)
	mv "$DATA/alice.json" "$DATA/alice.json.bak"
	[ ! -e "$DATA/alice.json" ]
	[ "$(names "$DATA")" = alice.json.bak ]
	[ "$(cat "$DATA/alice.json.bak")" = "$ALICE" ]
	log_has 1 || [ $(($(now_ms) - start)) -ge 2000 ]
	wait_until 10 log_has 2
	[ $(($(now_ms) - start)) -ge 2000 ]
	recorded 2 DELETE user:alice
	[ "$(newest | jq .timestamp_ms)" -ge "$start" ]
}

@test "mv away and back records nothing" {
	mv "$DATA/alice.json" "$DATA/x"
	mv "$DATA/x" "$DATA/alice.json"
	[ "$(cat "$DATA/alice.json")" = "$ALICE" ]
	departed
	[ "$(grep -c user:alice "$MNT/feed/log.ndjson")" -eq 1 ]
}

@test "a name that was given up is deleted at unmount; after kill -9 the document is still there" {
	mv "$DATA/alice.json" "$DATA/x"
	remount
	recorded 2 DELETE user:alice
	printf '%s' "$ALICE" >"$DATA/alice.json"
	mv "$DATA/alice.json" "$DATA/x"
	kill_daemon
	start_daemon
	[ "$(cat "$DATA/alice.json")" = "$ALICE" ]
	[ ! -e "$DATA/x" ]
}

@test "a writer in in/events who writes the name anew in those two seconds keeps it" {
	mv "$DATA/alice.json" "$DATA/x"
	put user:alice '{"v":9}'
	same_bytes "$DATA/alice.json" '{"v":9}'
	departed
	same_bytes "$DATA/alice.json" '{"v":9}'
	[ "$(grep -c '"DELETE","key":"user:alice"' "$MNT/feed/log.ndjson")" -eq 0 ]
}

@test "a scratch file that is renamed onto a document is one PUT, with its time if one was set" {
	printf '{"v":1}' >"$DATA/.new"
	touch -d '2024-05-06T07:08:09.5Z' "$DATA/.new"
	mv "$DATA/.new" "$DATA/alice.json"
	recorded 2 PUT user:alice '{"v":1}' "$ALICE"
	[ "$(newest | jq .timestamp_ms)" -eq 1714979289500 ]
	[ "$(names "$DATA")" = alice.json ]
}

@test "who has a scratch file open when it becomes a document goes on writing the document" {
	exec 5>"$DATA/x"
	printf '[1' >&5
	run mv "$DATA/x" "$DATA/list.json"
	[ "$status" -ne 0 ]
	refused EINVAL /data/user/x
	printf ']' >&5
	mv "$DATA/x" "$DATA/list.json"
	recorded 2 PUT user:list '[1]'
	printf ' ' >&5
	exec 5>&-
	recorded 3 PUT user:list '[1] '
}

@test "mkdir makes a collection, rmdir removes an empty one, feed/ keeps what happened" {
	mkdir "$MNT/data/order"
	[ "$(names "$MNT/data")" = 'order user' ]
	[ -d "$MNT/feed/order" ]
	run mkdir "$MNT/data/order"
	[ "$status" -eq 1 ]
	rmdir "$MNT/data/order"
	[ "$(names "$MNT/data")" = user ]
	wait_until 5 gone "$MNT/feed/order"
	run rmdir "$DATA"
	[[ $output == *"not empty"* ]]
	rm "$DATA/alice.json"
	rmdir "$DATA"
	[ -z "$(names "$MNT/data")" ]
	[ "$(wc -l <"$MNT/feed/user/log.ndjson")" -eq 2 ]
	remount
	[ -z "$(names "$MNT/data")" ]
	put user:b 1
	[ "$(names "$MNT/data")" = user ]
	mkdir "$MNT/data/empty"
	remount
	[ "$(names "$MNT/data")" = 'empty user' ]
}

gone() {
	[ ! -e "$1" ]
}

@test "rm -r of a collection deletes each document" {
	make_events 1 50 >"$MNT/in/events"
	rm -r "$DATA"
	log_has 102
	[ -z "$(names "$MNT/data")" ]
}

@test "mv of a collection copies its documents and deletes them" {
	mv "$DATA" "$MNT/data/people"
	[ "$(names "$MNT/data")" = people ]
	[ "$(cat "$MNT/data/people/alice.json")" = "$ALICE" ]
	log_has 3
}

# ---- what is not a change ----

@test "identical bytes record nothing, however they are written" {
	printf '%s\n' "$ALICE" >"$DATA/alice.json"
	printf '%s\n' "$ALICE" >"$WORK/same"
	cp "$WORK/same" "$DATA/alice.json"
	rsync -I "$WORK/same" "$DATA/alice.json"
	sed -i s/Bob/Bob/ "$DATA/alice.json"
	cp "$WORK/same" "$DATA/.same"
	mv "$DATA/.same" "$DATA/alice.json"
	log_has 1
}

@test "chmod, chown, touch and truncate to the same size change nothing and succeed" {
	chmod 600 "$DATA/alice.json"
	chown "$(id -u)" "$DATA/alice.json"
	touch "$DATA/alice.json"
	touch -d yesterday "$DATA/alice.json"
	truncate -s 17 "$DATA/alice.json"
	log_has 1
	[ "$(cat "$DATA/alice.json")" = "$ALICE" ]
}

@test "touch of a new name: an empty file until it is written" {
	touch "$DATA/new.json"
	[ "$(stat -c %s "$DATA/new.json")" -eq 0 ]
	[ "$(names "$DATA")" = 'alice.json new.json' ]
	[ -z "$(cat "$DATA/new.json")" ]
	log_has 1
	printf '[]' >"$DATA/new.json"
	recorded 2 PUT user:new '[]'
	[ "$(names "$DATA")" = 'alice.json new.json' ]
	touch "$DATA/other.json"
	rm "$DATA/other.json"
	[ ! -e "$DATA/other.json" ]
	log_has 2
}

@test "scratch files: written, read, listed, renamed, removed, gone after a remount" {
	for name in .alice.json.Xy12 sedAb12 4913 alice.json~ log.ndjson tail; do
		printf 'text of %s' "$name" >"$DATA/$name"
		[ "$(cat "$DATA/$name")" = "text of $name" ]
	done
	[ "$(names "$DATA")" = '.alice.json.Xy12 4913 alice.json alice.json~ log.ndjson sedAb12 tail' ]
	mv "$DATA/4913" "$DATA/4914"
	[ "$(cat "$DATA/4914")" = 'text of 4913' ]
	chmod 640 "$DATA/4914"
	[ "$(stat -c %a "$DATA/4914")" = 640 ]
	rm "$DATA/tail"
	[ ! -e "$DATA/tail" ]
	log_has 1
	remount
	[ "$(names "$DATA")" = alice.json ]
}

# ---- what is refused ----

@test "what is no JSON fails: its beginning in write(2), its end at the close" {
	run bash -c 'echo "hello" >"$1"' - "$DATA/alice.json"
	[ "$status" -eq 1 ]
	refused EINVAL /data/user/alice.json
	printf '{"name":' >"$WORK/half"
	run cp "$WORK/half" "$DATA/alice.json"
	[ "$status" -eq 1 ]
	[[ $output == *"Invalid argument"* ]]
	refused EINVAL /data/user/alice.json
	run cp "$WORK/half" "$DATA/new.json"
	[ "$status" -eq 1 ]
	[ ! -e "$DATA/new.json" ]
	printf '{}{}' >"$DATA/.two"
	run mv "$DATA/.two" "$DATA/alice.json"
	[ "$status" -eq 1 ]
	[ -e "$DATA/.two" ]
	run python3 -c 'import os, sys; os.truncate(sys.argv[1], 0)' "$DATA/alice.json"
	[ "$status" -ne 0 ]
	: >"$DATA/alice.json"
	refused EINVAL /data/user/alice.json
	[ "$(cat "$DATA/alice.json")" = "$ALICE" ]
	log_has 1
}

@test "a writer that goes on after a refused write records nothing" {
	run bash -c 'printf "{}" ; printf "x" ; printf " "' >"$DATA/alice.json"
	[ "$(cat "$DATA/alice.json")" = "$ALICE" ]
	log_has 1
}

@test "a writer killed half way changes nothing" {
	start bash -c 'exec 5>"$1"; printf "{\"name\":\"half" >&5; sleep 60' - "$DATA/alice.json"
	local writer=$CHILD
	wait_until 5 process_reads "$writer" alice.json
	kill -KILL "$writer"
	wait_until 5 process_gone "$writer"
	[ "$(cat "$DATA/alice.json")" = "$ALICE" ]
	log_has 1
}

@test "two writers: each its own text, the last close wins" {
	python3 - "$DATA/alice.json" <<-'END'
		import sys
		name = sys.argv[1]
		was = open(name).read()
		five, six = (open(name, 'w') for _ in range(2))
		for f, text in (five, '{"by":'), (six, '{"by":6}'), (five, '5}'):
		    f.write(text)
		    f.flush()
		assert open(name).read() == was
		six.close()
		assert open(name).read() == '{"by":6}'
		five.close()
		assert open(name).read() == '{"by":5}'
	END
	recorded 3 PUT user:alice '{"by":5}' '{"by":6}'
}

@test "what is written through /proc/self/fd is the same file" {
	exec 5<>"$DATA/alice.json"
	printf '{"v":1}          ' >/proc/self/fd/5
	exec 5>&-
	recorded 2 PUT user:alice '{"v":1}          '
}

@test "a document over its limit: EFBIG in write(2), nothing recorded" {
	config '{"max_document_bytes":1000000}'
	awk 'BEGIN { printf "\""; for (i = 0; i < 100001; i++) printf "0123456789"; printf "\"" }' >"$WORK/big"
	run cp "$WORK/big" "$DATA/alice.json"
	[ "$status" -eq 1 ]
	[[ $output == *"File too large"* ]]
	refused EFBIG /data/user/alice.json
	[ "$(cat "$DATA/alice.json")" = "$ALICE" ]
	log_has 1
}

@test "names that no key has, links and directories are refused with a reason" {
	run bash -c 'echo 1 >"$1/%41.json"' - "$DATA"
	[ "$status" -eq 1 ]
	refused EINVAL /data/user/%41.json
	run bash -c 'echo 1 >"$1/%_%..json"' - "$DATA" # the empty key
	[ "$status" -eq 1 ]
	refused EINVAL /data/user/%_%..json
	[ ! -e "$DATA/%_%..json" ]
	run mkdir "$DATA/sub"
	[ "$status" -eq 1 ]
	refused EPERM /data/user/sub
	run ln -s alice.json "$DATA/link"
	[ "$status" -eq 1 ]
	run ln "$DATA/alice.json" "$DATA/hard.json"
	[ "$status" -eq 1 ]
	run mkfifo "$DATA/pipe"
	[ "$status" -eq 1 ]
	run bash -c 'echo 1 >"$1/file.json"' - "$MNT/data"
	[ "$status" -eq 1 ]
	refused EPERM /data/file.json
	run mv "$DATA/alice.json" "$MNT/feed/user/"
	[ "$status" -eq 1 ]
	log_has 1
}

@test "keys of every kind are written by their names" {
	local name
	for name in 'a b' 'ä€😀' 'a%2Fb' '%2Ehidden' '%_lone' '%.' "quote'\"" 'a:b' '%0A'; do
		printf '{"n":1}' >"$DATA/$name.json"
		[ "$(cat "$DATA/$name.json")" = '{"n":1}' ]
	done
	[ "$(sed 1d "$MNT/feed/log.ndjson" | jq -c .key | xargs -d '\n')" = \
		'"user:a b" "user:ä€😀" "user:a/b" "user:.hidden" "lone" "user:" "user:quote'\''\"" "user:a:b" "user:\n"' ]
	[ "$(grep '"lone"' "$MNT/feed/log.ndjson" | jq -r .metadata.table)" = user ]
}

# ---- sizes, inodes ----

@test "a large document is saved in one piece by every tool" {
	awk 'BEGIN { printf "["; for (i = 0; i < 600000; i++) printf "%d,", i; print "0]" }' >"$WORK/big"
	cp "$WORK/big" "$DATA/big.json"
	cmp "$WORK/big" "$DATA/big.json"
	dd if="$WORK/big" of="$DATA/dd.json" bs=4k status=none
	cmp "$WORK/big" "$DATA/dd.json"
	python3 -c 'import json, sys; json.dump(json.load(open(sys.argv[1])), open(sys.argv[2], "w"))' "$WORK/big" "$DATA/py.json"
	cmp <(jq -c . "$WORK/big") <(jq -c . "$DATA/py.json")
	log_has 4
}

@test "the inode number of a document stays the same over saves and a remount" {
	local ino
	ino=$(stat -c %i "$DATA/alice.json")
	sed -i s/Alice/Bob/ "$DATA/alice.json"
	[ "$(stat -c %i "$DATA/alice.json")" = "$ino" ]
	[ "$(find "$DATA" -name alice.json -printf %i)" = "$ino" ]
	exec 5>"$DATA/alice.json"
	[ "$(stat -c %i "$DATA/alice.json")" = "$ino" ]
	exec 5>&-
	remount
	[ "$(stat -c %i "$DATA/alice.json")" = "$ino" ]
}

@test "readers of a document that is saved again and again: each reads one version whole" {
	python3 - "$DATA/big.json" <<-'END'
		import mmap, os, sys, threading
		name = sys.argv[1]
		size = lambda n: 150000 + n * 7919
		text = lambda n: b'"' + bytes([48 + n % 10]) * size(n % 10) + b'"'
		def save(n):
		    with open(name, 'wb') as f:
		        f.write(text(n))
		save(0)
		whole = {text(n) for n in range(10)}
		stop = threading.Event()
		def write(first):
		    n = first
		    while not stop.is_set():
		        if first:
		            save(n)
		        else:
		            with open(name + '.tmp', 'wb') as f:
		                f.write(text(n))
		            os.rename(name + '.tmp', name)
		        n += 1
		faults = []
		def read():
		    for i in range(150):
		        with open(name, 'rb') as f:
		            stated = os.fstat(f.fileno()).st_size
		            got = f.read()
		            if i % 3 == 0:
		                mapped = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
		                if mapped[:] != got:
		                    faults.append('mapped otherwise')
		                mapped.close()
		        if got not in whole:
		            faults.append('torn: %d bytes' % len(got))
		        if stated != len(got):
		            faults.append('stat %d, read %d' % (stated, len(got)))
		threads = [threading.Thread(target=write, args=(n,)) for n in (0, 1, 5)]
		readers = [threading.Thread(target=read) for _ in range(4)]
		for t in threads + readers: t.start()
		for t in readers: t.join()
		stop.set()
		for t in threads: t.join()
		sys.exit('\n'.join(faults[:5]) if faults else 0)
	END
	sed 1d "$MNT/feed/user/log.ndjson" | jq -s -e 'map(.value | fromjson | test("^(.)\\1*$")) | all' >/dev/null
}

@test "eight writers of one document: every event has the one before it as its before" {
	for w in 1 2 3 4 5 6 7 8; do
		start bash -c 'for i in $(seq 25); do echo "{\"w\":$2,\"i\":$i}" >"$1"; done' - "$DATA/one.json" "$w"
	done
	for pid in "${CHILDREN[@]}"; do wait "$pid"; done
	log_has 201
	sed 1d "$MNT/feed/log.ndjson" | jq -s -e '[range(1; length) as $i | .[$i].before_snapshot == .[$i - 1].value] | all' >/dev/null
	[ "$(sed 1d "$MNT/feed/log.ndjson" | jq -r .value | sort -u | grep -c w)" -eq 200 ]
}
