/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/limits.h"

static uint64_t clamp(uint64_t v, uint64_t min, uint64_t max)
{
	if (v < min)
		return min;
	return v > max ? max : v;
}

void limits_clamp(struct limits *l)
{
	l->memory_bytes =
	    clamp(l->memory_bytes, LIMIT_MEMORY_MIN, LIMIT_MEMORY_MAX);
	l->cpus_milli =
	    (uint32_t)clamp(l->cpus_milli, LIMIT_CPUS_MIN, LIMIT_CPUS_MAX);
	l->pids = (uint32_t)clamp(l->pids, LIMIT_PIDS_MIN, LIMIT_PIDS_MAX);
	l->output_bytes = (uint32_t)clamp(
	    l->output_bytes, LIMIT_OUTPUT_MIN, LIMIT_OUTPUT_MAX);
	l->wall_time_ms = (uint32_t)clamp(
	    l->wall_time_ms, LIMIT_WALL_MIN_MS, LIMIT_WALL_MAX_MS);
}
