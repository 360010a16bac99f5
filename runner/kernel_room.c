/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. Who wants to be resident gets a slot that is free, if there
 * is memory for it. Else somebody idle goes to disk, one for each who waits
 * (share.h says who for whom); whoever nobody can go for is refused when its time
 * is over. A kernel that was fetched for a step has its session's turn until the
 * step has ended, and so is not idle: nobody is pushed out before that, and however
 * many want their turn, each step that is begun is ended.
 *
 * When memory is short, the same is done for nobody in particular.
 */
#include <stddef.h>
#include <stdio.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/kernel_int.h"
#include "runner/memory.h"
#include "runner/server_int.h"

/* Idle so long, a kernel that cannot be saved gives its slot to who needs it. */
#define UNSAVABLE_US 300000000u

/* To who came when all slots were in use. */
#define RETRY_AFTER_S 5u

/* While memory is waited for. */
#define MEMORY_LOOK_US 100000u

static struct kernel *kernel_of(struct share *x)
{
	return (struct kernel *)(void *)((char *)x -
					 offsetof(struct kernel, share));
}

static uint64_t refuse_at_us(const struct server *s, const struct kernel *k)
{
	return k->wanted_us + (uint64_t)s->config->acquire_wait_ms * 1000;
}

/* On its way out: its slot will be free. */
static bool is_going(const struct kernel *k)
{
	return k->worker != NULL &&
	       ((k->saving && k->copy == NULL) || k->ending);
}

/* Slots that will be free. */
static unsigned count_going(const struct server *s)
{
	const struct kernel *k = NULL;
	const struct worker *w = NULL;
	unsigned n = 0;

	TAILQ_FOREACH (k, &s->kernels.list, link)
		n += is_going(k);
	TAILQ_FOREACH (w, &s->workers, link)
		n += w->kernel_slot && w->kernel == NULL;
	return n;
}

/* All that have a slot or want one. */
static void list_shares(struct server *s, struct shares *ret)
{
	struct kernel *k = NULL;

	TAILQ_INIT(ret);
	TAILQ_FOREACH (k, &s->kernels.list, link) {
		if (k->worker == NULL && !k->wants_slot)
			continue;
		k->share = (struct share){.tenant = k->tenant,
		    .holds = k->worker != NULL && !is_going(k),
		    .wants = k->wants_slot,
		    .may_go = kernel_may_save(s, k),
		    .wanted_us = k->wanted_us,
		    .used_us = k->used_us};
		TAILQ_INSERT_TAIL(ret, &k->share, link);
	}
}

/* ---- making room --------------------------------------------------------- */

/* True when there will be a slot, or a supervisor is just dying. */
static bool push_out(
    struct server *s, struct shares *q, const struct share *wants)
{
	struct share *x = share_victim(q, wants);

	if (x == NULL)
		return false;
	x->may_go = false;
	x->holds = false;
	if (kernel_hibernate(s, kernel_of(x)))
		s->kernels.status.evictions_total++;
	return true;
}

/* What holds its slot only because it cannot be put on disk has it for a while, and
 * not for ever; and less than that when its tenant has more than its share, and
 * one who has less would be refused. True: one ends. */
static bool end_unsavable(
    struct server *s, struct shares *q, struct share *wants, uint64_t now_us)
{
	const bool late = now_us >= refuse_at_us(s, kernel_of(wants));
	struct share *x = NULL, *found = NULL;

	TAILQ_FOREACH (x, q, link) {
		const struct kernel *k = kernel_of(x);
		const bool old = now_us >= k->used_us + UNSAVABLE_US;

		if (!kernel_is_idle(k) || k->reason[0] == '\0' ||
		    !(old ? share_may_push(q, wants, x, 0)
			  : late && wants->tenant != x->tenant &&
				share_may_push(q, wants, x, 1)))
			continue;
		if (found == NULL || x->used_us < found->used_us)
			found = x;
	}
	if (found == NULL)
		return false;
	found->holds = false;
	kernel_stop(s, kernel_of(found), KERNEL_DEATH_IDLE,
	    "its slot was needed, and it could not be put on disk");
	return true;
}

/* ---- slots --------------------------------------------------------------- */

static void refuse(struct server *s, struct kernel *k, const char *why)
{
	k->wants_slot = false;
	kernel_fail_waiting(s, k, ERR_TOO_MANY_KERNELS, RETRY_AFTER_S, why);
	if (k->state == KERNEL_STARTING)
		kernel_undo(s, k);
}

