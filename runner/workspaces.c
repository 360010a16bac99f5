/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The loop only knows which workspaces there are and what
 * they take; whatever looks into one is a child. Operations on files go side by
 * side with each other and with a step, the kernel keeps them apart. A step needs
 * the turn of its workspaces, and so does a removal, which comes before all steps
 * that wait and ends the one that runs.
 */
#include "runner/workspaces.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/server_int.h"
#include "runner/ws_op.h"
#include "runner/ws_trash.h"

/* Longest lives of children. What a client is slow with, the web side bounds; this
 * is for what hangs. */
#define CHILD_MAX_US 60000000u
#define TREE_MAX_US 600000000u /* removing, uploading */
#define ZIP_MAX_US 3600000000u

/* After a removal was not finished. */
#define SWEEP_AGAIN_US 5000000u

#define SWEEP_MAX_US 3600000000u

void workspaces_open(struct server *s)
{
	struct workspaces *ws = &s->workspaces;
	struct err e;

	TAILQ_INIT(&ws->children);
	turns_init(&ws->turns);
	ws->sweep_us = UINT64_MAX;
	if (ws_root_open(s->config, s->begun_us, &ws->root, &e) < 0 ||
	    ws_table_open(
		s->config, &ws->root, WS_CHILDREN_MAX, &ws->table, &e) < 0) {
		log_error("no sessions: %s", e.msg);
		(void)snprintf(ws->why, sizeof ws->why, "%s", e.msg);
		return;
	}
	ws_trash_keep_spare(&ws->root);
	ws->usable = true;
	ws->sweep_us = clock_us();
}

void workspaces_close(struct server *s)
{
	struct workspaces *ws = &s->workspaces;
	struct ws_child *c;

	workspaces_abandon(s);
	while ((c = TAILQ_FIRST(&ws->children)) != NULL) {
		(void)waitpid(c->pid, NULL, 0);
		TAILQ_REMOVE(&ws->children, c, link);
		free(c);
	}
	ws_table_close(&ws->table);
	ws_root_close(&ws->root);
}

void workspaces_close_lock(const struct server *s)
{
	if (s->workspaces.root.fd >= 0)
		(void)close(s->workspaces.root.fd);
}

/* ---- children ------------------------------------------------------------ */

static uint64_t child_max_us(enum ws_op op)
{
	if (op == WS_ZIP)
		return ZIP_MAX_US;
	return op == WS_REMOVE || op == WS_DELETE || op == WS_WRITE
		   ? TREE_MAX_US
		   : CHILD_MAX_US;
}

/* In the child: it has nothing to do any more when the runner is gone. */
static void leash(pid_t runner)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != runner)
		_exit(WS_END_REFUSED);
}

/* Forks; NULL on failure, and in the child with *ret_child. */
static struct ws_child *fork_child(
    struct server *s, int keep_fd, bool *ret_child)
{
	struct ws_child *x = calloc(1, sizeof *x);
	const pid_t runner = getpid();

	*ret_child = false;
	if (x == NULL)
		return NULL;
	x->pid = fork();
	if (x->pid == 0) {
		*ret_child = true;
		worker_settle_child(s, keep_fd);
		leash(runner);
	}
	if (x->pid <= 0) {
		free(x);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&s->workspaces.children, x, link);
	return x;
}

static size_t take_claim(struct workspaces *ws, const struct workspace *w)
{
	size_t i = 0;

	while (ws->claims[i]) /* child_count says that one is free */
		i++;
	ws->claims[i] = true;
	atomic_store(&ws->table.ledger.claims[i].bytes, 0);
	atomic_store(
	    &ws->table.ledger.claims[i].account, w != NULL ? w->account : 0);
	return i;
}

static void give_claim(struct workspaces *ws, size_t i)
{
	atomic_store(&ws->table.ledger.claims[i].bytes, 0);
	ws->claims[i] = false;
}

static bool too_many(const struct workspaces *ws, enum ws_op op)
{
	return ws->child_count >= WS_CHILDREN_MAX ||
	       (op == WS_WRITE && ws->upload_count >= WS_UPLOADS_MAX);
}

