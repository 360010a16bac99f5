/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/guard.h"

#include <errno.h>
#include <string.h>

#include "fcgi/exchange.h"

int guard_key(struct exchange *x, struct err *e)
{
	struct shared *s = shared_slot_get(&x->app->keys);
	int r = auth_check((const struct keyring *)s, &x->req, &x->tenant, e);

	shared_put(s);
	return r;
}

int guard_memory_key(struct exchange *x, struct err *e)
{
	int r = guard_key(x, e);

	if (r < 0 || !x->app->config->memory_require_key ||
	    strcmp(x->tenant.name, TENANT_PUBLIC) != 0)
		return r;
	return err_set(e, ERR_UNAUTHORIZED, EACCES, "%s", "");
}

int guard_rate(struct exchange *x, enum rate_class class, struct err *e)
{
	const struct config *config = x->app->config;
	struct ratelimit *limit = x->app->ratelimit;
	unsigned factor = class == RATE_FILE ? RATE_FILE_FACTOR : 1;

	if (limit == NULL)
		return 0;
	x->retry_after_s = ratelimit_take(limit, (unsigned)class,
	    ratelimit_key(limit, x->req.remote_addr),
	    config->rate_per_min * factor, config->rate_burst * factor);
	if (x->retry_after_s == 0)
		return 0;
	return err_set(e, ERR_RATE_LIMITED, EAGAIN, "%s", "");
}
