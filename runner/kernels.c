/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kernels, and what is asked of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/payload.h"
#include "runner/server_int.h"

void kernel_free(struct server *s, struct kernel *k)
{
	struct kernel *other = NULL;

	TAILQ_FOREACH (other, &s->kernels.list, link)
		if (other->copy == k)
			other->copy = NULL;
	TAILQ_REMOVE(&s->kernels.list, k, link);
	k->workspace->kernel = NULL;
	ws_unref(&s->workspaces.table, k->workspace);
	if (k->volume != NULL)
		ws_unref(&s->workspaces.table, k->volume);
	if (k->worker != NULL) {
		kernel_stop(s, k, KERNEL_DEATH_EXIT, "its session is gone");
		k->worker->kernel = NULL;
	}
	buf_free(&k->allow);
	free(k);
}

void kernels_close(struct server *s)
{
	struct kernel *k = NULL;

	if (s->kernels.on_disk)
		checkpoints_close(&s->kernels.checkpoints);

	while ((k = TAILQ_FIRST(&s->kernels.list)) != NULL)
		kernel_free(s, k);
}

struct kernel *kernel_new(struct server *s, struct workspace *w)
{
	struct kernel *k = calloc(1, sizeof *k);

	if (k == NULL)
		return NULL;
	k->workspace = w;
	k->state = KERNEL_STARTING;
	k->memory_bytes = -1;
	k->used_us = clock_us();
	w->kernel = k;
	ws_ref(w);
	TAILQ_INSERT_TAIL(&s->kernels.list, k, link);
	return k;
}

/* ---- who waits for a kernel ---------------------------------------------- */

/* A client that has its answer finds the kernel idle, also before its supervisor
 * has told us so. */
static bool is_busy(const struct kernel *k)
{
	return k->workspace->turn.held &&
	       (k->worker == NULL ||
		   !kernel_mail_in(k->worker->seat.mailbox)->answered);
}

void kernel_answer(struct server *s, struct client *c, const struct kernel *k)
{
	struct kernel_info i = {.state = k->state,
	    .busy = is_busy(k),
	    .memory_bytes = k->worker != NULL ? k->memory_bytes : -1,
	    .checkpoint_bytes = k->checkpoint_bytes,
	    .steps = k->steps,
	    .network = k->online};
	struct buf payload = {0};

	(void)snprintf(i.reason, sizeof i.reason, "%s", k->reason);
	(void)snprintf(
	    i.network_reason, sizeof i.network_reason, "%s", k->network_reason);
	kernel_info_encode(&i, &payload);
	client_reply(s, c, PROTO_KERNEL_INFO, &payload);
	buf_free(&payload);
}

void kernel_serve_waiting(struct server *s, struct kernel *k)
{
	struct client *c, *next;

	for (c = TAILQ_FIRST(&s->clients); c != NULL; c = next) {
		enum kernel_wait wait = c->kernel_wait;

		next = TAILQ_NEXT(c, link);
		if (c->dead || c->kernel != k || wait == KERNEL_WAIT_COPY)
			continue;
		c->kernel = NULL;
		c->kernel_wait = KERNEL_WAIT_NONE;
		if (wait == KERNEL_WAIT_INFO)
			kernel_answer(s, c, k);
		else if (wait == KERNEL_WAIT_FORK)
			kernel_fork(s, c, k);
		else
			client_admit(s, c);
	}
}

void kernel_fail_waiting(struct server *s, struct kernel *k, enum err_kind kind,
    uint32_t retry_after_s, const char *why)
{
	struct client *c, *next;

	for (c = TAILQ_FIRST(&s->clients); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (!c->dead && c->kernel == k)
			client_fail(s, c, kind, retry_after_s, why);
	}
}

bool kernel_is_wanted(const struct server *s, const struct kernel *k)
{
	const struct client *c = NULL;

	TAILQ_FOREACH (c, &s->clients, link)
		if (!c->dead && c->kernel == k)
			return true;
	return false;
}

/* ---- the end ------------------------------------------------------------- */

void kernel_stop(struct server *s, struct kernel *k, enum kernel_death death,
    const char *why)
{
	const uint32_t gone = RUN_CONTROL_GONE;

	(void)s;
	if (k->worker == NULL || k->ending)
		return;
	k->ending = true;
	k->death = death;
	(void)snprintf(k->reason, sizeof k->reason, "%s", why);
	(void)send(k->worker->source.fd, &gone, sizeof gone,
	    MSG_NOSIGNAL | MSG_DONTWAIT);
	worker_must_end(k->worker);
}

