#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The life of a mount: its ends, orderly and not, what comes after them, and mount(8).
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
}

# A reader that waits: CHILD, its lines in $WORK/out.
start_reader() {
	start cat "$MNT/feed/tail" >"$WORK/out" 2>"$WORK/reader"
	wait_until 10 readers_wait 1
}

# A process whose working directory is in the mount: CHILD.
start_inside() {
	start env -C "$MNT/feed" tail -f /dev/null
	wait_until 5 test "$MNT/feed" -ef "/proc/$CHILD/cwd"
}

end_child() {
	kill -INT "$CHILD"
	wait_until 5 process_gone "$CHILD"
}

# The daemon is this process, which is no longer among those to kill at the end.
adopt() {
	DAEMON=$1
	CHILDREN=()
}

# How many mounts of any kind are at a place.
mount_count() {
	awk -v place="$1" '$2 == place { n++ } END { print n + 0 }' /proc/mounts
}

mounted_once() {
	is_served "$MNT" && [ "$(mount_count "$MNT")" -eq 1 ]
}

# The kernel has forgotten what it knew of the mount's root, and nobody answers, or nobody is there.
kernel_asks() {
	! timeout -s KILL 0.1 test -x "$MNT"
}

# ---- orderly ends ----

@test "umount ends the daemon with 0, and everything is there the next time" {
	start_daemon
	make_events 1 500 >"$MNT/in/events"
	cat "$MNT/feed/log.ndjson" >"$WORK/before"
	wait_until 10 unmount "$MNT"
	daemon_exit_code
	[ -z "$(ls -A "$MNT")" ]
	start_daemon
	cmp "$WORK/before" "$MNT/feed/log.ndjson"
	put user:501 1
	[ "$(tail -n 1 "$MNT/feed/log.ndjson" | jq .sequence)" -eq 501 ]
}

@test "fusermount3 -u ends it as umount does" {
	start_daemon
	put user:a 1
	wait_until 10 fusermount3 -u "$MNT"
	daemon_exit_code
	not_mounted "$MNT"
}

@test "umount and fusermount3 -u say busy while a reader waits, which goes on reading" {
	start_daemon
	put user:a 1
	start_reader
	for command in "unmount" "fusermount3 -u"; do
		run $command "$MNT"
		[ "$status" -ne 0 ]
		[[ "$output" == *busy* ]]
	done
	put user:b 2
	wait_until 5 line_count "$WORK/out" 2
	cmp "$WORK/out" "$MNT/feed/log.ndjson"
	end_child
	stop_daemon
}

@test "umount says busy while a shell is in it, or a file is open, and succeeds then" {
	start_daemon
	start_inside
	run unmount "$MNT"
	[[ "$output" == *busy* ]]
	end_child
	exec 9>>"$MNT/in/events"
	run unmount "$MNT"
	[[ "$output" == *busy* ]]
	is_served "$MNT"
	exec 9>&-
	stop_daemon
}

@test "umount -l: the place is free at once, reader, writer and shell go on, the last one ends the daemon with 0" {
	start_daemon
	put user:a 1
	start_inside
	inside=$CHILD
	start_reader
	exec 9>"$MNT/in/events"
	unmount -l "$MNT"
	not_mounted "$MNT"
	[ -z "$(ls -A "$MNT")" ]
	echo '{"type":"PUT","key":"user:b","value":2}' >&9
	wait_until 5 line_count "$WORK/out" 2
	jq -e '.last_sequence == 2' "/proc/$inside/cwd/../ctl/stats.json"
	exec 9>&-
	end_child
	kill -0 "$DAEMON"
	CHILD=$inside end_child
	daemon_exit_code
	start_daemon
	log_has 2
}

@test "umount -l, and a start on the same place and store is refused until the last reader has gone" {
	start_daemon
	start_reader
	unmount -l "$MNT"
	run -1 "$CHANGEFS" "$STORE" "$MNT" -f
	[[ "$output" == *"$DAEMON"* ]]
	end_child
	daemon_exit_code
	start_daemon
}

@test "umount -f: readers get an error, the daemon leaves with 0, nothing stays mounted, the next start works" {
	start_daemon
	put user:a 1
	start_inside
	start_reader
	if [ "$(id -u)" -eq 0 ]; then
		umount -f "$MNT" || true
	else
		# what umount -f does, for the owner of the connection
		echo 1 >"/sys/fs/fuse/connections/$(stat -c %d "$MNT")/abort"
	fi
	daemon_exit_code
	wait_until 5 process_gone "$CHILD"
	[ -s "$WORK/reader" ]
	[ "$(mount_count "$MNT")" -eq 0 ]
	start_daemon
	log_has 1
}

@test "TERM, INT, HUP and QUIT: a reader is told, a shell inside does not hinder, unmounted, 0" {
	start_daemon
	put user:a 1
	for signal in TERM INT HUP QUIT; do
		start_inside
		start_reader
		kill -"$signal" "$DAEMON"
		daemon_exit_code
		[ "$(mount_count "$MNT")" -eq 0 ]
		wait_until 5 process_gone "$CHILD"
		[ -s "$WORK/reader" ]
		line_count "$WORK/out" 1
		[ -z "$(ls -A "$MNT")" ]
		start_daemon
	done
	log_has 1
}

