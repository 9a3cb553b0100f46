/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/fs.h"

#define WAKE	      SIGUSR1 /* makes the loop look up; has no meaning otherwise */
#define WAKE_EVERY_NS 20000000

static sigset_t ending_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	return set;
}

static void ignore_wake(int number)
{
}

/*
 * Blocks the ending signals in this thread and in all that it will start, those of the store's
 * libraries among them: only the watcher takes them.
 */
static int set_signals(void)
{
	struct sigaction wake = {.sa_handler = ignore_wake};
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct sigaction keep = {.sa_handler = SIG_DFL};
	sigset_t set = ending_signals();

	sigaddset(&set, WAKE);
	if (sigaction(WAKE, &wake, NULL) < 0 || sigaction(SIGPIPE, &ignore, NULL) < 0 ||
	    sigaction(SIGUSR2, &ignore, NULL) < 0 || sigaction(SIGALRM, &ignore, NULL) < 0 ||
	    /* If our starter has it ignored: a child's number is to be its own until we have waited
	     * for it, since by that we know the announcer. */
	    sigaction(SIGCHLD, &keep, NULL) < 0)
		return -errno;
	return -pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void wait_for_child(int fd) __attribute__((noreturn));

static void wait_for_child(int fd)
{
	char byte;
	ssize_t n;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	/* Without a word the child has ended, and has said why on our standard error. */
	_exit(n == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
}

int daemon_start(struct daemon *daemon, bool foreground)
{
	int fds[2];
	pid_t child;

	daemon->foreground = foreground;
	daemon->ready_fd = -1;
	if (!foreground) {
		/* What the caller had open is not ours to hold: a pipe's reader would wait for us.
		 */
		close_range(STDERR_FILENO + 1, ~0u, 0);
		if (pipe2(fds, O_CLOEXEC) < 0)
			return -errno;
		child = fork();
		if (child < 0)
			return -errno;
		if (child > 0) {
			close(fds[1]);
			wait_for_child(fds[0]);
		}
		close(fds[0]);
		daemon->ready_fd = fds[1];
	}
	return set_signals();
}

static void detach(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* Only now: until here ^C at the terminal ends the child as well. */
	setsid();
	if (chdir("/") < 0 || null < 0)
		return;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	close(null);
}

void daemon_ready(struct daemon *daemon)
{
	if (daemon->ready_fd < 0)
		return;
	/* First this: then the caller's pipes are closed when the parent has gone. */
	detach();
	while (write(daemon->ready_fd, "", 1) < 0 && errno == EINTR)
		;
	close(daemon->ready_fd);
	daemon->ready_fd = -1;
}

/*
 * Ends the session at a signal. fuse_set_signal_handlers() would do it in whatever thread the
 * signal meets, while the main thread sleeps on; and one that comes just before it falls asleep is
 * lost. So it is woken until it has left.
 */
static void *watch(void *data)
{
	const struct timespec pause = {.tv_nsec = WAKE_EVERY_NS};
	struct daemon *daemon = data;
	sigset_t set = ending_signals();
	int number;

	sigwait(&set, &number);
	while (!daemon->left) {
		fuse_session_exit(daemon->session);
		pthread_kill(daemon->main, WAKE);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int daemon_watch(struct daemon *daemon, struct fuse_session *session)
{
	sigset_t wake;
	int r;

	daemon->session = session;
	daemon->main = pthread_self();
	r = -pthread_create(&daemon->watcher, NULL, watch, daemon);
	sigemptyset(&wake);
	sigaddset(&wake, WAKE);
	return r < 0 ? r : -pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
}

void daemon_unwatch(struct daemon *daemon)
{
	daemon->left = true;
	pthread_kill(daemon->watcher, SIGHUP); /* one of those that it waits for */
	pthread_join(daemon->watcher, NULL);
}
