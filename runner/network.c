/* SPDX-License-Identifier: Apache-2.0 */
/* A run's network: verified egress, or none and the reason. */
#include <errno.h>
#include <stdio.h>

#include "runner/run.h"

bool network_wanted(const struct run *r)
{
	/* Without a job: a probe, or ahead, tries what runs will get. A kernel
	 * has what it began with, whatever its step says. */
	return r->order->egress != NULL &&
	       (r->job == NULL || r->kernel.on || r->job->network);
}

static void network_down(struct run *r, const struct err *e)
{
	r->network = RUN_NETWORK_DOWN;
	(void)snprintf(r->network_why, sizeof r->network_why, "%s", e->msg);
}

void network_open(struct run *r)
{
	struct egress_names names = {0};
	struct err e;

	/* A second sandbox gets a router of its own, too. */
	egress_close(&r->egress);
	r->network = RUN_NETWORK_NONE;
	r->online = false;
	if (!network_wanted(r))
		return;
	if (r->order->kernel != NULL) {
		names.names = r->order->kernel->allow;
		names.count = r->order->kernel->allow_count;
	} else if (r->job != NULL) {
		names.names = r->job->allow;
		names.count = r->job->allow_count;
	} else {
		names.late = r->order->by_name;
	}
	if (egress_open(
		&r->egress, r->order->egress, &names, r->order->leaf, &e) < 0)
		network_down(r, &e);
}

const char *network_resolv_conf(const struct run *r)
{
	return egress_is_open(&r->egress) ? r->egress.resolv_conf : NULL;
}

int network_attach(struct run *r, struct err *e)
{
	struct err why;

	if (r->box.gate_fd < 0)
		return 0;
	if (egress_attach(&r->egress, r->box.pid, &why) < 0)
		network_down(r, &why);
	else
		r->network = RUN_NETWORK_UP;
	r->online = r->network == RUN_NETWORK_UP;
	/* Before it goes on from its checkpoint: not once now and once more. */
	if (!r->online && kernel_needs_network(r, e) < 0)
		return -e->code;
	return sandbox_release(&r->box, r->online, e);
}

/* Ahead, nobody knew which job would come, and much may have happened since. Not
 * as it should be: the job gets another sandbox. */
static int settle_ahead(const struct run *r, struct err *e)
{
	if (network_wanted(r) != (r->network != RUN_NETWORK_NONE) ||
	    r->order->by_name != (network_wanted(r) && r->job->allow_count > 0))
		return err_set(e, ERR_SANDBOX_FAILED, EINVAL,
		    "it waits for jobs with another network");
	if (r->network == RUN_NETWORK_DOWN && r->online)
		return err_set(e, ERR_SANDBOX_FAILED, ENETDOWN,
		    "its network was lost: %s", r->network_why);
	return 0;
}

/* Ahead, its names were not known. */
static int check_for_job(struct run *r, struct err *e)
{
	struct egress_names names = {0};

	if (!r->ahead.on || !r->order->by_name)
		return egress_check(&r->egress, e);
	names.names = r->job->allow;
	names.count = r->job->allow_count;
	return egress_allow(&r->egress, &names, e);
}

int network_settle(struct run *r, struct err *e)
{
	struct err why;
	int rc;

	if (r->network == RUN_NETWORK_UP && check_for_job(r, &why) < 0)
		network_down(r, &why);
	if (r->ahead.on && (rc = settle_ahead(r, e)) < 0)
		return rc;
	r->result.network = r->network == RUN_NETWORK_UP;
	return 0;
}

/* Without its router it has no connection that could be lost. */
int network_rest(struct run *r, struct err *e)
{
	struct err why;
	int rc;

	if (r->network != RUN_NETWORK_UP)
		return 0;
	rc = egress_rest(&r->egress, &why);
	if (rc == -EBUSY)
		return err_set(e, ERR_KERNEL_UNSUPPORTED, EBUSY,
		    "the kernel holds what cannot be saved: %.190s", why.msg);
	if (rc < 0)
		network_down(r, &why);
	return 0;
}

int network_fd(const struct run *r)
{
	return r->egress.control;
}

/* For a job, or for a session. */
static bool only_waits(const struct run *r)
{
	if (r->kernel.on)
		return r->order->kernel->waits && r->kernel.id[0] == '\0';
	return r->ahead.on && r->phase <= PHASE_IDLE;
}

void network_lost(struct run *r)
{
	struct err e;

	if (egress_check(&r->egress, &e) == 0)
		return;
	network_down(r, &e);
	/* It waits for nothing any more. */
	if (only_waits(r))
		run_end(r, RUN_END_FAILED, e.msg);
}

void network_close(struct run *r)
{
	egress_close(&r->egress);
}
