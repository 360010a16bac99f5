/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_COND_H
#define ISOBOX_FCGI_COND_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "fcgi/request.h"

/*
 * Conditions and ranges of a request (RFC 9110, sections 13 and 14). What is
 * malformed is ignored, as the RFC has it.
 */

/* What a resource is at the moment. */
struct validators {
	const char *etag; /* with its quotes, perhaps W/ before */
	int64_t modified; /* seconds since 1970; negative: not known */
	int64_t now;
};

enum cond {
	COND_GO, /* answer as if nothing had been asked */
	COND_NOT_MODIFIED, /* 304 */
	COND_FAILED /* 412 */
};

/* v NULL: there is no such resource. */
enum cond cond_check(const struct request *q, const struct validators *v);

/* Whether the list of a header names etag; "*" does. strong: neither of the two
 * may be weak. */
bool cond_lists(const char *list, const char *etag, bool strong);

/* Bytes first to first + len - 1. */
struct range {
	uint64_t first;
	uint64_t len;
};

enum range_kind {
	RANGE_ALL, /* none was asked for, or not of this version */
	RANGE_PART, /* 206 */
	RANGE_NONE /* 416: no byte of it is there */
};

/*
 * What part of a resource of that size is asked for, If-Range looked at. Several
 * ranges in one request are answered by the whole (section 14.2 lets a server
 * ignore them): parts that overlap a thousand times cost nothing then.
 */
enum range_kind cond_range(const struct request *q, const struct validators *v,
    uint64_t size, struct range *ret);

/* "Sun, 06 Nov 1994 08:49:37 GMT"; "" when t is no time of such a date. */
#define HTTP_DATE_SIZE 30u
void http_date(int64_t t, char ret[HTTP_DATE_SIZE]);

/* Any of the three forms. Negative when it is none. */
int64_t http_date_parse(const char *text);

#endif
