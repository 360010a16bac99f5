/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_REQUEST_H
#define ISOBOX_FCGI_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "fcgi/uri.h"
#include "lib/err.h"

enum method {
	METHOD_OTHER,
	METHOD_GET,
	METHOD_HEAD,
	METHOD_POST,
	METHOD_PUT,
	METHOD_DELETE,
	METHOD_OPTIONS
};

/*
 * A request as the web server describes it. Strings are borrowed from the
 * environment. Only these variables are read: PATH_INFO, SCRIPT_NAME and
 * SERVER_NAME differ between servers, HTTP_PROXY and X-Forwarded-For are the
 * client's.
 */
struct request {
	enum method method;
	const char *method_text; /* as sent, "" when absent */
	struct uri uri;
	const char *remote_addr; /* "" when absent */
	int64_t content_length; /* -1: absent, "" or no number */
	const char *content_type; /* NULL when absent, like all below */
	const char *accept; /* HTTP headers, the first of each name */
	const char *authorization;
	const char *api_key;
	const char *session_token;
	const char *range;
	const char *if_match;
	const char *if_none_match;
	const char *if_modified_since;
	const char *if_unmodified_since;
	const char *if_range;
	const char *ttl_seconds;
	bool auth_repeated; /* one that proves who asks came more than once */
};

/* envp: "NAME=value", NULL-terminated (FastCGI's parameters or environ). Fails
 * as uri_parse(), or when REQUEST_URI is missing; method, method_text and
 * remote_addr are set all the same. */
int request_init(struct request *q, char *const *envp, struct err *e);

/* Whether the answer is to be a stream of events: by Accept or "stream=1". */
bool request_wants_stream(const struct request *q);

#endif
