/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FILE_H
#define ISOBOX_FILE_H

#include <stddef.h>

#include "lib/buf.h"
#include "lib/err.h"

/*
 * Appends the whole file `name`, relative to dirfd (or AT_FDCWD), to out. It has
 * to be a regular file (a FIFO or a device never blocks us) of at most max
 * bytes that not everybody may write. `flags` are more flags of open(2), such
 * as O_NOFOLLOW. Messages do not name the file, the caller wraps them; -ENOENT
 * when there is none.
 */
int file_read(int dirfd, const char *name, int flags, size_t max,
    struct buf *out, struct err *e);

/*
 * Locks the open file fd (flock, exclusive). Waits up to 5 s for who holds it: a
 * child that was forked just before its parent was killed has the parent's locks
 * until it has closed them. 0, -EWOULDBLOCK when another stays, -errno.
 */
int file_lock(int fd);

/* Locks a directory as file_lock() does, against others who do the same. Its
 * descriptor, which holds the lock. */
int file_lock_dir(const char *dir, struct err *e);

#endif
