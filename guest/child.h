/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_CHILD_H
#define ISOBOX_GUEST_CHILD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/boot.h"
#include "lib/err.h"
#include "lib/job.h"

#define PROGRAM_ID 65534 /* uid and gid as the program sees them */

/* Where an interpreter that waits finds init. Beyond what a program that was
 * just started may have open, and within the soft limit of descriptors. */
#define WARM_FD 1023

/* Where a kernel does. Another one: the hook of an image would think that its
 * interpreter is to wait. */
#define KERNEL_FD 1022

/* Where an interpreter that waits finds the library of guest/warm/ending.c. */
#define WARM_ENDING_FD 1021

/* A program to start; everything is borrowed. */
struct child {
	char *const *argv; /* NULL-terminated, at least one */
	char *const *env;
	const char *cwd;
	const struct job_file *files; /* to be written before it starts */
	size_t file_count;
	/* A file that an earlier child left, or NULL: child_start() removes
	 * it, child_claim() fills it. */
	const struct blob *there;
	int fds[3]; /* its standard descriptors, none of them below 3 */
	int link_fd; /* one more, likewise */
	int link_at; /* to be its WARM_FD or KERNEL_FD; 0 = none */
	int ending_fd; /* to be its WARM_ENDING_FD; 0 = none */
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

/*
 * The standard descriptors of a compiler, which reads nothing, and all that it
 * says is stderr: stdout is the program's alone. Returns the one of them that is
 * the caller's to close.
 */
int child_compiler_fds(
    const struct program_pipes *pipes, int ret_fds[3], struct err *e);

/* Opens a file that child_start() has made, for child_claim() to fill. The
 * caller's to close. */
int child_open_file(const struct blob *name, int *ret_fd, struct err *e);

/*
 * Makes a program that was started by child_start() and waits what it would be
 * with these files and limits. there_fd: of child_open_file(c->there).
 */
int child_claim(const struct child *c, int there_fd, pid_t pid, struct err *e);

#endif
