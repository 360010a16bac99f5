/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "fcgi/body.h"
#include "fcgi/exchange.h"
#include "fcgi/guard.h"
#include "fcgi/response.h"
#include "fcgi/session.h"
#include "lib/json.h"
#include "lib/log.h"

/* 256 random bits in base64url, and a NUL. */
#define TOKEN_BYTES 32u
#define TOKEN_SIZE                 \
	sodium_base64_ENCODED_LEN( \
	    TOKEN_BYTES, sodium_base64_VARIANT_URLSAFE_NO_PADDING)

/* The least idle time that can be asked for: longer than any step takes. */
#define TTL_MIN_SEC 60

/* When there are too many sessions: one may end any time. */
#define RETRY_SEC 60

static const char *type_word(enum store_session_type type)
{
	return type == STORE_SESSION_KERNEL ? "kernel" : "filesystem";
}

/* The members that a wish has, borrowed from the parsed body. */
static int get_text(
    struct json_object *root, const char *name, struct blob *ret, struct err *e)
{
	const char *s = NULL;
	size_t len = 0;
	int r = json_get_str(root, name, name, &s, &len, e);

	*ret = (struct blob){(const uint8_t *)s, len};
	return r;
}

static bool is_text(const struct blob *b, const char *text)
{
	return b->len == strlen(text) && memcmp(b->data, text, b->len) == 0;
}

static int take_runtime(struct exchange *x, struct json_object *root,
    struct store_session *s, struct err *e)
{
	struct blob name;
	struct blob version;
	struct shared *catalog;
	const struct runtime *rt;
	int r;

	if ((r = get_text(root, "runtime", &name, e)) < 0 ||
	    (r = get_text(root, "version", &version, e)) < 0)
		return r;
	if (name.len == 0)
		return err_set(e, ERR_RUNTIME_REQUIRED, EINVAL, "%s", "");
	catalog = shared_slot_get(&x->app->catalog);
	rt = registry_find(((const struct catalog *)catalog)->registry,
	    (const char *)name.data, name.len,
	    version.len > 0 ? (const char *)version.data : NULL, version.len,
	    e);
	if (rt != NULL) {
		(void)snprintf(s->runtime, sizeof(s->runtime), "%s", rt->name);
		(void)snprintf(
		    s->version, sizeof(s->version), "%s", rt->version);
	}
	shared_put(catalog);
	return rt != NULL ? 0 : -EINVAL;
}

static int take_type(
    struct json_object *root, struct store_session *s, struct err *e)
{
	struct blob type;
	int r = get_text(root, "type", &type, e);

	if (r < 0)
		return r;
	s->type = STORE_SESSION_FILESYSTEM;
	if (type.data == NULL || is_text(&type, "filesystem"))
		return 0;
	if (!is_text(&type, "kernel"))
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "type must be \"filesystem\" or \"kernel\"");
	return err_set(
	    e, ERR_KERNEL_UNSUPPORTED, ENOTSUP, "%s has no kernel", s->runtime);
}

static int take_ttl(struct exchange *x, struct json_object *root,
    struct store_session *s, struct err *e)
{
	const int64_t max = x->app->config->session_ttl_sec;
	int64_t ttl = max;
	int r = json_get_int(root, "ttlSec", "ttlSec", &ttl, e);

	if (r < 0)
		return r;
	if (ttl < TTL_MIN_SEC)
		ttl = TTL_MIN_SEC;
	s->ttl_sec = (uint32_t)(ttl < max ? ttl : max);
	return 0;
}

/* The store says whether there is such a volume. */
static int take_volume(struct exchange *x, struct json_object *root,
    struct store_session *s, struct err *e)
{
	struct blob id;
	int r = get_text(root, "volumeId", &id, e);

	if (r < 0 || id.len == 0)
		return r;
	if (id.len != TOKEN_ID_LEN || !ws_id_ok(&id))
		return err_set(e, ERR_VOLUME_NOT_FOUND, ENOENT, "%s", "");
	memcpy(s->volume, id.data, id.len);
	return guard_memory_key(x, e);
}

static int parse(struct exchange *x, struct store_session *s, struct err *e)
{
	struct json_object *root = NULL;
	const uint8_t *body;
	size_t len;
	int r;

	if ((r = body_json(x, &body, &len, e)) < 0 ||
	    (r = json_parse_strict(body, len, &root, e)) < 0)
		return r;
	s->network = true;
	if ((r = take_runtime(x, root, s, e)) >= 0 &&
	    (r = take_type(root, s, e)) >= 0 &&
	    (r = take_ttl(x, root, s, e)) >= 0 &&
	    (r = take_volume(x, root, s, e)) >= 0)
		r = json_get_bool(root, "network", "network", &s->network, e);
	(void)json_object_put(root);
	return r;
}

/* Fills in what is ours to say, and the token. */
static void name_it(
    struct exchange *x, struct store_session *s, char token[TOKEN_SIZE])
{
	uint8_t random[TOKEN_BYTES];

