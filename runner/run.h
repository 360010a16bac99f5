/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_RUN_H
#define ISOBOX_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/proto.h"
#include "runner/egress/egress.h"
#include "runner/quota.h"
#include "runner/sandbox.h"
#include "runner/supervisor.h"

/* The state of one run, inside its supervisor: supervisor.c, answer.c, guest.c,
 * ahead.c. */

enum phase {
	PHASE_BOOT, /* until PROTO_GUEST_READY */
	PHASE_WARM, /* ahead: until PROTO_GUEST_WARMED */
	PHASE_IDLE, /* ahead: until there is a job */
	PHASE_START, /* until PROTO_GUEST_STARTED */
	PHASE_RUN,
	PHASE_FLUSH, /* a kernel: until the client has its answer */
	PHASE_SAVE /* a kernel: while it is written to disk */
};

enum stream {
	STREAM_OUT,
	STREAM_ERR,
	STREAM_COUNT
};

/* Of a sandbox that is booted before there is a job for it. */
struct ahead {
	bool on;
	bool deaf; /* no claim can come any more */
	bool orphaned; /* the runner let go of us */
	struct job job; /* the claimed one, its strings in the mailbox */
	int64_t extra_bytes; /* memory that being warm takes */
};

/* Of a kernel: the step that runs, in PHASE_RUN and PHASE_FLUSH. */
struct kernel_run {
	bool on;
	uint32_t number;
	struct job job; /* its strings in the mailbox */
	struct step step; /* where the workspaces are */
	uint64_t watch_us; /* then its step is watched closely; 0: not due */
	uint32_t artifacts; /* that came */
	uint32_t artifact_left; /* bytes of the last that are to come */
	bool interrupted; /* and what it was interrupted for: */
	bool timed_out; /* its wall time is over */
	bool left; /* its client is gone */
	char id[LIMIT_ID + 1]; /* of its session */
	bool restored; /* its checkpoint is still there */
	bool back; /* init is, and waits for the kernel's word */
	bool unrestorable;
	bool guest_ended; /* by itself: nobody ended it before */
	bool saved; /* it is on disk: that is its end */
	bool stamped;
	bool low; /* its share of the CPU */
	struct checkpoint_stamp stamp; /* of when it was started */
	struct checkpoint_save save;
	bool forking; /* what is saved is a copy */
	int copy_from, copy_to; /* its workspace, and the copy's; -1 */
	uint64_t saved_bytes;
	struct ws_usage copied; /* of a fork */
	enum err_kind failure; /* of the last save */
};

/* What the leaf has been told: only a change is written. */
struct in_force {
	uint64_t memory_bytes;
	uint32_t pids;
	uint32_t cpus_milli;
};

struct run {
	const struct run_order *order;
	struct sandbox box;
	struct egress egress;
	enum run_network network;
	bool online; /* the sandbox was started with one */
	char network_why[sizeof(((struct err *)0)->msg)];
	bool box_gone; /* nothing of the program is left */
	const struct step *step; /* of a session; NULL: none */
	struct quota_watch quota; /* of a session's step */
	const struct job *job; /* NULL: none, or none yet */
	int client_fd; /* -1 likewise */
	uint64_t queue_us;
	uint64_t slot_us;
	struct ahead ahead;
	struct kernel_run kernel;
	enum phase phase;
	enum run_end end;
	enum err_kind refused; /* when that is its end */
	char why[sizeof(((struct err *)0)->msg)]; /* UTF-8, for the client */
	struct buf to_guest;
	struct buf from_guest;
	struct buf to_client;
	uint64_t hold_until_us; /* it is not sent before */
	struct buf log;
	bool guest_eof;
	uint64_t begun_us; /* sandbox_start() */
	uint64_t started_us; /* PROTO_GUEST_STARTED */
	uint64_t deadline_us;
	uint64_t oom_recheck_until_us; /* 0: no notice came */
	size_t sent[STREAM_COUNT];
	bool truncated[STREAM_COUNT];
	struct in_force limits;
	int64_t memory_idle; /* charged before any interpreter */
	int64_t boot_cpu_us; /* of the leaf when booted; -1: not known */
	int64_t start_cpu_us; /* likewise when the program started */
	int64_t oom_kills_before; /* of a sandbox that it had before */
	struct run_result result;
};

/* Ends the run; a second end is ignored. */
void run_end(struct run *r, enum run_end end, const char *why);

/* Ends the run and is true when the kernel has killed in the leaf: for the leaf's
 * own limit, and nothing else is "oomKilled", or because the host had no more. */
bool run_check_oom(struct run *r);

/* The leaf's limits for a run of `l`; those on the CPU hold for the boot, too, so
 * they are a step of their own. */
int run_limit_memory(struct run *r, const struct limits *l, struct err *e);
int run_limit_cpu(struct run *r, const struct limits *l, struct err *e);

/* Has somebody watch a step's workspaces, or, with hold, be ready for that. */
int run_watch_quota(struct run *r, bool hold, struct err *e);

/* Hands the job to the booted sandbox. */
void run_give_job(struct run *r);

/* Starts the sandbox and the time that it has to boot. */
int run_boot(struct run *r, struct err *e);

/* Tells the runner how things stand. */
void run_report(const struct run *r, enum kernel_word word);

