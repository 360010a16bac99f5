/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. pool_tick() does one thing at a time and comes again when
 * that had its effect: gives up what is too old or what memory is needed for,
 * boots what demand.h asks for. A boot must not slow who is here: none begins
 * while somebody queues or no slot is free, there are no more at once than idle
 * CPUs (and one), and each has a low share of the CPU until it is done or
 * claimed. A request for which nothing waits takes a sandbox of its kind that is
 * still booting; so under load, too, no boot is for nothing.
 */
#include "runner/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/memory.h"
#include "runner/pool_int.h"
#include "runner/predict.h"
#include "runner/server_int.h"

/* A sandbox that waited so long is replaced: what its kernel and interpreter have
 * collected, clocks and caches, is not to grow old. */
#define AGE_MAX_US 900000000u

/* Runs that have just got their sandboxes go first: most are through by then. So
 * long after the last of them, and not longer after the first. */
#define REFILL_DELAY_US 25000u
#define REFILL_DELAY_MAX_US 100000u

/* Demand fades without an event. */
#define LOOK_EVERY_US 30000000u

/* After a boot that failed, or a sandbox that died while it waited: doubled up to
 * the last, and as at first when nothing was wrong for a while. */
#define BACKOFF_FIRST_US 1000000u
#define BACKOFF_LAST_US 60000000u
#define BACKOFF_FORGET_US 120000000u

void pool_poke(struct server *s, uint64_t delay_us)
{
	uint64_t at = clock_us() + delay_us;

	if (at < s->pool.look_us)
		s->pool.look_us = at;
}

void pool_done(struct pool *p)
{
	demand_done(&p->demand);
}

/* ---- giving up ---------------------------------------------------------- */

static void leave_seat(struct server *s, struct worker *w)
{
	struct seat *seat = &w->seat;

	if (seat->entry == NULL)
		return;
	seat->entry->have--;
	seat->entry = NULL;
	if (!seat->waits)
		s->pool.booting--;
}

void pool_drop(struct server *s, struct worker *w)
{
	leave_seat(s, w);
	s->pool.status.dropped_total++;
	worker_let_go(w);
}

void pool_empty(struct server *s)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link)
		if (w->kind == WORKER_AHEAD)
			pool_drop(s, w);
}

struct worker *pool_find_seat(
    const struct server *s, const struct demand_entry *entry)
{
	struct worker *booting = NULL;
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link) {
		if (w->kind != WORKER_AHEAD || w->seat.entry != entry)
			continue;
		if (w->seat.waits)
			return w;
		if (booting == NULL)
			booting = w;
	}
	return booting;
}

/* No step has come any more. */
static bool is_in_vain(const struct demand_entry *entry, uint64_t now_us)
{
	return entry->kind.session != NULL &&
	       now_us - entry->seen_us >= DEMAND_SESSION_IDLE_US;
}

static void drop_old(struct server *s, uint64_t now_us)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link) {
		if (w->kind != WORKER_AHEAD || !w->seat.waits)
			continue;
		if (is_in_vain(w->seat.entry, now_us)) {
			w->seat.entry->in_vain = true;
			pool_drop(s, w);
		} else if (now_us - w->seat.since_us >= AGE_MAX_US) {
			pool_drop(s, w);
		}
	}
}

void pool_drop_offline(struct server *s)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link) {
		if (w->kind != WORKER_AHEAD || !w->offline)
			continue;
		pool_drop(s, w);
		pool_poke(s, 0);
	}
}

/* ---- images ------------------------------------------------------------- */

static struct image_stamp look_at_image(
    const struct config *c, const struct runtime *rt)
{
	struct image_stamp stamp = {0};
	char path[4096];
	struct stat st;
	int n = snprintf(
	    path, sizeof path, "%s/%s.digest", c->images_dir, rt->image);

	if (stat(rt->rootfs, &st) == 0) {
		stamp.dev = st.st_dev;
		stamp.tree = st.st_ino;
	}
	if (n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0) {
		stamp.digest = st.st_ino;
		stamp.digest_time = st.st_mtim;
	}
	return stamp;
}

