#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A PostgreSQL server of the suite's own: its cluster in a directory of its own, reached by a socket there.

PG_BIN=/usr/lib/postgresql/15/bin

# PostgreSQL refuses to run as root.
as_postgres() {
	if [ "$(id -u)" -eq 0 ]; then
		(cd / && exec runuser -u postgres -- "$@")
	else
		"$@"
	fi
}

server_start() {
	as_postgres "$PG_BIN/pg_ctl" -D "$PG_ROOT/data" -l "$PG_ROOT/log" -w -t 60 -s start 3>&- ||
		{ cat "$PG_ROOT/log" >&2; return 1; }
}

server_stop() {
	as_postgres "$PG_BIN/pg_ctl" -D "$PG_ROOT/data" -w -t 60 -s -m "${1:-fast}" stop 3>&-
}

postgres_setup_file() {
	PG_ROOT=$(mktemp -d "${TMPDIR:-/tmp}/changefs-pg.XXXXXX")
	export PG_ROOT PGHOST=$PG_ROOT PGPORT=5432 PGUSER=postgres
	unset PGDATABASE PGOPTIONS PGSERVICE
	[ "$(id -u)" -ne 0 ] || chown postgres: "$PG_ROOT"
	chmod 755 "$PG_ROOT"
	as_postgres "$PG_BIN/initdb" -D "$PG_ROOT/data" -A trust -U postgres -N -E UTF8 --locale=C.UTF-8 >"$PG_ROOT.initdb" 2>&1 ||
		{ cat "$PG_ROOT.initdb" >&2; return 1; }
	rm -f "$PG_ROOT.initdb"
	as_postgres tee -a "$PG_ROOT/data/postgresql.conf" >/dev/null <<-END
	listen_addresses = ''
	unix_socket_directories = '$PG_ROOT'
	wal_level = logical
	max_replication_slots = 50
	max_wal_senders = 50
	fsync = off
	END
	# newer minor releases want to be told which plugins are allowed
	if as_postgres "$PG_BIN/postgres" -D "$PG_ROOT/data" -C output_plugin_libraries >/dev/null 2>&1; then
		echo "output_plugin_libraries = 'wal2json'" | as_postgres tee -a "$PG_ROOT/data/postgresql.conf" >/dev/null
	fi
	server_start
}

postgres_teardown_file() {
	server_stop immediate || true
	rm -rf "$PG_ROOT"
}

# A database and a mount for one test; NAME is the source and part of the slot's name.
postgres_setup() {
	changefs_setup
	NAME=t$BATS_TEST_NUMBER
	export PGDATABASE=$NAME
	STREAM=
	MARKER=0
	psql -Xqd postgres -c "CREATE DATABASE $NAME"
	start_daemon
}

postgres_teardown() {
	stream_stop
	local slot
	for slot in $(sql "SELECT slot_name FROM pg_replication_slots WHERE database = '$NAME'"); do
		wait_until 20 sql "SELECT pg_drop_replication_slot('$slot')"
	done
	psql -Xqd postgres -c "DROP DATABASE IF EXISTS $NAME WITH (FORCE)"
	changefs_teardown
}

sql() {
	psql -XAtq -v ON_ERROR_STOP=1 -c "$1" "${@:2}"
}

make_slot() {
	sql "SELECT pg_create_logical_replication_slot('$1', 'wal2json')" >/dev/null
}

# What the example does, as a user would start it.
stream_start() {
	start "$EXAMPLES/stream" "$MNT" "$NAME" 2>>"$WORK/stream.log"
	STREAM=$CHILD
}

stream_stop() {
	[ -n "$STREAM" ] || return 0
	kill -TERM "$STREAM" 2>/dev/null || true
	wait_until 20 process_gone "$STREAM"
	wait "$STREAM" || true
	STREAM=
}

# kill -9 for the pg_recvlogical that runs now.
receiver_kill() {
	local pid
	pid=$(pgrep -P "$STREAM" -f "slot=changefs_$NAME" || true)
	[ -z "$pid" ] || kill -KILL "$pid"
}

log_ends_with_marker() {
	tail -n 3 "$MNT/feed/log.ndjson" | grep -F '"type":"MESSAGE"' | grep -qF "\"value\":\"marker $1\""
}

# All that was committed before is in the log.
catch_up() {
	MARKER=$((MARKER + 1))
	sql "SELECT pg_logical_emit_message(true, 'test', 'marker $MARKER')" >/dev/null
	if ! wait_until "${1:-60}" log_ends_with_marker "$MARKER"; then
		tail -n 5 "$WORK/stream.log" "$MNT/ctl/errors" >&2
		return 1
	fi
}

# The events after sequence $1, without the markers.
changes_after() {
	tail -n +$(($1 + 1)) "$MNT/feed/log.ndjson" | grep -vF '"value":"marker ' || true
}

last_sequence() {
	stats .last_sequence
}
