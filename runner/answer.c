/* SPDX-License-Identifier: Apache-2.0 */
/* What the client of a run is sent: frames while it runs, and its answer. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/run.h"

void run_put_client(
    struct run *r, enum proto_type type, const void *data, size_t len)
{
	if (r->client_fd >= 0)
		proto_put_frame(&r->to_client, type, data, len);
	if (r->to_client.failed)
		run_end(r, RUN_END_FAILED, "out of memory");
}

void run_client_gone(struct run *r)
{
	if (r->kernel.on)
		kernel_client_gone(r);
	else
		run_end(r, RUN_END_GONE, "");
}

/* What is queued, the header and the payload in one system call. */
static ssize_t send_frame(
    struct run *r, const struct buf *header, const void *data, size_t len)
{
	struct iovec parts[3] = {
	    {r->to_client.data, r->to_client.len},
	    {header->data, header->len},
	    {(void *)(uintptr_t)data, len},
	};
	const struct msghdr m = {.msg_iov = parts, .msg_iovlen = 3};
	ssize_t n = sendmsg(r->client_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n;
}

/* The part of `data` that lies behind the first n bytes of all. */
static void queue_rest(struct run *r, size_t *n, const void *data, size_t len)
{
	size_t skip = *n < len ? *n : len;

	*n -= skip;
	buf_put(&r->to_client, (const uint8_t *)data + skip, len - skip);
}

void run_send_client(
    struct run *r, enum proto_type type, const void *data, size_t len)
{
	cleanup_buf struct buf header = {0};
	size_t queued = r->to_client.len;
	size_t left;
	ssize_t n;

