/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_SHARE_H
#define ISOBOX_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * Who of several tenants gets a slot, and whose goes for it. Pure; the entries are
 * parts of their holders, who fill them in anew each time.
 *
 * Next is whose tenant has the fewest; then who came first. Out goes of the tenant
 * that has the most whoever is idle longest. Nobody is pushed out for a tenant that
 * would then have more than his own is left with: so each comes to its share, and
 * no tenant takes what is idle of one who has no more.
 */
struct share {
	TAILQ_ENTRY(share) link;
	uint64_t tenant; /* only compared */
	bool holds; /* a slot, and is not on its way out */
	bool wants; /* one; then not taken by share_next() yet */
	bool may_go;
	bool promised; /* one that is on its way */
	uint64_t wanted_us; /* since when */
	uint64_t used_us; /* idle since then */
};

TAILQ_HEAD(shares, share);

/* How many slots a tenant has or was promised. */
uint32_t share_count(const struct shares *q, uint64_t tenant);

/* The next that wants one; NULL. */
struct share *share_next(struct shares *q);

/* Whether x may be pushed out for `wants`, which leaves its tenant with at least
 * `more` than that of `wants` will have, unless it is the same. */
bool share_may_push(const struct shares *q, const struct share *wants,
    const struct share *x, uint32_t more);

/* Who goes for `wants`; NULL: nobody. `wants` NULL: for the good of all. */
struct share *share_victim(struct shares *q, const struct share *wants);

#endif
