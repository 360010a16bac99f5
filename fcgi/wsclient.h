/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_WSCLIENT_H
#define ISOBOX_FCGI_WSCLIENT_H

#include <stdint.h>

#include "fcgi/out.h"
#include "fcgi/rclient.h"
#include "lib/err.h"
#include "lib/wsproto.h"

struct exchange;

/*
 * One operation on a workspace, asked of isobox-runner (lib/wsproto.h). The
 * workspaces are the runner's: here no path is ever opened, only bytes are
 * passed on, and descriptors that it opened.
 */
struct ws_client {
	struct rclient runner;
	struct out *out; /* ends the operation when it is gone; may be NULL */
	unsigned retry_after_s; /* what a refusal said */
};

/* What to ask, and on whose behalf. */
struct ws_call {
	const char *socket; /* the runner's */
	const char *request_id;
	struct out *out; /* as above */
	enum ws_kind kind;
	const char *id; /* NULL: of WS_LIST */
	const char *path; /* may hold NUL */
	size_t path_len;
	uint64_t size; /* of WS_WRITE */
};

/* Connects and asks. Close it whatever it answers. */
int ws_ask(struct ws_client *c, enum ws_op op, const struct ws_call *call,
    struct err *e);
void ws_close(struct ws_client *c);

/* The next frame of the answer: 1; 0 after the last. A refusal of the runner is
 * an error, as is its silence. */
int ws_next(struct ws_client *c, enum proto_type *ret_type,
    const uint8_t **ret_payload, size_t *ret_len, struct err *e);

/* The frame that must be INFO, and the one that must be END. */
int ws_get_info(struct ws_client *c, struct ws_info *ret, struct err *e);
int ws_get_end(struct ws_client *c, struct err *e);

/* The descriptor that came with the last INFO; ERR_SANDBOX_FAILED when none
 * did. The caller's to close. */
int ws_take_fd(struct ws_client *c, struct err *e);

/* Tells how much was written into the descriptor of WS_WRITE. */
int ws_commit(struct ws_client *c, uint64_t bytes, struct err *e);

/* An operation that has no more than one INFO for an answer (ret NULL: none). */
int ws_do(enum ws_op op, const struct ws_call *call, struct ws_info *ret,
    struct err *e);

/* "The runner does not keep to the protocol". */
int ws_misbehaves(struct err *e, const char *how);

#endif
