/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "fs/fs.h"

/* At most 500 a second, and a tenth of the time at most. */
#define PAUSE_NS     (INT64_C(1000000000) * ANNOUNCER_BATCH / 500)
#define PAUSE_FACTOR 9

struct announce {
	struct changefs *fs;
	struct announcer announcer;
	struct layout_changes *changes;
	char secret[48];   /* a name that only the announcer asks for */
	_Atomic pid_t pid; /* of the announcer, as the kernel tells it here; 0: not known */
	_Atomic bool dirty;
	pthread_t thread;
	bool started;
	uint64_t stamp;

	pthread_mutex_t lock; /* guards the following, and the batch while it is made */
	pthread_cond_t wake;
	bool ending;
	_Atomic bool on; /* the mount is where it should be */
	const char *reason;
	uint64_t announced, failed, passed_over;
};

/* ---- the batch ---- */

static struct announcer_action *add(struct announce *a, enum announcer_kind kind,
				    uint64_t directory, const char *path, const char *name)
{
	struct announcer_batch *batch = a->announcer.batch;
	struct announcer_action *action = &batch->actions[batch->count++];

	action->kind = kind;
	action->directory = directory;
	action->stamp = a->stamp;
	snprintf(action->path, sizeof(action->path), "%s", path);
	snprintf(action->name, sizeof(action->name), "%s", name);
	return action;
}

/* How often a file has to be modified: once for each node that the kernel knows of it, since
 * somebody may watch that. */
static size_t times(struct announce *a, const struct node *directory, const char *name)
{
	struct error error = {0};
	struct node node = {0};
	struct stat st;
	size_t n = 1;

	if (layout_lookup(a->fs->layout, directory, name, &node, &st, &error) < 0)
		return 1;
	if (node_flags(&node) & NODE_SEVERAL)
		n = nodes_count_same(a->fs->nodes, &node);
	node_free(&node);
	return n ? n : 1;
}

static void add_change(struct announce *a, const struct layout_change *change)
{
	static const enum announcer_kind kinds[] = {
		[LAYOUT_APPEARED] = ANNOUNCER_CREATE,
		[LAYOUT_MODIFIED] = ANNOUNCER_MODIFY,
		[LAYOUT_VANISHED] = ANNOUNCER_REMOVE,
	};
	enum announcer_kind kind = change->is_directory ? ANNOUNCER_MKDIR : kinds[change->action];
	struct buffer path = {0};
	struct node_ref ref;
	size_t n = 1;

	if (nodes_ref(a->fs->nodes, change->directory, &ref) < 0)
		return;
	if (layout_path(a->fs->layout, ref.node, &path) == 0 && buffer_add(&path, "", 1) == 0) {
		if (kind == ANNOUNCER_MODIFY)
			n = times(a, ref.node, change->name);
		a->stamp++;
		pthread_mutex_lock(&a->lock);
		while (n-- > 0 && a->announcer.batch->count < ANNOUNCER_BATCH)
			add(a, kind, change->directory, path.p + 1, change->name);
		pthread_mutex_unlock(&a->lock);
	}
	buffer_free(&path);
	nodes_unref(a->fs->nodes, &ref);
}

static void make_batch(struct announce *a)
{
	struct announcer_batch *batch = a->announcer.batch;
	struct layout_change change;

	batch->count = 0;
	if (layout_changes_look(a->changes) < 0)
		return;
	while (batch->count < ANNOUNCER_BATCH && layout_changes_next(a->changes, &change) > 0)
		add_change(a, &change);
}

/* Counts what became of the batch. False: there is no use in going on. */
static bool judge(struct announce *a, int r)
{
	const struct announcer_batch *batch = a->announcer.batch;
	const char *reason = NULL;
	uint64_t done = 0;
	bool go_on = r == 0;

	if (r < 0)
		reason = "the announcer has ended";
	else if (batch->result < 0)
		reason = "the mount is not at its mount point, or something is mounted over it";
	for (size_t i = 0; !reason && i < batch->count; i++) {
		done += batch->actions[i].result == 0;
		if (batch->actions[i].result == -EACCES)
			reason = "the daemon's user may not write into the directories";
		if (batch->actions[i].result == -EROFS) {
			reason = "the kernel knows the mount as read-only";
			go_on = false;
		}
	}
	pthread_mutex_lock(&a->lock);
	a->reason = reason;
	a->announced += done;
	a->failed += batch->count - done;
	a->passed_over = layout_changes_skipped(a->changes);
	pthread_mutex_unlock(&a->lock);
	atomic_store(&a->on, !reason);
	return go_on;
}

/* ---- the thread ---- */

static bool say_hello(struct announce *a)
{
	int r;

	a->announcer.batch->count = 0;
	add(a, ANNOUNCER_HELLO, FUSE_ROOT_ID, ".", a->secret);
	r = announcer_run(&a->announcer);
	a->announcer.batch->count = 0;
	if (!judge(a, r))
		return false;
	if (atomic_load(&a->pid) != 0)
		return true;
	pthread_mutex_lock(&a->lock);
	if (!a->reason)
		a->reason = "the kernel does not tell who asks";
	pthread_mutex_unlock(&a->lock);
	return false;
}

/* Below the lock. Sleeps after a batch; woken by the end only. */
static void pause_after(struct announce *a, int64_t elapsed_ns)
{
	int64_t ns = elapsed_ns * PAUSE_FACTOR > PAUSE_NS ? elapsed_ns * PAUSE_FACTOR : PAUSE_NS;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	while (!a->ending && pthread_cond_timedwait(&a->wake, &a->lock, &until) != ETIMEDOUT)
		;
}

