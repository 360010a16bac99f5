/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fcgi/body.h"
#include "fcgi/exchange.h"
#include "fcgi/guard.h"
#include "fcgi/response.h"
#include "fcgi/session.h"
#include "fcgi/session_json.h"
#include "lib/json.h"
#include "lib/log.h"

static int not_found(struct err *e)
{
	return err_set(e, ERR_VOLUME_NOT_FOUND, ENOENT, "%s", "");
}

static struct ws_call call_for(struct exchange *x, const struct store_volume *v)
{
	return (struct ws_call){
	    .socket = x->app->config->runner_socket,
	    .request_id = x->id,
	    .out = x->out,
	    .kind = WS_VOLUME,
	    .id = v->id,
	};
}

/* The volume of the path, of the caller's tenant. */
static int find(struct exchange *x, struct store_volume *ret, struct err *e)
{
	const char *id = session_param_id(x);
	int r;

	if ((r = guard_memory_key(x, e)) < 0 ||
	    (r = guard_rate(x, RATE_FILE, e)) < 0)
		return r;
	if (id == NULL)
		return not_found(e);
	r = store_volume_get(x->app->store, x->tenant.name, id, ret, e);
	return r < 0 && e->kind == ERR_VOLUME_NOT_FOUND ? not_found(e) : r;
}

static int take_name(
    const char *name, size_t len, struct store_volume *v, struct err *e)
{
	if (len == 0 || len > LIMIT_VOLUME_NAME)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "name must have 1 to %u bytes", LIMIT_VOLUME_NAME);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
			return err_set(e, ERR_INVALID_REQUEST, EINVAL,
			    "name must not contain control characters");
	memcpy(v->name, name, len);
	return 0;
}

static int parse(struct exchange *x, struct store_volume *v, struct err *e)
{
	struct json_object *root = NULL;
	const uint8_t *body;
	const char *name = "";
	size_t name_len = 0;
	size_t len;
	int r;

	if ((r = body_json(x, &body, &len, e)) < 0 ||
	    (r = json_parse_strict(body, len, &root, e)) < 0)
		return r;
	r = json_get_str(root, "name", "name", &name, &name_len, e);
	if (r >= 0)
		r = take_name(name, name_len, v, e);
	(void)json_object_put(root);
	return r;
}

/* What fails here, the sweep does. */
static void remove_it(struct exchange *x, const struct store_volume *v)
{
	struct ws_call call = call_for(x, v);
	struct err e;

	call.out = NULL; /* once begun it is done, whoever waits */
	if (ws_do(WS_REMOVE, &call, NULL, &e) < 0 ||
	    store_volume_delete(x->app->store, v->id, &e) < 0)
		log_warn(
		    "request %s: a volume is removed later: %s", x->id, e.msg);
}

/* Record first: so each directory that there is has one. */
static int make(struct exchange *x, struct store_volume *v, struct err *e)
{
	struct ws_call call = call_for(x, v);
	struct err ignored;
	int r;

	token_new_id(v->id);
	(void)snprintf(v->tenant, sizeof(v->tenant), "%s", x->tenant.name);
	v->created_ms = store_now_ms();
	r = store_volume_create(
	    x->app->store, v, x->app->config->max_volumes, e);
	if (r < 0)
		return r;
	call.out = NULL;
	r = ws_do(WS_CREATE, &call, NULL, e);
	if (r < 0 &&
	    store_volume_end(x->app->store, v->tenant, v->id, &ignored) >= 0)
		remove_it(x, v);
	return r;
}

static void put_facts(struct buf *out, const struct store_volume *v)
{
	buf_printf(out, "{\"id\":\"%s\",\"name\":", v->id);
	json_put_cstr(out, v->name);
	buf_puts(out, ",\"createdAt\":");
	session_put_time(out, v->created_ms);
	buf_printf(
	    out, ",\"attached\":%s", v->holder[0] != '\0' ? "true" : "false");
}

static void put_disk(
    struct buf *out, uint64_t used, uint64_t quota, uint64_t files)
{
	buf_printf(out,
	    ",\"disk\":{\"usedBytes\":%" PRIu64 ",\"quotaBytes\":%" PRIu64
	    ",\"files\":%" PRIu64 "}}",
	    used, quota, files);
}

void h_volumes_post(struct exchange *x)
{
	cleanup_buf struct buf body = {0};
	struct store_volume v = {0};
	char location[64];
	struct err e;

	if (guard_memory_key(x, &e) < 0 || guard_rate(x, RATE_CREATE, &e) < 0 ||
	    parse(x, &v, &e) < 0 || make(x, &v, &e) < 0) {
		response_error(x, &e);
		return;
	}
	metrics_count(&x->app->metrics, METRIC_VOLUMES_CREATED, 1);
	put_facts(&body, &v);
	put_disk(&body, 0, (uint64_t)x->app->config->vol_disk_mb << 20, 0);
	(void)snprintf(
	    location, sizeof(location), "Location: /v1/volumes/%s\r\n", v.id);
	response_json_with(x, 201, location, body.data, body.len);
}

static int put_each(void *arg, const struct store_volume *v, struct err *e)
{
	struct buf *out = arg;

	(void)e;
	if (out->data[out->len - 1] != '[')
		buf_putc(out, ',');
	put_facts(out, v);
	buf_putc(out, '}');
	return 0;
}

void h_volumes_get(struct exchange *x)
{
	cleanup_buf struct buf body = {0};
	struct err e;

	buf_puts(&body, "{\"volumes\":[");
	if (guard_memory_key(x, &e) < 0 || guard_rate(x, RATE_FILE, &e) < 0 ||
	    store_volume_list(
		x->app->store, x->tenant.name, put_each, &body, &e) < 0) {
		response_error(x, &e);
		return;
	}
	buf_puts(&body, "]}");
	response_json(x, 200, body.data, body.len);
}

void h_volume_get(struct exchange *x)
{
	cleanup_buf struct buf body = {0};
	struct store_volume v;
	struct ws_info info;
	struct ws_call call;
	struct err e;

	if (find(x, &v, &e) < 0) {
		response_error(x, &e);
		return;
	}
	call = call_for(x, &v);
	if (ws_do(WS_STAT, &call, &info, &e) < 0) {
		response_error(x, &e);
		return;
	}
	put_facts(&body, &v);
	put_disk(&body, info.used_bytes, info.quota_bytes, info.files);
	response_json(x, 200, body.data, body.len);
}

void h_volume_delete(struct exchange *x)
{
	struct store_volume v;
	struct err e;

	if (find(x, &v, &e) < 0 ||
	    store_volume_end(x->app->store, v.tenant, v.id, &e) < 0) {
		response_error(x, &e);
		return;
	}
	remove_it(x, &v);
	metrics_count(&x->app->metrics, METRIC_VOLUMES_DELETED, 1);
	response_empty(x, 204, NULL);
}
