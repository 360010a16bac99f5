/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_ACCESSLOG_H
#define ISOBOX_FCGI_ACCESSLOG_H

#include "lib/err.h"

struct exchange;

/*
 * One JSON line a request, each by a single write(2) to a file opened for
 * appending: lines of threads and processes do not mix. Never code, input, keys
 * or a query.
 */
struct accesslog {
	int fd; /* -1 = none */
};

void accesslog_init(struct accesslog *log);

/* path: a file, "-" for standard error, "" for none. Open already: the file is
 * opened again, after it was rotated away. */
int accesslog_open(struct accesslog *log, const char *path, struct err *e);
void accesslog_close(struct accesslog *log);

void accesslog_write(const struct accesslog *log, const struct exchange *x);

#endif
