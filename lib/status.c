/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/status.h"

#include <errno.h>

#include "lib/payload.h"
#include "lib/proto.h"

static void put_histogram(struct buf *out, const struct histogram *h)
{
	for (size_t i = 0; i <= HISTOGRAM_BOUND_COUNT; i++)
		put_u64(out, h->count[i]);
	put_u64(out, h->sum_us);
}

static void get_histogram(struct reader *r, struct histogram *ret)
{
	for (size_t i = 0; i <= HISTOGRAM_BOUND_COUNT; i++)
		ret->count[i] = get_u64(r);
	ret->sum_us = get_u64(r);
}

static void put_pool(struct buf *out, const struct pool_status *p)
{
	put_u32(out, p->waiting);
	put_u32(out, p->booting);
	put_u64(out, p->memory_bytes);
	put_u64(out, p->oldest_us);
	put_u64(out, p->hits_total);
	put_u64(out, p->adopted_total);
	put_u64(out, p->misses_total);
	put_u64(out, p->boots_total);
	put_u64(out, p->boot_failures_total);
	put_u64(out, p->dropped_total);
}

static void get_pool(struct reader *r, struct pool_status *ret)
{
	ret->waiting = get_u32(r);
	ret->booting = get_u32(r);
	ret->memory_bytes = get_u64(r);
	ret->oldest_us = get_u64(r);
	ret->hits_total = get_u64(r);
	ret->adopted_total = get_u64(r);
	ret->misses_total = get_u64(r);
	ret->boots_total = get_u64(r);
	ret->boot_failures_total = get_u64(r);
	ret->dropped_total = get_u64(r);
}

const char *kernel_death_word(enum kernel_death d)
{
	switch (d) {
	case KERNEL_DEATH_EXIT:
		return "exit";
	case KERNEL_DEATH_TIMEOUT:
		return "timeout";
	case KERNEL_DEATH_OOM:
		return "oom";
	case KERNEL_DEATH_FAILED:
		return "failed";
	case KERNEL_DEATH_IDLE:
		return "idle";
	case KERNEL_DEATH_LIFE:
		return "life";
	case KERNEL_DEATH_RESTORE:
		return "restore";
	case KERNEL_DEATH_COUNT:
		break;
	}
	return "unknown";
}

static void put_kernels(struct buf *out, const struct kernel_status *k)
{
	put_u32(out, k->used);
	put_u32(out, k->max);
	put_u32(out, k->hibernated);
	put_u32(out, k->pinned);
	put_u32(out, k->waiting);
	put_u64(out, k->checkpoint_bytes);
	put_u64(out, k->created_total);
	put_u64(out, k->steps_total);
	put_u64(out, k->forks_total);
	put_u64(out, k->hibernations_total);
	put_u64(out, k->hibernation_us_total);
	put_u64(out, k->restores_total);
	put_u64(out, k->restore_us_total);
	put_u64(out, k->restores_refused_total);
	put_u64(out, k->evictions_total);
	for (size_t i = 0; i < KERNEL_DEATH_COUNT; i++)
		put_u64(out, k->deaths_total[i]);
}

static void get_kernels(struct reader *r, struct kernel_status *ret)
{
	ret->used = get_u32(r);
	ret->max = get_u32(r);
	ret->hibernated = get_u32(r);
	ret->pinned = get_u32(r);
	ret->waiting = get_u32(r);
	ret->checkpoint_bytes = get_u64(r);
	ret->created_total = get_u64(r);
	ret->steps_total = get_u64(r);
	ret->forks_total = get_u64(r);
	ret->hibernations_total = get_u64(r);
	ret->hibernation_us_total = get_u64(r);
	ret->restores_total = get_u64(r);
	ret->restore_us_total = get_u64(r);
	ret->restores_refused_total = get_u64(r);
	ret->evictions_total = get_u64(r);
	for (size_t i = 0; i < KERNEL_DEATH_COUNT; i++)
		ret->deaths_total[i] = get_u64(r);
}

void runner_status_encode(const struct runner_status *x, struct buf *out)
{
	put_bool(out, x->ready);
	put_cstr(out, x->reason);
	put_cstr(out, x->backend);
	put_cstr(out, x->egress_driver);
	put_u32(out, x->slots);
	put_u32(out, x->running);
	put_u32(out, x->queued);
	put_u64(out, x->runs_total);
	put_u64(out, x->timeouts_total);
	put_u64(out, x->ooms_total);
	put_u64(out, x->failures_total);
	put_u64(out, x->rejected_total);
	put_u64(out, x->gone_total);
	put_u64(out, x->boot_cpu_us_total);
	for (size_t i = 0; i < STATUS_PHASE_COUNT; i++)
		put_histogram(out, &x->phases[i]);
	put_pool(out, &x->pool);
	put_kernels(out, &x->kernels);
	put_u8(out, (uint8_t)x->egress);
	put_cstr(out, x->egress_reason);
	put_u64(out, x->egress_runs_total);
	put_u64(out, x->egress_refused_total);
}

static enum status_egress get_egress(struct reader *r)
{
	uint8_t v = get_u8(r);

	if (v > STATUS_EGRESS_DOWN) {
		r->bad = true;
		return STATUS_EGRESS_UNKNOWN;
	}
	return (enum status_egress)v;
}

int runner_status_decode(const uint8_t *payload, size_t len,
    struct runner_status *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct runner_status x = {0};

	x.ready = get_bool(&r);
	get_text(&r, x.reason, sizeof(x.reason));
	get_text(&r, x.backend, sizeof(x.backend));
	get_text(&r, x.egress_driver, sizeof(x.egress_driver));
	x.slots = get_u32(&r);
	x.running = get_u32(&r);
	x.queued = get_u32(&r);
	x.runs_total = get_u64(&r);
	x.timeouts_total = get_u64(&r);
	x.ooms_total = get_u64(&r);
	x.failures_total = get_u64(&r);
	x.rejected_total = get_u64(&r);
	x.gone_total = get_u64(&r);
	x.boot_cpu_us_total = get_u64(&r);
	for (size_t i = 0; i < STATUS_PHASE_COUNT; i++)
		get_histogram(&r, &x.phases[i]);
	get_pool(&r, &x.pool);
	get_kernels(&r, &x.kernels);
	x.egress = get_egress(&r);
	get_text(&r, x.egress_reason, sizeof(x.egress_reason));
	x.egress_runs_total = get_u64(&r);
	x.egress_refused_total = get_u64(&r);
	if (!reader_done(&r))
		return err_set(e, ERR_INTERNAL, EPROTO,
		    "runner status: bytes are missing, left over or out of "
		    "bounds");
	*ret = x;
	return 0;
}
