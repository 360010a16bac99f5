/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_QUOTA_H
#define ISOBOX_QUOTA_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/config.h"
#include "lib/err.h"
#include "lib/wsproto.h"
#include "runner/cgroup.h"
#include "runner/turn.h"
#include "runner/ws_dir.h"
#include "runner/ws_ledger.h"

/* A workspace that a step's sandbox has: where, and how much of the disk. */
struct step_space {
	enum ws_kind kind;
	char path[PATH_MAX]; /* on the host */
	struct ws_account *account;
	uint64_t quota; /* bytes */
};

/* A session's step: [0] is /workspace, [1] (if count is 2) /memory. */
struct step {
	struct step_space spaces[TURN_THINGS];
	unsigned count;
	const struct ws_ledger *ledger;
};

/*
 * Holds the quota while a step runs: a process beside the supervisor that looks at
 * what the step's workspaces take of the disk, deleted files that are still open
 * included, and tells when it is too much. The sandbox is stopped by then. Near the
 * quota it takes CPU from a step that writes fast.
 */
struct quota_watch {
	pid_t pid; /* -1: none */
	int fd; /* readable: quota_read() */
};

struct quota_order {
	const struct step *step;
	const struct config *config;
	struct leaf *leaf;
	pid_t sandbox; /* a process in the sandbox's user namespace */
	const int *close_fds; /* what the process must not keep open */
	unsigned close_count;
	uint32_t cpus_milli; /* what the leaf has */
	bool hold; /* until quota_begin() */
};

/* Starts it; the sandbox must have booted. */
int quota_start(
    const struct quota_order *o, struct quota_watch *ret, struct err *e);

/* The program begins, in a leaf that has so much CPU. */
void quota_begin(const struct quota_watch *q, uint32_t cpus_milli);

/* Of a kernel: no step runs, or one does again (quota_begin()). What goes on in
 * between is still watched, with less effort. */
void quota_rest(const struct quota_watch *q, uint32_t cpus_milli);

/* Likewise, and its sentry writes its image, which is not the program's writing:
 * it is not slowed down. Until the next word. */
void quota_save(const struct quota_watch *q, uint32_t cpus_milli);

/* What it tells: negative, with the step's end in *e. 0: nothing yet. */
int quota_read(struct quota_watch *q, struct err *e);

/* Ends it; takes one that was never started. */
void quota_stop(struct quota_watch *q);

/* ---- the decisions, pure ---------------------------------------------------- */

/* What a look at the file system costs next to nothing to know. */
struct quota_signal {
	uint64_t free_bytes;
	uint64_t free_files;
	uint64_t written_bytes; /* by the sandbox, ever; not all of it */
	uint64_t now_us;
};

/* Of the last count. */
struct quota_state {
	struct quota_signal then;
	uint64_t cost_us;
	uint64_t room_bytes; /* of the space that has the least */
	uint64_t room_files;
	bool rests; /* nobody's step runs */
};

enum quota_verdict {
	QUOTA_WAIT,
	QUOTA_COUNT, /* beside the program */
	QUOTA_FREEZE /* it may be over by now: stop it, then count */
};

enum quota_verdict quota_decide(
    const struct quota_state *s, const struct quota_signal *now);

/* How fast it writes. All 0: not known. */
struct quota_pace {
	uint64_t written_bytes, at_us; /* of the last look */
	uint64_t ahead_bytes; /* before the next look, should that be late */
	bool slow;
};

/* quota_pace.c: whether it must be slowed down, from one look after the other. */
bool quota_too_fast(struct quota_pace *p, const struct quota_state *s,
    const struct quota_signal *now);

/* How much a step may leave, which found `used`: what is over the quota already
 * may stay, so that a step can delete, but not grow. */
uint64_t quota_limit(uint64_t quota, uint64_t used);

#endif