/* The child owns the connection from then on. */
static void start_op(struct server *s, struct client *c, struct workspace *w)
{
	struct workspaces *ws = &s->workspaces;
	struct ws_order order = {.config = s->config,
	    .root = &ws->root,
	    .table = &ws->table,
	    .workspace = w,
	    .request = &c->ws,
	    .checkpoints = s->kernels.on_disk ? &s->kernels.checkpoints : NULL,
	    .reserved = w != NULL && w->kernel != NULL
			    ? w->kernel->checkpoint_bytes
			    : 0,
	    .client_fd = c->source.fd};
	struct ws_child *x;
	bool child;

	if (too_many(ws, c->ws.op)) {
		client_fail(s, c, ERR_CAPACITY, 1,
		    "too many file operations at the same time");
		return;
	}
	order.claim = take_claim(ws, w);
	x = fork_child(s, c->source.fd, &child);
	if (child)
		_exit((int)ws_op_main(&order));
	if (x == NULL) {
		give_claim(ws, order.claim);
		client_fail(s, c, ERR_SANDBOX_FAILED, 0,
		    "no process for the operation");
		return;
	}
	x->op = c->ws.op;
	x->claim = order.claim;
	x->workspace = w;
	x->deadline_us = clock_us() + child_max_us(x->op);
	turn_pass(&c->turn, &x->turn);
	if (w != NULL)
		ws_ref(w);
	ws->child_count++;
	ws->upload_count += x->op == WS_WRITE;
	client_close(s, c);
}

static void start_sweep(struct server *s)
{
	struct workspaces *ws = &s->workspaces;
	bool child;
	struct ws_child *x = fork_child(s, -1, &child);

	if (child)
		_exit((int)ws_sweep_main(&ws->root, &ws->table));
	ws->sweep_us = UINT64_MAX;
	if (x == NULL) {
		ws->sweep_us = clock_us() + SWEEP_AGAIN_US;
		return;
	}
	x->sweep = true;
	x->deadline_us = clock_us() + SWEEP_MAX_US;
	ws->sweeping = true;
}

void workspaces_sweep_soon(struct workspaces *ws)
{
	if (ws->sweep_us == UINT64_MAX)
		ws->sweep_us = clock_us() + SWEEP_AGAIN_US;
}

void workspaces_recount_if_full(struct server *s)
{
	struct workspaces *ws = &s->workspaces;
	const uint64_t ceiling = (uint64_t)s->config->sessions_disk_max_gb
				 << 30;
	const struct workspace *w = NULL;

	if (ws_ledger_total(&ws->table.ledger) <= ceiling)
		return;
	TAILQ_FOREACH (w, &ws->table.list, link) {
		if (ws_account_doubtful(ws_account(&ws->table, w)))
			workspaces_sweep_soon(ws);
	}
}

static void op_ended(struct server *s, struct ws_child *x, bool done)
{
	struct workspaces *ws = &s->workspaces;
	struct workspace *w = x->workspace;

	give_claim(ws, x->claim);
	ws->child_count--;
	ws->upload_count -= x->op == WS_WRITE;
	/* What was half made, or not quite removed, a later request for its
	 * removal meets as it is. */
	if ((x->op == WS_CREATE && !done) || (x->op == WS_REMOVE && done)) {
		pool_forget(s, w);
		kernels_forget(s, w);
		ws_table_remove(&ws->table, w);
	}
	workspaces_turn_end(s, &x->turn);
	if (w != NULL)
		ws_unref(&ws->table, w);
}

static struct ws_child *find_child(const struct workspaces *ws, pid_t pid)
{
	struct ws_child *x;

	TAILQ_FOREACH (x, &ws->children, link)
		if (x->pid == pid)
			return x;
	return NULL;
}

bool workspaces_reaped(struct server *s, pid_t pid, int status)
{
	struct workspaces *ws = &s->workspaces;
	int end = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	struct ws_child *x = find_child(ws, pid);

	if (x == NULL)
		return false;
	TAILQ_REMOVE(&ws->children, x, link);
	if (end < 0)
		log_warn("workspace operation %d was killed", (int)x->op);
	if (end < 0 || end == WS_END_TRASH_LEFT)
		workspaces_sweep_soon(ws);
	if (x->sweep)
		ws->sweeping = false;
	else
		op_ended(s, x, end == WS_END_DONE || end == WS_END_TRASH_LEFT);
	free(x);
	return true;
}

