#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A real PostgreSQL writes its changes into the mount: server, wal2json, pg_recvlogical.
bats_require_minimum_version 1.5.0
load helpers
load postgres

setup_file() {
	postgres_setup_file
}

teardown_file() {
	postgres_teardown_file
}

setup() {
	EXAMPLES=$(readlink -f "$BATS_TEST_DIRNAME/../../examples/postgres")
	postgres_setup
}

teardown() {
	postgres_teardown
}

# A second slot that decodes the same changes, read at the end.
oracle_start() {
	make_slot "oracle_$NAME"
}

oracle_agrees() {
	psql -XAtq -c "SELECT data FROM pg_logical_slot_get_changes('oracle_$NAME', NULL, NULL, 'format-version', '2',
		'include-lsn', '1', 'include-pk', '1')" | grep -vF '"content":"marker ' >"$WORK/oracle"
	changes_after "$1" >"$WORK/changes"
	"$BATS_TEST_DIRNAME/oracle.py" "$WORK/oracle" "$WORK/changes"
}

# Every document of a table equals the SELECT of its row, and there is no other. The row's JSON by
# PostgreSQL itself has the document's form as long as all columns are numbers and text.
table_agrees() {
	psql -XAtq -F ' ' -c "SELECT $2, row_to_json(t) FROM $1 t" >"$WORK/rows"
	python3 - "$MNT/data/$1" "$WORK/rows" <<-'END'
	import os, sys
	names = set(os.listdir(sys.argv[1]))
	count = 0
	with open(sys.argv[2], "rb") as rows:
	    for row in rows:
	        key, _, want = row.rstrip(b"\n").partition(b" ")
	        name = key.decode() + ".json"
	        with open(os.path.join(sys.argv[1], name), "rb") as f:
	            got = f.read()
	        if got != want:
	            sys.exit("%s is %r, the row is %r" % (name, got, want))
	        names.remove(name)
	        count += 1
	if names:
	    sys.exit("documents without a row: %s" % sorted(names)[:5])
	print(count, "documents equal their rows")
	END
}

pgbench_init() {
	pgbench -i -q -s 1 2>"$WORK/init.log" >&2
}

pgbench_agrees() {
	table_agrees pgbench_accounts aid
	table_agrees pgbench_tellers tid
	table_agrees pgbench_branches bid
	[ "$(find "$MNT/data/pgbench_history" -name '*.json' | wc -l)" -eq "$(sql 'SELECT count(*) FROM pgbench_history')" ]
}

@test "pgbench with four clients: tail -f shows each change once in commit order, documents equal their rows" {
	pgbench_init
	"$EXAMPLES/setup" "$MNT" "$NAME"
	before=$(last_sequence)
	[ "$before" -eq 100011 ]
	table_agrees pgbench_branches bid
	oracle_start
	start tail -n 0 -f "$MNT/feed/tail" >"$WORK/tail"
	stream_start
	pgbench -n -c 4 -j 2 -T 5 -R 400 >"$WORK/bench.log" 2>&1
	grep 'actually processed' "$WORK/bench.log"
	catch_up
	oracle_agrees "$before"
	pgbench_agrees
	wait_until 10 same_tail "$before"
	[ "$(jq -r .metadata.commit_lsn "$WORK/changes" | uniq | sort | uniq -d | wc -l)" -eq 0 ]
}

same_tail() {
	cmp "$WORK/tail" <(tail -n +$(($1 + 1)) "$MNT/feed/log.ndjson")
}

# A consumer with a bookmark of its own: reads the tail after its last whole line until the mount goes.
consume_on() {
	local last
	last=$(tail -n 1 "$WORK/consumed" | jq .sequence 2>/dev/null || true)
	: "${last:=$1}"
	start cat "$MNT/feed/.tail@$last" >"$WORK/piece" 2>/dev/null
	CONSUMER=$CHILD
}