void kernels_end(struct server *s, struct workspace *w)
{
	struct kernel *k, *next;

	for (k = TAILQ_FIRST(&s->kernels.list); k != NULL; k = next) {
		next = TAILQ_NEXT(k, link);
		if (k->workspace != w && k->volume != w)
			continue;
		k->wants_slot = false;
		k->removed = true;
		kernel_fail_waiting(
		    s, k, ERR_SESSION_NOT_FOUND, 0, "the session was removed");
		if (k->worker != NULL)
			workspaces_take_turn(
			    s, &k->worker->turn, k->workspace, k->volume);
		kernel_stop(s, k, KERNEL_DEATH_EXIT,
		    "the session or its volume was removed");
	}
}

void kernels_drain(struct server *s)
{
	struct kernel *k = NULL;

	kernels_drop_waiting(s);
	/* A step that runs has the time that runs have. */
	TAILQ_FOREACH (k, &s->kernels.list, link)
		if (k->state == KERNEL_STARTING || !s->kernels.on_disk)
			kernel_stop(
			    s, k, KERNEL_DEATH_EXIT, "the service ended");
		else if (kernel_may_save(s, k))
			(void)kernel_hibernate(s, k);
		else if (!k->saving && !k->workspace->turn.held)
			kernel_stop(s, k, KERNEL_DEATH_EXIT,
			    "the service ended, and it could not be put on "
			    "disk");
}

void kernels_forget(struct server *s, struct workspace *w)
{
	if (w->kernel != NULL)
		kernel_free(s, w->kernel);
}

void kernel_undo(struct server *s, struct kernel *k)
{
	struct workspace *w = k->workspace;
	/* What has something in it is somebody's: its end is asked for. */
	const bool gone = k->fresh && workspaces_unmake(s, w);

	ws_ref(w);
	kernel_free(s, k);
	if (gone)
		ws_table_remove(&s->workspaces.table, w);
	ws_unref(&s->workspaces.table, w);
}

/* ---- requests ------------------------------------------------------------ */

static int check_create(
    const struct server *s, const struct kernel_request *q, struct err *e)
{
	const struct runtime *rt;

	if (s->config->kernel_slots == 0)
		return err_set(e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
		    "this service has no kernels: kernel_slots is 0");
	rt = registry_find(s->registry, (const char *)q->runtime.data,
	    q->runtime.len, (const char *)q->version.data, q->version.len, e);
	if (rt == NULL)
		return -EINVAL;
	if (!rt->kernel)
		return err_set(e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
		    "%s has no kernel", rt->name);
	return 0;
}

static void copy_word(char ret[LIMIT_ID + 1], const struct blob *word)
{
	memcpy(ret, word->data, word->len);
	ret[word->len] = '\0';
}

