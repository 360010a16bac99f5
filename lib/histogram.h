/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_HISTOGRAM_H
#define ISOBOX_HISTOGRAM_H

#include <stdint.h>

/* Durations counted by size, as Prometheus has them: from the wake-up of what
 * waits to the longest run and its queue. */
#define HISTOGRAM_BOUNDS_US                                                 \
	{                                                                   \
		500, 1000, 2000, 5000, 10000, 25000, 50000, 100000, 250000, \
		    500000, 1000000, 2500000, 5000000, 10000000, 20000000,  \
		    30000000                                                \
	}
#define HISTOGRAM_BOUND_COUNT 16u

struct histogram {
	/* Not added up; the last one is for what is longer than any bound. */
	uint64_t count[HISTOGRAM_BOUND_COUNT + 1];
	uint64_t sum_us;
};

extern const uint32_t histogram_bounds_us[HISTOGRAM_BOUND_COUNT];

void histogram_add(struct histogram *h, uint64_t us);

#endif
