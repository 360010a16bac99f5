/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernels are resident. A slot is taken by whoever has a process, from its
 * fork until nothing is left of it. Interpreters that wait for a session
 * (kernel_spare.c) have none until they are a session's; who gets one that is free,
 * and who makes room, is kernel_room.c's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/payload.h"
#include "runner/kernel_int.h"
#include "runner/server_int.h"

static uint64_t seconds(uint32_t n)
{
	return (uint64_t)n * 1000000u;
}

const struct runtime *kernel_runtime(const struct server *s, const char *name,
    const char *version, struct err *e)
{
	return registry_find(
	    s->registry, name, strlen(name), version, strlen(version), e);
}

struct limits kernel_limits(const struct server *s, const struct runtime *rt)
{
	struct limits l = rt->limits;

	l.memory_bytes = (uint64_t)s->config->kernel_mem_mb << 20;
	return l;
}

void kernel_set_disk(struct server *s, struct kernel_order *ret)
{
	if (!s->kernels.on_disk)
		return;
	ret->checkpoints = &s->kernels.checkpoints;
	ret->stamps = &s->kernels.stamps;
}

/* ---- into a slot --------------------------------------------------------- */

static void take_worker(struct server *s, struct kernel *k, struct worker *w)
{
	k->worker = w;
	w->kernel = k;
	w->kernel_slot = true;
	s->kernels.used++;
	workspaces_mount(s, &w->mount, k->workspace, k->volume);
}

struct worker *kernels_adoptable(const struct server *s, const struct kernel *k)
{
	const struct kernel_kind kind = kernel_kind_of(s, k);

	/* A list of names is longer than its length. */
	if (k->state != KERNEL_STARTING || k->volume != NULL ||
	    k->allow.len > sizeof(uint32_t))
		return NULL;
	return kernels_find_spare(s, &kind);
}

/* An interpreter that waits becomes k's: its spare workspace is put in the place
 * of the session's, which is empty. */
