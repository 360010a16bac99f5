/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/histogram.h"

const uint32_t histogram_bounds_us[HISTOGRAM_BOUND_COUNT] = HISTOGRAM_BOUNDS_US;

void histogram_add(struct histogram *h, uint64_t us)
{
	unsigned i = 0;

	while (i < HISTOGRAM_BOUND_COUNT && us > histogram_bounds_us[i])
		i++;
	h->count[i]++;
	h->sum_us += us;
}
