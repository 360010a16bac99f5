/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_WARM_H
#define ISOBOX_GUEST_WARM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/boot.h"
#include "guest/control.h"
#include "lib/buf.h"
#include "lib/err.h"
#include "lib/job.h"

/* The interpreter, or compiler, that waits for its job. Control and pipes are
 * borrowed. */
struct warm {
	struct control *control;
	const struct program_pipes *pipes;
	int signal_fd;
	struct buf order; /* the supervisor's, and what points into it: */
	struct guest_warm what;
	pid_t pid; /* 0: nobody waits */
	int fd; /* to speak with it; -1 */
	int end_fd; /* where it will tell its end (ending.h); -1 */
	int entry_fd; /* its entry's file, to be filled; -1 */
	int stat_fd; /* of cpustat_open(); -1 */
	struct buf heard; /* no whole line yet */
	struct blob missing[LIMIT_PRELOAD];
	size_t missing_count;
	char why[256]; /* nobody waits */
	bool entry_there; /* the entry's file was made ahead */
	bool files_there; /* all the job's files were */
};

/* How a program was claimed. */
struct warm_claimed {
	pid_t pid; /* 0: nobody waited, start one */
	uint64_t cpu_us; /* what it has used until now */
	int end_fd, stat_fd; /* of struct warm; -1 */
};

void warm_init(struct warm *w, struct control *control,
    const struct program_pipes *pipes, int signal_fd);

/*
 * Does what a PROTO_GUEST_WARM frame says and answers it, unless the job comes
 * before there is an answer. An interpreter that does not wait is no error.
 */
int warm_start(struct warm *w, const struct blob *payload, struct err *e);

/*
 * Gives the job to the interpreter that waits. When none does, or it is not the
 * one for this job, what was started is ended and nothing of it is left but
 * w->entry_there or w->files_there.
 */
int warm_claim(struct warm *w, const struct guest_job *job,
    struct warm_claimed *ret, struct err *e);

void warm_done(struct warm *w);

#endif