@test "TERM in the background, again and again: it ends as after one" {
	within 20 "$CHANGEFS" "$STORE" "$MNT"
	adopt "$(pgrep -f -- "$STORE $MNT")"
	put user:a 1
	while ! process_gone "$DAEMON"; do
		kill -TERM "$DAEMON" 2>/dev/null || true
	done
	adopt ''
	[ "$(mount_count "$MNT")" -eq 0 ]
	store_is_clean "$STORE"
	start_daemon
	log_has 1
}

@test "TERM while a writer has an unfinished line open: what was valid is kept" {
	start_daemon
	exec 8>"$MNT/in/events" 9>"$MNT/in/events"
	printf '{"type":"PUT","key":"user:whole","value":1}' >&8
	printf '{"type":"PUT","key":"user:half","va' >&9
	kill -TERM "$DAEMON"
	daemon_exit_code
	exec 8>&- 9>&- || true
	start_daemon
	[ "$(jq -r .key "$MNT/feed/log.ndjson")" = user:whole ]
}

@test "umount and at once check, or start again: they wait for the daemon's end" {
	"$CHANGEFS" "$STORE" "$MNT"
	put user:1 1
	unmount "$MNT" && "$CHANGEFS" check "$STORE"
	"$CHANGEFS" "$STORE" "$MNT"
	unmount "$MNT" && "$CHANGEFS" "$STORE" "$MNT"
	unmount "$MNT" && "$CHANGEFS" check "$STORE"
}

@test "TERM and at once a start on the same place: it waits for the end too" {
	export EXPECTED_STDERR='failed to unmount' # between its two steps the new one may take the dead mount away
	start_daemon
	put user:a 1
	first=$DAEMON
	kill -TERM "$DAEMON"
	start_daemon
	process_gone "$first"
	mounted_once
	log_has 1
}

# ---- ends that are none ----

@test "kill -9: readers get an error, a start on the same place recovers it" {
	start_daemon
	make_events 1 1000 >"$MNT/in/events"
	start_inside
	start_reader
	kill_daemon
	wait_until 5 process_gone "$CHILD"
	run stat "$MNT/feed"
	[[ "$output" == *"not connected"* ]]
	start_daemon
	log_has 1000
	cmp "$WORK/out" "$MNT/feed/log.ndjson"
	put user:x 1
	numbered_from 1 <"$MNT/feed/log.ndjson"
	mounted_once
}

@test "kill -9, and the dead mount is replaced by whatever name it is called" {
	ln -s mnt "$WORK/link"
	cd "$WORK"
	for name in mnt mnt/ link link/; do
		start_daemon
		kill_daemon
		wait_until 10 kernel_asks
		run -0 within 20 "$CHANGEFS" "$STORE" "$name"
		put user:a 1
		mounted_once
		wait_until 10 unmount "$MNT"
	done
	start_daemon
	log_has 4
}

@test "kill -9 and at once a start, ten times with writes in between: nothing lost, no sequence twice" {
	for i in $(seq 10); do
		start_daemon
		make_events $((i * 100 - 99)) $((i * 100)) >"$MNT/in/events"
		kill -KILL "$DAEMON"
	done
	start_daemon
	mounted_once
	log_has 1000
	numbered_from 1 <"$MNT/feed/log.ndjson"
	jq -r .key "$MNT/feed/log.ndjson" | cmp - <(seq -f 'user:%.0f' 1 1000)
}

@test "kill -9 while a start is asking already whether the mount is served" {
	start_daemon
	put user:a 1
	CHILDREN+=("$DAEMON")
	kill -STOP "$DAEMON"
	wait_until 10 kernel_asks
	start "$CHANGEFS" "$STORE" "$MNT" -f 2>"$WORK/said"
	wait_until 10 grep request_wait "/proc/$CHILD/wchan"
	kill -KILL "$DAEMON"
	wait "$DAEMON" || true
	adopt "$CHILD"
	wait_until 10 mounted_once
	[ ! -s "$WORK/said" ]
	log_has 1
}

@test "umount takes a dead mount away" {
	start_daemon
	put user:a 1
	kill_daemon
	unmount "$MNT"
	[ "$(mount_count "$MNT")" -eq 0 ]
	[ -z "$(ls -A "$MNT")" ]
}

# ---- two of them ----

@test "a second daemon on the same store is refused, with the first one's pid and mount point" {
	start_daemon
	mkdir "$WORK/mnt2"
	run -1 within 20 "$CHANGEFS" "$STORE" "$WORK/mnt2" -f
	[[ "$output" == *"$DAEMON"* ]]
	[[ "$output" == *"$MNT"* ]]
	not_mounted "$WORK/mnt2"
	put user:a 1
	run -1 "$CHANGEFS" check "$STORE"
	[[ "$output" == *"$DAEMON"* ]]
	log_has 1
}

