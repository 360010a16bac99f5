/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fcgi/artifacts.h"
#include "fcgi/exchange.h"
#include "fcgi/large.h"
#include "fcgi/rclient.h"
#include "fcgi/response.h"
#include "fcgi/result.h"
#include "fcgi/sse.h"
#include "lib/clock.h"
#include "lib/log.h"

/* For connecting and sending, and on top of every wait for the runner: what it
 * does itself within its own bounds. */
#define CONNECT_TIMEOUT_MS 5000u
#define MARGIN_MS 5000u

/* A step in a kernel has so long to give up when its time is over; and its kernel
 * may first have to be fetched from the disk, in the place of another one. */
#define GRACE_MS 2000u
#define FETCH_MS 30000u

struct run {
	struct exchange *x;
	const struct job *job;
	bool base64; /* output encoding */
	bool stream; /* as events, else one JSON object */
	struct rclient runner;
	struct sse sse; /* once begun */
	struct buf output[STREAM_COUNT]; /* raw */
	struct artifacts artifacts;
	struct run_result result;
	bool started; /* with a stream: its headers are out */
	uint64_t deadline_ms;
};

static int misbehaves(struct err *e, const char *how)
{
	return err_set(e, ERR_SANDBOX_FAILED, EPROTO,
	    "isobox-runner does not keep to the protocol: %s", how);
}

static int take_started(struct run *r, size_t len, struct err *e)
{
	if (r->started || len != 0)
		return misbehaves(e, "bad start");
	r->started = true;
	r->deadline_ms = clock_ms() + r->job->limits.wall_time_ms + MARGIN_MS;
	if (r->job->kernel)
		r->deadline_ms += GRACE_MS;
	if (!r->stream)
		return 0;
	(void)response_begin_stream(r->x);
	sse_begin(&r->sse, r->x->out, r->base64);
	return 0;
}

static int take_output(struct run *r, enum stream which, const uint8_t *data,
    size_t len, struct err *e)
{
	struct buf *all = &r->output[which];

	if (!r->started)
		return misbehaves(e, "output before the start");
	if (len > r->job->limits.output_bytes - all->len)
		return misbehaves(e, "more output than was asked for");
	buf_put(all, data, len);
	if (all->failed)
		return err_sys(e, ENOMEM, "output");
	if (r->stream)
		sse_output(&r->sse, which, data, len);
	return 0;
}

static int take_artifact(struct run *r, enum proto_type type,
    const uint8_t *payload, size_t len, struct err *e)
{
	if (!r->started || !r->job->kernel)
		return misbehaves(e, "an artifact of no step");
	return type == PROTO_ARTIFACT
		   ? artifacts_begin(&r->artifacts, payload, len, e)
		   : artifacts_data(&r->artifacts, payload, len, e);
}

static int take_done(
    struct run *r, const uint8_t *payload, size_t len, struct err *e)
{
	struct exchange *x = r->x;

	if (!r->started || run_result_decode(payload, len, &r->result, e) < 0 ||
	    (r->result.kernel != RUN_KERNEL_NONE) != r->job->kernel)
		return misbehaves(e, "bad end");
	artifacts_end(&r->artifacts);
	x->ran = true;
	x->exit_code = r->result.exit_code;
	x->timed_out = r->result.timed_out;
	x->oom_killed = r->result.oom_killed;
	return 1;
}

static int take_fail(
    struct run *r, const uint8_t *payload, size_t len, struct err *e)
{
	static const enum err_kind kinds[] = {ERR_INVALID_REQUEST,
	    ERR_INVALID_FILE, ERR_UNKNOWN_LANGUAGE, ERR_CAPACITY,
	    /* Of steps only. */
	    ERR_SESSION_NOT_FOUND, ERR_VOLUME_NOT_FOUND, ERR_VOLUME_BUSY,
	    ERR_SESSION_BUSY, ERR_QUOTA_EXCEEDED, ERR_STORAGE_FULL,
	    /* Of steps in kernels only. */
	    ERR_KERNEL_DEAD, ERR_TOO_MANY_KERNELS, ERR_KERNEL_UNSUPPORTED};
	const struct told told = {kinds, sizeof(kinds) / sizeof(kinds[0])};

