/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A live kernel inside its supervisor. It boots like any sandbox, starts an
 * interpreter, and then takes steps: each is a claim as the pool has it (the job
 * in the mailbox, one packet with the client's descriptor), so nothing is forked
 * or opened between the request and the program.
 *
 * A step ends in one of these ways. The guest says so: the kernel goes on. Its
 * time is over, or its client left: it is interrupted, and if it has not ended
 * some time after that, the kernel is. The kernel ends, by its own will or by
 * force: that is run_end(), and the rest is as with any run.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/kproto.h"
#include "lib/log.h"
#include "runner/plan.h"
#include "runner/run.h"

/* How long an interrupted step may take to end. */
#define YIELD_US 2000000u

/* How long a client may take to read its answer: the next step waits for it. */
#define FLUSH_US 10000000u

#define STARTED_HOLD_US 10000u

/* Idle so long, it has a low share of the CPU: threads that a user left running do
 * not compete with steps. Steps that follow each other find it as it was; else its
 * share is raised while the step is on its way (measured: 6 us). */
#define REST_AFTER_US 1000000u

/* A step that ends before has not written more than what is found between steps,
 * too: its watcher need not wake, which on a small host slows the step down. */
#define WATCH_AFTER_US 10000u

/* ---- its begin ----------------------------------------------------------- */

void kernel_booted(struct run *r)
{
	struct err e;

	if (plan_guest_kernel(r->order->runtime, r->order->kernel->limits.pids,
		&r->to_guest, &e) < 0) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	r->phase = PHASE_START;
	guest_write(r);
}

/* Only speed: not worth a failure. */
static void set_low(struct run *r, bool low)
{
	struct err e;

	if (leaf_set_weight(r->order->leaf,
		low ? LEAF_WEIGHT_LOW : LEAF_WEIGHT_NORMAL, &e) < 0)
		log_warn("%s", e.msg);
	else
		r->kernel.low = low;
}

void kernel_wake(struct run *r)
{
	if (r->kernel.low)
		set_low(r, false);
}

void kernel_go_idle(struct run *r)
{
	r->phase = PHASE_IDLE;
	r->deadline_us = clock_us() + REST_AFTER_US;
	r->hold_until_us = 0;
	if (r->kernel.watch_us == 0)
		quota_rest(&r->quota, r->limits.cpus_milli);
	r->kernel.watch_us = 0;
}

void kernel_watch(struct run *r)
{
	r->kernel.watch_us = 0;
	quota_begin(&r->quota, r->limits.cpus_milli);
}

static void kernel_ready(struct run *r)
{
	struct err e;

	r->result.boot_us = clock_us() - r->begun_us;
	/* It had a low share while nobody waited for it. */
	set_low(r, false);
	if (run_limit_cpu(r, &r->order->kernel->limits, &e) < 0 ||
	    (!r->order->kernel->waits && run_watch_quota(r, false, &e) < 0)) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	kernel_go_idle(r);
	run_report(r, KERNEL_WORD_READY);
}

/* Its spare workspace has become a session's. */
static void adopt(struct run *r)
{
	const struct kernel_mail *mail = kernel_mail_in(r->order->mailbox);
	struct err e;

	r->kernel.step = mail->step;
	(void)snprintf(
	    r->kernel.id, sizeof r->kernel.id, "%.*s", LIMIT_ID, mail->id);
	r->step = &r->kernel.step;
	if (r->quota.pid < 0 && run_watch_quota(r, false, &e) < 0)
		run_end(r, RUN_END_FAILED, e.msg);
	else if (r->phase == PHASE_IDLE)
		quota_rest(&r->quota, r->limits.cpus_milli);
}

/* ---- a step -------------------------------------------------------------- */

static void begin_step(struct run *r, const struct claim *c, int fd)
{
	r->client_fd = fd;
	r->queue_us = c->queue_us;
	r->slot_us = c->slot_us;
	r->result = (struct run_result){.warm = true};
	memset(r->sent, 0, sizeof r->sent);
	memset(r->truncated, 0, sizeof r->truncated);
	r->kernel.number++;
	r->kernel.artifacts = 0;
	r->kernel.artifact_left = 0;
	r->kernel.interrupted = false;
	r->kernel.timed_out = false;
	r->kernel.left = false;
	buf_clear(&r->to_client);
}

static uint32_t wall_ms(const struct run *r)
{
	const uint32_t most = r->order->config->kernel_max_step_ms;
	const uint32_t asked = r->job->limits.wall_time_ms;

	return asked < most ? asked : most;
}

/* Nothing tells that a step has begun: it has when it was sent. */
static void step_started(struct run *r)
{
	r->phase = PHASE_RUN;
	r->started_us = clock_us();
	r->result.boot_us = r->started_us - r->slot_us;
	r->deadline_us = r->started_us + (uint64_t)wall_ms(r) * 1000;
	r->hold_until_us = r->started_us + STARTED_HOLD_US;
	run_put_client(r, PROTO_STARTED, NULL, 0);
}

static void take_step(struct run *r, const struct claim *c, int fd)
{
	const uint32_t cpus_before = r->limits.cpus_milli;
	struct err e;

	begin_step(r, c, fd);
	job_done(&r->kernel.job);
	if (c->len > LIMIT_FRAME ||
	    job_decode(r->order->mailbox, c->len, &r->kernel.job, &e) < 0) {
		run_end(r, RUN_END_FAILED, "the runner gave a broken step");
		return;
	}
	r->job = &r->kernel.job;
	if (network_settle(r, &e) < 0 || kernel_forget_checkpoint(r, &e) < 0 ||
	    run_limit_cpu(r, &r->job->limits, &e) < 0 ||
	    plan_guest_step(r->job, r->kernel.number, &r->to_guest, &e) < 0) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	r->start_cpu_us = leaf_cpu_us(r->order->leaf);
	step_started(r);
	guest_write(r);
	kernel_wake(r);
	/* A new limit the watch has to know, however short the step is. */
	if (r->limits.cpus_milli != cpus_before)
		kernel_watch(r);
	else
		r->kernel.watch_us = r->started_us + WATCH_AFTER_US;
}

static void interrupt(struct run *r)
{
	r->kernel.interrupted = true;
	proto_put_frame(&r->to_guest, PROTO_GUEST_INTERRUPT, NULL, 0);
	if (r->to_guest.failed)
		run_end(r, RUN_END_FAILED, "out of memory");
	else
		guest_write(r);
}

static void close_client(struct run *r)
{
	if (r->client_fd >= 0) {
		(void)shutdown(r->client_fd, SHUT_RDWR);
		(void)close(r->client_fd);
	}
	r->client_fd = -1;
	buf_clear(&r->to_client);
}

void kernel_client_gone(struct run *r)
{
	close_client(r);
	if (r->phase == PHASE_FLUSH) {
		kernel_flushed(r);
		return;
	}
	if (r->phase != PHASE_RUN || r->kernel.left)
		return;
	r->kernel.left = true;
	if (r->kernel.timed_out)
		return; /* that has its own end */
	r->deadline_us = clock_us() + YIELD_US;
	interrupt(r);
}

/* The sandbox is back, but the kernel was saved in the middle of what it does
 * beside steps, and that keeps it from its link. */
static void held_up(struct run *r)
{
	if (!r->kernel.interrupted) {
		r->deadline_us = clock_us() + YIELD_US;
		interrupt(r);
		return;
	}
	run_end(r, RUN_END_TIMEOUT,
	    "what it does in the background keeps it busy, and went on after "
	    "it was interrupted");
}

void kernel_deadline(struct run *r)
{
	if (r->phase == PHASE_START) {
		held_up(r);
		return;
	}
	if (r->phase == PHASE_IDLE) {
		r->deadline_us = UINT64_MAX;
		set_low(r, true);
		return;
	}
	if (r->phase == PHASE_SAVE) {
		kernel_save_event(r);
		return;
	}
	if (r->phase == PHASE_FLUSH) {
		close_client(r);
		kernel_flushed(r);
		return;
	}
	if (r->kernel.left || r->kernel.timed_out) {
		run_end(r, RUN_END_TIMEOUT,
		    r->kernel.timed_out
			? "a step went on after its wall time, and after it "
			  "was interrupted"
			: "a step whose client had left went on after it was "
			  "interrupted");
		return;
	}
	r->kernel.timed_out = true;
	r->deadline_us = clock_us() + YIELD_US;
	interrupt(r);
}

/* The answer is on its way; the kernel is the next step's. */
static void step_done(struct run *r, const struct guest_step_result *x)
{
	cleanup_buf struct buf payload = {0};

	r->result.duration_us = clock_us() - r->started_us;
	r->result.exit_code = x->exit_code & 0xff;
	r->result.cpu_us = x->cpu_us;
	run_take_cpu(r);
	r->result.timed_out = r->kernel.timed_out;
	if (r->kernel.timed_out)
		r->result.exit_code = 128 + 9;
	r->result.raised = x->raised;
	r->result.interrupted = x->interrupted;
	r->result.artifacts_dropped = x->dropped;
	r->result.kernel = RUN_KERNEL_ALIVE;
	r->result.stdout_truncated = r->truncated[STREAM_OUT];
	r->result.stderr_truncated = r->truncated[STREAM_ERR];
	r->result.queue_us = r->queue_us;
	r->result.memory_peak_bytes = -1; /* of its life, not of a step */
	run_result_encode(&r->result, &payload);
	r->phase = PHASE_FLUSH;
	r->deadline_us = clock_us() + FLUSH_US;
	kernel_mail_in(r->order->mailbox)->answered = true;
	run_send_client(r, PROTO_DONE, payload.data, payload.len);
}

void kernel_flushed(struct run *r)
{
	if (r->phase != PHASE_FLUSH)
		return;
	close_client(r);
	kernel_go_idle(r);
	r->job = NULL;
	run_report(r, KERNEL_WORD_STEPPED);
}

void kernel_end_result(struct run *r)
{
	r->result.kernel = RUN_KERNEL_DEAD;
	r->result.memory_peak_bytes = -1;
	r->result.interrupted = r->kernel.interrupted;
	/* It had to end, and did so in another way. */
	if (r->kernel.timed_out && !r->result.oom_killed) {
		r->result.timed_out = true;
		r->result.exit_code = 128 + 9;
		r->result.signal = 9;
	}
}

void kernel_last_claim(struct run *r)
{
	struct claim c = {0};
	int fd = -1;
	struct err e;

	(void)shutdown(r->order->control_fd, SHUT_RD);
	while (r->client_fd < 0 &&
	       control_receive(r->order->control_fd, &c, sizeof c, &fd) > 0) {
		if (fd < 0)
			continue;
		begin_step(r, &c, fd);
		(void)err_set(&e, ERR_KERNEL_DEAD, ESRCH, "%s", r->why);
		run_put_failure(r, &e);
	}
}

/* ---- frames -------------------------------------------------------------- */

static bool artifact(struct run *r, const uint8_t *payload, size_t len)
{
	struct guest_artifact a;
	struct err e;

	if (r->kernel.artifact_left > 0 ||
	    r->kernel.artifacts >= LIMIT_ARTIFACTS ||
	    guest_artifact_decode(payload, len, &a, &e) < 0)
		return false;
	r->kernel.artifacts++;
	r->kernel.artifact_left = a.bytes;
	run_send_client(r, PROTO_ARTIFACT, payload, len);
	return true;
}

static bool artifact_data(struct run *r, const uint8_t *payload, size_t len)
{
	if (len > r->kernel.artifact_left)
		return false;
	r->kernel.artifact_left -= (uint32_t)len;
	run_send_client(r, PROTO_ARTIFACT_DATA, payload, len);
	return true;
}

static bool step_end(struct run *r, const uint8_t *payload, size_t len)
{
	struct guest_step_result x;
	struct err e;

	if (guest_step_result_decode(payload, len, &x, &e) < 0 ||
	    x.number != r->kernel.number || r->kernel.artifact_left > 0)
		return false;
	if (!run_check_oom(r))
		step_done(r, &x);
	return true;
}

static bool kernel_exit(struct run *r, const uint8_t *payload, size_t len)
{
	struct guest_exit x;
	struct err e;
	char why[64];

	if (guest_exit_decode(payload, len, &x, &e) < 0)
		return false;
	if (run_check_oom(r))
		return true;
	r->result.exit_code = x.exit_code & 0xff;
	r->result.signal = x.signal;
	r->result.cpu_us = RUN_RESULT_UNKNOWN;
	if (x.signal != 0)
		(void)snprintf(
		    why, sizeof why, "it was killed by signal %u", x.signal);
	else
		(void)snprintf(why, sizeof why, "it ended with exit code %u",
		    x.exit_code & 0xff);
	run_end(r, RUN_END_EXIT, why);
	return true;
}

bool kernel_frame(
    struct run *r, enum proto_type type, const uint8_t *payload, size_t len)
{
	const bool running = r->phase == PHASE_RUN;

	if (type == PROTO_GUEST_KERNEL_READY && r->phase == PHASE_START)
		kernel_ready(r);
	else if (type == PROTO_GUEST_READY && r->phase == PHASE_START &&
		 r->kernel.restored && !r->kernel.back)
		r->kernel.back = true;
	else if (type == PROTO_GUEST_STDOUT && running)
		guest_forward(r, STREAM_OUT, payload, len);
	else if (type == PROTO_GUEST_STDERR && running)
		guest_forward(r, STREAM_ERR, payload, len);
	else if (type == PROTO_GUEST_STDOUT || type == PROTO_GUEST_STDERR)
		/* Its last words, which belong to no step. */
		return r->phase == PHASE_IDLE || r->phase >= PHASE_FLUSH;
	else if (type == PROTO_GUEST_ARTIFACT && running)
		return artifact(r, payload, len);
	else if (type == PROTO_GUEST_ARTIFACT_DATA && running)
		return artifact_data(r, payload, len);
	else if (type == PROTO_GUEST_STEP_DONE && running)
		return step_end(r, payload, len);
	else if (type == PROTO_GUEST_EXIT && r->phase >= PHASE_IDLE)
		return kernel_exit(r, payload, len);
	else
		return false;
	return true;
}

/* ---- the runner's words -------------------------------------------------- */

static void take_word(struct run *r, uint32_t word)
{
	switch ((enum run_control)word) {
	case RUN_CONTROL_GONE:
		r->refused = ERR_SESSION_NOT_FOUND;
		run_end(r, RUN_END_REFUSED, "the session was removed");
		break;
	case RUN_CONTROL_INTERRUPT:
		if (r->phase == PHASE_RUN)
			interrupt(r);
		break;
	case RUN_CONTROL_ADOPT:
		adopt(r);
		break;
	case RUN_CONTROL_HIBERNATE:
	case RUN_CONTROL_FORK:
		kernel_save(r, word == RUN_CONTROL_FORK);
		break;
	}
}

void kernel_control(struct run *r)
{
	struct claim c = {0};
	uint32_t word;
	int fd = -1;
	ssize_t n = control_receive(r->order->control_fd, &c, sizeof c, &fd);

	if (n == (ssize_t)sizeof c && fd >= 0 && r->phase == PHASE_IDLE) {
		take_step(r, &c, fd);
		return;
	}
	if (fd >= 0)
		(void)close(fd);
	if (n == (ssize_t)sizeof word) {
		memcpy(&word, &c, sizeof word);
		take_word(r, word);
	} else if (n != -EAGAIN && n != -EINTR) {
		run_end(r, RUN_END_GONE, "the runner ended");
	}
}
