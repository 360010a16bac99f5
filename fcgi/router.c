/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/router.h"

#include <stdio.h>
#include <string.h>

#include "fcgi/exchange.h"
#include "fcgi/handlers.h"
#include "fcgi/response.h"

typedef void handler(struct exchange *x);

/* One resource a row; a method without a handler is 405. A segment of a path in
 * braces takes any that is not empty, into the exchange's params. */
struct route {
	const char *path;
	handler *get; /* and HEAD */
	handler *post;
	handler *put;
	handler *del;
};

static const struct route routes[ROUTE_COUNT] = {
    [ROUTE_EXECUTE] = {"/execute", .post = h_execute},
    [ROUTE_RUNTIMES] = {"/runtimes", .get = h_runtimes},
    [ROUTE_HEALTHZ] = {"/healthz", .get = h_healthz},
    [ROUTE_READYZ] = {"/readyz", .get = h_readyz},
    [ROUTE_METRICS] = {"/metrics", .get = h_metrics},
    [ROUTE_LLMS] = {"/llms.txt", .get = h_llms},
    [ROUTE_OPENAPI] = {"/openapi.yaml", .get = h_openapi},
    [ROUTE_SESSIONS] = {"/v1/sessions", .post = h_sessions_post},
    [ROUTE_SESSION] = {"/v1/sessions/{id}", .get = h_session_get,
	.del = h_session_delete},
    [ROUTE_STEP] = {"/v1/sessions/{id}/exec", .post = h_step},
    [ROUTE_INTERRUPT] = {"/v1/sessions/{id}/interrupt", .post = h_interrupt},
    [ROUTE_FORK] = {"/v1/sessions/{id}/fork", .post = h_fork},
    [ROUTE_FILES] = {"/v1/sessions/{id}/fs", .get = h_files_get,
	.put = h_files_put, .del = h_files_delete},
    [ROUTE_VOLUMES] = {"/v1/volumes", .get = h_volumes_get,
	.post = h_volumes_post},
    [ROUTE_VOLUME] = {"/v1/volumes/{id}", .get = h_volume_get,
	.del = h_volume_delete},
    [ROUTE_MEMORY] = {"/v1/memory/{namespace}", .get = h_memory_list},
    [ROUTE_MEMORY_KEY] = {"/v1/memory/{namespace}/{key}", .get = h_memory_get,
	.put = h_memory_put, .del = h_memory_delete},
    [ROUTE_UNKNOWN] = {"other"},
};

const char *router_name(unsigned route)
{
	return routes[route].path;
}

/* Whether a decoded segment is what the pattern's next len bytes mean. */
static bool takes(const char *pattern, size_t len, const struct uri_segment *s,
    struct exchange *x, unsigned *count)
{
	if (pattern[0] != '{')
		return len == s->len && memcmp(pattern, s->text, len) == 0;
	if (s->len == 0 || *count == EXCHANGE_PARAMS)
		return false;
	x->params[(*count)++] = *s;
	return true;
}

static bool matches(const char *path, struct exchange *x)
{
	const struct uri *u = &x->req.uri;
	unsigned count = 0;

	for (size_t i = 0; i < u->segment_count; i++) {
		size_t len;

		if (*path++ != '/')
			return false;
		len = strcspn(path, "/");
		if (!takes(path, len, &u->segments[i], x, &count))
			return false;
		path += len;
	}
	return *path == '\0' && u->segment_count > 0;
}

static unsigned find(struct exchange *x)
{
	for (unsigned i = 0; i < ROUTE_UNKNOWN; i++)
		if (matches(routes[i].path, x))
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
		return r->put;
	case METHOD_DELETE:
		return r->del;
	case METHOD_OPTIONS:
	case METHOD_OTHER:
		break;
	}
	return NULL;
}

static void refuse_method(struct exchange *x, const struct route *r)
{
	char allow[64];

	(void)snprintf(allow, sizeof(allow), "%s%s%s%sOPTIONS",
	    r->get != NULL ? "GET, HEAD, " : "",
	    r->post != NULL ? "POST, " : "", r->put != NULL ? "PUT, " : "",
	    r->del != NULL ? "DELETE, " : "");
	response_method_not_allowed(x, allow);
}

void router_serve(struct exchange *x)
{
	const struct route *r;
	handler *serve;

	x->route = find(x);
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
		refuse_method(x, r);
	else
		serve(x);
}
