#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A naive model of a change log against the mount, under random operations.

usage: model.py CHANGEFS STORE MOUNTPOINT STEPS [SEED]

The model is a list of events and a dictionary of documents. After each operation some part of the
mount is compared with it, and at the end all of it. The seed is printed; the same seed gives the
same operations.
"""
import errno
import json
import os
import random
import subprocess
import sys
import threading
import time

CHANGEFS, STORE, MNT, STEPS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 32)
SLOW = int(os.environ.get("CHANGEFS_SLOW") or 1)
LETTERS = ["a", "b", "c", "/", "%", ".", " ", "~", "é", "漢", "\n", '"', "\\", "_"]


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in what))


def read(path):
    with open(MNT + path, "rb") as f:
        return f.read()


class Daemon:
    def __init__(self):
        self.process = None

    def start(self):
        self.process = subprocess.Popen([CHANGEFS, STORE, MNT, "-f"], stdin=subprocess.DEVNULL)
        end = time.monotonic() + 20 * SLOW
        while True:
            check(self.process.poll() is None, "the daemon ended at its start")
            try:
                read("/ctl/stats.json")  # a stat may be answered from the kernel's memory
                return
            except OSError:
                check(time.monotonic() < end, "the daemon did not mount in time")
                time.sleep(0.01)

    def stop(self):
        command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
        subprocess.run(command + [MNT], check=True)
        check(self.process.wait(timeout=20 * SLOW) == 0, "the daemon ended with", self.process.returncode)
        self.process = None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def post_mortem(self):
        """After a fault: did the daemon end by itself?"""
        if not self.process:
            return
        try:
            print("the daemon has ended with", self.process.wait(timeout=3), flush=True)
            self.process = None
        except subprocess.TimeoutExpired:
            print("the daemon is alive", flush=True)
            self.kill()


class Model:
    """What the log and the documents must be, told by the lines that were accepted."""

    def __init__(self):
        self.events = []  # in order, as dictionaries without their sequence
        self.documents = {}  # (collection, key): text
        self.snapshots = "both"

    @staticmethod
    def collection(event):
        table = event.get("metadata", {}).get("table")
        if table:
            return table
        head, colon, _ = event["key"].partition(":")
        return head if colon and head else "_"

    def add(self, given):
        event = dict(given)
        where = (self.collection(event), event["key"])
        current = self.documents.get(where)
        kind = event["type"]
        if kind == "DELETE":
            event["value"] = None
        if kind in ("PUT", "DELETE"):
            if self.snapshots != "none" and current is not None:
                event["before_snapshot"] = current
            if self.snapshots == "both" and kind == "PUT":
                event["after_snapshot"] = event["value"]
        if kind == "PUT":
            self.documents[where] = event["value"]
        elif kind == "DELETE":
            self.documents.pop(where, None)
        elif kind == "TRUNCATE":
            for other in [w for w in self.documents if w[0] == where[0]]:
                del self.documents[other]
        self.events.append(event)


class Run:
    def __init__(self):
        self.rnd = random.Random(SEED)
        self.daemon = Daemon()
        self.model = Model()
        self.log = b""  # the log's bytes as they were seen: they never change again
        self.offsets = [0]  # where each event's line begins
        self.floor = 1  # the first event that is retained
        self.handles = []  # of in/events, open for long
        self.clock = 1700000000000

    # ---- making events ----

    def key(self):
        table = self.rnd.choice(("user", "order", "tail", "a.b"))
        if self.rnd.random() < 0.7:
            return "%s:%d" % (table, self.rnd.randrange(30))
        return table + ":" + "".join(self.rnd.choice(LETTERS) for _ in range(self.rnd.randrange(1, 8)))

    def document(self):
        kind = self.rnd.randrange(10)
        if kind == 0:
            return json.dumps({"big": "x" * self.rnd.randrange(20000)})
        if kind == 1:
            return '{"n":1.10,"i":12345678901234567890,"n":2}'
        if kind == 2:
            return "".join(self.rnd.choice(LETTERS) for _ in range(self.rnd.randrange(20)))
        return json.dumps({"v": self.rnd.randrange(1 << 40)})

    def event(self, key=None):
        self.clock += 1
        kind = self.rnd.choices(("PUT", "DELETE", "TRUNCATE", "MESSAGE"), (80, 17, 1, 2))[0]
        event = {"type": kind, "key": key or self.key()}
        if kind == "TRUNCATE":
            event["key"] = event["key"].partition(":")[0] + ":"
        elif kind != "DELETE":
            event["value"] = self.document()
        event["timestamp_ms"] = self.clock
        if self.rnd.random() < 0.2:
            event["metadata"] = {"source": "model", "n": self.rnd.randrange(5)}
            if kind != "TRUNCATE" and self.rnd.random() < 0.3:
                event["metadata"]["table"] = "tabled"
        return event

    @staticmethod
    def line(event):
        return json.dumps(event, ensure_ascii=False).encode() + b"\n"

    # ---- operations ----

    def write_all(self, handle, data):
        while data:
            data = data[os.write(handle, data):]

    def open_in(self):
        return os.open(MNT + "/in/events", os.O_WRONLY)

    def append(self):
        events = [self.event() for _ in range(self.rnd.choice((1, 1, 1, 5, 50)))]
        data = b"".join(self.line(e) for e in events)
        if self.handles and self.rnd.random() < 0.7:
            handle, fresh = self.rnd.choice(self.handles), False
        else:
            handle, fresh = self.open_in(), True
        cut = self.rnd.randrange(len(data)) if self.rnd.random() < 0.3 else 0
        if cut:
            self.write_all(handle, data[:cut])
        self.write_all(handle, data[cut:])
        if self.rnd.random() < 0.05:
            os.fsync(handle)
        if fresh and len(self.handles) < 4:
            self.handles.append(handle)
        elif fresh:
            os.close(handle)
        for event in events:
            self.model.add(event)
        self.see()

    def append_together(self):
        batches = [
            [self.event("w%d:%d" % (w, i)) for i in range(self.rnd.randrange(1, 60))] for w in range(4)
        ]
        batches = [[e for e in b if e["type"] in ("PUT", "DELETE")] for b in batches]

        def work(batch):
            handle = self.open_in()
            for event in batch:
                self.write_all(handle, self.line(event))
            os.close(handle)

        threads = [threading.Thread(target=work, args=(b,)) for b in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # the order among them is the mount's to choose; within one writer it is given
        data = read("/feed/log.ndjson")[len(self.kept()):]
        waiting = [list(b) for b in batches]
        for text in data.splitlines():
            key, stamp = (json.loads(text)[k] for k in ("key", "timestamp_ms"))
            for batch in waiting:
                if batch and batch[0]["key"] == key and batch[0]["timestamp_ms"] == stamp:
                    self.model.add(batch.pop(0))
                    break
            else:
                raise AssertionError("out of order or unknown: %r" % text[:200])
        check(not any(waiting), "lost:", waiting)
        self.see()

    def bad_line(self):
        events = [self.event() for _ in range(3)]
        handle = self.open_in()
        data = b"".join(self.line(e) for e in events[:2]) + b'{"type":"PUT"}\n' + self.line(events[2])
        done = 0
        try:
            while True:
                done += os.write(handle, data[done:])
                check(done < len(data), "the bad line was accepted")
        except OSError as error:
            check(error.errno == errno.EINVAL, error)
        os.close(handle)
        for event in events[:2]:
            self.model.add(event)
        self.see()

    def unfinished(self):
        event = self.event()
        handle = self.open_in()
        valid = self.rnd.random() < 0.5
        data = self.line(event)[:-1] if valid else self.line(event)[:-2]
        self.write_all(handle, data)
        os.close(handle)
        if valid:
            self.model.add(event)
            end = time.monotonic() + 5 * SLOW  # close does not wait for the kernel's RELEASE
            while len(read("/feed/log.ndjson").splitlines()) < len(self.model.events) - self.floor + 1:
                check(time.monotonic() < end, "an unfinished valid line was lost")
        self.see()

    def configure(self):
        self.model.snapshots = self.rnd.choice(("both", "both", "before", "none"))
        with open(MNT + "/ctl/config.json", "w", encoding="utf-8") as f:
            f.write(json.dumps({"snapshots": self.model.snapshots}, indent=2) + "\n")

    def close_handles(self):
        for handle in self.handles:
            try:
                os.close(handle)
            except OSError:
                pass
        self.handles = []

    def remount(self):
        self.close_handles()
        self.daemon.stop()
        self.daemon.start()
        self.see()

    def kill(self):
        self.daemon.kill()
        self.close_handles()
        self.daemon.start()
        self.see()

    def move_floor(self):
        last = len(self.model.events)
        self.floor = min(self.floor + self.rnd.randrange(1 + max(0, last - self.floor) // 2), last + 1)
        self.close_handles()
        with open(MNT + "/ctl/trim", "w") as file:
            file.write("%d\n" % self.floor)
        self.see()

    # ---- comparisons ----

    def kept(self):
        """The retained bytes of the log."""
        return self.log[self.offsets[self.floor - 1]:]

    def see(self):
        """The log's new bytes are the model's new events, and its old bytes are as they were."""
        data = read("/feed/log.ndjson")
        check(os.stat(MNT + "/feed/log.ndjson").st_size == len(data), "st_size of the log")
        check(data.startswith(self.kept()), "the log's old bytes have changed")
        data = data[len(self.kept()):]
        lines = data.splitlines(keepends=True)
        first = len(self.offsets) - 1
        expected = self.model.events[first:]
        check(len(lines) == len(expected), len(lines), "new lines, expected", len(expected))
        for number, (text, event) in enumerate(zip(lines, expected), first + 1):
            check(text.endswith(b"\n"), "a torn line", text[-80:])
            got = json.loads(text)
            want = {"sequence": number, **event}
            check(got == want, "event", number, "is", got, "expected", want)
            order = ["sequence", "type", "key", "value", "timestamp_ms", "metadata", "before_snapshot", "after_snapshot"]
            check(list(got) == [k for k in order if k in got], "the order of keys in", text)
            self.offsets.append(self.offsets[-1] + len(text))
        self.log += data

    def look(self):
        """Some random part of the mount."""
        if len(self.model.events) < self.floor:
            return
        what = self.rnd.randrange(7)
        number = self.rnd.randrange(self.floor, len(self.model.events) + 1)
        kept = self.kept()
        text = self.log[self.offsets[number - 1]:self.offsets[number]]
        table = self.model.collection(self.model.events[number - 1])
        if what == 0:
            zeros = "0" * self.rnd.randrange(16)
            check(read("/feed/%s%d.json" % (zeros, number)) == text, "event file", number)
            check(read("/feed/%s/%016d.json" % (self.encode(table), number)) == text, "event file", number)
        elif what == 1:
            for name in ("log.ndjson", ".tail"):
                handle = os.open(MNT + "/feed/" + name, os.O_RDONLY)
                for _ in range(10):
                    at = self.rnd.randrange(len(kept))
                    got = os.pread(handle, self.rnd.choice((1, 50, 4096, 300000)), at)
                    check(got and kept.startswith(got, at), "pread of", name, "at", at)
                os.close(handle)
        elif what == 2:
            handle = os.open(MNT + "/feed/.tail@%d" % number, os.O_RDONLY | os.O_NONBLOCK)
            got = b""
            try:
                while True:
                    got += os.read(handle, 65536)
            except BlockingIOError:
                pass
            os.close(handle)
            want = self.log[self.offsets[number]:]
            check(got == want or (not want and got == b"\n"), "the tail after", number)
        elif what == 3:
            self.look_at_collection(table)
        elif what == 4:
            self.look_at_documents(table)
        elif what == 5:
            for missing in (len(self.model.events) + 1, 0, self.rnd.randrange(self.floor)):
                check(not os.path.exists(MNT + "/feed/%d.json" % missing), missing, "exists")
            others = {self.model.collection(e) for e in self.model.events} - {table}
            for other in others:
                check(not os.path.exists(MNT + "/feed/%s/%d.json" % (self.encode(other), number)), number, "in", other)
        else:
            stats = json.loads(read("/ctl/stats.json"))
            check(stats["last_sequence"] == len(self.model.events), stats)
            check(stats["log_bytes"] == len(kept), stats)
            check(stats["first_sequence"] == self.floor, stats)

    @staticmethod
    def encode(table):
        return "tai%6C" if table == "tail" else table

    def look_at_collection(self, table):
        lines = [
            self.log[self.offsets[i]:self.offsets[i + 1]]
            for i, e in enumerate(self.model.events)
            if self.model.collection(e) == table and i + 1 >= self.floor
        ]
        numbers = [
            i + 1 for i, e in enumerate(self.model.events) if self.model.collection(e) == table and i + 1 >= self.floor
        ]
        directory = "/feed/" + self.encode(table)
        check(read(directory + "/log.ndjson") == b"".join(lines), "the log of", table)
        want = {"%016d.json" % n for n in numbers} | {"tail", "log.ndjson"}
        listed = os.listdir(MNT + directory)
        check(len(listed) == len(set(listed)) and set(listed) == want, "listing of", table)
        if not lines:
            return
        at = self.rnd.randrange(len(b"".join(lines)))
        handle = os.open(MNT + directory + "/.tail", os.O_RDONLY)
        got = os.pread(handle, 5000, at)
        os.close(handle)
        check(got and b"".join(lines).startswith(got, at), "pread of the tail of", table, "at", at)

    def look_at_documents(self, table):
        want = sorted(text.encode() for (t, _), text in self.model.documents.items() if t == table)
        directory = "/data/" + self.encode(table)
        listed = os.listdir(MNT + directory)
        check(len(listed) == len(set(listed)) == len(want), len(listed), "documents of", table, "expected", len(want))
        got = []
        for name in listed:
            data = read(directory + "/" + name)
            check(os.stat(MNT + directory + "/" + name).st_size == len(data), "st_size of", name)
            got.append(data)
        check(sorted(got) == want, "the documents of", table)

    def look_at_all(self):
        self.see()
        for table in sorted({self.model.collection(e) for e in self.model.events}):
            self.look_at_collection(table)
            self.look_at_documents(table)
        listed = sorted(os.listdir(MNT + "/data"))
        check(listed == sorted(os.listdir(MNT + "/data")), "data/ is listed in an order")

    def run(self):
        operations = [
            (self.append, 60),
            (self.append_together, 6),
            (self.bad_line, 5),
            (self.unfinished, 5),
            (self.configure, 5),
            (self.remount, 2),
            (self.kill, 3),
            (self.move_floor, 1),
        ]
        self.daemon.start()
        try:
            for step in range(STEPS):
                operation = self.rnd.choices([o for o, _ in operations], [w for _, w in operations])[0]
                try:
                    operation()
                    self.look()
                except BaseException:
                    print("seed %d, step %d, %s" % (SEED, step, operation.__name__), flush=True)
                    raise
            self.look_at_all()
            self.remount()
            self.look_at_all()
        except BaseException:
            self.daemon.post_mortem()
            raise
        finally:
            self.close_handles()
        self.daemon.stop()
        print("%d steps, %d events" % (STEPS, len(self.model.events)))


print("seed", SEED, flush=True)
Run().run()
