/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/router.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "fcgi/exchange.h"
#include "fcgi/handlers.h"
#include "fcgi/response.h"

typedef void handler(struct exchange *x);

/* One resource a row; a method without a handler is 405. */
struct route {
	const char *path;
	handler *get; /* and HEAD */
	handler *post;
};

static const struct route routes[ROUTE_COUNT] = {
    [ROUTE_EXECUTE] = {"/execute", NULL, h_execute},
    [ROUTE_RUNTIMES] = {"/runtimes", h_runtimes, NULL},
    [ROUTE_HEALTHZ] = {"/healthz", h_healthz, NULL},
    [ROUTE_READYZ] = {"/readyz", h_readyz, NULL},
    [ROUTE_METRICS] = {"/metrics", h_metrics, NULL},
    [ROUTE_LLMS] = {"/llms.txt", h_llms, NULL},
    [ROUTE_OPENAPI] = {"/openapi.yaml", h_openapi, NULL},
    [ROUTE_UNKNOWN] = {"other", NULL, NULL},
};

const char *router_name(unsigned route)
{
	return routes[route].path;
}

/* Whether the decoded segments are those of path. */
static bool matches(const char *path, const struct uri *u)
{
	for (size_t i = 0; i < u->segment_count; i++) {
		const struct uri_segment *s = &u->segments[i];
		size_t len;

		if (*path++ != '/')
			return false;
		len = strcspn(path, "/");
		if (len != s->len || memcmp(path, s->text, len) != 0)
			return false;
		path += len;
	}
	return *path == '\0' && u->segment_count > 0;
}

static unsigned find(const struct uri *u)
{
	for (unsigned i = 0; i < ROUTE_UNKNOWN; i++)
		if (matches(routes[i].path, u))
			return i;
	return ROUTE_UNKNOWN;
}

static handler *handler_for(const struct route *r, enum method method)
{
	switch (method) {
	case METHOD_GET:
	case METHOD_HEAD:
		return r->get;
	case METHOD_POST:
		return r->post;
	case METHOD_PUT:
	case METHOD_DELETE:
	case METHOD_OPTIONS:
	case METHOD_OTHER:
		break;
	}
	return NULL;
}

void router_serve(struct exchange *x)
{
	const struct route *r;
	handler *serve;

	x->route = find(&x->req.uri);
	r = &routes[x->route];
	if (x->req.method == METHOD_OPTIONS) {
		response_options(x);
		return;
	}
	if (x->route == ROUTE_UNKNOWN) {
		response_not_found(x);
		return;
	}
	serve = handler_for(r, x->req.method);
	if (serve == NULL)
		response_method_not_allowed(
		    x, r->get != NULL ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
	else
		serve(x);
}
