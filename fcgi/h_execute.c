/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "fcgi/exchange.h"
#include "fcgi/execreq.h"
#include "fcgi/guard.h"
#include "fcgi/response.h"
#include "fcgi/run.h"
#include "lib/limits.h"

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
		response_error(x, &e);
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
	struct err e;

	if (guard_key(x, &e) < 0 || guard_rate(x, RATE_RUN, &e) < 0 ||
	    check_body(x, &e) < 0) {
		response_error(x, &e);
		return;
	}
	catalog = shared_slot_get(&x->app->catalog);
	execute(x, ((const struct catalog *)catalog)->registry);
	shared_put(catalog);
}
