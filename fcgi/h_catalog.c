/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include "fcgi/exchange.h"
#include "fcgi/response.h"

/* What stands ready in the catalog: the languages, and texts about the API. */
void h_runtimes(struct exchange *x)
{
	struct shared *s = shared_slot_get(&x->app->catalog);
	const struct catalog *c = (const struct catalog *)s;

	response_json(x, 200, c->runtimes.data, c->runtimes.len);
	shared_put(s);
}

static void send_text(
    struct exchange *x, const struct buf *text, const char *type)
{
	if (text->len == 0)
		response_not_found(x);
	else
		response_send(x, 200, type, NULL, text->data, text->len);
}

void h_llms(struct exchange *x)
{
	struct shared *s = shared_slot_get(&x->app->catalog);
	const struct catalog *c = (const struct catalog *)s;

	send_text(x, &c->llms, "text/plain; charset=utf-8");
	shared_put(s);
}

void h_openapi(struct exchange *x)
{
	struct shared *s = shared_slot_get(&x->app->catalog);
	const struct catalog *c = (const struct catalog *)s;

	send_text(x, &c->openapi, "application/yaml; charset=utf-8");
	shared_put(s);
}
