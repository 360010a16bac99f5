/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_ADMIT_H
#define ISOBOX_ADMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * Admission: so many slots, and in front of them a queue in order of arrival in
 * which each waits a bounded time. Pure bookkeeping; the clock is the caller's
 * (CLOCK_MONOTONIC, microseconds).
 */
struct waiter {
	TAILQ_ENTRY(waiter) link;
	uint64_t since_us;
	uint64_t deadline_us;
	bool queued;
};

struct admit {
	TAILQ_HEAD(waiters, waiter) queue;
	uint32_t slots;
	uint32_t running;
	uint32_t queued;
	uint32_t queue_max;
	uint64_t wait_us;
};

enum admit_verdict {
	ADMIT_NOW, /* the slot is taken */
	ADMIT_QUEUED, /* a later admit_next() or admit_expired() returns it */
	ADMIT_FULL /* no slot, and no place or time to wait */
};

void admit_init(
    struct admit *a, uint32_t slots, uint32_t wait_ms, uint32_t queue_max);

/* Takes a slot or queues w (borrowed until it is returned or cancelled). */
enum admit_verdict admit_request(
    struct admit *a, struct waiter *w, uint64_t now_us);

/* A run ended: its slot is free. */
void admit_release(struct admit *a);

/* While a slot is free: the first in the queue, with its slot taken. */
struct waiter *admit_next(struct admit *a);

/* The next of those who have waited too long, off the queue. */
struct waiter *admit_expired(struct admit *a, uint64_t now_us);

/* Takes w off the queue, if it is in it. */
void admit_cancel(struct admit *a, struct waiter *w);

/* When admit_expired() next has something; UINT64_MAX when nobody waits. */
uint64_t admit_deadline_us(const struct admit *a);

#endif
