/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/exchange.h"

#include <errno.h>
#include <string.h>

#include "fcgi/accesslog.h"
#include "fcgi/metrics.h"
#include "fcgi/response.h"
#include "fcgi/router.h"
#include "fcgi/session.h"
#include "lib/clock.h"

/* Scratch memory that a worker keeps. */
#define KEEP_MAX (16u * 1024)

void exchange_init(struct exchange *x, struct app *app)
{
	memset(x, 0, sizeof(*x));
	x->app = app;
}

void exchange_done(struct exchange *x)
{
	buf_free(&x->head);
}

static void forget(struct exchange *x)
{
	x->status = 0;
	x->revalidate = false;
	x->retry_after_s = 0;
	x->session[0] = '\0';
	x->route = ROUTE_UNKNOWN;
	x->tenant.name[0] = '\0';
	x->language[0] = '\0';
	x->ran = x->timed_out = x->oom_killed = x->truncated = false;
	x->streamed = false;
	if (x->head.cap > KEEP_MAX)
		buf_free(&x->head);
	buf_clear(&x->head);
}

static void answer(
    struct exchange *x, char *const *envp, const struct err *refused)
{
	struct err e;
	int r = request_init(&x->req, envp, &e);

	if (refused != NULL) {
		e = *refused;
		r = -EINVAL;
	}
	if (r < 0 && x->req.method != METHOD_OPTIONS)
		response_error(x, &e);
	else
		router_serve(x);
	/* Nothing answered though somebody listens: never leave it at that. */
	if (x->status == 0 && !x->out->gone) {
		(void)err_set(&e, ERR_INTERNAL, 0, "%s", "");
		response_error(x, &e);
	}
}

void exchange_serve(struct exchange *x, struct out *out, char *const *envp,
    struct body *body, const struct err *refused)
{
	forget(x);
	x->begun_us = clock_us();
	x->out = out;
	x->body = body;
	token_new_id(x->id);
	metrics_begin(&x->app->metrics);
	answer(x, envp, refused);
	out_finish(out); /* what nobody waits for comes after the answer */
	session_used(x);
	metrics_end(
	    &x->app->metrics, x->route, x->status, clock_us() - x->begun_us);
	accesslog_write(&x->app->log, x);
}
