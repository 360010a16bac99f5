/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernels are resident. A slot is taken by whoever has a process, from its
 * fork until nothing is left of it. Who wants one and finds none gets it when one
 * is free, in the order of coming, or is refused when that takes too long.
 * Interpreters that wait for a session have no slot until they are a session's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/payload.h"
#include "runner/server_int.h"

/* What is the host's fault is not tried again at once. */
#define RETRY_US 5000000u

/* Idle so long, a kernel that cannot be saved gives its slot to who needs it. */
#define UNSAVABLE_US 300000000u

/* To who came when all slots were in use. */
#define RETRY_AFTER_S 5u

static uint64_t seconds(uint32_t n)
{
	return (uint64_t)n * 1000000u;
}

static const struct runtime *runtime_of(const struct server *s,
    const char *name, const char *version, struct err *e)
{
	return registry_find(
	    s->registry, name, strlen(name), version, strlen(version), e);
}

static struct limits limits_of(const struct server *s, const struct runtime *rt)
{
	struct limits l = rt->limits;

	l.memory_bytes = (uint64_t)s->config->kernel_mem_mb << 20;
	return l;
}

static void set_disk(struct server *s, struct kernel_order *ret)
{
	if (!s->kernels.on_disk)
		return;
	ret->checkpoints = &s->kernels.checkpoints;
	ret->stamps = &s->kernels.stamps;
}

/* ---- interpreters that wait ---------------------------------------------- */

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

static struct kernel_kind kind_of(
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

void kernels_waiting_lost(
    struct server *s, struct worker *w, const struct run_report *r)
{
	log_warn("a kernel that waited for a session is lost: %s",
	    r != NULL && r->why[0] != '\0' ? r->why : "it was killed");
	w->seat.waits = false;
	s->kernels.retry_us = clock_us() + RETRY_US;
}

static int boot_spare(struct server *s, struct err *e)
{
	const struct kernel_kind *kind = &s->kernels.kind;
	const struct runtime *rt =
	    runtime_of(s, kind->runtime, kind->version, e);
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
	kernel.limits = limits_of(s, rt);
	set_disk(s, &kernel);
	if ((rc = workspaces_spare(s, name, &step, e)) < 0 ||
	    (rc = worker_kernel(s, &order, &w, e)) < 0)
		return rc;
	(void)snprintf(w->spare, sizeof w->spare, "%s", name);
	w->spare_kind = *kind;
	w->memory_bytes = worker_memory(s, &kernel.limits);
	return 0;
}

/* One at a time, and only when nobody needs the processor for a run. */
static void keep_waiting(struct server *s, uint64_t now_us)
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
	    s->admit.queued > 0 || health_check(s, &e) < 0 || !pool_has_room(s))
		return;
	if (boot_spare(s, &e) < 0) {
		log_warn("no kernel waits: %s", e.msg);
		ks->retry_us = now_us + RETRY_US;
	}
}

static struct worker *find_spare(
    const struct server *s, const struct kernel_kind *kind)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link)
		if (is_spare(w) && w->seat.waits &&
		    same_kind(&w->spare_kind, kind))
			return w;
	return NULL;
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

/* An interpreter that waits becomes k's: its spare workspace is put in the place
 * of the session's, which is empty. */
static bool adopt(struct server *s, struct kernel *k)
{
	const struct kernel_kind kind = kind_of(s, k);
	const uint32_t word = RUN_CONTROL_ADOPT;
	struct kernel_mail *mail;
	struct worker *w = find_spare(s, &kind);
	struct err e;

	if (w == NULL || k->volume != NULL || k->allow.len > 4)
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
	const struct runtime *rt = runtime_of(s, k->runtime, k->version, e);
	struct kernel_order kernel = {0};
	cleanup_free struct blob *allow = NULL;
	struct reader names = {k->allow.data, k->allow.len, false};
	struct step step = {0};
	struct run_order order = {.config = s->config,
	    .runtime = rt,
	    .kernel = &kernel,
	    .egress = k->network ? s->egress : NULL,
	    .step = &step,
	    .client_fd = -1};
	struct worker *w = NULL;
	int rc;

	if (rt == NULL)
		return -ENOENT;
	kernel.limits = limits_of(s, rt);
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
	kernel.restore = k->state == KERNEL_HIBERNATED;
	set_disk(s, &kernel);
	if ((rc = worker_kernel(s, &order, &w, e)) < 0)
		return rc;
	w->memory_bytes = worker_memory(s, &kernel.limits);
	take_worker(s, k, w);
	k->restoring = kernel.restore;
	k->resident_us = clock_us();
	s->kernels.status.created_total += kernel.restore ? 0 : 1;
	return 0;
}

