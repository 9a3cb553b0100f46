#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Events to write into in/events, and the tree of plain files that feed/ and data/ must then equal.

usage: tree.py SEED LINES DIRECTORY

Writes the events to the file LINES and makes DIRECTORY/feed and DIRECTORY/data from what was written
alone, with the times of their events. Snapshots have to be off, and the log has to be empty.
"""
import json
import os
import random
import sys

seed, lines_path, root = sys.argv[1:]
rnd = random.Random(seed)
words = ["Zoë", "naïve", "数据", "a \"quoted\" word", "back\\slash", "🙂", "plain", "tab\tand\nnewline", "x" * 40]
LARGE = {50: 5000, 90: 70000, 130: 300000, 170: 1200000}


def document(size):
    text = {"name": rnd.choice(words), "n": rnd.randrange(10**15), "filler": "y" * rnd.randrange(200)}
    if size:
        text["large"] = "".join(rnd.choice(words[:6]) for _ in range(size // 6))
    return json.dumps(text, ensure_ascii=rnd.random() < 0.5)


def events():
    for i in range(1, 241):
        collection = ("user", "order", "item")[i % 3]
        key = "%s:%s" % (collection, rnd.choice(("", "ä ", "a/b%")) + str(i if i in LARGE else rnd.randrange(60)))
        event = {"type": "PUT", "key": key, "value": document(LARGE.get(i))}
        if i not in LARGE and rnd.random() < 0.1:
            event.update(type="DELETE", value=None)
        event["timestamp_ms"] = 1700000000000 + i * 61234
        if i % 7 == 0:
            event["metadata"] = {"table": collection, "pk": str(i)}
        yield collection, event


def write(path, data, ms, mode="w"):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, mode, encoding="utf-8", newline="") as f:
        f.write(data)
    os.utime(path, ns=(ms * 10**6, ms * 10**6))


documents = {}
with open(lines_path, "w", encoding="utf-8", newline="") as written:
    for number, (collection, event) in enumerate(events(), 1):
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n"
        written.write(line)
        line = '{"sequence":%d,%s' % (number, line[1:])
        ms = event["timestamp_ms"]
        write("feed/%s/%016d.json" % (collection, number), line, ms)
        for log in ("feed/log.ndjson", "feed/%s/log.ndjson" % collection):
            write(log, line, ms, "a")
        name = event["key"].split(":", 1)[1].replace("%", "%25").replace("/", "%2F")
        documents["data/%s/%s.json" % (collection, name)] = (event["value"], ms)
for path, (text, ms) in documents.items():
    if text is not None:
        write(path, text, ms)
for directory in ("feed", "feed/user", "feed/order", "feed/item"):
    os.symlink(".tail", os.path.join(root, directory, "tail"))
