/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_PUMP_H
#define ISOBOX_GUEST_PUMP_H

#include <stdint.h>
#include <sys/types.h>

#include "guest/boot.h"
#include "guest/control.h"
#include "lib/err.h"
#include "lib/job.h"

/* What a pipe holds: one read takes all that a flooding program could write. */
#define PUMP_CHUNK (64u * 1024)

/* Moves bytes between the program's pipes and the control pipes, and waits for
 * the program. Owns init's ends of the program's pipes. */
struct pump_stream {
	int fd; /* -1 when every writer has closed it */
	enum proto_type type;
	size_t room; /* what may still be forwarded */
};

struct pump {
	struct control *control;
	int signal_fd;
	int in_fd; /* -1 when all was written, or nobody reads it */
	struct blob in; /* what is not yet written */
	struct pump_stream out[2];
	int end_fd; /* where the program can tell its end (ending.h); -1 */
	int stat_fd; /* and its CPU time is then read: cpustat_open() */
};

void pump_init(struct pump *p, struct control *control, int signal_fd,
    struct program_pipes *pipes, const struct guest_job *job);

/*
 * Until process pid ends, or tells so at end_fd, whatever else still runs: feeds its
 * input, forwards output as it comes and reaps orphans; pid itself is left for
 * pump_end_leftovers(), or the end of the sandbox. *ret_status as from waitpid(2),
 * *ret_cpu_us, with the children that it has waited for, as gVisor counts it: in
 * ticks of 10 ms, waiting for a CPU included.
 */
int pump_until_exit(struct pump *p, pid_t pid, int *ret_status,
    uint64_t *ret_cpu_us, struct err *e);

/* Forwards what lies in the pipes now, and no more. */
int pump_drain(struct pump *p, struct err *e);

/* Kills and reaps every process but init. */
int pump_end_leftovers(int signal_fd, struct err *e);

#endif
