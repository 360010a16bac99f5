/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "fcgi/exchange.h"
#include "fcgi/execreq.h"
#include "fcgi/response.h"
#include "fcgi/run.h"
#include "lib/limits.h"

#define RATE_CLASS_RUN 0u

static int check_auth(struct exchange *x, struct err *e)
{
	struct shared *s = shared_slot_get(&x->app->keys);
	int r = auth_check((const struct keyring *)s, &x->req, &x->tenant, e);

	shared_put(s);
	return r;
}

static int check_rate(struct exchange *x, unsigned *ret_wait_s, struct err *e)
{
	const struct config *config = x->app->config;
	struct ratelimit *limit = x->app->ratelimit;

	if (limit == NULL)
		return 0;
	*ret_wait_s = ratelimit_take(limit, RATE_CLASS_RUN,
	    ratelimit_key(limit, x->req.remote_addr), config->rate_per_min,
	    config->rate_burst);
	if (*ret_wait_s == 0)
		return 0;
	return err_set(e, ERR_RATE_LIMITED, EAGAIN, "%s", "");
}

static int check_body(const struct exchange *x, struct err *e)
{
	const struct body *b = &x->body;
	int64_t declared = x->req.content_length;

	if (b->total > b->len)
		return err_set(e, ERR_INVALID_JSON, EFBIG,
		    "the body is larger than %u bytes", LIMIT_BODY);
	if (declared >= 0 && (uint64_t)declared > b->total)
		return err_set(e, ERR_INVALID_JSON, EPIPE,
		    "the upload broke off: %" PRIu64 " of %" PRId64 " bytes",
		    b->total, declared);
	return 0;
}

static void execute(struct exchange *x, const struct registry *registry)
{
	struct execreq q;
	struct err e;

	if (execreq_parse(&q, x->body.data, x->body.len, registry, &e) < 0) {
		response_error(x, &e, 0);
	} else {
		const struct run_request rr = {
		    .job = &q.job,
		    .base64 = q.base64,
		    .stream = request_wants_stream(&x->req),
		};

		(void)snprintf(
		    x->language, sizeof(x->language), "%s", q.runtime->name);
		q.job.request_id.data = (const uint8_t *)x->id;
		q.job.request_id.len = TOKEN_ID_LEN;
		run_job(x, &rr);
	}
	execreq_done(&q);
}

void h_execute(struct exchange *x)
{
	struct shared *catalog;
	unsigned wait_s = 0;
	struct err e;

	if (check_auth(x, &e) < 0 || check_rate(x, &wait_s, &e) < 0 ||
	    check_body(x, &e) < 0) {
		response_error(x, &e, wait_s);
		return;
	}
	catalog = shared_slot_get(&x->app->catalog);
	execute(x, ((const struct catalog *)catalog)->registry);
	shared_put(catalog);
}
