/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_EXCHANGE_H
#define ISOBOX_FCGI_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fcgi/app.h"
#include "fcgi/auth.h"
#include "fcgi/body.h"
#include "fcgi/out.h"
#include "fcgi/request.h"
#include "lib/buf.h"
#include "lib/token.h"

/* Segments of a path that stand for something: an id, a name. */
#define EXCHANGE_PARAMS 2u

/*
 * One request on its way to its answer: what every handler gets. A worker has
 * one and uses it again; exchange_serve() sets it up.
 */
struct exchange {
	struct app *app;
	bool in_loop; /* the event loop serves this: nothing may wait */
	struct out *out;
	struct request req;
	struct uri_segment params[EXCHANGE_PARAMS]; /* as the route has them */
	struct body *body;
	char id[TOKEN_ID_LEN + 1]; /* X-Request-Id */
	uint64_t begun_us;
	struct buf head; /* scratch for the answer */
	bool revalidate; /* a cache may keep the answer, and asks each time */
	unsigned retry_after_s; /* of a refusal; 0 = none is told */
	char session[TOKEN_ID_LEN + 1]; /* is used by this; "" = none */

	/* What was answered, for the log and the counters. */
	unsigned route; /* index, router.h */
	int status; /* 0: nothing was answered */

	/* What a run adds to the log line. */
	struct tenant tenant; /* "" where no key is asked for */
	char language[64];
	bool ran; /* the members below are set */
	uint32_t exit_code;
	bool timed_out;
	bool oom_killed;
	bool truncated;
	bool streamed;
};

void exchange_init(struct exchange *x, struct app *app);
void exchange_done(struct exchange *x);

/*
 * Serves one request from envp and body to out: routes it, answers it, logs and
 * counts it. `refused` is a reason not to look at the request, or NULL.
 */
void exchange_serve(struct exchange *x, struct out *out, char *const *envp,
    struct body *body, const struct err *refused);

#endif
