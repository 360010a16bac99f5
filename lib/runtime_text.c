/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/runtime_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An entry of an argv may be a small script for sh -c. */
#define TEXT_MAX 4096u
#define ARGV_MAX 64u

int rtext_refuse(const struct ydoc *d, const struct ydoc_node *n, struct err *e,
    const char *allowed)
{
	(void)err_set(e, ERR_INTERNAL, EINVAL, "%s", allowed);
	return ydoc_wrap(d, n, e);
}

int rtext_no_memory(
    const struct ydoc *d, const struct ydoc_node *n, struct err *e)
{
	(void)err_sys(e, ENOMEM, "cannot keep it");
	return ydoc_wrap(d, n, e);
}

static bool has_shape(const struct rtext_shape *s, const char *text)
{
	size_t len = strlen(text);

	return len > 0 && len <= s->max && strchr(s->first, text[0]) != NULL &&
	       strspn(text, s->rest) == len;
}

int rtext_copy(const struct ydoc *d, const struct ydoc_node *n,
    const struct rtext_shape *s, char **ret, struct err *e)
{
	const char *text = ydoc_get_text(d, n, e);

	if (text == NULL)
		return -e->code;
	if (!has_shape(s, text))
		return rtext_refuse(d, n, e, s->allowed);
	*ret = strdup(text);
	return *ret != NULL ? 0 : rtext_no_memory(d, n, e);
}

const char *rtext_get(
    const struct ydoc *d, const struct ydoc_node *n, struct err *e)
{
	const char *text = ydoc_get_text(d, n, e);

	for (const char *p = text; p != NULL && *p != '\0'; p++) {
		if (((unsigned char)*p >= ' ' || *p == '\t' || *p == '\n') &&
		    *p != 0x7f && p - text < (ptrdiff_t)TEXT_MAX)
			continue;
		(void)rtext_refuse(d, n, e,
		    "must be a text of at most 4096 bytes without control "
		    "characters");
		return NULL;
	}
	return text;
}

char **rtext_new_list(const struct ydoc *d, const struct ydoc_node *n,
    enum ydoc_kind kind, size_t max, struct err *e)
{
	char **list;

	if (ydoc_check_kind(d, n, kind, e) < 0)
		return NULL;
	if (n->count > max) {
		(void)err_set(e, ERR_INTERNAL, EINVAL,
		    "must have at most %zu entries", max);
		(void)ydoc_wrap(d, n, e);
		return NULL;
	}
	list = calloc(n->count + 1, sizeof(*list));
	if (list == NULL)
		(void)rtext_no_memory(d, n, e);
	return list;
}

int rtext_copy_list(const struct ydoc *d, const struct ydoc_node *n,
    const struct rtext_shape *s, size_t max, char ***ret, struct err *e)
{
	char **list = rtext_new_list(d, n, YDOC_LIST, max, e);
	int r = 0;

	if (list == NULL)
		return -e->code;
	*ret = list;
	for (size_t i = 0; r == 0 && i < n->count; i++)
		r = rtext_copy(d, &n->items[i], s, &list[i], e);
	return r;
}

static int copy_arg(
    const struct ydoc *d, const struct ydoc_node *n, char **ret, struct err *e)
{
	const char *text = rtext_get(d, n, e);

	if (text == NULL)
		return -e->code;
	*ret = strdup(text);
	return *ret != NULL ? 0 : rtext_no_memory(d, n, e);
}

int rtext_copy_argv(
    const struct ydoc *d, const struct ydoc_node *n, char ***ret, struct err *e)
{
	char **list = rtext_new_list(d, n, YDOC_LIST, ARGV_MAX, e);
	int r = 0;

	if (list == NULL)
		return -e->code;
	*ret = list;
	for (size_t i = 0; r == 0 && i < n->count; i++)
		r = copy_arg(d, &n->items[i], &list[i], e);
	if (r == 0 && (list[0] == NULL || list[0][0] == '\0'))
		r = rtext_refuse(d, n, e,
		    "must be a list of at least one text, the program first");
	return r;
}

int rtext_get_word(const struct ydoc *d, const struct ydoc_node *n,
    const char *const *words, size_t count, const char *allowed, struct err *e)
{
	const char *text = ydoc_get_text(d, n, e);

	if (text == NULL)
		return -e->code;
	for (size_t i = 0; i < count; i++)
		if (strcmp(words[i], text) == 0)
			return (int)i;
	return rtext_refuse(d, n, e, allowed);
}
