/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The kernel remembers the attributes of directories, which saves a round trip for each component
 * of a path. What a commit changes in them is taken out of its memory by a thread of its own, since
 * a notification may wait for a request that the committing thread serves.
 */
struct changefs;
struct refresh;

/* Starts the thread; before the session ends it has to be ended. NULL: no memory or no thread. */
struct refresh *refresh_new(struct changefs *fs);
/* Takes NULL. */
void refresh_free(struct refresh *refresh);
/* After a commit, from any thread. */
void refresh_wake(struct refresh *refresh);
