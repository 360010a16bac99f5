/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_SHARED_H
#define ISOBOX_FCGI_SHARED_H

#include <pthread.h>
#include <stdatomic.h>

/*
 * A thing that SIGHUP replaces while requests use it. A reader takes a reference
 * and keeps what it saw to its end; the last one frees it. Put `struct shared`
 * first in the thing.
 */
struct shared {
	atomic_uint refs; /* shared_init(): 1, the slot's or the maker's */
	void (*free)(struct shared *s);
};

struct shared_slot {
	pthread_mutex_t lock;
	struct shared *now; /* may be NULL */
};

void shared_init(struct shared *s, void (*free_thing)(struct shared *s));
void shared_put(struct shared *s); /* NULL is fine */

void shared_slot_init(struct shared_slot *slot);
void shared_slot_done(struct shared_slot *slot);
/* A reference for the caller, or NULL when there is nothing. */
struct shared *shared_slot_get(struct shared_slot *slot);
/* Takes the caller's reference to s; lets the old thing go. */
void shared_slot_set(struct shared_slot *slot, struct shared *s);

#endif
