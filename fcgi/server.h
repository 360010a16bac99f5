/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_SERVER_H
#define ISOBOX_FCGI_SERVER_H

#include <signal.h>

#include "fcgi/app.h"
#include "fcgi/listen.h"
#include "lib/err.h"

/* The signals that server_run() takes; the caller blocks them before the first
 * thread (server_block_signals()). */
int server_block_signals(sigset_t *ret, struct err *e);

/*
 * Serves FastCGI from the listener until SIGTERM or SIGINT, then lets the
 * requests under way finish: 0. 1 when a second signal or 30 seconds cut some of
 * them off; then threads still run, and the caller must _exit(). Negative when
 * it could not start. Closes the listener.
 */
int server_run(struct app *app, struct listener *listener,
    const sigset_t *signals, struct err *e);

#endif
