/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/request.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "lib/num.h"

/* What is read, as found. */
struct found {
	const char *uri;
	const char *method;
	const char *length;
};

static enum method method_parse(const char *text)
{
	static const struct {
		const char *text;
		enum method method;
	} methods[] = {
	    {"GET", METHOD_GET},
	    {"HEAD", METHOD_HEAD},
	    {"POST", METHOD_POST},
	    {"PUT", METHOD_PUT},
	    {"DELETE", METHOD_DELETE},
	    {"OPTIONS", METHOD_OPTIONS},
	};

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strcmp(text, methods[i].text) == 0)
			return methods[i].method;
	return METHOD_OTHER;
}

/* The value when `variable` is called name. */
static const char *value_of(const char *variable, const char *name)
{
	size_t len = strlen(name);

	if (strncmp(variable, name, len) != 0 || variable[len] != '=')
		return NULL;
	return variable + len + 1;
}

/* The first of that name counts. Returns whether there was one before. */
static bool set_once(const char **to, const char *value)
{
	if (value == NULL)
		return false;
	if (*to != NULL)
		return true;
	*to = value;
	return false;
}

/* The headers that are read. Of a secret there may be one only: which of two
 * was meant, a web server before us might have decided otherwise. */
static const struct {
	const char *name;
	size_t offset; /* in struct request */
	bool secret;
} headers[] = {
    {"HTTP_ACCEPT", offsetof(struct request, accept), false},
    {"HTTP_AUTHORIZATION", offsetof(struct request, authorization), true},
    {"HTTP_X_API_KEY", offsetof(struct request, api_key), true},
    {"HTTP_X_SESSION_TOKEN", offsetof(struct request, session_token), true},
    {"HTTP_X_TTL_SECONDS", offsetof(struct request, ttl_seconds), false},
    {"HTTP_RANGE", offsetof(struct request, range), false},
    {"HTTP_IF_MATCH", offsetof(struct request, if_match), false},
    {"HTTP_IF_NONE_MATCH", offsetof(struct request, if_none_match), false},
    {"HTTP_IF_MODIFIED_SINCE", offsetof(struct request, if_modified_since),
	false},
    {"HTTP_IF_UNMODIFIED_SINCE", offsetof(struct request, if_unmodified_since),
	false},
    {"HTTP_IF_RANGE", offsetof(struct request, if_range), false},
};
#define HEADER_COUNT (sizeof(headers) / sizeof(headers[0]))

static const char **header_at(struct request *q, size_t i)
{
	return (const char **)(void *)((char *)q + headers[i].offset);
}

static void take_header(struct request *q, const char *v)
{
	for (size_t i = 0; i < HEADER_COUNT; i++)
		if (set_once(header_at(q, i), value_of(v, headers[i].name)) &&
		    headers[i].secret)
			q->auth_repeated = true;
}

static void take_variable(struct request *q, struct found *f, const char *v)
{
	switch (v[0]) {
	case 'H':
		take_header(q, v);
		break;
	case 'R':
		(void)set_once(&f->uri, value_of(v, "REQUEST_URI"));
		(void)set_once(&f->method, value_of(v, "REQUEST_METHOD"));
		(void)set_once(&q->remote_addr, value_of(v, "REMOTE_ADDR"));
		break;
	case 'C':
		(void)set_once(&f->length, value_of(v, "CONTENT_LENGTH"));
		(void)set_once(&q->content_type, value_of(v, "CONTENT_TYPE"));
		break;
	default:
		break;
	}
}

int request_init(struct request *q, char *const *envp, struct err *e)
{
	struct found f = {0};

	for (size_t i = 0; i < HEADER_COUNT; i++)
		*header_at(q, i) = NULL;
	q->remote_addr = q->content_type = NULL;
	q->auth_repeated = false;
	uri_init(&q->uri);
	for (; *envp != NULL; envp++)
		take_variable(q, &f, *envp);
	if (q->remote_addr == NULL)
		q->remote_addr = "";
	q->method_text = f.method != NULL ? f.method : "";
	q->method = method_parse(q->method_text);
	/* Chunked uploads have none, "" or "-1". */
	q->content_length =
	    f.length != NULL ? num_digits(f.length, strlen(f.length)) : -1;
	if (f.uri == NULL)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "the web server sent no REQUEST_URI");
	return uri_parse(&q->uri, f.uri, strlen(f.uri), e);
}

bool request_wants_stream(const struct request *q)
{
	struct err ignored;
	char value[2];
	size_t len;

	if (q->accept != NULL &&
	    strcasestr(q->accept, "text/event-stream") != NULL)
		return true;
	return uri_query_get(&q->uri, "stream", value, sizeof(value), &len,
		   &ignored) > 0 &&
	       value[0] == '1';
}
