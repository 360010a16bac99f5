/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_RESPONSE_H
#define ISOBOX_FCGI_RESPONSE_H

#include <stddef.h>

#include "lib/err.h"

struct exchange;

/*
 * The one place where answers begin. Every answer carries X-Request-Id, the CORS
 * headers and Cache-Control: no-store (or no-cache, x->revalidate). `more` is further header lines, each with
 * its CRLF, or NULL.
 */
void response_send(struct exchange *x, int status, const char *type,
    const char *more, const void *body, size_t len);

/* A JSON body that is done in memory. */
void response_json(
    struct exchange *x, int status, const void *body, size_t len);

/* The same with further header lines, as response_send() has them. */
void response_json_with(struct exchange *x, int status, const char *more,
    const void *body, size_t len);

/* {"error": word} and, when e has a message, "detail"; Retry-After as
 * x->retry_after_s says. */
void response_error(struct exchange *x, const struct err *e);
void response_error_with(
    struct exchange *x, const struct err *e, const char *more);

void response_not_found(struct exchange *x);
void response_method_not_allowed(struct exchange *x, const char *allow);
void response_options(struct exchange *x);

/* The head of an answer whose body, if it has one, the caller writes by
 * out_write(). len -1: not known, the end of the answer ends it; type NULL: no
 * body. Not for HEAD's sake: the caller looks at the method. 0, or negative when
 * the client is gone. */
int response_begin(struct exchange *x, int status, const char *type,
    const char *more, long long len);

/* An answer without a body: 204, 304. */
void response_empty(struct exchange *x, int status, const char *more);

/* The headers of a stream of events; what follows is out_write()'s. 0, or
 * negative when the client is gone. */
int response_begin_stream(struct exchange *x);

/* {"error": word, "detail": message} into the buffer. */
struct buf;
void response_put_error(struct buf *out, const struct err *e);

#endif
