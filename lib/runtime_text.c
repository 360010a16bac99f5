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

/* A text of that shape, copied to *ret. */
int rtext_copy(const struct ydoc *d, const struct ydoc_node *n,
    const struct rtext_shape *s, char **ret, struct err *e)
{
	const char *text;
	int r = ydoc_get_text(d, n, &text, e);

	if (r < 0)
		return r;
	if (!has_shape(s, text))
		return rtext_refuse(d, n, e, s->allowed);
	*ret = strdup(text);
	return *ret != NULL ? 0 : rtext_no_memory(d, n, e);
}

/* Text for argv and the environment: no control bytes but tab and newline. */
int rtext_get(const struct ydoc *d, const struct ydoc_node *n, const char **ret,
    struct err *e)
{
	const char *text;
	int r = ydoc_get_text(d, n, &text, e);

	if (r < 0)
		return r;
	for (const char *p = text; *p != '\0'; p++)
		if (((unsigned char)*p < ' ' && *p != '\t' && *p != '\n') ||
		    *p == 0x7f || p - text >= (ptrdiff_t)TEXT_MAX)
			return rtext_refuse(d, n, e,
			    "must be a text of at most 4096 bytes without "
			    "control characters");
	*ret = text;
	return 0;
}

/* Makes room for a NULL-terminated list of n's entries. */
int rtext_new_list(const struct ydoc *d, const struct ydoc_node *n, size_t max,
    char ***ret, struct err *e)
{
	if (n->count > max) {
		(void)err_set(e, ERR_INTERNAL, EINVAL,
		    "must have at most %zu entries", max);
		return ydoc_wrap(d, n, e);
	}
	*ret = calloc(n->count + 1, sizeof(**ret));
	return *ret != NULL ? 0 : rtext_no_memory(d, n, e);
}

int rtext_copy_list(const struct ydoc *d, const struct ydoc_node *n,
    const struct rtext_shape *s, size_t max, char ***ret, struct err *e)
{
	int r = ydoc_check_kind(d, n, YDOC_LIST, e);

	if (r == 0)
		r = rtext_new_list(d, n, max, ret, e);
	for (size_t i = 0; r == 0 && i < n->count; i++)
		r = rtext_copy(d, &n->items[i], s, &(*ret)[i], e);
	return r;
}

int rtext_copy_argv(
    const struct ydoc *d, const struct ydoc_node *n, char ***ret, struct err *e)
{
	int r = ydoc_check_kind(d, n, YDOC_LIST, e);

	if (r < 0)
		return r;
	if (n->count == 0)
		return rtext_refuse(d, n, e,
		    "must be a list of at least one text, the program first");
	r = rtext_new_list(d, n, ARGV_MAX, ret, e);
	for (size_t i = 0; r == 0 && i < n->count; i++) {
		const struct ydoc_node *item = &n->items[i];
		const char *text;

		r = rtext_get(d, item, &text, e);
		if (r < 0)
			return r;
		if (i == 0 && text[0] == '\0')
			return rtext_refuse(d, item, e, "must name a program");
		(*ret)[i] = strdup(text);
		if ((*ret)[i] == NULL)
			return rtext_no_memory(d, item, e);
	}
	return r;
}

/* The place of n's text in words; -EINVAL when it is none of them. */
int rtext_get_word(const struct ydoc *d, const struct ydoc_node *n,
    const char *const *words, size_t count, const char *allowed, struct err *e)
{
	const char *text;
	int r = ydoc_get_text(d, n, &text, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++)
		if (strcmp(words[i], text) == 0)
			return (int)i;
	return rtext_refuse(d, n, e, allowed);
}
