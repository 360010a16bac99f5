/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/wsclient.h"

#include <errno.h>
#include <string.h>

#include "lib/clock.h"

#define CONNECT_TIMEOUT_MS 5000u

/* Between two frames. Removing a tree of 100,000 files, on a disk that others
 * use, is the longest that the runner does in silence. */
#define SILENCE_MAX_MS 60000u

static const enum err_kind told_kinds[] = {ERR_INVALID_PATH, ERR_NOT_FOUND,
    ERR_INVALID_REQUEST, ERR_SESSION_NOT_FOUND, ERR_VOLUME_NOT_FOUND,
    ERR_TOO_LARGE, ERR_QUOTA_EXCEEDED, ERR_STORAGE_FULL, ERR_CAPACITY,
    ERR_SESSION_BUSY};
static const struct told told = {
    told_kinds, sizeof(told_kinds) / sizeof(told_kinds[0])};

int ws_misbehaves(struct err *e, const char *how)
{
	return err_set(e, ERR_SANDBOX_FAILED, EPROTO,
	    "isobox-runner does not keep to the protocol: %s", how);
}

static struct blob blob_of(const char *s, size_t len)
{
	return (struct blob){(const uint8_t *)s, len};
}

static int send_frame(struct ws_client *c, struct buf *frame, struct err *e)
{
	if (frame->failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "no memory");
	return rclient_send(&c->runner, frame, e);
}

int ws_ask(struct ws_client *c, enum ws_op op, const struct ws_call *call,
    struct err *e)
{
	const struct ws_request q = {
	    .op = op,
	    .kind = call->kind,
	    .request_id = blob_of(call->request_id, strlen(call->request_id)),
	    .id = blob_of(call->id, call->id != NULL ? strlen(call->id) : 0),
	    .path = blob_of(call->path, call->path_len),
	    .size = call->size,
	};
	cleanup_buf struct buf frame = {0};
	size_t begun;
	int r;

	memset(c, 0, sizeof(*c));
	c->out = call->out;
	r = rclient_open(&c->runner, call->socket, CONNECT_TIMEOUT_MS, e);
	if (r < 0)
		return r;
	begun = proto_begin(&frame, PROTO_WS);
	ws_request_encode(&q, &frame);
	proto_end(&frame, begun);
	return send_frame(c, &frame, e);
}

void ws_close(struct ws_client *c)
{
	rclient_close(&c->runner);
}

/* A frame that belongs to an answer: 1; the last of a good one: 0. */
static int take_type(struct ws_client *c, enum proto_type type,
    const uint8_t *payload, size_t len, struct err *e)
{
	if (type == PROTO_WS_INFO || type == PROTO_WS_ENTRIES ||
	    type == PROTO_WS_IDS || type == PROTO_WS_DATA)
		return 1;
	if (type == PROTO_FAIL)
		return rclient_failure(
		    &told, payload, len, &c->retry_after_s, e);
	if (type != PROTO_WS_END)
		return ws_misbehaves(e, "a frame of another conversation");
	return len == 0 ? 0 : ws_misbehaves(e, "bad end");
}

int ws_next(struct ws_client *c, enum proto_type *ret_type,
    const uint8_t **ret_payload, size_t *ret_len, struct err *e)
{
	uint64_t deadline = clock_ms() + SILENCE_MAX_MS;
	int r = rclient_next(
	    &c->runner, c->out, deadline, ret_type, ret_payload, ret_len, e);

	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, ERR_SANDBOX_FAILED, ETIMEDOUT,
		    "isobox-runner does not answer in time");
	return take_type(c, *ret_type, *ret_payload, *ret_len, e);
}

int ws_get_info(struct ws_client *c, struct ws_info *ret, struct err *e)
{
	enum proto_type type;
	const uint8_t *payload;
	size_t len;
	int r = ws_next(c, &type, &payload, &len, e);

	if (r < 0)
		return r;
	if (r == 0 || type != PROTO_WS_INFO ||
	    ws_info_decode(payload, len, ret, e) < 0)
		return ws_misbehaves(e, "no or bad facts about a file");
	return 0;
}

int ws_get_end(struct ws_client *c, struct err *e)
{
	enum proto_type type;
	const uint8_t *payload;
	size_t len;
	int r = ws_next(c, &type, &payload, &len, e);

	return r > 0 ? ws_misbehaves(e, "more than was asked for") : r;
}

int ws_take_fd(struct ws_client *c, struct err *e)
{
	int fd = c->runner.passed;

	c->runner.passed = -1;
	return fd >= 0 ? fd : ws_misbehaves(e, "no descriptor");
}

int ws_commit(struct ws_client *c, uint64_t bytes, struct err *e)
{
	const struct ws_commit commit = {.bytes = bytes};
	cleanup_buf struct buf frame = {0};
	size_t begun = proto_begin(&frame, PROTO_WS_COMMIT);

	ws_commit_encode(&commit, &frame);
	proto_end(&frame, begun);
	return send_frame(c, &frame, e);
}

int ws_do(enum ws_op op, const struct ws_call *call, struct ws_info *ret,
    struct err *e)
{
	struct ws_client c;
	int r = ws_ask(&c, op, call, e);

	if (r >= 0 && ret != NULL)
		r = ws_get_info(&c, ret, e);
	if (r >= 0)
		r = ws_get_end(&c, e);
	ws_close(&c);
	return r;
}
