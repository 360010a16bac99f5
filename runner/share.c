/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/share.h"

#include <stddef.h>

uint32_t share_count(const struct shares *q, uint64_t tenant)
{
	const struct share *x = NULL;
	uint32_t n = 0;

	TAILQ_FOREACH (x, q, link)
		if (x->tenant == tenant)
			n += (uint32_t)x->holds + (uint32_t)x->promised;
	return n;
}

struct share *share_next(struct shares *q)
{
	struct share *x = NULL, *found = NULL;
	uint32_t least = 0;

	TAILQ_FOREACH (x, q, link) {
		uint32_t n;

		if (!x->wants)
			continue;
		n = share_count(q, x->tenant);
		if (found != NULL &&
		    (n > least ||
			(n == least && x->wanted_us >= found->wanted_us)))
			continue;
		found = x;
		least = n;
	}
	if (found != NULL)
		found->wants = false;
	return found;
}

bool share_may_push(const struct shares *q, const struct share *wants,
    const struct share *x, uint32_t more)
{
	if (wants == NULL || wants->tenant == x->tenant)
		return true;
	/* Each has one less and one more afterwards. */
	return share_count(q, x->tenant) >=
	       share_count(q, wants->tenant) + 1 + more;
}

struct share *share_victim(struct shares *q, const struct share *wants)
{
	struct share *x = NULL, *found = NULL;
	uint32_t most = 0;

	TAILQ_FOREACH (x, q, link) {
		uint32_t n;

		if (!x->may_go || !share_may_push(q, wants, x, 0))
			continue;
		n = share_count(q, x->tenant);
		if (found != NULL &&
		    (n < most || (n == most && x->used_us >= found->used_us)))
			continue;
		found = x;
		most = n;
	}
	return found;
}
