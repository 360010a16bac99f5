/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/newsession.h"

#include <errno.h>
#include <stdio.h>

#include "fcgi/exchange.h"
#include "fcgi/response.h"
#include "fcgi/session.h"
#include "fcgi/session_json.h"

/* When there are too many sessions: one may end any time. */
#define RETRY_SEC 60

int newsession_take_ttl(struct exchange *x, struct json_object *root,
    struct newsession *n, struct err *e)
{
	const struct config *config = x->app->config;
	const int64_t max = config->session_ttl_sec;
	const int64_t min = session_call_max_ms(config, n->record.type) / 1000;
	int64_t ttl = n->record.ttl_sec > 0 ? n->record.ttl_sec : max;
	int r = json_get_int(root, "ttlSec", "ttlSec", &ttl, e);

	if (r < 0)
		return r;
	if (ttl < min)
		ttl = min;
	n->record.ttl_sec = (uint32_t)(ttl < max ? ttl : max);
	return 0;
}

static void name_it(struct exchange *x, struct newsession *n)
{
	struct store_session *s = &n->record;
	uint8_t random[SESSION_TOKEN_BYTES];

	token_random(random, sizeof(random));
	(void)sodium_bin2base64(n->token, sizeof(n->token), random,
	    sizeof(random), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	sodium_memzero(random, sizeof(random));
	token_hash(n->token, sizeof(n->token) - 1, s->token_hash);
	token_new_id(s->id);
	(void)snprintf(s->tenant, sizeof(s->tenant), "%s", x->tenant.name);
	s->created_ms = s->used_ms = store_now_ms();
	s->expires_ms = s->created_ms + s->ttl_sec * INT64_C(1000);
}

/* The runner could not be reached: there is nothing to remove, and until the
 * next sweep the record would count as a session that nobody has. */
static bool was_not_asked(const struct err *e)
{
	return e->kind == ERR_SANDBOX_FAILED &&
	       (e->code == ECONNREFUSED || e->code == ENOENT);
}

int newsession_begin(struct exchange *x, struct newsession *n,
    newsession_make *make, void *arg, struct err *e)
{
	const struct store_session_max max = {x->app->config->max_sessions,
	    x->app->config->max_sessions_per_tenant};
	struct err ignored;
	int r;

	name_it(x, n);
	r = store_session_create(x->app->store, &n->record, &max, e);
	if (r < 0) {
		if (e->kind == ERR_TOO_MANY_SESSIONS)
			x->retry_after_s = RETRY_SEC;
		return r;
	}
	r = make(x, n, arg, e);
	if (r < 0 && was_not_asked(e))
		(void)store_session_delete(
		    x->app->store, n->record.id, &ignored);
	else if (r < 0 && store_session_end(x->app->store, n->record.tenant,
			      n->record.id, &ignored) >= 0)
		session_remove(x, &n->record);
	return r;
}

void newsession_answer(struct exchange *x, struct newsession *n)
{
	cleanup_buf struct buf body = {0};
	char location[64];

	metrics_count(&x->app->metrics, METRIC_SESSIONS_CREATED, 1);
	session_put_facts(&body, &n->record, n->token);
	if (n->record.type == STORE_SESSION_KERNEL)
		session_put_kernel(&body, &n->record, &n->kernel);
	buf_putc(&body, '}');
	(void)snprintf(location, sizeof(location),
	    "Location: /v1/sessions/%s\r\n", n->record.id);
	response_json_with(x, 201, location, body.data, body.len);
	sodium_memzero(n->token, sizeof(n->token));
}