# What the consumer got counts up to its last whole line.
consumed() {
	wait_until 10 process_gone "$CONSUMER"
	python3 - "$WORK/piece" >>"$WORK/consumed" <<-'END'
	import sys
	data = open(sys.argv[1], "rb").read()
	sys.stdout.buffer.write(data[:data.rfind(b"\n") + 1].lstrip(b"\n"))
	END
}

grown_by() {
	[ "$(stat -c %s "$MNT/feed/log.ndjson")" -ge "$1" ]
}

wait_for_growth() {
	wait_until 60 grown_by $(($(stat -c %s "$MNT/feed/log.ndjson") + $1))
}

@test "kill -9 of the daemon and of pg_recvlogical, again and again: nothing lost, doubled or torn" {
	sql 'CREATE TABLE start (id int PRIMARY KEY)'
	pgbench_init
	"$EXAMPLES/setup" "$MNT" "$NAME"
	before=$(last_sequence)
	oracle_start
	: >"$WORK/consumed"
	stream_start
	start pgbench -n -c 4 -j 2 -T 20 -R 250 >"$WORK/bench.log" 2>&1
	BENCH=$CHILD
	consume_on "$before"
	for round in 1 2 3 4; do
		wait_for_growth 100000
		receiver_kill
		wait_for_growth 100000
		kill_daemon
		consumed
		start_daemon
		consume_on "$before"
		echo "round $round: the log ends at $(last_sequence)"
	done
	receiver_kill
	kill_daemon
	consumed
	start_daemon
	consume_on "$before"
	wait_until 60 process_gone "$BENCH"
	grep 'actually processed' "$WORK/bench.log"
	catch_up
	oracle_agrees "$before"
	pgbench_agrees
	numbered_from 1 <"$MNT/feed/log.ndjson"
	stream_stop
	wait_until 10 readers_wait 1
	kill -INT "$CONSUMER"
	consumed
	cmp "$WORK/consumed" <(tail -n +$((before + 1)) "$MNT/feed/log.ndjson")
}

