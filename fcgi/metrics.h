/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_METRICS_H
#define ISOBOX_FCGI_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "fcgi/router.h"
#include "lib/buf.h"
#include "lib/status.h"

/* Upper bounds of the duration histogram, in milliseconds: from an answer out of
 * memory to the longest run and its queue. */
#define METRICS_BUCKETS                                                        \
	{                                                                      \
		1, 5, 25, 100, 250, 500, 1000, 2500, 5000, 10000, 20000, 30000 \
	}
#define METRICS_BUCKET_COUNT 12
#define METRICS_STATUS_COUNT 19

/* Things that are counted one by one. */
enum metric {
	METRIC_SESSIONS_CREATED,
	METRIC_SESSIONS_DELETED,
	METRIC_SESSIONS_EXPIRED,
	METRIC_SESSION_STEPS,
	METRIC_FILE_BYTES_IN,
	METRIC_FILE_BYTES_OUT,
	METRIC_VOLUMES_CREATED,
	METRIC_VOLUMES_DELETED,
	METRIC_MEMORY_READS,
	METRIC_MEMORY_WRITES,
	METRIC_MEMORY_DELETES,
	METRIC_MEMORY_LISTS,
	METRIC_MEMORY_BYTES_IN,
	METRIC_MEMORY_BYTES_OUT,
	METRIC_COUNT
};

/* Counters of this process; plain CGI starts a process for each request, so its
 * counters say nothing. */
struct metrics {
	struct {
		atomic_uint_fast64_t by_status[METRICS_STATUS_COUNT];
		atomic_uint_fast64_t by_duration[METRICS_BUCKET_COUNT + 1];
		atomic_uint_fast64_t duration_us;
	} routes[ROUTE_COUNT];
	atomic_uint_fast64_t in_progress;
	atomic_uint_fast64_t counts[METRIC_COUNT];
};

void metrics_begin(struct metrics *m);
/* status 0: the client left before there was an answer. */
void metrics_end(
    struct metrics *m, unsigned route, int status, uint64_t duration_us);

void metrics_count(struct metrics *m, enum metric which, uint64_t n);

/* What the store holds at the moment; what it cannot tell is left out. */
struct store;
void metrics_print_store(struct store *store, struct buf *out);

/* All of it in Prometheus' text format 0.0.4. */
void metrics_print(struct metrics *m, struct buf *out);

/* What the memory of all tenants holds. */
void metrics_print_memory(uint64_t keys, uint64_t bytes, struct buf *out);

/* The runner's counters; status NULL: it did not answer. */
void metrics_print_runner(const struct runner_status *status, struct buf *out);

#endif
