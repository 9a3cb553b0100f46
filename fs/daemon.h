/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The process: in the background or not, and its end by a signal.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct fuse_session;

struct daemon {
	bool foreground;
	int ready_fd; /* the parent waits at its other end; -1: nobody does */
	pthread_t main;
	pthread_t watcher;
	struct fuse_session *session;
	atomic_bool left; /* main is out of the session's loop */
};

/* Forks unless in the foreground: the parent waits until the child is ready and exits with 0, or
 * with 1 if the child ends before. Call it before there are threads. Returns in the child; ending
 * signals are blocked from here on. 0 or a negative errno. */
int daemon_start(struct daemon *daemon, bool foreground);
/* The mount works: lets the parent go, and lets go of the terminal. */
void daemon_ready(struct daemon *daemon);
/* From here on SIGTERM, SIGINT and SIGHUP end the session that the calling thread is about to
 * serve. 0 or a negative errno. */
int daemon_watch(struct daemon *daemon, struct fuse_session *session);
void daemon_unwatch(struct daemon *daemon);
