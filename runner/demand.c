/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/demand.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How much more another kind must be worth to get a seat that is taken. */
#define DROP_FACTOR 2u

#define VARIANTS 6u /* preload or not; no network, one, one by name */

/* ---- entries ------------------------------------------------------------ */

static uint64_t guess_bytes(const struct demand_kind *k)
{
	return k->preload ? DEMAND_GUESS_PRELOAD_BYTES : DEMAND_GUESS_BYTES;
}

static void add(struct demand *d, const struct demand_kind *k, bool usual)
{
	d->entries[d->count++] = (struct demand_entry){
	    .kind = *k,
	    .prior = usual && !k->preload ? DEMAND_PRIOR : 0,
	    .bytes = guess_bytes(k),
	};
}

static void add_runtime(
    struct demand *d, const struct runtime *rt, bool network)
{
	for (unsigned i = 0; i < VARIANTS; i++) {
		const struct demand_kind k = {.runtime = rt,
		    .preload = i % 2 != 0,
		    .network = i >= 2,
		    .by_name = i >= 4};

		if (k.preload && rt->preload[0] == NULL)
			continue;
		add(d, &k, k.network == network && !k.by_name);
	}
}

int demand_init(
    struct demand *d, const struct registry *r, bool network, struct err *e)
{
	d->count = 0;
	d->entries = calloc(r->count * VARIANTS + d->seats, sizeof *d->entries);
	if (d->entries == NULL)
		return err_sys(e, ENOMEM, "the pool's table");
	for (size_t i = 0; i < r->count; i++)
		if (r->runtimes[i].available &&
		    r->runtimes[i].warm != WARM_NONE)
			add_runtime(d, &r->runtimes[i], network);
	/* Those of sessions, free as yet. */
	d->count += d->seats;
	return 0;
}

void demand_done(struct demand *d)
{
	free(d->entries);
	d->entries = NULL;
	d->count = 0;
}

static bool same_but_reloaded(
    const struct demand_kind *a, const struct demand_kind *b)
{
	return a->runtime != NULL && b->runtime != NULL && a->session == NULL &&
	       b->session == NULL && a->preload == b->preload &&
	       a->network == b->network && a->by_name == b->by_name &&
	       strcmp(a->runtime->name, b->runtime->name) == 0 &&
	       strcmp(a->runtime->version, b->runtime->version) == 0;
}

void demand_inherit(struct demand *d, const struct demand *old)
{
	for (size_t i = 0; i < d->count; i++) {
		for (size_t j = 0; j < old->count; j++) {
			if (!same_but_reloaded(
				&d->entries[i].kind, &old->entries[j].kind))
				continue;
			d->entries[i].score = old->entries[j].score;
			d->entries[i].at_us = old->entries[j].at_us;
		}
	}
}

struct demand_entry *demand_find(
    const struct demand *d, const struct demand_kind *kind)
{
	for (size_t i = 0; i < d->count; i++) {
		struct demand_entry *e = &d->entries[i];

		if (e->kind.runtime == kind->runtime &&
		    e->kind.session == NULL &&
		    e->kind.preload == kind->preload &&
		    e->kind.network == kind->network &&
		    e->kind.by_name == kind->by_name)
			return e;
	}
	return NULL;
}

/* ---- sessions ----------------------------------------------------------- */

struct demand_entry *demand_session(
    const struct demand *d, const struct workspace *session)
{
	for (size_t i = 0; i < d->count; i++)
		if (session != NULL && d->entries[i].kind.session == session)
			return &d->entries[i];
	return NULL;
}

static bool is_for_sessions(const struct demand_entry *e)
{
	return e->kind.runtime == NULL || e->kind.session != NULL;
}

/* A free one, or else the one that is not used for the longest time. */
static struct demand_entry *session_slot(const struct demand *d)
{
	struct demand_entry *found = NULL;

	for (size_t i = 0; i < d->count; i++) {
		struct demand_entry *e = &d->entries[i];

		if (!is_for_sessions(e) || e->have > 0 || e->busy)
			continue;
		if (e->kind.runtime == NULL)
			return e;
		if (found == NULL || e->seen_us < found->seen_us)
			found = e;
	}
	return found;
}

/* As many as one takes that is nobody's. */
static uint64_t session_bytes(
    const struct demand *d, const struct demand_kind *kind)
{
	const struct demand_kind like = {.runtime = kind->runtime,
	    .preload = kind->preload,
	    .network = kind->network,
	    .by_name = kind->by_name};
	const struct demand_entry *e = demand_find(d, &like);

	return e != NULL ? e->bytes : guess_bytes(kind);
}

struct demand_entry *demand_session_add(
    struct demand *d, const struct demand_kind *kind)
{
	struct demand_entry *e = session_slot(d);

	if (e != NULL)
		*e = (struct demand_entry){
		    .kind = *kind, .bytes = session_bytes(d, kind)};
	return e;
}

void demand_session_preload(
    const struct demand *d, struct demand_entry *e, bool preload)
{
	if (e->kind.preload == preload)
		return;
	e->kind.preload = preload;
	e->bytes = session_bytes(d, &e->kind);
}

