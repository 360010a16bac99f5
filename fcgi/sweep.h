/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_SWEEP_H
#define ISOBOX_FCGI_SWEEP_H

#include <stdatomic.h>

#include "fcgi/app.h"
#include "lib/err.h"

/*
 * Removes what is over: sessions that have expired, sessions and volumes whose
 * end was interrupted, values of the memory that have expired, workspaces
 * without a session. Any number of processes may do it: a lock file lets one at a
 * time, and its time of change tells when it was last done.
 */

/* Once, unless it was done in the last SWEEP_EVERY_SEC seconds or is being done
 * by another. What fails is logged and tried again the next time. *stop ends it
 * early. */
#define SWEEP_EVERY_SEC 30
void sweep_if_due(struct app *app, const atomic_bool *stop);

/* A thread that does it as long as the service runs. */
struct sweeper;
int sweeper_start(struct app *app, struct sweeper **ret, struct err *e);
void sweeper_stop(struct sweeper *s); /* NULL is fine; waits */

#endif
