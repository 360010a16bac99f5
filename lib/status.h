/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_STATUS_H
#define ISOBOX_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/histogram.h"

/* What a run's time is made of, and the boots that are not a run's. */
enum status_phase {
	STATUS_QUEUE, /* until it had a slot */
	STATUS_BOOT, /* until its program started */
	STATUS_RUN,
	STATUS_CLEANUP, /* from the answer until nothing was left */
	STATUS_AHEAD, /* boots of sandboxes that were to wait */
	STATUS_PHASE_COUNT
};

/* A figure that the kernel does not tell. */
#define STATUS_UNKNOWN UINT64_MAX

/* The sandboxes that wait; counters since the runner's start. */
struct pool_status {
	uint32_t waiting;
	uint32_t booting;
	uint64_t memory_bytes; /* of those that wait */
	uint64_t oldest_us; /* age of the one that waits longest */
	uint64_t hits_total; /* runs that found one waiting */
	uint64_t adopted_total; /* runs that took one that still booted */
	uint64_t misses_total; /* runs that had to boot their own */
	uint64_t boots_total;
	uint64_t boot_failures_total;
	uint64_t dropped_total; /* never used: too old, for another, memory */
};

/* Whether runs have their filtered network. */
enum status_egress {
	STATUS_EGRESS_OFF, /* the configuration's wish */
	STATUS_EGRESS_UNKNOWN, /* not tried yet */
	STATUS_EGRESS_UP,
	STATUS_EGRESS_DOWN /* at the last try, for egress_reason */
};

/* Why kernels died, for the counters. */
enum kernel_death {
	KERNEL_DEATH_EXIT, /* it ended itself: exit, a signal */
	KERNEL_DEATH_TIMEOUT, /* a step did not yield after its wall time */
	KERNEL_DEATH_OOM,
	KERNEL_DEATH_FAILED, /* our or the host's failure */
	KERNEL_DEATH_IDLE, /* kernel_idle_sec */
	KERNEL_DEATH_LIFE, /* kernel_max_life_sec */
	KERNEL_DEATH_RESTORE, /* its checkpoint could not be restored */
	KERNEL_DEATH_COUNT
};

/* The word for it in metrics; static storage. */
const char *kernel_death_word(enum kernel_death d);

/* The kernels of sessions; counters since the runner's start. */
struct kernel_status {
	uint32_t used; /* slots: those that are resident, and no other */
	uint32_t max; /* kernel_slots; 0: there are no kernels */
	uint32_t hibernated;
	uint32_t pinned; /* resident, and could not be hibernated */
	uint32_t waiting; /* interpreters that wait for a session */
	uint64_t checkpoint_bytes; /* of all that are hibernated */
	uint64_t created_total;
	uint64_t steps_total;
	uint64_t forks_total;
	uint64_t hibernations_total;
	uint64_t hibernation_us_total; /* their time */
	uint64_t restores_total;
	uint64_t restore_us_total; /* their time */
	uint64_t restores_refused_total;
	uint64_t evictions_total; /* hibernated: slot or memory was needed */
	uint64_t deaths_total[KERNEL_DEATH_COUNT];
};

/* The runner about itself, for /readyz, /healthz and /metrics. */
struct runner_status {
	bool ready;
	char reason[256]; /* when not ready */
	char backend[16]; /* "gvisor" */
	char egress_driver[16]; /* what carries runs' packets; "": none may */
	uint32_t slots;
	uint32_t running;
	uint32_t queued;
	uint64_t runs_total; /* since its start; likewise below */
	uint64_t timeouts_total;
	uint64_t ooms_total;
	uint64_t failures_total; /* sandbox_failed */
	uint64_t rejected_total; /* capacity */
	uint64_t gone_total; /* client left */
	uint64_t boot_cpu_us_total; /* all boots; or STATUS_UNKNOWN */
	struct histogram phases[STATUS_PHASE_COUNT];
	struct pool_status pool;
	struct kernel_status kernels;
	enum status_egress egress;
	char egress_reason[256];
	uint64_t egress_runs_total; /* runs that had a network */
	uint64_t egress_refused_total; /* that wanted one and had none */
};

void runner_status_encode(const struct runner_status *x, struct buf *out);
int runner_status_decode(const uint8_t *payload, size_t len,
    struct runner_status *ret, struct err *e);

#endif