/* ---- answer.c ------------------------------------------------------------ */

/* How long a client may take to read its answer after the end. */
#define RUN_FLUSH_US 10000000u

/* How long the pipe of a killed sandbox may take to reach its end. */
#define RUN_DRAIN_US 2000000u

/* Queues a frame for the client. */
void run_put_client(
    struct run *r, enum proto_type type, const void *data, size_t len);

/* Likewise, and sends it at once, from where it lies, as far as the client takes
 * it: nothing but the rest is copied. */
void run_send_client(
    struct run *r, enum proto_type type, const void *data, size_t len);

/* Sends what is still queued, as far as the client takes it; false when it is
 * gone. */
bool run_send_rest(struct run *r);

/* It is, or a send has failed: ends what runs for it. */
void run_client_gone(struct run *r);

/* Queues a failure for the client. */
void run_put_failure(struct run *r, const struct err *e);

/* The CPU time since the job began, into the result, if the leaf tells. */
void run_take_cpu(struct run *r);

/* After the end: what the program had written, the result or the failure. Takes
 * at most RUN_DRAIN_US and RUN_FLUSH_US; the sandbox is killed on the way. */
void run_answer(struct run *r);

/* ---- the other parts ------------------------------------------------------ */

/* ahead.c. Like run_boot(), slowly. A control socket that is ready; PROTO_GUEST_READY; WARMED. */
int ahead_begin(struct run *r, struct err *e);
void ahead_control(struct run *r);
void ahead_booted(struct run *r);
void ahead_warmed(struct run *r, const uint8_t *payload, size_t len);

/* One packet of the runner's: its length, 0 when the runner let go of us, or a
 * negative errno. *ret_fd: the descriptor that came with it, or -1. */
ssize_t control_receive(int sock, void *data, size_t size, int *ret_fd);

/* After the end of a sandbox that failed before a program ran in it: true when
 * its job, if there is one by now, has been given another, booted as if nobody
 * had been ahead. */
bool ahead_retry(struct run *r);

/*
 * network.c, in this order. Whatever fails before a job is given only means that
 * there is no network. Before the sandbox is started; when it waits at its gate;
 * when it gets its job; after the answer.
 */
void network_open(struct run *r);
int network_attach(struct run *r, struct err *e);
/* Fails when this sandbox must not have this job. */
int network_settle(struct run *r, struct err *e);
/* Whether it can be saved: a reason it must not, ERR_KERNEL_UNSUPPORTED. */
int network_rest(struct run *r, struct err *e);
void network_close(struct run *r);

/* Whether the sandbox is to have one. */
bool network_wanted(const struct run *r);
/* For the sandbox, NULL when it gets none. */
const char *network_resolv_conf(const struct run *r);
/* Its descriptor, readable when it was lost; -1: none. */
int network_fd(const struct run *r);
void network_lost(struct run *r);

/* guest.c: out_fd and in_fd of the sandbox are ready. */
void guest_read(struct run *r);
void guest_write(struct run *r);
/* Likewise log_fd: what runsc and init complain, for the log. */
void guest_read_log(struct run *r);
/* Output of the program, as much of it as its cap lets through. */
void guest_forward(
    struct run *r, enum stream s, const uint8_t *data, size_t len);

/* kernel_run.c: PROTO_GUEST_READY; all frames but this and FAIL: false when it is
 * out of its place. The control socket is ready; the client is gone, or has
 * nothing left to read; a deadline is over; the sandbox is at its end. */
void kernel_booted(struct run *r);
bool kernel_frame(
    struct run *r, enum proto_type type, const uint8_t *payload, size_t len);
void kernel_control(struct run *r);
void kernel_client_gone(struct run *r);
void kernel_flushed(struct run *r);
void kernel_go_idle(struct run *r);
/* Somebody waits for it again: its share of the CPU is the usual one. */
void kernel_wake(struct run *r);
/* kernel.watch_us has come. */
void kernel_watch(struct run *r);
void kernel_deadline(struct run *r);
/* After its end: a step may be on its way. It is refused, or the runner finds that
 * none can be sent any more. */
void kernel_last_claim(struct run *r);

/* kernel_save.c: like sandbox_start(), or from a checkpoint; the runner's word for
 * a save; its descriptor is ready, or its time is over; what is under way is not
 * to be. */
int kernel_start(struct run *r, const struct sandbox_spec *spec, struct err *e);
void kernel_save(struct run *r, bool fork);
void kernel_save_event(struct run *r);
void kernel_save_cancel(struct run *r);
/* It was started without the network that was tried: that is what it is to be
 * restored with, too. */
void kernel_had_no_network(struct run *r, const struct sandbox_spec *spec);
/* Of one that is restored and cannot have its network: it must not be without. */
int kernel_needs_network(const struct run *r, struct err *e);
/* Whether there is no use in another try. */
bool kernel_is_unrestorable(const struct run *r);
/* Whether it was not taken as it is, by runsc or by init, and not for a reason that
 * will go. */
bool kernel_was_refused(const struct run *r);
/* Before the first step of one that was restored. */
int kernel_forget_checkpoint(struct run *r, struct err *e);

/* What is in the result when it is the kernel's end. */
void kernel_end_result(struct run *r);

#endif
