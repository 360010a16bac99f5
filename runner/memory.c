/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/memory.h"

#include "lib/log.h"
#include "runner/pool_int.h"
#include "runner/server_int.h"

/* While memory might get short. */
#define PRESSURE_EVERY_US 100000u

/* The part of the memory cap that is left free beside what is in use. */
#define RESERVE_PART 8u

/* What all who run may come to take at most; kernels as long as they are in
 * memory, idle or not, are among them. */
static uint64_t promised(const struct server *s)
{
	const struct worker *w = NULL;
	uint64_t sum = 0;

	TAILQ_FOREACH (w, &s->workers, link)
		if (w->kind != WORKER_AHEAD)
			sum += w->memory_bytes;
	return sum;
}

bool memory_has_room(struct server *s, uint64_t more)
{
	struct err e;
	int64_t used;

	/* No cap: nothing runs either. */
	if (health_check_cap(s, &e) < 0)
		return false;
	used = cgroup_memory_used(s->cgroup);
	if (used < 0)
		return true;
	return (uint64_t)used + more + s->cap_bytes / RESERVE_PART <=
	       s->cap_bytes;
}

/* True when the cap is far enough away that nobody can meet it. */
static bool is_ample(const struct server *s)
{
	return promised(s) + demand_bytes(&s->pool.demand) +
		   s->cap_bytes / RESERVE_PART <=
	       s->cap_bytes;
}

bool memory_relieve(struct server *s, uint64_t now_us)
{
	struct demand_entry *entry = demand_least(&s->pool.demand, now_us);
	struct worker *w = entry != NULL ? pool_find_seat(s, entry) : NULL;

	if (w == NULL)
		return kernels_relieve(s);
	log_info("memory is short: one %s sandbox less waits",
	    entry->kind.runtime->name);
	pool_drop(s, w);
	return true;
}

bool memory_look(struct server *s, uint64_t now_us, uint64_t *ret_look_us)
{
	struct err e;

	if ((demand_bytes(&s->pool.demand) == 0 && !kernels_may_relieve(s)) ||
	    health_check_cap(s, &e) < 0 || is_ample(s))
		return false;
	if (*ret_look_us > now_us + PRESSURE_EVERY_US)
		*ret_look_us = now_us + PRESSURE_EVERY_US;
	return !memory_has_room(s, 0) && memory_relieve(s, now_us);
}