	(void)rclient_failure(&told, payload, len, &r->x->retry_after_s, e);
	if (e->kind == ERR_CAPACITY)
		return err_set(e, e->kind, EBUSY, "no free execution slot");
	return -e->code;
}

/* 1 at the end, 0 when more is to come. */
static int take_frame(struct run *r, enum proto_type type,
    const uint8_t *payload, size_t len, struct err *e)
{
	switch (type) {
	case PROTO_STARTED:
		return take_started(r, len, e);
	case PROTO_STDOUT:
		return take_output(r, STREAM_STDOUT, payload, len, e);
	case PROTO_STDERR:
		return take_output(r, STREAM_STDERR, payload, len, e);
	case PROTO_ARTIFACT:
	case PROTO_ARTIFACT_DATA:
		return take_artifact(r, type, payload, len, e);
	case PROTO_DONE:
		return take_done(r, payload, len, e);
	case PROTO_FAIL:
		return take_fail(r, payload, len, e);
	case PROTO_RUN:
	case PROTO_STATUS:
	case PROTO_WS:
	case PROTO_WS_COMMIT:
	case PROTO_KERNEL:
	case PROTO_STATUS_REPLY:
	case PROTO_WS_INFO:
	case PROTO_WS_ENTRIES:
	case PROTO_WS_IDS:
	case PROTO_WS_DATA:
	case PROTO_WS_END:
	case PROTO_KERNEL_INFO:
	case PROTO_GUEST_JOB:
	case PROTO_GUEST_WARM:
	case PROTO_GUEST_READY:
	case PROTO_GUEST_STARTED:
	case PROTO_GUEST_STDOUT:
	case PROTO_GUEST_STDERR:
	case PROTO_GUEST_EXIT:
	case PROTO_GUEST_FAIL:
	case PROTO_GUEST_WARMED:
	case PROTO_GUEST_KERNEL:
	case PROTO_GUEST_STEP:
	case PROTO_GUEST_INTERRUPT:
	case PROTO_GUEST_RESTORED:
	case PROTO_GUEST_KERNEL_READY:
	case PROTO_GUEST_ARTIFACT:
	case PROTO_GUEST_ARTIFACT_DATA:
	case PROTO_GUEST_STEP_DONE:
		break;
	}
	return misbehaves(e, "a frame of another conversation");
}

static uint64_t next_wake(const struct run *r)
{
	if (r->started && r->stream && r->sse.beat_ms < r->deadline_ms)
		return r->sse.beat_ms;
	return r->deadline_ms;
}

/* Until DONE: 0. Everything else is an error. */
static int follow(struct run *r, struct err *e)
{
	for (;;) {
		enum proto_type type;
		const uint8_t *payload;
		size_t len;
		int n = rclient_next(&r->runner, r->x->out, next_wake(r), &type,
		    &payload, &len, e);

		if (n > 0)
			n = take_frame(r, type, payload, len, e);
		else if (n == 0 && clock_ms() >= r->deadline_ms)
			n = err_set(e, ERR_SANDBOX_FAILED, ETIMEDOUT,
			    "isobox-runner does not answer in time");
		if (n != 0)
			return n < 0 ? n : 0;
		if (!r->started || !r->stream)
			continue;
		if (!rclient_has_frame(&r->runner))
			sse_flush(&r->sse);
		sse_beat(&r->sse);
	}
}

static int ask(struct run *r, struct err *e)
{
	const struct config *config = r->x->app->config;
	cleanup_buf struct buf frame = {0};
	size_t begun;
	int rc;

	/* First, so that it is there when the runner has the connection. */
	begun = proto_begin(&frame, PROTO_RUN);
	job_encode(r->job, &frame);
	proto_end(&frame, begun);
	rc = rclient_open(
	    &r->runner, config->runner_socket, CONNECT_TIMEOUT_MS, e);
	if (rc < 0)
		return rc;
	r->deadline_ms = clock_ms() + config->acquire_wait_ms +
			 config->boot_timeout_ms + MARGIN_MS;
	if (r->job->session.len > 0) /* a step waits for its turn, too */
		r->deadline_ms += r->job->limits.wall_time_ms;
	if (r->job->kernel)
		r->deadline_ms += FETCH_MS;
	return rclient_send(&r->runner, &frame, e);
}

