/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/result.h"

#include <inttypes.h>
#include <string.h>

#include "fcgi/artifacts.h"
#include "fcgi/catalog.h"
#include "fcgi/sse.h"
#include "fcgi/text.h"
#include "lib/json.h"

static void put_output(
    struct buf *out, const struct buf *raw, bool base64, bool cut)
{
	if (base64)
		text_put_base64(out, raw->data, raw->len);
	else
		text_put_decoded(out, raw->data, raw->len, cut);
}

static const char *word(bool b)
{
	return b ? "true" : "false";
}

/* "SIGSEGV"; the real-time signals have no names of their own. */
static void put_signal(struct buf *out, unsigned n)
{
	const char *name = n > 0 ? sigabbrev_np((int)n) : NULL;

	if (n == 0)
		buf_puts(out, "null");
	else if (name != NULL)
		buf_printf(out, "\"SIG%s\"", name);
	else
		buf_printf(out, "\"SIG%u\"", n);
}

static uint64_t to_ms(uint64_t us)
{
	return us / 1000 + (us % 1000 >= 500 ? 1 : 0);
}

bool result_truncated(const struct result_parts *p)
{
	const struct run_result *r = p->result;

	return r->stdout_truncated || r->stderr_truncated ||
	       r->artifacts_dropped || p->artifacts->dropped;
}

static void put_run(struct buf *out, const struct result_parts *p)
{
	const struct run_result *r = p->result;

	buf_puts(out, "{\"stdout\":");
	put_output(
	    out, &p->output[STREAM_STDOUT], p->base64, r->stdout_truncated);
	buf_puts(out, ",\"stderr\":");
	put_output(
	    out, &p->output[STREAM_STDERR], p->base64, r->stderr_truncated);
	buf_printf(out,
	    ",\"exitCode\":%u,\"timedOut\":%s,\"oomKilled\":%s,"
	    "\"truncated\":%s,\"durationMs\":%" PRIu64 ",\"network\":%s,"
	    "\"signal\":",
	    r->exit_code, word(r->timed_out), word(r->oom_killed),
	    word(result_truncated(p)), to_ms(r->duration_us), word(r->network));
	put_signal(out, r->signal);
	if (r->cpu_us != RUN_RESULT_UNKNOWN)
		buf_printf(out, ",\"cpuTimeMs\":%" PRIu64, to_ms(r->cpu_us));
	else
		buf_puts(out, ",\"cpuTimeMs\":null");
	if (r->memory_peak_bytes >= 0)
		buf_printf(
		    out, ",\"memoryPeakBytes\":%" PRId64, r->memory_peak_bytes);
	else
		buf_puts(out, ",\"memoryPeakBytes\":null");
	if (r->kernel != RUN_KERNEL_NONE)
		buf_printf(out, ",\"interrupted\":%s", word(r->interrupted));
	buf_putc(out, '}');
}

/* What a kernel's step has beyond a run. */
static void put_kernel(struct buf *out, const struct result_parts *p)
{
	const struct buf *json = &p->artifacts->json;

	if (json->len > 0) {
		buf_puts(out, ",\"artifacts\":[");
		buf_put(out, json->data, json->len);
		buf_putc(out, ']');
	}
	buf_printf(out, ",\"kernel\":\"%s\"",
	    p->result->kernel == RUN_KERNEL_DEAD ? "dead" : "alive");
}

static void put_blob(struct buf *out, const struct blob *b)
{
	text_put_utf8(out, b->data, b->len);
}

void result_put(struct buf *out, const struct result_parts *p)
{
	buf_puts(out, "{\"language\":");
	put_blob(out, &p->job->runtime);
	buf_puts(out, ",\"version\":");
	put_blob(out, &p->job->version);
	buf_puts(out, ",\"backend\":\"" BACKEND "\",\"run\":");
	put_run(out, p);
	if (p->result->kernel != RUN_KERNEL_NONE)
		put_kernel(out, p);
	if (p->job->network && !p->result->network)
		buf_puts(out, ",\"warning\":\"" RESULT_NETWORK_OFF "\"");
	buf_putc(out, '}');
}

static void put_phase(
    struct buf *out, const char *name, const char *more, uint64_t us)
{
	buf_printf(out, "%s;dur=%" PRIu64 ".%03" PRIu64 "%s", name, us / 1000,
	    us % 1000, more);
}

void result_put_timing(struct buf *out, const struct run_result *r)
{
	put_phase(out, "queue", ", ", r->queue_us);
	put_phase(out, "boot", r->warm ? ";desc=\"warm\", " : ", ", r->boot_us);
	put_phase(out, "run", "", r->duration_us);
}
