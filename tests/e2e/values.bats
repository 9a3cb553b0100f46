#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Values survive byte for byte, and keys of any kind have a name each.
bats_require_minimum_version 1.5.0
load helpers

# The document is exactly this text, in data/, in the event's value, and after a restart.
check_document() {
	same_bytes "$MNT/data/$1.json" "$2"
	jq -j 'select(.type == "PUT") | .value' "$MNT/feed/log.ndjson" | cmp - <(printf '%s' "$2")
	remount
	same_bytes "$MNT/data/$1.json" "$2"
}

# As a JSON document and as a string that holds its text.
check_both_ways() {
	printf '{"type":"PUT","key":"user:a","value":%s}\n' "$1" >"$MNT/in/events"
	check_document user/a "$1"
	printf '{"type":"PUT","key":"order:b","value":%s}\n' "$(jq -Rs . <<<"$1" | sed 's/\\n"$/"/')" >"$MNT/in/events"
	same_bytes "$MNT/data/order/b.json" "$1"
}

@test "1.10 stays 1.10" {
	check_both_ways '{"price":1.10,"exp":1.0E+2,"neg":-0.0,"zero":0.000}'
}

@test "integers of twenty digits and more" {
	check_both_ways '{"a":12345678901234567890,"b":-98765432109876543210987654321,"c":9007199254740993}'
}

@test "duplicate keys and the order of keys" {
	check_both_ways '{"z":1,"a":2,"z":3,"a":{"b":1,"b":2}}'
}

@test "white space inside a document" {
	check_both_ways '{ "a" :  [ 1 ,	2 ] }'
}

@test "escapes stay as they were written: \\u0000, surrogates, \\/, \\u00e9" {
	check_both_ways '{"nul":"a\u0000b","pair":"\ud83d\ude00","slash":"\/","e":"\u00e9","E":"\u00E9","q":"\"\\\b\f\n\r\t"}'
}

@test "a lone surrogate's escape in a document stays as it was written" {
	doc='{"s":"\ud800","t":"\udc00x"}'
	printf '{"type":"PUT","key":"user:a","value":%s}\n' "$doc" >"$MNT/in/events"
	same_bytes "$MNT/data/user/a.json" "$doc"
	[ "$(jq -j .value "$MNT/feed/log.ndjson")" = "$doc" ]
}

@test "UTF-8 of every length" {
	check_both_ways '{"é":"ß","ж":"漢字","😀":"𝄞"}'
}

@test "documents that are no objects: numbers, strings, arrays, true, null" {
	n=0
	for doc in 42 -1.50e3 '[]' '[1,[2,[3]]]' true false '{}' '""' '"text"'; do
		n=$((n + 1))
		printf '{"type":"PUT","key":"user:%d","value":%s}\n' "$n" "$(jq -Rs . <<<"$doc" | sed 's/\\n"$/"/')" >"$MNT/in/events"
		same_bytes "$MNT/data/user/$n.json" "$doc"
	done
	for doc in 42 -1.50e3 '[]' '[1,[2,[3]]]' true false '{}'; do
		n=$((n + 1))
		printf '{"type":"PUT","key":"user:%d","value":%s}\n' "$n" "$doc" >"$MNT/in/events"
		same_bytes "$MNT/data/user/$n.json" "$doc"
	done
}

@test "empty strings, as a document's member and as a whole document" {
	put user:a '{"s":"","":1}' user:b '""'
	same_bytes "$MNT/data/user/a.json" '{"s":"","":1}'
	same_bytes "$MNT/data/user/b.json" ''
	[ "$(stat -c %s "$MNT/data/user/b.json")" -eq 0 ]
	[ "$(sed -n 2p "$MNT/feed/log.ndjson" | jq -c '[.value, has("value")]')" = '["",true]' ]
}

@test "an empty document as the very first one" {
	put user:a '""'
	same_bytes "$MNT/data/user/a.json" ''
	kill_daemon
	start_daemon
	same_bytes "$MNT/data/user/a.json" ''
	put user:a '{"v":1}'
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq -c '[.before_snapshot, .after_snapshot]')" = '["","{\"v\":1}"]' ]
}

@test "a document's text may be any text, with NUL bytes and control characters too" {
	printf '{"type":"PUT","key":"user:a","value":"a\\u0000b\\u0001\\u001f\\u007f\\n"}\n' >"$MNT/in/events"
	cmp <(printf 'a\0b\1\x1f\x7f\n') "$MNT/data/user/a.json"
	[ "$(stat -c %s "$MNT/data/user/a.json")" -eq 7 ]
	jq -j .value "$MNT/feed/log.ndjson" | cmp - <(printf 'a\0b\1\x1f\x7f\n')
	[ "$(wc -l <"$MNT/feed/log.ndjson")" -eq 1 ]
}

@test "a lone surrogate in a document's text cannot be kept and is refused" {
	run bash -c 'printf "%s\n" "$1" >"$2"' - '{"type":"PUT","key":"user:a","value":"\ud800"}' "$MNT/in/events"
	[ "$status" -ne 0 ]
	refused EINVAL /in/events
	log_has 0
}

