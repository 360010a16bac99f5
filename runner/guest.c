/* SPDX-License-Identifier: Apache-2.0 */
/* What isobox-init tells, and what the supervisor makes of it. Only the form of a
 * frame is believed. */
#include <errno.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/job.h"
#include "lib/utf8.h"
#include "runner/run.h"

/* How long the client need not know that its program has started. */
#define STARTED_HOLD_US 10000u

#define LOG_TAIL 2048u

void guest_forward(
    struct run *r, enum stream s, const uint8_t *data, size_t len)
{
	size_t room = r->job->limits.output_bytes - r->sent[s];

	if (len > room) {
		r->truncated[s] = true;
		len = room;
	}
	if (len == 0)
		return;
	r->sent[s] += len;
	run_send_client(
	    r, s == STREAM_OUT ? PROTO_STDOUT : PROTO_STDERR, data, len);
}

static void guest_ready(struct run *r)
{
	r->memory_idle = leaf_memory_now(r->order->leaf);
	r->boot_cpu_us = leaf_cpu_us(r->order->leaf);
	r->result.boot_us = clock_us() - r->begun_us;
	if (r->kernel.on)
		kernel_booted(r);
	else if (r->ahead.on)
		ahead_booted(r);
	else if (r->job != NULL)
		run_give_job(r);
	else /* a probe: that is all it wanted to know */
		run_end(r, RUN_END_EXIT, "");
}

static void guest_started(struct run *r)
{
	r->phase = PHASE_RUN;
	r->started_us = clock_us();
	r->start_cpu_us = leaf_cpu_us(r->order->leaf);
	r->result.boot_us = r->started_us - r->slot_us;
	r->deadline_us =
	    r->started_us + (uint64_t)r->job->limits.wall_time_ms * 1000;
	/* Most programs are soon done or say something: one wake-up less. */
	r->hold_until_us = r->started_us + STARTED_HOLD_US;
	run_put_client(r, PROTO_STARTED, NULL, 0);
}

static void guest_exit(struct run *r, const uint8_t *payload, size_t len)
{
	struct guest_exit x;
	struct err e;

	if (guest_exit_decode(payload, len, &x, &e) < 0) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	if (run_check_oom(r))
		return;
	r->result.exit_code = x.exit_code & 0xff;
	r->result.signal = x.signal;
	r->result.cpu_us = x.cpu_us;
	run_end(r, RUN_END_EXIT, "");
}

static void guest_failed(struct run *r, const uint8_t *payload, size_t len)
{
	struct reader rd = {.p = payload, .left = len};
	size_t n;
	const uint8_t *text = get_bytes(&rd, &n);
	struct err e;

	r->kernel.guest_ended |= r->end == RUN_END_NONE;
	/* The client gets to read it: no bytes that are not text. */
	if (text == NULL || n > sizeof e.msg || !utf8_valid(text, n, NULL))
		(void)err_set(&e, ERR_SANDBOX_FAILED, EIO,
		    "isobox-init failed without a readable reason");
	else
		(void)err_set(&e, ERR_SANDBOX_FAILED, EIO, "isobox-init: %.*s",
		    (int)n, (const char *)text);
	run_end(r, RUN_END_FAILED, e.msg);
}

/* Each frame has its place; at any other the peer is broken. */
static bool guest_frame(
    struct run *r, enum proto_type type, const uint8_t *payload, size_t len)
{
	const bool running = r->phase == PHASE_RUN;

	if (type == PROTO_GUEST_READY && r->phase == PHASE_BOOT)
		guest_ready(r);
	else if (r->kernel.on && type != PROTO_GUEST_FAIL)
		return kernel_frame(r, type, payload, len);
	else if (type == PROTO_GUEST_WARMED && r->phase == PHASE_WARM)
		ahead_warmed(r, payload, len);
	else if (type == PROTO_GUEST_STARTED && r->phase == PHASE_START)
		guest_started(r);
	else if (type == PROTO_GUEST_STDOUT && running)
		guest_forward(r, STREAM_OUT, payload, len);
	else if (type == PROTO_GUEST_STDERR && running)
		guest_forward(r, STREAM_ERR, payload, len);
	else if (type == PROTO_GUEST_EXIT && running)
		guest_exit(r, payload, len);
	else if (type == PROTO_GUEST_FAIL)
		guest_failed(r, payload, len);
	else
		return false;
	return true;
}

static void guest_frames(struct run *r)
{
	size_t taken = 0;

	/* Output that was written before a kill still counts; a second end
	 * does not: run_end() keeps the first. */
	for (;;) {
		const uint8_t *payload;
		enum proto_type type;
		size_t len;
		ssize_t n = proto_next(r->from_guest.data + taken,
		    r->from_guest.len - taken, &type, &payload, &len);

		if (n == 0)
			break;
		if (n < 0 || !guest_frame(r, type, payload, len)) {
			r->kernel.guest_ended |= r->end == RUN_END_NONE;
			run_end(r, RUN_END_FAILED,
			    "the sandbox broke the protocol");
			r->guest_eof = true;
			break;
		}
		taken += (size_t)n;
	}
	buf_consume(&r->from_guest, taken);
}

/* The sandbox has closed its end: it is dead, whatever killed it. */
static void guest_end(struct run *r)
{
	r->guest_eof = true;
	if (r->end != RUN_END_NONE)
		return;
	if (run_check_oom(r))
		return;
	r->kernel.guest_ended = true;
	run_end(r, RUN_END_FAILED,
	    r->phase == PHASE_BOOT ? "the sandbox did not start"
				   : "the sandbox ended without a result");
}

void guest_read(struct run *r)
{
	const size_t chunk = 64u * 1024;
	uint8_t *room = buf_reserve(&r->from_guest, chunk);
	ssize_t n;

	if (room == NULL) {
		run_end(r, RUN_END_FAILED, "out of memory");
		return;
	}
	n = read(r->box.out_fd, room, chunk);
	if (n > 0) {
		r->from_guest.len += (size_t)n;
		guest_frames(r);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		guest_end(r);
	}
}

void guest_write(struct run *r)
{
	ssize_t n = write(r->box.in_fd, r->to_guest.data, r->to_guest.len);

	if (n > 0)
		buf_consume(&r->to_guest, (size_t)n);
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		buf_clear(&r->to_guest); /* dead: out_fd tells how */
}

/* Keeps the last LOG_TAIL bytes of what runsc and init complain. */
void guest_read_log(struct run *r)
{
	char text[1024];
	ssize_t n = read(r->box.log_fd, text, sizeof text);

	if (n > 0) {
		buf_put(&r->log, text, (size_t)n);
		if (r->log.len > LOG_TAIL)
			buf_consume(&r->log, r->log.len - LOG_TAIL);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		(void)close(r->box.log_fd);
		r->box.log_fd = -1;
	}
}
