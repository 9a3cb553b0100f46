/* SPDX-License-Identifier: Apache-2.0 */
/* poll_stream CASE STREAM EVENTS: does what the case of this name says with an endless file of a
 * mount, to which it appends through the mount's in/events. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/test.h"

#define PATIENCE 20000 /* milliseconds after which what should come does not */
#define READERS	 3

static const char *stream_path, *events_path;

/* ---- the mount ---- */

static void append(void)
{
	static const char line[] = "{\"type\":\"PUT\",\"key\":\"user:polled\",\"value\":1}\n";
	int fd = open(events_path, O_WRONLY);

	CHECK(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line));
	close(fd);
}

/* Reads what is there; true if that was at least one line, and the next read would wait. */
static bool read_to_end(int fd)
{
	char piece[4096];
	ssize_t n, sum = 0;

	while ((n = read(fd, piece, sizeof(piece))) > 0)
		sum += n;
	return n < 0 && errno == EAGAIN && sum > 0;
}

/* The stream, read to its end. */
static int open_at_end(void)
{
	int fd = open(stream_path, O_RDONLY | O_NONBLOCK);

	CHECK(fd >= 0);
	CHECK(read_to_end(fd));
	return fd;
}

/* A process that appends when `pid` sleeps, which it does in its poll. */
static pid_t append_later(pid_t pid)
{
	char path[64], state = 0;
	pid_t child = fork();
	FILE *f;

	if (child != 0)
		return child;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	while (state != 'S') {
		f = fopen(path, "r");
		if (!f || fscanf(f, "%*d %*s %c", &state) != 1)
			_exit(1);
		fclose(f);
		usleep(1000);
	}
	append();
	_exit(test_checks_failed != 0);
}

static bool ended_well(pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && status == 0;
}

static int poll_in(int fd, int timeout)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	int n = poll(&pollfd, 1, timeout);

	return n <= 0 ? n : pollfd.revents;
}

static int select_in(int fd, int timeout)
{
	struct timeval time = {.tv_sec = timeout / 1000};
	fd_set readable, failed;
	int n;

	FD_ZERO(&readable);
	FD_ZERO(&failed);
	FD_SET(fd, &readable);
	FD_SET(fd, &failed);
	n = select(fd + 1, &readable, NULL, &failed, &time);
	return n == 1 && FD_ISSET(fd, &readable) ? POLLIN : n == 0 ? 0 : -1;
}

static int new_epoll(int fd, uint32_t events)
{
	struct epoll_event event = {.events = events};
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	return epoll;
}

static int epoll_in(int epoll, int timeout)
{
	struct epoll_event event;
	int n = epoll_wait(epoll, &event, 1, timeout);

	return n <= 0 ? n : (int)event.events;
}

/* ---- the cases ---- */

/* Not readable at the end; woken by an event; readable until it is read; not readable again. */
static void wakes(int (*wait_in)(int fd, int timeout), int waiter, int fd)
{
	pid_t child;

	for (int i = 0; i < 3; i++) {
		CHECK(wait_in(waiter, 0) == 0);
		child = append_later(getpid());
		CHECK(wait_in(waiter, PATIENCE) == POLLIN);
		CHECK(wait_in(waiter, 0) == POLLIN);
		CHECK(ended_well(child));
		CHECK(read_to_end(fd));
		CHECK(read(fd, &(char){0}, 1) == -1 && errno == EAGAIN);
	}
}

static void case_poll(void)
{
	int fd = open_at_end();

	wakes(poll_in, fd, fd);
	close(fd);
}

static void case_select(void)
{
	int fd = open_at_end();

	wakes(select_in, fd, fd);
	close(fd);
}

static void case_epoll(void)
{
	int fd = open_at_end(), epoll = new_epoll(fd, EPOLLIN);

	wakes(epoll_in, epoll, fd);
	close(epoll);
	close(fd);
}

/* An edge is told once, whether it was read or not, and the next one is told again. */
static void case_edge(void)
{
	int fd = open_at_end(), epoll = new_epoll(fd, EPOLLIN | EPOLLET);
	pid_t child;

	CHECK(epoll_in(epoll, 0) == 0);
	for (int i = 0; i < 6; i++) {
		child = append_later(getpid());
		CHECK(epoll_in(epoll, PATIENCE) == EPOLLIN);
		CHECK(ended_well(child));
		CHECK(epoll_in(epoll, 0) == 0);
		if (i % 2)
			CHECK(read_to_end(fd));
		CHECK(epoll_in(epoll, 0) == 0);
	}
	close(epoll);
	close(fd);
}

