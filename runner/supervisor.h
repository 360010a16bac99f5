/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_SUPERVISOR_H
#define ISOBOX_SUPERVISOR_H

#include <stdint.h>

#include "lib/config.h"
#include "lib/job.h"
#include "lib/registry.h"
#include "runner/cgroup.h"

/* How a run ended, for the runner's counters. */
enum run_end {
	RUN_END_NONE = 0, /* not yet */
	RUN_END_EXIT, /* the program ended by itself */
	RUN_END_TIMEOUT,
	RUN_END_OOM,
	RUN_END_GONE, /* the client left */
	RUN_END_FAILED, /* our or the host's failure */
};

/* What the supervisor tells the runner, one packet on the control socket. */
struct run_report {
	uint32_t end; /* enum run_end */
	uint64_t boot_us;
	uint64_t run_us;
	char why[sizeof(((struct err *)0)->msg)]; /* when failed */
};

/* One run. Everything is borrowed for the life of the supervisor process. */
struct run_order {
	const struct config *config;
	const struct runtime *runtime;
	const struct job *job; /* NULL: only boot, as a probe */
	const char *workspace; /* directory for /workspace, or NULL */
	const char *memory; /* likewise /memory */
	struct leaf *leaf;
	int client_fd; /* -1 for a probe */
	int control_fd; /* end of file there: the runner is gone */
	uint64_t queue_us; /* how long it waited for its slot */
};

/*
 * The life of a supervisor process: boots a sandbox in the leaf, runs the job,
 * streams to client_fd, enforces deadlines and caps, answers, and then removes
 * sandbox and leaf. Returns the process's exit status: 0 when nothing is left.
 */
int supervisor_main(const struct run_order *order);

/* How long that may take at most, in microseconds: a supervisor that is still
 * there hangs, or somebody has stopped it. */
uint64_t supervisor_max_us(const struct run_order *order);

#endif
