/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a step from writing more than it may before we look again. On a busy host
 * the watch is put aside: seen were 104 ms, and 180 MiB that a step wrote in 86. So,
 * when at its pace it could get too far in LATE_US, its leaf gets so little CPU that
 * it cannot: that holds without us.
 */
#include "lib/limits.h"
#include "runner/quota_int.h"

#define LATE_US 105000u

/* What it may then come to have too much. */
#define SPARE_BYTES (LIMIT_WS_OVERSHOOT / 2)

/* Thousandths of a CPU: what writes 5 GB a second with one writes 50 MB in 100 ms. */
#define SLOW_MILLI 100u

/* A slow leaf still shows its full pace once in each period of its limit, 100 ms.
 * So this part goes with each look, half of all in 22, and only what is over is
 * forgotten. */
#define FORGET_PART 32u

static uint64_t left_of(
    const struct quota_state *s, const struct quota_signal *now)
{
	const uint64_t written =
	    now->written_bytes > s->then.written_bytes
		? now->written_bytes - s->then.written_bytes
		: 0;

	return s->room_bytes > written ? s->room_bytes - written : 0;
}

bool quota_too_fast(struct quota_pace *p, const struct quota_state *s,
    const struct quota_signal *now)
{
	const uint64_t us = now->now_us - p->at_us;
	const uint64_t bytes = now->written_bytes > p->written_bytes
				   ? now->written_bytes - p->written_bytes
				   : 0;
	uint64_t ahead;

	if (us == 0)
		return p->slow;
	/* Shorter than a tick is no pace. */
	ahead = bytes * LATE_US / (us > QUOTA_TICK_US ? us : QUOTA_TICK_US);
	p->written_bytes = now->written_bytes;
	p->at_us = now->now_us;
	p->ahead_bytes -= p->ahead_bytes / FORGET_PART;
	if (ahead > p->ahead_bytes)
		p->ahead_bytes = ahead;
	p->slow = p->ahead_bytes > left_of(s, now) + SPARE_BYTES;
	return p->slow;
}

int quota_set_pace(struct watch *w, bool slow, struct err *e)
{
	const uint32_t cpus = slow && !w->saves && w->cpus_milli > SLOW_MILLI
				  ? SLOW_MILLI
				  : w->cpus_milli;

	if (cpus == w->cpus_set)
		return 0;
	w->cpus_set = cpus;
	return leaf_set_cpu(w->order->leaf, cpus, e);
}
