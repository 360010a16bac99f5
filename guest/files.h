/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_FILES_H
#define ISOBOX_GUEST_FILES_H

#include <stddef.h>

#include "lib/err.h"
#include "lib/job.h"

#define FILES_DIR "/box"

/*
 * Writes a job's files below the working directory, which is FILES_DIR: mode
 * 0644, folders 0755, owned by the caller, who must be the program's user and
 * the only one there, before anything of the program has run: so there is no
 * link to follow and nothing to race. Their names were checked by
 * guest_job_decode(). The one called `there` (NULL: none) is filled where it
 * is, every other must be new.
 */
int files_write(const struct job_file *files, size_t count,
    const struct blob *there, struct err *e);

/* Opens what is there as `name`, to be filled; the caller's to close. */
int files_open(const struct blob *name, int *ret_fd, struct err *e);

/* Makes content all that the file has. */
int files_fill(int fd, const struct blob *content, struct err *e);

/* Removes the file called name, and the folders that were made for it. */
int files_remove(const struct blob *name, struct err *e);

#endif
