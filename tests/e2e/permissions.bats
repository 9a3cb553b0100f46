#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Who may do what: modes and owners, shown by the options, changed by chmod, chown and chgrp, and kept; tried as
# users that every Debian has. The scripts in single quotes are for their shells.
# shellcheck disable=SC2016
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	if [ "$(id -u)" -ne 0 ]; then
		echo "these tests act as several users: run them as root, for example with sudo tests/run permissions.bats" >&2
		return 1
	fi
	chmod 711 "$BATS_RUN_TMPDIR" # the others pass through
	umask 022
}

# as USER[+GROUP] COMMAND…
as() {
	local user=${1%+*} groups=(--clear-groups)
	[[ $1 != *+* ]] || groups=(--groups "${1#*+}")
	shift
	(cd / && exec setpriv --reuid "$user" --regid "$(id -g "$user")" "${groups[@]}" -- "$@")
}

# outcome USER SCRIPT PATH: `ok`, or the last words of what the tool said.
outcome() {
	local out
	if out=$(as "$1" timeout 20 bash -c "$2" - "$MNT/$3" 2>&1); then
		echo ok
	else
		echo "${out##*: }"
	fi
}

# gets WORDS USER SCRIPT PATH
gets() {
	local got
	got=$(outcome "$2" "$3" "$4")
	[ "$got" = "$1" ] || { echo "$2, $3, $4: expected '$1', got '$got'" >&2; return 1; }
}

read_it='cat "$1" >/dev/null'
first_line='head -n 1 "$1" >/dev/null'
list_it='ls "$1"'
enter_it='cd "$1"'
send_it='echo "{\"type\":\"PUT\",\"key\":\"user:x\",\"value\":1}" >"$1"'
config_it='echo "{\"snapshots\":\"none\"}" >"$1"'
close_it='chmod go= "$1"'
open_it='chmod 777 "$1"'
take_it='chown "$(id -u)" "$1"'
group_it='chgrp games "$1"'
denied='Permission denied'
not_permitted='Operation not permitted'

# What is at a path: mode, owner, group.
shown() {
	stat -c '%a %U %G' "$MNT/$1"
}

start_with_two() {
	start_daemon -o allow_other "$@"
	put user:alice 1 order:7 2
}

# ---- defaults ----

@test "setpriv, ls, cat, head, cd: with umask=022 others read and list everything and write nothing" {
	start_with_two -o umask=022
	for path in feed feed/user data/user in ctl dlq ops; do
		gets ok nobody "$list_it" "$path"
		gets ok nobody "$enter_it" "$path"
	done
	for path in README.md feed/log.ndjson feed/1.json feed/user/1.json data/user/alice.json ctl/stats.json; do
		gets ok nobody "$read_it" "$path"
	done
	gets ok nobody "$first_line" feed/tail
	gets "$denied" nobody "$send_it" in/events
	gets "$denied" nobody "$send_it" in/wal2json@shop
	gets "$denied" nobody "$config_it" ctl/config.json
	log_has 2
}

@test "umask, uid and gid say what everything shows and who may do what" {
	# umask, user: may they read, may they write
	while read -r umask user reads writes; do
		echo "umask $umask, $user"
		start_daemon -o "allow_other,uid=$(id -u daemon),gid=$(id -g games),umask=$umask"
		[ -e "$MNT/feed/user" ] || put user:alice 1
		[ "$(shown feed)" = "$(printf '%o daemon games' $((0777 & ~umask)))" ]
		[ "$(shown in/events)" = "$(printf '%o daemon games' $((0666 & ~umask)))" ]
		[ "$(shown feed/user/0000000000000001.json)" = "$(printf '%o daemon games' $((0444 & ~umask)))" ]
		gets "${reads//_/ }" "$user" "$read_it" feed/user/1.json
		gets "${reads//_/ }" "$user" "$read_it" feed/1.json
		gets "${reads//_/ }" "$user" "$list_it" data/user
		gets "${writes//_/ }" "$user" "$send_it" in/events
		gets "${writes//_/ }" "$user" "$config_it" ctl/config.json
		stop_daemon
	done <<-END
	022 daemon ok ok
	022 games ok Permission_denied
	022 nobody ok Permission_denied
	077 daemon ok ok
	077 games Permission_denied Permission_denied
	027 games ok Permission_denied
	027 nobody+games ok Permission_denied
	027 nobody Permission_denied Permission_denied
	007 games ok ok
	007 nobody+games ok ok
	007 nobody Permission_denied Permission_denied
	000 nobody ok ok
	END
}

