/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_POOL_H
#define ISOBOX_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "lib/err.h"
#include "lib/registry.h"
#include "lib/status.h"
#include "runner/demand.h"
#include "runner/supervisor.h"

struct server;
struct worker;
struct client;
struct workspace;

/*
 * Sandboxes that wait for a run, inside the runner's event loop. Each is a worker
 * of kind WORKER_AHEAD: a supervisor that boots, says when it is ready, and waits
 * on its control socket. A claim hands it the client and the job and makes it a
 * WORKER_RUN; so each is used once. demand.h decides for what they are booted.
 */

/* Where an image is, to see when it is another one. */
struct image_stamp {
	dev_t dev;
	ino_t tree;
	ino_t digest;
	struct timespec digest_time;
};

/* What a worker has of the pool. */
struct seat {
	struct demand_entry *entry; /* NULL: none */
	uint8_t *mailbox; /* MAILBOX_SIZE bytes shared with the supervisor */
	bool waits; /* booted */
	uint64_t since_us; /* when its boot began, then when that ended */
	uint64_t bytes; /* that it takes while it waits */
	struct image_stamp image;
};

struct pool {
	struct demand demand;
	struct pool_status status; /* counters */
	uint32_t cpus;
	uint32_t booting;
	unsigned failures; /* boots, in a row */
	uint64_t retry_us; /* no boot before, for boots have failed */
	uint64_t taken_us; /* the first since the last boot; 0: none was */
	uint64_t refill_us; /* no boot before, for one was taken */
	uint64_t look_us; /* pool_tick() has something to do */
};

/* After the registry was read, or read again: what waits is for the old one and
 * is given up; `old` is still there. */
void pool_set_registry(struct server *s, const struct registry *fresh);
void pool_done(struct pool *p);

/* Gives up all that wait. */
void pool_empty(struct server *s);

/*
 * Gives the client's job to a sandbox that waits, or else boots, for such a one.
 * True: its connection is the supervisor's now, the slot the worker's. The demand
 * is noted either way. Costs one copy of the job and one packet.
 */
bool pool_claim(struct server *s, const struct runtime *rt, struct client *c,
    uint64_t queue_us);

/* The turn of a session is over: its next step's sandbox may be booted. */
void pool_step_ended(struct server *s, const struct workspace *session);

/* The workspace is going away: nothing waits with it. */
void pool_forget(struct server *s, const struct workspace *w);

/* c's job into the mailbox of w, and its connection to w's supervisor. Negative
 * errno: w is just dying. */
int pool_hand_over(struct worker *w, const struct client *c, uint64_t queue_us);

/* There is a network again: gives up all that wait without theirs. */
void pool_drop_offline(struct server *s);

/* The worker's supervisor says that it waits now. */
void pool_ready(struct server *s, struct worker *w, const struct run_report *r);

/* The worker, of kind WORKER_AHEAD, has ended; r may be NULL. */
void pool_lost(struct server *s, struct worker *w, const struct run_report *r);

/* Something changed that may let a boot begin. */
void pool_poke(struct server *s, uint64_t delay_us);

/* Boots, replaces, gives up. */
void pool_tick(struct server *s, uint64_t now_us);
uint64_t pool_due_us(const struct server *s);

/* An image was put in place or taken away. */
void pool_check_images(struct server *s);

void pool_status(const struct server *s, struct pool_status *ret);

#endif