@test "documents of one mebibyte, of text and of numbers" {
	{
		printf '{"type":"PUT","key":"user:text","value":{"s":"'
		head -c 786432 /dev/urandom | base64 -w 0
		printf '"}}\n'
		printf '{"type":"PUT","key":"user:numbers","value":['
		seq -s , 1.10 0.01 1500.00
		printf ']}\n'
	} | sed -z 's/\n\]/]/' >"$WORK/lines"
	cat "$WORK/lines" >"$MNT/in/events"
	cmp "$MNT/data/user/text.json" <(sed -n '1s/^.*"value":\(.*\)}$/\1/p' "$WORK/lines" | tr -d '\n')
	cmp "$MNT/data/user/numbers.json" <(sed -n '2s/^.*"value":\(.*\)}$/\1/p' "$WORK/lines" | tr -d '\n')
	[ "$(stat -c %s "$MNT/data/user/text.json")" -ge 1048576 ]
	[ "$(stat -c %s "$MNT/data/user/numbers.json")" -ge 1048576 ]
	cmp <(head -n 1 "$MNT/feed/log.ndjson" | jq -j .value) "$MNT/data/user/text.json"
}

@test "bytes that are no UTF-8 travel as base64 and come out as they were" {
	send '{"type":"PUT","key":"bin:given","value":"/wD+gA==","metadata":{"encoding":"base64"}}'
	cmp <(printf '\xff\0\xfe\x80') "$MNT/data/bin/given.json"
	[ "$(jq -r '.value, .metadata.encoding' "$MNT/feed/log.ndjson" | xargs)" = '/wD+gA== base64' ]
	printf '{"type":"PUT","key":"bin:raw","value":"caf\xe9"}\n' >"$MNT/in/events"
	cmp <(printf 'caf\xe9') "$MNT/data/bin/raw.json"
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq -r .value)" = "$(printf 'caf\xe9' | base64)" ]
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq -r .metadata.encoding)" = base64 ]
	iconv -f UTF-8 -t UTF-8 "$MNT/feed/log.ndjson" >/dev/null
	# a text document after a binary one: one encoding for the whole event, so all three agree
	put bin:raw '"text"'
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq -r 'if .metadata.encoding == "base64" then .before_snapshot else "plain" end')" = "$(printf 'caf\xe9' | base64)" ]
	same_bytes "$MNT/data/bin/raw.json" text
}

@test "a key that is no UTF-8 is refused" {
	run bash -c 'printf "{\"type\":\"PUT\",\"key\":\"user:\\xff\",\"value\":1}\n" >"$1"' - "$MNT/in/events"
	[ "$status" -ne 0 ]
	refused EINVAL /in/events
}

@test "metadata stays as its producer wrote it" {
	send '{"type":"PUT","key":"user:a","value":1,"metadata":{"n":1.10,"z":[1, 2],"a":"\u00e9","n":2}}'
	grep -qF '"metadata":{"n":1.10,"z":[1, 2],"a":"\u00e9","n":2}' "$MNT/feed/log.ndjson"
}

@test "the event's keys always come in the contract's order, whatever the producer's was" {
	send '{"after_snapshot":"A","metadata":{"table":"user"},"before_snapshot":"B","timestamp_ms":5,"value":"V","key":"user:a","type":"PUT"}'
	[ "$(cat "$MNT/feed/log.ndjson")" = '{"sequence":1,"type":"PUT","key":"user:a","value":"V","timestamp_ms":5,"metadata":{"table":"user"},"before_snapshot":"B","after_snapshot":"A"}' ]
}

# name_of KEY-AS-JSON NAME: the document of that key is listed under that name and opens.
check_name() {
	local key=$1 name=$2 listed
	printf '{"type":"PUT","key":%s,"value":%s}\n' "$key" "$key" >"$MNT/in/events"
	listed=$(find "$MNT/data" -mindepth 2 -type f -printf '%P\n' | grep -cxF -- "$name")
	[ "$listed" -eq 1 ] || { find "$MNT/data" >&2; return 1; }
	jq -j . <<<"$key" | cmp - "$MNT/data/$name"
	tail -n 1 "$MNT/feed/log.ndjson" | jq -c .key | cmp - <(jq -c . <<<"$key")
}

@test "keys with spaces, slashes, newlines, %, a leading dot and other characters" {
	check_name '"user:plain"' user/plain.json
	check_name '"user:with space"' 'user/with space.json'
	check_name '"user:a/b"' user/a%2Fb.json
	check_name '"user:a\nb"' user/a%0Ab.json
	check_name '"user:\u0001\u007f"' user/%01%7F.json
	check_name '"user:100%"' user/100%25.json
	check_name '"user:a%2Fb"' user/a%252Fb.json
	check_name '"user:.hidden"' user/%2Ehidden.json
	check_name '"user:."' user/%2E.json
	check_name '"user:.."' user/%2E..json
	check_name '"user:a.b"' user/a.b.json
	check_name '"user:a:b"' user/a:b.json
	check_name '"user:tail"' user/tail.json
	check_name '"user:log.ndjson"' user/log.ndjson.json
	check_name '"user:x.json"' user/x.json.json
	check_name '"user:Größe 漢字 😀"' 'user/Größe 漢字 😀.json'
	check_name "\"user:it's \\\"quoted\\\" \$HOME \\\\ *?[a]\"" "user/it's \"quoted\" \$HOME \\ *?[a].json"
	[ "$(find "$MNT/data/user" -name '*.json' | wc -l)" -eq 17 ]
	remount
	[ "$(find "$MNT/data/user" -name '*.json' | wc -l)" -eq 17 ]
	jq -r '.key' "$MNT/feed/user/log.ndjson" >/dev/null
}

