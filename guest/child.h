/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_CHILD_H
#define ISOBOX_GUEST_CHILD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"
#include "lib/job.h"

#define PROGRAM_ID 65534 /* uid and gid as the program sees them */

/* A program to start; everything is borrowed. */
struct child {
	char *const *argv; /* NULL-terminated, at least one */
	char *const *env;
	const char *cwd;
	const struct job_file *files; /* to be written before it starts */
	size_t file_count;
	int fds[3]; /* its standard descriptors, none of them below 3 */
	uint32_t pids;
	uint64_t file_bytes; /* RLIMIT_FSIZE; 0 = none */
};

/*
 * Starts a program as PROGRAM_ID without any privilege. Returns 0 when it runs
 * (*ret_pid, a child of the caller), the positive errno of execve(2) when it
 * cannot be run, which is the program's failure, and a negative errno when it
 * is ours.
 */
int child_start(const struct child *c, pid_t *ret_pid, struct err *e);

#endif
