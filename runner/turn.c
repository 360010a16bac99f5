/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/turn.h"

#include <stddef.h>

void turns_init(struct turns *q)
{
	TAILQ_INIT(&q->queue);
}

static bool is_free(const struct turn *t)
{
	for (unsigned i = 0; i < TURN_THINGS; i++)
		if (t->things[i] != NULL &&
		    (t->things[i]->held || t->things[i]->wanted))
			return false;
	return true;
}

static void set_held(struct turn *t, bool held)
{
	for (unsigned i = 0; i < TURN_THINGS; i++)
		if (t->things[i] != NULL)
			t->things[i]->held = held;
	t->held = held;
}

static void set_wanted(const struct turn *t, bool wanted)
{
	for (unsigned i = 0; i < TURN_THINGS; i++)
		if (t->things[i] != NULL)
			t->things[i]->wanted = wanted;
}

static void leave_queue(struct turns *q, struct turn *t)
{
	if (t->queued)
		TAILQ_REMOVE(&q->queue, t, link);
	t->queued = false;
}

struct turn *turn_next(struct turns *q)
{
	struct turn *found = NULL;
	struct turn *t = NULL;

	/* What an earlier one waits for, a later one does not get. */
	TAILQ_FOREACH (t, &q->queue, link) {
		if (found == NULL && is_free(t))
			found = t;
		set_wanted(t, true);
	}
	TAILQ_FOREACH (t, &q->queue, link) {
		set_wanted(t, false);
	}
	if (found != NULL) {
		leave_queue(q, found);
		set_held(found, true);
	}
	return found;
}

void turn_request(struct turns *q, struct turn *t, bool front)
{
	if (front)
		TAILQ_INSERT_HEAD(&q->queue, t, link);
	else
		TAILQ_INSERT_TAIL(&q->queue, t, link);
	t->queued = true;
}

void turn_end(struct turns *q, struct turn *t)
{
	leave_queue(q, t);
	if (t->held)
		set_held(t, false);
}

bool turn_take(struct turn *t)
{
	if (!is_free(t))
		return false;
	set_held(t, true);
	return true;
}

void turn_pass(struct turn *from, struct turn *to)
{
	for (unsigned i = 0; i < TURN_THINGS; i++) {
		to->things[i] = from->things[i];
		from->things[i] = NULL;
	}
	to->held = from->held;
	from->held = false;
}

struct turn *turn_expired(struct turns *q, uint64_t now_us)
{
	struct turn *t;

	TAILQ_FOREACH (t, &q->queue, link)
		if (now_us >= t->deadline_us) {
			leave_queue(q, t);
			return t;
		}
	return NULL;
}

uint64_t turn_deadline_us(const struct turns *q)
{
	uint64_t first = UINT64_MAX;
	const struct turn *t;

	TAILQ_FOREACH (t, &q->queue, link)
		if (t->deadline_us < first)
			first = t->deadline_us;
	return first;
}
