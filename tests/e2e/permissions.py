#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what modes and owners allow on a mount with what they allow on a plain copy of its tree.

permissions.py model MOUNT PLAIN    makes PLAIN, then changes both at random and compares each answer
permissions.py compare MOUNT PLAIN  compares the modes and owners of both

The kernel judges both, so the copy is right by definition. Prints the seed; MODEL_SEED repeats a run,
MODEL_STEPS says how long it is.
"""
import errno
import json
import os
import pwd
import random
import stat
import sys

DIRECTORIES = ["", "feed", "feed/user", "data", "data/user", "in", "dlq", "ops", "ctl"]
TAKERS = ["in/events", "in/wal2json", "ctl/config.json", "ctl/sources.json"]
READERS = ["README.md", "feed/log.ndjson", "feed/user/log.ndjson", "feed/.tail", "ctl/stats.json", "ctl/errors"]
HISTORY = ["feed/user/0000000000000001.json"]
USERS = ["nobody", "daemon", "games", "daemon+games", "root"]


def ids(user):
    name, _, more = user.partition("+")
    entry = pwd.getpwnam(name)
    return entry.pw_uid, entry.pw_gid, [pwd.getpwnam(more).pw_gid] if more else []


def answer(action, path):
    try:
        return 0, action(path)
    except OSError as fault:
        return fault.errno, None


def asked(user, action, paths):
    """What the user is answered on each path."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        uid, gid, groups = ids(user)
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        os.write(write_end, json.dumps([answer(action, path) for path in paths]).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        answers = json.load(pipe)
    os.waitpid(child, 0)
    return answers


def opened(flags):
    return lambda path: os.close(os.open(path, flags))


def may(mode):
    return lambda path: os.access(path, mode)


def shown(path):
    st = os.lstat(path)
    return oct(st.st_mode), st.st_uid, st.st_gid


LOOKS = {
    "stat": shown,
    "access r": may(os.R_OK),
    "access w": may(os.W_OK),
    "access x": may(os.X_OK),
    "open r": opened(os.O_RDONLY | os.O_NONBLOCK),
}


def random_step(rng):
    """A path, what is done there, its name."""
    kind = rng.choice(["look", "look", "write", "list", "chmod", "chown", "chgrp", "chdir"])
    path = rng.choice(DIRECTORIES + TAKERS + READERS)
    if kind == "look":
        name = rng.choice(list(LOOKS))
        return rng.choice([path] + HISTORY), LOOKS[name], name
    if kind == "write":
        flags = rng.choice([os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND])
        return rng.choice(TAKERS), opened(flags), f"open {flags:o}"
    if kind == "list":
        return rng.choice(DIRECTORIES), lambda p: os.close(os.open(p, os.O_RDONLY | os.O_DIRECTORY)), kind
    if kind == "chdir":
        return rng.choice(DIRECTORIES), os.chdir, kind
    if kind == "chmod":
        mode = rng.choice([0o777, 0o755, 0o750, 0o711, 0o700, 0o644, 0o640, 0o070, 0o007, rng.randrange(0o1000)])
        if path in DIRECTORIES:
            mode |= rng.choice([0, 0, 0o1000, 0o2000, 0o3000])
        return path, lambda p: os.chmod(p, mode), f"chmod {mode:o}"
    uid, gid, _ = ids(rng.choice(USERS))
    if kind == "chown":
        gid = rng.choice([-1, gid])
        return path, lambda p: os.chown(p, uid, gid), f"chown {uid}:{gid}"
    return path, lambda p: os.chown(p, -1, gid), f"chgrp {gid}"


def compare(mount, plain):
    for path in DIRECTORIES + TAKERS + READERS + HISTORY:
        there, here = shown(os.path.join(mount, path)), shown(os.path.join(plain, path))
        assert there == here, f"/{path} is {there}, and {here} in the copy"


def copy(mount, plain):
    for path in DIRECTORIES:
        os.makedirs(os.path.join(plain, path), exist_ok=True)
    for path in TAKERS + READERS + HISTORY:
        with open(os.path.join(plain, path), "w") as file:
            file.write("x")
    for path in TAKERS + READERS + HISTORY + DIRECTORIES:
        st = os.lstat(os.path.join(mount, path))
        os.chown(os.path.join(plain, path), st.st_uid, st.st_gid)
        os.chmod(os.path.join(plain, path), stat.S_IMODE(st.st_mode))


def model(mount, plain):
    seed = int(os.environ.get("MODEL_SEED") or random.randrange(1 << 32))
    rng = random.Random(seed)
    seen = {}
    print(f"MODEL_SEED={seed}")
    copy(mount, plain)
    compare(mount, plain)
    for step in range(int(os.environ.get("MODEL_STEPS", 1500))):
        path, action, name = random_step(rng)
        # Root moves things along; the others mostly find what it left.
        user = rng.choice(USERS + ["root"] * 2 if name.startswith("ch") else USERS)
        there, here = asked(user, action, [os.path.join(mount, path), os.path.join(plain, path)])
        assert there == here, f"step {step}: {user}, {name} /{path}: {there}, and {here} in the copy"
        seen[there[0]] = seen.get(there[0], 0) + 1
        compare(mount, plain)
    print({errno.errorcode.get(code, "ok"): count for code, count in seen.items()})
    # A run in which nobody was ever refused, or nobody was ever let in, would show nothing.
    assert all(seen.get(code, 0) > 20 for code in (0, errno.EACCES, errno.EPERM)), seen


if __name__ == "__main__":
    {"model": model, "compare": compare}[sys.argv[1]](*sys.argv[2:])