void workspaces_timeouts(struct server *s, uint64_t now_us)
{
	struct workspaces *ws = &s->workspaces;
	struct ws_child *x = NULL;

	TAILQ_FOREACH (x, &ws->children, link) {
		if (now_us < x->deadline_us)
			continue;
		log_error(
		    "workspace operation %d is late; killing it", (int)x->op);
		(void)kill(x->pid, SIGKILL);
		x->deadline_us = UINT64_MAX;
	}
	if (now_us >= ws->sweep_us && !ws->sweeping && !s->draining)
		start_sweep(s);
}

uint64_t workspaces_deadline_us(const struct server *s)
{
	const struct workspaces *ws = &s->workspaces;
	uint64_t first = turn_deadline_us(&ws->turns);
	const struct ws_child *x;

	TAILQ_FOREACH (x, &ws->children, link)
		if (x->deadline_us < first)
			first = x->deadline_us;
	if (!ws->sweeping && !s->draining && ws->sweep_us < first)
		first = ws->sweep_us;
	return first;
}

bool workspaces_busy(const struct server *s)
{
	return s->workspaces.child_count > 0;
}

void workspaces_abandon(struct server *s)
{
	const struct ws_child *x;

	TAILQ_FOREACH (x, &s->workspaces.children, link) {
		(void)kill(x->pid, SIGKILL);
	}
}

/* ---- turns --------------------------------------------------------------- */

struct workspace *workspaces_of(struct turn_thing *t)
{
	if (t == NULL)
		return NULL;
	return (struct workspace *)(void *)((char *)t -
					    offsetof(struct workspace, turn));
}

static struct client *turn_client(struct turn *t)
{
	return (
	    struct client *)(void *)((char *)t - offsetof(struct client, turn));
}

static void set_things(
    struct turn *t, struct workspace *first, struct workspace *second)
{
	t->things[0] = &first->turn;
	ws_ref(first);
	t->things[1] = second != NULL ? &second->turn : NULL;
	if (second != NULL)
		ws_ref(second);
}

void workspaces_turn_end(struct server *s, struct turn *t)
{
	if (t->held)
		pool_step_ended(s, workspaces_of(t->things[0]));
	turn_end(&s->workspaces.turns, t);
	for (unsigned i = 0; i < TURN_THINGS; i++) {
		struct workspace *w = workspaces_of(t->things[i]);

		t->things[i] = NULL;
		if (w != NULL)
			ws_unref(&s->workspaces.table, w);
	}
}

int workspaces_step(
    struct server *s, const struct turn *t, struct step *ret, struct err *e)
{
	const struct workspaces *ws = &s->workspaces;

	*ret = (struct step){.ledger = &ws->table.ledger};
	for (unsigned i = 0; i < TURN_THINGS; i++) {
		const struct workspace *w = workspaces_of(t->things[i]);
		struct step_space *x = &ret->spaces[ret->count];
		int rc;

		if (w == NULL)
			continue;
		x->kind = w->kind;
		x->account = ws_account(&ws->table, w);
		x->quota = ws_quota(s->config, w->kind);
		rc = ws_dir_path(&ws->root, w, x->path, sizeof x->path, e);
		if (rc < 0)
			return rc;
		ret->count++;
	}
	return 0;
}

void workspaces_step_begins(
    struct server *s, struct turn *from, struct turn *to)
{
	turn_pass(from, to);
	for (unsigned i = 0; i < TURN_THINGS; i++) {
		struct workspace *w = workspaces_of(to->things[i]);

		if (w != NULL)
			ws_sandbox_begins(&s->workspaces.table, w);
	}
}

void workspaces_step_ends(struct server *s, struct turn *t)
{
	for (unsigned i = 0; i < TURN_THINGS; i++) {
		struct workspace *w = workspaces_of(t->things[i]);

		if (w != NULL)
			ws_sandbox_ends(&s->workspaces.table, w);
	}
	workspaces_recount_if_full(s);
	workspaces_turn_end(s, t);
}

static void fail_gone(struct server *s, struct client *c, enum ws_kind kind)
{
	struct err e;

	(void)ws_gone(kind, &e);
	client_fail(s, c, e.kind, 0, e.msg);
}

static void fail_unusable(struct server *s, struct client *c)
{
	client_fail(s, c, ERR_SANDBOX_FAILED, 0, s->workspaces.why);
}

