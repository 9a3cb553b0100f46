#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The units of examples/systemd, by systemd itself: a manager of our own, in namespaces of its own.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
	UNITS=$(readlink -f "$BATS_TEST_DIRNAME/../../examples/systemd")
	[ "$(id -u)" -eq 0 ] || export ENTER=sudo
	# A leak check traces its own process, which a process with the units' few capabilities may not.
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
}

# Runs a script below a systemd that knows the units. Only the user's manager keeps away from the machine;
# it does all that these units ask for.
below_systemd() {
	cp "$UNITS"/* "$WORK"
	chmod 755 "$WORK"
	# shellcheck disable=SC2016
	in_system '
		mount -t tmpfs none /sys/fs/cgroup
		mount -t cgroup2 none /sys/fs/cgroup
		mount -t tmpfs none /var/lib
		mount --bind /usr/local/sbin /usr/local/bin
		export XDG_RUNTIME_DIR=/run/runtime XDG_CONFIG_HOME=/run/config
		mkdir -p /run/systemd/system /run/config/systemd/user /run/runtime /var/lib/changefs
		cp /mnt/*.* /run/config/systemd/user
		echo "[Unit]" >/run/config/systemd/user/test.target
		/lib/systemd/systemd --user --unit=test.target 2>/mnt/manager &
		trap "systemctl --user exit; wait $!; cd /sys/fs/cgroup; rmdir app.slice init.scope 2>/dev/null || true" EXIT
		until [ "$(systemctl --user is-system-running 2>/dev/null)" = running ]; do sleep 0.05; done
		value() { systemctl --user show --property="$1" --value "$unit"; }
		'"$1"
}

@test "systemd-analyze verify finds nothing in the units" {
	mkdir "$WORK/units"
	for unit in "$UNITS"/*; do
		sed "s#/usr/local/bin/changefs#$CHANGEFS#" "$unit" >"$WORK/units/${unit##*/}"
	done
	run -0 systemd-analyze --man=no verify "$WORK/units"/*
	[ -z "$output" ]
}

@test "changefs@.service: started means served, a crash starts it again, stopped means gone" {
	make_events 1 20000 >"$WORK/lines"
	# shellcheck disable=SC2016
	below_systemd '
		unit=changefs@shop
		systemctl --user start $unit
		cat /mnt/lines >/mnt/shop/in/events
		first=$(value MainPID)
		[ "$(cat "/proc/$first/comm")" = changefs ]
		grep "^NoNewPrivs:.1" /proc/$first/status
		grep "^CapEff:.0000000000200000" /proc/$first/status

		(cd /mnt/shop/feed && exec tail -f /dev/null) &
		kill -KILL "$first"
		until [ "$(value NRestarts)/$(value SubState)" = 1/running ]; do sleep 0.05; done
		[ "$(value MainPID)" -ne "$first" ]
		[ "$(grep -c " /mnt/shop " /proc/mounts)" -eq 1 ]
		echo "{\"type\":\"PUT\",\"key\":\"user:b\",\"value\":1}" >/mnt/shop/in/events
		[ "$(tail -n 1 /mnt/shop/feed/log.ndjson | jq .sequence)" -eq 20001 ]

		cat /mnt/shop/feed/tail >/mnt/out 2>&1 &
		until [ "$(jq .readers.waiting /mnt/shop/ctl/stats.json)" -eq 1 ]; do sleep 0.05; done
		systemctl --user stop $unit
		[ "$(value Result)/$(value ExecMainStatus)" = success/0 ]
		not grep " /mnt/shop " /proc/mounts
		[ "$(grep -c sequence /mnt/out)" -eq 20001 ]
		changefs check /var/lib/changefs/shop
	'
}

@test "changefs@.service: a start that fails says so, and leaves no mount" {
	# shellcheck disable=SC2016
	below_systemd '
		unit=changefs@shop
		mkdir -p /var/lib/changefs/shop/photos
		not systemctl --user start $unit
		not grep " /mnt/shop " /proc/mounts
	'
}

@test "mnt-changes.mount: started means served, stopped means gone, with a reader that waits too" {
	# shellcheck disable=SC2016
	below_systemd '
		unit=mnt-changes.mount
		systemctl --user start $unit
		echo "{\"type\":\"PUT\",\"key\":\"user:a\",\"value\":1}" >/mnt/changes/in/events
		grep "^/var/lib/shop.changes /mnt/changes .*allow_other" /proc/mounts
		cat /mnt/changes/feed/tail >/mnt/out 2>&1 &
		reader=$!
		until [ "$(jq .readers.waiting /mnt/changes/ctl/stats.json)" -eq 1 ]; do sleep 0.05; done
		systemctl --user stop $unit
		[ "$(value Result)" = success ]
		not grep " /mnt/changes " /proc/mounts
		kill "$reader"
		changefs check /var/lib/shop.changes
	'
}

@test "changefs@.service as an ordinary user: the capability that it names is what mounting takes" {
	# shellcheck disable=SC2016
	in_system '
		open_fuse
		mkdir /mnt/home
		chown nobody /mnt/home
		as() { setpriv --reuid=nobody --regid=65534 --clear-groups --bounding-set=-all,+sys_admin \
			--inh-caps=-all,+sys_admin --ambient-caps=-all,+sys_admin --no-new-privs "$@"; }
		as changefs /mnt/home/store /mnt/mnt
		mounted | grep user_id=65534
		as tee /mnt/mnt/in/events <<<"{\"type\":\"PUT\",\"key\":\"user:a\",\"value\":1}"
		[ "$(stat -c %U /mnt/home/store)" = nobody ]
		kill -TERM "$(pgrep -x changefs)"
		as changefs check /mnt/home/store
		not mounted
		rm -r /mnt/home/store
	'
}