@test "rows from before the slot have the keys and documents that wal2json gives, for every type" {
	sql "
	CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN small AS int; CREATE TYPE pair AS (a int, b text);
	CREATE TABLE types (id int PRIMARY KEY, num numeric, flt float8, rl real, o oid, by bytea, ts timestamptz, tz timestamp,
		js json, jb jsonb, tx text, bo boolean, ch char(5), mo money, arr int[], ta text[], c \"char\", xi xid, big bigint,
		\"q\"\"x é %s\" text, bi bit(3), da date, uu uuid, iv interval, ine inet, en mood, dom small, comp pair, re regclass,
		xm xml, gen int GENERATED ALWAYS AS (id * 2) STORED, gone int);
	ALTER TABLE types DROP COLUMN gone;
	INSERT INTO types VALUES (1, 1.10, 'NaN', 1e20, 42, '\\xff00ab', '2024-01-01 00:00+00', '2024-01-01', '{\"a\" : 1.0}',
		'{\"a\": 1, \"b\":[1]}', E'x\"\\\\\\n\\t\\x01 é %s', true, 'ab', 12.5, '{1,2}', '{\"a b\",NULL,\"c\"}', 'c', '7',
		9223372036854775807, 'q', B'101', '2024-02-29', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '1 day 2:03', '10.0.0.1',
		'happy', 7, '(1,x)', 'types', '<a>b</a>');
	INSERT INTO types VALUES (2, 'Infinity', '-Infinity', 0.1), (3, 12345678901234567890.000, 1e-7, 'NaN');
	UPDATE types SET bo = false, tx = '', ta = '{}', comp = '(,)' WHERE id = 3;
	CREATE TABLE text_key (id text PRIMARY KEY, v int); INSERT INTO text_key VALUES ('a\"b /%', 1), ('', 2), ('42', 3);
	CREATE TABLE two_keys (v int, b text, a int, PRIMARY KEY (a, b)); INSERT INTO two_keys VALUES (1, 'x\"y', 2), (2, '', 3);
	CREATE TABLE bool_key (b boolean PRIMARY KEY, v text); INSERT INTO bool_key VALUES (true, 't'), (false, 'f');
	CREATE TABLE bytea_key (b bytea PRIMARY KEY); INSERT INTO bytea_key VALUES ('\\x00ff');
	CREATE TABLE num_key (n numeric PRIMARY KEY); INSERT INTO num_key VALUES (1.10);
	CREATE SCHEMA \"my.schema\"; CREATE TABLE \"my.schema\".\"my.table%\" (id int PRIMARY KEY, v text);
	INSERT INTO \"my.schema\".\"my.table%\" VALUES (1, 'dots');
	CREATE TABLE tail (id int PRIMARY KEY); INSERT INTO tail VALUES (1);
	CREATE TABLE no_key (a int); INSERT INTO no_key VALUES (1), (1);
	CREATE TABLE empty_one (a int PRIMARY KEY);
	CREATE UNLOGGED TABLE unlogged (a int PRIMARY KEY); INSERT INTO unlogged VALUES (1)"
	"$EXAMPLES/setup" "$MNT" "$NAME"
	rows=$(last_sequence)
	[ "$rows" -eq 16 ]
	[ "$(jq -r .type "$MNT/feed/log.ndjson" | sort -u)" = PUT ]
	stream_start
	# touch every row: what wal2json now sends must equal what setup had written
	sql "UPDATE types SET num = num; UPDATE text_key SET v = v; UPDATE two_keys SET v = v; UPDATE bool_key SET v = v;
		UPDATE bytea_key SET b = b; UPDATE num_key SET n = n; UPDATE \"my.schema\".\"my.table%\" SET v = v; UPDATE tail SET id = id"
	catch_up
	changes_after "$rows" >"$WORK/touched"
	[ "$(wc -l <"$WORK/touched")" -eq 14 ]
	jq -r 'select(.before_snapshot != .after_snapshot or .type != "PUT") | .key, .before_snapshot, .after_snapshot' "$WORK/touched" >"$WORK/differ"
	[ ! -s "$WORK/differ" ] || { cat "$WORK/differ"; false; }
	# and so must its metadata, but for what tells the place
	cmp <(jq -cS 'select(.key | contains("no_key") | not) | [.key, (.metadata | del(.lsn, .commit_lsn, .snapshot, .xid))]' \
		<(head -n "$rows" "$MNT/feed/log.ndjson") | sort) \
		<(jq -cS '[.key, (.metadata | del(.lsn, .commit_lsn, .snapshot, .xid))]' "$WORK/touched" | sort)
	[ "$(jq .num "$MNT/data/types/2.json")" = null ]
	[[ "$(cat "$MNT/data/types/1.json")" == '{"id":1,"num":1.10,"flt":null,'* ]]
	[[ "$(cat "$MNT/data/types/3.json")" == '{"id":3,"num":12345678901234567890.000,'* ]]
	same_bytes "$MNT/data/tai%6C/1.json" '{"id":1}'
	same_bytes "$MNT/data/my%252Eschema.my%252Etable%2525/1.json" '{"id":1,"v":"dots"}'
	[ "$(names "$MNT/data/no_key" | wc -w)" -eq 2 ]
	[ ! -e "$MNT/data/unlogged" ]
	run -0 "$EXAMPLES/setup" "$MNT" "$NAME"
	[[ "$output" == *"exists already"* ]]
}

@test "setup with a list of tables copies those only, and drops its slot when it fails" {
	sql "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)"
	run "$EXAMPLES/setup" "$MNT" "$NAME" public.nowhere
	[ "$status" -ne 0 ]
	[ "$(sql "SELECT count(*) FROM pg_replication_slots WHERE database = '$NAME'")" -eq 0 ]
	"$EXAMPLES/setup" "$MNT" "$NAME" public.a
	[ "$(names "$MNT/data")" = a ]
}

