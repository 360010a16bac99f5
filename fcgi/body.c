/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/body.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "fcgi/exchange.h"
#include "lib/limits.h"

/* What body_take() reserves at a time. */
#define STEP (64u * 1024)

/* At the end: whether all came that was announced. */
static int check_end(
    const struct exchange *x, enum err_kind kind, struct err *e)
{
	int64_t declared = x->req.content_length;

	if (declared < 0 || (uint64_t)declared <= x->body->total)
		return 0;
	return err_set(e, kind, EPIPE,
	    "the upload broke off: %" PRIu64 " of %" PRId64 " bytes",
	    x->body->total, declared);
}

/* Room is made for more when all was taken. */
static int fill(struct body *b, struct err *e)
{
	return b->taken == b->len && !b->whole ? b->refill(b, e) : 0;
}

ssize_t body_next(struct exchange *x, const uint8_t **ret, struct err *e)
{
	struct body *b = x->body;
	size_t n;
	int r = fill(b, e);

	if (r < 0)
		return r;
	n = b->len - b->taken;
	if (n == 0)
		return check_end(x, ERR_INVALID_REQUEST, e);
	*ret = b->data + b->taken;
	b->taken = b->len;
	return (ssize_t)n;
}

ssize_t body_read(struct exchange *x, void *buf, size_t len, struct err *e)
{
	struct body *b = x->body;
	size_t n;
	int r = fill(b, e);

	if (r < 0)
		return r;
	n = b->len - b->taken < len ? b->len - b->taken : len;
	if (n == 0)
		return len > 0 ? check_end(x, ERR_INVALID_REQUEST, e) : 0;
	memcpy(buf, b->data + b->taken, n);
	b->taken += n;
	return (ssize_t)n;
}

int body_json(
    struct exchange *x, const uint8_t **ret, size_t *ret_len, struct err *e)
{
	const struct body *b = x->body;

	if (!b->whole || b->total > LIMIT_BODY)
		return err_set(e, ERR_INVALID_JSON, EFBIG,
		    "the body is larger than %u bytes", LIMIT_BODY);
	*ret = b->data;
	*ret_len = b->len;
	return check_end(x, ERR_INVALID_JSON, e);
}

static int too_large(uint64_t max, enum err_kind kind, struct err *e)
{
	return err_set(
	    e, kind, EFBIG, "the body is larger than %" PRIu64 " bytes", max);
}

int body_declared(
    const struct exchange *x, uint64_t max, enum err_kind kind, struct err *e)
{
	int64_t declared = x->req.content_length;

	if (declared >= 0 && (uint64_t)declared > max)
		return too_large(max, kind, e);
	return 0;
}

int body_take(struct exchange *x, size_t max, enum err_kind kind,
    struct buf *ret, struct err *e)
{
	size_t total = 0;

	for (;;) {
		uint8_t *room = buf_reserve(ret, STEP);
		ssize_t n;

		if (room == NULL)
			return err_sys(e, ENOMEM, "a body");
		n = body_read(x, room, STEP, e);
		if (n <= 0)
			return (int)n;
		total += (size_t)n;
		if (total > max)
			return too_large(max, kind, e);
		ret->len += (size_t)n;
	}
}
