/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/shared.h"

#include <stddef.h>

void shared_init(struct shared *s, void (*free_thing)(struct shared *s))
{
	atomic_init(&s->refs, 1);
	s->free = free_thing;
}

void shared_put(struct shared *s)
{
	if (s != NULL && atomic_fetch_sub(&s->refs, 1) == 1)
		s->free(s);
}

void shared_slot_init(struct shared_slot *slot)
{
	(void)pthread_mutex_init(&slot->lock, NULL);
	slot->now = NULL;
}

void shared_slot_done(struct shared_slot *slot)
{
	shared_put(slot->now);
	(void)pthread_mutex_destroy(&slot->lock);
}

struct shared *shared_slot_get(struct shared_slot *slot)
{
	struct shared *s;

	(void)pthread_mutex_lock(&slot->lock);
	s = slot->now;
	if (s != NULL)
		atomic_fetch_add(&s->refs, 1);
	(void)pthread_mutex_unlock(&slot->lock);
	return s;
}

void shared_slot_set(struct shared_slot *slot, struct shared *s)
{
	struct shared *old;

	(void)pthread_mutex_lock(&slot->lock);
	old = slot->now;
	slot->now = s;
	(void)pthread_mutex_unlock(&slot->lock);
	shared_put(old);
}
