/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/metrics.h"

#include <inttypes.h>

#include "fcgi/text.h"
#include "lib/store.h"

static const unsigned bucket_ms[METRICS_BUCKET_COUNT] = METRICS_BUCKETS;

/* What we answer, and 0 for everything else: the client was gone. */
static const int statuses[METRICS_STATUS_COUNT] = {200, 201, 204, 206, 304, 400,
    401, 404, 405, 409, 412, 413, 416, 429, 500, 503, 507, 499, 0};
#define STATUS_GONE 17u
#define STATUS_OTHER 18u

static void add(atomic_uint_fast64_t *counter, uint64_t n)
{
	(void)atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t read_counter(atomic_uint_fast64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void metrics_begin(struct metrics *m)
{
	add(&m->in_progress, 1);
}

void metrics_count(struct metrics *m, enum metric which, uint64_t n)
{
	add(&m->counts[which], n);
}

static unsigned status_index(int status)
{
	if (status == 0)
		return STATUS_GONE;
	for (unsigned i = 0; i < STATUS_OTHER; i++)
		if (statuses[i] == status)
			return i;
	return STATUS_OTHER;
}

void metrics_end(
    struct metrics *m, unsigned route, int status, uint64_t duration_us)
{
	unsigned b = 0;

	while (b < METRICS_BUCKET_COUNT && duration_us > bucket_ms[b] * 1000ull)
		b++;
	add(&m->routes[route].by_status[status_index(status)], 1);
	add(&m->routes[route].by_duration[b], 1);
	add(&m->routes[route].duration_us, duration_us);
	(void)atomic_fetch_sub_explicit(
	    &m->in_progress, 1, memory_order_relaxed);
}

static void put_head(
    struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_value(struct buf *out, const char *name, const char *type,
    const char *help, uint64_t value)
{
	put_head(out, name, type, help);
	buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void put_us(
    struct buf *out, const char *name, const char *help, uint64_t us)
{
	put_head(out, name, "counter", help);
	buf_printf(out, "%s %" PRIu64 ".%06" PRIu64 "\n", name, us / 1000000,
	    us % 1000000);
}

static void put_requests(struct metrics *m, struct buf *out)
{
	put_head(out, "isobox_http_requests_total", "counter",
	    "Requests answered by this process; status 499: the client left "
	    "first.");
	for (unsigned r = 0; r < ROUTE_COUNT; r++) {
		for (unsigned s = 0; s < METRICS_STATUS_COUNT; s++) {
			uint64_t n = read_counter(&m->routes[r].by_status[s]);

			if (n == 0)
				continue;
			buf_printf(out,
			    "isobox_http_requests_total{route=\"%s\","
			    "status=\"%d\"} %" PRIu64 "\n",
			    router_name(r), statuses[s], n);
		}
	}
}

static void put_histogram(struct metrics *m, unsigned r, struct buf *out)
{
	static const char name[] = "isobox_http_request_duration_seconds";
	const char *route = router_name(r);
	uint64_t us = read_counter(&m->routes[r].duration_us);
	uint64_t n = 0;

	for (unsigned b = 0; b < METRICS_BUCKET_COUNT; b++) {
		n += read_counter(&m->routes[r].by_duration[b]);
		buf_printf(out,
		    "%s_bucket{route=\"%s\",le=\"%u.%03u\"} %" PRIu64 "\n",
		    name, route, bucket_ms[b] / 1000, bucket_ms[b] % 1000, n);
	}
	n += read_counter(&m->routes[r].by_duration[METRICS_BUCKET_COUNT]);
	buf_printf(out,
	    "%s_bucket{route=\"%s\",le=\"+Inf\"} %" PRIu64 "\n"
	    "%s_sum{route=\"%s\"} %" PRIu64 ".%06" PRIu64 "\n"
	    "%s_count{route=\"%s\"} %" PRIu64 "\n",
	    name, route, n, name, route, us / 1000000, us % 1000000, name,
	    route, n);
}

static void put_counts(struct metrics *m, struct buf *out)
{
	static const struct {
		const char *name;
		const char *help;
	} rows[METRIC_COUNT] = {
	    [METRIC_SESSIONS_CREATED] = {"isobox_sessions_created_total",
		"Sessions made by this process."},
	    [METRIC_SESSIONS_DELETED] = {"isobox_sessions_deleted_total",
		"Sessions ended by their clients."},
	    [METRIC_SESSIONS_EXPIRED] = {"isobox_sessions_swept_total",
		"Sessions that this process removed after they had expired, or "
		"whose end had been interrupted."},
	    [METRIC_SESSION_STEPS] = {"isobox_session_steps_total",
		"Steps of sessions that came to a result."},
	    [METRIC_FILE_BYTES_IN] = {"isobox_file_received_bytes_total",
		"Bytes of files uploaded into sessions."},
	    [METRIC_FILE_BYTES_OUT] = {"isobox_file_sent_bytes_total",
		"Bytes of files and archives downloaded from sessions."},
	    [METRIC_VOLUMES_CREATED] = {"isobox_volumes_created_total",
		"Volumes made by this process."},
	    [METRIC_VOLUMES_DELETED] = {"isobox_volumes_deleted_total",
		"Volumes removed by their clients."},
	    [METRIC_MEMORY_READS] = {"isobox_memory_reads_total",
		"Values of the memory that were asked for and found."},
	    [METRIC_MEMORY_WRITES] = {"isobox_memory_writes_total",
		"Values put into the memory."},
	    [METRIC_MEMORY_DELETES] = {"isobox_memory_deletes_total",
		"Values deleted from the memory, or not there at all."},
	    [METRIC_MEMORY_LISTS] = {"isobox_memory_lists_total",
		"Pages of keys of the memory."},
	    [METRIC_MEMORY_BYTES_IN] = {"isobox_memory_received_bytes_total",
		"Bytes of values put into the memory."},
	    [METRIC_MEMORY_BYTES_OUT] = {"isobox_memory_sent_bytes_total",
		"Bytes of values sent from the memory."},
	};

	for (unsigned i = 0; i < METRIC_COUNT; i++)
		put_value(out, rows[i].name, "counter", rows[i].help,
		    read_counter(&m->counts[i]));
}

void metrics_print_store(struct store *store, struct buf *out)
{
	uint64_t n;
	uint64_t bytes;
	struct err e;

	if (store_session_count(store, NULL, &n, &e) >= 0)
		put_value(out, "isobox_sessions", "gauge",
		    "Sessions that there are, those being removed included.",
		    n);
	if (store_volume_count(store, NULL, &n, &e) >= 0)
		put_value(out, "isobox_volumes", "gauge",
		    "Volumes that there are.", n);
	if (store_memory_usage(store, &n, &bytes, &e) < 0)
		return;
	put_value(out, "isobox_memory_keys", "gauge",
	    "Keys in the memory of all tenants.", n);
	put_value(out, "isobox_memory_bytes", "gauge",
	    "Bytes of the values in the memory of all tenants.", bytes);
}

void metrics_print(struct metrics *m, struct buf *out)
{
	put_head(out, "isobox_build_info", "gauge", "The version.");
	buf_puts(out, "isobox_build_info{version=\"" ISOBOX_VERSION "\"} 1\n");
	put_requests(m, out);
	put_head(out, "isobox_http_request_duration_seconds", "histogram",
	    "Time from a whole request to its whole answer, in this process.");
	for (unsigned r = 0; r < ROUTE_COUNT; r++)
		put_histogram(m, r, out);
	put_value(out, "isobox_http_requests_in_progress", "gauge",
	    "Requests being served by this process, this one included.",
	    read_counter(&m->in_progress));
	put_counts(m, out);
}

static void put_phase(const char *name, const char *phase,
    const struct histogram *h, struct buf *out)
{
	uint64_t n = 0;

	for (unsigned b = 0; b < HISTOGRAM_BOUND_COUNT; b++) {
		const unsigned bound = histogram_bounds_us[b];

		n += h->count[b];
		buf_printf(out,
		    "%s_bucket{phase=\"%s\",le=\"%u.%04u\"} %" PRIu64 "\n",
		    name, phase, bound / 1000000, bound % 1000000 / 100, n);
	}
	n += h->count[HISTOGRAM_BOUND_COUNT];
	buf_printf(out,
	    "%s_bucket{phase=\"%s\",le=\"+Inf\"} %" PRIu64 "\n"
	    "%s_sum{phase=\"%s\"} %" PRIu64 ".%06" PRIu64 "\n"
	    "%s_count{phase=\"%s\"} %" PRIu64 "\n",
	    name, phase, n, name, phase, h->sum_us / 1000000,
	    h->sum_us % 1000000, name, phase, n);
}

static void put_phases(const struct runner_status *s, struct buf *out)
{
	static const char name[] = "isobox_phase_seconds";
	static const char *const phases[STATUS_PHASE_COUNT] = {
	    [STATUS_QUEUE] = "queue",
	    [STATUS_BOOT] = "boot",
	    [STATUS_RUN] = "run",
	    [STATUS_CLEANUP] = "cleanup",
	    [STATUS_AHEAD] = "boot_ahead",
	};

	put_head(out, name, "histogram",
	    "Time of each phase of a run; boot_ahead is of sandboxes that were "
	    "to wait.");
	for (unsigned i = 0; i < STATUS_PHASE_COUNT; i++)
		put_phase(name, phases[i], &s->phases[i], out);
}

static void put_pool(const struct pool_status *p, struct buf *out)
{
	put_head(out, "isobox_pool_sandboxes", "gauge",
	    "Sandboxes that wait for a run, or are being booted for that.");
	buf_printf(out,
	    "isobox_pool_sandboxes{state=\"waiting\"} %u\n"
	    "isobox_pool_sandboxes{state=\"booting\"} %u\n",
	    p->waiting, p->booting);
	put_value(out, "isobox_pool_memory_bytes", "gauge",
	    "Memory of the sandboxes that wait.", p->memory_bytes);
	put_head(out, "isobox_pool_oldest_seconds", "gauge",
	    "Age of the sandbox that waits longest.");
	buf_printf(out,
	    "isobox_pool_oldest_seconds %" PRIu64 ".%06" PRIu64 "\n",
	    p->oldest_us / 1000000, p->oldest_us % 1000000);
	put_value(out, "isobox_pool_hits_total", "counter",
	    "Runs for which a sandbox waited.", p->hits_total);
	put_value(out, "isobox_pool_adopted_total", "counter",
	    "Runs that took a sandbox which was still booting.",
	    p->adopted_total);
	put_value(out, "isobox_pool_misses_total", "counter",
	    "Runs that had to boot a sandbox of their own.", p->misses_total);
	put_value(out, "isobox_pool_boots_total", "counter",
	    "Sandboxes booted ahead.", p->boots_total);
	put_value(out, "isobox_pool_boot_failures_total", "counter",
	    "Sandboxes that did not boot, or died while they waited.",
	    p->boot_failures_total);
	put_value(out, "isobox_pool_dropped_total", "counter",
	    "Sandboxes that were given up before a run came.",
	    p->dropped_total);
}

static void put_kernel_counts(const struct kernel_status *k, struct buf *out)
{
	put_value(out, "isobox_kernels_created_total", "counter",
	    "Kernels that sessions were made with.", k->created_total);
	put_value(out, "isobox_kernel_steps_total", "counter",
	    "Steps that kernels have ended.", k->steps_total);
	put_value(out, "isobox_kernel_forks_total", "counter",
	    "Kernels that were made as a copy of another one.", k->forks_total);
	put_value(out, "isobox_kernel_hibernations_total", "counter",
	    "Kernels put on disk.", k->hibernations_total);
	put_us(out, "isobox_kernel_hibernation_seconds_total",
	    "Time that putting kernels on disk took.", k->hibernation_us_total);
	put_value(out, "isobox_kernel_restores_total", "counter",
	    "Kernels fetched from disk.", k->restores_total);
	put_us(out, "isobox_kernel_restore_seconds_total",
	    "Time that fetching kernels from disk took.", k->restore_us_total);
	put_value(out, "isobox_kernel_restores_refused_total", "counter",
	    "Kernels that could not be fetched from disk.",
	    k->restores_refused_total);
	put_value(out, "isobox_kernel_evictions_total", "counter",
	    "Kernels put on disk because their slot or memory was needed.",
	    k->evictions_total);
	put_head(out, "isobox_kernel_deaths_total", "counter",
	    "Kernels that died, by what ended them.");
	for (unsigned i = 0; i < KERNEL_DEATH_COUNT; i++)
		buf_printf(out,
		    "isobox_kernel_deaths_total{reason=\"%s\"} %" PRIu64 "\n",
		    kernel_death_word((enum kernel_death)i),
		    k->deaths_total[i]);
}

static void put_kernels(const struct kernel_status *k, struct buf *out)
{
	put_value(out, "isobox_kernel_slots", "gauge",
	    "Kernels that may be in memory at the same time.", k->max);
	put_head(out, "isobox_kernels", "gauge", "Kernels that live.");
	buf_printf(out,
	    "isobox_kernels{state=\"resident\"} %u\n"
	    "isobox_kernels{state=\"hibernated\"} %u\n",
	    k->used, k->hibernated);
	put_value(out, "isobox_kernels_pinned", "gauge",
	    "Kernels in memory whose state cannot be put on disk.", k->pinned);
	put_value(out, "isobox_kernels_waiting", "gauge",
	    "Interpreters that wait for a kernel session.", k->waiting);
	put_value(out, "isobox_kernel_checkpoint_bytes", "gauge",
	    "Disk that hibernated kernels take.", k->checkpoint_bytes);
	put_kernel_counts(k, out);
}

/* The value of a label: what would end it, or the line, is escaped. */
static void put_label(const char *text, struct buf *out)
{
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\')
			buf_putc(out, '\\');
		if (*text == '\n')
			buf_putc(out, ' ');
		else
			buf_putc(out, *text);
	}
}

static void put_reason(const char *reason, struct buf *out)
{
	cleanup_buf struct buf text = {0};

	text_hide_paths(&text, reason);
	buf_putc(&text, '\0');
	if (text.failed)
		out->failed = true;
	else
		put_label((const char *)text.data, out);
}

static void put_egress(const struct runner_status *s, struct buf *out)
{
	put_value(out, "isobox_egress_allowed", "gauge",
	    "Whether the configuration lets runs have a network.",
	    s->egress != STATUS_EGRESS_OFF);
	if (s->egress_driver[0] != '\0') {
		put_head(out, "isobox_egress_driver_info", "gauge",
		    "What carries its packets into the host's network.");
		buf_puts(out, "isobox_egress_driver_info{driver=\"");
		put_label(s->egress_driver, out);
		buf_puts(out, "\"} 1\n");
	}
	if (s->egress == STATUS_EGRESS_UP || s->egress == STATUS_EGRESS_DOWN)
		put_value(out, "isobox_egress_up", "gauge",
		    "Whether filtered egress was verified at the last try.",
		    s->egress == STATUS_EGRESS_UP);
	if (s->egress == STATUS_EGRESS_DOWN) {
		put_head(
		    out, "isobox_egress_down_info", "gauge", "Why it was not.");
		buf_puts(out, "isobox_egress_down_info{reason=\"");
		put_reason(s->egress_reason, out);
		buf_puts(out, "\"} 1\n");
	}
	put_value(out, "isobox_egress_runs_total", "counter",
	    "Runs that had a network.", s->egress_runs_total);
	put_value(out, "isobox_egress_refused_total", "counter",
	    "Runs that wanted a network and had none.",
	    s->egress_refused_total);
}

void metrics_print_runner(const struct runner_status *s, struct buf *out)
{
	put_value(out, "isobox_runner_up", "gauge",
	    "Whether isobox-runner answered.", s != NULL);
	if (s == NULL)
		return;
	put_value(out, "isobox_runner_ready", "gauge",
	    "Whether isobox-runner can run code.", s->ready);
	put_value(out, "isobox_runner_slots", "gauge",
	    "Runs that it does at the same time.", s->slots);
	put_value(out, "isobox_runner_running", "gauge", "Runs at the moment.",
	    s->running);
	put_value(out, "isobox_runner_queued", "gauge",
	    "Requests that wait for a slot.", s->queued);
	put_value(out, "isobox_runs_total", "counter",
	    "Runs since isobox-runner started.", s->runs_total);
	put_value(out, "isobox_run_timeouts_total", "counter",
	    "Runs that were ended by their wall time.", s->timeouts_total);
	put_value(out, "isobox_run_ooms_total", "counter",
	    "Runs that were ended by their memory limit.", s->ooms_total);
	put_value(out, "isobox_run_failures_total", "counter",
	    "Runs that failed by the host's fault.", s->failures_total);
	put_value(out, "isobox_run_rejected_total", "counter",
	    "Requests that found no free slot.", s->rejected_total);
	put_value(out, "isobox_run_client_gone_total", "counter",
	    "Runs that were ended because the client left.", s->gone_total);
	put_phases(s, out);
	if (s->boot_cpu_us_total != STATUS_UNKNOWN)
		put_us(out, "isobox_boot_cpu_seconds_total",
		    "CPU time that booting sandboxes took.",
		    s->boot_cpu_us_total);
	put_pool(&s->pool, out);
	put_kernels(&s->kernels, out);
	put_egress(s, out);
}