static void start(struct server *s, struct kernel *k)
{
	struct err e;

	k->wants_slot = false;
	s->kernels.kind = kind_of(s, k);
	if (k->state == KERNEL_STARTING && adopt(s, k))
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

static uint64_t refuse_at_us(const struct server *s, const struct kernel *k)
{
	return k->wanted_us + (uint64_t)s->config->acquire_wait_ms * 1000;
}

static struct kernel *next_wanting(const struct server *s)
{
	struct kernel *k = NULL, *first = NULL;

	TAILQ_FOREACH (k, &s->kernels.list, link)
		if (k->wants_slot &&
		    (first == NULL || k->wanted_us < first->wanted_us))
			first = k;
	return first;
}

static bool is_idle(const struct kernel *k)
{
	return k->state == KERNEL_RESIDENT && !k->ending && !k->saving &&
	       !k->workspace->turn.held;
}

/* What holds its slot only because it cannot be put on disk has it for a while,
 * and not for ever: nobody else would get in. True: one ends. */
static bool end_unsavable(struct server *s)
{
	const uint64_t now_us = clock_us();
	struct kernel *k = NULL, *found = NULL;

	TAILQ_FOREACH (k, &s->kernels.list, link)
		if (is_idle(k) && k->reason[0] != '\0' &&
		    now_us >= k->used_us + UNSAVABLE_US &&
		    (found == NULL || k->used_us < found->used_us))
			found = k;
	if (found == NULL)
		return false;
	kernel_stop(s, found, KERNEL_DEATH_IDLE,
	    "its slot was needed, and it could not be put on disk");
	return true;
}

/* Who was idle longest makes room, unless enough are about to. True: some will. */
static bool make_room(struct server *s)
{
	struct kernel *k = NULL, *found = NULL;
	const struct worker *w = NULL;
	unsigned wanting = 0, going = 0;

	TAILQ_FOREACH (k, &s->kernels.list, link) {
		wanting += k->wants_slot;
		going += k->worker != NULL &&
			 ((k->saving && k->copy == NULL) || k->ending);
		if (kernel_may_save(s, k) &&
		    (found == NULL || k->used_us < found->used_us))
			found = k;
	}
	TAILQ_FOREACH (w, &s->workers, link)
		going += w->kernel_slot && w->kernel == NULL;
	if (going >= wanting)
		return going > 0;
	if (found == NULL)
		return end_unsavable(s) || going > 0;
	if (!kernel_hibernate(s, found))
		return true; /* just dying */
	found->evicted = true;
	s->kernels.status.evictions_total++;
	return true;
}

static void serve_wanting(struct server *s, uint64_t now_us)
{
	struct kernel *k = NULL;

	while ((k = next_wanting(s)) != NULL) {
		/* Who wanted the step has left: it can stay where it is. */
		if (k->state == KERNEL_HIBERNATED && !kernel_is_wanted(s, k)) {
			k->wants_slot = false;
			continue;
		}
		if (s->kernels.used < s->config->kernel_slots) {
			start(s, k);
			continue;
		}
		if (make_room(s) || now_us < refuse_at_us(s, k))
			return;
		k->wants_slot = false;
		kernel_fail_waiting(s, k, ERR_TOO_MANY_KERNELS, RETRY_AFTER_S,
		    "all kernel slots are in use");
		if (k->state == KERNEL_STARTING)
			kernel_undo(s, k);
	}
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

		if (!is_idle(k) || now_us < due_us(s, k))
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
	serve_wanting(s, now_us);
	keep_waiting(s, now_us);
}

uint64_t kernels_due_us(const struct server *s)
{
	const uint64_t now_us = clock_us();
	uint64_t first = UINT64_MAX;
	const struct kernel *k = NULL;

	if (s->draining)
		return first;
	TAILQ_FOREACH (k, &s->kernels.list, link) {
		const uint64_t refuse_us = refuse_at_us(s, k);

		if (is_idle(k) && due_us(s, k) < first)
			first = due_us(s, k);
		/* Later than that, somebody is making room, and tells. */
		if (k->wants_slot && refuse_us > now_us && refuse_us < first)
			first = refuse_us;
	}
	return first;
}
