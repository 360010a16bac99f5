/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CLOCK_H
#define ISOBOX_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC in microseconds. */
static inline uint64_t clock_us(void)
{
	struct timespec t = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* From now until deadline_us, for ppoll(); zero when it has passed. */
static inline struct timespec clock_until(uint64_t deadline_us)
{
	uint64_t now = clock_us();
	uint64_t left = deadline_us > now ? deadline_us - now : 0;

	return (struct timespec){.tv_sec = (time_t)(left / 1000000),
	    .tv_nsec = (long)(left % 1000000) * 1000};
}

#endif