@test "without allow_other nobody else gets in, and allow_root lets in root alone" {
	start_daemon -o umask=0
	gets "$denied" nobody "$list_it" ''
	gets "$denied" nobody "$read_it" README.md
	gets "$denied" nobody "$send_it" in/events
	remount -o umask=0,allow_root
	gets "$denied" nobody "$read_it" README.md
	gets "$denied" nobody "$send_it" in/events
	cat "$MNT/README.md"
}

@test "unshare: the mount of a user keeps out even root, unless it says allow_root" {
	mkdir "$WORK/dev" "$STORE"
	chown nobody "$STORE" "$MNT"
	cat >"$WORK/session" <<-'END'
	set -eu
	# a device that users may open, and the permission to let others in: for this namespace only
	mount -t tmpfs tmpfs "$WORK/dev"
	mknod "$WORK/dev/fuse" c 10 229
	chmod 666 "$WORK/dev/fuse"
	mount --bind "$WORK/dev/fuse" /dev/fuse
	echo user_allow_other >"$WORK/fuse.conf"
	mount --bind "$WORK/fuse.conf" /etc/fuse.conf
	nobody() { setpriv --reuid nobody --regid nogroup --clear-groups -- "$@"; }
	for options in umask=0 umask=0,allow_root; do
		nobody "$CHANGEFS" "$STORE" "$MNT" -o "$options"
		nobody cat "$MNT/README.md" >/dev/null
		if cat "$MNT/README.md" >/dev/null; then echo "$options: root got in"; fi
		while ! nobody fusermount3 -u "$MNT"; do sleep 0.05; done
		while ! nobody "$CHANGEFS" check "$STORE"; do sleep 0.05; done >/dev/null 2>&1
	done
	END
	export WORK
	run within 30 unshare --mount --propagation private bash "$WORK/session"
	[ "$status" -eq 0 ]
	[ "$output" = "cat: $MNT/README.md: Permission denied"$'\n'"umask=0,allow_root: root got in" ]
}

# ---- chmod, chown, chgrp ----

@test "chmod 600 in/events shuts others out, and chown hands it to a producer" {
	start_with_two -o umask=0
	gets ok nobody "$send_it" in/events
	chmod 600 "$MNT/in/events"
	gets "$denied" nobody "$send_it" in/events
	gets ok root "$send_it" in/events
	chown games "$MNT/in/events"
	gets ok games "$send_it" in/events
	gets "$denied" nobody "$send_it" in/events
	[ "$(shown in/events)" = "600 games root" ]
	log_has 5
}

@test "chgrp and chmod g+w let a group write" {
	start_with_two -o umask=022
	chgrp games "$MNT/in/events" "$MNT/ctl/config.json"
	chmod g+w "$MNT/in/events" "$MNT/ctl/config.json"
	gets ok games "$send_it" in/events
	gets ok daemon+games "$config_it" ctl/config.json
	gets "$denied" daemon "$send_it" in/events
	gets "$denied" daemon "$config_it" ctl/config.json
	[ "$(shown ctl/config.json)" = "664 root games" ]
}

@test "chmod o-x on a collection protects its events, by their other name too" {
	start_with_two -o umask=022
	gets ok nobody "$read_it" feed/1.json
	gets ok nobody "$read_it" feed/user/1.json
	chmod o-x "$MNT/feed/user"
	gets "$denied" nobody "$read_it" feed/user/1.json
	gets "$denied" nobody "$read_it" feed/user/log.ndjson
	gets "$denied" nobody "$first_line" feed/user/tail
	gets "$denied" nobody "$read_it" feed/1.json
	gets "$denied" nobody "$read_it" feed/0000000000000001.json
	gets ok nobody "$list_it" feed/user
	gets ok nobody "$read_it" feed/2.json
	gets ok nobody "$read_it" data/user/alice.json
	chgrp games "$MNT/feed/user"
	gets ok games "$read_it" feed/1.json
	gets ok games "$read_it" feed/user/1.json
	chmod o-r "$MNT/feed/user"
	gets "$denied" nobody "$list_it" feed/user
	chmod 755 "$MNT/feed/user"
	gets ok nobody "$read_it" feed/1.json
	gets ok nobody "$list_it" feed/user
}