void workspaces_queue_step(struct server *s, struct client *c)
{
	struct workspaces *ws = &s->workspaces;
	struct workspace *session, *volume = NULL;

	if (!ws->usable) {
		fail_unusable(s, c);
		return;
	}
	session = ws_table_find(&ws->table, WS_SESSION, &c->job.session);
	if (session == NULL) {
		fail_gone(s, c, WS_SESSION);
		return;
	}
	if (c->job.volume.len > 0) {
		volume = ws_table_find(&ws->table, WS_VOLUME, &c->job.volume);
		if (volume == NULL) {
			fail_gone(s, c, WS_VOLUME);
			return;
		}
	}
	set_things(&c->turn, session, volume);
	c->turn.deadline_us =
	    clock_us() + (uint64_t)c->job.limits.wall_time_ms * 1000;
	turn_request(&ws->turns, &c->turn, false);
}

static void turn_came(struct server *s, struct client *c)
{
	struct workspace *w;

	if (!c->has_job && !c->has_kernel) { /* a removal */
		start_op(s, c, workspaces_of(c->turn.things[0]));
		return;
	}
	for (unsigned i = 0; i < TURN_THINGS; i++) {
		w = workspaces_of(c->turn.things[i]);
		if (w != NULL && w->gone) {
			fail_gone(s, c, w->kind);
			return;
		}
	}
	if (c->has_kernel || c->job.kernel)
		kernels_turn(s, c);
	else
		client_admit(s, c);
}

void workspaces_turns(struct server *s, uint64_t now_us)
{
	struct turns *q = &s->workspaces.turns;
	struct turn *t;

	while ((t = turn_expired(q, now_us)) != NULL)
		client_fail(s, turn_client(t), ERR_SESSION_BUSY, 1,
		    "another step runs in this session, and its turn did not "
		    "end in time");
	while ((t = turn_next(q)) != NULL)
		turn_came(s, turn_client(t));
}

/* ---- requests ------------------------------------------------------------ */

static void answer_end(struct server *s, struct client *c)
{
	const struct buf none = {0};

	client_reply(s, c, PROTO_WS_END, &none);
}

static bool has_thing(const struct turn *t, const struct workspace *w)
{
	for (unsigned i = 0; i < TURN_THINGS; i++)
		if (t->things[i] == &w->turn)
			return true;
	return false;
}

/* Before all others, and nobody comes after it. */
static void queue_removal(
    struct server *s, struct client *c, struct workspace *w)
{
	struct client *x, *next;

	for (x = TAILQ_FIRST(&s->clients); x != NULL; x = next) {
		next = TAILQ_NEXT(x, link);
		if (!x->dead && (x->has_job || x->has_kernel) &&
		    x->turn.queued && has_thing(&x->turn, w))
			fail_gone(s, x, w->kind);
	}
	worker_end_step(s, w);
	pool_forget(s, w);
	kernels_end(s, w);
	set_things(&c->turn, w, NULL);
	c->turn.deadline_us = UINT64_MAX;
	turn_request(&s->workspaces.turns, &c->turn, true);
}

static void dispatch_op(struct server *s, struct client *c)
{
	struct workspaces *ws = &s->workspaces;
	const struct ws_request *q = &c->ws;
	struct workspace *w = ws_table_find(&ws->table, q->kind, &q->id);
	struct err e;

	if (w == NULL && q->op == WS_CREATE) {
		w = ws_table_add(&ws->table, q->kind, &q->id, &e);
		if (w == NULL) {
			client_fail(s, c, e.kind, 0, e.msg);
			return;
		}
		start_op(s, c, w);
		if (w->refs == 0) /* not started */
			ws_table_remove(&ws->table, w);
	} else if (w == NULL && q->op == WS_REMOVE) {
		answer_end(s, c);
	} else if (w == NULL) {
		fail_gone(s, c, q->kind);
	} else if (q->op == WS_REMOVE) {
		queue_removal(s, c, w);
	} else {
		start_op(s, c, w);
	}
}

void workspaces_request(
    struct server *s, struct client *c, const uint8_t *payload, size_t len)
{
	struct err e;

	if (s->draining) {
		client_fail(s, c, ERR_SANDBOX_FAILED, 0,
		    "the service is shutting down");
		return;
	}
	if (ws_request_decode(payload, len, &c->ws, &e) < 0) {
		log_error("refused a request: %s", e.msg);
		client_fail(s, c, ERR_SANDBOX_FAILED, 0, e.msg);
		return;
	}
	c->has_ws = true;
	if (!s->workspaces.usable)
		fail_unusable(s, c);
	else if (c->ws.op == WS_LIST)
		start_op(s, c, NULL);
	else
		dispatch_op(s, c);
}
