/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <inttypes.h>

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

void h_execute(struct exchange *x)
{
	struct shared *catalog;
	struct execreq q;
	struct err e;

	if (guard_key(x, &e) < 0 || guard_rate(x, RATE_RUN, &e) < 0 ||
	    check_body(x, &e) < 0) {
		response_error(x, &e);
		return;
	}
	catalog = shared_slot_get(&x->app->catalog);
	if (execreq_parse(&q, x->body.data, x->body.len,
		((const struct catalog *)catalog)->registry, &e) < 0)
		response_error(x, &e);
	else
		(void)run_execreq(x, &q, &e);
	execreq_done(&q);
	shared_put(catalog);
}
