#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a mount while others write, and ends with 1 at the first byte that is wrong.

usage: live.py MOUNT COLLECTION STOP

Over and over until the file STOP is there: the logs, the newest events' files and the documents of the
collection have the size that stat tells, no NUL byte, and lines of whole JSON in an unbroken order.
"""
import json
import os
import sys

mount, collection, stop = sys.argv[1:]
known = {}


def read(path, grows):
    told = os.stat(path).st_size
    with open(path, "rb", buffering=0) as f:
        before = os.fstat(f.fileno()).st_size
        data = f.readall()
        after = os.fstat(f.fileno()).st_size
    assert told <= before <= len(data) <= after if grows else before == len(data) == after, (
        path, told, before, len(data), after)
    assert b"\0" not in data, (path, data.index(b"\0"))
    return data


def sequence_of(line):
    return json.loads(line)["sequence"]


def check_log(path):
    before, last = known.get(path, (b"", 0))
    data = read(path, True)
    assert data.startswith(before) and data.endswith(b"\n"), path
    for line in data[len(before):].splitlines():
        sequence = sequence_of(line)
        assert sequence == last + 1 or collection in path and sequence > last, (path, sequence, last)
        last = sequence
    known[path] = (data, last)
    return data


rounds = 0
while not os.path.exists(stop) or rounds == 0:
    rounds += 1
    check_log(mount + "/feed/log.ndjson")
    directory = "%s/feed/%s/" % (mount, collection)
    if not os.path.isdir(directory):
        continue
    lines = check_log(directory + "log.ndjson").splitlines(keepends=True)
    names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
    assert len(names) >= len(lines), (len(names), len(lines))
    for name, line in list(zip(names, lines))[-20:]:
        assert int(name[:-5]) == sequence_of(line), name
        assert read(directory + name, False) == line, name
        key = json.loads(line)["key"]
        json.loads(read("%s/data/%s/%s.json" % (mount, collection, key.split(":")[1]), False))
print("%d rounds, %d lines" % (rounds, known[mount + "/feed/log.ndjson"][1]))
