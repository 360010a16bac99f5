/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cgroup_ops.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* mountinfo writes space, tab, newline and backslash as \ooo (proc(5)). */
static void unescape(char *s)
{
	char *to = s;

	while (*s != '\0') {
		if (s[0] == '\\' && is_octal(s[1]) && is_octal(s[2]) &&
		    is_octal(s[3])) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 +
				       (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/*
 * proc_pid_mountinfo(5): "36 35 98:0 /root /point rw,noatime master:1 - type
 * source options", the fields before " - " being of any number.
 */
int cgroup_parse_mount(char *line, struct cgroup_mount *ret)
{
	char *rest = line, *root = NULL, *point = NULL, *word = NULL, *type;
	char *options;

	line[strcspn(line, "\n")] = '\0';
	for (unsigned i = 0; i < 6; i++) {
		word = strsep(&rest, " ");
		if (word == NULL)
			return -EINVAL;
		if (i == 3)
			root = word;
		if (i == 4)
			point = word;
	}
	do {
		word = strsep(&rest, " ");
		if (word == NULL)
			return -EINVAL;
	} while (strcmp(word, "-") != 0);
	type = strsep(&rest, " ");
	(void)strsep(&rest, " "); /* the source: any text */
	options = strsep(&rest, " ");
	if (type == NULL || options == NULL || rest != NULL)
		return -EINVAL;
	if (strcmp(type, "cgroup") != 0 && strcmp(type, "cgroup2") != 0)
		return 0;

	unescape(root);
	unescape(point);
	ret->v2 = strcmp(type, "cgroup2") == 0;
	ret->root = root;
	ret->point = point;
	ret->options = options;
	return 1;
}

bool cgroup_list_has(const char *list, size_t len, char sep, const char *word)
{
	size_t want = strlen(word);

	for (;;) {
		const char *end = memchr(list, sep, len);
		size_t n = end != NULL ? (size_t)(end - list) : len;

		if (n == want && memcmp(list, word, n) == 0)
			return true;
		if (end == NULL)
			return false;
		list += n + 1;
		len -= n + 1;
	}
}

/* cgroups(7): lines of "hierarchy-id:controllers:path". The v2 tree is id 0
 * without controllers; the kernel lets no path hold a newline. */
const char *cgroup_parse_self(
    const char *text, const char *controller, size_t *ret_len)
{
	while (*text != '\0') {
		size_t len = strcspn(text, "\n");
		const char *list = memchr(text, ':', len), *path = NULL;

		if (list != NULL) {
			list++;
			path = memchr(list, ':', len - (size_t)(list - text));
		}
		if (list != NULL && path != NULL &&
		    (*controller != '\0' || text[0] == '0') &&
		    cgroup_list_has(
			list, (size_t)(path - list), ',', controller)) {
			path++;
			*ret_len = len - (size_t)(path - text);
			return path;
		}
		text += len;
		if (*text == '\n')
			text++;
	}
	return NULL;
}

const char *cgroup_path_below(const char *root, const char *path)
{
	size_t len = strlen(root);

	if (strcmp(root, "/") == 0)
		len = 0;
	if (strncmp(path, root, len) != 0)
		return NULL;
	path += len;
	if (*path == '/')
		return path + 1;
	return *path == '\0' ? path : NULL;
}

bool cgroup_path_ok(const char *path)
{
	if (path[0] != '/')
		return false;
	if (path[1] == '\0')
		return true;
	while (*path == '/') {
		size_t len = strcspn(++path, "/");

		if (len == 0 || (len == 1 && path[0] == '.') ||
		    (len == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += len;
	}
	return true;
}

bool cgroup_name_ok(const char *name)
{
	size_t len = strlen(name);

	return len >= 1 && len <= CGROUP_LEAF_NAME_MAX &&
	       strspn(name,
		   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		   "0123456789_-") == len;
}

/* v1 prints "no limit" as LONG_MAX cut to a whole page, of up to 64 KiB. */
#define V1_UNLIMITED ((uint64_t)INT64_MAX - 0xffff)

static int parse_number(const char *text, const char **ret_end, uint64_t *ret)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	*ret_end = end;
	return errno == 0 ? 0 : -EINVAL;
}

int cgroup_parse_limit(const char *text, uint64_t *ret)
{
	const char *end;
	uint64_t n;

	if (strcmp(text, "max\n") == 0 || strcmp(text, "max") == 0) {
		*ret = UINT64_MAX;
		return 0;
	}
	if (parse_number(text, &end, &n) < 0 ||
	    (*end != '\0' && strcmp(end, "\n") != 0))
		return -EINVAL;
	*ret = n >= V1_UNLIMITED ? UINT64_MAX : n;
	return 0;
}

int64_t cgroup_parse_key(const char *text, const char *key)
{
	size_t want = strlen(key);

	while (*text != '\0') {
		size_t len = strcspn(text, "\n");

		if (len > want && memcmp(text, key, want) == 0 &&
		    text[want] == ' ') {
			const char *end;
			uint64_t n;

			if (parse_number(text + want + 1, &end, &n) < 0 ||
			    end != text + len || n > INT64_MAX)
				return -EINVAL;
			return (int64_t)n;
		}
		text += len;
		if (*text == '\n')
			text++;
	}
	return -ENOENT;
}
