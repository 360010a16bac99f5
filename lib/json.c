/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/json.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "lib/json_scan.h"
#include "lib/limits.h"
#include "lib/utf8.h"

/*
 * json-c's own strict flags stay off: the scan is stricter, and with them an
 * integer beyond 64 bits would be an error where the contract wants it clamped.
 * The innermost value counts as a level there.
 */
int json_parse_strict(
    const uint8_t *data, size_t len, struct json_object **ret, struct err *e)
{
	struct json_tokener *tok;
	struct json_object *obj;
	const char *why;
	int r;

	if (len >= INT_MAX)
		return err_set(
		    e, ERR_INVALID_JSON, EFBIG, "more than %d bytes", INT_MAX);
	r = json_scan(data, len, e);
	if (r < 0)
		return r;
	tok = json_tokener_new_ex((int)LIMIT_JSON_DEPTH + 1);
	if (tok == NULL)
		return err_sys(e, ENOMEM, "reading JSON");
	obj = json_tokener_parse_ex(tok, (const char *)data, (int)len);
	why = json_tokener_error_desc(json_tokener_get_error(tok));
	json_tokener_free(tok);
	if (obj == NULL) /* memory is out: what it reads is known good */
		return err_set(e, ERR_INTERNAL, ENOMEM, "json-c: %s", why);
	*ret = obj;
	return 0;
}

/* 1 and the member, 0 when it is absent or null. */
static int get(
    struct json_object *obj, const char *key, struct json_object **ret)
{
	return json_object_object_get_ex(obj, key, ret) && *ret != NULL;
}

static int wrong_type(struct err *e, const char *path, const char *type)
{
	return err_set(
	    e, ERR_INVALID_REQUEST, EINVAL, "%s must be %s", path, type);
}

int json_get_str(struct json_object *obj, const char *key, const char *path,
    const char **ret, size_t *ret_len, struct err *e)
{
	struct json_object *v;

	if (!get(obj, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_string))
		return wrong_type(e, path, "a string");
	*ret = json_object_get_string(v);
	*ret_len = (size_t)json_object_get_string_len(v);
	return 1;
}

int json_get_bool(struct json_object *obj, const char *key, const char *path,
    bool *ret, struct err *e)
{
	struct json_object *v;

	if (!get(obj, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_boolean))
		return wrong_type(e, path, "true or false");
	*ret = json_object_get_boolean(v);
	return 1;
}

int json_get_int(struct json_object *obj, const char *key, const char *path,
    int64_t *ret, struct err *e)
{
	struct json_object *v;

	if (!get(obj, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_int))
		return wrong_type(e, path, "an integer");
	*ret = json_object_get_int64(v); /* clamps */
	return 1;
}

int json_get_num(struct json_object *obj, const char *key, const char *path,
    double *ret, struct err *e)
{
	struct json_object *v;
	double d;

	if (!get(obj, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_int) &&
	    !json_object_is_type(v, json_type_double))
		return wrong_type(e, path, "a number");
	d = json_object_get_double(v);
	if (!isfinite(d)) /* 1e999: clamped as integers are */
		d = d < 0 ? -DBL_MAX : DBL_MAX;
	*ret = d;
	return 1;
}

int json_get_obj(struct json_object *obj, const char *key, const char *path,
    struct json_object **ret, struct err *e)
{
	struct json_object *v;

	if (!get(obj, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_object))
		return wrong_type(e, path, "an object");
	*ret = v;
	return 1;
}

int json_get_arr(struct json_object *obj, const char *key, const char *path,
    struct json_object **ret, struct err *e)
{
	struct json_object *v;

	if (!get(obj, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_array))
		return wrong_type(e, path, "an array");
	*ret = v;
	return 1;
}

static void put_escape(struct buf *out, unsigned char c)
{
	static const char hex[] = "0123456789abcdef";
	/* By hand: a program may print nothing else, and printf(3) is slow. */
	const char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 0xf]};

	switch (c) {
	case '"':
		buf_puts(out, "\\\"");
		break;
	case '\\':
		buf_puts(out, "\\\\");
		break;
	case '\n':
		buf_puts(out, "\\n");
		break;
	case '\r':
		buf_puts(out, "\\r");
		break;
	case '\t':
		buf_puts(out, "\\t");
		break;
	default:
		buf_put(out, code, sizeof(code));
	}
}

static void put_escaped(struct buf *out, const char *s, size_t len)
{
	size_t plain = 0; /* s[plain..i) needs no escape, not yet put */

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
			continue;
		buf_put(out, s + plain, i - plain);
		put_escape(out, c);
		plain = i + 1;
	}
	buf_put(out, s + plain, len - plain);
}

/* Ill-formed text is our caller's mistake; the answer stays JSON all the same. */
static void put_repaired(struct buf *out, const char *s, size_t len)
{
	struct utf8_stream stream = {0};
	cleanup_buf struct buf text = {0};

	utf8_stream_put(&stream, (const uint8_t *)s, len, &text);
	utf8_stream_end(&stream, false, &text);
	out->failed |= text.failed;
	put_escaped(out, (const char *)text.data, text.len);
}

void json_put_str(struct buf *out, const char *s, size_t len)
{
	buf_putc(out, '"');
	if (utf8_valid((const uint8_t *)s, len, NULL))
		put_escaped(out, s, len);
	else
		put_repaired(out, s, len);
	buf_putc(out, '"');
}

void json_put_cstr(struct buf *out, const char *s)
{
	json_put_str(out, s, strlen(s));
}
