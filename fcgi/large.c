/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/large.h"

#include <errno.h>
#include <time.h>

#include "fcgi/exchange.h"

#define WAIT_S 10

int large_begin(struct exchange *x, struct err *e)
{
	struct timespec until = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += WAIT_S;
	while (sem_clockwait(&x->app->large, CLOCK_MONOTONIC, &until) < 0)
		if (errno != EINTR)
			return err_set(e, ERR_CAPACITY, EAGAIN,
			    "too many large answers at the same time");
	return 0;
}

void large_end(struct exchange *x)
{
	(void)sem_post(&x->app->large);
}