	token_random(random, sizeof(random));
	(void)sodium_bin2base64(token, TOKEN_SIZE, random, sizeof(random),
	    sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	token_hash(token, TOKEN_SIZE - 1, s->token_hash);
	token_new_id(s->id);
	(void)snprintf(s->tenant, sizeof(s->tenant), "%s", x->tenant.name);
	s->created_ms = s->used_ms = store_now_ms();
	s->expires_ms = s->created_ms + s->ttl_sec * INT64_C(1000);
}

/* Its record goes with its workspace; what fails here, the sweep does. */
static void remove_it(struct exchange *x, const struct store_session *s)
{
	struct ws_call call = session_call(x, s);
	struct err e;

	call.out = NULL; /* once begun it is done, whoever waits */
	if (ws_do(WS_REMOVE, &call, NULL, &e) < 0 ||
	    store_session_delete(x->app->store, s->id, &e) < 0)
		log_warn(
		    "request %s: a session is removed later: %s", x->id, e.msg);
}

/* Record first: a workspace without one is garbage to the sweep. */
static int make(
    struct exchange *x, const struct store_session *s, struct err *e)
{
	struct ws_call call = session_call(x, s);
	const struct store_session_max max = {x->app->config->max_sessions,
	    x->app->config->max_sessions_per_tenant};
	struct err ignored;
	int r = store_session_create(x->app->store, s, &max, e);

	if (r < 0)
		return r;
	call.out = NULL;
	r = ws_do(WS_CREATE, &call, NULL, e);
	if (r < 0 &&
	    store_session_end(x->app->store, s->tenant, s->id, &ignored) >= 0)
		remove_it(x, s);
	return r;
}

/* token NULL: it is told at the creation only. */
static void put_facts(
    struct buf *out, const struct store_session *s, const char *token)
{
	buf_printf(out, "{\"id\":\"%s\",", s->id);
	if (token != NULL)
		buf_printf(out, "\"token\":\"%s\",", token);
	buf_puts(out, "\"runtime\":");
	json_put_cstr(out, s->runtime);
	buf_puts(out, ",\"version\":");
	json_put_cstr(out, s->version);
	buf_printf(out, ",\"type\":\"%s\",\"createdAt\":", type_word(s->type));
	session_put_time(out, s->created_ms);
	buf_puts(out, ",\"lastUsedAt\":");
	session_put_time(out, s->used_ms);
	buf_puts(out, ",\"expiresAt\":");
	session_put_time(out, s->expires_ms);
	buf_printf(out, ",\"ttlSec\":%" PRIu32 ",\"volumeId\":", s->ttl_sec);
	if (s->volume[0] != '\0')
		buf_printf(out, "\"%s\"", s->volume);
	else
		buf_puts(out, "null");
}

static void answer_made(
    struct exchange *x, const struct store_session *s, const char *token)
{
	cleanup_buf struct buf body = {0};
	char location[64];

	put_facts(&body, s, token);
	buf_putc(&body, '}');
	(void)snprintf(
	    location, sizeof(location), "Location: /v1/sessions/%s\r\n", s->id);
	response_json_with(x, 201, location, body.data, body.len);
}

void h_sessions_post(struct exchange *x)
{
	struct store_session s = {0};
	char token[TOKEN_SIZE];
	struct err e;

	if (guard_key(x, &e) < 0 || guard_rate(x, RATE_CREATE, &e) < 0 ||
	    parse(x, &s, &e) < 0) {
		response_error(x, &e);
		return;
	}
	name_it(x, &s, token);
	if (make(x, &s, &e) < 0) {
		if (e.kind == ERR_TOO_MANY_SESSIONS)
			x->retry_after_s = RETRY_SEC;
		response_error(x, &e);
	} else {
		metrics_count(&x->app->metrics, METRIC_SESSIONS_CREATED, 1);
		answer_made(x, &s, token);
	}
	sodium_memzero(token, sizeof(token));
}

/* The bounds of a step, and what it gets when it asks for nothing. */
static void put_limits(
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
		buf_printf(out,
		    "{\"memoryBytes\":%" PRIu64 ",\"cpus\":%g,"
		    "\"pids\":%u,\"outputBytes\":%u,\"wallTimeMs\":%u}",
		    rt->limits.memory_bytes, rt->limits.cpus_milli / 1000.0,
		    rt->limits.pids, rt->limits.output_bytes,
		    rt->limits.wall_time_ms);
	shared_put(catalog);
}

void h_session_get(struct exchange *x)
{
	cleanup_buf struct buf body = {0};
	struct store_session s;
	struct ws_info info;
	struct ws_call call;
	struct err e;

	if (session_find(x, &s, &e) < 0 || guard_rate(x, RATE_FILE, &e) < 0) {
		response_error(x, &e);
		return;
	}
	call = session_call(x, &s);
	if (ws_do(WS_STAT, &call, &info, &e) < 0) {
		session_check_lost(x, &s, &e);
		response_error(x, &e);
		return;
	}
	put_facts(&body, &s, NULL);
	buf_printf(&body,
	    ",\"busy\":%s,\"disk\":{\"usedBytes\":%" PRIu64
	    ",\"quotaBytes\":%" PRIu64 ",\"files\":%" PRIu64 "},\"limits\":",
	    info.busy ? "true" : "false", info.used_bytes, info.quota_bytes,
	    info.files);
	put_limits(x, &s, &body);
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
	remove_it(x, &s);
	metrics_count(&x->app->metrics, METRIC_SESSIONS_DELETED, 1);
	response_empty(x, 204, NULL);
}