@test "a second daemon on the same mount point is refused, the first one goes on" {
	start_daemon
	run -1 within 20 "$CHANGEFS" "$WORK/store2" "$MNT"
	[[ "$output" == *"$MNT"*already* ]]
	run -1 within 20 "$CHANGEFS" "$WORK/store2" "$MNT/" -f
	[[ "$output" == *"$MNT"*already* ]]
	put user:a 1
	log_has 1
	mounted_once
	OTHER_STORES+=("$WORK/store2")
}

# ---- mount(8) ----

fstab_options=_netdev,nofail,noauto,x-systemd.automount,user

@test "options that mount(8) passes along are accepted" {
	start_daemon -o rw,nosuid,nodev,noexec,noatime,relatime,user=someone,exec,dev,suid,fsname=shop
	put user:a 1
	log_has 1
}

@test "mount -t fuse.changefs STORE MNT -o …, and umount" {
	# shellcheck disable=SC2016
	in_system '
		mount -t fuse.changefs /mnt/store /mnt/mnt -o nofail,umask=027,noexec,noatime
		mounted | grep noexec | grep noatime
		put user:a
		[ "$(stat -c %a /mnt/mnt/feed)" = 750 ]
		[ "$(wc -l </mnt/mnt/feed/log.ndjson)" -eq 1 ]
		umount /mnt/mnt
		not mounted
		mount -t fuse.changefs /mnt/store /mnt/mnt -o ro
		[ "$(wc -l </mnt/mnt/feed/log.ndjson)" -eq 1 ]
		not put user:b
		umount /mnt/mnt
		not mount -t fuse.changefs /mnt/store /mnt/mnt -o nonsense 2>/mnt/said
		grep nonsense /mnt/said
		not mounted
	'
}

@test "mount MNT and mount STORE from a line of fstab, mount -a, mount -T FILE" {
	echo "/mnt/store /mnt/mnt fuse.changefs $fstab_options 0 0" >"$WORK/fstab"
	echo "/mnt/store /mnt/mnt fuse.changefs _netdev,nofail,umask=027 0 0" >"$WORK/other"
	# shellcheck disable=SC2016
	in_system '
		mkdir /mnt/store
		findmnt --verify 2>&1 | grep ", 0 errors"
		mount -a
		not mounted # noauto
		for name in /mnt/mnt /mnt/store; do
			mount $name
			mounted | grep user_id=0
			put user:a
			umount /mnt/mnt
		done
		for round in 1 2; do
			mount -a -T /mnt/other
			[ "$(mounted | wc -l)" -eq 1 ]
		done
		[ "$(stat -c %a /mnt/mnt/feed)" = 750 ]
		[ "$(wc -l </mnt/mnt/feed/log.ndjson)" -eq 2 ]
		umount /mnt/mnt
		not mounted
		mount -T /mnt/other /mnt/mnt
		umount /mnt/mnt
	'
}

@test "an ordinary user mounts and unmounts what fstab says user, sees it alone, and opens it to others by fuse.conf only" {
	cat >"$WORK/fstab" <<-END
	/mnt/home/store /mnt/home/mnt fuse.changefs $fstab_options 0 0
	/mnt/home/store /mnt/home/open fuse.changefs noauto,user,allow_other,umask=022 0 0
	END
	chmod 755 "$WORK"
	[ "$(id -u)" -eq 0 ] || export ENTER=sudo
	# shellcheck disable=SC2016
	in_system '
		# mount(8) wants users that have a name
		as() { setpriv --reuid="$1" --regid="$(id -g "$1")" --clear-groups -- "${@:2}"; }
		mkdir -p /mnt/home/{mnt,open}
		chown -R nobody /mnt/home
		: >/mnt/fuse.conf
		mount --bind /mnt/fuse.conf /etc/fuse.conf
		open_fuse

		as nobody mount /mnt/home/mnt
		grep " /mnt/home/mnt .*user_id=65534" /proc/mounts
		echo "{\"type\":\"PUT\",\"key\":\"user:a\",\"value\":1}" | as nobody tee /mnt/home/mnt/in/events
		[ "$(as nobody stat -c %u /mnt/home/mnt/feed)" -eq 65534 ]
		not as daemon ls /mnt/home/mnt
		not ls /mnt/home/mnt
		not as daemon umount /mnt/home/mnt
		as nobody umount /mnt/home/mnt
		not grep " /mnt/home/mnt " /proc/mounts

		not as nobody mount /mnt/home/open 2>/mnt/said
		grep user_allow_other /mnt/said
		echo user_allow_other >/mnt/fuse.conf
		as nobody mount /mnt/home/open
		[ "$(as daemon wc -l </mnt/home/open/feed/log.ndjson)" -eq 1 ]
		not as daemon touch /mnt/home/open/in/events
		as nobody umount /mnt/home/open

		as nobody mount /mnt/home/mnt
		kill -KILL "$(pgrep -x changefs)"
		as nobody mount /mnt/home/mnt
		[ "$(grep -c " /mnt/home/mnt " /proc/mounts)" -eq 1 ]
		as nobody umount /mnt/home/mnt
		as nobody changefs check /mnt/home/store
		rm -r /mnt/home
	'
}
