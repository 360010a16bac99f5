/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fcgi/cond.h"
#include "fcgi/exchange.h"
#include "fcgi/guard.h"
#include "fcgi/large.h"
#include "fcgi/response.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/limits.h"
#include "lib/num.h"
#include "lib/store.h"
#include "lib/timestamp.h"
#include "lib/utf8.h"

/*
 * /v1/memory: values of a tenant by namespace and key. Who asks is told by the
 * key alone; nothing of the request names a tenant.
 */

#define LIST_MAX 1000u
#define LIST_DEFAULT 100u
#define TTL_MAX 315360000u /* ten years, in seconds */

static const struct store_limits limits = {
    LIMIT_MEMORY_BYTES, LIMIT_MEMORY_KEYS};

/* ---- Names */

static int take_space(
    const struct uri_segment *s, const char **ret, struct err *e)
{
	static const char allowed[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	if (s->len == 0 || s->len > LIMIT_NAMESPACE ||
	    strspn(s->text, allowed) != s->len)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "the namespace must be 1 to %u characters of A-Z, a-z, "
		    "0-9, \".\", \"_\" and \"-\"",
		    LIMIT_NAMESPACE);
	*ret = s->text;
	return 0;
}

/* The list of keys is JSON: they are text, any text. */
static int check_key(const uint8_t *key, size_t len, struct err *e)
{
	if (len == 0 || len > LIMIT_KEY)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "the key must be 1 to %u bytes", LIMIT_KEY);
	if (!utf8_valid(key, len, NULL))
		return err_set(
		    e, ERR_INVALID_REQUEST, EILSEQ, "the key must be UTF-8");
	return 0;
}

static int take_key(
    const struct exchange *x, struct store_key *k, struct err *e)
{
	const struct uri_segment *key = &x->params[1];

	*k = (struct store_key){.tenant = x->tenant.name,
	    .key = (const uint8_t *)key->text,
	    .key_len = key->len};
	if (take_space(&x->params[0], &k->space, e) < 0)
		return -EINVAL;
	return check_key(k->key, k->key_len, e);
}

/* ---- Headers */

/* *ret: when it expires, 0 never. */
static int take_ttl(const struct exchange *x, int64_t *ret, struct err *e)
{
	const char *text = x->req.ttl_seconds;
	int64_t ttl;

	*ret = 0;
	if (text == NULL)
		return 0;
	ttl = num_digits(text, strlen(text));
	if (ttl < 1 || ttl > (int64_t)TTL_MAX)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "X-TTL-Seconds must be a whole number from 1 to %u",
		    TTL_MAX);
	*ret = store_now_ms() + ttl * 1000;
	return 0;
}

/* It comes back as it is: so it holds nothing that ends a header. */
static int take_type(
    const struct exchange *x, char *ret, size_t size, struct err *e)
{
	const char *text = x->req.content_type;

	ret[0] = '\0';
	if (text == NULL)
		return 0;
	for (const char *s = text; *s != '\0'; s++)
		if ((size_t)(s - text) + 1 >= size || *s < ' ' || *s > '~')
			return err_set(e, ERR_INVALID_REQUEST, EINVAL,
			    "Content-Type must be at most %zu visible ASCII "
			    "characters",
			    size - 1);
	(void)snprintf(ret, size, "%s", text);
	return 0;
}

struct quoted {
	char text[TOKEN_ID_LEN + 3];
};

static struct validators validators_of(
    const struct store_meta *m, struct quoted *etag)
{
	(void)snprintf(etag->text, sizeof(etag->text), "\"%s\"", m->etag);
	return (struct validators){
	    etag->text, m->modified_ms / 1000, store_now_ms() / 1000};
}

static enum cond condition(const struct exchange *x, const struct store_meta *m)
{
	struct quoted etag = {0};
	struct validators v;

	if (m == NULL)
		return cond_check(&x->req, NULL);
	v = validators_of(m, &etag);
	return cond_check(&x->req, &v);
}

static int failed(struct err *e)
{
	return err_set(e, ERR_PRECONDITION_FAILED, EAGAIN, "%s", "");
}

/* Called by the store while nobody else can change the value. */
static int may_change(void *arg, const struct store_meta *now, struct err *e)
{
	const struct exchange *x = arg;

	return condition(x, now) == COND_GO ? 0 : failed(e);
}

/* Of a value, and of what was put. */
struct lines {
	char text[256];
};

static const char *lines_of(const struct store_meta *m, struct lines *l)
{
	char date[HTTP_DATE_SIZE];
	char expires[TIMESTAMP_SIZE];
	int n;

	http_date(m->modified_ms / 1000, date);
	n = snprintf(l->text, sizeof(l->text),
	    "ETag: \"%s\"\r\nLast-Modified: %s\r\n", m->etag, date);
	if (m->expires_ms == 0)
		return l->text;
	timestamp(m->expires_ms, expires);
	(void)snprintf(l->text + n, sizeof(l->text) - (size_t)n,
	    "X-Expires-At: %s\r\n", expires);
	return l->text;
}

