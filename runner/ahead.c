/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox that is booted before there is a job for it. It boots at a low share
 * of the CPU, has its interpreter started where the registry says so, gets the
 * runtime's default limits, and waits. A claim may come at any time, during the
 * boot as well; from then on it is a run like any other. The runner lets go of it
 * by closing its side of the control socket.
 *
 * What dies before its program runs is no client's business: the job gets a
 * second sandbox, booted as if nobody had been ahead.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/utf8.h"
#include "runner/plan.h"
#include "runner/run.h"

#define RETRY_KILL_MS 5000u

/* What an interpreter that waited takes more than one that did not: 3 MiB of
 * Python's, measured by what is left to a program. */
#define WAITER_BYTES (4 << 20)

static void set_weight(struct run *r, uint32_t weight)
{
	struct err e;

	/* Only speed: not worth a failure. */
	if (leaf_set_weight(r->order->leaf, weight, &e) < 0)
		log_warn("%s", e.msg);
}

/* ---- the boot ----------------------------------------------------------- */

int ahead_begin(struct run *r, struct err *e)
{
	set_weight(r, LEAF_WEIGHT_LOW);
	return run_boot(r, e);
}

static int64_t not_negative(int64_t n)
{
	return n > 0 ? n : 0;
}

/* A program must not have less memory left than in a sandbox of its own: neither
 * one that gets what was loaded for it, nor one that does not need that. */
static void count_extra(struct run *r)
{
	int64_t now = leaf_memory_now(r->order->leaf);

	if (r->phase != PHASE_WARM)
		return;
	r->ahead.extra_bytes = WAITER_BYTES;
	if (r->order->preload && now >= 0 && r->memory_idle >= 0)
		r->ahead.extra_bytes += not_negative(now - r->memory_idle);
}

/* Booted and warm. The default limits are set ahead: a claim with them then
 * writes nothing. */
static void now_ready(struct run *r)
{
	const struct limits *l = &r->order->runtime->limits;
	struct err e;

	count_extra(r);
	r->boot_cpu_us = leaf_cpu_us(r->order->leaf);
	r->result.boot_us = clock_us() - r->begun_us;
	if (r->job != NULL) {
		run_give_job(r);
		return;
	}
	if (run_limit_memory(r, l, &e) < 0 || run_limit_cpu(r, l, &e) < 0 ||
	    (r->order->step != NULL && run_watch_quota(r, true, &e) < 0)) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	set_weight(r, LEAF_WEIGHT_NORMAL);
	r->phase = PHASE_IDLE;
	r->deadline_us = UINT64_MAX;
	run_report(r, KERNEL_WORD_NONE);
}

void ahead_booted(struct run *r)
{
	const struct runtime *rt = r->order->runtime;
	struct err e;

	if (rt->warm != WARM_INTERPRETER && rt->warm != WARM_COMPILER) {
		now_ready(r);
		return;
	}
	if (plan_guest_warm(rt, r->order->preload ? rt->preload : NULL,
		r->order->step != NULL, &r->to_guest, &e) < 0) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	r->phase = PHASE_WARM;
	guest_write(r);
}

/* The guest's word, for the log: it is text or it is not told. */
static const char *readable(struct blob b, char ret[128])
{
	size_t n = b.len < 127 ? b.len : 127;

	if (b.len == 0 || !utf8_valid(b.data, n, NULL))
		return "no reason given";
	(void)snprintf(ret, 128, "%.*s", (int)n, (const char *)b.data);
	return ret;
}

/* An interpreter that does not wait costs speed and nothing else. The runner
 * tells the log, once. */
static void note_warmth(struct run *r, const struct guest_warmed *w)
{
	char text[128];

	if (!w->waiting)
		(void)snprintf(r->why, sizeof r->why,
		    "its interpreter does not wait: %s",
		    readable(w->why, text));
	else if (w->missing_count > 0)
		(void)snprintf(r->why, sizeof r->why,
		    "%zu modules could not be preloaded, one is %s",
		    w->missing_count, readable(w->missing[0], text));
}

void ahead_warmed(struct run *r, const uint8_t *payload, size_t len)
{
	struct guest_warmed w = {0};
	struct err e;

	if (guest_warmed_decode(payload, len, &w, &e) < 0) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	note_warmth(r, &w);
	guest_warmed_done(&w);
	now_ready(r);
}

/* ---- the claim ---------------------------------------------------------- */

static int take_descriptor(struct msghdr *m)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(m);
	int fd = -1;

	if (c != NULL && c->cmsg_level == SOL_SOCKET &&
	    c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

ssize_t control_receive(int sock, void *data, size_t size, int *ret_fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {data, size};
	struct msghdr m = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof control};
	ssize_t n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return -errno;
	*ret_fd = take_descriptor(&m);
	return n;
}

