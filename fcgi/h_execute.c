/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include "fcgi/exchange.h"
#include "fcgi/execreq.h"
#include "fcgi/guard.h"
#include "fcgi/response.h"
#include "fcgi/run.h"

void h_execute(struct exchange *x)
{
	struct shared *catalog;
	struct execreq q;
	const uint8_t *body;
	size_t len;
	struct err e;

	if (guard_key(x, &e) < 0 || guard_rate(x, RATE_RUN, &e) < 0 ||
	    body_json(x, &body, &len, &e) < 0) {
		response_error(x, &e);
		return;
	}
	catalog = shared_slot_get(&x->app->catalog);
	if (execreq_parse(&q, body, len,
		((const struct catalog *)catalog)->registry, &e) < 0)
		response_error(x, &e);
	else
		(void)run_execreq(x, &q, &e);
	execreq_done(&q);
	shared_put(catalog);
}
