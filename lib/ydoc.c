/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/ydoc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/num.h"

/* The deepest last node first, until nothing hangs on the root. */
static void free_tree(struct ydoc_node *root)
{
	struct ydoc_node *parent;

	do {
		struct ydoc_node *n = root;

		parent = NULL;
		while (n->count > 0) {
			parent = n;
			n = &n->items[n->count - 1];
		}
		free(n->items);
		free(n->path);
		free(n->text);
		if (parent != NULL)
			parent->count--;
	} while (parent != NULL);
}

void ydoc_free(struct ydoc *d)
{
	if (d == NULL)
		return;
	free_tree(&d->root);
	free(d->file);
	free(d);
}

int ydoc_wrap(const struct ydoc *d, const struct ydoc_node *n, struct err *e)
{
	if (n->path[0] == '\0')
		return err_wrap(e, "%s:%u", d->file, n->line);
	return err_wrap(e, "%s:%u: %s", d->file, n->line, n->path);
}

int ydoc_check_kind(const struct ydoc *d, const struct ydoc_node *n,
    enum ydoc_kind kind, struct err *e)
{
	static const char *const names[] = {
	    [YDOC_SCALAR] = "must be a single value, not a map or list",
	    [YDOC_LIST] = "must be a list",
	    [YDOC_MAP] = "must be a map",
	};

	if (n->kind == kind)
		return 0;
	(void)err_set(e, ERR_INTERNAL, EINVAL, "%s", names[kind]);
	return ydoc_wrap(d, n, e);
}

static bool is_null(const struct ydoc_node *n)
{
	return n->plain && (n->text[0] == '\0' || strcmp(n->text, "~") == 0 ||
			       strcasecmp(n->text, "null") == 0);
}

const char *ydoc_get_text(
    const struct ydoc *d, const struct ydoc_node *n, struct err *e)
{
	if (ydoc_check_kind(d, n, YDOC_SCALAR, e) < 0)
		return NULL;
	if (!is_null(n))
		return n->text;
	(void)err_set(e, ERR_INTERNAL, EINVAL,
	    "has no value; leave the key out, or write \"\"");
	(void)ydoc_wrap(d, n, e);
	return NULL;
}

int ydoc_get_bool(
    const struct ydoc *d, const struct ydoc_node *n, bool *ret, struct err *e)
{
	int err = ydoc_check_kind(d, n, YDOC_SCALAR, e);
	bool yes;

	if (err < 0)
		return err;
	yes = strcmp(n->text, "true") == 0;
	if (!n->plain || (!yes && strcmp(n->text, "false") != 0)) {
		(void)err_set(e, ERR_INTERNAL, EINVAL, "must be true or false");
		return ydoc_wrap(d, n, e);
	}
	*ret = yes;
	return 0;
}

int ydoc_get_uint(const struct ydoc *d, const struct ydoc_node *n, uint64_t min,
    uint64_t max, uint64_t *ret, struct err *e)
{
	int err = ydoc_check_kind(d, n, YDOC_SCALAR, e);

	if (err < 0)
		return err;
	err = num_parse(n->plain ? n->text : "", min, max, ret, e);
	return err < 0 ? ydoc_wrap(d, n, e) : 0;
}
