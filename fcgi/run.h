/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_RUN_H
#define ISOBOX_FCGI_RUN_H

#include "fcgi/execreq.h"
#include "lib/err.h"

struct exchange;

/*
 * Has the runner do a checked request's job and answers the exchange with what
 * comes out: a JSON object or, when it asked for them, a stream of events. Waits
 * no longer than the configuration and the job's limits allow, and ends the run
 * when the client leaves. Whatever fails is answered, too: the host's failure is
 * 503, or an error event once the stream has begun. 0 when there was a result;
 * else *e is what was answered.
 */
int run_execreq(struct exchange *x, struct execreq *q, struct err *e);

#endif
