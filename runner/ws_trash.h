/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WS_TRASH_H
#define ISOBOX_WS_TRASH_H

#include "lib/err.h"
#include "runner/ws_dir.h"

/*
 * Removing. What is to go is first renamed into a folder of its own in the trash,
 * which is one step for whoever looks at the workspace, and then taken apart
 * there. However long that takes and whatever interrupts it: a sweep goes on.
 */

/* Makes the folder that is used when the disk has no room for another, unless
 * it is there. */
void ws_trash_keep_spare(const struct ws_root *r);

/* Moves an entry away; ret_item names its place. ERR_NOT_FOUND when it is not
 * there. */
int ws_trash_take(const struct ws_root *r, int dir_fd, const char *name,
    char ret_item[WS_NAME_SIZE], struct err *e);

/* Removes what was taken, of any depth, with a fixed number of descriptors. -EBUSY
 * when a program that still runs in it makes files faster than they go. */
int ws_trash_empty(const struct ws_root *r, const char *item, struct err *e);

/* Removes all that is in the trash, and what an earlier life of the runner left
 * of uploads. Goes on past a failure, and reports one. */
int ws_trash_sweep(const struct ws_root *r, struct err *e);

#endif
