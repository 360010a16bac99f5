/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_KERNEL_H
#define ISOBOX_KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "lib/err.h"
#include "lib/kernelproto.h"
#include "lib/limits.h"
#include "lib/registry.h"
#include "lib/status.h"
#include "runner/checkpoint.h"
#include "runner/share.h"
#include "runner/ws_table.h"

struct client;
struct run_report;
struct server;
struct worker;

/*
 * Live kernels in the runner's event loop: which session has one, and in which
 * state. Its process is a worker of kind WORKER_KERNEL, as long as it is resident;
 * steps are handed to that as the pool hands jobs to who waits. One belongs to its
 * session's workspace and ends with it.
 */
struct kernel {
	TAILQ_ENTRY(kernel) link;
	struct workspace *workspace; /* referenced; its id is the session's */
	struct workspace *volume; /* referenced; NULL: none */
	char runtime[LIMIT_ID + 1];
	char version[LIMIT_ID + 1];
	bool network; /* wanted */
	struct buf allow; /* its names, as a PROTO_KERNEL had them */
	uint64_t tenant; /* whose it is; a number to compare */
	enum kernel_state state;
	struct worker *worker; /* NULL: none, or not any more */
	bool fresh; /* the workspace is as it was made for it */
	bool wants_slot; /* starting, or to be restored */
	uint64_t wanted_us;
	struct share share; /* of the slots: kernel_room.c */
	uint64_t used_us; /* the end of the last step */
	uint64_t resident_us; /* since when it is */
	uint64_t life_us; /* resident before that */
	uint64_t steps;
	int64_t memory_bytes;
	uint64_t checkpoint_bytes;
	bool online;
	bool wired; /* its sandbox was started with a network */
	bool restoring; /* the worker does that first */
	unsigned refusals; /* of its checkpoint, in a row */
	bool saving; /* on its way to the disk, or its copy is */
	uint64_t saving_us; /* since when */
	uint64_t pinned_until_us; /* it could not be saved: no try before */
	unsigned save_failures; /* in a row, since its last step */
	struct kernel *copy; /* the fork that is being made; or NULL */
	bool removed; /* with its session */
	bool ending; /* its worker was told so: */
	enum kernel_death death; /* and why */
	char reason[256]; /* of being dead, or of staying resident */
	char network_reason[256];
};

#define KERNEL_LOST "it was in memory when the service was restarted"

TAILQ_HEAD(kernel_list, kernel);

/* What waiting interpreters are for. */
struct kernel_kind {
	char runtime[LIMIT_ID + 1];
	char version[LIMIT_ID + 1];
	bool network;
};

struct kernels {
	struct kernel_list list;
	uint32_t used; /* slots */
	struct kernel_kind kind; /* of the last that was made */
	bool on_disk; /* they can be put there: */
	struct checkpoints checkpoints;
	struct stamp_cache stamps;
	uint64_t retry_us; /* no boot of one that waits before */
	uint64_t spare_bytes; /* that one takes */
	uint64_t memory_look_us; /* one waits for memory */
	struct kernel_status status; /* counters */
};

/* What a client waits for. */
enum kernel_wait {
	KERNEL_WAIT_NONE = 0,
	KERNEL_WAIT_INFO, /* its kernel takes steps */
	KERNEL_WAIT_STEP, /* likewise, to give it one */
	KERNEL_WAIT_FORK, /* likewise, to have it copied */
	KERNEL_WAIT_COPY /* its copy is made */
};

void kernels_close(struct server *s);
struct kernel *kernel_new(struct server *s, struct workspace *w);
void kernel_free(struct server *s, struct kernel *k);

/* ---- kernels.c: requests, and what workspaces tell ------------------------- */

/* A PROTO_KERNEL frame. */
void kernels_request(
    struct server *s, struct client *c, const uint8_t *payload, size_t len);

/* The session is to be removed: its kernel ends, and has its turn until it has. */
void kernels_end(struct server *s, struct workspace *w);

/* At the runner's end. */
void kernels_drain(struct server *s);

/* The workspace is gone. */
void kernels_forget(struct server *s, struct workspace *w);

void kernels_status(const struct server *s, struct kernel_status *ret);

/* k, which never took a step and has no process, is not to be: nor its workspace
 * if that was made for it. */
