/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/response.h"

#include <errno.h>
#include <stdio.h>

#include "fcgi/exchange.h"
#include "fcgi/text.h"
#include "lib/json.h"
#include "lib/log.h"

#define JSON "application/json"

/* Of every answer. Any page may call the API: it has no cookies, a key is a
 * header that the page must know. */
#define COMMON                                                             \
	"Access-Control-Allow-Origin: *\r\n"                               \
	"Access-Control-Expose-Headers: X-Request-Id, Retry-After, ETag, " \
	"Location, Accept-Ranges, Content-Disposition, Content-Length, "   \
	"Content-Range, X-Expires-At, Server-Timing\r\n"                   \
	"X-Content-Type-Options: nosniff\r\n"

/* Nothing is kept by a cache, but what has a version of its own: that one is
 * asked for each time. */
#define NO_STORE "Cache-Control: no-store\r\n"
#define REVALIDATE "Cache-Control: private, no-cache\r\n"

/* Of OPTIONS. */
#define CORS                                                           \
	"Access-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE, " \
	"OPTIONS\r\n"                                                  \
	"Access-Control-Allow-Headers: Accept, Authorization, "        \
	"Content-Type, If-Match, If-Modified-Since, If-None-Match, "   \
	"If-Range, If-Unmodified-Since, Range, X-API-Key, "            \
	"X-Session-Token, X-TTL-Seconds\r\n"                           \
	"Access-Control-Max-Age: 86400\r\n"

static const char *reason(int status)
{
	static const struct {
		int status;
		const char *text;
	} reasons[] = {
	    {200, "OK"},
	    {201, "Created"},
	    {204, "No Content"},
	    {206, "Partial Content"},
	    {304, "Not Modified"},
	    {400, "Bad Request"},
	    {401, "Unauthorized"},
	    {404, "Not Found"},
	    {405, "Method Not Allowed"},
	    {409, "Conflict"},
	    {412, "Precondition Failed"},
	    {413, "Content Too Large"},
	    {416, "Range Not Satisfiable"},
	    {429, "Too Many Requests"},
	    {500, "Internal Server Error"},
	    {503, "Service Unavailable"},
	    {507, "Insufficient Storage"},
	};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].text;
	return "Other";
}

/* CGI's header lines; type NULL and len -1 leave their lines out. */
static void put_head(struct exchange *x, int status, const char *type,
    const char *more, long long len)
{
	struct buf *head = &x->head;

	x->status = status;
	buf_clear(head);
	buf_printf(head, "Status: %d %s\r\n", status, reason(status));
	if (type != NULL)
		buf_printf(head, "Content-Type: %s\r\n", type);
	if (len >= 0)
		buf_printf(head, "Content-Length: %lld\r\n", len);
	buf_printf(head, "X-Request-Id: %s\r\n" COMMON "%s%s\r\n", x->id,
	    x->revalidate ? REVALIDATE : NO_STORE, more != NULL ? more : "");
}

static void send_head(struct exchange *x)
{
	if (x->head.failed) /* out of memory: no half an answer */
		x->out->gone = true;
	else
		(void)out_write(x->out, x->head.data, x->head.len);
}

int response_begin(struct exchange *x, int status, const char *type,
    const char *more, long long len)
{
	put_head(x, status, type, more, len);
	send_head(x);
	return x->out->gone ? -1 : 0;
}

void response_empty(struct exchange *x, int status, const char *more)
{
	(void)response_begin(x, status, NULL, more, -1);
}

void response_send(struct exchange *x, int status, const char *type,
    const char *more, const void *body, size_t len)
{
	put_head(x, status, type, more, (long long)len);
	send_head(x);
	if (x->req.method != METHOD_HEAD && len > 0)
		(void)out_write(x->out, body, len);
}

void response_json(struct exchange *x, int status, const void *body, size_t len)
{
	response_send(x, status, JSON, NULL, body, len);
}

void response_json_with(struct exchange *x, int status, const char *more,
    const void *body, size_t len)
{
	response_send(x, status, JSON, more, body, len);
}

void response_put_error(struct buf *out, const struct err *e)
{
	buf_printf(out, "{\"error\":\"%s\"", err_kind_word(e->kind));
	/* Our own mistakes are for the log only. */
	if (e->msg[0] != '\0' && e->kind != ERR_INTERNAL) {
		buf_puts(out, ",\"detail\":");
		/* What is wrong with the request is in the client's words. */
		if (err_kind_status(e->kind) == 400)
			json_put_cstr(out, e->msg);
		else
			text_put_reason(out, e->msg);
	}
	buf_putc(out, '}');
}

/* Whether the same request may well succeed in a moment. */
static bool is_passing(const struct err *e)
{
	return e->kind == ERR_CAPACITY ||
	       (e->kind == ERR_STORAGE_FAILED && e->code == EBUSY);
}

void response_error_with(
    struct exchange *x, const struct err *e, const char *more)
{
	cleanup_buf struct buf body = {0};
	cleanup_buf struct buf lines = {0};
	int status = err_kind_status(e->kind);

	if (e->kind == ERR_CLIENT_GONE)
		return;
	if (status >= 500)
		log_error("request %s: %s: %s", x->id, err_kind_word(e->kind),
		    e->msg);
	x->revalidate = false;
	buf_puts(&lines, more);
	if (x->retry_after_s == 0 && is_passing(e))
		x->retry_after_s = 1;
	if (x->retry_after_s > 0)
		buf_printf(&lines, "Retry-After: %u\r\n", x->retry_after_s);
	buf_putc(&lines, '\0');
	response_put_error(&body, e);
	response_send(x, status, JSON,
	    lines.failed ? NULL : (const char *)lines.data, body.data,
	    body.len);
}

void response_error(struct exchange *x, const struct err *e)
{
	response_error_with(x, e, "");
}

void response_not_found(struct exchange *x)
{
	struct err e;

	(void)err_set(&e, ERR_NOT_FOUND, ENOENT, "%s", "");
	response_error(x, &e);
}

void response_method_not_allowed(struct exchange *x, const char *allow)
{
	static const char body[] = "{\"error\":\"method_not_allowed\"}";
	char more[64];

	(void)snprintf(more, sizeof(more), "Allow: %s\r\n", allow);
	response_send(x, err_kind_status(ERR_METHOD_NOT_ALLOWED), JSON, more,
	    body, sizeof(body) - 1);
}

void response_options(struct exchange *x)
{
	response_empty(x, 204, CORS);
}

int response_begin_stream(struct exchange *x)
{
	return response_begin(
	    x, 200, "text/event-stream", "X-Accel-Buffering: no\r\n", -1);
}
