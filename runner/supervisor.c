/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. One supervisor process stands between one client and one
 * sandbox. It is forked from the runner, so everything it needs is in memory, and
 * it is the only process that waits for this sandbox: the runner's loop never
 * does. Its life is two poll loops. The first (run_loop) goes on until something
 * ends the run: the program's exit, a deadline, the kernel's out-of-memory kill,
 * the client's leave, the runner's death, a failure. The second (run_answer)
 * flushes what the program had written and the answer. Only then is the sandbox
 * taken down, so that nobody waits for the clean-up.
 *
 * Nothing that comes from the sandbox is believed beyond its form: frames are
 * bounds-checked, output is capped here, time is measured here, memory is judged
 * by the kernel's counters.
 */
#include "runner/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/plan.h"
#include "runner/run.h"

/* pids.max of the leaf is a backstop: the guest's limit is RLIMIT_NPROC in the
 * sentry, which is exact; reaching this one kills the sandbox. Measured with
 * systrap: two stubs for each process of the program, and 25 to 110 threads of
 * the sentry and of init's stubs. */
#define PIDS_FACTOR 2u
#define PIDS_ALLOWANCE 256u

/* A client that does not read: stop reading the guest, too. */
#define CLIENT_BACKLOG (512u * 1024)

/* An out-of-memory notice comes before the kill is counted: look again. */
#define OOM_RECHECK_US 5000u
#define OOM_RECHECK_FOR_US 200000u

#define DESTROY_MS 5000u

/* What all bounds of a run may be late by together, on a busy host. */
#define LATE_US 10000000u

void run_end(struct run *r, enum run_end end, const char *why)
{
	if (r->end != RUN_END_NONE)
		return;
	r->end = end;
	if (r->phase == PHASE_RUN)
		r->result.duration_us = clock_us() - r->started_us;
	(void)snprintf(r->why, sizeof r->why, "%s", why);
}

bool run_check_oom(struct run *r)
{
	if (leaf_oom_kills(r->order->leaf) <= r->oom_kills_before)
		return false;
	if (r->ahead.on && r->phase <= PHASE_IDLE)
		run_end(r, RUN_END_FAILED, "no memory to wait in");
	else if (r->kernel.on && leaf_limit_met(r->order->leaf))
		run_end(r, RUN_END_OOM, "it was out of memory");
	else if (leaf_limit_met(r->order->leaf))
		run_end(r, RUN_END_OOM, "");
	else
		run_end(r, RUN_END_FAILED,
		    "the host had no memory left for this run");
	return true;
}

static void oom_event(struct run *r)
{
	if (run_check_oom(r))
		return;
	/* v1 tells when memory is out, which may come to nothing. */
	r->oom_recheck_until_us = clock_us() + OOM_RECHECK_FOR_US;
}

static void deadline_passed(struct run *r)
{
	if (run_check_oom(r))
		return;
	if (r->kernel.on &&
	    (r->phase == PHASE_IDLE || r->phase >= PHASE_RUN || r->kernel.back))
		kernel_deadline(r);
	else if (r->phase == PHASE_RUN)
		run_end(r, RUN_END_TIMEOUT, "");
	else if (r->phase != PHASE_IDLE)
		run_end(r, RUN_END_FAILED, "the sandbox did not start in time");
}

enum poll_slot {
	POLL_GUEST_OUT,
	POLL_GUEST_IN,
	POLL_LOG,
	POLL_CLIENT,
	POLL_CONTROL,
	POLL_OOM,
	POLL_NETWORK,
	POLL_QUOTA,
	POLL_SAVE,
	POLL_COUNT
};

