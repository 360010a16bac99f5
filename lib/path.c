/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/path.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "lib/limits.h"

static int refuse(struct err *e, const char *why)
{
	return err_set(e, ERR_INVALID_FILE, EINVAL, "%s", why);
}

static int check_component(const char *c, size_t len, struct err *e)
{
	if (len == 0)
		return refuse(
		    e, "a component is empty (doubled or final \"/\")");
	if (c[0] == '.' && (len == 1 || (len == 2 && c[1] == '.')))
		return refuse(e, "\".\" and \"..\" are not allowed");
	if (len > LIMIT_NAME_COMPONENT)
		return err_set(e, ERR_INVALID_FILE, ENAMETOOLONG,
		    "a component has %zu bytes, at most %u are allowed", len,
		    LIMIT_NAME_COMPONENT);
	return 0;
}

int path_check_name(const char *name, size_t len, struct err *e)
{
	const char *end = name + len;
	const char *c = name;

	if (len == 0)
		return refuse(e, "must not be empty");
	if (len > LIMIT_NAME)
		return err_set(e, ERR_INVALID_FILE, ENAMETOOLONG,
		    "has %zu bytes, at most %u are allowed", len, LIMIT_NAME);
	if (memchr(name, '\0', len) != NULL)
		return refuse(e, "must not contain NUL");
	if (name[0] == '/')
		return refuse(e, "must be relative, not start with \"/\"");
	for (;;) {
		const char *slash = memchr(c, '/', (size_t)(end - c));
		const char *stop = slash != NULL ? slash : end;
		int r = check_component(c, (size_t)(stop - c), e);

		if (r < 0 || slash == NULL)
			return r;
		c = slash + 1;
	}
}

/* Whether one of two names is the other, or a folder of it. */
static bool collide(const char *a, const char *b, bool *ret_same)
{
	size_t i = 0;

	while (a[i] != '\0' && a[i] == b[i])
		i++;
	*ret_same = a[i] == b[i];
	return *ret_same || (a[i] == '\0' && b[i] == '/') ||
	       (a[i] == '/' && b[i] == '\0');
}

/* Each with each: n is at most LIMIT_FILES. */
int path_check_set(
    const char *const *names, size_t n, size_t *ret_index, struct err *e)
{
	bool same;

	for (size_t i = 1; i < n; i++) {
		for (size_t j = 0; j < i; j++) {
			if (!collide(names[j], names[i], &same))
				continue;
			*ret_index = i;
			return err_set(e, ERR_INVALID_FILE, EEXIST,
			    same ? "the same name as files[%zu]"
				 : "a file here would be a folder of the "
				   "other: see files[%zu]",
			    j);
		}
	}
	return 0;
}

/* Takes the last component off what was folded since `from`. */
static void fold_up(struct buf *out, size_t from)
{
	while (out->len > from && out->data[out->len - 1] != '/')
		out->len--;
	if (out->len > from)
		out->len--; /* the slash */
}

static int fold_component(
    const char *c, size_t len, size_t from, struct buf *out, struct err *e)
{
	if (len == 0 || (len == 1 && c[0] == '.'))
		return 0;
	if (len == 2 && c[0] == '.' && c[1] == '.') {
		fold_up(out, from);
		return 0;
	}
	if (len > LIMIT_NAME_COMPONENT)
		return err_set(e, ERR_INVALID_PATH, ENAMETOOLONG,
		    "a component of the path has %zu bytes, at most %u are "
		    "allowed",
		    len, LIMIT_NAME_COMPONENT);
	if (out->len > from)
		buf_putc(out, '/');
	buf_put(out, c, len);
	return 0;
}

int path_fold(const char *path, size_t len, struct buf *out, struct err *e)
{
	const size_t from = out->len;
	const char *end, *c;

	if (len == 0)
		return 0;
	if (len > LIMIT_WS_PATH)
		return err_set(e, ERR_INVALID_PATH, ENAMETOOLONG,
		    "the path has %zu bytes, at most %u are allowed", len,
		    LIMIT_WS_PATH);
	if (memchr(path, '\0', len) != NULL)
		return err_set(
		    e, ERR_INVALID_PATH, EINVAL, "the path contains NUL");
	c = path;
	end = path + len;
	while (c < end) {
		const char *slash = memchr(c, '/', (size_t)(end - c));
		const char *stop = slash != NULL ? slash : end;
		int r = fold_component(c, (size_t)(stop - c), from, out, e);

		if (r < 0)
			return r;
		c = slash != NULL ? slash + 1 : end;
	}
	if (out->failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	return 0;
}