@test "chmod on feed/tail is for the stream by each of its names" {
	start_with_two -o umask=022
	chmod 600 "$MNT/feed/tail" "$MNT/feed/log.ndjson"
	for path in feed/tail feed/.tail feed/.tail@0 feed/.tail@1 feed/log.ndjson; do
		gets "$denied" nobody "$first_line" "$path"
		gets ok root "$first_line" "$path"
	done
	gets ok nobody "$first_line" feed/user/tail
	chmod o+r "$MNT/feed/.tail@1"
	gets ok nobody "$first_line" feed/tail
}

@test "in/wal2json@NAME is as in/wal2json until it has a mode or owner of its own" {
	start_with_two -o umask=0
	chmod 600 "$MNT/in/wal2json"
	[ "$(shown in/wal2json@default)" = "600 root root" ]
	gets "$denied" games ': >>"$1"' in/wal2json@shop
	chown games "$MNT/in/wal2json@shop"
	gets ok games ': >>"$1"' in/wal2json@shop
	gets "$denied" games ': >>"$1"' in/wal2json@crm
	remount -o allow_other,umask=0
	[ "$(shown in/wal2json@shop)" = "600 games root" ]
	[ "$(shown in/wal2json)" = "600 root root" ]
}

@test "who is not the owner can change neither mode nor owner, and the owner not give away" {
	start_with_two -o "umask=0,uid=$(id -u daemon)"
	for path in feed feed/user data/user in in/events ctl/config.json README.md feed/log.ndjson; do
		gets "$not_permitted" nobody "$close_it" "$path"
		gets "$not_permitted" nobody "$take_it" "$path"
		gets "$not_permitted" daemon 'chown nobody "$1"' "$path"
		gets "$not_permitted" daemon "$group_it" "$path"
		gets ok daemon+games "$group_it" "$path"
		gets ok daemon "$close_it" "$path"
		[[ "$(shown "$path")" == [467]00\ daemon\ games ]]
		gets ok daemon "$open_it" "$path"
	done
}

@test "a former owner with the file still open can no longer change its mode, and ctl/errors names him" {
	start_with_two
	chown games "$MNT/in/events"
	mkfifo -m 666 "$WORK/go" "$WORK/ready"
	start setpriv --reuid games --regid games --clear-groups -- /usr/bin/python3 -c '
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY)
open(sys.argv[2], "w").close()
open(sys.argv[3]).read()
os.fchmod(file, 0o666)' "$MNT/in/events" "$WORK/ready" "$WORK/go" 2>"$WORK/said"
	within 20 cat "$WORK/ready"
	chown daemon "$MNT/in/events"
	: >"$WORK/go"
	wait_until 20 file_contains "$WORK/said" "PermissionError: [Errno 1] Operation not permitted"
	refused EPERM /in/events
	[ "$(last_error | jq .uid)" -eq "$(id -u games)" ]
	[ "$(shown in/events)" = "644 daemon root" ]
}

@test "ctl/errors names the user whose line was refused" {
	start_with_two -o umask=0
	gets "Invalid argument" nobody 'echo nonsense >"$1"' in/events
	refused EINVAL /in/events
	[ "$(last_error | jq .uid)" -eq "$(id -u nobody)" ]
	chmod 600 "$MNT/ctl/errors"
	gets "$denied" nobody "$read_it" ctl/errors
}

@test "history keeps its mode and owner; a script that sets what is so already does no harm" {
	start_with_two -o umask=022
	file=feed/user/0000000000000001.json
	for command in 'chmod 600 "$1"' 'chmod u+w "$1"' 'chown games "$1"' 'chgrp games "$1"'; do
		for path in "$file" feed/0000000000000001.json ops/0000000000000001.json; do
			gets "$not_permitted" root "$command" "$path"
			refused EPERM "/$path"
			gets ok root 'chmod 444 "$1" && chown root:root "$1" && chmod a+r "$1"' "$path"
			[ "$(shown "$path")" = "444 root root" ]
		done
	done
}

