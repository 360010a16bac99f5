/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_ROUTER_H
#define ISOBOX_FCGI_ROUTER_H

struct exchange;

/* The rows of the table in router.c; ROUTE_UNKNOWN is what no row takes. */
enum route_id {
	ROUTE_EXECUTE,
	ROUTE_RUNTIMES,
	ROUTE_HEALTHZ,
	ROUTE_READYZ,
	ROUTE_METRICS,
	ROUTE_LLMS,
	ROUTE_OPENAPI,
	ROUTE_SESSIONS,
	ROUTE_SESSION,
	ROUTE_STEP,
	ROUTE_INTERRUPT,
	ROUTE_FORK,
	ROUTE_FILES,
	ROUTE_VOLUMES,
	ROUTE_VOLUME,
	ROUTE_MEMORY,
	ROUTE_MEMORY_KEY,
	ROUTE_UNKNOWN,
	ROUTE_COUNT
};

/* The path of a route, "other" for ROUTE_UNKNOWN; for counters. */
const char *router_name(unsigned route);

/* Finds the handler for the request and lets it answer; 404 and 405 and OPTIONS
 * are answered here. HEAD is GET without the body. */
void router_serve(struct exchange *x);

#endif
