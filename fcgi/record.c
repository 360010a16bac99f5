/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/record.h"

#include <errno.h>
#include <string.h>

#include "lib/limits.h"
#include "lib/num.h"

/* FastCGI 1.0, section 8. */
#define VERSION_1 1
#define TYPE_BEGIN 1
#define TYPE_ABORT 2
#define TYPE_PARAMS 4
#define TYPE_STDIN 5
#define ROLE_RESPONDER 1
#define FLAG_KEEP_CONN 1
#define HEADER_LEN 8u
#define CONTENT_MAX 0xfff8u /* of the records that we write */

/* The head of record_head(): FCGI_BEGIN_REQUEST with its body, the parameters in
 * at most two records, the empty record that ends them. */
#define HEAD_FRAMING (5 * HEADER_LEN)
#define PARAMS_MAX (LIMIT_PARAMS - HEAD_FRAMING)

/* What a head may have, dropped parameters included. */
#define HEAD_MAX (16u << 20)

/* Memory that a connection keeps between requests. */
#define KEEP_MAX 8192u

static int broken(struct err *e, const char *what)
{
	return err_set(e, ERR_INTERNAL, EPROTO, "%s", what);
}

static unsigned load_u16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

/* A length of a name-value pair: one byte, or four with the first bit set. */
static bool take_length(const uint8_t **p, const uint8_t *end, size_t *ret)
{
	const uint8_t *s = *p;

	if (s == end)
		return false;
	if (s[0] < 0x80) {
		*ret = s[0];
		*p = s + 1;
		return true;
	}
	if (end - s < 4)
		return false;
	*ret = (size_t)(s[0] & 0x7f) << 24 | (size_t)s[1] << 16 |
	       (size_t)s[2] << 8 | s[3];
	*p = s + 4;
	return true;
}

/* A name-value pair; the value follows the name. */
struct pair {
	const uint8_t *name;
	size_t name_len;
	size_t value_len;
};

/* The pair at *p, which moves behind it. */
static bool take_pair(const uint8_t **p, const uint8_t *end, struct pair *ret)
{
	if (!take_length(p, end, &ret->name_len) ||
	    !take_length(p, end, &ret->value_len) ||
	    ret->name_len > (size_t)(end - *p) ||
	    ret->value_len > (size_t)(end - *p) - ret->name_len)
		return false;
	ret->name = *p;
	*p += ret->name_len + ret->value_len;
	return true;
}

static void refuse_params(struct record_in *in, const char *why)
{
	in->refused = why;
	buf_free(&in->params);
}

/* Walks the pairs: lengths that fit, no NUL (libfcgi makes C strings of them),
 * not too many. */
static int check_params(struct record_in *in, struct err *e)
{
	const uint8_t *p = in->params.data;
	const uint8_t *end = p != NULL ? p + in->params.len : NULL;
	unsigned count = 0;
	struct pair pair;

	for (; p != end; count++) {
		if (!take_pair(&p, end, &pair) || pair.name_len == 0)
			return broken(e, "FCGI_PARAMS: a length does not fit");
		if (memchr(pair.name, '\0', pair.name_len + pair.value_len) !=
		    NULL)
			return broken(e, "FCGI_PARAMS: NUL in a parameter");
	}
	if (count > LIMIT_PARAM_COUNT)
		refuse_params(in, "too many request headers");
	return 0;
}

const uint8_t *record_find(
    const struct record_in *in, const char *name, size_t *ret_len)
{
	const uint8_t *p = in->params.data;
	const uint8_t *end = p != NULL ? p + in->params.len : NULL;
	size_t len = strlen(name);
	struct pair pair;

	while (p != end && take_pair(&p, end, &pair)) {
		if (pair.name_len != len || memcmp(pair.name, name, len) != 0)
			continue;
		*ret_len = pair.value_len;
		return pair.name + len;
	}
	return NULL;
}

static int begin_record(const struct record_in *in, struct err *e)
{
	if (in->state != RECORD_IDLE)
		return broken(e, "a second request on a busy connection");
	if (in->content_left != sizeof(in->begin) || in->id == 0)
		return broken(e, "FCGI_BEGIN_REQUEST is malformed");
	return 0;
}

static int begin_body(struct record_in *in, struct err *e)
{
	if (load_u16(in->begin) != ROLE_RESPONDER)
		return broken(e, "a role other than responder");
	in->keep_conn = (in->begin[2] & FLAG_KEEP_CONN) != 0;
	in->state = RECORD_PARAMS;
	return 0;
}

/* A header is whole: may this record come now? An empty record ends a stream. */
static int start_record(struct record_in *in, struct err *e)
{
	const uint8_t *h = in->header;

	if (h[0] != VERSION_1)
		return broken(e, "not FastCGI version 1");
	in->content_left = load_u16(h + 4);
	in->padding_left = h[6];
	if (h[1] == TYPE_BEGIN) {
		if (in->state == RECORD_IDLE)
			in->id = (uint16_t)load_u16(h + 2);
		return begin_record(in, e);
	}
	if (in->state == RECORD_IDLE || load_u16(h + 2) != in->id)
		return broken(e, "a record of no request");
	if (h[1] == TYPE_ABORT)
		return broken(e, "aborted");
	if (h[1] != (in->state == RECORD_PARAMS ? TYPE_PARAMS : TYPE_STDIN))
		return broken(e, "a record of a type that cannot come here");
	if (in->content_left > 0)
		return 0;
	if (in->state == RECORD_BODY) {
		in->state = RECORD_DONE;
		return 0;
	}
	in->state = RECORD_BODY;
	return check_params(in, e);
}