@test "TOAST: an update that leaves a 100 KB column alone keeps it in the document" {
	sql "CREATE TABLE doc (id int PRIMARY KEY, big text, n int); ALTER TABLE doc ALTER big SET STORAGE EXTERNAL"
	make_slot "changefs_$NAME"
	stream_start
	sql "INSERT INTO doc SELECT 1, string_agg(md5(i::text), ''), 0 FROM generate_series(1, 3200) i"
	sql "UPDATE doc SET n = 1"
	sql "UPDATE doc SET n = 2; UPDATE doc SET n = 3"
	sql "BEGIN; UPDATE doc SET n = 4; UPDATE doc SET n = 5; COMMIT"
	catch_up
	[ "$(stat -c %s "$MNT/data/doc/1.json")" -gt 102400 ]
	table_agrees doc id
	[ "$(jq -r 'select(.key == "doc:1") | .value | fromjson | .big | length' "$MNT/feed/log.ndjson" | sort -u)" -eq 102400 ]
	[ "$(jq -r 'select(.key == "doc:1") | .value | fromjson | keys_unsorted | join(",")' "$MNT/feed/log.ndjson" | sort -u)" = id,big,n ]
	sql "UPDATE doc SET id = 7"
	catch_up
	table_agrees doc id
	sql "UPDATE doc SET big = 'small'"
	catch_up
	table_agrees doc id
	[ "$(jq -c 'select(.metadata.partial)' "$MNT/feed/log.ndjson" | wc -l)" -eq 0 ]
}

@test "TOAST without a document: the event says partial, and no document is written" {
	sql "CREATE TABLE doc (id int PRIMARY KEY, big text, n int); ALTER TABLE doc ALTER big SET STORAGE EXTERNAL;
		INSERT INTO doc SELECT 1, repeat('0123456789', 10000), 0"
	make_slot "changefs_$NAME"
	stream_start
	sql "UPDATE doc SET n = 1"
	catch_up
	jq -es 'map(select(.key == "doc:1"))[0].metadata.partial == true' "$MNT/feed/log.ndjson"
	[ ! -e "$MNT/data/doc/1.json" ]
	# that an update has all columns can be known once a row was inserted
	sql "INSERT INTO doc VALUES (2, 'x', 0); UPDATE doc SET big = 'all here'"
	catch_up
	table_agrees doc id
}

@test "a change of the key is a DELETE and a PUT; keys of several columns" {
	sql "CREATE TABLE one (id int PRIMARY KEY, v text); CREATE TABLE two (b text, a int, v int, PRIMARY KEY (a, b))"
	make_slot "changefs_$NAME"
	oracle_start
	stream_start
	sql "INSERT INTO one VALUES (1, 'x'); UPDATE one SET id = 2; UPDATE one SET v = 'y'; UPDATE one SET id = 1;
		INSERT INTO two VALUES ('p\"q', 1, 0); UPDATE two SET b = 'r/s'; UPDATE two SET a = 5, v = 9; UPDATE two SET v = 10"
	sql "BEGIN; INSERT INTO one VALUES (5, 'a'), (6, 'b'); UPDATE one SET id = id + 100 WHERE id > 1; DELETE FROM one WHERE id = 105; COMMIT"
	catch_up
	oracle_agrees 0
	table_agrees one id
	[ "$(names "$MNT/data/two")" = '[r%2Fs,5].json' ] || [ "$(names "$MNT/data/two")" = '["r%2Fs",5].json' ]
	[ "$(jq -r 'select(.key | startswith("one:")) | "\(.type) \(.key)"' "$MNT/feed/log.ndjson" | head -n 3 | xargs)" = "PUT one:1 DELETE one:1 PUT one:2" ]
	jq -es 'map(select(.type == "DELETE" and .key == "one:1"))[0] | .before_snapshot == "{\"id\":1,\"v\":\"x\"}" and .value == null' "$MNT/feed/log.ndjson"
}