static bool same_image(const struct image_stamp *a, const struct image_stamp *b)
{
	return a->dev == b->dev && a->tree == b->tree &&
	       a->digest == b->digest &&
	       a->digest_time.tv_sec == b->digest_time.tv_sec &&
	       a->digest_time.tv_nsec == b->digest_time.tv_nsec;
}

void pool_check_images(struct server *s)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link) {
		struct image_stamp now;

		if (w->kind != WORKER_AHEAD)
			continue;
		now = look_at_image(s->config, w->seat.entry->kind.runtime);
		if (!same_image(&now, &w->seat.image))
			pool_drop(s, w);
	}
}

void pool_set_registry(struct server *s, const struct registry *fresh)
{
	const struct config *c = s->config;
	struct demand d = {.seats = c->warm_max,
	    .seats_of_one = c->concurrency,
	    .bytes = (uint64_t)c->warm_mem_mb << 20};
	struct err e;

	pool_empty(s);
	if (c->warm && demand_init(&d, fresh, c->allow_network, &e) < 0)
		log_error("no sandbox is booted ahead: %s", e.msg);
	demand_inherit(&d, &s->pool.demand);
	demand_done(&s->pool.demand);
	s->pool.demand = d;
	s->pool.failures = 0;
	s->pool.retry_us = 0;
	pool_poke(s, 0);
}

/* ---- boots -------------------------------------------------------------- */

/* What fails together has one cause and counts once. */
static void failed(struct server *s)
{
	const uint64_t now_us = clock_us();
	struct pool *p = &s->pool;
	uint64_t wait_us = BACKOFF_FIRST_US;

	p->status.boot_failures_total++;
	if (now_us < p->retry_us)
		return;
	if (now_us - p->retry_us > BACKOFF_FORGET_US)
		p->failures = 0;
	for (unsigned i = 0; i < p->failures && wait_us < BACKOFF_LAST_US; i++)
		wait_us *= 2;
	if (wait_us > BACKOFF_LAST_US)
		wait_us = BACKOFF_LAST_US;
	p->failures++;
	p->retry_us = now_us + wait_us;
	pool_poke(s, wait_us);
}

static int step_of(struct server *s, const struct demand_kind *kind,
    struct step *ret, struct err *e)
{
	const struct turn t = {
	    .things = {&kind->session->turn,
		kind->volume != NULL ? &kind->volume->turn : NULL}};

	return workspaces_step(s, &t, ret, e);
}

static void boot(struct server *s, struct demand_entry *entry)
{
	struct run_order order = {.config = s->config,
	    .runtime = entry->kind.runtime,
	    .preload = entry->kind.preload,
	    .egress = entry->kind.network ? s->egress : NULL,
	    .by_name = entry->kind.by_name,
	    .client_fd = -1};
	const struct image_stamp image =
	    look_at_image(s->config, entry->kind.runtime);
	struct worker *w = NULL;
	struct step mounts;
	struct err e;
	int rc = 0;

	if (entry->kind.session != NULL) {
		rc = step_of(s, &entry->kind, &mounts, &e);
		order.step = &mounts;
	}
	if (rc < 0 || worker_ahead(s, &order, &w, &e) < 0) {
		log_error("booting ahead: %s", e.msg);
		failed(s);
		return;
	}
	w->seat.entry = entry;
	w->seat.since_us = clock_us();
	w->seat.image = image;
	entry->have++;
	s->pool.taken_us = 0;
	s->pool.booting++;
	s->pool.status.boots_total++;
}

/* Told when it begins and when it ends, not for each sandbox. */
static void note_warmth(struct demand_entry *entry, const char *why)
{
	const char *name = entry->kind.runtime->name;

	/* What a session's files do to its own is no news. */
	if (entry->kind.session != NULL)
		return;
	if (why[0] != '\0' && !entry->lukewarm)
		log_warn("%s: %s", name, why);
	else if (why[0] == '\0' && entry->lukewarm)
		log_info("%s: its interpreter waits again", name);
	entry->lukewarm = why[0] != '\0';
}

