/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_RECORD_H
#define ISOBOX_FCGI_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buf.h"
#include "lib/err.h"

/*
 * The reading side of FastCGI 1.0, responder role, one request at a time: takes
 * a connection's bytes as they come, without ever blocking, and gathers one
 * request from them.
 *
 * Why libfcgi does not read the socket: whoever reaches it would end the
 * service. Measured with 2.4.2-2+deb12u1, security patch included: two lengths
 * in FCGI_PARAMS whose sum passes INT_MAX run into an assert(), and an
 * FCGI_GET_VALUES that asks four times for FCGI_MAX_CONNS writes beyond a buffer
 * on the stack. It has no limit on parameters either, and it blocks a thread
 * until a slow sender is done. So it gets a head that was checked here
 * (record_head()), and nothing else.
 *
 * Management records, other roles and multiplexing are refused: no web server
 * sends them.
 */
enum record_state {
	RECORD_IDLE, /* between requests */
	RECORD_PARAMS,
	RECORD_BODY,
	RECORD_DONE /* the request is whole */
};

struct record_in {
	enum record_state state;
	uint8_t header[8];
	size_t header_len; /* of header[] so far */
	size_t content_left; /* of the record */
	size_t padding_left;
	uint8_t begin[8]; /* FCGI_BeginRequestBody */
	size_t begin_len;
	uint16_t id;
	bool keep_conn;
	uint64_t total; /* bytes of the request, framing included */
	struct buf params; /* name-value pairs, well-formed once in BODY */
	const char *refused; /* why params were dropped, or NULL */
	struct buf body; /* LIMIT_BODY bytes at most; the reader empties it */
	uint64_t body_len; /* of all that came */
	bool drop; /* what comes of the body is not kept */
};

/*
 * Takes bytes. Returns how many, which is less than len only when the request
 * became whole (the rest belongs to the next one), or its body has no more room.
 * Negative when the peer does not speak FastCGI, or memory is out: close the
 * connection.
 */
ssize_t record_put(
    struct record_in *in, const uint8_t *data, size_t len, struct err *e);

/* Whether the request is whole, its last record with the padding. */
bool record_is_whole(const struct record_in *in);

/* Whether the parameters are whole, and the body is larger than what is kept of
 * it, as far as can be told by now. */
bool record_is_large(const struct record_in *in);

/* The value of the first parameter called name of a request whose parameters are
 * whole; NULL when there is none. No NUL follows. */
const uint8_t *record_find(
    const struct record_in *in, const char *name, size_t *ret_len);

/* The head of the whole request in a form that libfcgi reads safely, at most
 * LIMIT_PARAMS bytes: without parameters when these were refused. */
void record_head(const struct record_in *in, struct buf *out);

/* Whether data begins with FCGI_ABORT_REQUEST for the request at hand. */
bool record_is_abort(
    const struct record_in *in, const uint8_t *data, size_t len);

/* Back to RECORD_IDLE; memory of usual size is kept. */
void record_reset(struct record_in *in);
void record_free(struct record_in *in);

#endif
