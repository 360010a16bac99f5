/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether we can run anything: the subtree is memory-capped (looked at when the
 * last look is a second old, since it takes some twenty system calls), and a
 * sandbox boots here (tried at start, after a run failed by our own fault, and
 * while runs have no network that should have one).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/server_int.h"

#define PROBE_RETRY_US 5000000u

/* While egress is down, another reason for it is logged so often. */
#define EGRESS_LOG_US 60000000u

/* And so often a sandbox is tried: an idle service would not find out that
 * egress is up again, as on a host that got its address late. */
#define EGRESS_RETRY_US 30000000u
#define CAP_EVERY_US 1000000u

static const struct runtime *first_available(const struct registry *r)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->runtimes[i].available)
			return &r->runtimes[i];
	return NULL;
}

int health_check_cap(struct server *s, struct err *e)
{
	const uint64_t now_us = clock_us();
	int rc;

	if (now_us < s->cap_until_us)
		return 0;
	rc = cgroup_check_cap(s->cgroup, e);
	if (rc < 0) {
		if (!s->cap_lacks)
			log_error("not ready: %s", e->msg);
		e->kind = ERR_SANDBOX_FAILED;
		s->cap_lacks = true;
		s->cap_bytes = 0;
		return rc;
	}
	s->cap_lacks = false;
	s->cap_bytes = cgroup_memory_cap(s->cgroup);
	s->cap_until_us = now_us + CAP_EVERY_US;
	return 0;
}

int health_check(struct server *s, struct err *e)
{
	int rc = health_check_cap(s, e);

	if (rc < 0)
		return rc;
	if (first_available(s->registry) == NULL)
		return err_set(e, ERR_SANDBOX_FAILED, ENOENT,
		    "no runtime has its image; see isobox-image");
	if (s->health == HEALTH_BAD)
		return err_set(e, ERR_SANDBOX_FAILED, EIO,
		    "no sandbox could be started: %s", s->health_reason);
	return 0;
}

static void set_bad(struct server *s, const char *why)
{
	s->health = HEALTH_BAD;
	(void)snprintf(s->health_reason, sizeof s->health_reason, "%s", why);
	s->next_probe_us = clock_us() + PROBE_RETRY_US;
}

uint64_t health_due_us(const struct server *s)
{
	return s->egress_probe_us < s->next_probe_us ? s->egress_probe_us
						     : s->next_probe_us;
}

void health_probe_due(struct server *s, uint64_t now_us)
{
	const struct runtime *rt;
	struct err e;

	if (s->probing || s->draining || now_us < health_due_us(s))
		return;
	s->egress_probe_us = UINT64_MAX;
	rt = first_available(s->registry);
	/* Without a cap not even a probe is held. */
	if (rt == NULL || health_check_cap(s, &e) < 0) {
		s->next_probe_us = now_us + PROBE_RETRY_US;
		return;
	}
	if (worker_probe(s, rt, &e) < 0) {
		log_error("probe: %s", e.msg);
		set_bad(s, e.msg);
		return;
	}
	s->probing = true;
	s->next_probe_us = UINT64_MAX;
}

void health_probe_result(struct server *s, const struct run_report *r)
{
	s->probing = false;
	if (r != NULL && r->end == RUN_END_EXIT) {
		if (s->health != HEALTH_GOOD)
			log_info("ready: a sandbox boots in %llu ms",
			    (unsigned long long)r->boot_us / 1000);
		s->health = HEALTH_GOOD;
		s->health_failures = 0;
		pool_poke(s, 0);
		return;
	}
	/* One may have been killed, or met the lack of memory that the run
	 * before it met: where sandboxes did boot, two must fail. */
	if (s->health == HEALTH_GOOD && s->health_failures++ == 0)
		health_doubt(s);
	else
		set_bad(s, r != NULL ? r->why : "the probe was killed");
}

void health_doubt(struct server *s)
{
	if (s->next_probe_us == UINT64_MAX)
		s->next_probe_us = clock_us();
}

void health_note_network(struct server *s, const struct run_report *r,
    uint64_t begun_us, bool was_run)
{
	struct runner_status *st = &s->status;
	const uint64_t now_us = clock_us();

	/* As its answer has it: what was lost later, it had. */
	if (was_run && r->had_network)
		st->egress_runs_total++;
	else if (was_run && r->network == RUN_NETWORK_DOWN)
		st->egress_refused_total++;
	if (r->network == RUN_NETWORK_UP) {
		if (st->egress != STATUS_EGRESS_UP)
			log_info("egress: filtered and verified");
		st->egress = STATUS_EGRESS_UP;
		s->egress_up_us = now_us;
		s->egress_probe_us = UINT64_MAX;
		pool_drop_offline(s);
		kernels_drop_offline(s);
		return;
	}
	/* What began earlier knows only what was so then. */
	if (r->network != RUN_NETWORK_DOWN || begun_us < s->egress_up_us)
		return;
	if (st->egress != STATUS_EGRESS_DOWN ||
	    (now_us >= s->egress_log_us &&
		strcmp(st->egress_reason, r->network_why) != 0)) {
		log_error("egress: runs have no network: %s", r->network_why);
		s->egress_log_us = now_us + EGRESS_LOG_US;
	}
	st->egress = STATUS_EGRESS_DOWN;
	if (s->egress_probe_us == UINT64_MAX)
		s->egress_probe_us = now_us + EGRESS_RETRY_US;
	(void)snprintf(
	    st->egress_reason, sizeof st->egress_reason, "%s", r->network_why);
}
