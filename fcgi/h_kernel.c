/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <string.h>

#include "fcgi/body.h"
#include "fcgi/exchange.h"
#include "fcgi/guard.h"
#include "fcgi/kclient.h"
#include "fcgi/newsession.h"
#include "fcgi/response.h"
#include "fcgi/session.h"

static struct blob blob_of(const char *s)
{
	return (struct blob){(const uint8_t *)s, strlen(s)};
}

/* The session of the path, which has a kernel. */
static int use_kernel(struct exchange *x, enum rate_class class,
    struct store_session *ret, struct err *e)
{
	int r = session_use(x, ret, e);

	if (r < 0 || (r = guard_rate(x, class, e)) < 0)
		return r;
	if (ret->type == STORE_SESSION_KERNEL)
		return 0;
	return err_set(e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
	    "the session has no kernel; its type is \"filesystem\"");
}

/* POST /v1/sessions/{id}/interrupt */
void h_interrupt(struct exchange *x)
{
	struct kernel_request q = {.op = KERNEL_INTERRUPT};
	cleanup_buf struct buf body = {0};
	struct store_session s;
	struct kernel_info info;
	struct err e;

	if (use_kernel(x, RATE_FILE, &s, &e) < 0) {
		response_error(x, &e);
		return;
	}
	q.id = blob_of(s.id);
	if (kclient_ask(x, &q, &info, &e) < 0) {
		session_check_lost(x, &s, &e);
		response_error(x, &e);
		return;
	}
	buf_printf(&body, "{\"interrupted\":%s}", info.busy ? "true" : "false");
	response_json(x, 200, body.data, body.len);
}

static int copy(
    struct exchange *x, struct newsession *n, void *arg, struct err *e)
{
	const struct store_session *from = arg;
	struct kernel_request q = {
	    .op = KERNEL_FORK,
	    .id = blob_of(from->id),
	    .new_id = blob_of(n->record.id),
	};
	int r = kclient_ask(x, &q, &n->kernel, e);

	if (r < 0)
		session_check_lost(x, from, e);
	return r;
}

/* An empty body will do. */
static int take_wishes(struct exchange *x, struct newsession *n, struct err *e)
{
	struct json_object *root = NULL;
	const uint8_t *body;
	size_t len;
	int r = body_json(x, &body, &len, e);

	if (r < 0 || len == 0)
		return r;
	r = json_parse_strict(body, len, &root, e);
	if (r >= 0)
		r = newsession_take_ttl(x, root, n, e);
	(void)json_object_put(root);
	return r;
}

static int make_fork(struct exchange *x, const struct store_session *from,
    struct newsession *n, struct err *e)
{
	struct store_session source = *from;
	int r;

	if (from->volume[0] != '\0')
		return err_set(e, ERR_VOLUME_BUSY, EBUSY,
		    "the session holds a volume, which one session at a time "
		    "may do: it cannot be forked");
	n->record = *from;
	r = take_wishes(x, n, e);
	return r < 0 ? r : newsession_begin(x, n, copy, &source, e);
}

/* POST /v1/sessions/{id}/fork: a session of its own from then on. */
void h_fork(struct exchange *x)
{
	struct newsession n = {0};
	struct store_session s;
	struct err e;

	if (use_kernel(x, RATE_CREATE, &s, &e) < 0 ||
	    make_fork(x, &s, &n, &e) < 0)
		response_error(x, &e);
	else
		newsession_answer(x, &n);
}
