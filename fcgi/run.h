/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_RUN_H
#define ISOBOX_FCGI_RUN_H

#include "lib/err.h"
#include "lib/job.h"

struct exchange;

/* What to run, and how to tell of it. */
struct run_request {
	const struct job *job;
	bool base64; /* output encoding */
	bool stream; /* as events, else one JSON object */
};

/*
 * Has the runner do a job and answers the exchange with what comes out: a JSON
 * object or a stream of events. Waits no longer than the configuration and the
 * job's limits allow, and ends the run when the client leaves. Whatever fails is
 * answered, too: the host's failure is 503, or an error event once the stream
 * has begun.
 */
void run_job(struct exchange *x, const struct run_request *rr);

#endif
