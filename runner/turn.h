/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TURN_H
#define ISOBOX_TURN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * Turns: one program at a time works in a workspace. A step needs the turn of its
 * session's workspace and of its volume; who comes first is served first in each
 * of them, and who has to wait for one holds none. Pure.
 */
struct turn_thing { /* what turns are taken in; a part of its holder */
	bool held;
	bool wanted; /* while the queue is looked through */
};

#define TURN_THINGS 2

struct turn {
	TAILQ_ENTRY(turn) link;
	struct turn_thing *things[TURN_THINGS]; /* NULL: not so many */
	uint64_t deadline_us;
	bool queued;
	bool held;
};

TAILQ_HEAD(turn_list, turn);

struct turns {
	struct turn_list queue;
};

void turns_init(struct turns *q);

/* Queues t, whose things and deadline are set; in front: before all who wait
 * already. */
void turn_request(struct turns *q, struct turn *t, bool front);

/* The next one that has its turn now; NULL when nobody has. */
struct turn *turn_next(struct turns *q);

/* Takes t out of the queue, or gives back what it holds; either may be so, or
 * neither. */
void turn_end(struct turns *q, struct turn *t);

/* Without queueing: true when t, whose things are set, has its turn by that. */
bool turn_take(struct turn *t);

/* Hands what is held from one to the other, which has none. */
void turn_pass(struct turn *from, struct turn *to);

/* One whose time is over, out of the queue; NULL. */
struct turn *turn_expired(struct turns *q, uint64_t now_us);
uint64_t turn_deadline_us(const struct turns *q);

#endif