static int take_header(
    struct record_in *in, const uint8_t *data, size_t n, struct err *e)
{
	memcpy(in->header + in->header_len, data, n);
	in->header_len += n;
	return in->header_len == HEADER_LEN ? start_record(in, e) : 0;
}

static void take_params(struct record_in *in, const uint8_t *data, size_t n)
{
	if (in->refused != NULL)
		return;
	if (n > PARAMS_MAX - in->params.len)
		refuse_params(in, "the request headers are too large");
	else
		buf_put(&in->params, data, n);
}

static void take_body(struct record_in *in, const uint8_t *data, size_t n)
{
	in->body_len += n;
	if (!in->drop)
		buf_put(&in->body, data, n);
}

static int take_content(
    struct record_in *in, const uint8_t *data, size_t n, struct err *e)
{
	in->content_left -= n;
	if (in->state == RECORD_IDLE) {
		memcpy(in->begin + in->begin_len, data, n);
		in->begin_len += n;
		return in->content_left == 0 ? begin_body(in, e) : 0;
	}
	if (in->state == RECORD_PARAMS)
		take_params(in, data, n);
	else
		take_body(in, data, n);
	if (in->params.failed || in->body.failed)
		return err_set(
		    e, ERR_INTERNAL, ENOMEM, "no memory for a request");
	return 0;
}

/* How much of the record's content there is room for. */
static size_t room(const struct record_in *in)
{
	size_t n = LIMIT_BODY - in->body.len;

	if (in->state != RECORD_BODY || in->drop || n > in->content_left)
		return in->content_left;
	return n;
}

/* One piece of one record; returns how many bytes it took. */
static ssize_t take_piece(
    struct record_in *in, const uint8_t *data, size_t len, struct err *e)
{
	size_t n;
	int r = 0;

	if (in->header_len < HEADER_LEN) {
		n = HEADER_LEN - in->header_len;
		n = n < len ? n : len;
		r = take_header(in, data, n, e);
	} else if (in->content_left > 0) {
		n = room(in) < len ? room(in) : len;
		r = take_content(in, data, n, e);
	} else {
		n = in->padding_left < len ? in->padding_left : len;
		in->padding_left -= n;
	}
	if (in->header_len == HEADER_LEN && in->content_left == 0 &&
	    in->padding_left == 0)
		in->header_len = 0; /* the next record */
	return r < 0 ? r : (ssize_t)n;
}

bool record_is_whole(const struct record_in *in)
{
	return in->state == RECORD_DONE && in->header_len == 0;
}

static bool is_full(const struct record_in *in)
{
	return in->state == RECORD_BODY && in->header_len == HEADER_LEN &&
	       in->content_left > 0 && room(in) == 0;
}

bool record_is_large(const struct record_in *in)
{
	const uint8_t *text;
	size_t len;

	if (in->state != RECORD_BODY || is_full(in))
		return in->state == RECORD_BODY;
	text = record_find(in, "CONTENT_LENGTH", &len);
	return text != NULL &&
	       num_digits((const char *)text, len) > (int64_t)LIMIT_BODY;
}

ssize_t record_put(
    struct record_in *in, const uint8_t *data, size_t len, struct err *e)
{
	size_t taken = 0;

	while (taken < len && !record_is_whole(in) && !is_full(in)) {
		ssize_t n = take_piece(in, data + taken, len - taken, e);

		if (n < 0)
			return n;
		taken += (size_t)n;
		in->total += (size_t)n;
		if (in->total > HEAD_MAX && in->state < RECORD_BODY)
			return broken(e, "FCGI_PARAMS without an end");
	}
	return (ssize_t)taken;
}

static void put_header(struct buf *out, uint8_t type, uint16_t id, size_t len)
{
	const uint8_t header[HEADER_LEN] = {VERSION_1, type, (uint8_t)(id >> 8),
	    (uint8_t)id, (uint8_t)(len >> 8), (uint8_t)len};

	buf_put(out, header, sizeof(header));
}

void record_head(const struct record_in *in, struct buf *out)
{
	size_t put = 0;

	put_header(out, TYPE_BEGIN, in->id, sizeof(in->begin));
	buf_put(out, in->begin, sizeof(in->begin));
	while (put < in->params.len) {
		size_t n = in->params.len - put;

		n = n < CONTENT_MAX ? n : CONTENT_MAX;
		put_header(out, TYPE_PARAMS, in->id, n);
		buf_put(out, in->params.data + put, n);
		put += n;
	}
	put_header(out, TYPE_PARAMS, in->id, 0);
}

bool record_is_abort(
    const struct record_in *in, const uint8_t *data, size_t len)
{
	return len >= HEADER_LEN && data[0] == VERSION_1 &&
	       data[1] == TYPE_ABORT && load_u16(data + 2) == in->id;
}

static void shrink(struct buf *b)
{
	if (b->cap > KEEP_MAX || b->failed)
		buf_free(b);
	else
		buf_clear(b);
}

void record_reset(struct record_in *in)
{
	struct record_in fresh = {.state = RECORD_IDLE};

	shrink(&in->params);
	shrink(&in->body);
	fresh.params = in->params;
	fresh.body = in->body;
	*in = fresh;
}

void record_free(struct record_in *in)
{
	buf_free(&in->params);
	buf_free(&in->body);
}
