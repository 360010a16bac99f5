/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_RESULT_H
#define ISOBOX_FCGI_RESULT_H

#include <stdbool.h>

#include "lib/buf.h"
#include "lib/job.h"

struct artifacts;

/* The API's exact text. */
#define RESULT_NETWORK_OFF                                                  \
	"network requested but currently unavailable (egress firewall not " \
	"verified); ran with network OFF"

/* What a run came to. */
struct result_parts {
	const struct job *job; /* as it was asked for */
	const struct run_result *result;
	const struct buf *output; /* raw, of stdout and of stderr */
	bool base64;
	const struct artifacts *artifacts; /* of a kernel's step */
};

/* The JSON object of the answer, members in the order of the API's reference. */
void result_put(struct buf *out, const struct result_parts *p);

/* Whether something of its output is missing. */
bool result_truncated(const struct result_parts *p);

/* The phases of a run, as the value of a Server-Timing header (W3C Server
 * Timing): milliseconds until it had a slot, until its program started, until
 * that ended; the second is called "warm" when a sandbox waited for it. */
void result_put_timing(struct buf *out, const struct run_result *r);

#endif
