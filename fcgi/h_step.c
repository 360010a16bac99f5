/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <string.h>

#include "fcgi/body.h"
#include "fcgi/exchange.h"
#include "fcgi/execreq.h"
#include "fcgi/guard.h"
#include "fcgi/response.h"
#include "fcgi/run.h"
#include "fcgi/session.h"

static struct blob blob_of(const char *s)
{
	return (struct blob){(const uint8_t *)s, strlen(s)};
}

/* A kernel's network is that of its session; whether it has one, the runner
 * knows. */
static int parse_step(struct exchange *x, const struct store_session *s,
    const struct runtime *rt, const struct blob *body, struct execreq *q,
    struct err *e)
{
	int r;

	if (s->type != STORE_SESSION_KERNEL)
		return execreq_parse_step(q, body->data, body->len, rt, e);
	r = execreq_parse_kernel(q, body->data, body->len, rt,
	    session_wall_max_ms(x->app->config, s->type), e);
	q->job.network = s->network;
	q->job.allow_count = 0;
	return r;
}

static void run_step(struct exchange *x, const struct store_session *s,
    const struct runtime *rt, const struct blob *body)
{
	struct execreq q;
	struct err e;

	if (parse_step(x, s, rt, body, &q, &e) < 0) {
		response_error(x, &e);
	} else {
		q.job.session = blob_of(s->id);
		q.job.volume = blob_of(s->volume);
		if (run_execreq(x, &q, &e) >= 0)
			metrics_count(
			    &x->app->metrics, METRIC_SESSION_STEPS, 1);
		else
			session_check_lost(x, s, &e);
	}
	execreq_done(&q);
}

/* POST /v1/sessions/{id}/exec: /execute with the session's runtime. */
void h_step(struct exchange *x)
{
	const struct runtime *rt;
	struct store_session s;
	struct shared *catalog;
	struct blob body;
	struct err e;

	if (session_use(x, &s, &e) < 0 || guard_rate(x, RATE_RUN, &e) < 0 ||
	    body_json(x, &body.data, &body.len, &e) < 0) {
		response_error(x, &e);
		return;
	}
	catalog = shared_slot_get(&x->app->catalog);
	rt = registry_find(((const struct catalog *)catalog)->registry,
	    s.runtime, strlen(s.runtime), s.version, strlen(s.version), &e);
	if (rt != NULL)
		run_step(x, &s, rt, &body);
	else
		response_error(x, &e);
	shared_put(catalog);
}