	if (r->client_fd < 0)
		return;
	proto_put_header(&header, type, len);
	if (header.failed) {
		run_end(r, RUN_END_FAILED, "out of memory");
		return;
	}
	n = send_frame(r, &header, data, len);
	if (n < 0) {
		run_client_gone(r);
		return;
	}
	r->hold_until_us = 0;
	left = (size_t)n < queued ? 0 : (size_t)n - queued;
	buf_consume(&r->to_client, (size_t)n < queued ? (size_t)n : queued);
	queue_rest(r, &left, header.data, header.len);
	queue_rest(r, &left, data, len);
	if (r->to_client.failed)
		run_end(r, RUN_END_FAILED, "out of memory");
}

/* False when the client is gone. */
bool run_send_rest(struct run *r)
{
	while (r->to_client.len > 0) {
		ssize_t n = send(r->client_fd, r->to_client.data,
		    r->to_client.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		buf_consume(&r->to_client, (size_t)n);
	}
	return true;
}

/* What a killed program had written before still lies in the pipe. */
static void drain_guest(struct run *r)
{
	uint64_t until = clock_us() + RUN_DRAIN_US;

	/* no descriptor: it was never started */
	while (r->box.out_fd >= 0 && !r->guest_eof && clock_us() < until) {
		struct pollfd p = {r->box.out_fd, POLLIN, 0};
		struct timespec wait = clock_left(until);

		if (ppoll(&p, 1, &wait, NULL) > 0)
			guest_read(r);
	}
	while (r->box.log_fd >= 0 && r->end == RUN_END_FAILED) {
		struct pollfd p = {r->box.log_fd, POLLIN, 0};

		if (poll(&p, 1, 0) <= 0)
			break;
		guest_read_log(r);
	}
}

/* Of the program, its interpreter and what that had loaded ahead: what the leaf
 * had more than the idle sandbox. */
static int64_t memory_peak(struct run *r)
{
	int64_t peak = leaf_memory_peak(r->order->leaf);

	if (peak < 0 || r->memory_idle < 0)
		return -1;
	return peak > r->memory_idle ? peak - r->memory_idle : 0;
}

/* The leaf's own counter is exact, and tells of killed programs, too. */
void run_take_cpu(struct run *r)
{
	int64_t now = r->start_cpu_us >= 0 ? leaf_cpu_us(r->order->leaf) : -1;

	if (now >= r->start_cpu_us && now >= 0)
		r->result.cpu_us = (uint64_t)(now - r->start_cpu_us);
}

static void put_result(struct run *r)
{
	struct buf payload = {0};

	r->result.timed_out = r->end == RUN_END_TIMEOUT;
	r->result.oom_killed = r->end == RUN_END_OOM;
	if (r->end != RUN_END_EXIT) {
		r->result.exit_code = 128 + SIGKILL;
		r->result.signal = SIGKILL;
		r->result.cpu_us = RUN_RESULT_UNKNOWN;
	}
	run_take_cpu(r);
	r->result.stdout_truncated = r->truncated[STREAM_OUT];
	r->result.stderr_truncated = r->truncated[STREAM_ERR];
	r->result.queue_us = r->queue_us;
	r->result.memory_peak_bytes = memory_peak(r);
	if (r->kernel.on)
		kernel_end_result(r);
	run_result_encode(&r->result, &payload);
	run_put_client(r, PROTO_DONE, payload.data, payload.len);
	buf_free(&payload);
}

void run_put_failure(struct run *r, const struct err *e)
{
	struct buf payload = {0};

	put_u32(&payload, (uint32_t)e->kind);
	put_u32(&payload, 0);
	put_cstr(&payload, e->msg);
	run_put_client(r, PROTO_FAIL, payload.data, payload.len);
	buf_free(&payload);
}

static void put_failure(struct run *r)
{
	const enum err_kind kind = r->end == RUN_END_REFUSED ? r->refused
				   : r->kernel.on	     ? ERR_KERNEL_DEAD
						  : ERR_SANDBOX_FAILED;
	struct err e;

	(void)err_set(&e, kind, EIO, "%s", r->why);
	run_put_failure(r, &e);
}

static void flush_client(struct run *r)
{
	uint64_t until = clock_us() + RUN_FLUSH_US;

	while (run_send_rest(r) && r->to_client.len > 0 && clock_us() < until) {
		struct pollfd p[2] = {{r->client_fd, POLLOUT, 0},
		    {r->order->control_fd, r->ahead.deaf ? 0 : POLLIN, 0}};
		struct timespec wait = clock_left(until);

		(void)ppoll(p, 2, &wait, NULL);
		if ((p[0].revents & (POLLHUP | POLLERR)) || p[1].revents != 0)
			return;
	}
}

static void log_failure(const struct run *r)
{
	const struct job *job = r->job;
	const char *none = r->kernel.on ? "kernel" : "probe";
	const void *id =
	    job != NULL ? (const void *)job->request_id.data : none;
	size_t id_len = job != NULL ? job->request_id.len : strlen(none);

	log_error("run %.*s failed: %s; runsc: %.*s", (int)id_len,
	    (const char *)id, r->why, (int)r->log.len,
	    r->log.len > 0 ? (const char *)r->log.data : "");
}

void run_answer(struct run *r)
{
	if (r->end == RUN_END_GONE)
		return;
	if (r->phase == PHASE_FLUSH) /* its answer is on its way */
		r->job = NULL;
	if (r->end != RUN_END_EXIT) {
		sandbox_kill(&r->box);
		drain_guest(r);
	}
	if (r->end == RUN_END_FAILED) {
		/* One that was booted ahead for nobody has been told of. */
		if (!r->ahead.on || r->job != NULL)
			log_failure(r);
		put_failure(r);
	} else if (r->end == RUN_END_REFUSED) {
		put_failure(r);
	} else if (r->job != NULL) {
		put_result(r);
	}
	if (r->kernel.on && r->client_fd < 0)
		kernel_last_claim(r);
	if (r->client_fd < 0)
		return;
	/* The answer first, then the end of what the program left running: a
	 * client that takes its time does not keep it alive. */
	(void)run_send_rest(r);
	sandbox_kill(&r->box);
	flush_client(r);
	(void)shutdown(r->client_fd, SHUT_RDWR);
}