static void poll_set(struct run *r, struct pollfd fds[POLL_COUNT])
{
	bool full = r->to_client.len > CLIENT_BACKLOG;
	bool pending = r->to_client.len > 0 && r->hold_until_us == 0;
	bool job = r->to_guest.len > 0;
	short oom_events = 0;
	int oom = leaf_oom_fd(r->order->leaf, &oom_events);

	fds[POLL_GUEST_OUT] =
	    (struct pollfd){full ? -1 : r->box.out_fd, POLLIN};
	fds[POLL_GUEST_IN] = (struct pollfd){job ? r->box.in_fd : -1, POLLOUT};
	fds[POLL_LOG] = (struct pollfd){r->box.log_fd, POLLIN};
	fds[POLL_CLIENT] = (struct pollfd){r->client_fd,
	    (short)(POLLIN | POLLRDHUP | (pending ? POLLOUT : 0))};
	fds[POLL_CONTROL] =
	    (struct pollfd){r->order->control_fd, r->ahead.deaf ? 0 : POLLIN};
	fds[POLL_OOM] = (struct pollfd){oom, oom_events};
	fds[POLL_NETWORK] = (struct pollfd){network_fd(r), POLLIN};
	fds[POLL_QUOTA] = (struct pollfd){r->quota.fd, POLLIN};
	fds[POLL_SAVE] = (struct pollfd){r->kernel.save.fd, POLLIN};
}

static void oom_drain(const struct pollfd *p)
{
	uint64_t count;

	/* v1: an eventfd stays ready until it is read. */
	if (p->events & POLLIN)
		(void)!read(p->fd, &count, sizeof count);
}

static void quota_event(struct run *r)
{
	struct err e;

	if (quota_read(&r->quota, &e) >= 0)
		return;
	r->refused = e.kind;
	run_end(r, e.kind == ERR_INTERNAL ? RUN_END_FAILED : RUN_END_REFUSED,
	    e.msg);
}

/* Guest output comes last: what ends a run must not wait behind a flood. */
static void poll_handle(struct run *r, const struct pollfd fds[POLL_COUNT])
{
	const short gone = POLLIN | POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;

	if (fds[POLL_CONTROL].revents != 0 && r->kernel.on)
		kernel_control(r);
	else if (fds[POLL_CONTROL].revents != 0)
		ahead_control(r);
	if (fds[POLL_QUOTA].revents != 0)
		quota_event(r);
	/* Of another one, by now, if a kernel was just given a step. */
	if (fds[POLL_CLIENT].fd == r->client_fd &&
	    (fds[POLL_CLIENT].revents & gone ||
		((fds[POLL_CLIENT].revents & POLLOUT) && !run_send_rest(r))))
		run_client_gone(r);
	if (fds[POLL_OOM].revents != 0) {
		oom_drain(&fds[POLL_OOM]);
		oom_event(r);
	}
	if (fds[POLL_NETWORK].revents != 0)
		network_lost(r);
	if (fds[POLL_SAVE].revents != 0)
		kernel_save_event(r);
	if (fds[POLL_LOG].revents != 0)
		guest_read_log(r);
	if (fds[POLL_GUEST_IN].revents != 0)
		guest_write(r);
	if (fds[POLL_GUEST_OUT].revents != 0)
		guest_read(r);
}

static uint64_t next_wake_us(const struct run *r)
{
	uint64_t recheck = clock_us() + OOM_RECHECK_US;
	uint64_t wake = r->deadline_us;

	if (r->hold_until_us != 0 && r->hold_until_us < wake)
		wake = r->hold_until_us;
	if (r->kernel.watch_us != 0 && r->kernel.watch_us < wake)
		wake = r->kernel.watch_us;
	if (recheck < r->oom_recheck_until_us && recheck < wake)
		wake = recheck;
	return wake;
}

static void run_loop(struct run *r)
{
	while (r->end == RUN_END_NONE) {
		struct pollfd fds[POLL_COUNT];
		struct timespec wait = clock_left(next_wake_us(r));

		poll_set(r, fds);
		if (ppoll(fds, POLL_COUNT, &wait, NULL) < 0 && errno != EINTR) {
			run_end(r, RUN_END_FAILED, strerror(errno));
			return;
		}
		poll_handle(r, fds);
		if (clock_us() < r->oom_recheck_until_us)
			(void)run_check_oom(r);
		if (clock_us() >= r->deadline_us)
			deadline_passed(r);
		if (clock_us() >= r->hold_until_us)
			r->hold_until_us = 0;
		if (r->kernel.watch_us != 0 && clock_us() >= r->kernel.watch_us)
			kernel_watch(r);
		if (r->to_client.len > 0 && r->hold_until_us == 0 &&
		    !run_send_rest(r))
			run_client_gone(r);
		if (r->phase == PHASE_FLUSH && r->to_client.len == 0)
			kernel_flushed(r);
	}
}