void kernel_undo(struct server *s, struct kernel *k);

/* Tells k's process to end; it is dead for that reason. */
void kernel_stop(struct server *s, struct kernel *k, enum kernel_death death,
    const char *why);

/* What there is to know of k. */
void kernel_answer(struct server *s, struct client *c, const struct kernel *k);

/* Whether anybody waits for it. */
bool kernel_is_wanted(const struct server *s, const struct kernel *k);

/* It takes steps: for all who wait for that. */
void kernel_serve_waiting(struct server *s, struct kernel *k);
/* It never will: likewise. */
void kernel_fail_waiting(struct server *s, struct kernel *k, enum err_kind kind,
    uint32_t retry_after_s, const char *why);

/* ---- kernel_step.c: steps, and what supervisors tell ----------------------- */

/* c, which has a step, has its session's turn. */
void kernels_turn(struct server *s, struct client *c);

/* Gives c's step to its kernel. c holds a slot, which is the worker's then. The
 * connection is the supervisor's. */
int kernels_claim(
    struct server *s, struct client *c, uint64_t queue_us, struct err *e);

/* A WORKER_KERNEL tells something, or has ended (r NULL: and told nothing). */
void kernels_report(
    struct server *s, struct worker *w, const struct run_report *r);
void kernels_lost(
    struct server *s, struct worker *w, const struct run_report *r);

/* k takes steps now, r says so. */
void kernels_resident(
    struct server *s, struct kernel *k, const struct run_report *r);

/* ---- kernel_disk.c ------------------------------------------------------------ */

/* At the start: those on disk. */
void kernels_open(struct server *s);

/* Whether it could go to the disk; tells it to: false when it is just dying. */
bool kernel_may_save(const struct server *s, const struct kernel *k);
bool kernel_hibernate(struct server *s, struct kernel *k);

/* What came of it. */
void kernel_hibernated(
    struct server *s, struct kernel *k, const struct run_report *r);
void kernel_stays(
    struct server *s, struct kernel *k, const struct run_report *r);
void kernel_not_restored(
    struct server *s, struct kernel *k, const struct run_report *r);

/* Its process was killed, but its checkpoint is there: no step has begun since. */
bool kernel_is_on_disk(const struct server *s, const struct kernel *k);
void kernel_fell_back(struct server *s, struct kernel *k);

/* It is dead: no later life of the runner is to find it. */
void kernel_remove_checkpoint(struct server *s, struct kernel *k);

/* What its checkpoint takes, to be told and counted: as is known, or as it is on
 * the disk. A save of it is not under way any more. */
void kernel_count_checkpoint(
    struct server *s, struct kernel *k, uint64_t bytes);
void kernel_look_at_checkpoint(struct server *s, struct kernel *k);

/* A copy of k, which is resident and idle, for c. */
void kernel_fork(struct server *s, struct client *c, struct kernel *k);
void kernel_fork_ends(
    struct server *s, struct kernel *k, const struct run_report *r);
void kernel_undo_fork(struct server *s, struct kernel *k);
/* k is gone before its copy was made: nothing is left of that, and who waits for
 * it is told. */
void kernel_fail_fork(struct server *s, struct kernel *k);

/* ---- kernel_slots.c, kernel_room.c, kernel_spare.c: who is resident ----------- */

/* k wants to be resident. */
void kernel_want(struct server *s, struct kernel *k);

/* Lets in who wants a slot, ends what has lived long enough, boots who waits. */
void kernels_tick(struct server *s, uint64_t now_us);
uint64_t kernels_due_us(const struct server *s);

/* Whether anybody wants a slot. */
bool kernels_wanting(const struct server *s);

/* Whether any takes memory; gives up one that waits for a session, or has one that
 * is idle put on disk. True: something is just going. */
bool kernels_may_relieve(struct server *s);
bool kernels_relieve(struct server *s);

/* One that waited for a session has ended. */
void kernels_waiting_lost(
    struct server *s, struct worker *w, const struct run_report *r);

/* Gives up the interpreters that wait: the registry or an image is another. */
void kernels_drop_waiting(struct server *s);

/* Likewise, when there is a network again, those that were to have one and do
 * not. */
void kernels_drop_offline(struct server *s);

#endif