/* Who wanted the step has left: it can stay where it is. */
static void drop_unwanted(struct server *s)
{
	struct kernel *k = NULL;

	TAILQ_FOREACH (k, &s->kernels.list, link)
		if (k->wants_slot && k->state == KERNEL_HIBERNATED &&
		    !kernel_is_wanted(s, k))
			k->wants_slot = false;
}

/* The first kernel of all has it, whatever else is there. */
static bool has_memory(struct server *s, const struct kernel *k)
{
	return s->kernels.used == 0 || kernels_adoptable(s, k) != NULL ||
	       memory_has_room(s, k->state == KERNEL_HIBERNATED
				      ? k->checkpoint_bytes
				      : DEMAND_GUESS_BYTES);
}

/* Something is given up at each look, until there is room. False: wait. */
static bool wait_for_memory(struct server *s, struct kernel *k, uint64_t now_us)
{
	uint64_t *look_us = &s->kernels.memory_look_us;

	if (*look_us != UINT64_MAX && now_us < *look_us)
		return false;
	*look_us = now_us + MEMORY_LOOK_US;
	if (memory_relieve(s, now_us) || now_us < refuse_at_us(s, k))
		return false;
	refuse(s, k, "there is no memory for one more kernel");
	return true;
}

/* One into a slot that is free; false: none. */
static bool start_next(struct server *s, uint64_t now_us)
{
	struct shares q;
	struct share *x;
	struct kernel *k;

	if (s->kernels.used >= s->config->kernel_slots)
		return false;
	list_shares(s, &q);
	x = share_next(&q);
	if (x == NULL)
		return false;
	k = kernel_of(x);
	if (has_memory(s, k)) {
		s->kernels.memory_look_us = UINT64_MAX;
		kernel_launch(s, k);
		return true;
	}
	return wait_for_memory(s, k, now_us);
}

/* All slots are in use. Each who wants one has one that is on its way to be free,
 * or makes somebody go, or waits for as long as it may. */
static void make_way(struct server *s, uint64_t now_us)
{
	unsigned going = count_going(s);
	struct shares q;
	struct share *x;

	list_shares(s, &q);
	while ((x = share_next(&q)) != NULL) {
		if (going > 0)
			going--;
		else if (!push_out(s, &q, x) &&
			 !end_unsavable(s, &q, x, now_us)) {
			if (now_us < refuse_at_us(s, kernel_of(x)))
				continue;
			TAILQ_REMOVE(&q, x, link);
			refuse(s, kernel_of(x),
			    "all kernel slots are in use, and no kernel can "
			    "make room for this one");
			continue;
		}
		x->promised = true;
	}
}

void kernels_serve_wanting(struct server *s, uint64_t now_us)
{
	drop_unwanted(s);
	if (!kernels_wanting(s)) {
		s->kernels.memory_look_us = UINT64_MAX;
		return;
	}
	while (start_next(s, now_us))
		;
	if (s->kernels.used >= s->config->kernel_slots)
		make_way(s, now_us);
}

bool kernels_wanting(const struct server *s)
{
	const struct kernel *k = NULL;

	TAILQ_FOREACH (k, &s->kernels.list, link)
		if (k->wants_slot)
			return true;
	return false;
}

uint64_t kernels_refuse_us(const struct server *s)
{
	const uint64_t now_us = clock_us();
	uint64_t first = s->kernels.memory_look_us;
	const struct kernel *k = NULL;

	TAILQ_FOREACH (k, &s->kernels.list, link) {
		const uint64_t refuse_us = refuse_at_us(s, k);

		/* Later than that, somebody is making room, and tells. */
		if (k->wants_slot && refuse_us > now_us && refuse_us < first)
			first = refuse_us;
	}
	return first;
}

/* ---- memory -------------------------------------------------------------- */

bool kernels_may_relieve(struct server *s)
{
	const struct kernel *k = NULL;
	const struct worker *w = NULL;

	TAILQ_FOREACH (k, &s->kernels.list, link)
		if (k->worker != NULL)
			return true;
	TAILQ_FOREACH (w, &s->workers, link)
		if (w->is_kernel)
			return true;
	return false;
}

bool kernels_relieve(struct server *s)
{
	struct shares q;

	if (s->draining || count_going(s) > 0)
		return true;
	if (kernels_drop_one(s))
		return true;
	list_shares(s, &q);
	if (!push_out(s, &q, NULL))
		return false;
	log_info("memory is short: a kernel goes to disk");
	return true;
}
