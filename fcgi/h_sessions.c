/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/handlers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fcgi/body.h"
#include "fcgi/exchange.h"
#include "fcgi/execnet.h"
#include "fcgi/guard.h"
#include "fcgi/kclient.h"
#include "fcgi/newsession.h"
#include "fcgi/response.h"
#include "fcgi/session.h"
#include "lib/json.h"
#include "lib/token.h"

/* POST /v1/sessions: what a session shall be, and its making. */
struct wish {
	struct newsession new;
	struct execnet network; /* of a kernel; borrowed from the parsed body */
	bool has_kernel; /* the runtime */
};

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

static int take_runtime(
    struct exchange *x, struct json_object *root, struct wish *w, struct err *e)
{
	struct store_session *s = &w->new.record;
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
		w->has_kernel = rt->kernel;
	}
	shared_put(catalog);
	return rt != NULL ? 0 : -EINVAL;
}

static int take_type(
    struct exchange *x, struct json_object *root, struct wish *w, struct err *e)
{
	struct store_session *s = &w->new.record;
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
	if (!w->has_kernel)
		return err_set(e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
		    "%s has no kernel", s->runtime);
	if (x->app->config->kernel_slots == 0)
		return err_set(e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
		    "this service has kernels turned off");
	s->type = STORE_SESSION_KERNEL;
	return 0;
}

/* Steps of other sessions say it themselves: names that nobody would look at are
 * refused. */
static int take_network(struct json_object *root, struct wish *w, struct err *e)
{
	struct store_session *s = &w->new.record;
	int r = execnet_take(root, &w->network, e);

	if (r < 0)
		return r;
	s->network = w->network.on;
	if (w->network.count > 0 && s->type != STORE_SESSION_KERNEL)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "network.allow is of a kernel; here each step says it");
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

static int parse(
    struct exchange *x, struct json_object *root, struct wish *w, struct err *e)
{
	int r;

	if ((r = take_runtime(x, root, w, e)) < 0 ||
	    (r = take_type(x, root, w, e)) < 0 ||
	    (r = newsession_take_ttl(x, root, &w->new, e)) < 0 ||
	    (r = take_volume(x, root, &w->new.record, e)) < 0)
		return r;
	return take_network(root, w, e);
}

static struct blob blob_of(const char *s)
{
	return (struct blob){(const uint8_t *)s, strlen(s)};
}

static int make_workspace(
    struct exchange *x, const struct store_session *s, struct err *e)
{
	struct ws_call call = session_call(x, s);

	call.out = NULL; /* once begun it is done, whoever waits */
	return ws_do(WS_CREATE, &call, NULL, e);
}

/* The runner only compares it, to share out its slots. */
static uint64_t tenant_number(const char *name)
{
	uint8_t hash[TOKEN_HASH_LEN];
	uint64_t n;

	token_hash(name, strlen(name), hash);
	memcpy(&n, hash, sizeof(n));
	return n;
}

/* Its workspace comes with it. */
static int make_kernel(struct exchange *x, struct wish *w, struct err *e)
{
	const struct store_session *s = &w->new.record;
	struct kernel_request q = {
	    .op = KERNEL_CREATE,
	    .id = blob_of(s->id),
	    .runtime = blob_of(s->runtime),
	    .version = blob_of(s->version),
	    .volume = blob_of(s->volume),
	    .network = s->network,
	    .allow = w->network.names,
	    .allow_count = w->network.count,
	    .tenant = tenant_number(s->tenant),
	};

	return kclient_ask(x, &q, &w->new.kernel, e);
}

static int make(
    struct exchange *x, struct newsession *n, void *arg, struct err *e)
{
	if (n->record.type == STORE_SESSION_KERNEL)
		return make_kernel(x, arg, e);
	return make_workspace(x, &n->record, e);
}

static int create(struct exchange *x, struct wish *w, struct err *e)
{
	struct json_object *root = NULL;
	const uint8_t *body;
	size_t len;
	int r;

	if ((r = body_json(x, &body, &len, e)) < 0 ||
	    (r = json_parse_strict(body, len, &root, e)) < 0)
		return r;
	r = parse(x, root, w, e);
	if (r >= 0)
		r = newsession_begin(x, &w->new, make, w, e);
	(void)json_object_put(root);
	return r;
}

void h_sessions_post(struct exchange *x)
{
	struct wish w = {0};
	struct err e;

	if (guard_key(x, &e) < 0 || guard_rate(x, RATE_CREATE, &e) < 0 ||
	    create(x, &w, &e) < 0)
		response_error(x, &e);
	else
		newsession_answer(x, &w.new);
}