int run_limit_memory(struct run *r, const struct limits *l, struct err *e)
{
	const struct run_order *o = r->order;
	uint64_t memory =
	    l->memory_bytes + ((uint64_t)o->config->sandbox_overhead_mb << 20) +
	    (uint64_t)r->ahead.extra_bytes +
	    (network_wanted(r) ? o->egress->driver->memory_bytes : 0);
	uint32_t pids = PIDS_FACTOR * l->pids + PIDS_ALLOWANCE;
	int rc;

	if (memory != r->limits.memory_bytes &&
	    (rc = leaf_set_memory(o->leaf, memory, e)) < 0)
		return rc;
	r->limits.memory_bytes = memory;
	if (pids != r->limits.pids &&
	    (rc = leaf_set_pids(o->leaf, pids, e)) < 0)
		return rc;
	r->limits.pids = pids;
	return 0;
}

int run_limit_cpu(struct run *r, const struct limits *l, struct err *e)
{
	int rc;

	if (l->cpus_milli != r->limits.cpus_milli &&
	    (rc = leaf_set_cpu(r->order->leaf, l->cpus_milli, e)) < 0)
		return rc;
	r->limits.cpus_milli = l->cpus_milli;
	return 0;
}

int run_watch_quota(struct run *r, bool hold, struct err *e)
{
	const int ours[] = {r->client_fd, r->order->control_fd, r->box.in_fd,
	    r->box.out_fd, r->box.log_fd, r->box.pidfd};
	const struct quota_order o = {.step = r->step,
	    .config = r->order->config,
	    .leaf = r->order->leaf,
	    .sandbox = r->box.pid,
	    .close_fds = ours,
	    .close_count = sizeof ours / sizeof ours[0],
	    .cpus_milli = r->limits.cpus_milli,
	    .hold = hold};

	return quota_start(&o, &r->quota, e);
}

/* No program begins before its limits are set and the idle memory is known. The
 * CPU's come last: the boot is ours, not the program's, and goes at full speed. */
void run_give_job(struct run *r)
{
	struct err e;

	if (network_settle(r, &e) < 0 ||
	    run_limit_memory(r, &r->job->limits, &e) < 0 ||
	    run_limit_cpu(r, &r->job->limits, &e) < 0 ||
	    plan_guest_job(r->order->runtime, r->job, &r->to_guest, &e) < 0) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	r->phase = PHASE_START;
	guest_write(r);
	/* It looks at the workspaces before the program writes there: that
	 * takes init some milliseconds to start. */
	if (r->quota.pid > 0)
		quota_begin(&r->quota, r->limits.cpus_milli);
	else if (r->step != NULL && run_watch_quota(r, false, &e) < 0)
		run_end(r, RUN_END_FAILED, e.msg);
}

static const char *step_path(const struct step *s, unsigned i)
{
	return s != NULL && i < s->count ? s->spaces[i].path : NULL;
}

static const struct limits *boot_limits(const struct run *r)
{
	if (r->order->kernel != NULL)
		return &r->order->kernel->limits;
	return r->job != NULL ? &r->job->limits : &r->order->runtime->limits;
}

int run_boot(struct run *r, struct err *e)
{
	const struct run_order *o = r->order;
	struct sandbox_spec spec = {.rootfs = o->runtime->rootfs,
	    .init_path = o->config->init_path,
	    .runsc = o->config->runsc,
	    .platform = o->config->runsc_platform,
	    .scratch_exec = o->runtime->scratch_exec,
	    .workspace = step_path(o->step, 0),
	    .memory = step_path(o->step, 1)};
	int rc = run_limit_memory(r, boot_limits(r), e);

	if (rc < 0)
		return rc;
	r->begun_us = clock_us();
	r->deadline_us =
	    r->begun_us + (uint64_t)o->config->boot_timeout_ms * 1000;
	network_open(r);
	spec.resolv_conf = network_resolv_conf(r);
	rc = o->kernel != NULL ? kernel_start(r, &spec, e)
			       : sandbox_start(&spec, o->leaf, &r->box, e);
	if (rc < 0)
		return rc;
	rc = network_attach(r, e);
	if (rc == 0 && o->kernel != NULL && spec.resolv_conf != NULL &&
	    !r->online)
		kernel_had_no_network(r, &spec);
	return rc;
}

