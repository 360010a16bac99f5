/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreters that wait for a kernel session. They have booted with an empty
 * workspace of their own, and have no slot until they are a session's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/kernel_int.h"
#include "runner/memory.h"
#include "runner/server_int.h"

/* What is the host's fault, or was given up for memory, is not tried again at
 * once. */
#define RETRY_US 5000000u

/* Before the first session: what has most to load. */
static void first_kind(const struct server *s, struct kernel_kind *ret)
{
	const struct runtime *found = NULL;

	for (size_t i = 0; i < s->registry->count; i++) {
		const struct runtime *rt = &s->registry->runtimes[i];

		if (rt->available && rt->kernel &&
		    (found == NULL ||
			(found->preload[0] == NULL && rt->preload[0] != NULL)))
			found = rt;
	}
	*ret = (struct kernel_kind){.network = s->config->allow_network};
	if (found == NULL)
		return;
	(void)snprintf(ret->runtime, sizeof ret->runtime, "%s", found->name);
	(void)snprintf(ret->version, sizeof ret->version, "%s", found->version);
}

static bool same_kind(const struct kernel_kind *a, const struct kernel_kind *b)
{
	return strcmp(a->runtime, b->runtime) == 0 &&
	       strcmp(a->version, b->version) == 0 && a->network == b->network;
}

struct kernel_kind kernel_kind_of(
    const struct server *s, const struct kernel *k)
{
	struct kernel_kind kind = {
	    .network = k->network && s->config->allow_network};

	(void)snprintf(kind.runtime, sizeof kind.runtime, "%s", k->runtime);
	(void)snprintf(kind.version, sizeof kind.version, "%s", k->version);
	return kind;
}

static bool is_spare(const struct worker *w)
{
	return w->kind == WORKER_KERNEL && w->kernel == NULL &&
	       w->spare[0] != '\0' && !w->kernel_dropped;
}

static void drop_spare(struct worker *w)
{
	const uint32_t gone = RUN_CONTROL_GONE;

	w->kernel_dropped = true;
	w->seat.waits = false;
	(void)send(
	    w->source.fd, &gone, sizeof gone, MSG_NOSIGNAL | MSG_DONTWAIT);
	worker_must_end(w);
}

void kernels_drop_waiting(struct server *s)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link)
		if (is_spare(w))
			drop_spare(w);
	s->kernels.kind.runtime[0] = '\0';
	s->kernels.retry_us = 0;
}

void kernels_drop_offline(struct server *s)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link)
		if (is_spare(w) && w->offline)
			drop_spare(w);
}

void kernels_waiting_lost(
    struct server *s, struct worker *w, const struct run_report *r)
{
	log_warn("a kernel that waited for a session is lost: %s",
	    r != NULL && r->why[0] != '\0' ? r->why : "it was killed");
	w->seat.waits = false;
	s->kernels.retry_us = clock_us() + RETRY_US;
}

bool kernels_drop_one(struct server *s)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link) {
		if (!is_spare(w))
			continue;
		log_info("memory is short: no kernel waits for a session");
		drop_spare(w);
		s->kernels.retry_us = clock_us() + RETRY_US;
		return true;
	}
	return false;
}

static int boot_spare(struct server *s, struct err *e)
{
	const struct kernel_kind *kind = &s->kernels.kind;
	const struct runtime *rt =
	    kernel_runtime(s, kind->runtime, kind->version, e);
	struct kernel_order kernel = {.waits = true};
	struct step step = {0};
	struct run_order order = {.config = s->config,
	    .runtime = rt,
	    .kernel = &kernel,
	    .egress = kind->network ? s->egress : NULL,
	    .step = &step,
	    .client_fd = -1};
	char name[WS_NAME_SIZE];
	struct worker *w = NULL;
	int rc;

	if (rt == NULL)
		return -ENOENT;
	kernel.limits = kernel_limits(s, rt);
	kernel_set_disk(s, &kernel);
	if ((rc = workspaces_spare(s, name, &step, e)) < 0 ||
	    (rc = worker_kernel(s, &order, &w, e)) < 0)
		return rc;
	(void)snprintf(w->spare, sizeof w->spare, "%s", name);
	w->spare_kind = *kind;
	w->memory_bytes =
	    worker_memory(s, &kernel.limits, order.egress != NULL);
	return 0;
}

/* One at a time, and only when nobody needs the processor for a run. */
void kernels_keep_waiting(struct server *s, uint64_t now_us)
{
	struct kernels *ks = &s->kernels;
	struct worker *w = NULL;
	uint32_t have = 0;
	struct err e;

	if (ks->kind.runtime[0] == '\0')
		first_kind(s, &ks->kind);
	TAILQ_FOREACH (w, &s->workers, link) {
		if (!is_spare(w))
			continue;
		if (!same_kind(&w->spare_kind, &ks->kind))
			drop_spare(w);
		else if (!w->seat.waits)
			return; /* it boots */
		else
			have++;
	}
	if (!s->config->warm || have >= s->config->kernel_warm ||
	    ks->kind.runtime[0] == '\0' || s->config->kernel_slots == 0 ||
	    !s->workspaces.usable || s->health != HEALTH_GOOD ||
	    now_us < ks->retry_us || s->admit.running > 0 ||
	    s->admit.queued > 0 || health_check(s, &e) < 0 ||
	    !memory_has_room(s, ks->spare_bytes))
		return;
	if (boot_spare(s, &e) < 0) {
		log_warn("no kernel waits: %s", e.msg);
		ks->retry_us = now_us + RETRY_US;
	}
}

struct worker *kernels_find_spare(
    const struct server *s, const struct kernel_kind *kind)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link)
		if (is_spare(w) && w->seat.waits &&
		    same_kind(&w->spare_kind, kind))
			return w;
	return NULL;
}
