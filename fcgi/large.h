/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_LARGE_H
#define ISOBOX_FCGI_LARGE_H

#include "lib/err.h"
#include "lib/limits.h"

struct exchange;

/* Answers of more than this that are held in memory are gigabytes together when
 * all threads have one: app.large says how many at a time. */
#define LARGE_ANSWER LIMIT_BODY

/* A place among them, waited for some seconds; ERR_CAPACITY. */
int large_begin(struct exchange *x, struct err *e);
void large_end(struct exchange *x);

#endif
