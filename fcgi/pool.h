/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_POOL_H
#define ISOBOX_FCGI_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "fcgi/app.h"
#include "fcgi/conn.h"
#include "lib/err.h"

/*
 * The threads that serve requests, all made at the start, and the queue before
 * them. The queue is bounded by the number of connections, which the event loop
 * bounds.
 */
struct pool;

int pool_start(
    struct app *app, unsigned threads, struct pool **ret, struct err *e);

/* Hands over a connection with a request. Those whose body is large hold a thread
 * while it comes: a quarter of the threads serves them, and one that has waited
 * too long is refused. */
void pool_push(struct pool *p, struct conn *c);

/* Whether a thread would begin at once with what is pushed now. */
bool pool_is_idle(struct pool *p);

/* Serves the request in the calling thread, always the same one, with `in_loop`:
 * nothing may wait then. True when the connection goes on; else it is closed. */
bool pool_serve_here(struct pool *p, struct conn *c);

/* Readable when connections come back for their next request. */
int pool_fd(const struct pool *p);

/* Those, as a list by `next`; NULL when there are none. */
struct conn *pool_take(struct pool *p);

/* Connections that the pool has: queued, being served, or coming back. The
 * others it closed. */
size_t pool_count(struct pool *p);

/* When pool_count() is 0 and nothing is pushed any more: ends the threads. */
void pool_stop(struct pool *p);

#endif
