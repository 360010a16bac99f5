/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/uri.h"

#include <errno.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>

static int malformed(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, EINVAL, "%s", what);
}

/* Decodes s[0..len) into out, which has room for out_size bytes and gets a NUL.
 * Returns the length, or -1. */
static ssize_t decode(
    const char *s, size_t len, bool plus, char *out, size_t out_size)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = s[i];

		if (n + 1 >= out_size)
			return -1;
		if (c == '%') {
			unsigned char byte;

			if (len - i < 3 || sodium_hex2bin(&byte, 1, s + i + 1,
					       2, NULL, NULL, NULL) != 0)
				return -1;
			c = (char)byte;
			i += 2;
		} else if (plus && c == '+') {
			c = ' ';
		}
		out[n++] = c;
	}
	out[n] = '\0';
	return (ssize_t)n;
}

/* Skips "http://host" of the absolute form. */
static int skip_origin(const char **s, size_t *len, struct err *e)
{
	static const char *const schemes[] = {"http://", "https://"};

	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		size_t n = strlen(schemes[i]);

		if (*len < n || strncasecmp(*s, schemes[i], n) != 0)
			continue;
		*s += n;
		*len -= n;
		while (*len > 0 && **s != '/' && **s != '?') {
			(*s)++;
			(*len)--;
		}
		return 0;
	}
	if (*len == 0 || **s != '/')
		return malformed(e, "the path must start with \"/\"");
	return 0;
}

static int split(struct uri *u, struct err *e)
{
	const char *s = u->path;
	const char *end = s + u->path_len;
	char *out = u->text;
	size_t room = sizeof(u->text);

	while (s < end) { /* *s is "/" */
		const char *next = memchr(s + 1, '/', (size_t)(end - s) - 1);
		const char *stop = next != NULL ? next : end;
		ssize_t n;

		if (u->segment_count == URI_SEGMENTS_MAX)
			return err_set(e, ERR_NOT_FOUND, ENOENT, "%s", "");
		n = decode(s + 1, (size_t)(stop - s) - 1, false, out, room);
		if (n < 0)
			return malformed(
			    e, "\"%\" in the path without two hex digits");
		u->segments[u->segment_count++] =
		    (struct uri_segment){out, (size_t)n};
		out += n + 1;
		room -= (size_t)n + 1;
		s = stop;
	}
	return 0;
}

void uri_init(struct uri *u)
{
	u->path = u->query = "";
	u->path_len = u->query_len = u->segment_count = 0;
}

int uri_parse(struct uri *u, const char *s, size_t len, struct err *e)
{
	const char *mark;
	int r;

	uri_init(u);
	/* The decoded path with a NUL for each slash is never longer. */
	if (len >= URI_MAX)
		return err_set(e, ERR_INVALID_REQUEST, ENAMETOOLONG,
		    "the URI has %zu bytes, at most %u are allowed", len,
		    URI_MAX - 1);
	r = skip_origin(&s, &len, e);
	if (r < 0)
		return r;
	mark = len > 0 ? memchr(s, '?', len) : NULL;
	if (mark != NULL) {
		u->query = mark + 1;
		u->query_len = len - (size_t)(mark - s) - 1;
		len = (size_t)(mark - s);
	}
	if (len == 0) { /* "http://host" */
		s = "/";
		len = 1;
	}
	u->path = s;
	u->path_len = len;
	return split(u, e);
}

int uri_query_get(const struct uri *u, const char *name, char *ret,
    size_t ret_size, size_t *ret_len, struct err *e)
{
	const char *s = u->query;
	const char *end = s + u->query_len;
	size_t name_len = strlen(name);

	while (s < end) {
		const char *amp = memchr(s, '&', (size_t)(end - s));
		const char *stop = amp != NULL ? amp : end;
		size_t len = (size_t)(stop - s);

		if (len >= name_len && memcmp(s, name, name_len) == 0 &&
		    (len == name_len || s[name_len] == '=')) {
			size_t skip = name_len + (len > name_len ? 1 : 0);
			ssize_t n =
			    decode(s + skip, len - skip, true, ret, ret_size);

			if (n < 0)
				return err_set(e, ERR_INVALID_REQUEST, EINVAL,
				    "the query's \"%s\" is malformed", name);
			*ret_len = (size_t)n;
			return 1;
		}
		s = amp != NULL ? amp + 1 : end;
	}
	return 0;
}
