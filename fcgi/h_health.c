/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include "fcgi/exchange.h"
#include "fcgi/rclient.h"
#include "fcgi/response.h"
#include "fcgi/text.h"
#include "lib/clock.h"
#include "lib/json.h"

/* A probe gives up sooner or later, too. */
#define READY_TIMEOUT_MS 2000u
#define ALIVE_TIMEOUT_MS 500u

/* What was heard so shortly before is still good. A client that has changed
 * something has waited longer for that. */
#define GOOD_US 2000u

bool health_is_known(const struct app *app)
{
	return app->config->kernel_slots == 0 ||
	       clock_us() - atomic_load(&app->kernels_us) < GOOD_US;
}

/* How many slots of kernels are taken only the runner knows, and it may be away or
 * mute: that is /readyz's to judge. So one thread at a time asks, and not each time;
 * to the others, and to the event loop, goes what was heard last. */
static int kernels_used(struct exchange *x)
{
	const uint64_t now_us = clock_us();
	struct app *app = x->app;
	struct runner_status status;
	struct err e;

	if (x->in_loop || health_is_known(app) ||
	    atomic_flag_test_and_set(&app->asking_kernels))
		return atomic_load(&app->kernels_used);
	if (rclient_status(
		app->config->runner_socket, ALIVE_TIMEOUT_MS, &status, &e) < 0)
		atomic_store(&app->kernels_used, -1);
	else
		atomic_store(&app->kernels_used, (int)status.kernels.used);
	atomic_store(&app->kernels_us, now_us);
	atomic_flag_clear(&app->asking_kernels);
	return atomic_load(&app->kernels_used);
}

static void put_kernels(struct exchange *x, struct buf *out)
{
	const int used = kernels_used(x);

	buf_puts(out, ",\"kernels\":{\"used\":");
	if (used < 0)
		buf_puts(out, "null");
	else
		buf_printf(out, "%d", used);
	buf_printf(out, ",\"max\":%u}", x->app->config->kernel_slots);
}

/* Liveness of this process. */
void h_healthz(struct exchange *x)
{
	cleanup_buf struct buf body = {0};

	buf_puts(
	    &body, "{\"status\":\"ok\",\"version\":\"" ISOBOX_VERSION "\"");
	if (x->app->config->kernel_slots > 0)
		put_kernels(x, &body);
	buf_putc(&body, '}');
	response_json(x, 200, body.data, body.len);
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
		text_put_reason(&body, e.msg);
	} else if (!status.ready) {
		buf_puts(&body, "{\"ready\":false,\"reason\":");
		text_put_reason(&body, status.reason);
	} else {
		ready = true;
		buf_puts(&body, "{\"ready\":true,\"backend\":");
		json_put_cstr(&body, status.backend);
	}
	buf_putc(&body, '}');
	response_json(x, ready ? 200 : 503, body.data, body.len);
}
