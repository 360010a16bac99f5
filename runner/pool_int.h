/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_POOL_INT_H
#define ISOBOX_POOL_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "runner/demand.h"

/* Inside the pool: pool.c, pool_step.c. */
struct server;
struct worker;
struct client;

/* Gives up one sandbox. */
void pool_drop(struct server *s, struct worker *w);

/* Of that kind: who waits longest, else who boots; NULL. */
struct worker *pool_find_seat(
    const struct server *s, const struct demand_entry *entry);

/* Gives the client's job to one of that kind, and notes the demand. */
bool pool_claim_kind(struct server *s, struct demand_entry *entry,
    struct client *c, uint64_t queue_us);

/* pool_step.c: the same for a step, whose session is in the kind. */
bool pool_claim_step(struct server *s, const struct demand_kind *kind,
    struct client *c, uint64_t queue_us);

#endif
