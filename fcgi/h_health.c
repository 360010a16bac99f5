/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include "fcgi/exchange.h"
#include "fcgi/rclient.h"
#include "fcgi/response.h"
#include "lib/json.h"

#define READY_TIMEOUT_MS 2000u /* a probe gives up sooner or later, too */

/* Liveness of this process; the runner is /readyz's. */
void h_healthz(struct exchange *x)
{
	static const char body[] =
	    "{\"status\":\"ok\",\"version\":\"" ISOBOX_VERSION "\"}";

	response_json(x, 200, body, sizeof(body) - 1);
}

void h_readyz(struct exchange *x)
{
	cleanup_buf struct buf body = {0};
	struct runner_status status;
	struct err e;
	bool ready = false;

	if (rclient_status(x->app->config->runner_socket, READY_TIMEOUT_MS,
		&status, &e) < 0) {
		buf_puts(&body, "{\"ready\":false,\"reason\":");
		json_put_cstr(&body, e.msg);
	} else if (!status.ready) {
		buf_puts(&body, "{\"ready\":false,\"reason\":");
		json_put_cstr(&body, status.reason);
	} else {
		ready = true;
		buf_puts(&body, "{\"ready\":true,\"backend\":");
		json_put_cstr(&body, status.backend);
	}
	buf_putc(&body, '}');
	response_json(x, ready ? 200 : 503, body.data, body.len);
}