/* ---- PUT */

static int put(struct exchange *x, struct store_meta *m, struct err *e)
{
	cleanup_buf struct buf value = {0};
	struct store_key k;
	int r;

	if ((r = guard_memory_key(x, e)) < 0 || (r = take_key(x, &k, e)) < 0 ||
	    (r = take_ttl(x, &m->expires_ms, e)) < 0 ||
	    (r = take_type(x, m->type, sizeof(m->type), e)) < 0 ||
	    (r = body_declared(x, LIMIT_VALUE, ERR_VALUE_TOO_LARGE, e)) < 0 ||
	    (r = body_take(x, LIMIT_VALUE, ERR_VALUE_TOO_LARGE, &value, e)) < 0)
		return r;
	m->size = value.len;
	r = store_memory_put(
	    x->app->store, &k, value.data, m, &limits, may_change, x, e);
	if (r < 0)
		return r;
	metrics_count(&x->app->metrics, METRIC_MEMORY_WRITES, 1);
	metrics_count(&x->app->metrics, METRIC_MEMORY_BYTES_IN, value.len);
	return 0;
}

void h_memory_put(struct exchange *x)
{
	struct store_meta m = {0};
	struct lines lines = {0};
	struct err e;

	if (put(x, &m, &e) < 0)
		response_error(x, &e);
	else
		response_empty(x, 204, lines_of(&m, &lines));
}

/* ---- DELETE */

void h_memory_delete(struct exchange *x)
{
	struct store_key k;
	struct err e;

	if (guard_memory_key(x, &e) < 0 || take_key(x, &k, &e) < 0 ||
	    store_memory_delete(x->app->store, &k, may_change, x, &e) < 0) {
		response_error(x, &e);
		return;
	}
	metrics_count(&x->app->metrics, METRIC_MEMORY_DELETES, 1);
	response_empty(x, 204, NULL);
}

/* ---- GET */

/* A value on its way out. */
struct fetch {
	struct exchange *x;
	bool may_be_large; /* a place among the large ones is taken */
	bool is_large; /* it needs one */
	enum cond cond;
};

static bool wants_value(void *arg, const struct store_meta *m)
{
	struct fetch *f = arg;

	f->cond = condition(f->x, m);
	if (f->cond != COND_GO || f->x->req.method == METHOD_HEAD)
		return false;
	f->is_large = m->size > LARGE_ANSWER;
	return !f->is_large || f->may_be_large;
}

static void send_value(struct fetch *f, const struct store_meta *m,
    const uint8_t *value, struct err *e)
{
	/* Whatever it is, it is no page of this origin: a browser that shows
	 * it runs no script of it. */
	static const char policy[] = "Content-Security-Policy: sandbox\r\n";
	struct exchange *x = f->x;
	struct lines lines = {0};
	char more[sizeof(lines.text) + sizeof(policy)];

	if (f->cond == COND_FAILED) {
		(void)failed(e);
		response_error(x, e);
		return;
	}
	x->revalidate = true;
	(void)snprintf(more, sizeof(more), "%s%s", lines_of(m, &lines), policy);
	if (f->cond == COND_NOT_MODIFIED)
		response_empty(x, 304, more);
	else
		response_send(x, 200,
		    m->type[0] != '\0' ? m->type : "application/octet-stream",
		    more, value, m->size);
}

static int fetch(struct fetch *f, const struct store_key *k,
    struct store_meta *m, uint8_t **ret, struct err *e)
{
	struct store *s = f->x->app->store;
	int r = store_memory_get(s, k, m, wants_value, f, ret, e);

	if (r < 0 || !f->is_large)
		return r;
	r = large_begin(f->x, e);
	if (r < 0)
		return r;
	f->may_be_large = true;
	return store_memory_get(s, k, m, wants_value, f, ret, e);
}

void h_memory_get(struct exchange *x)
{
	cleanup_free uint8_t *value = NULL;
	struct fetch f = {.x = x};
	struct store_meta m;
	struct store_key k;
	struct err e;

	if (guard_memory_key(x, &e) < 0 || take_key(x, &k, &e) < 0 ||
	    fetch(&f, &k, &m, &value, &e) < 0) {
		response_error(x, &e);
	} else {
		send_value(&f, &m, value, &e);
		metrics_count(&x->app->metrics, METRIC_MEMORY_READS, 1);
		metrics_count(&x->app->metrics, METRIC_MEMORY_BYTES_OUT,
		    value != NULL ? m.size : 0);
	}
	if (f.may_be_large)
		large_end(x);
}

