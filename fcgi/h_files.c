/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "fcgi/body.h"
#include "fcgi/exchange.h"
#include "fcgi/folder.h"
#include "fcgi/guard.h"
#include "fcgi/response.h"
#include "fcgi/session.h"
#include "fcgi/text.h"
#include "lib/cleanup.h"
#include "lib/path.h"

/* What a call of the file API is about. */
struct target {
	struct store_session session;
	struct buf path; /* folded: "" is the workspace itself */
	struct ws_call call;
};

static void target_done(struct target *t)
{
	buf_free(&t->path);
}

static int take_path(struct exchange *x, struct target *t, struct err *e)
{
	char path[URI_MAX];
	size_t len = 0;
	int r = uri_query_get(&x->req.uri, "path", path, sizeof(path), &len, e);

	if (r < 0)
		return err_set(e, ERR_INVALID_PATH, EINVAL,
		    "\"%%\" in the path without two hex digits");
	return path_fold(path, r > 0 ? len : 0, &t->path, e);
}

/* Who asks, for what. The caller calls target_done() whatever comes out. */
static int take_target(struct exchange *x, struct target *t, struct err *e)
{
	int r;

	memset(t, 0, sizeof(*t));
	if ((r = session_use(x, &t->session, e)) < 0 ||
	    (r = guard_rate(x, RATE_FILE, e)) < 0 ||
	    (r = take_path(x, t, e)) < 0)
		return r;
	t->call = session_call(x, &t->session);
	t->call.path = t->path.len > 0 ? (const char *)t->path.data : "";
	t->call.path_len = t->path.len;
	return 0;
}

static void answer_failed(
    struct exchange *x, const struct target *t, const struct err *e)
{
	session_check_lost(x, &t->session, e);
	response_error(x, e);
}

/* The last component of the path. */
static const char *base_name(const struct target *t, size_t *ret_len)
{
	const char *path = t->call.path;
	const char *slash =
	    t->path.len > 0 ? memrchr(path, '/', t->path.len) : NULL;
	const char *name = slash != NULL ? slash + 1 : path;

	*ret_len = t->path.len - (size_t)(name - path);
	return name;
}

/* A file or a folder, as it turns out. */
static int get(struct exchange *x, struct target *t, struct err *e)
{
	cleanup_fd int fd = -1;
	struct ws_client c;
	struct ws_info info = {0};
	const char *name;
	size_t len;
	int r;

	if ((r = ws_ask(&c, WS_OPEN, &t->call, e)) >= 0 &&
	    (r = ws_get_info(&c, &info, e)) >= 0) {
		if (info.dir)
			r = folder_list(x, &c, &t->path, e);
		else if ((r = fd = ws_take_fd(&c, e)) >= 0)
			r = ws_get_end(&c, e);
	}
	x->retry_after_s = c.retry_after_s;
	ws_close(&c); /* nobody waits for the runner while the client reads */
	if (r < 0 || info.dir)
		return r;
	name = base_name(t, &len);
	return transfer_file(x, fd, name, len, e);
}

static int get_zip(struct exchange *x, struct target *t, struct err *e)
{
	static const char root[] = "workspace";
	struct ws_client c;
	size_t len;
	const char *name = base_name(t, &len);
	int r;

	if (len == 0) {
		name = root;
		len = sizeof(root) - 1;
	}
	r = transfer_begin(x, e);
	if (r < 0)
		return r;
	r = ws_ask(&c, WS_ZIP, &t->call, e);
	if (r >= 0)
		r = folder_zip(x, &c, name, len, e);
	if (r < 0)
		x->retry_after_s = c.retry_after_s;
	ws_close(&c);
	transfer_end(x);
	return r;
}

/* 1 when an archive is asked for. */
static int wants_zip(struct exchange *x, struct err *e)
{
	char format[8];
	size_t len = 0;
	int r = uri_query_get(
	    &x->req.uri, "format", format, sizeof(format), &len, e);

	if (r == 0 || (r > 0 && len == 3 && strcmp(format, "zip") == 0))
		return r;
	return err_set(
	    e, ERR_INVALID_REQUEST, EINVAL, "format may only be \"zip\"");
}

