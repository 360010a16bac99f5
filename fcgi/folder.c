/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/folder.h"

#include <errno.h>
#include <inttypes.h>

#include "fcgi/disposition.h"
#include "fcgi/exchange.h"
#include "fcgi/response.h"
#include "fcgi/session.h"
#include "fcgi/session_json.h"
#include "fcgi/text.h"
#include "lib/log.h"
#include "lib/utf8.h"

/* A list up to this size is an answer of known length; a larger one is sent while
 * it comes, piece by piece. */
#define PIECE (256u * 1024)

#define JSON "application/json"
#define ZIP "application/zip"

/* A list on its way. */
struct list {
	struct exchange *x;
	struct buf text;
	bool begun; /* the head is out */
	bool some; /* an entry is in it */
};

/* The name as a part of a path in a query, for one that is no text. */
static void put_encoded(struct buf *out, const struct blob *name)
{
	buf_puts(out, ",\"encodedName\":\"");
	for (size_t i = 0; i < name->len; i++)
		buf_printf(out, "%%%02X", name->data[i]);
	buf_putc(out, '"');
}

static int64_t to_ms(int64_t ns)
{
	return ns / 1000000 - (ns % 1000000 < 0 ? 1 : 0);
}

static void put_entry(struct buf *out, const struct ws_entry *n)
{
	buf_puts(out, "{\"name\":");
	text_put_decoded(out, n->name.data, n->name.len, false);
	buf_printf(out,
	    ",\"size\":%" PRIu64 ",\"dir\":%s,\"modTime\":", n->size,
	    n->type == WS_DIR ? "true" : "false");
	session_put_time(out, to_ms(n->mtime_ns));
	if (n->type == WS_LINK)
		buf_puts(out, ",\"type\":\"link\"");
	else if (n->type == WS_OTHER)
		buf_puts(out, ",\"type\":\"other\"");
	if (!utf8_valid(n->name.data, n->name.len, NULL))
		put_encoded(out, &n->name);
	buf_putc(out, '}');
}

/* Sends what is there, when that is enough. */
static int send_piece(struct list *l, struct err *e)
{
	if (l->text.failed)
		return err_sys(e, ENOMEM, "a list");
	if (l->text.len < PIECE)
		return 0;
	if (!l->begun)
		(void)response_begin(l->x, 200, JSON, NULL, -1);
	l->begun = true;
	if (out_write(l->x->out, l->text.data, l->text.len) < 0)
		return err_set(e, ERR_CLIENT_GONE, EPIPE, "%s", "");
	buf_clear(&l->text);
	return 0;
}

static int take_entries(
    struct list *l, const uint8_t *payload, size_t len, struct err *e)
{
	struct reader in = {payload, len, false};
	struct ws_entry entry;
	int r;

	while ((r = ws_entry_next(&in, &entry, e)) > 0) {
		if (l->some)
			buf_putc(&l->text, ',');
		l->some = true;
		put_entry(&l->text, &entry);
	}
	return r < 0 ? ws_misbehaves(e, "a bad entry") : send_piece(l, e);
}

static int read_entries(struct list *l, struct ws_client *c, struct err *e)
{
	enum proto_type type;
	const uint8_t *payload;
	size_t len;
	int r;

	while ((r = ws_next(c, &type, &payload, &len, e)) > 0) {
		if (type != PROTO_WS_ENTRIES)
			return ws_misbehaves(e, "no entries");
		r = take_entries(l, payload, len, e);
		if (r < 0)
			return r;
	}
	return r;
}

/* The answer has begun: all that is left is that the client sees it break. */
static void break_off(struct exchange *x, const struct err *e)
{
	if (e->kind != ERR_CLIENT_GONE)
		log_error("request %s: broken off: %s: %s", x->id,
		    err_kind_word(e->kind), e->msg);
	x->out->gone = true;
}

static int end_list(struct list *l, int r, struct err *e)
{
	buf_puts(&l->text, "]}");
	if (r >= 0 && l->text.failed)
		r = err_sys(e, ENOMEM, "a list");
	if (!l->begun) {
		if (r >= 0)
			response_json(l->x, 200, l->text.data, l->text.len);
		return r;
	}
	if (r < 0)
		break_off(l->x, e);
	else
		(void)out_write(l->x->out, l->text.data, l->text.len);
	return 0;
}

int folder_list(struct exchange *x, struct ws_client *c, const struct buf *path,
    struct err *e)
{
	struct list l = {.x = x};
	int r = 0;

	if (x->req.method == METHOD_HEAD) { /* its length nobody knows yet */
		(void)response_begin(x, 200, JSON, NULL, -1);
		return 0;
	}
	buf_puts(&l.text, "{\"path\":");
	text_put_decoded(&l.text, path->data, path->len, false);
	buf_puts(&l.text, ",\"dir\":true,\"entries\":[");
	r = end_list(&l, read_entries(&l, c, e), e);
	buf_free(&l.text);
	return r;
}

static int copy_archive(struct exchange *x, struct ws_client *c, struct err *e)
{
	enum proto_type type;
	const uint8_t *payload;
	size_t len;
	int r;

	while ((r = ws_next(c, &type, &payload, &len, e)) > 0) {
		if (type != PROTO_WS_DATA)
			return ws_misbehaves(e, "no archive");
		if (out_write(x->out, payload, len) < 0)
			return err_set(e, ERR_CLIENT_GONE, EPIPE, "%s", "");
		metrics_count(&x->app->metrics, METRIC_FILE_BYTES_OUT, len);
	}
	return r;
}

int folder_zip(struct exchange *x, struct ws_client *c, const char *name,
    size_t name_len, struct err *e)
{
	cleanup_buf struct buf more = {0};
	struct ws_info info;
	int r = ws_get_info(c, &info, e);

	if (r < 0)
		return r;
	disposition_put(&more, name, name_len, ".zip");
	buf_putc(&more, '\0');
	if (more.failed)
		return err_sys(e, ENOMEM, "an answer");
	if (response_begin(x, 200, ZIP, (const char *)more.data, -1) < 0 ||
	    x->req.method == METHOD_HEAD)
		return 0;
	if (copy_archive(x, c, e) < 0)
		break_off(x, e);
	return 0;
}