@test "chmod, chown and touch on a document succeed and change nothing" {
	start_with_two -o umask=022
	before=$(stat -c '%a %u %g %y %s' "$MNT/data/user/alice.json")
	chmod 600 "$MNT/data/user/alice.json"
	chown games:games "$MNT/data/user/alice.json"
	touch -c -d 2001-01-01 "$MNT/data/user/alice.json"
	[ "$(stat -c '%a %u %g %y %s' "$MNT/data/user/alice.json")" = "$before" ]
	log_has 2
}

@test "chmod keeps sticky and setgid on directories, never the type, and no setuid on files" {
	start_with_two
	chmod 3775 "$MNT/feed/user"
	[ "$(stat -c '%A' "$MNT/feed/user")" = "drwxrwsr-t" ]
	chown games:games "$MNT/feed/user"
	[ "$(stat -c '%A' "$MNT/feed/user")" = "drwxrwsr-t" ]
	chmod 6775 "$MNT/in/events"
	[ "$(stat -c '%A' "$MNT/in/events")" = "-rwxrwxr-x" ]
	# the kernel takes setgid from who does not belong to the group
	chgrp daemon "$MNT/feed/user"
	gets ok games 'chmod 2770 "$1"' feed/user
	[ "$(shown feed/user)" = "770 games daemon" ]
}

@test "mkdir in data/ makes a directory of its maker's, and after rmdir the next one's" {
	start_with_two -o umask=022
	gets "$denied" nobody 'mkdir "$1"' data/mine
	chmod 777 "$MNT/data"
	gets ok nobody 'mkdir "$1"' data/mine
	gets ok nobody 'mkdir -m 700 "$1"' data/secret
	gets ok nobody 'echo 1 >"$1" && echo 2 >"$1.new" && rm "$1.new"' data/mine/a.json
	gets "$denied" games 'echo 1 >"$1"' data/mine/b.json
	gets "$denied" games "$list_it" data/secret
	remount -o allow_other,umask=022
	[ "$(shown data/mine)" = "755 nobody nogroup" ]
	[ "$(shown data/secret)" = "700 nobody nogroup" ]
	gets ok nobody 'rm "$1"/a.json && rmdir "$1"' data/mine
	gets ok games 'mkdir "$1"' data/mine
	[ "$(shown data/mine)" = "755 games games" ]
	rmdir "$MNT/data/mine"
	mkdir "$MNT/data/mine"
	[ "$(shown data/mine)" = "755 root root" ]
	remount -o allow_other,umask=027,gid="$(id -g daemon)"
	[ "$(shown data/mine)" = "750 root daemon" ]
}

@test "mkdir and new files in a directory with setgid take its group" {
	start_with_two -o umask=022
	chgrp games "$MNT/data" "$MNT/data/user"
	chmod 2777 "$MNT/data" "$MNT/data/user"
	gets ok nobody 'mkdir "$1"' data/mine
	gets ok nobody 'echo 1 >"$1"' data/user/.scratch
	[ "$(stat -c '%A %U %G' "$MNT/data/mine")" = "drwxr-sr-x nobody games" ]
	[ "$(shown data/user/.scratch)" = "644 nobody games" ]
}

@test "a collection's directories in feed/ and data/ have each their own" {
	start_with_two
	chmod 711 "$MNT/feed/user"
	chown games "$MNT/data/user"
	[ "$(shown feed/user)" = "711 root root" ]
	[ "$(shown data/user)" = "755 games root" ]
	[ "$(shown feed/order)" = "755 root root" ]
}

@test "chmod moves the time of the status change and not that of the content" {
	start_with_two
	for path in feed/user in/events README.md; do
		modified=$(stat -c %Y "$MNT/$path")
		before=$(now_ms)
		chmod 700 "$MNT/$path"
		changed=$(stat -c %.3Z "$MNT/$path")
		[ "${changed/./}" -ge "$before" ]
		[ "$(stat -c %Y "$MNT/$path")" -eq "$modified" ]
		remount -o allow_other
		[ "$(stat -c %.3Z "$MNT/$path")" = "$changed" ]
	done
}

# ---- what is kept ----

