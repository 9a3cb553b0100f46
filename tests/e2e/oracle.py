#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a second slot decoded, against what the log of the mount says.

usage: oracle.py WAL2JSON-LINES LOG-LINES

Both are read from files. Every change has to be in the log once, in commit order, with the key and the
document that the change leads to; numbers are compared as text. Large columns that wal2json left out
are those of the row before.
"""
import json
import sys


class Number(str):
    """A number as it was written."""


def parse(text):
    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=list)


def quote(part):
    return part.replace("%", "%25").replace(".", "%2E")


def token(value):
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


class Oracle:
    def __init__(self):
        self.rows = {}
        self.expected = []

    def key(self, collection, names, values):
        if any(n not in values for n in names):
            return None
        found = [values[n] for n in names]
        if len(found) == 1:
            value = found[0]
            return "%s:%s" % (collection, value if isinstance(value, str) else token(value))
        return "%s:[%s]" % (collection, ",".join(token(v) for v in found))

    def row(self, change):
        schema, table = change["schema"], change["table"]
        collection = ("" if schema == "public" else quote(schema) + ".") + quote(table)
        columns = [(dict(c)["name"], dict(c)["value"]) for c in change.get("columns", [])]
        identity = {dict(c)["name"]: dict(c)["value"] for c in change.get("identity", [])}
        names = [dict(c)["name"] for c in change.get("pk", [])]
        action = change["action"]
        if not names:
            assert action == "I", "the oracle knows only inserts of tables without a key"
            self.expected.append(("PUT", collection + ":@", columns))
            return
        old = {**dict(columns), **identity}
        before = self.key(collection, names, old)
        after = self.key(collection, names, dict(columns))
        if action == "D":
            self.rows.pop(before, None)
            self.expected.append(("DELETE", before, None))
            return
        if action == "U":
            order = self.rows.get(before)
            if order is not None:
                now = dict(columns)
                columns = [(n, now.get(n, v)) for n, v in order]
            if after != before:
                self.rows.pop(before, None)
                self.expected.append(("DELETE", before, None))
        self.rows[after] = columns
        self.expected.append(("PUT", after, columns))

    def line(self, text):
        change = dict(parse(text))
        action = change["action"]
        if action in "IUD":
            self.row(change)
        elif action == "T":
            schema, table = change["schema"], change["table"]
            collection = ("" if schema == "public" else quote(schema) + ".") + quote(table)
            self.expected.append(("TRUNCATE", collection + ":", None))
        elif action == "M":
            self.expected.append(("MESSAGE", change["prefix"], change["content"]))


def event(text):
    change = dict(parse(text))
    kind, key = change["type"], change["key"]
    if kind == "MESSAGE":
        return kind, key, change["value"]
    if kind == "PUT":
        table = dict(change["metadata"])["table"]
        if key.startswith(table + ":@"):
            key = table + ":@"
        return kind, key, [tuple(p) for p in parse(change["value"])]
    return kind, key, None


def main():
    oracle = Oracle()
    with open(sys.argv[1], encoding="utf-8") as f:
        for text in f:
            oracle.line(text)
    with open(sys.argv[2], encoding="utf-8") as f:
        got = [(event(text), text) for text in f]
    for n, want in enumerate(oracle.expected):
        if n >= len(got):
            print("the log ends after %d of %d changes; the next is %r" % (len(got), len(oracle.expected), want))
            return 1
        if got[n][0] != want:
            print("change %d: expected %r\nthe log has %r\nits line: %s" % (n, want, got[n][0], got[n][1][:1000]))
            return 1
    if len(got) > len(oracle.expected):
        print("the log has more: %r" % (got[len(oracle.expected)],))
        return 1
    print("%d changes agree" % len(got))
    return 0 if got else 1


sys.exit(main())