void h_files_get(struct exchange *x)
{
	struct target t;
	struct err e;
	int r;

	if ((r = take_target(x, &t, &e)) >= 0 && (r = wants_zip(x, &e)) >= 0)
		r = r > 0 ? get_zip(x, &t, &e) : get(x, &t, &e);
	if (r < 0)
		answer_failed(x, &t, &e);
	target_done(&t);
}

static int write_all(int fd, const uint8_t *data, size_t len, struct err *e)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == ENOSPC || errno == EDQUOT))
			return err_set(
			    e, ERR_STORAGE_FULL, errno, "the disk is full");
		if (n < 0)
			return err_sys(e, errno, "an upload");
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int too_large(struct err *e)
{
	return err_set(e, ERR_TOO_LARGE, EFBIG,
	    "a file of more than %llu bytes", LIMIT_UPLOAD);
}

/* The body into a file that has no name yet, counted whatever its length was
 * said to be. */
static int receive(
    struct exchange *x, int fd, uint64_t *ret_bytes, struct err *e)
{
	const uint8_t *data;
	uint64_t total = 0;
	ssize_t n;
	int r;

	while ((n = body_next(x, &data, e)) > 0) {
		total += (uint64_t)n;
		if (total > LIMIT_UPLOAD)
			return too_large(e);
		r = write_all(fd, data, (size_t)n, e);
		if (r < 0)
			return r;
	}
	*ret_bytes = total;
	return n < 0 ? (int)n : 0;
}

/* Until the commit nothing stands in the workspace: whatever ends this before,
 * also a kill -9, leaves nothing. */
static int upload(
    struct exchange *x, struct ws_client *c, uint64_t *ret_bytes, struct err *e)
{
	cleanup_fd int fd = -1;
	struct ws_info info;
	int r;

	if ((r = ws_get_info(c, &info, e)) < 0 ||
	    (r = fd = ws_take_fd(c, e)) < 0 ||
	    (r = receive(x, fd, ret_bytes, e)) < 0 ||
	    (r = ws_commit(c, *ret_bytes, e)) < 0 ||
	    (r = ws_get_info(c, &info, e)) < 0)
		return r;
	return ws_get_end(c, e);
}

static int put(
    struct exchange *x, struct target *t, uint64_t *ret_bytes, struct err *e)
{
	struct ws_client c;
	int r = body_declared(x, LIMIT_UPLOAD, ERR_TOO_LARGE, e);

	if (r < 0)
		return r;
	t->call.size = x->req.content_length >= 0
			   ? (uint64_t)x->req.content_length
			   : WS_SIZE_UNKNOWN;
	t->call.out = NULL; /* the body's reader sees who leaves */
	r = ws_ask(&c, WS_WRITE, &t->call, e);
	if (r >= 0)
		r = upload(x, &c, ret_bytes, e);
	x->retry_after_s = c.retry_after_s;
	ws_close(&c);
	return r;
}

void h_files_put(struct exchange *x)
{
	cleanup_buf struct buf body = {0};
	uint64_t bytes = 0;
	struct target t;
	struct err e;

	if (take_target(x, &t, &e) < 0 || put(x, &t, &bytes, &e) < 0) {
		answer_failed(x, &t, &e);
	} else {
		metrics_count(&x->app->metrics, METRIC_FILE_BYTES_IN, bytes);
		buf_puts(&body, "{\"path\":");
		text_put_decoded(&body, t.path.data, t.path.len, false);
		buf_printf(&body, ",\"bytes\":%" PRIu64 "}", bytes);
		response_json(x, 200, body.data, body.len);
	}
	target_done(&t);
}

void h_files_delete(struct exchange *x)
{
	struct target t;
	struct err e;

	if (take_target(x, &t, &e) < 0 ||
	    ws_do(WS_DELETE, &t.call, NULL, &e) < 0)
		answer_failed(x, &t, &e);
	else
		response_empty(x, 204, NULL);
	target_done(&t);
}
