/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_QUOTA_INT_H
#define ISOBOX_QUOTA_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"
#include "runner/quota.h"
#include "runner/turn.h"
#include "runner/ws_walk.h"

/* Inside the process that holds the quota: quota.c, quota_count.c,
 * quota_pace.c. */

#define QUOTA_TICK_US 10000u
#define QUOTA_PIDS_MAX 2048u
#define QUOTA_WRITERS_MAX 4u

struct space {
	const struct step_space *is;
	int fd;
	uint64_t begun_bytes; /* at the first count, or the last word */
	uint64_t limit;
	struct ws_usage usage;
};

/* The sentry or the gofer, which write what the program writes. All other
 * processes of a sandbox are runsc itself, their parent, and systrap's stubs, the
 * sentry's children, which run the program's code and can only write to what is
 * mapped. */
struct writer {
	pid_t pid;
	int pidfd;
};

struct watch {
	const struct quota_order *order;
	int out; /* to the supervisor */
	struct space spaces[TURN_THINGS];
	struct quota_state state;
	struct quota_pace pace;
	bool saves; /* its image is written */
	uint32_t cpus_milli; /* the leaf's limit */
	uint32_t cpus_set; /* what it has by now: less when it is too fast */
	struct writer writers[QUOTA_WRITERS_MAX];
	size_t writer_count;
	pid_t pids[QUOTA_PIDS_MAX];
	size_t pid_count;
	bool begun;
};

/* ---- quota_count.c --------------------------------------------------------- */

/* Which processes the sandbox has, into w->pids. */
int quota_read_pids(struct watch *w, struct err *e);

/* Once, of a sandbox that has booted, into w->writers. How many; 0: it has ended
 * meanwhile. */
int quota_find_writers(struct watch *w, struct err *e);

/* The writers stand still when this returns. A thread that is in a write stops
 * after it. */
int quota_freeze(struct watch *w, struct err *e);
void quota_thaw(const struct watch *w);

/* Ends them, and with them the stubs: nothing is written any more. */
void quota_kill(const struct watch *w);

/* What costs next to nothing to know. */
int quota_look(const struct watch *w, struct quota_signal *ret, struct err *e);

/* What each space has of the disk, into its usage; what w->pids have open and has
 * no name, too. -ESTALE like ws_count(). */
int quota_count_spaces(struct watch *w, struct err *e);

/* ---- quota_pace.c ----------------------------------------------------------- */

/* Gives the leaf its CPU, or next to nothing. */
int quota_set_pace(struct watch *w, bool slow, struct err *e);

#endif