# All that can be set, one a line.
all_modes() {
	find "$MNT" \( -type d -o -path '*/in/*' -o -path '*/ctl/*' -o -name README.md -o -name log.ndjson \) \
		-printf '%P %M %u %g\n' | LC_ALL=C sort
}

set_some() {
	chmod 711 "$MNT" "$MNT/feed/user"
	chown games "$MNT/in" "$MNT/in/events"
	chgrp games "$MNT/data/user" "$MNT/in/events"
	chmod 620 "$MNT/in/events"
	chmod 640 "$MNT/ctl/errors" "$MNT/README.md"
	chown daemon:games "$MNT/ctl/config.json" "$MNT/feed/order/log.ndjson"
}

@test "chmod, chown and chgrp are kept over a remount and over kill -9, and other options change only the rest" {
	start_with_two -o umask=022
	set_some
	all_modes >"$WORK/set"
	remount -o allow_other,umask=022
	all_modes | diff "$WORK/set" -
	chmod 755 "$MNT/feed/order" # what it shows already: from now on its own
	kill_daemon
	start_daemon -o allow_other,umask=022
	all_modes | diff "$WORK/set" -
	gets "$denied" nobody "$send_it" in/events
	gets ok games "$send_it" in/events
	remount -o "allow_other,umask=077,uid=$(id -u nobody),gid=$(id -g daemon)"
	[ "$(shown '')" = "711 nobody daemon" ]
	[ "$(shown feed)" = "700 nobody daemon" ]
	[ "$(shown feed/user)" = "711 nobody daemon" ]
	[ "$(shown feed/order)" = "755 nobody daemon" ]
	[ "$(shown in)" = "700 games daemon" ]
	[ "$(shown in/events)" = "620 games games" ]
	[ "$(shown data/user)" = "700 nobody games" ]
	[ "$(shown ctl/config.json)" = "600 daemon games" ]
	[ "$(shown ctl/errors)" = "640 nobody daemon" ]
}

@test "kill -9 in the midst of chmods: each is there whole or not at all, and all that had returned are" {
	start_with_two
	# each round sets a mode and an owner that belong together, and notes it when both have returned
	start bash -c 'i=0; while i=$((i % 511 + 1)); do
		chmod "$(printf %o "$i")" "$1/feed/user" && chown "$i:$i" "$1/feed/user" && echo "$i" >>"$2" || exit
	done' - "$MNT" "$WORK/done" 2>/dev/null
	wait_until 60 at_least_lines "$WORK/done" 20
	kill_daemon
	wait_until 20 process_gone "$CHILD"
	last=$(tail -n 1 "$WORK/done")
	start_daemon
	read -r mode uid gid < <(stat -c '%a %u %g' "$MNT/feed/user")
	[ "$uid" -eq "$gid" ]
	[ "$uid" -eq "$last" ] || [ "$uid" -eq $((last + 1)) ]
	[ $((8#$mode)) -eq "$last" ] || [ $((8#$mode)) -eq $((last + 1)) ]
}

@test "with -o ro chmod, chown and chgrp are refused as on any read-only file system" {
	start_with_two -o umask=022
	chmod 711 "$MNT/feed"
	remount -o allow_other,umask=022,ro
	for path in feed in/events ctl/config.json data/user; do
		before=$(shown "$path")
		gets "Read-only file system" root 'chmod 700 "$1"' "$path"
		refused EROFS "/$path"
		gets "Read-only file system" root 'chown games "$1"' "$path"
		gets "Read-only file system" root "$group_it" "$path"
		gets "$not_permitted" nobody "$close_it" "$path"
		[ "$(shown "$path")" = "$before" ]
	done
	[ "$(shown feed)" = "711 root root" ]
}

# ---- exactly what the modes say ----

@test "a mount and a plain copy with the same modes and owners answer every user alike" {
	start_with_two -o umask=022
	/usr/bin/python3 "$BATS_TEST_DIRNAME/permissions.py" model "$MNT" "$WORK/plain"
	remount -o allow_other,umask=022
	/usr/bin/python3 "$BATS_TEST_DIRNAME/permissions.py" compare "$MNT" "$WORK/plain"
	kill_daemon
	start_daemon -o allow_other,umask=022
	/usr/bin/python3 "$BATS_TEST_DIRNAME/permissions.py" compare "$MNT" "$WORK/plain"
}
