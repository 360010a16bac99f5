/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/response.h"

#include <errno.h>
#include <stdio.h>

#include "fcgi/exchange.h"
#include "lib/json.h"
#include "lib/log.h"

#define JSON "application/json"

/* Of every answer. Any page may call the API: it has no cookies, a key is a
 * header that the page must know. */
#define COMMON                                                         \
	"Access-Control-Allow-Origin: *\r\n"                           \
	"Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n" \
	"Cache-Control: no-store\r\n"                                  \
	"X-Content-Type-Options: nosniff\r\n"

/* Of OPTIONS. */
#define CORS                                                           \
	"Access-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE, " \
	"OPTIONS\r\n"                                                  \
	"Access-Control-Allow-Headers: Accept, Authorization, "        \
	"Content-Type, X-API-Key\r\n"                                  \
	"Access-Control-Max-Age: 86400\r\n"

static const char *reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 204:
		return "No Content";
	case 400:
		return "Bad Request";
	case 401:
		return "Unauthorized";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 429:
		return "Too Many Requests";
	case 500:
		return "Internal Server Error";
	case 503:
		return "Service Unavailable";
	default:
		return "Other";
	}
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
	buf_printf(head, "X-Request-Id: %s\r\n%s%s\r\n", x->id, COMMON,
	    more != NULL ? more : "");
}

static void send_head(struct exchange *x)
{
	if (x->head.failed) /* out of memory: no half an answer */
		x->out->gone = true;
	else
		(void)out_write(x->out, x->head.data, x->head.len);
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

void response_put_error(struct buf *out, const struct err *e)
{
	buf_printf(out, "{\"error\":\"%s\"", err_kind_word(e->kind));
	/* Our own mistakes are for the log only. */
	if (e->msg[0] != '\0' && e->kind != ERR_INTERNAL) {
		buf_puts(out, ",\"detail\":");
		json_put_cstr(out, e->msg);
	}
	buf_putc(out, '}');
}

void response_error(
    struct exchange *x, const struct err *e, unsigned retry_after_s)
{
	cleanup_buf struct buf body = {0};
	char retry[48] = "";
	int status = err_kind_status(e->kind);

	if (e->kind == ERR_CLIENT_GONE)
		return;
	if (status >= 500)
		log_error("request %s: %s: %s", x->id, err_kind_word(e->kind),
		    e->msg);
	if (retry_after_s > 0)
		(void)snprintf(
		    retry, sizeof(retry), "Retry-After: %u\r\n", retry_after_s);
	response_put_error(&body, e);
	response_send(x, status, JSON, retry, body.data, body.len);
}

void response_not_found(struct exchange *x)
{
	struct err e;

	(void)err_set(&e, ERR_NOT_FOUND, ENOENT, "%s", "");
	response_error(x, &e, 0);
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
	put_head(x, 204, NULL, CORS, -1);
	send_head(x);
}

int response_begin_stream(struct exchange *x)
{
	put_head(x, 200, "text/event-stream", "X-Accel-Buffering: no\r\n", -1);
	send_head(x);
	return x->out->gone ? -1 : 0;
}