/* 1: a claim; 0: the runner let go of us; negative errno. */
static int receive_claim(const struct run *r, struct claim *ret, int *ret_fd)
{
	ssize_t n =
	    control_receive(r->order->control_fd, ret, sizeof *ret, ret_fd);

	if (n <= 0)
		return (int)n;
	return n == (ssize_t)sizeof *ret && *ret_fd >= 0 ? 1 : -EPROTO;
}

static void take_claim(struct run *r, const struct claim *c, int fd)
{
	struct err e;

	r->client_fd = fd;
	r->queue_us = c->queue_us;
	r->slot_us = c->slot_us;
	if (c->len > LIMIT_FRAME ||
	    job_decode(r->order->mailbox, c->len, &r->ahead.job, &e) < 0) {
		run_end(r, RUN_END_FAILED, "the runner gave a broken job");
		return;
	}
	r->job = &r->ahead.job;
	r->deadline_us =
	    clock_us() + (uint64_t)r->order->config->boot_timeout_ms * 1000;
	if (r->phase == PHASE_IDLE) {
		r->result.warm = true;
		run_give_job(r);
	} else if (r->phase < PHASE_IDLE) {
		set_weight(r, LEAF_WEIGHT_NORMAL);
	}
}

static bool look_for_claim(struct run *r)
{
	struct claim c = {0};
	int fd = -1;
	int n = receive_claim(r, &c, &fd);

	if (n == 1) {
		take_claim(r, &c, fd);
		return true;
	}
	if (fd >= 0)
		(void)close(fd);
	if (n != -EAGAIN && n != -EINTR)
		r->ahead.orphaned = true;
	return false;
}

/* Who has its job is told nothing more but this. */
static bool is_word(const struct run *r, uint32_t word)
{
	uint32_t said;
	ssize_t n =
	    recv(r->order->control_fd, &said, sizeof said, MSG_DONTWAIT);

	return n == (ssize_t)sizeof said && said == word;
}

void ahead_control(struct run *r)
{
	struct err e;

	if (r->ahead.on && r->job == NULL) {
		if (!look_for_claim(r) && r->ahead.orphaned)
			run_end(r, RUN_END_GONE, "");
		return;
	}
	if (is_word(r, RUN_CONTROL_GONE)) {
		(void)ws_gone(WS_SESSION, &e);
		r->refused = e.kind;
		run_end(r, RUN_END_REFUSED,
		    "the session or its volume was removed while the step ran");
		return;
	}
	r->ahead.orphaned = true;
	run_end(r, RUN_END_FAILED, "the runner ended");
}

/* ---- the second sandbox ------------------------------------------------- */

/* A claim may be on its way: it is received now, or the runner finds that none
 * can be sent any more. */
static void last_claim(struct run *r)
{
	r->ahead.deaf = true;
	(void)shutdown(r->order->control_fd, SHUT_RD);
	(void)look_for_claim(r);
}

static int start_again(struct run *r, struct err *e)
{
	const int64_t kills = leaf_oom_kills(r->order->leaf);
	int rc;

	quota_stop(&r->quota);
	rc = sandbox_done(&r->box, RETRY_KILL_MS, e);

	if (rc < 0)
		return rc;
	rc = leaf_kill(r->order->leaf, RETRY_KILL_MS);
	if (rc < 0)
		return err_sys(e, -rc, "the first sandbox does not end");
	r->oom_kills_before = not_negative(kills);
	r->ahead.extra_bytes = 0;
	/* leaf_kill() has changed some of them. */
	r->limits = (struct in_force){0};
	buf_clear(&r->to_guest);
	buf_clear(&r->from_guest);
	buf_clear(&r->log);
	r->guest_eof = false;
	r->oom_recheck_until_us = 0;
	r->phase = PHASE_BOOT;
	r->result.warm = false;
	set_weight(r, LEAF_WEIGHT_NORMAL);
	return run_boot(r, e);
}

bool ahead_retry(struct run *r)
{
	struct err e;

	if (!r->ahead.on || r->end != RUN_END_FAILED || r->phase == PHASE_RUN ||
	    r->ahead.orphaned)
		return false;
	log_warn("a sandbox booted ahead failed: %s; runsc: %.*s", r->why,
	    (int)r->log.len, r->log.len > 0 ? (const char *)r->log.data : "");
	if (r->job == NULL)
		last_claim(r);
	if (r->job == NULL)
		return false;
	r->ahead.on = false;
	r->end = RUN_END_NONE;
	if (start_again(r, &e) < 0)
		run_end(r, RUN_END_FAILED, e.msg);
	return true;
}
