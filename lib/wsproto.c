/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/wsproto.h"

#include <errno.h>
#include <string.h>

#include "lib/limits.h"

static int refuse(struct err *e, const char *what, const char *why)
{
	return err_set(e, ERR_INTERNAL, EPROTO, "%s: %s", what, why);
}

static int finish(const struct reader *r, const char *what, struct err *e)
{
	if (reader_done(r))
		return 0;
	return refuse(e, what, r->bad ? "cut short" : "too long");
}

static struct blob get_blob(struct reader *r)
{
	struct blob s;

	s.data = get_bytes(r, &s.len);
	return s;
}

static bool is_id_char(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool ws_id_ok(const struct blob *s)
{
	for (size_t i = 0; i < s->len; i++)
		if (!is_id_char(s->data[i]))
			return false;
	return s->len > 0 && s->len <= LIMIT_ID;
}

void ws_request_encode(const struct ws_request *q, struct buf *out)
{
	put_u8(out, (uint8_t)q->op);
	put_u8(out, (uint8_t)q->kind);
	put_bytes(out, q->request_id.data, q->request_id.len);
	put_bytes(out, q->id.data, q->id.len);
	put_bytes(out, q->path.data, q->path.len);
	put_u64(out, q->size);
}

static bool op_known(uint8_t op)
{
	switch ((enum ws_op)op) {
	case WS_CREATE:
	case WS_REMOVE:
	case WS_STAT:
	case WS_OPEN:
	case WS_WRITE:
	case WS_DELETE:
	case WS_ZIP:
	case WS_LIST:
		return true;
	}
	return false;
}

static int request_check(const struct ws_request *q, struct err *e)
{
	const char *what = "workspace request";
	bool has_path = q->op == WS_OPEN || q->op == WS_WRITE ||
			q->op == WS_DELETE || q->op == WS_ZIP;

	if (!ws_id_ok(&q->request_id))
		return refuse(e, what, "bad request id");
	if (q->op == WS_LIST ? q->id.len > 0 : !ws_id_ok(&q->id))
		return refuse(e, what, "bad id");
	if (q->path.len > 0 && !has_path)
		return refuse(e, what, "a path where none belongs");
	if (q->size != 0 && q->op != WS_WRITE)
		return refuse(e, what, "a length where none belongs");
	return 0;
}

int ws_request_decode(
    const uint8_t *payload, size_t len, struct ws_request *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	uint8_t op = get_u8(&r);
	uint8_t kind = get_u8(&r);
	struct ws_request q = {0};
	int rc;

	q.request_id = get_blob(&r);
	q.id = get_blob(&r);
	q.path = get_blob(&r);
	q.size = get_u64(&r);
	rc = finish(&r, "workspace request", e);
	if (rc < 0)
		return rc;
	if (!op_known(op) || (kind != WS_SESSION && kind != WS_VOLUME))
		return refuse(e, "workspace request", "unknown operation");
	q.op = (enum ws_op)op;
	q.kind = (enum ws_kind)kind;
	rc = request_check(&q, e);
	if (rc == 0)
		*ret = q;
	return rc;
}

void ws_commit_encode(const struct ws_commit *c, struct buf *out)
{
	put_u64(out, c->bytes);
}

int ws_commit_decode(
    const uint8_t *payload, size_t len, struct ws_commit *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct ws_commit c = {.bytes = get_u64(&r)};
	int rc = finish(&r, "commit", e);

	if (rc == 0)
		*ret = c;
	return rc;
}

void ws_info_encode(const struct ws_info *i, struct buf *out)
{
	put_u8(out, i->dir ? 1 : 0);
	put_u64(out, i->size);
	put_u64(out, (uint64_t)i->mtime_ns);
	put_u64(out, (uint64_t)i->ctime_ns);
	put_u64(out, i->inode);
	put_u64(out, i->used_bytes);
	put_u64(out, i->files);
	put_u64(out, i->quota_bytes);
	put_u8(out, i->busy ? 1 : 0);
}

int ws_info_decode(
    const uint8_t *payload, size_t len, struct ws_info *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	uint8_t dir = get_u8(&r);
	struct ws_info i = {.dir = dir == 1};
	uint8_t busy;
	int rc;

	i.size = get_u64(&r);
	i.mtime_ns = (int64_t)get_u64(&r);
	i.ctime_ns = (int64_t)get_u64(&r);
	i.inode = get_u64(&r);
	i.used_bytes = get_u64(&r);
	i.files = get_u64(&r);
	i.quota_bytes = get_u64(&r);
	busy = get_u8(&r);
	i.busy = busy == 1;
	rc = finish(&r, "workspace info", e);
	if (rc < 0)
		return rc;
	if (dir > 1 || busy > 1 || i.size > INT64_MAX)
		return refuse(e, "workspace info", "impossible values");
	*ret = i;
	return 0;
}

void ws_entry_put(const struct ws_entry *x, struct buf *out)
{
	put_bytes(out, x->name.data, x->name.len);
	put_u8(out, (uint8_t)x->type);
	put_u64(out, x->size);
	put_u64(out, (uint64_t)x->mtime_ns);
}

static bool is_name(const struct blob *s)
{
	return s->len > 0 && s->len <= LIMIT_NAME_COMPONENT &&
	       memchr(s->data, '/', s->len) == NULL &&
	       memchr(s->data, '\0', s->len) == NULL;
}

int ws_entry_next(struct reader *r, struct ws_entry *ret, struct err *e)
{
	struct ws_entry x = {0};
	uint8_t type;

	if (!r->bad && r->left == 0)
		return 0;
	x.name = get_blob(r);
	type = get_u8(r);
	x.size = get_u64(r);
	x.mtime_ns = (int64_t)get_u64(r);
	if (r->bad)
		return refuse(e, "entries", "cut short");
	if (!is_name(&x.name) || type < WS_FILE || type > WS_OTHER ||
	    x.size > INT64_MAX)
		return refuse(e, "entries", "impossible values");
	x.type = (enum ws_type)type;
	*ret = x;
	return 1;
}

int ws_id_next(struct reader *r, struct blob *ret, struct err *e)
{
	struct blob id;

	if (!r->bad && r->left == 0)
		return 0;
	id = get_blob(r);
	if (r->bad)
		return refuse(e, "ids", "cut short");
	if (!ws_id_ok(&id))
		return refuse(e, "ids", "a bad one");
	*ret = id;
	return 1;
}
