/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_CONN_H
#define ISOBOX_FCGI_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "fcgi/body.h"
#include "fcgi/out.h"
#include "fcgi/record.h"
#include "lib/buf.h"
#include "lib/err.h"

/* A connection of the web server. It belongs to the event loop while it waits
 * for bytes and to one worker while a request is served, never to both. */
struct conn {
	int fd; /* blocking; writes time out (SO_SNDTIMEO) */
	struct record_in in;
	struct buf pending; /* bytes behind the request at hand */
	bool watched; /* in the loop's epoll set, if disarmed */
	bool large; /* the request's body comes while it is served */
	bool draining; /* answered; the rest of the body is dropped */
	uint64_t since_ms; /* idle, or reading a request, since then */
	struct conn *prev; /* the loop's list */
	struct conn *next;
};

/* Once, before any other call here and before the first thread. */
int conn_setup(struct err *e);

int conn_new(int fd, struct conn **ret); /* takes fd */
void conn_free(struct conn *c); /* and closes */

/* Memory for conn_read(), one for each thread that calls it. */
#define CONN_SCRATCH (64u * 1024)

/*
 * Reads what is there, without waiting. 1 when a request can be served: it is
 * whole, or `large`. 0 when more is needed, negative when the connection is to be
 * closed (-ECONNRESET: that is all there was to come).
 */
int conn_read(struct conn *c, uint8_t scratch[CONN_SCRATCH], struct err *e);

/* Makes the connection ready for its next request, or, when the body of the last
 * one was not read to its end, for dropping what is left of it. As
 * conn_read(). */
int conn_next(struct conn *c, struct err *e);

/* Whether a small answer can be written without waiting: the peer has read all
 * that it got before. */
bool conn_has_room(const struct conn *c);

/*
 * One thread's use of libfcgi, which decodes the parameters and frames the
 * answer. It reads the checked head from a pipe, so it cannot read a byte more,
 * and it writes to the connection.
 */
struct conn_io;

int conn_io_new(struct conn_io **ret, struct err *e);
void conn_io_free(struct conn_io *io);

/* What a handler needs of a connection; lives until conn_end(). */
struct conn_request {
	char **envp; /* "NAME=value", NULL-terminated */
	struct out *out;
	struct body *body;
};

/* Begins to serve c's request. */
int conn_begin(struct conn_io *io, struct conn *c, struct conn_request *ret,
    struct err *e);

/* After out_finish(): lets go of the request. True when the connection is to go
 * on, see conn_next(). */
bool conn_end(struct conn_io *io);

#endif
