/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_BODY_H
#define ISOBOX_FCGI_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buf.h"
#include "lib/err.h"

struct exchange;

/*
 * A request's body. What is small (LIMIT_BODY) has arrived whole before the
 * request is served. A larger one comes while it is read, so a handler can refuse
 * it before, store it piece by piece, or leave it: what it leaves is dropped
 * after the answer.
 */
struct body {
	const uint8_t *data; /* what has arrived, LIMIT_BODY at most */
	size_t len;
	size_t taken; /* of these, by body_read() */
	bool whole; /* there is no more */
	uint64_t total; /* bytes that arrived so far */
	/* More of it into data, or the end; only when not whole. */
	int (*refill)(struct body *b, struct err *e);
};

/*
 * The next bytes of the body, up to len; waits for them. 0 at its end. Negative
 * when it cannot be had whole: it broke off or came too slowly
 * (ERR_INVALID_REQUEST), or nobody is there any more (ERR_CLIENT_GONE). The same
 * then each time.
 */
ssize_t body_read(struct exchange *x, void *buf, size_t len, struct err *e);

/* The same without a copy: *ret is good until the next call. */
ssize_t body_next(struct exchange *x, const uint8_t **ret, struct err *e);

/* A whole body of at most LIMIT_BODY bytes, in place, for what is parsed as JSON:
 * else ERR_INVALID_JSON. */
int body_json(
    struct exchange *x, const uint8_t **ret, size_t *ret_len, struct err *e);

/* All of it behind what is in ret, which it owns: `kind` when that is more than
 * max bytes. */
int body_take(struct exchange *x, size_t max, enum err_kind kind,
    struct buf *ret, struct err *e);

/* Refuses, before anything is read, a body that is declared longer than max. */
int body_declared(
    const struct exchange *x, uint64_t max, enum err_kind kind, struct err *e);

#endif
