/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CLOCK_H
#define ISOBOX_CLOCK_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

/* Time that never jumps (CLOCK_MONOTONIC), for deadlines and durations. */
static inline uint64_t clock_us(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static inline uint64_t clock_ms(void)
{
	return clock_us() / 1000u;
}

/* Milliseconds since 1970, for what people and other programs read. */
static inline int64_t clock_wall_ms(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What is left until a deadline, as poll(2) takes it; never less than 0. */
static inline int clock_left_ms(uint64_t deadline_ms)
{
	uint64_t now = clock_ms();

	if (deadline_ms <= now)
		return 0;
	return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}

/* The same in microseconds, as ppoll(2) takes it. */
static inline struct timespec clock_left(uint64_t deadline_us)
{
	uint64_t now = clock_us();
	uint64_t left = deadline_us > now ? deadline_us - now : 0;

	return (struct timespec){.tv_sec = (time_t)(left / 1000000u),
	    .tv_nsec = (long)(left % 1000000u) * 1000};
}

#endif
