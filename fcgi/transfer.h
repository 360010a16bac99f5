/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_TRANSFER_H
#define ISOBOX_FCGI_TRANSFER_H

#include <stdatomic.h>
#include <stddef.h>

#include "lib/err.h"

struct exchange;

/*
 * Files and archives on their way to clients. Each holds a thread as long as the
 * client takes; so that slow ones do not hold them all, no more than a quarter of
 * the threads do this at a time.
 */
struct transfers {
	atomic_uint count;
};

/* ERR_CAPACITY when there are too many. Each that began is ended. */
int transfer_begin(struct exchange *x, struct err *e);
void transfer_end(struct exchange *x);

/* Answers with a regular file: whole, in part, or that nothing is new, as the
 * request's conditions have it. name is for the client's disk. fd stays the
 * caller's. */
int transfer_file(struct exchange *x, int fd, const char *name, size_t name_len,
    struct err *e);

#endif
