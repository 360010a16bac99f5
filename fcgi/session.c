/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fcgi/exchange.h"
#include "fcgi/guard.h"
#include "lib/log.h"

/* Longer than a step takes beside its program and its wait for the turn: for a
 * slot, the boot, the web server. */
#define CALL_EXTRA_MS 20000

static int not_found(struct err *e)
{
	return err_set(e, ERR_SESSION_NOT_FOUND, ENOENT, "%s", "");
}

/* What no identifier looks like needs no look into the store. */
const char *session_param_id(const struct exchange *x)
{
	const struct uri_segment *s = &x->params[0];
	const struct blob id = {(const uint8_t *)s->text, s->len};

	return s->len == TOKEN_ID_LEN && ws_id_ok(&id) ? s->text : NULL;
}

/* Constant time, and the same for a token that is missing. */
static bool token_is_right(
    const struct request *q, const uint8_t hash[TOKEN_HASH_LEN])
{
	const char *token = q->session_token != NULL ? q->session_token : "";
	uint8_t given[TOKEN_HASH_LEN];

	token_hash(token, strlen(token), given);
	return token_hash_equal(given, hash) && !q->auth_repeated;
}

int64_t session_call_max_ms(
    const struct config *config, enum store_session_type type)
{
	return 2 * (int64_t)session_wall_max_ms(config, type) + CALL_EXTRA_MS;
}

uint32_t session_wall_max_ms(
    const struct config *config, enum store_session_type type)
{
	return type == STORE_SESSION_KERNEL ? config->kernel_max_step_ms
					    : LIMIT_WALL_MAX_MS;
}

int session_find(struct exchange *x, struct store_session *ret, struct err *e)
{
	const char *id = session_param_id(x);
	int r = guard_key(x, e);

	if (r < 0)
		return r;
	if (id == NULL)
		return not_found(e);
	r = store_session_get(x->app->store, x->tenant.name, id, ret, e);
	if (r < 0)
		return e->kind == ERR_SESSION_NOT_FOUND ? not_found(e) : r;
	if (!token_is_right(&x->req, ret->token_hash))
		return err_set(e, ERR_INVALID_SESSION_TOKEN, EACCES, "%s", "");
	return 0;
}

int session_use(struct exchange *x, struct store_session *ret, struct err *e)
{
	int r = session_find(x, ret, e);

	if (r < 0)
		return r;
	(void)snprintf(x->session, sizeof(x->session), "%s", ret->id);
	if (ret->expires_ms - store_now_ms() >
	    session_call_max_ms(x->app->config, ret->type))
		return 0;
	return store_session_touch(x->app->store, ret->id, e);
}

void session_used(struct exchange *x)
{
	struct err e;

	if (x->session[0] == '\0' ||
	    store_session_touch(x->app->store, x->session, &e) >= 0 ||
	    e.kind == ERR_SESSION_NOT_FOUND) /* it was ended meanwhile */
		return;
	log_warn("request %s: the session's time of use: %s", x->id, e.msg);
}

void session_check_lost(
    struct exchange *x, const struct store_session *s, const struct err *e)
{
	struct err ignored;

	if (e->kind != ERR_SESSION_NOT_FOUND ||
	    store_session_end(x->app->store, s->tenant, s->id, &ignored) < 0)
		return;
	log_warn("request %s: a session without a workspace is ended", x->id);
}

void session_remove(struct exchange *x, const struct store_session *s)
{
	struct ws_call call = session_call(x, s);
	struct err e;

	call.out = NULL; /* once begun it is done, whoever waits */
	if (ws_do(WS_REMOVE, &call, NULL, &e) < 0 ||
	    store_session_delete(x->app->store, s->id, &e) < 0)
		log_warn(
		    "request %s: a session is removed later: %s", x->id, e.msg);
}

struct ws_call session_call(struct exchange *x, const struct store_session *s)
{
	return (struct ws_call){
	    .socket = x->app->config->runner_socket,
	    .request_id = x->id,
	    .out = x->out,
	    .kind = WS_SESSION,
	    .id = s->id,
	};
}
