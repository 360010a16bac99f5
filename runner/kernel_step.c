/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on their way to a kernel's supervisor, and what it tells. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/server_int.h"

/* A step that was interrupted may take 2 s to end, its answer 10 s to be read. */
#define STEP_LATE_US 30000000u

/* ---- to the kernel ------------------------------------------------------- */

static void fail_dead(
    struct server *s, struct client *c, const struct kernel *k)
{
	client_fail(
	    s, c, ERR_KERNEL_DEAD, 0, k != NULL ? k->reason : KERNEL_LOST);
}

void kernels_turn(struct server *s, struct client *c)
{
	struct workspace *w = workspaces_of(c->turn.things[0]);
	struct kernel *k = w->kernel;

	if (k == NULL || k->state == KERNEL_DEAD || k->ending) {
		fail_dead(s, c, k);
		return;
	}
	/* On disk since there were slots: it counts, and waits for some. */
	if (s->config->kernel_slots == 0) {
		client_fail(s, c, ERR_KERNEL_UNSUPPORTED, 0,
		    "this service has no kernels now: kernel_slots is 0; this "
		    "one stays on disk");
		return;
	}
	c->kernel = k;
	c->kernel_wait = c->has_job ? KERNEL_WAIT_STEP : KERNEL_WAIT_FORK;
	if (k->state == KERNEL_RESIDENT && !k->saving) {
		kernel_serve_waiting(s, k);
		return;
	}
	if (k->worker == NULL)
		kernel_want(s, k);
}

int kernels_claim(
    struct server *s, struct client *c, uint64_t queue_us, struct err *e)
{
	struct workspace *space = workspaces_of(c->turn.things[0]);
	struct kernel *k = space->kernel;
	struct worker *w = k != NULL ? k->worker : NULL;
	int rc;

	if (w == NULL || k->state != KERNEL_RESIDENT || k->ending || k->saving)
		return err_set(e, ERR_KERNEL_DEAD, ESRCH, "%s",
		    k != NULL && k->reason[0] != '\0' ? k->reason
						      : "it has just ended");
	(void)s;
	rc = pool_hand_over(w, c, queue_us);
	if (rc < 0)
		return err_set(e, ERR_KERNEL_DEAD, -rc, "it has just ended");
	turn_pass(&c->turn, &w->turn);
	w->holds_slot = true;
	w->deadline_us = clock_us() +
			 (uint64_t)c->job.limits.wall_time_ms * 1000 +
			 STEP_LATE_US;
	return 0;
}

/* ---- its end ------------------------------------------------------------- */

static enum kernel_death death_of(const struct run_report *r)
{
	if (r == NULL)
		return KERNEL_DEATH_FAILED;
	switch ((enum run_end)r->end) {
	case RUN_END_EXIT:
		return KERNEL_DEATH_EXIT;
	case RUN_END_TIMEOUT:
		return KERNEL_DEATH_TIMEOUT;
	case RUN_END_OOM:
		return KERNEL_DEATH_OOM;
	case RUN_END_NONE:
	case RUN_END_GONE:
	case RUN_END_FAILED:
	case RUN_END_REFUSED:
		break;
	}
	return KERNEL_DEATH_FAILED;
}

static void kernel_died(
    struct server *s, struct kernel *k, const struct run_report *r)
{
	const bool starting = k->state == KERNEL_STARTING;

	if (k->restoring && !k->ending) {
		kernel_not_restored(s, k, r);
		return;
	}
	kernel_fail_fork(s, k);
	k->saving = false;
	k->restoring = false;

	if (!k->ending) {
		k->death = death_of(r);
		(void)snprintf(k->reason, sizeof k->reason, "%s",
		    r != NULL && r->why[0] != '\0' ? r->why : "it was killed");
	}
	if (!k->ending && k->death == KERNEL_DEATH_FAILED &&
	    kernel_is_on_disk(s, k)) {
		kernel_fell_back(s, k);
		return;
	}
	k->state = KERNEL_DEAD;
	k->ending = false;
	k->worker = NULL;
	k->online = false;
	if (!s->draining)
		kernel_remove_checkpoint(s, k);
	if (k->removed) /* it was asked for */
		return;
	s->kernels.status.deaths_total[k->death]++;
	log_info("the kernel of session %s is dead: %s", k->workspace->id,
	    k->reason);
	kernel_fail_waiting(s, k,
	    starting ? ERR_SANDBOX_FAILED : ERR_KERNEL_DEAD, 0, k->reason);
	if (starting)
		kernel_undo(s, k);
}

/* ---- from its supervisor ------------------------------------------------- */

static void note_network(
    struct server *s, struct kernel *k, const struct run_report *r)
{
	k->online = r->network == RUN_NETWORK_UP;
	(void)snprintf(k->network_reason, sizeof k->network_reason, "%s",
	    !k->network			? ""
	    : r->network_why[0] != '\0' ? r->network_why
	    : !k->wired && s->config->allow_network
		? "it could have none when it was started"
	    : s->config->allow_network
		? ""
		: "the service lets nobody have a network");
}

