/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_SESSION_H
#define ISOBOX_FCGI_SESSION_H

#include "fcgi/wsclient.h"
#include "lib/config.h"
#include "lib/err.h"
#include "lib/store.h"

struct exchange;

/*
 * The session that the path of a request names, for whoever may use it: the key
 * first (guard.h), then the record, then X-Session-Token.
 *
 * ERR_SESSION_NOT_FOUND for every id that is not a live session of the caller's
 * tenant, whatever it is instead; ERR_INVALID_SESSION_TOKEN when it is one and
 * the token is missing or wrong.
 */
int session_find(struct exchange *x, struct store_session *ret, struct err *e);

/* The same for a call that counts as use: the idle time begins anew, in the store
 * after the answer. Only a session that is about to expire is moved on at once,
 * so that no call outlives it. */
int session_use(struct exchange *x, struct store_session *ret, struct err *e);

/* What exchange.c does after the answer. */
void session_used(struct exchange *x);

/* The runner has no such workspace: then this session is dead, whatever the store
 * says, and is ended there. Any other error is passed. */
void session_check_lost(
    struct exchange *x, const struct store_session *s, const struct err *e);

/* An operation on its workspace. */
struct ws_call session_call(struct exchange *x, const struct store_session *s);

/* Removes a session that has ended, kernel and workspace before its record; what
 * fails here, the sweep does. */
void session_remove(struct exchange *x, const struct store_session *s);

/* The most wall time that a step of such a session may ask for, and what a whole
 * call may take with all that it may wait for. The least idle time of a session
 * is not shorter than that. */
uint32_t session_wall_max_ms(
    const struct config *config, enum store_session_type type);
int64_t session_call_max_ms(
    const struct config *config, enum store_session_type type);

/* An identifier of the path in its form, or NULL; also a volume's. */
const char *session_param_id(const struct exchange *x);

#endif