@test "REPLICA IDENTITY FULL with a primary key" {
	sql "CREATE TABLE f (id int PRIMARY KEY, v text, big text); ALTER TABLE f REPLICA IDENTITY FULL; ALTER TABLE f ALTER big SET STORAGE EXTERNAL"
	make_slot "changefs_$NAME"
	stream_start
	sql "INSERT INTO f SELECT 1, 'x', repeat('0123456789', 10000); UPDATE f SET v = 'y'; UPDATE f SET id = 2; INSERT INTO f VALUES (3, 'gone'); DELETE FROM f WHERE id = 3"
	catch_up
	table_agrees f id
	[ "$(names "$MNT/data/f")" = 2.json ]
}

@test "REPLICA IDENTITY FULL without a primary key: the key is the whole old row" {
	sql "CREATE TABLE f (a int, b text); ALTER TABLE f REPLICA IDENTITY FULL"
	make_slot "changefs_$NAME"
	stream_start
	sql "INSERT INTO f VALUES (1, 'x')"
	sql "UPDATE f SET b = 'y'"
	sql "DELETE FROM f"
	catch_up
	jq -c '[.type, .key]' "$MNT/feed/log.ndjson"
	jq -e 'select(.type == "DELETE") | .key' "$MNT/feed/log.ndjson" | grep -qF 'f:[1,\"y\"]'
	[ "$(jq -r 'select(.key | startswith("f:")) | .type' "$MNT/feed/log.ndjson" | head -n 1)" = PUT ]
}

@test "REPLICA IDENTITY INDEX and NOTHING: what can be known arrives, and the stream goes on" {
	sql "CREATE TABLE ix (id int PRIMARY KEY, code text NOT NULL UNIQUE, v int); ALTER TABLE ix REPLICA IDENTITY USING INDEX ix_code_key;
		CREATE TABLE nothing (id int PRIMARY KEY, v int); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
		CREATE TABLE no_key (a int, b text); CREATE TABLE good (id int PRIMARY KEY)"
	make_slot "changefs_$NAME"
	stream_start
	sql "INSERT INTO ix VALUES (1, 'c', 1); UPDATE ix SET v = 2; UPDATE ix SET code = 'd'"
	catch_up
	table_agrees ix id
	sql "INSERT INTO nothing VALUES (1, 1); UPDATE nothing SET v = 2; INSERT INTO no_key VALUES (1, 'a'), (1, 'a')"
	sql "INSERT INTO good VALUES (1)"
	catch_up
	same_bytes "$MNT/data/good/1.json" '{"id":1}'
	[ "$(names "$MNT/data/no_key" | wc -w)" -eq 2 ]
	[ "$(jq -r 'select(.metadata.table == "no_key") | .key | startswith("no_key:@")' "$MNT/feed/log.ndjson" | xargs)" = "true true" ]
	[ "$(jq -r 'select(.metadata.table == "nothing") | .type' "$MNT/feed/log.ndjson" | head -n 1)" = PUT ]
}

@test "REPLICA IDENTITY INDEX: a delete without the primary key stops the stream, or is a dead letter" {
	sql "CREATE TABLE ix (id int PRIMARY KEY, code text NOT NULL UNIQUE); ALTER TABLE ix REPLICA IDENTITY USING INDEX ix_code_key"
	make_slot "changefs_$NAME"
	stream_start
	sql "INSERT INTO ix VALUES (1, 'c'), (2, 'd')"
	catch_up
	sql "DELETE FROM ix WHERE id = 1"
	sql "UPDATE ix SET code = 'e' WHERE id = 2"
	wait_until 20 grep -q 'delete does not tell the primary key' "$MNT/ctl/errors"
	same_bytes "$MNT/data/ix/2.json" '{"id":2,"code":"d"}'
	[ -z "$(find "$MNT/dlq" -name '*.json')" ]
	echo '{"on_decode_error":"dlq"}' >"$MNT/ctl/config.json"
	catch_up 20
	same_bytes "$MNT/data/ix/2.json" '{"id":2,"code":"e"}'
	same_bytes "$MNT/data/ix/1.json" '{"id":1,"code":"c"}'
	[ "$(jq -r '[.kind, .table, .operation] | join(" ")' "$MNT/dlq/1.json")" = "unsupported-row ix D" ]
	[ "$(jq -r '.raw | fromjson | .identity[0].value' "$MNT/dlq/1.json")" = c ]
	[ "$(find "$MNT/dlq" -name '*.json' | wc -l)" -eq 1 ]
	[ "$(cat "$MNT"/ops/*.json | jq -rs 'map(select(.type == "unsupported-row")) | .[0].details.table')" = ix ]
}