static bool adopt(struct server *s, struct kernel *k)
{
	const uint32_t word = RUN_CONTROL_ADOPT;
	struct kernel_mail *mail;
	struct worker *w = kernels_adoptable(s, k);
	struct err e;

	if (w == NULL)
		return false;
	mail = kernel_mail_in(w->seat.mailbox);
	(void)snprintf(mail->id, sizeof mail->id, "%s", k->workspace->id);
	if (workspaces_adopt(s, w->spare, k->workspace, &mail->step, &e) < 0) {
		log_info("a waiting kernel is not used: %s", e.msg);
		return false;
	}
	if (send(w->source.fd, &word, sizeof word,
		MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof word)
		return false; /* just dying; the workspace stays k's */
	w->spare[0] = '\0';
	w->seat.waits = false;
	take_worker(s, k, w);
	s->kernels.status.created_total++;
	kernels_resident(s, k, &w->report);
	return true;
}

static int boot(struct server *s, struct kernel *k, struct err *e)
{
	const struct runtime *rt = kernel_runtime(s, k->runtime, k->version, e);
	struct kernel_order kernel = {0};
	cleanup_free struct blob *allow = NULL;
	struct reader names = {k->allow.data, k->allow.len, false};
	struct step step = {0};
	struct run_order order = {.config = s->config,
	    .runtime = rt,
	    .kernel = &kernel,
	    .step = &step,
	    .client_fd = -1};
	struct worker *w = NULL;
	int rc;

	if (rt == NULL)
		return -ENOENT;
	kernel.restore = k->state == KERNEL_HIBERNATED;
	kernel.online = kernel.restore && k->wired;
	/* As it began: a restored sandbox is what it was. */
	if (kernel.restore ? k->wired : k->network)
		order.egress = s->egress;
	kernel.limits = kernel_limits(s, rt);
	if ((rc = get_strings(&names, LIMIT_ALLOW, "allow", &allow,
		 &kernel.allow_count, e)) < 0)
		return rc;
	/* No names would be all names. */
	if (!reader_done(&names))
		return err_set(e, ERR_INTERNAL, EBADMSG,
		    "the names that it may reach are lost");
	if ((rc = workspaces_spaces(s, k->workspace, k->volume, &step, e)) < 0)
		return rc;
	kernel.allow = allow;
	kernel.id = k->workspace->id;
	kernel_set_disk(s, &kernel);
	if ((rc = worker_kernel(s, &order, &w, e)) < 0)
		return rc;
	w->memory_bytes =
	    worker_memory(s, &kernel.limits, order.egress != NULL);
	take_worker(s, k, w);
	k->restoring = kernel.restore;
	k->resident_us = clock_us();
	s->kernels.status.created_total += kernel.restore ? 0 : 1;
	return 0;
}

void kernel_launch(struct server *s, struct kernel *k)
{
	struct err e;

	k->wants_slot = false;
	s->kernels.kind = kernel_kind_of(s, k);
	if (adopt(s, k))
		return;
	if (boot(s, k, &e) == 0)
		return;
	log_error("the kernel of session %s: %s", k->workspace->id, e.msg);
	kernel_fail_waiting(s, k, e.kind, 0, e.msg);
	if (k->state == KERNEL_STARTING)
		kernel_undo(s, k);
}

void kernel_want(struct server *s, struct kernel *k)
{
	if (!k->wants_slot) {
		k->wants_slot = true;
		k->wanted_us = clock_us();
	}
	kernels_tick(s, clock_us());
}

bool kernel_is_idle(const struct kernel *k)
{
	return k->state == KERNEL_RESIDENT && !k->ending && !k->saving &&
	       !k->workspace->turn.held;
}

/* ---- the end of a life --------------------------------------------------- */

/* Idle so long, it goes to the disk; or ends, if it cannot go there. */
static uint64_t idle_us(const struct server *s)
{
	const struct config *c = s->config;
	const bool early = s->kernels.on_disk && c->kernel_hibernate_sec > 0 &&
			   c->kernel_hibernate_sec < c->kernel_idle_sec;

	return seconds(early ? c->kernel_hibernate_sec : c->kernel_idle_sec);
}

static uint64_t life_end_us(const struct server *s, const struct kernel *k)
{
	const uint64_t life = seconds(s->config->kernel_max_life_sec);

	return k->resident_us + (life > k->life_us ? life - k->life_us : 0);
}

/* One that could not be saved is tried again, but not beyond this. */
static uint64_t idle_end_us(const struct server *s, const struct kernel *k)
{
	return k->used_us + seconds(s->config->kernel_idle_sec);
}

/* When something is to be done about one that is idle. */
static uint64_t due_us(const struct server *s, const struct kernel *k)
{
	const uint64_t life = life_end_us(s, k);
	uint64_t idle = k->used_us + idle_us(s);

	if (idle < k->pinned_until_us)
		idle = k->pinned_until_us;
	if (k->reason[0] != '\0' && idle > idle_end_us(s, k))
		idle = idle_end_us(s, k);
	return idle < life ? idle : life;
}

static void end_idle(struct server *s, struct kernel *k, bool idle)
{
	char why[128];

	(void)snprintf(why, sizeof why,
	    idle ? "it was idle for %u seconds and could not be put on disk"
		 : "it has lived for %u seconds",
	    idle ? s->config->kernel_idle_sec : s->config->kernel_max_life_sec);
	kernel_stop(s, k, idle ? KERNEL_DEATH_IDLE : KERNEL_DEATH_LIFE, why);
}

static void end_old(struct server *s, uint64_t now_us)
{
	struct kernel *k = NULL;

	TAILQ_FOREACH (k, &s->kernels.list, link) {
		const bool late = now_us >= idle_end_us(s, k);

		if (!kernel_is_idle(k) || now_us < due_us(s, k))
			continue;
		if (now_us >= life_end_us(s, k))
			end_idle(s, k, false);
		else if (kernel_may_save(s, k) &&
			 (k->reason[0] == '\0' || !late))
			(void)kernel_hibernate(s, k);
		else if (late)
			end_idle(s, k, true);
	}
}

void kernels_tick(struct server *s, uint64_t now_us)
{
	if (s->draining)
		return;
	end_old(s, now_us);
	kernels_serve_wanting(s, now_us);
	kernels_keep_waiting(s, now_us);
}

uint64_t kernels_due_us(const struct server *s)
{
	const struct kernel *k = NULL;
	uint64_t first;

	if (s->draining)
		return UINT64_MAX;
	first = kernels_refuse_us(s);
	TAILQ_FOREACH (k, &s->kernels.list, link)
		if (kernel_is_idle(k) && due_us(s, k) < first)
			first = due_us(s, k);
	return first;
}
