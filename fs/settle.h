/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A thread that does what the layout puts off (layout_settle()).
 */
struct changefs;
struct settle;

/* NULL: no memory, no thread. */
struct settle *settle_new(struct changefs *fs);
/* Ends the thread; what is put off is left to layout_close(). Takes NULL. */
void settle_free(struct settle *settle);
/* Something may have been put off. */
void settle_wake(struct settle *settle);
/* The same within a few milliseconds: cheap where it comes often. */
void settle_soon(struct settle *settle);