static int describe(struct server *s, struct kernel *k,
    const struct kernel_request *q, struct err *e)
{
	copy_word(k->runtime, &q->runtime);
	copy_word(k->version, &q->version);
	k->network = q->network;
	k->tenant = q->tenant;
	put_blobs(&k->allow, q->allow, q->allow_count);
	if (k->allow.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	if (q->volume.len == 0)
		return 0;
	k->volume = ws_table_find(&s->workspaces.table, WS_VOLUME, &q->volume);
	if (k->volume == NULL)
		return ws_gone(WS_VOLUME, e);
	ws_ref(k->volume);
	return 0;
}

/* The kernel of a new session, or of one that has none yet. */
static struct kernel *add_kernel(
    struct server *s, const struct kernel_request *q, struct err *e)
{
	struct ws_table *t = &s->workspaces.table;
	struct workspace *w = ws_table_find(t, WS_SESSION, &q->id);
	const bool fresh = w == NULL;
	struct kernel *k = NULL;

	if (workspaces_room(s, e) < 0)
		return NULL;
	if (fresh && (w = ws_table_add(t, WS_SESSION, &q->id, e)) == NULL)
		return NULL;
	k = kernel_new(s, w);
	if (k == NULL)
		(void)err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	else if (describe(s, k, q, e) == 0 && workspaces_make(s, w, e) == 0) {
		k->fresh = fresh;
		return k;
	}
	if (k != NULL)
		kernel_free(s, k);
	if (fresh)
		ws_table_remove(t, w);
	return NULL;
}

static void create(
    struct server *s, struct client *c, const struct kernel_request *q)
{
	struct workspace *w =
	    ws_table_find(&s->workspaces.table, WS_SESSION, &q->id);
	struct kernel *k = w != NULL ? w->kernel : NULL;
	struct err e;

	if (health_check(s, &e) < 0 || check_create(s, q, &e) < 0 ||
	    (k == NULL && (k = add_kernel(s, q, &e)) == NULL)) {
		client_fail(s, c, e.kind, 0, e.msg);
		return;
	}
	if (k->state != KERNEL_STARTING) {
		kernel_answer(s, c, k);
		return;
	}
	c->kernel = k;
	c->kernel_wait = KERNEL_WAIT_INFO;
	if (k->worker == NULL)
		kernel_want(s, k);
}

static void interrupt(struct server *s, struct client *c, struct kernel *k)
{
	const uint32_t word = RUN_CONTROL_INTERRUPT;

	if (k->worker != NULL)
		(void)send(k->worker->source.fd, &word, sizeof word,
		    MSG_NOSIGNAL | MSG_DONTWAIT);
	kernel_answer(s, c, k);
}

/* As a step has: none runs meanwhile. */
static void fork_later(struct server *s, struct client *c,
    const struct kernel_request *q, struct kernel *k)
{
	copy_word(c->fork_id, &q->new_id);
	workspaces_queue_turn(s, c, k->workspace, k->volume,
	    clock_us() + (uint64_t)s->config->kernel_max_step_ms * 1000);
}

static void answer_none(struct server *s, struct client *c)
{
	struct err e;

	(void)ws_gone(WS_SESSION, &e);
	client_fail(s, c, e.kind, 0, e.msg);
}

/* It was in memory when the runner was killed: there is a workspace and nothing
 * else of it. */
static void answer_lost(struct server *s, struct client *c, enum kernel_op op)
{
	struct kernel_info i = {
	    .state = KERNEL_DEAD, .memory_bytes = -1, .reason = KERNEL_LOST};
	struct buf payload = {0};

	if (op == KERNEL_FORK) {
		client_fail(s, c, ERR_KERNEL_DEAD, 0, KERNEL_LOST);
		return;
	}
	kernel_info_encode(&i, &payload);
	client_reply(s, c, PROTO_KERNEL_INFO, &payload);
	buf_free(&payload);
}

static void dispatch(
    struct server *s, struct client *c, const struct kernel_request *q)
{
	const struct workspace *w;

	if (q->op == KERNEL_CREATE) {
		create(s, c, q);
		return;
	}
	w = ws_table_find(&s->workspaces.table, WS_SESSION, &q->id);
	if (w == NULL)
		answer_none(s, c);
	else if (w->kernel == NULL)
		answer_lost(s, c, q->op);
	else if (q->op == KERNEL_INTERRUPT)
		interrupt(s, c, w->kernel);
	else if (q->op == KERNEL_FORK)
		fork_later(s, c, q, w->kernel);
	else
		kernel_answer(s, c, w->kernel);
}

void kernels_request(
    struct server *s, struct client *c, const uint8_t *payload, size_t len)
{
	struct kernel_request q;
	struct err e;

	c->has_kernel = true;
	if (s->draining) {
		client_fail(s, c, ERR_SANDBOX_FAILED, 0,
		    "the service is shutting down");
		return;
	}
	if (kernel_request_decode(payload, len, &q, &e) < 0) {
		log_error("refused a request: %s", e.msg);
		client_fail(s, c, ERR_SANDBOX_FAILED, 0, e.msg);
		return;
	}
	if (!s->workspaces.usable)
		client_fail(s, c, ERR_SANDBOX_FAILED, 0, s->workspaces.why);
	else
		dispatch(s, c, &q);
	kernel_request_done(&q);
}

/* ---- figures ------------------------------------------------------------- */

void kernels_status(const struct server *s, struct kernel_status *ret)
{
	const struct worker *w = NULL;
	const struct kernel *k = NULL;

	*ret = s->kernels.status;
	ret->used = s->kernels.used;
	ret->max = s->config->kernel_slots;
	TAILQ_FOREACH (k, &s->kernels.list, link) {
		if (k->state == KERNEL_HIBERNATED) {
			ret->hibernated++;
			ret->checkpoint_bytes += k->checkpoint_bytes;
		}
		if (k->state == KERNEL_RESIDENT && k->reason[0] != '\0')
			ret->pinned++;
	}
	TAILQ_FOREACH (w, &s->workers, link)
		if (w->kind == WORKER_KERNEL && w->seat.waits)
			ret->waiting++;
}