@test "TRUNCATE of several tables, and messages inside and outside of transactions" {
	sql "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY)"
	make_slot "changefs_$NAME"
	oracle_start
	stream_start
	sql "INSERT INTO a VALUES (1), (2); INSERT INTO b VALUES (1); INSERT INTO c VALUES (1)"
	sql "BEGIN; INSERT INTO a VALUES (3); TRUNCATE a, b; INSERT INTO b VALUES (9); SELECT pg_logical_emit_message(true, 'inside', 'tx \"text\"'); COMMIT"
	sql "SELECT pg_logical_emit_message(false, 'outside', 'alone')"
	catch_up
	oracle_agrees 0
	[ -z "$(names "$MNT/data/a")" ]
	[ "$(names "$MNT/data/b")" = 9.json ]
	[ "$(names "$MNT/data/c")" = 1.json ]
	[ "$(jq -r 'select(.type == "MESSAGE" and .key != "test") | "\(.key)=\(.value)"' "$MNT/feed/log.ndjson" | tr '\n' ' ')" = 'inside=tx "text" outside=alone ' ]
}

@test "numbers keep every digit" {
	sql "CREATE TABLE n (id int PRIMARY KEY, a numeric, b numeric(40, 10), c bigint, d float8, e real)"
	make_slot "changefs_$NAME"
	stream_start
	sql "INSERT INTO n VALUES (1, 1.10, 12345678901234567890.5, 9223372036854775807, 0.1, 0.1), (2, 0.000, -0.0000000001, -9007199254740993, 1e300, 1e-30),
		(3, 'NaN', NULL, 0, 'NaN', 'Infinity')"
	catch_up
	same_bytes "$MNT/data/n/1.json" '{"id":1,"a":1.10,"b":12345678901234567890.5000000000,"c":9223372036854775807,"d":0.1,"e":0.1}'
	same_bytes "$MNT/data/n/2.json" '{"id":2,"a":0.000,"b":-0.0000000001,"c":-9007199254740993,"d":1e+300,"e":1e-30}'
	same_bytes "$MNT/data/n/3.json" '{"id":3,"a":null,"b":null,"c":0,"d":null,"e":null}'
}

@test "tables named tail and log.ndjson, schemas and tables with dots, keys with any character" {
	sql "CREATE TABLE tail (id text PRIMARY KEY); CREATE TABLE \"log.ndjson\" (id int PRIMARY KEY); CREATE TABLE \"a.b\" (id int PRIMARY KEY);
		CREATE SCHEMA a; CREATE TABLE a.b (id int PRIMARY KEY); CREATE TABLE a.\"b.c\" (id int PRIMARY KEY);
		CREATE SCHEMA \"a.b\"; CREATE TABLE \"a.b\".c (id int PRIMARY KEY)"
	make_slot "changefs_$NAME"
	stream_start
	sql "INSERT INTO tail VALUES ('.x'), ('a/b'), ('é %'), (E'new\\nline'); INSERT INTO \"log.ndjson\" VALUES (1); INSERT INTO \"a.b\" VALUES (2);
		INSERT INTO a.b VALUES (3); INSERT INTO a.\"b.c\" VALUES (4); INSERT INTO \"a.b\".c VALUES (5)"
	catch_up
	[ "$(find "$MNT/data/tai%6C" -type f -printf '%f\n' | LC_ALL=C sort | tr '\n' '|')" = '%2Ex.json|a%2Fb.json|new%0Aline.json|é %25.json|' ]
	same_bytes "$MNT/data/log%252Endjson/1.json" '{"id":1}'
	same_bytes "$MNT/data/a%252Eb/2.json" '{"id":2}'
	same_bytes "$MNT/data/a.b/3.json" '{"id":3}'
	same_bytes "$MNT/data/a.b%252Ec/4.json" '{"id":4}'
	same_bytes "$MNT/data/a%252Eb.c/5.json" '{"id":5}'
}

