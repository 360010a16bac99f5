/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_RUNTIME_TEXT_H
#define ISOBOX_RUNTIME_TEXT_H

#include <stddef.h>

#include "lib/err.h"
#include "lib/ydoc.h"

/*
 * The kinds of text in a registry file, for runtime.c. Messages are whole (file,
 * line, key, what is allowed). Lists are NULL-terminated; *ret is set before its
 * entries are filled in, so that the caller frees it after a failure as well.
 */
struct rtext_shape {
	const char *first; /* characters to begin with */
	const char *rest;
	size_t max; /* bytes */
	const char *allowed; /* the same in words: "must be ..." */
};

/* Fails with what is allowed there. */
int rtext_refuse(const struct ydoc *d, const struct ydoc_node *n, struct err *e,
    const char *allowed);
int rtext_no_memory(
    const struct ydoc *d, const struct ydoc_node *n, struct err *e);

/* A copy of a text, or of a list of texts, of that shape. */
int rtext_copy(const struct ydoc *d, const struct ydoc_node *n,
    const struct rtext_shape *s, char **ret, struct err *e);
int rtext_copy_list(const struct ydoc *d, const struct ydoc_node *n,
    const struct rtext_shape *s, size_t max, char ***ret, struct err *e);

/* A text of at most 4096 bytes without control bytes but tab and newline,
 * borrowed; NULL on failure. */
const char *rtext_get(
    const struct ydoc *d, const struct ydoc_node *n, struct err *e);

/* A list of 1 to 64 such texts, the first not empty. */
int rtext_copy_argv(const struct ydoc *d, const struct ydoc_node *n,
    char ***ret, struct err *e);

/* An empty list with room for the entries of n, which must be of that kind and
 * have at most max; NULL on failure. */
char **rtext_new_list(const struct ydoc *d, const struct ydoc_node *n,
    enum ydoc_kind kind, size_t max, struct err *e);

/* Which of words the text is; negative when none. */
int rtext_get_word(const struct ydoc *d, const struct ydoc_node *n,
    const char *const *words, size_t count, const char *allowed, struct err *e);

#endif