/* What is there when the descriptor is added is an edge too. */
static void case_edge_at_start(void)
{
	int fd = open(stream_path, O_RDONLY | O_NONBLOCK), epoll = new_epoll(fd, EPOLLIN | EPOLLET);

	CHECK(epoll_in(epoll, PATIENCE) == EPOLLIN);
	CHECK(read_to_end(fd));
	CHECK(epoll_in(epoll, 0) == 0);
	append();
	CHECK(epoll_in(epoll, PATIENCE) == EPOLLIN);
	close(epoll);
	close(fd);
}

static void case_oneshot(void)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
	int fd = open_at_end(), epoll = new_epoll(fd, event.events);

	append();
	CHECK(epoll_in(epoll, PATIENCE) == EPOLLIN);
	append();
	CHECK(epoll_in(epoll, 0) == 0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0);
	CHECK(epoll_in(epoll, PATIENCE) == EPOLLIN);
	CHECK(read_to_end(fd));
	close(epoll);
	close(fd);
}

/* A process that polls, with the parent's descriptor or with one of its own, tells when it is about
 * to, and ends with 0 when it was woken. */
static pid_t start_poller(int shared)
{
	int ready[2], fd;
	pid_t child;

	CHECK(pipe(ready) == 0);
	child = fork();
	if (child == 0) {
		fd = shared >= 0 ? shared : open_at_end();
		if (poll_in(fd, 0) != 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		_exit(poll_in(fd, PATIENCE) != POLLIN || test_checks_failed != 0);
	}
	close(ready[1]);
	CHECK(read(ready[0], &(char){0}, 1) == 1);
	close(ready[0]);
	return child;
}

/* One event wakes all: descriptors of one process, processes with their own and with a shared one.
 */
static void case_many(void)
{
	struct pollfd fds[READERS];
	pid_t children[2 * READERS], child;

	for (int i = 0; i < READERS; i++) {
		fds[i] = (struct pollfd){.fd = open_at_end(), .events = POLLIN};
		children[i] = start_poller(-1);
		children[READERS + i] = start_poller(fds[0].fd);
	}
	CHECK(poll(fds, READERS, 0) == 0);
	child = append_later(getpid());
	CHECK(poll(fds, READERS, PATIENCE) > 0);
	CHECK(ended_well(child));
	CHECK(poll(fds, READERS, 0) == READERS);
	for (int i = 0; i < 2 * READERS; i++)
		CHECK(ended_well(children[i]));
	for (int i = 0; i < READERS; i++) {
		CHECK(read_to_end(fds[i].fd));
		close(fds[i].fd);
	}
}

/* Pollers that are killed take nobody with them. */
static void case_killed(void)
{
	int fd = open_at_end(), status;
	pid_t lonely, sharing, other;

	for (int i = 0; i < 5; i++) {
		lonely = start_poller(-1);
		sharing = start_poller(fd);
		other = start_poller(-1);
		kill(lonely, SIGKILL);
		kill(sharing, SIGKILL);
		CHECK(waitpid(lonely, &status, 0) == lonely && WTERMSIG(status) == SIGKILL);
		CHECK(waitpid(sharing, &status, 0) == sharing && WTERMSIG(status) == SIGKILL);
		CHECK(poll_in(fd, 0) == 0);
		append();
		CHECK(poll_in(fd, PATIENCE) == POLLIN);
		CHECK(ended_well(other));
		CHECK(read_to_end(fd));
	}
	close(fd);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"poll", case_poll},
		{"select", case_select},
		{"epoll", case_epoll},
		{"edge", case_edge},
		{"edge-at-start", case_edge_at_start},
		{"oneshot", case_oneshot},
		{"many", case_many},
		{"killed", case_killed},
	};

	for (size_t i = 0; argc == 4 && i < sizeof(cases) / sizeof(*cases); i++) {
		if (strcmp(argv[1], cases[i].name) != 0)
			continue;
		stream_path = argv[2];
		events_path = argv[3];
		test_run(argv[1], cases[i].run);
		return test_summary();
	}
	fprintf(stderr, "usage: poll_stream CASE STREAM EVENTS\n");
	return 2;
}
