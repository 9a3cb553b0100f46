#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --help, the man page and bash's completion say the same, and are what they have to be. Nothing is mounted.
bats_require_minimum_version 1.5.0
load helpers

setup_file() {
	export SOURCE
	SOURCE=$(readlink -f "$BATS_TEST_DIRNAME/../..")
	DESTDIR=$BATS_FILE_TMPDIR meson install -C "$(dirname "$CHANGEFS")" --no-rebuild >/dev/null
	INSTALLED=$BATS_FILE_TMPDIR$(meson introspect --buildoptions "$(dirname "$CHANGEFS")" |
		jq -r '.[] | select(.name == "prefix") | .value')
	export INSTALLED
}

setup() {
	changefs_setup
}

# Of --help: the options of the command line, and the mount options, each on a line.
help_options() {
	"$CHANGEFS" --help | sed -nE '/^  -/ { s/^  //; s/  .*//; p }' | tr ',' '\n' | awk '{ print $1 }' | sort
}

help_mount_options() {
	"$CHANGEFS" --help | sed -n '/^Mount options:/,/^What mount/p' | sed -nE 's/^  ([a-z].*)$/\1/p' |
		sed 's/  .*//' | tr ',' '\n' | sed 's/^ //; s/=.*/=/' | sort
}

# The tags of the list in the man page's section $1, a line each.
man_tags() {
	sed -n "/^\.Ss $1/,/^\.S[hs] /s/^\.It //p" "$SOURCE/fs/changefs.1" |
		sed -E 's/ Ns = Ns Ar [^ ]+/=/g; s/ Ar .*//; s/(^| )Fl /\1-/g; s/(^| )Cm /\1/g; s/ , /\n/g' | sort
}

# Completes the words given, the last of which is being written; prints what is offered, a line each.
complete_words() {
	# shellcheck disable=SC2016
	bash --norc -c '
		source "$1" || exit
		shift
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_changefs
		[ ${#COMPREPLY[@]} -eq 0 ] || printf "%s\n" "${COMPREPLY[@]}" | sort
	' - "$INSTALLED/share/bash-completion/completions/changefs" "$@"
}

@test "man shows the page without a warning; mandoc finds no fault" {
	LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l "$INSTALLED/share/man/man1/changefs.1" \
		>"$WORK/page" 2>"$WORK/warnings"
	[ ! -s "$WORK/warnings" ]
	file_contains "$WORK/page" 'mount a change log as a file system'
	run -0 mandoc -T lint -W warning "$INSTALLED/share/man/man1/changefs.1"
	[ -z "$output" ]
}

@test "the man page has every option that --help has, and no other (man)" {
	[ "$(help_mount_options | wc -l)" -ge 10 ]
	[ "$(man_tags 'Mount options')" = "$(help_mount_options)" ]
	[ "$(help_options | wc -l)" -ge 6 ]
	[ "$(man_tags 'Command line')" = "$(help_options)" ]
}

@test "the man page names every option that is accepted and dropped, and each is accepted (man)" {
	man -E UTF-8 -l "$SOURCE/fs/changefs.1" | col -b >"$WORK/page"
	sed -n '/dropped\[\] = {/,/};/p' "$SOURCE/fs/options.c" | grep -oE '"[^"]+"' | tr -d '"' >"$WORK/dropped"
	[ "$(wc -l <"$WORK/dropped")" -ge 30 ]
	while read -r option; do
		grep -qE "(^|[ ,])${option%=}" "$WORK/page"
		run ! "$CHANGEFS" "$WORK/none/store" "$MNT" -o "$option"
		[[ $output != *'unknown mount option'* ]]
	done <"$WORK/dropped"
}

@test "bash completes every mount option of --help, and no other" {
	[ "$(complete_words changefs -o '')" = "$(help_mount_options)" ]
	for option in $(help_mount_options); do
		complete_words changefs -o "${option:0:3}" | grep -qx -- "$option"
		complete_words changefs "-o${option:0:3}" | grep -qx -- "-o$option"
	done
	[ -z "$(complete_words changefs -o quux)" ]
}

@test "bash completes in lists of mount options, and offers none twice" {
	[ "$(complete_words changefs -o ro,noe)" = ro,noexec ]
	[ "$(complete_words changefs STORE MOUNTPOINT -o nostreams,allow_o)" = nostreams,allow_other ]
	[ -z "$(complete_words changefs -o noexec,noe)" ]
	[ "$(complete_words changefs -o ro, | wc -l)" -eq $(($(help_mount_options | wc -l) - 1)) ]
	# bash makes words of their own of = and what follows it
	[ "$(complete_words changefs -o uid = 5,gi)" = 5,gid= ]
	[ "$(complete_words changefs -ouid = 5,gid = 6,uma)" = 6,umask= ]
	[ -z "$(complete_words changefs -o uid =)$(complete_words changefs -o uid = 5)" ]
}

@test "bash completes options, the subcommand and directories" {
	mkdir -p "$WORK/in/store one" "$WORK/in/stock" "$WORK/in/checked"
	: >"$WORK/in/stop"
	cd "$WORK/in"
	[ "$(complete_words changefs -)" = "$(help_options)" ]
	[ "$(complete_words changefs ch)" = $'check\nchecked' ]
	[ "$(complete_words changefs st)" = $'stock\nstore one' ]
	[ "$(complete_words changefs check st)" = $'stock\nstore one' ]
	[ "$(complete_words changefs -o ro stock st)" = $'stock\nstore one' ]
	[ "$(complete_words changefs -o uid = 5 ch)" = $'check\nchecked' ]
	[ "$(complete_words changefs stock ch)" = checked ]
	[ -z "$(complete_words changefs stock checked st)" ]
}

@test "a Tab in an interactive bash completes changefs" {
	mkdir "$WORK/a_store"
	python3 - "$INSTALLED/share/bash-completion/completions/changefs" "$WORK" <<-'END'
	import os, pty, select, sys, time
	completion, work = sys.argv[1:]
	pid, fd = pty.fork()
	if pid == 0:
	    os.chdir(work)
	    os.environ.update(TERM="dumb", PS1="ready> ", HISTFILE="")
	    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
	def until(text):
	    seen, end = "", time.monotonic() + 20
	    while text not in seen:
	        if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
	            sys.exit("no %r in %r" % (text, seen))
	        seen += os.read(fd, 4096).decode(errors="replace")
	until("ready> ")
	os.write(fd, b"changefs() { printf '<%s>' \"$@\"; echo; }; source " + completion.encode() + b"\n")
	until("\nready> ")
	# What bash hands over, not what it echoes: the command is run.
	os.write(fd, b"changefs a_s\t -o uid=5,nos\t,uma\t022 --vers\t\n")
	until("<a_store/><-o><uid=5,nostreams,umask=022><--version>")
	os.write(fd, b"changefs che\ta_\t\n")
	until("<check><a_store/>")
	os.write(fd, b"exit\n")
	os.waitpid(pid, 0)
	END
}
