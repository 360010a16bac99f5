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

/* Locks a directory (flock) against others who do the same, for some seconds at
 * most. Its descriptor, which holds the lock. */
int file_lock_dir(const char *dir, struct err *e);

#endif
