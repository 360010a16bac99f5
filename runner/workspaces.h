/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WORKSPACES_H
#define ISOBOX_WORKSPACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "lib/wsproto.h"
#include "runner/quota.h"
#include "runner/turn.h"
#include "runner/ws_dir.h"
#include "runner/ws_table.h"

/*
 * Workspaces in the runner's event loop: requests for them, the children that do
 * what is asked, and whose turn it is to run a program in one.
 */
struct server;
struct client;

/* A child that does one operation, or sweeps. */
struct ws_child {
	TAILQ_ENTRY(ws_child) link;
	pid_t pid;
	bool sweep;
	enum ws_op op;
	struct workspace *workspace; /* NULL: WS_LIST, a sweep */
	size_t claim;
	struct turn turn; /* of WS_REMOVE */
	uint64_t deadline_us; /* then it is killed; UINT64_MAX: it was */
};

/* At once. The web side has 64 threads by default; uploads wait for their clients,
 * so they may not take every place. */
#define WS_CHILDREN_MAX 64u
#define WS_UPLOADS_MAX 48u

struct workspaces {
	bool usable;
	char why[256]; /* when not */
	struct ws_root root;
	struct ws_table table;
	struct turns turns;
	TAILQ_HEAD(ws_children, ws_child) children;
	unsigned child_count;
	unsigned upload_count;
	bool claims[WS_CHILDREN_MAX]; /* which are taken */
	bool sweeping;
	uint64_t sweep_us; /* when the next is due; UINT64_MAX: none */
};

/* Without a usable directory the runner serves all but workspaces, and says so. */
void workspaces_open(struct server *s);
void workspaces_close(struct server *s);

/* A PROTO_WS frame. */
void workspaces_request(
    struct server *s, struct client *c, const uint8_t *payload, size_t len);

/* Queues c, which has a job of a session, for its turn; c is answered when there
 * is no such session. */
void workspaces_queue_step(struct server *s, struct client *c);

/* Serves who has a turn now, and refuses whose time is over. */
void workspaces_turns(struct server *s, uint64_t now_us);

/* What c waits for or holds, it wants no longer. */
void workspaces_turn_end(struct server *s, struct turn *t);

/* What a supervisor has to know of the workspaces of a turn. */
int workspaces_step(
    struct server *s, const struct turn *t, struct step *ret, struct err *e);

/* From the client to who runs its step: from now on a program writes there. */
void workspaces_step_begins(
    struct server *s, struct turn *from, struct turn *to);
/* The program, and all that it left running, is gone. */
void workspaces_step_ends(struct server *s, struct turn *t);

/* ---- ws_kernel.c: for kernels ------------------------------------------------ */

/* Whether there may be one more. */
int workspaces_room(struct server *s, struct err *e);

/* The directory of w, unless it is there. */
int workspaces_make(struct server *s, const struct workspace *w, struct err *e);

/* Has it removed, whatever is in it, by the next sweep. */
void workspaces_discard(struct server *s, const struct workspace *w);

/* Queues c for the turn in these, for kernels_turn(). */
void workspaces_queue_turn(struct server *s, struct client *c,
    struct workspace *session, struct workspace *volume, uint64_t deadline_us);

/* Removes it, if it is empty; true when it is gone. */
bool workspaces_unmake(struct server *s, const struct workspace *w);

/* A workspace that is nobody's yet, for a kernel that waits: its directory and
 * name; removed if it is empty; in the place of w's, which must be empty. */
int workspaces_spare(
    struct server *s, char name[WS_NAME_SIZE], struct step *ret, struct err *e);
void workspaces_drop_spare(struct server *s, const char *name);
int workspaces_adopt(struct server *s, const char *spare, struct workspace *w,
    struct step *ret, struct err *e);

/* What a supervisor has to know of these; volume NULL: none. */
int workspaces_spaces(struct server *s, const struct workspace *session,
    const struct workspace *volume, struct step *ret, struct err *e);

/* From now on a kernel may write there at any time, until workspaces_step_ends()
 * of this turn, which nobody has to wait for. */
void workspaces_mount(struct server *s, struct turn *mount,
    struct workspace *session, struct workspace *volume);

/* The turn in these, if nobody has it and t has none yet. */
void workspaces_take_turn(struct server *s, struct turn *t,
    struct workspace *session, struct workspace *volume);

/* The workspace of a turn's thing; NULL for NULL. */
struct workspace *workspaces_of(struct turn_thing *t);

/* After SIGCHLD: whether the pid was one of ours. */
bool workspaces_reaped(struct server *s, pid_t pid, int status);
void workspaces_sweep_soon(struct workspaces *ws);

/* When all together seem to be at the ceiling, what is not known is counted
 * soon: a step may have deleted something. */
void workspaces_recount_if_full(struct server *s);
void workspaces_timeouts(struct server *s, uint64_t now_us);
uint64_t workspaces_deadline_us(const struct server *s);

/* At the end: whether operations run that clients wait for; and their end. */
bool workspaces_busy(const struct server *s);
void workspaces_abandon(struct server *s);

/* In every child: the lock is the runner's alone. */
void workspaces_close_lock(const struct server *s);

#endif
