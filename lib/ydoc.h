/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_YDOC_H
#define ISOBOX_YDOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/*
 * A small part of YAML, read strictly by libyaml's parser: one document of maps,
 * lists and scalars. Refused, because no file of ours needs them and each is a
 * way to surprise or to swell: anchors, aliases, tags, merge keys, keys that are
 * not plain words, a key twice in one map, NUL, further documents.
 *
 * A failure sets ERR_INTERNAL and a message that names file, line and key and
 * says what is allowed: "isobox.yaml:12: limits.pids: must be a whole number
 * from 1 to 256".
 */
#define YDOC_BYTES_MAX (64u * 1024) /* a file; ours have 1 to 8 KiB */
#define YDOC_DEPTH_MAX 4u /* maps and lists in each other; ours have 2 */
#define YDOC_ITEMS_MAX 256u /* of one map or list */
#define YDOC_NODES_MAX 2048u /* of a document */
#define YDOC_KEY_MAX 64u /* bytes of a key */

enum ydoc_kind {
	YDOC_SCALAR,
	YDOC_LIST,
	YDOC_MAP
};

struct ydoc_node {
	enum ydoc_kind kind;
	unsigned line; /* from 1 */
	bool plain; /* a scalar without quotes */
	char *path; /* "limits.pids", "run[2]"; "" for the root */
	const char *key; /* the last part of path, for members of a map */
	char *text; /* of a scalar: UTF-8 without NUL */
	struct ydoc_node *items;
	size_t count;
};

struct ydoc {
	char *file; /* for messages; a long path is cut in front */
	struct ydoc_node root; /* a map; an empty file is an empty map */
};

/* The file at path, see file_read(). The caller frees *ret by ydoc_free(). */
int ydoc_load(const char *path, struct ydoc **ret, struct err *e);
/* The same for bytes in memory; file is the name for messages. */
int ydoc_parse(const char *file, const uint8_t *data, size_t len,
    struct ydoc **ret, struct err *e);
void ydoc_free(struct ydoc *d);

/* Puts "file:line: key: " before the message; n->path "" leaves the key out. */
int ydoc_wrap(const struct ydoc *d, const struct ydoc_node *n, struct err *e);

/* Fails unless n is of that kind. */
int ydoc_check_kind(const struct ydoc *d, const struct ydoc_node *n,
    enum ydoc_kind kind, struct err *e);

/*
 * The text of a scalar, borrowed: any scalar as it is written (3.14 stays
 * "3.14"), but an unquoted one must not be YAML's null (nothing, "~", "null").
 * NULL on failure.
 */
const char *ydoc_get_text(
    const struct ydoc *d, const struct ydoc_node *n, struct err *e);

/* true or false, unquoted. */
int ydoc_get_bool(
    const struct ydoc *d, const struct ydoc_node *n, bool *ret, struct err *e);

/* A whole number from min to max, unquoted. */
int ydoc_get_uint(const struct ydoc *d, const struct ydoc_node *n, uint64_t min,
    uint64_t max, uint64_t *ret, struct err *e);

static inline void ydoc_freep(struct ydoc **d)
{
	ydoc_free(*d);
}
#define cleanup_ydoc __attribute__((cleanup(ydoc_freep)))

#endif
