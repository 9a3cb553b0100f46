#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Waiting for an endless file among other things: poll, select, epoll, and the event loops above them.
bats_require_minimum_version 1.5.0
load helpers

# polls CASE: the case of poll_stream.c, on each kind of endless file, and nothing is left of it.
polls() {
	local file
	put user:a 1 user:b 2
	for file in .tail user/.tail .tail@1 user/.tail@2; do
		echo "$file"
		within 60 "$(dirname "$CHANGEFS")/tests/poll_stream" "$1" "$MNT/feed/$file" "$MNT/in/events"
		wait_until 5 no_reader
	done
}

no_reader() {
	[ "$(stats .readers.open)" -eq 0 ]
}

@test "poll(2): not at the end, woken by an event, EAGAIN when it is read" {
	polls poll
}

@test "select(2)" {
	polls select
}

@test "epoll, level triggered" {
	polls epoll
}

@test "epoll, edge triggered: each event is told once, read or not" {
	polls edge
}

@test "epoll, edge triggered, added where there is something to read" {
	polls edge-at-start
}

@test "epoll with EPOLLONESHOT" {
	polls oneshot
}

@test "many pollers, with descriptors of their own and with one together, are all woken by one event" {
	polls many
}

@test "a poller that is killed leaves the others theirs" {
	polls killed
}

@test "Python's asyncio: three add_reader on one loop each get every event once, in order" {
	put user:a 1
	for i in $(seq 4); do
		for j in $(seq 50); do
			make_events $((i * 1000 + j)) $((i * 1000 + j)) user $((j * 90)) >"$MNT/in/events"
		done 3>&- &
		CHILDREN+=("$!")
	done
	within 60 python3 - "$MNT" 201 <<-'END'
	import asyncio, json, os, sys
	mnt, count = sys.argv[1], int(sys.argv[2])
	
	def follow(loop, path):
	    fd, done, got = os.open(path, os.O_RDONLY | os.O_NONBLOCK), loop.create_future(), bytearray()
	    def readable():
	        try:
	            piece = os.read(fd, 5000)
	        except BlockingIOError:
	            return
	        assert piece, "an endless file ended"
	        got.extend(piece)
	        if got.count(b"\n") == count and not done.done():
	            loop.remove_reader(fd)
	            os.close(fd)
	            done.set_result(bytes(got))
	    loop.add_reader(fd, readable)
	    return done
	
	async def main():
	    loop = asyncio.get_running_loop()
	    names = ("/feed/.tail", "/feed/user/.tail", "/feed/.tail")
	    texts = await asyncio.wait_for(asyncio.gather(*(follow(loop, mnt + name) for name in names)), 50)
	    for text in texts:
	        assert [json.loads(line)["sequence"] for line in text.splitlines()] == list(range(1, count + 1))
	        assert text == open(mnt + "/feed/log.ndjson", "rb").read()
	asyncio.run(main())
	END
	log_has 201
	wait_until 5 no_reader
}
