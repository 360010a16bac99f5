/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <inttypes.h>
#include <string.h>

#include "fcgi/exchange.h"
#include "fcgi/guard.h"
#include "fcgi/kclient.h"
#include "fcgi/response.h"
#include "fcgi/session.h"
#include "fcgi/session_json.h"

/* What is asked of the runner for a look at a session. */
struct look {
	struct ws_info disk;
	struct kernel_info kernel; /* of a kernel session */
};

static int ask(struct exchange *x, const struct store_session *s,
    struct look *ret, struct err *e)
{
	struct ws_call call = session_call(x, s);
	struct kernel_request q = {
	    .op = KERNEL_STAT,
	    .id = {(const uint8_t *)s->id, strlen(s->id)},
	};
	int r = ws_do(WS_STAT, &call, &ret->disk, e);

	if (r >= 0 && s->type == STORE_SESSION_KERNEL)
		r = kclient_ask(x, &q, &ret->kernel, e);
	if (r < 0)
		session_check_lost(x, s, e);
	return r;
}

static struct limits limits_of(const struct config *config,
    const struct runtime *rt, enum store_session_type type)
{
	struct limits l = rt->limits;

	if (type == STORE_SESSION_KERNEL)
		l.memory_bytes = (uint64_t)config->kernel_mem_mb << 20;
	if (l.wall_time_ms > session_wall_max_ms(config, type))
		l.wall_time_ms = session_wall_max_ms(config, type);
	return l;
}

static void put_limits(struct buf *out, struct limits l)
{
	buf_printf(out,
	    "{\"memoryBytes\":%" PRIu64 ",\"cpus\":%g,"
	    "\"pids\":%u,\"outputBytes\":%u,\"wallTimeMs\":%u}",
	    l.memory_bytes, l.cpus_milli / 1000.0, l.pids, l.output_bytes,
	    l.wall_time_ms);
}

/* The bounds of a step, and what it gets when it asks for nothing. */
static void put_step_limits(
    struct exchange *x, const struct store_session *s, struct buf *out)
{
	struct shared *catalog = shared_slot_get(&x->app->catalog);
	struct err ignored;
	const struct runtime *rt = registry_find(
	    ((const struct catalog *)catalog)->registry, s->runtime,
	    strlen(s->runtime), s->version, strlen(s->version), &ignored);

	if (rt == NULL) /* not offered any more */
		buf_puts(out, "null");
	else
		put_limits(out, limits_of(x->app->config, rt, s->type));
	shared_put(catalog);
}

/* Of a kernel only the kernel's own word counts: its workspace is free a moment
 * after its answer. */
static bool is_busy(const struct store_session *s, const struct look *look)
{
	return s->type == STORE_SESSION_KERNEL ? look->kernel.busy
					       : look->disk.busy;
}

void h_session_get(struct exchange *x)
{
	cleanup_buf struct buf body = {0};
	struct store_session s;
	struct look look = {0};
	struct err e;

	if (session_find(x, &s, &e) < 0 || guard_rate(x, RATE_FILE, &e) < 0 ||
	    ask(x, &s, &look, &e) < 0) {
		response_error(x, &e);
		return;
	}
	session_put_facts(&body, &s, NULL);
	buf_printf(&body,
	    ",\"busy\":%s,\"disk\":{\"usedBytes\":%" PRIu64
	    ",\"quotaBytes\":%" PRIu64 ",\"files\":%" PRIu64 "},\"limits\":",
	    is_busy(&s, &look) ? "true" : "false", look.disk.used_bytes,
	    look.disk.quota_bytes, look.disk.files);
	put_step_limits(x, &s, &body);
	if (s.type == STORE_SESSION_KERNEL)
		session_put_kernel(&body, &s, &look.kernel);
	buf_putc(&body, '}');
	response_json(x, 200, body.data, body.len);
}

/* Ended is ended: from the first write on nobody finds it, and the sweep sees to
 * what cannot be removed now. */
void h_session_delete(struct exchange *x)
{
	struct store_session s;
	struct err e;

	if (session_find(x, &s, &e) < 0 ||
	    store_session_end(x->app->store, s.tenant, s.id, &e) < 0) {
		response_error(x, &e);
		return;
	}
	session_remove(x, &s);
	metrics_count(&x->app->metrics, METRIC_SESSIONS_DELETED, 1);
	response_empty(x, 204, NULL);
}
