#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A naive model and the mount agree. MODEL_SEED repeats a run, MODEL_STEPS makes it longer.
bats_require_minimum_version 1.5.0
load helpers

setup() {
	changefs_setup
}

@test "a naive model and the mount agree under random operations" {
	python3 "$BATS_TEST_DIRNAME/model.py" "$CHANGEFS" "$STORE" "$MNT" "${MODEL_STEPS:-400}" \
		${MODEL_SEED:+"$MODEL_SEED"} 2>"$WORK/model.stderr" || { cat "$WORK/model.stderr"; false; }
	cat "$WORK/model.stderr" >>"$DAEMON_STDERR"
}
