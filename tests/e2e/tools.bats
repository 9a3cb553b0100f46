#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Every reading tool prints the same in the mount and in a plain copy. The commands are in tools.bash.
bats_require_minimum_version 1.5.0
load helpers
load tools

setup_file() {
	tools_setup_file
}

teardown_file() {
	changefs_teardown
}

setup() {
	:
}

teardown() {
	:
}

# The test's name is the tool's.
same() {
	same_on_both "$BATS_TEST_DESCRIPTION"
}

@test "cat" { same; }
@test "tac" { same; }
@test "head" { same; }
@test "tail" { same; }
@test "less" { same; }
@test "wc" { same; }
@test "grep" { same; }
@test "find" { same; }
@test "du" { same; }
@test "df" { same; }
@test "ls" { same; }
@test "stat" { same; }
@test "sort" { same; }
@test "uniq" { same; }
@test "jq" { same; }
@test "awk" { same; }
@test "sed" { same; }
@test "cut" { same; }
@test "paste" { same; }
@test "comm" { same; }
@test "od" { same; }
@test "split" { same; }
@test "xargs" { same; }
@test "dd" { same; }
@test "cmp" { same; }
@test "diff" { same; }
@test "md5sum" { same; }
@test "sha256sum" { same; }
@test "gzip" { same; }
@test "tar" { same; }
@test "cpio" { same; }
@test "zip" { same; }
@test "rsync" { same; }
@test "cp" { same; }
@test "cp --reflink" { same; }
@test "install" { same; }
@test "perl" { same; }
@test "busybox cat" { same; }
@test "busybox tail" { same; }
@test "busybox head" { same; }
@test "busybox wc" { same; }
@test "busybox grep" { same; }
@test "busybox find" { same; }
@test "busybox tar" { same; }
@test "busybox cpio" { same; }
@test "busybox cp" { same; }
@test "busybox md5sum" { same; }
@test "busybox ls" { same; }
@test "busybox du" { same; }
@test "busybox awk" { same; }
@test "busybox sed" { same; }
@test "busybox sort" { same; }
@test "busybox dd" { same; }
@test "busybox cmp" { same; }
@test "busybox tac" { same; }
@test "busybox gzip" { same; }
@test "bash while read" { same; }
@test "bash mapfile" { same; }
@test "bash two readers" { same; }
@test "python mmap" { same; }
@test "python sendfile, splice, copy_file_range, preadv" { same; }

# shellcheck disable=SC2154 # tools.bash has them
@test "each tool of the table has its test" {
	for tool in "${!tools[@]}"; do
		grep -qxF "@test \"$tool\" { same; }" "$BATS_TEST_FILENAME"
	done
	[ "${#tools[@]}" -ge 60 ]
}
