/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_URI_H
#define ISOBOX_FCGI_URI_H

#include <stddef.h>

#include "lib/err.h"

/* Front servers stop at 8 KB for the whole request line. */
#define URI_MAX 8192u
#define URI_SEGMENTS_MAX 16u

/* One decoded part of the path; may hold any byte, also "/" and NUL. */
struct uri_segment {
	const char *text; /* a NUL follows */
	size_t len;
};

/*
 * A request's target, from REQUEST_URI: the only variable in which every front
 * server leaves path and query as the client sent them.
 */
struct uri {
	const char *path; /* raw, borrowed from the input */
	size_t path_len;
	const char *query; /* raw, without "?"; borrowed, may be empty */
	size_t query_len;
	struct uri_segment segments[URI_SEGMENTS_MAX];
	size_t segment_count; /* "/" has one, which is empty */
	char text[URI_MAX]; /* what the segments point into */
};

/* Empty: no path, no query. */
void uri_init(struct uri *u);

/*
 * Splits the path at its slashes, then percent-decodes each part once. The
 * absolute form ("http://host/path") is taken by its path. ERR_INVALID_REQUEST
 * when it is malformed or too long, ERR_NOT_FOUND when it has more segments than
 * any path of ours.
 */
int uri_parse(struct uri *u, const char *s, size_t len, struct err *e);

/*
 * The value of the first parameter of that name, decoded ("+" is a space), into
 * ret with a NUL behind it; it may hold NUL itself, *ret_len tells. 1 when there
 * is one, 0 when not, negative when it is malformed or does not fit (URI_MAX
 * bytes always do).
 */
int uri_query_get(const struct uri *u, const char *name, char *ret,
    size_t ret_size, size_t *ret_len, struct err *e);

#endif