void pool_ready(struct server *s, struct worker *w, const struct run_report *r)
{
	struct seat *seat = &w->seat;

	histogram_add(&s->status.phases[STATUS_AHEAD], r->boot_us);
	if (seat->entry == NULL || seat->waits)
		return;
	note_warmth(seat->entry, r->why);
	seat->entry->boot_us = r->boot_us;
	seat->waits = true;
	seat->since_us = clock_us();
	w->offline = seat->entry->kind.network && r->network != RUN_NETWORK_UP;
	if (r->memory_bytes > 0)
		seat->bytes = (uint64_t)r->memory_bytes;
	else
		seat->bytes = seat->entry->bytes;
	seat->entry->bytes = seat->bytes;
	w->deadline_us = UINT64_MAX;
	s->pool.booting--;
	pool_poke(s, 0);
}

void pool_lost(struct server *s, struct worker *w, const struct run_report *r)
{
	struct demand_entry *entry = w->seat.entry;

	log_warn("a sandbox that was %s for %s is lost: %s",
	    w->seat.waits ? "waiting" : "booted", entry->kind.runtime->name,
	    r != NULL && r->why[0] != '\0' ? r->why : "it was killed");
	leave_seat(s, w);
	/* Its files may be the reason: nobody else has less for that. */
	if (entry->kind.session != NULL) {
		entry->in_vain = true;
		return;
	}
	failed(s);
	/* Perhaps none boots any more. */
	health_doubt(s);
}

/* ---- the tick ----------------------------------------------------------- */

static bool may_boot(const struct server *s, uint64_t now_us)
{
	const struct pool *p = &s->pool;
	const struct admit *a = &s->admit;
	uint32_t idle = p->cpus > a->running ? p->cpus - a->running : 0;

	return s->health == HEALTH_GOOD && now_us >= p->retry_us &&
	       now_us >= p->refill_us && a->queued == 0 &&
	       a->running < a->slots && p->booting < (idle > 0 ? idle : 1);
}

static void step(struct server *s, uint64_t now_us)
{
	struct demand_entry *entry;
	struct worker *w = NULL;
	struct err e;

	switch (demand_next(&s->pool.demand, now_us, &entry)) {
	case DEMAND_NOTHING:
		break;
	case DEMAND_DROP:
		w = pool_find_seat(s, entry);
		if (w != NULL)
			pool_drop(s, w);
		pool_poke(s, 0);
		break;
	case DEMAND_BOOT:
		if (health_check(s, &e) < 0 ||
		    !memory_has_room(s, entry->bytes))
			break;
		boot(s, entry);
		pool_poke(s, 0);
		break;
	}
}

void pool_tick(struct server *s, uint64_t now_us)
{
	struct pool *p = &s->pool;

	if (now_us < p->look_us)
		return;
	p->look_us = UINT64_MAX;
	if (s->draining)
		return;
	p->look_us = now_us + LOOK_EVERY_US;
	if (p->retry_us > now_us && p->retry_us < p->look_us)
		p->look_us = p->retry_us;
	if (p->refill_us > now_us && p->refill_us < p->look_us)
		p->look_us = p->refill_us;
	drop_old(s, now_us);
	if (!memory_look(s, now_us, &p->look_us) && p->demand.count > 0 &&
	    may_boot(s, now_us))
		step(s, now_us);
}

uint64_t pool_due_us(const struct server *s)
{
	return s->pool.look_us;
}

/* ---- the claim ---------------------------------------------------------- */

static int send_claim(
    const struct worker *w, const struct claim *claim, int client_fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct claim copy = *claim;
	struct iovec iov = {&copy, sizeof copy};
	struct msghdr m = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof client_fd);
	memcpy(CMSG_DATA(c), &client_fd, sizeof client_fd);
	return sendmsg(w->source.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) ==
		       (ssize_t)sizeof copy
		   ? 0
		   : -errno;
}