/* One batch. False: there is no use in going on. */
static bool announce_some(struct announce *a, bool *ret_more)
{
	struct announcer_batch *batch = a->announcer.batch;
	bool go_on;

	batch->elapsed_ns = 0;
	make_batch(a);
	go_on = judge(a, batch->count ? announcer_run(&a->announcer) : 0);
	*ret_more = !layout_changes_done(a->changes);
	return go_on;
}

static void *run(void *context)
{
	struct announce *a = context;
	bool more = false, go_on = say_hello(a);

	pthread_mutex_lock(&a->lock);
	while (go_on && !a->ending) {
		if (!atomic_exchange(&a->dirty, false) && !more) {
			pthread_cond_wait(&a->wake, &a->lock);
			continue;
		}
		pthread_mutex_unlock(&a->lock);
		go_on = announce_some(a, &more);
		pthread_mutex_lock(&a->lock);
		pause_after(a, a->announcer.batch->elapsed_ns);
	}
	pthread_mutex_unlock(&a->lock);
	atomic_store(&a->on, false);
	return NULL;
}

/* ---- start and end ---- */

int announce_new(const char *mountpoint, struct announce **ret_announce)
{
	struct announce *a = calloc(1, sizeof(*a));
	pthread_condattr_t monotonic;
	uint64_t random[2] = {0};
	int r;

	if (!a)
		return -ENOMEM;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&a->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	a->reason = "it has not started";
	r = announcer_start(&a->announcer, mountpoint);
	if (r == 0 && getrandom(random, sizeof(random), 0) != sizeof(random))
		r = -EIO;
	if (r < 0) {
		announce_free(a);
		return r;
	}
	snprintf(a->secret, sizeof(a->secret), ".%016llx%016llx", (unsigned long long)random[0],
		 (unsigned long long)random[1]);
	*ret_announce = a;
	return 0;
}

static bool is_held(void *context, uint64_t directory)
{
	struct announce *a = context;

	return nodes_hold_directory(a->fs->nodes, directory);
}

int announce_start(struct announce *announce, struct changefs *fs, int64_t device)
{
	int r;

	if (!announce)
		return 0;
	announce->fs = fs;
	announce->announcer.batch->device = device;
	if (device < 0) {
		announce->reason = "the mount point is not known";
		return 0;
	}
	r = layout_changes_open(fs->layout, is_held, announce, &announce->changes);
	if (r == 0)
		r = -pthread_create(&announce->thread, NULL, run, announce);
	announce->started = r == 0;
	return r;
}

void announce_stop(struct announce *announce)
{
	if (!announce || !announce->started)
		return;
	pthread_mutex_lock(&announce->lock);
	announce->ending = true;
	pthread_cond_signal(&announce->wake);
	pthread_mutex_unlock(&announce->lock);
	announcer_interrupt(&announce->announcer);
	pthread_join(announce->thread, NULL);
	announce->started = false;
}

void announce_free(struct announce *announce)
{
	if (!announce)
		return;
	announce_stop(announce);
	announcer_end(&announce->announcer);
	layout_changes_close(announce->changes);
	pthread_mutex_destroy(&announce->lock);
	pthread_cond_destroy(&announce->wake);
	free(announce);
}

void announce_wake(struct announce *announce)
{
	if (!announce || atomic_exchange(&announce->dirty, true))
		return;
	pthread_mutex_lock(&announce->lock);
	pthread_cond_signal(&announce->wake);
	pthread_mutex_unlock(&announce->lock);
}

void announce_tell(struct announce *announce, struct layout_announcing *ret_announcing)
{
	struct layout_announcing *told = ret_announcing;

	*told = (struct layout_announcing){.reason = "the option noannounce"};
	if (!announce)
		return;
	pthread_mutex_lock(&announce->lock);
	snprintf(told->reason, sizeof(told->reason), "%s",
		 announce->reason ? announce->reason : "");
	told->announced = announce->announced;
	told->skipped = announce->failed + announce->passed_over;
	if (announce->changes)
		told->sequence = layout_changes_sequence(announce->changes);
	pthread_mutex_unlock(&announce->lock);
}

/* ---- for those who answer requests ---- */

bool announce_is_me(const struct changefs *fs, struct fuse_req *req)
{
	pid_t pid = fs->announce ? atomic_load(&fs->announce->pid) : 0;

	return pid != 0 && fuse_req_ctx(req)->pid == pid;
}

bool announce_awaits(const struct changefs *fs, const struct node *node)
{
	const struct announce *a = fs->announce;

	return a && atomic_load(&a->on) && layout_changes_await(a->changes, node);
}

bool announce_meet(struct changefs *fs, struct fuse_req *req, uint64_t parent, const char *name)
{
	struct announce *a = fs->announce;

	if (!a || parent != FUSE_ROOT_ID || atomic_load(&a->pid) != 0 ||
	    strcmp(name, a->secret) != 0)
		return false;
	atomic_store(&a->pid, fuse_req_ctx(req)->pid);
	return true;
}

bool announce_action(struct changefs *fs, uint64_t parent, const char *name,
		     struct announcer_action *ret_action)
{
	struct announce *a = fs->announce;
	struct announcer_batch *batch = a->announcer.batch;
	int current = atomic_load(&batch->current);
	bool found = false;

	pthread_mutex_lock(&a->lock);
	if (current >= 0 && (size_t)current < batch->count) {
		*ret_action = batch->actions[current];
		found = ret_action->directory == parent && strcmp(ret_action->name, name) == 0;
	}
	pthread_mutex_unlock(&a->lock);
	return found;
}

uint64_t announce_stamp(struct changefs *fs)
{
	struct announce *a = fs->announce;
	int current = atomic_load(&a->announcer.batch->current);

	return current >= 0 && current < ANNOUNCER_BATCH
		       ? a->announcer.batch->actions[current].stamp
		       : 0;
}