@test "a NUL in a key has a name too" {
	check_name '"user:a\u0000b"' user/a%00b.json
}

@test "collections of any name: tail, log.ndjson, a leading dot, a slash, ending in .json" {
	check_name '"tail:x"' tai%6C/x.json
	check_name '"log.ndjson:x"' log.ndjso%6E/x.json
	check_name '".hidden:x"' %2Ehidden/x.json
	check_name '"a/b:x"' a%2Fb/x.json
	check_name '"c.json:x"' c.jso%6E/x.json
	check_name '"d.ndjson:x"' d.ndjso%6E/x.json
	check_name '"e%:x"' e%25/x.json
	check_name '"with space:x"' 'with space/x.json'
	[ -d "$MNT/feed/tai%6C" ]
	[ -L "$MNT/feed/tail" ]
	[ "$(wc -l <"$MNT/feed/tai%6C/log.ndjson")" -eq 1 ]
	for collection in "$MNT"/feed/*/; do
		cat "$collection"log.ndjson
	done | sort | cmp - <(sort "$MNT/feed/log.ndjson")
	remount
	[ -d "$MNT/feed/tai%6C" ]
}

@test "only an encoding's own form opens a document" {
	put user:ab 1
	for name in 'user/a%62.json' 'user/%61b.json' 'us%65r/ab.json' 'user/a%2fb.json' 'user/%.json' 'user/%zz.json'; do
		[ ! -e "$MNT/data/$name" ]
	done
}

@test "a key outside its collection's prefix is marked, and never collides" {
	send '{"type":"PUT","key":"alice","value":"1","metadata":{"table":"user"}}' \
		'{"type":"PUT","key":"user:alice","value":"2","metadata":{"table":"user"}}' \
		'{"type":"PUT","key":"order:alice","value":"3","metadata":{"table":"user"}}' \
		'{"type":"PUT","key":"user:%_alice","value":"4"}' \
		'{"type":"PUT","key":"nocolon","value":"5"}'
	same_bytes "$MNT/data/user/%_alice.json" 1
	same_bytes "$MNT/data/user/alice.json" 2
	same_bytes "$MNT/data/user/%_order:alice.json" 3
	same_bytes "$MNT/data/user/%25_alice.json" 4
	same_bytes "$MNT/data/_/%_nocolon.json" 5
	[ "$(find "$MNT/data" -name '*.json' | wc -l)" -eq 5 ]
	[ "$(wc -l <"$MNT/feed/user/log.ndjson")" -eq 4 ]
	[ "$(wc -l <"$MNT/feed/_/log.ndjson")" -eq 1 ]
}

@test "many documents with difficult names are listed once each, and each opens" {
	python3 - "$MNT" <<-'END'
	import json, os, random, sys
	mnt = sys.argv[1]
	seed = random.randrange(1 << 32)
	print("seed", seed)
	rnd = random.Random(seed)
	letters = list("ab%./_~ :\n\t\\\"'{}0\u00e9\u6f22\x01\x7f")
	keys = {"user:" + "".join(rnd.choice(letters) for _ in range(rnd.randrange(1, 12))) for _ in range(2000)}
	with open(mnt + "/in/events", "w", encoding="utf-8") as f:
	    for key in sorted(keys):
	        f.write(json.dumps({"type": "PUT", "key": key, "value": key}) + "\n")
	names = [n for n in os.listdir(mnt + "/data/user")]
	assert len(names) == len(set(names)) == len(keys), (len(names), len(keys))
	got = {open(os.path.join(mnt, "data/user", n), encoding="utf-8", newline="").read() for n in names}
	assert got == keys
	END
}

@test "metadata deeper than jq reads is refused; a document may be as deep as it likes" {
	deep=$(printf '[%.0s' $(seq 300))$(printf ']%.0s' $(seq 300))
	run bash -c 'printf "{\"type\":\"PUT\",\"key\":\"user:1\",\"value\":1,\"metadata\":{\"a\":%s}}\n" "$1" >"$2"' - "$deep" "$MNT/in/events"
	[ "$status" -ne 0 ]
	printf '{"type":"PUT","key":"user:1","value":%s}\n' "$deep" >"$MNT/in/events"
	[ "$(jq -r .value "$MNT/feed/log.ndjson")" = "$deep" ]
	same_bytes "$MNT/data/user/1.json" "$deep"
}