int pool_hand_over(struct worker *w, const struct client *c, uint64_t queue_us)
{
	const size_t len = c->in.len - PROTO_HEADER;
	const struct claim claim = {
	    .queue_us = queue_us, .slot_us = clock_us(), .len = (uint32_t)len};

	memcpy(w->seat.mailbox, c->in.data + PROTO_HEADER, len);
	return send_claim(w, &claim, c->source.fd);
}

static bool give(
    struct server *s, struct worker *w, struct client *c, uint64_t queue_us)
{
	const struct run_order order = {.config = s->config, .job = &c->job};

	if (pool_hand_over(w, c, queue_us) < 0)
		return false; /* just dying: its end is on its way */
	leave_seat(s, w);
	workspaces_step_begins(s, &c->turn, &w->turn);
	w->kind = WORKER_RUN;
	w->holds_slot = true;
	w->deadline_us = clock_us() + supervisor_max_us(&order);
	w->memory_bytes = worker_memory(s, &c->job.limits, c->job.network);
	return true;
}

/* Who still loads all that the runtime preloads may take longer than a program
 * that loads what it needs: not before half of that is done. */
static bool is_ahead(const struct worker *w)
{
	const struct demand_entry *entry = w->seat.entry;

	if (w->seat.waits || !entry->kind.preload)
		return true;
	return entry->boot_us > 0 &&
	       clock_us() - w->seat.since_us >= entry->boot_us / 2;
}

/* Of the kind: who waits comes before who boots, the eldest of each first. */
static bool give_to_any(struct server *s, const struct demand_entry *entry,
    bool waits, struct client *c, uint64_t queue_us)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link)
		if (w->kind == WORKER_AHEAD && w->seat.entry == entry &&
		    w->seat.waits == waits && is_ahead(w) &&
		    give(s, w, c, queue_us))
			return true;
	return false;
}

static void hold_refill(struct server *s)
{
	const uint64_t now_us = clock_us();
	struct pool *p = &s->pool;

	if (p->taken_us == 0)
		p->taken_us = now_us;
	p->refill_us = now_us + REFILL_DELAY_US;
	if (p->refill_us > p->taken_us + REFILL_DELAY_MAX_US)
		p->refill_us = p->taken_us + REFILL_DELAY_MAX_US;
	pool_poke(s, REFILL_DELAY_US);
}

bool pool_claim_kind(struct server *s, struct demand_entry *entry,
    struct client *c, uint64_t queue_us)
{
	struct pool_status *st = &s->pool.status;

	demand_note(entry, clock_us());
	hold_refill(s);
	if (give_to_any(s, entry, true, c, queue_us)) {
		st->hits_total++;
		return true;
	}
	if (give_to_any(s, entry, false, c, queue_us)) {
		st->adopted_total++;
		return true;
	}
	st->misses_total++;
	return false;
}

bool pool_claim(struct server *s, const struct runtime *rt, struct client *c,
    uint64_t queue_us)
{
	const bool network = c->job.network && s->config->allow_network;
	const struct demand_kind kind = {.runtime = rt,
	    .preload = predict_preload(rt, &c->job),
	    .network = network,
	    .by_name = network && c->job.allow_count > 0,
	    .session = workspaces_of(c->turn.things[0]),
	    .volume = workspaces_of(c->turn.things[1])};
	struct demand_entry *entry;

	if (kind.session != NULL)
		return pool_claim_step(s, &kind, c, queue_us);
	entry = demand_find(&s->pool.demand, &kind);
	return entry != NULL && pool_claim_kind(s, entry, c, queue_us);
}

void pool_status(const struct server *s, struct pool_status *ret)
{
	const uint64_t now_us = clock_us();
	const struct worker *w = NULL;

	*ret = s->pool.status;
	TAILQ_FOREACH (w, &s->workers, link) {
		if (w->kind != WORKER_AHEAD)
			continue;
		if (!w->seat.waits) {
			ret->booting++;
			continue;
		}
		ret->waiting++;
		ret->memory_bytes += w->seat.bytes;
		if (now_us - w->seat.since_us > ret->oldest_us)
			ret->oldest_us = now_us - w->seat.since_us;
	}
}
