/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/demand.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How much more another kind must be worth to get a seat that is taken. */
#define DROP_FACTOR 2u

#define VARIANTS 4u /* preload or not, network or not */

/* ---- entries ------------------------------------------------------------ */

static void add(struct demand *d, const struct demand_kind *k, bool usual)
{
	d->entries[d->count++] = (struct demand_entry){
	    .kind = *k,
	    .prior = usual && !k->preload ? DEMAND_PRIOR : 0,
	    .bytes =
		k->preload ? DEMAND_GUESS_PRELOAD_BYTES : DEMAND_GUESS_BYTES,
	};
}

static void add_runtime(
    struct demand *d, const struct runtime *rt, bool network)
{
	for (unsigned i = 0; i < VARIANTS; i++) {
		const struct demand_kind k = {.runtime = rt,
		    .preload = (i & 1u) != 0,
		    .network = (i & 2u) != 0};

		if (k.preload && rt->preload[0] == NULL)
			continue;
		add(d, &k, k.network == network);
	}
}

int demand_init(
    struct demand *d, const struct registry *r, bool network, struct err *e)
{
	d->count = 0;
	d->entries = calloc(r->count * VARIANTS + 1, sizeof *d->entries);
	if (d->entries == NULL)
		return err_sys(e, ENOMEM, "the pool's table");
	for (size_t i = 0; i < r->count; i++)
		if (r->runtimes[i].available &&
		    r->runtimes[i].warm != WARM_NONE)
			add_runtime(d, &r->runtimes[i], network);
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
	return a->preload == b->preload && a->network == b->network &&
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
		    e->kind.preload == kind->preload &&
		    e->kind.network == kind->network)
			return e;
	}
	return NULL;
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

		if (w < most || e->have >= d->seats_of_one ||
		    e->bytes > d->bytes || (fitting && !fits(d, e)))
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