static void kernel_ready(
    struct server *s, struct worker *w, const struct run_report *r)
{
	struct kernel *k = w->kernel;

	if (k == NULL || !k->ending)
		w->deadline_us = UINT64_MAX;
	w->seat.bytes = r->memory_bytes > 0 ? (uint64_t)r->memory_bytes : 0;
	if (k == NULL) {
		w->report = *r; /* of its boot, for who gets it */
		s->kernels.spare_bytes = w->seat.bytes;
		w->seat.waits = !w->kernel_dropped;
		w->seat.since_us = clock_us();
		w->offline =
		    w->spare_kind.network && r->network != RUN_NETWORK_UP;
		return;
	}
	kernels_resident(s, k, r);
}

void kernels_resident(
    struct server *s, struct kernel *k, const struct run_report *r)
{
	if (k->restoring) {
		s->kernels.status.restores_total++;
		s->kernels.status.restore_us_total +=
		    clock_us() - k->resident_us;
	}
	if (!k->restoring)
		k->wired = r->online;
	k->restoring = false;
	k->refusals = 0;
	k->reason[0] = '\0';
	k->state = KERNEL_RESIDENT;
	k->used_us = k->resident_us = clock_us();
	k->memory_bytes = r->memory_bytes;
	note_network(s, k, r);
	kernel_serve_waiting(s, k);
}

static void kernel_stepped(
    struct server *s, struct worker *w, const struct run_report *r)
{
	struct kernel *k = w->kernel;

	s->kernels.status.steps_total++;
	histogram_add(&s->status.phases[STATUS_RUN], r->run_us);
	if (w->holds_slot)
		admit_release(&s->admit);
	w->holds_slot = false;
	kernel_mail_in(w->seat.mailbox)->answered = false;
	if (k != NULL) {
		k->steps++;
		k->used_us = clock_us();
		k->memory_bytes = r->memory_bytes;
		if (k->checkpoint_bytes > 0)
			kernel_count_checkpoint(s, k, 0);
		k->save_failures = 0;
		note_network(s, k, r);
		if (k->ending) /* its turn is its end's */
			return;
	}
	w->deadline_us = UINT64_MAX;
	workspaces_turn_end(s, &w->turn);
	/* Before the next step has its turn: else who waits for a slot never
	 * finds it idle. */
	if (kernels_wanting(s))
		kernels_tick(s, clock_us());
	if (k != NULL && s->draining && !kernel_hibernate(s, k))
		kernel_stop(s, k, KERNEL_DEATH_EXIT, "the service ended");
}

/* Its slot is free when its process is gone; whoever waits for it takes the next
 * one. */
static void kernel_rests(
    struct server *s, struct worker *w, const struct run_report *r)
{
	struct kernel *k = w->kernel;

	w->report = *r;
	w->has_report = true;
	w->kernel = NULL;
	if (k != NULL)
		kernel_hibernated(s, k, r);
}

/* Before its turn is over: nobody is to get one in a kernel that is gone. */
static void kernel_ended(
    struct server *s, struct worker *w, const struct run_report *r)
{
	w->report = *r;
	w->has_report = true;
	if (w->kernel != NULL)
		kernel_died(s, w->kernel, r);
	w->kernel = NULL;
}

void kernels_report(
    struct server *s, struct worker *w, const struct run_report *r)
{
	switch ((enum kernel_word)r->kernel) {
	case KERNEL_WORD_READY:
		kernel_ready(s, w, r);
		break;
	case KERNEL_WORD_STEPPED:
		kernel_stepped(s, w, r);
		break;
	case KERNEL_WORD_STAYS:
		if (w->kernel != NULL)
			kernel_stays(s, w->kernel, r);
		break;
	case KERNEL_WORD_FORKED:
		if (w->kernel != NULL)
			kernel_fork_ends(s, w->kernel, r);
		break;
	case KERNEL_WORD_HIBERNATED:
		kernel_rests(s, w, r);
		break;
	case KERNEL_WORD_NONE:
		kernel_ended(s, w, r);
		break;
	}
	if (r->sandbox_gone) {
		workspaces_step_ends(s, &w->mount);
		workspaces_turn_end(s, &w->turn);
	}
}

void kernels_lost(
    struct server *s, struct worker *w, const struct run_report *r)
{
	if (w->kernel != NULL)
		kernel_died(s, w->kernel, r);
	else if (w->spare[0] != '\0' && !w->kernel_dropped)
		kernels_waiting_lost(s, w, r);
	w->kernel = NULL;
	if ((r == NULL || r->end == RUN_END_FAILED) && !s->draining &&
	    !w->kernel_dropped)
		health_doubt(s);
}