static void answer_failed(struct run *r, const struct err *e)
{
	cleanup_buf struct buf body = {0};

	if (e->kind == ERR_CLIENT_GONE)
		return;
	if (!r->started || !r->stream) {
		response_error(r->x, e);
		return;
	}
	log_error(
	    "request %s: %s: %s", r->x->id, err_kind_word(e->kind), e->msg);
	response_put_error(&body, e);
	sse_event(&r->sse, "error", body.data, body.len);
}

/* Before the last event, which stays as the API has it. */
static void put_timing_comment(struct run *r, const struct buf *timing)
{
	cleanup_buf struct buf text = {0};

	buf_printf(&text, "server-timing %s", (const char *)timing->data);
	buf_putc(&text, '\0');
	if (!text.failed)
		sse_comment(&r->sse, (const char *)text.data);
}

static void put_json(
    struct run *r, const struct buf *body, const struct buf *timing)
{
	cleanup_buf struct buf header = {0};

	buf_printf(
	    &header, "Server-Timing: %s\r\n", (const char *)timing->data);
	buf_putc(&header, '\0');
	response_json_with(r->x, 200,
	    header.failed ? NULL : (const char *)header.data, body->data,
	    body->len);
}

/* Many answers with large artifacts, each to a slow reader, would be gigabytes:
 * one that finds no place goes without. Whether it has one. */
static bool take_place(struct run *r)
{
	struct err e;

	if (r->artifacts.json.len <= LARGE_ANSWER)
		return false;
	if (large_begin(r->x, &e) >= 0)
		return true;
	log_warn("request %s: artifacts left out: %s", r->x->id, e.msg);
	artifacts_drop(&r->artifacts);
	return false;
}

static void answer_done(struct run *r)
{
	const struct result_parts parts = {
	    .job = r->job,
	    .result = &r->result,
	    .output = r->output,
	    .base64 = r->base64,
	    .artifacts = &r->artifacts,
	};
	const bool large = take_place(r);
	cleanup_buf struct buf body = {0};
	cleanup_buf struct buf timing = {0};
	struct err e;

	if (r->stream) {
		sse_output_end(
		    &r->sse, STREAM_STDOUT, r->result.stdout_truncated);
		sse_output_end(
		    &r->sse, STREAM_STDERR, r->result.stderr_truncated);
	}
	result_put(&body, &parts);
	r->x->truncated = result_truncated(&parts);
	artifacts_done(&r->artifacts);
	result_put_timing(&timing, &r->result);
	buf_putc(&timing, '\0');
	if (body.failed || timing.failed) {
		(void)err_sys(&e, ENOMEM, "a result");
		answer_failed(r, &e);
	} else if (r->stream) {
		put_timing_comment(r, &timing);
		sse_event(&r->sse, "done", body.data, body.len);
	} else {
		put_json(r, &body, &timing);
	}
	if (large)
		large_end(r->x);
}

int run_execreq(struct exchange *x, struct execreq *q, struct err *e)
{
	struct run r = {
	    .x = x,
	    .job = &q->job,
	    .base64 = q->base64,
	    .stream = request_wants_stream(&x->req),
	    .runner.fd = -1,
	    .runner.passed = -1,
	};
	int rc;

	q->job.request_id = (struct blob){(const uint8_t *)x->id, TOKEN_ID_LEN};
	(void)snprintf(
	    x->language, sizeof(x->language), "%s", q->runtime->name);
	x->streamed = r.stream;
	if (out_check_gone(x->out)) /* it left while it waited for a thread */
		return err_set(e, ERR_CLIENT_GONE, EPIPE, "%s", "");
	if ((rc = ask(&r, e)) < 0 || (rc = follow(&r, e)) < 0)
		answer_failed(&r, e);
	else
		answer_done(&r);
	rclient_close(&r.runner);
	sse_done(&r.sse);
	artifacts_done(&r.artifacts);
	for (int i = 0; i < STREAM_COUNT; i++)
		buf_free(&r.output[i]);
	return rc;
}
