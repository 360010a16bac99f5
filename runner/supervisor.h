/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_SUPERVISOR_H
#define ISOBOX_SUPERVISOR_H

#include <stdint.h>

#include "lib/config.h"
#include "lib/job.h"
#include "lib/registry.h"
#include "runner/cgroup.h"
#include "runner/checkpoint.h"
#include "runner/egress/policy.h"
#include "runner/quota.h"

/* How a run ended, for the runner's counters. */
enum run_end {
	RUN_END_NONE = 0, /* not yet */
	RUN_END_EXIT, /* the program ended by itself */
	RUN_END_TIMEOUT,
	RUN_END_OOM,
	RUN_END_GONE, /* the client left */
	RUN_END_FAILED, /* our or the host's failure */
	RUN_END_REFUSED, /* it may not go on: its quota, its session's end */
};

/* What the runner tells a supervisor, one packet on the control socket. */
enum run_control {
	RUN_CONTROL_GONE = 1, /* the session was removed: end */
	/* to a kernel's supervisor only: */
	RUN_CONTROL_INTERRUPT, /* the step that runs, if one does */
	RUN_CONTROL_ADOPT, /* it is a session's now: struct kernel_mail */
	RUN_CONTROL_HIBERNATE, /* on disk, and end: struct kernel_mail */
	RUN_CONTROL_FORK /* a copy on disk, and go on: likewise */
};

/* What a kernel's supervisor tells of it. */
enum kernel_word {
	KERNEL_WORD_NONE = 0, /* no kernel, or its end */
	KERNEL_WORD_READY, /* it takes steps */
	KERNEL_WORD_STEPPED, /* a step ended, and the kernel did not */
	KERNEL_WORD_HIBERNATED, /* its end: it is on disk */
	KERNEL_WORD_FORKED, /* its copy is, and it goes on */
	KERNEL_WORD_STAYS /* neither could be done, and it goes on */
};

/* What became of a run's network. */
enum run_network {
	RUN_NETWORK_NONE = 0, /* not wanted, or it did not come to that */
	RUN_NETWORK_UP, /* filtered and verified */
	RUN_NETWORK_DOWN, /* it could not be verified, or was lost */
};

/* What the supervisor tells the runner, packets on the control socket: one at the
 * end, and one before when a sandbox that was booted ahead waits for its job. */
struct run_report {
	uint32_t end; /* enum run_end; RUN_END_NONE: it waits now */
	uint64_t boot_us; /* of a job: from its slot to its start */
	uint64_t run_us;
	uint64_t boot_cpu_us; /* UINT64_MAX when the kernel does not tell */
	uint32_t sandbox_gone; /* nothing of the program is left */
	int64_t memory_bytes; /* charged to who waits; -1 likewise */
	char why[sizeof(
	    ((struct err *)0)
		->msg)]; /* when failed, or not as warm as it should be */
	uint32_t network; /* enum run_network, by now */
	uint32_t had_network; /* when its program began */
	char network_why[sizeof(((struct err *)0)->msg)]; /* when down */
	uint32_t kernel; /* enum kernel_word */
	uint32_t timed_out; /* the step, whose kernel goes on */
	uint32_t failure; /* enum err_kind of STAYS */
	uint32_t unrestorable; /* its checkpoint is good for nothing */
	uint32_t refused; /* runsc, or its own init, does not take it */
	uint32_t online; /* its sandbox was started with a network */
	uint64_t saved_bytes; /* of the disk, HIBERNATED and FORKED */
	struct ws_usage copied; /* FORKED: its workspace */
};

/*
 * The runner's word to a supervisor whose sandbox was booted ahead: here is its
 * job. One packet on the control socket, the client's descriptor with it; the
 * job is in the order's mailbox by then, as PROTO_RUN has it.
 */
struct claim {
	uint64_t queue_us;
	uint64_t slot_us; /* clock_us() when the job got its slot */
	uint32_t len; /* of the job */
};

/* A live kernel: an interpreter that runs one step after another. The mailbox has
 * the steps' jobs, and this, for some words, behind: the first step may be there
 * before the first word has been read. */
struct kernel_mail {
	/* The supervisor's word: the client of the step may have its answer, of
	 * which the runner hears a moment later. Back to false is the runner's. */
	_Atomic bool answered;
	struct step step; /* ADOPT: where its workspace is by now */
	char id[LIMIT_ID + 1]; /* ADOPT: the session's */
	char copy_id[LIMIT_ID + 1]; /* FORK */
	char copy_to[PATH_MAX]; /* FORK: its workspace, which is empty */
	uint32_t about_len; /* HIBERNATE, FORK */
	uint8_t about[CHECKPOINT_ABOUT_MAX];
};

#define MAILBOX_MAIL LIMIT_FRAME
#define MAILBOX_SIZE (MAILBOX_MAIL + sizeof(struct kernel_mail))

static inline struct kernel_mail *kernel_mail_in(uint8_t *mailbox)
{
	return (struct kernel_mail *)(void *)(mailbox + MAILBOX_MAIL);
}

struct kernel_order {
	struct limits limits; /* for its life; the CPU is the step's */
	bool waits; /* for a session: the workspace is a spare one */
	struct blob *allow; /* as in struct job */
	size_t allow_count;
	const char *id; /* of its session, unless it waits */
	bool restore; /* from its checkpoint */
	bool online; /* restore: it was started with a network, and needs one */
	const struct checkpoints *checkpoints; /* NULL: it cannot be saved */
	struct stamp_cache *stamps;
};

/* One run. Everything is borrowed for the life of the supervisor process. */
struct run_order {
	const struct config *config;
	const struct runtime *runtime;
	const struct job *job; /* NULL: boot ahead, or only boot, as a probe */
	/* Of MAILBOX_SIZE bytes, shared with the runner: boot ahead and wait for a
	 * claim; or NULL. */
	uint8_t *mailbox;
	bool preload; /* ahead: with the runtime's modules loaded */
	const struct kernel_order *kernel; /* NULL: a run */
	bool by_name; /* ahead: for jobs with a list of names */
	const struct egress_policy *egress; /* NULL: boot without network,
					     * whatever the job says */
	const struct step *step; /* of a session; NULL: one-shot */
	struct leaf *leaf;
	int client_fd; /* -1 without a job */
	int control_fd; /* end of file there: the runner is gone */
	uint64_t queue_us; /* how long it waited for its slot */
	uint64_t slot_us; /* clock_us() when it got it */
};

/*
 * The life of a supervisor process: boots a sandbox in the leaf, runs the job,
 * streams to client_fd, enforces deadlines and caps, answers, and then removes
 * sandbox and leaf. Returns the process's exit status: 0 when nothing is left.
 */
int supervisor_main(const struct run_order *order);

/* How long that may take at most once it has its job, in microseconds: a
 * supervisor that is still there hangs, or somebody has stopped it. */
uint64_t supervisor_max_us(const struct run_order *order);

#endif
