/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include "fcgi/exchange.h"
#include "fcgi/rclient.h"
#include "fcgi/response.h"

/* Less than collectors wait (Prometheus' scrape_timeout is 10 s by default),
 * and enough for a slow runner on a busy host not to be called down. */
#define STATUS_TIMEOUT_MS 5000u

/* Open like /readyz: numbers only, nothing of any client. */
void h_metrics(struct exchange *x)
{
	cleanup_buf struct buf body = {0};
	struct runner_status status;
	struct err e;
	int r = rclient_status(
	    x->app->config->runner_socket, STATUS_TIMEOUT_MS, &status, &e);

	metrics_print(&x->app->metrics, &body);
	metrics_print_store(x->app->store, &body);
	metrics_print_runner(r < 0 ? NULL : &status, &body);
	response_send(x, 200, "text/plain; version=0.0.4; charset=utf-8", NULL,
	    body.data, body.len);
}