void demand_session_remove(struct demand_entry *e)
{
	assert(e->have == 0);
	*e = (struct demand_entry){0};
}

/* ---- scores ------------------------------------------------------------- */

/* Halved for each whole half-life, and in between on a straight line. */
static uint64_t decayed(uint64_t score, uint64_t age_us)
{
	uint64_t halvings = age_us / DEMAND_HALF_LIFE_US;
	uint64_t rest_us = age_us % DEMAND_HALF_LIFE_US;

	if (halvings >= 64)
		return 0;
	score >>= halvings;
	return score -
	       score * (rest_us / 1000) / (2 * (DEMAND_HALF_LIFE_US / 1000));
}

static uint64_t score_now(const struct demand_entry *e, uint64_t now_us)
{
	return decayed(e->score, now_us - e->at_us);
}

void demand_note(struct demand_entry *e, uint64_t now_us)
{
	e->score = score_now(e, now_us) + DEMAND_UNIT;
	e->at_us = now_us;
	if (now_us - e->seen_us < DEMAND_SESSION_IDLE_US)
		e->in_vain = false;
	e->seen_us = now_us;
}

/* What the n-th seat of a kind is worth. */
static uint64_t worth(const struct demand_entry *e, uint32_t n, uint64_t now_us)
{
	return (score_now(e, now_us) + e->prior) / n;
}

/* ---- seats -------------------------------------------------------------- */

uint64_t demand_bytes(const struct demand *d)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < d->count; i++)
		sum += d->entries[i].have * d->entries[i].bytes;
	return sum;
}

static uint32_t seats_taken(const struct demand *d)
{
	uint32_t n = 0;

	for (size_t i = 0; i < d->count; i++)
		n += d->entries[i].have;
	return n;
}

/* Sessions have their own bounds, within which they do not compete. */
static bool may_have_more(const struct demand *d, const struct demand_entry *e)
{
	uint64_t bytes = e->bytes;
	uint32_t seats = 1;

	if (e->kind.session == NULL)
		return e->have < d->seats_of_one && e->bytes <= d->bytes;
	for (size_t i = 0; i < d->count; i++) {
		if (d->entries[i].kind.session == NULL)
			continue;
		seats += d->entries[i].have;
		bytes += d->entries[i].have * d->entries[i].bytes;
	}
	return e->have == 0 && !e->busy && !e->in_vain &&
	       seats <= (d->seats + 1) / DEMAND_SESSION_PART &&
	       bytes <= d->bytes / DEMAND_SESSION_PART;
}

static bool fits(const struct demand *d, const struct demand_entry *e)
{
	return seats_taken(d) < d->seats &&
	       demand_bytes(d) + e->bytes <= d->bytes;
}

/* The kind that the next seat is worth most to; with `fitting`, of those that
 * there is room for. */
static struct demand_entry *best(
    const struct demand *d, uint64_t now_us, bool fitting)
{
	struct demand_entry *found = NULL;
	uint64_t most = DEMAND_LEAST;

	for (size_t i = 0; i < d->count; i++) {
		struct demand_entry *e = &d->entries[i];
		uint64_t w = worth(e, e->have + 1, now_us);

		if (w < most || !may_have_more(d, e) ||
		    (fitting && !fits(d, e)))
			continue;
		if (found != NULL && w == most)
			continue;
		found = e;
		most = w;
	}
	return found;
}

struct demand_entry *demand_least(const struct demand *d, uint64_t now_us)
{
	struct demand_entry *found = NULL;
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < d->count; i++) {
		struct demand_entry *e = &d->entries[i];

		if (e->have == 0 || worth(e, e->have, now_us) >= least)
			continue;
		found = e;
		least = worth(e, e->have, now_us);
	}
	return found;
}

/* Whether giving up every seat that is worth little enough makes room for one of
 * `e`: if not, none is given up. */
static bool room_can_be_made(
    const struct demand *d, const struct demand_entry *e, uint64_t now_us)
{
	const uint64_t w = worth(e, e->have + 1, now_us);
	uint64_t bytes = demand_bytes(d);
	uint32_t taken = seats_taken(d);

	for (size_t i = 0; i < d->count; i++) {
		const struct demand_entry *v = &d->entries[i];

		for (uint32_t n = v->have; n > 0; n--) {
			if (w <= DROP_FACTOR * worth(v, n, now_us))
				break;
			bytes -= v->bytes;
			taken--;
		}
	}
	return taken < d->seats && bytes + e->bytes <= d->bytes;
}

enum demand_step demand_next(
    const struct demand *d, uint64_t now_us, struct demand_entry **ret)
{
	struct demand_entry *e = best(d, now_us, false);

	if (e == NULL)
		return DEMAND_NOTHING;
	if (!fits(d, e) && room_can_be_made(d, e, now_us)) {
		*ret = demand_least(d, now_us);
		return DEMAND_DROP;
	}
	if (!fits(d, e))
		e = best(d, now_us, true);
	if (e == NULL)
		return DEMAND_NOTHING;
	*ret = e;
	return DEMAND_BOOT;
}
