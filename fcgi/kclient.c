/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/kclient.h"

#include <errno.h>

#include "fcgi/exchange.h"
#include "fcgi/rclient.h"
#include "lib/clock.h"

#define CONNECT_TIMEOUT_MS 5000u

/* The runner bounds each part of an operation itself: two boots and two
 * checkpoints at most, and a copy of a workspace. */
#define SILENCE_MAX_MS 90000u

static const enum err_kind told_kinds[] = {ERR_INVALID_REQUEST,
    ERR_UNKNOWN_LANGUAGE, ERR_KERNEL_UNSUPPORTED, ERR_SESSION_NOT_FOUND,
    ERR_VOLUME_NOT_FOUND, ERR_VOLUME_BUSY, ERR_QUOTA_EXCEEDED, ERR_CAPACITY,
    ERR_SESSION_BUSY, ERR_STORAGE_FULL, ERR_KERNEL_DEAD, ERR_TOO_MANY_KERNELS};
static const struct told told = {
    told_kinds, sizeof(told_kinds) / sizeof(told_kinds[0])};

static int misbehaves(struct err *e)
{
	return err_set(e, ERR_SANDBOX_FAILED, EPROTO,
	    "isobox-runner does not keep to the protocol of kernels");
}

static int send_request(
    struct rclient *c, const struct kernel_request *q, struct err *e)
{
	cleanup_buf struct buf frame = {0};
	size_t begun = proto_begin(&frame, PROTO_KERNEL);

	kernel_request_encode(q, &frame);
	proto_end(&frame, begun);
	if (frame.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "no memory");
	return rclient_send(c, &frame, e);
}

static int take_answer(struct exchange *x, struct rclient *c,
    struct kernel_info *ret, struct err *e)
{
	enum proto_type type;
	const uint8_t *payload;
	size_t len;
	int r = rclient_next(
	    c, NULL, clock_ms() + SILENCE_MAX_MS, &type, &payload, &len, e);

	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, ERR_SANDBOX_FAILED, ETIMEDOUT,
		    "isobox-runner does not answer in time");
	if (type == PROTO_FAIL)
		return rclient_failure(
		    &told, payload, len, &x->retry_after_s, e);
	if (type != PROTO_KERNEL_INFO ||
	    kernel_info_decode(payload, len, ret, e) < 0)
		return misbehaves(e);
	return 0;
}

int kclient_ask(struct exchange *x, struct kernel_request *q,
    struct kernel_info *ret, struct err *e)
{
	struct rclient c;
	int r = rclient_open(
	    &c, x->app->config->runner_socket, CONNECT_TIMEOUT_MS, e);

	if (r < 0)
		return r;
	q->request_id = (struct blob){(const uint8_t *)x->id, TOKEN_ID_LEN};
	r = send_request(&c, q, e);
	if (r >= 0)
		r = take_answer(x, &c, ret, e);
	rclient_close(&c);
	return r;
}