only_whole() {
	local n
	n=$(grep -c '"table":"t"' "$MNT/feed/log.ndjson" || true)
	echo "$n" >>"$WORK/seen"
	[ "$n" -ge "$1" ]
}

@test "a transaction appears at its commit, whole: also a large one; what was rolled back never does" {
	sql "CREATE TABLE t (id int PRIMARY KEY, v text)"
	make_slot "changefs_$NAME"
	oracle_start
	stream_start
	sql "BEGIN; INSERT INTO t VALUES (1, 'rolled back'); ROLLBACK"
	sql "BEGIN; INSERT INTO t VALUES (2, 'kept'); SAVEPOINT s; INSERT INTO t VALUES (3, 'gone'); ROLLBACK TO s; INSERT INTO t VALUES (4, 'kept'); COMMIT"
	sql "BEGIN; INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1000, 20999) i; COMMIT"
	wait_until 60 only_whole 20002
	run -1 grep -vxE '0|2|20002' "$WORK/seen"
	catch_up
	oracle_agrees 0
	table_agrees t id
	[ "$(jq -r 'select(.key | startswith("t:")) | .metadata.commit_lsn' "$MNT/feed/log.ndjson" | uniq | wc -l)" -eq 2 ]
}

@test "transactions that interleave arrive one after the other, in commit order" {
	sql "CREATE TABLE t (id int PRIMARY KEY, who text)"
	make_slot "changefs_$NAME"
	oracle_start
	stream_start
	mkfifo "$WORK/one" "$WORK/two"
	start psql -XAtq -f "$WORK/one"
	exec 7>"$WORK/one"
	start psql -XAtq -f "$WORK/two"
	exec 8>"$WORK/two"
	echo "BEGIN; INSERT INTO t VALUES (1, 'one');" >&7
	wait_until 10 transactions_open 1
	echo "BEGIN; INSERT INTO t VALUES (2, 'two');" >&8
	wait_until 10 transactions_open 2
	echo "INSERT INTO t VALUES (4, 'two'); COMMIT;" >&8
	exec 8>&-
	wait_until 10 transactions_open 1
	echo "INSERT INTO t VALUES (3, 'one'); COMMIT;" >&7
	exec 7>&-
	wait_until 10 transactions_open 0
	catch_up
	oracle_agrees 0
	[ "$(jq -r 'select(.metadata.table == "t") | .metadata.pk' "$MNT/feed/log.ndjson" | xargs)" = "2 4 1 3" ]
}

transactions_open() {
	[ "$(psql -XAtqd postgres -c "SELECT count(*) FROM pg_stat_activity WHERE datname = '$NAME' AND state = 'idle in transaction'")" -eq "$1" ]
}

confirmed_beyond() {
	[ "$(sql "SELECT confirmed_flush_lsn >= '$1' FROM pg_replication_slots WHERE slot_name = 'changefs_$NAME'")" = t ]
}