void run_report(const struct run *r, enum kernel_word word)
{
	struct run_report rep = {.end = r->end,
	    .sandbox_gone = r->box_gone,
	    .boot_us = r->result.boot_us,
	    .run_us = r->result.duration_us,
	    .boot_cpu_us =
		r->boot_cpu_us < 0 ? UINT64_MAX : (uint64_t)r->boot_cpu_us,
	    .memory_bytes = -1,
	    .kernel = word,
	    .timed_out = r->kernel.timed_out,
	    .failure = r->kernel.failure,
	    .unrestorable = kernel_is_unrestorable(r),
	    .refused = kernel_was_refused(r),
	    .online = r->online,
	    .saved_bytes = r->kernel.saved_bytes,
	    .copied = r->kernel.copied};

	if (r->end == RUN_END_NONE)
		rep.memory_bytes = leaf_memory_now(r->order->leaf);
	(void)snprintf(rep.why, sizeof rep.why, "%s", r->why);
	rep.network = r->network;
	rep.had_network = r->result.network;
	(void)snprintf(
	    rep.network_why, sizeof rep.network_why, "%s", r->network_why);
	(void)send(r->order->control_fd, &rep, sizeof rep, MSG_NOSIGNAL);
}

uint64_t supervisor_max_us(const struct run_order *o)
{
	/* Twice: what was booted ahead may turn out to be dead. */
	uint64_t ms = 2 * (uint64_t)o->config->boot_timeout_ms;

	if (o->job != NULL)
		ms += o->job->limits.wall_time_ms;
	ms += 2 * DESTROY_MS; /* the sandbox, then the leaf */
	return ms * 1000 + RUN_DRAIN_US + RUN_FLUSH_US + LATE_US;
}

/* Nobody waits for it yet. */
static bool is_ahead(const struct run *r)
{
	return r->ahead.on || (r->kernel.on && r->order->kernel->waits);
}

int supervisor_main(const struct run_order *order)
{
	struct run r = {.order = order,
	    .box = SANDBOX_NONE,
	    .egress = EGRESS_NONE,
	    .job = order->job,
	    .client_fd = order->client_fd,
	    .queue_us = order->queue_us,
	    .slot_us = order->slot_us,
	    .ahead = {.on = order->mailbox != NULL && order->kernel == NULL},
	    .kernel = {.on = order->kernel != NULL,
		.save = CHECKPOINT_SAVE_NONE,
		.copy_from = -1,
		.copy_to = -1},
	    .step = order->step,
	    .quota = {-1, -1},
	    .boot_cpu_us = -1,
	    .start_cpu_us = -1};
	struct err e;
	int rc;

	if ((is_ahead(&r) ? ahead_begin(&r, &e) : run_boot(&r, &e)) < 0)
		run_end(&r, RUN_END_FAILED, e.msg);
	do
		run_loop(&r);
	while (ahead_retry(&r));
	kernel_save_cancel(&r);
	run_answer(&r);
	quota_stop(&r.quota);
	/* It may have been slowed down, and what gets no CPU dies slowly. */
	leaf_lift_cpu(order->leaf);
	rc = sandbox_done(&r.box, DESTROY_MS, &e);
	/* Now its session's next step may begin. */
	r.box_gone = rc == 0;
	/* What is on disk is so however long its sandbox takes to die. */
	run_report(
	    &r, r.kernel.saved ? KERNEL_WORD_HIBERNATED : KERNEL_WORD_NONE);
	network_close(&r);
	if (rc == 0)
		rc = leaf_destroy(order->leaf, DESTROY_MS, &e);
	if (rc < 0)
		log_error("%s", e.msg);
	job_done(&r.ahead.job);
	job_done(&r.kernel.job);
	buf_free(&r.to_guest);
	buf_free(&r.from_guest);
	buf_free(&r.to_client);
	buf_free(&r.log);
	return rc < 0 ? 1 : 0;
}
