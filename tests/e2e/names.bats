#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Names that are too long for a file: cut, with a hash, and found again.
# shellcheck disable=SC2012,SC2154 # ls is what is tested; bats sets stderr
bats_require_minimum_version 1.5.0
load helpers

hash_of() {
	printf '%s' "$1" | sha256sum | cut -c 1-32
}

# x COUNT: so many x.
x() {
	printf "%$1s" '' | tr ' ' x
}

# A second opinion on every document's name, written down apart from the daemon's. Each document's text
# is its key as JSON. `put`: writes the keys of the seed's many kinds; `check`: the listing, the inode
# numbers and the bytes are what they have to be.
names_model() {
	python3 - "$MNT" "$1" <<-'END'
	import hashlib, json, os, random, sys
	mnt, what = sys.argv[1:]
	rnd = random.Random(7)
	def unit(c, first):
	    if ord(c) < 32 or ord(c) == 127 or c in "/%" or (c == "." and first):
	        return b"%%%02X" % ord(c)
	    return c.encode()
	def name_of(key):
	    body = [] if key.startswith("user:") else [b"%_"]
	    rest = key.removeprefix("user:")
	    units = body + [unit(c, i == 0) for i, c in enumerate(rest)]
	    name = b"".join(units)
	    if name[-33:-32] == b"~" and all(c in b"0123456789abcdef" for c in name[-32:]):
	        name = name[:-1] + b"%%%02X" % name[-1]
	    if len(name) <= 250:
	        return name + b".json"
	    prefix = b""
	    for u in units:
	        if len(prefix + u) > 217:
	            break
	        prefix += u
	    return prefix + b"~" + hashlib.sha256(key.encode()).hexdigest()[:32].encode() + b".json"
	keys = set()
	for bytes_ in list(range(245, 265)) + [300, 1000, 2048, 4090, 4091]:
	    for piece in ["x", "%", "\u00e9", "\u6f22", "\U0001f600", "a/", "ab\n", "x\u00e9%\u6f22", "."]:
	        text = piece * (bytes_ // len(piece.encode()))
	        text += "y" * (bytes_ - len(text.encode()))
	        keys |= {"user:" + text, text}
	for i in range(300):
	    n = rnd.randrange(60, 300)
	    keys.add("user:" + "".join(rnd.choice("x%\u00e9\u6f22\U0001f600/~.0") for _ in range(n)))
	same = "user:" + "s" * 300
	keys |= {same + str(i) for i in range(20)} | {same}
	for key in sorted(keys)[::5]:  # imitations of names that there are
	    keys.add("user:" + name_of(key)[:-5].decode())
	keys = {k for k in keys if len(k.encode()) <= 4096}
	if what == "put":
	    with open(mnt + "/in/events", "w", encoding="utf-8") as f:
	        for key in sorted(keys):
	            f.write(json.dumps({"type": "PUT", "key": key, "value": json.dumps(key),
	                                "metadata": {"table": "user"}}) + "\n")
	expected = {name_of(key): key for key in keys}
	assert len(expected) == len(keys) > 900
	there = os.fsencode(mnt + "/data/user")
	listed = {entry.name: entry.inode() for entry in os.scandir(there)}
	assert listed.keys() == expected.keys(), sorted(set(listed) ^ set(expected))[:2]
	assert len(set(listed.values())) == len(listed)
	for name, key in expected.items():
	    with open(there + b"/" + name, encoding="utf-8", newline="") as f:
	        text = f.read()
	        assert json.loads(text) == key, (name, key)
	        assert os.fstat(f.fileno()).st_ino == os.stat(there + b"/" + name).st_ino == listed[name]
	        assert os.fstat(f.fileno()).st_size == len(text.encode())
	END
}

@test "keys of any length and of any characters are listed, opened and kept over a remount (scandir, open, stat)" {
	names_model put
	remount # nothing of the kernel's memory helps
	names_model check
	find "$MNT/data" -type f -exec cat {} + >"$WORK/found"
	[ "$(jq -s length "$WORK/found")" -eq "$(find "$MNT/data" -type f -printf . | wc -c)" ]
}

@test "two keys with the same 300 bytes at their beginning have a file each (ls, cat, rm by an event)" {
	same=$(x 300)
	put "user:${same}1" 1 "user:${same}2" 2 "user:$same" 3 user:short 4
	prefix=$(x 217)
	[ "$(ls "$MNT/data/user" | wc -l)" -eq 4 ]
	for i in 1 2; do
		name=$prefix~$(hash_of "user:$same$i").json
		[ "${#name}" -eq 255 ]
		[[ $(ls "$MNT/data/user") == *"$name"* ]]
		same_bytes "$MNT/data/user/$name" "$i"
	done
	same_bytes "$MNT/data/user/$prefix~$(hash_of "user:$same").json" 3
	send "{\"type\":\"DELETE\",\"key\":\"user:${same}2\"}"
	run -1 --separate-stderr cat "$MNT/data/user/$name"
	[[ $stderr == *'No such file or directory'* ]]
	[ "$(ls "$MNT/data/user" | wc -l)" -eq 3 ]
	put "user:${same}2" 5
	same_bytes "$MNT/data/user/$name" 5
}

@test "a key that imitates a cut name has another name, and cannot hide a document (cat)" {
	long=$(x 300)
	cut=$(x 217)~$(hash_of "user:$long")
	short=a~$(hash_of a)
	last=$(printf %%%02X "'${short: -1}")
	put "user:$cut" 1 "user:$short" 2
	[ ! -e "$MNT/data/user/$cut.json" ]
	[ ! -e "$MNT/data/user/$short.json" ]
	same_bytes "$MNT/data/user/${short%?}$last.json" 2
	same_bytes "$MNT/data/user/$(x 217)~$(hash_of "user:$cut").json" 1
	put "user:$long" 3
	same_bytes "$MNT/data/user/$cut.json" 3
	[ "$(ls "$MNT/data/user" | wc -l)" -eq 3 ]
}

@test "names that no document has are ENOENT, also such as could be cut ones (cat, stat)" {
	put "user:$(x 300)" 1 "order:$(x 300)" 1
	for name in "$(x 217)~$(hash_of other).json" "$(x 216)~$(hash_of "user:$(x 300)").json" \
		"$(x 217)~$(hash_of "user:$(x 300)")" "$(x 217)~$(hash_of "user:$(x 300)" | tr a-f A-F).json" \
		"$(x 217)~$(hash_of "order:$(x 300)").json" "%2~$(hash_of a).json"; do
		run -1 cat "$MNT/data/user/$name"
		[[ $output == *'No such file or directory'* ]]
	done
	run -1 stat "$MNT/data/$(x 222)~$(hash_of other)"
	[[ $output == *'No such file or directory'* ]]
	run -1 cat "$MNT/data/user/$(x 251).json"
	[[ $output == *'File name too long'* ]]
}

@test "collections with names of 1,000 bytes are directories in feed/ and data/ (ls, cat, stat, find)" {
	send "$(printf '{"type":"PUT","key":"k%d","value":"%d","metadata":{"table":"%s"}}\n' \
		1 1 "$(x 999)a" 2 2 "$(x 999)b" 3 3 user 4 4 "$(x 250).json")"
	a=$(x 222)~$(hash_of "$(x 999)a")
	b=$(x 222)~$(hash_of "$(x 999)b")
	c=$(x 250).json
	c=$(x 222)~$(hash_of "$c") # 257 bytes with its last one as %6E
	for round in first second; do
		[ "$(names "$MNT/data")" = "$(printf '%s\n' user "$a" "$b" "$c" | LC_ALL=C sort | xargs)" ]
		[ "$(stat -c %h "$MNT/data" "$MNT/feed" | xargs)" = "6 6" ]
		[ "$(ls "$MNT/feed/$a")" = $'0000000000000001.json\nlog.ndjson\ntail' ]
		[ "$(jq -r .key "$MNT/feed/$b/log.ndjson")" = k2 ]
		[ "$(cat "$MNT/data/$a/"*.json "$MNT/data/$b/"*.json "$MNT/data/$c/"*.json)" = 124 ]
		[ "$(find "$MNT/feed" -type f -name '0*.json' | wc -l)" -eq 4 ]
		[ "$(stat -c %i "$MNT/data/$a")" -eq "$(find "$MNT/data" -mindepth 1 -maxdepth 1 -name "$a" -printf %i)" ]
		[ "$round" = second ] || remount
	done
}

@test "a tree with cut names can be copied (cp -r, rsync, tar)" {
	put "user:$(x 4091)" 1 "user:$(x 300)" 2 "$(x 500):1" 3
	cp -r "$MNT/data" "$WORK/cp"
	rsync -a "$MNT/data/" "$WORK/rsync"
	tar -C "$MNT" -cf - data | tar -C "$WORK" -xf -
	for copy in cp rsync data; do
		diff -r "$MNT/data" "$WORK/$copy"
		[ "$(find "$WORK/$copy" -type f | wc -l)" -eq 3 ]
	done
}

@test "a document with a cut name is written, edited and removed (bash, sed -i, mv, rm)" {
	key=user:$(x 300)
	put "$key" 1 user:a 4
	cd "$MNT/data/user"
	name=$(x 217)~$(hash_of "$key").json
	echo 2 >"$name"
	same_bytes "$name" $'2\n'
	sed -i s/2/3/ "$name"
	same_bytes "$name" $'3\n'
	mv a.json "$name"
	same_bytes "$name" 4
	rm "$name"
	[ ! -e "$name" ]
	cd "$WORK"
	[ "$(jq -r '[.type, .key] | join(" ")' "$MNT/feed/log.ndjson" | tail -n 5)" = "PUT $key
PUT $key
DELETE user:a
PUT $key
DELETE $key" ]
}

@test "a cut name whose document has left tells the key as long as something has it (mv, touch)" {
	key=user:$(x 300)
	put "$key" 1
	cd "$MNT/data/user"
	name=$(x 217)~$(hash_of "$key").json
	mv "$name" old
	touch "$name"
	wait_until 20 log_has 2 # the DELETE
	[ "$(stat -c %s "$name")" -eq 0 ]
	[ "$(names .)" = "old $name" ]
	echo 2 >"$name"
	same_bytes "$name" $'2\n'
	cd "$WORK"
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq -r .key)" = "$key" ]
}

@test "a new document cannot be made by a cut name, which does not tell its key (bash, mv)" {
	put user:a 1
	name=$MNT/data/user/$(x 217)~$(hash_of "user:$(x 300)").json
	run ! tee "$name" <<<2
	[[ $output == *'Operation not permitted'* ]]
	refused EPERM "${name#"$MNT"}"
	run ! mv "$MNT/data/user/a.json" "$name"
	[[ $output == *'Operation not permitted'* ]]
	same_bytes "$MNT/data/user/a.json" 1
	log_has 1
}

@test "a collection with a cut name is removed and made again (rmdir, mkdir)" {
	table=$(x 1000)
	send "{\"type\":\"PUT\",\"key\":\"k\",\"value\":\"1\",\"metadata\":{\"table\":\"$table\"}}"
	cut=$(x 222)~$(hash_of "$table")
	rm "$MNT/data/$cut/%_k.json"
	rmdir "$MNT/data/$cut"
	[ ! -e "$MNT/data/$cut" ]
	mkdir "$MNT/data/$cut"
	echo 2 >"$MNT/data/$cut/b.json"
	[ "$(tail -n 1 "$MNT/feed/$cut/log.ndjson" | jq -r .key)" = "$table:b" ]
	run ! mkdir "$MNT/data/$(x 222)~$(hash_of other)"
	[[ $output == *'Invalid argument'* ]]
}

@test "ctl/errors tells the whole path of a cut name (tee)" {
	put "user:$(x 300)" 1
	name=$(x 217)~$(hash_of "user:$(x 300)").json
	run ! tee "$MNT/data/user/$name" <<<'no JSON'
	last_error | jq -e --arg path "/data/user/$name" '.path == $path'
}
