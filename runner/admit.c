/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/admit.h"

#include <assert.h>
#include <stddef.h>

void admit_init(
    struct admit *a, uint32_t slots, uint32_t wait_ms, uint32_t queue_max)
{
	*a = (struct admit){.slots = slots,
	    .wait_us = (uint64_t)wait_ms * 1000,
	    .queue_max = queue_max};
	TAILQ_INIT(&a->queue);
}

enum admit_verdict admit_request(
    struct admit *a, struct waiter *w, uint64_t now_us)
{
	*w = (struct waiter){
	    .since_us = now_us, .deadline_us = now_us + a->wait_us};
	/* Nobody passes those who wait, even when a slot is just free. */
	if (a->running < a->slots && a->queued == 0) {
		a->running++;
		return ADMIT_NOW;
	}
	if (a->wait_us == 0 || a->queued >= a->queue_max)
		return ADMIT_FULL;
	TAILQ_INSERT_TAIL(&a->queue, w, link);
	w->queued = true;
	a->queued++;
	return ADMIT_QUEUED;
}

void admit_release(struct admit *a)
{
	assert(a->running > 0);
	a->running--;
}

void admit_cancel(struct admit *a, struct waiter *w)
{
	if (!w->queued)
		return;
	TAILQ_REMOVE(&a->queue, w, link);
	w->queued = false;
	a->queued--;
}

struct waiter *admit_next(struct admit *a)
{
	struct waiter *w = TAILQ_FIRST(&a->queue);

	if (w == NULL || a->running >= a->slots)
		return NULL;
	admit_cancel(a, w);
	a->running++;
	return w;
}

struct waiter *admit_expired(struct admit *a, uint64_t now_us)
{
	struct waiter *w = TAILQ_FIRST(&a->queue);

	if (w == NULL || now_us < w->deadline_us)
		return NULL;
	admit_cancel(a, w);
	return w;
}

uint64_t admit_deadline_us(const struct admit *a)
{
	const struct waiter *w = TAILQ_FIRST(&a->queue);

	return w != NULL ? w->deadline_us : UINT64_MAX;
}