/* ---- List */

/* Of the query; with room for its NUL, and for a cursor in base64. */
struct question {
	char prefix[LIMIT_KEY + 2];
	size_t prefix_len;
	uint8_t after[LIMIT_KEY + 1];
	size_t after_len;
	unsigned limit;
};

static int take_prefix(
    const struct exchange *x, struct question *q, struct err *e)
{
	int r = uri_query_get(&x->req.uri, "prefix", q->prefix,
	    sizeof(q->prefix), &q->prefix_len, e);

	if (r <= 0)
		q->prefix_len = 0;
	if (r > 0 && q->prefix_len > LIMIT_KEY)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "prefix must be at most %u bytes", LIMIT_KEY);
	return r;
}

static int take_limit(
    const struct exchange *x, struct question *q, struct err *e)
{
	char text[16];
	size_t len = 0;
	int r =
	    uri_query_get(&x->req.uri, "limit", text, sizeof(text), &len, e);
	int64_t n;

	q->limit = LIST_DEFAULT;
	if (r < 0 || len == 0)
		return r;
	n = num_digits(text, len);
	if (n < 1 || n > (int64_t)LIST_MAX)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "limit must be a whole number from 1 to %u", LIST_MAX);
	q->limit = (unsigned)n;
	return 0;
}

/* The last key of the page before, in base64url: whatever was changed meanwhile,
 * what comes next is what is behind it. */
static int take_cursor(
    const struct exchange *x, struct question *q, struct err *e)
{
	char text[(LIMIT_KEY + 2) / 3 * 4 + 1];
	size_t len = 0;
	int r =
	    uri_query_get(&x->req.uri, "cursor", text, sizeof(text), &len, e);

	q->after_len = 0;
	if (r < 0 || len == 0)
		return r;
	if (sodium_base642bin(q->after, sizeof(q->after), text, len, NULL,
		&q->after_len, NULL,
		sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
	    q->after_len > LIMIT_KEY)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "cursor must be a nextCursor of this service");
	return 0;
}

/* The answer as it is made: one key more than asked for tells of a next page. */
struct page {
	struct buf body;
	unsigned count;
	unsigned limit;
	uint8_t last[LIMIT_KEY];
	size_t last_len;
	bool more;
};

static int put_key(void *arg, const uint8_t *key, size_t len, struct err *e)
{
	struct page *p = arg;

	(void)e;
	if (p->count == p->limit) {
		p->more = true;
		return 0;
	}
	if (p->count++ > 0)
		buf_putc(&p->body, ',');
	json_put_str(&p->body, (const char *)key, len);
	p->last_len = len < sizeof(p->last) ? len : sizeof(p->last);
	memcpy(p->last, key, p->last_len);
	return 0;
}

static void put_cursor(struct page *p)
{
	char text[(LIMIT_KEY + 2) / 3 * 4 + 1];

	if (!p->more) {
		buf_puts(&p->body, "null");
		return;
	}
	(void)sodium_bin2base64(text, sizeof(text), p->last, p->last_len,
	    sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	buf_printf(&p->body, "\"%s\"", text);
}

static int list(struct exchange *x, struct page *p, struct err *e)
{
	struct question q;
	struct store_range range = {.tenant = x->tenant.name};
	int r;

	if ((r = guard_memory_key(x, e)) < 0 ||
	    (r = take_space(&x->params[0], &range.space, e)) < 0 ||
	    (r = take_prefix(x, &q, e)) < 0 || (r = take_limit(x, &q, e)) < 0 ||
	    (r = take_cursor(x, &q, e)) < 0)
		return r;
	range.prefix = (const uint8_t *)q.prefix;
	range.prefix_len = q.prefix_len;
	range.after = q.after;
	range.after_len = q.after_len;
	range.limit = q.limit + 1;
	p->limit = q.limit;
	buf_printf(&p->body, "{\"namespace\":\"%s\",\"keys\":[", range.space);
	r = store_memory_list(x->app->store, &range, put_key, p, e);
	if (r < 0)
		return r;
	buf_puts(&p->body, "],\"nextCursor\":");
	put_cursor(p);
	buf_putc(&p->body, '}');
	return p->body.failed ? err_sys(e, ENOMEM, "a list") : 0;
}

void h_memory_list(struct exchange *x)
{
	struct page p = {0};
	struct err e;

	if (list(x, &p, &e) < 0) {
		response_error(x, &e);
	} else {
		response_json(x, 200, p.body.data, p.body.len);
		metrics_count(&x->app->metrics, METRIC_MEMORY_LISTS, 1);
	}
	buf_free(&p.body);
}
