/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_RCLIENT_H
#define ISOBOX_FCGI_RCLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "fcgi/out.h"
#include "lib/buf.h"
#include "lib/err.h"
#include "lib/proto.h"
#include "lib/status.h"

/* A connection to isobox-runner, one for each request. Closing it ends the run
 * that it asked for. */
struct rclient {
	int fd;
	int passed; /* a descriptor that came, -1 = none; take_fd() it */
	struct buf in;
	size_t used; /* of in.data: frames handed out */
};

/* Connects. ERR_SANDBOX_FAILED when nobody answers within timeout_ms. */
int rclient_open(
    struct rclient *c, const char *path, unsigned timeout_ms, struct err *e);
void rclient_close(struct rclient *c);

/* Sends frames. ERR_SANDBOX_FAILED when the runner does not take them. */
int rclient_send(struct rclient *c, const struct buf *frames, struct err *e);

/*
 * The next frame, its payload valid until the next call: 1. Or 0 when none came
 * until the deadline (clock_ms()). Watches `out` meanwhile, when not NULL:
 * ERR_CLIENT_GONE. ERR_SANDBOX_FAILED when the runner is gone or broken.
 */
int rclient_next(struct rclient *c, struct out *out, uint64_t deadline_ms,
    enum proto_type *ret_type, const uint8_t **ret_payload, size_t *ret_len,
    struct err *e);

/* Whether another whole frame has been received already. */
bool rclient_has_frame(const struct rclient *c);

/*
 * What a PROTO_FAIL says, as an error: one of `told` is the client's business,
 * with the seconds after which to come again (0 = none); everything else is the
 * host's failure. Always negative.
 */
struct told {
	const enum err_kind *kinds;
	size_t count;
};
int rclient_failure(const struct told *told, const uint8_t *payload, size_t len,
    unsigned *ret_retry_after_s, struct err *e);

/* Asks the runner about itself, all in timeout_ms. */
int rclient_status(const char *path, unsigned timeout_ms,
    struct runner_status *ret, struct err *e);

#endif
