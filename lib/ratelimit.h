/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_RATELIMIT_H
#define ISOBOX_RATELIMIT_H

#include <stdint.h>

#include "lib/err.h"

/*
 * A token bucket for each client, in a file that all threads and all processes
 * of the web side map: a CGI process sees what the one before it counted. The
 * table has a fixed size; when it is full the stalest bucket of a set makes
 * room (a full bucket and an absent one are the same). Survives kill -9 of a
 * process in the middle of an update; a file of another size, version or owner
 * is replaced.
 */
struct ratelimit;

/*
 * Opens or makes the file at path (mode 0600, no link is followed). Replaces
 * also one from before the host's last boot: its clock was another, and a lock
 * that was held when the host went down would never be let go.
 */
int ratelimit_open(const char *path, struct ratelimit **ret, struct err *e);
void ratelimit_close(struct ratelimit *r);

/*
 * Takes one token from the bucket of key (the client's address, see
 * ratelimit_key()) in the class `class` (0 = runs; each class has buckets of its
 * own), which refills per_min tokens a minute up to burst. Returns 0 when there
 * was one, else the whole seconds, rounded up, after which there will be one
 * (Retry-After). per_min 0 means no limit.
 */
unsigned ratelimit_take(struct ratelimit *r, unsigned class, uint64_t key,
    unsigned per_min, unsigned burst);

/* The same at a given time of CLOCK_MONOTONIC in nanoseconds, for tests. */
unsigned ratelimit_take_at(struct ratelimit *r, unsigned class, uint64_t key,
    unsigned per_min, unsigned burst, uint64_t now_ns);

/*
 * The key of an address as in REMOTE_ADDR: IPv4 whole, IPv6 its /64, IPv4-mapped
 * as IPv4; a text that is no address hashes as it is. The hash is keyed by a
 * secret in the file: a client cannot choose to collide with another.
 */
uint64_t ratelimit_key(const struct ratelimit *r, const char *remote_addr);

#endif