@test "fsync: the server learns what is safe here, and then need not keep it" {
	sql "CREATE TABLE t (id int PRIMARY KEY)"
	make_slot "changefs_$NAME"
	stream_start
	sql "INSERT INTO t SELECT generate_series(1, 1000)"
	lsn=$(sql "SELECT pg_current_wal_insert_lsn()")
	catch_up
	wait_until 20 confirmed_beyond "$lsn"
	kill_daemon
	start_daemon
	[ "$(grep -c '"table":"t"' "$MNT/feed/log.ndjson")" -eq 1000 ]
	jq -e --arg name "$NAME" 'has($name)' "$MNT/ctl/sources.json"
}

@test "a recording written twice, from the start and from the middle, adds nothing" {
	sql "CREATE TABLE t (id int PRIMARY KEY, v int)"
	make_slot "changefs_$NAME"
	for i in $(seq 20); do
		sql "INSERT INTO t VALUES ($i, 0); UPDATE t SET v = v + 1"
	done
	psql -XAtq -c "SELECT data FROM pg_logical_slot_peek_changes('changefs_$NAME', NULL, NULL, 'format-version', '2', 'include-lsn', '1',
		'include-timestamp', '1', 'include-pk', '1')" >"$WORK/recording"
	cat "$WORK/recording" >"$MNT/in/wal2json@$NAME"
	count=$(last_sequence)
	[ "$count" -gt 20 ]
	cp "$MNT/feed/log.ndjson" "$WORK/before"
	cat "$WORK/recording" >"$MNT/in/wal2json@$NAME"
	sed -n '/"action":"B"/,$p' <(tail -n +15 "$WORK/recording") >"$MNT/in/wal2json@$NAME"
	# a killed sender leaves half a transaction: it is dropped
	head -n 2 "$WORK/recording" >"$MNT/in/wal2json@another"
	stream_start
	catch_up
	cmp "$WORK/before" <(head -n "$count" "$MNT/feed/log.ndjson")
	[ "$(changes_after "$count" | wc -l)" -eq 0 ]
	table_agrees t id
}

@test "options that are missing are named: include-lsn, include-timestamp, format-version" {
	sql "CREATE TABLE t (id int PRIMARY KEY)"
	make_slot "changefs_$NAME"
	sql "INSERT INTO t VALUES (1)"
	for options in "'include-lsn','1','include-timestamp','1'" "'format-version','2','include-timestamp','1'" "'format-version','2','include-lsn','1'"; do
		psql -XAtq -c "SELECT data FROM pg_logical_slot_peek_changes('changefs_$NAME', NULL, NULL, $options)" >"$WORK/lines"
		run bash -c 'cat "$1" >"$2"' - "$WORK/lines" "$MNT/in/wal2json@$NAME"
		[ "$status" -ne 0 ]
		[[ "$output" == *"Invalid argument"* ]]
		refused EINVAL "/in/wal2json@$NAME"
	done
	[ "$(last_sequence)" -eq 0 ]
}

@test "a restored server, with older positions and newer times, is refused, not skipped" {
	sql "CREATE TABLE t (id int PRIMARY KEY, v text)"
	make_slot "changefs_$NAME"
	server_stop
	cp -a "$PG_ROOT/data" "$PG_ROOT/backup"
	server_start
	stream_start
	sql "INSERT INTO t SELECT i, 'original' FROM generate_series(1, 2000) i"
	catch_up
	count=$(last_sequence)
	stream_stop
	server_stop
	mv "$PG_ROOT/data" "$PG_ROOT/lost"
	mv "$PG_ROOT/backup" "$PG_ROOT/data"
	server_start
	sql "INSERT INTO t VALUES (1, 'after the restore')"
	stream_start
	wait_until 30 refused ESTALE "/in/wal2json@$NAME"
	[ "$(last_sequence)" -eq "$count" ]
	wait_until 10 file_contains "$WORK/stream.log" 'Stale file handle'
	printf '{"%s":null}\n' "$NAME" >"$MNT/ctl/sources.json"
	catch_up
	same_bytes "$MNT/data/t/1.json" '{"id":1,"v":"after the restore"}'
	rm -rf "$PG_ROOT/lost"
}
