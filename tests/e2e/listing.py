#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists a directory of events while it changes, with what no shell can call: telldir, seekdir, rewinddir.

usage: listing.py DIRECTORY COUNT EVENTS TRIM

The directory has the events 1 to COUNT, and gets more through EVENTS all the while. The listing that was begun
has those COUNT, each once, whatever came, and every place in it that telldir gave leads to the same names again.
Then a quarter of them is trimmed through TRIM while they are listed: what is above the floor is there, once and in
order, and a place below the floor leads to the first one above it.
"""
import ctypes
import random
import sys
import threading

directory, count, events, trim = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
seed = random.randrange(1 << 32)
rnd = random.Random(seed)
print("seed", seed)

libc = ctypes.CDLL(None, use_errno=True)
for call in (libc.opendir, libc.readdir):
    call.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
for call in (libc.readdir, libc.telldir, libc.rewinddir, libc.closedir):
    call.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
NAME = 19  # d_ino, d_off, d_reclen and d_type come before d_name


def names(stream):
    while entry := libc.readdir(stream):
        yield ctypes.string_at(entry + NAME).decode()


def sequences(stream):
    return (int(name[:16]) for name in names(stream) if name.endswith(".json"))


def append(stop, written):
    with open(events, "wb", buffering=0) as f:
        while not stop.is_set() or not written:
            f.write(b"".join(b'{"type":"PUT","key":"user:late","value":%d}\n' % i for i in range(10)))
            written.append(10)
            stop.wait(0.005)


stop, written = threading.Event(), []
writer = threading.Thread(target=append, args=(stop, written))
stream = libc.opendir(directory.encode())
writer.start()
expected, places = 1, {}
for sequence in sequences(stream):
    assert sequence == expected, (sequence, expected)
    expected += 1
    if rnd.random() < 300 / count or sequence == count:
        places[sequence] = libc.telldir(stream)
assert expected == count + 1, expected
assert len(places) > 100 and len(set(places.values())) == len(places)

for sequence, place in rnd.sample(sorted(places.items()), len(places)):
    libc.seekdir(stream, place)
    assert libc.telldir(stream) == place
    follow = [next_one for next_one, _ in zip(sequences(stream), range(rnd.choice((1, 3, 2000))))]
    assert follow == list(range(sequence + 1, min(sequence + len(follow), count) + 1)), (sequence, follow[:3])
    assert follow or sequence == count

stop.set()
writer.join()
libc.rewinddir(stream)
assert sum(1 for _ in sequences(stream)) == count + sum(written)
libc.closedir(stream)


def move_floor(last):
    step = max(1, last // 200)
    for floor in list(range(step, last, step)) + [last]:
        with open(trim, "w") as f:
            f.write("%d\n" % floor)


floor = count // 4
stream = libc.opendir(directory.encode())
trimmer = threading.Thread(target=move_floor, args=(floor,))
listed, places = [], {}
for sequence in sequences(stream):
    if not listed:
        trimmer.start()
    listed.append(sequence)
    if rnd.random() < 300 / count:
        places[sequence] = libc.telldir(stream)
trimmer.join()
assert listed == sorted(set(listed))
assert [n for n in listed if n >= floor][:count - floor + 1] == list(range(floor, count + 1))
for sequence, place in rnd.sample(sorted(places.items()), len(places)):
    libc.seekdir(stream, place)
    assert next(sequences(stream), None) == max(sequence + 1, floor) or sequence >= count, sequence
libc.rewinddir(stream)
assert next(sequences(stream)) == floor
libc.closedir(stream)
print("%d places, %d events came meanwhile" % (len(places), sum(written)))
