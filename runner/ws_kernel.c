/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels need of workspaces. Each is a system call or two on folders that no
 * program can change, so the loop does it itself. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/log.h"
#include "runner/server_int.h"
#include "runner/ws_op.h"
#include "runner/ws_trash.h"

static void point(
    struct turn *t, struct workspace *session, struct workspace *volume)
{
	t->things[0] = &session->turn;
	ws_ref(session);
	t->things[1] = volume != NULL ? &volume->turn : NULL;
	if (volume != NULL)
		ws_ref(volume);
}

int workspaces_room(struct server *s, struct err *e)
{
	const struct workspaces *ws = &s->workspaces;
	int rc = ws_storage_room(s->config, &ws->root, &ws->table.ledger, e);

	if (rc < 0)
		workspaces_recount_if_full(s);
	return rc;
}

int workspaces_make(struct server *s, const struct workspace *w, struct err *e)
{
	if (mkdirat(s->workspaces.root.kind_fd[w->kind], w->id, 0755) != 0 &&
	    errno != EEXIST)
		return err_sys(e, errno, "making the workspace");
	return 0;
}

bool workspaces_unmake(struct server *s, const struct workspace *w)
{
	return unlinkat(s->workspaces.root.kind_fd[w->kind], w->id,
		   AT_REMOVEDIR) == 0;
}

void workspaces_discard(struct server *s, const struct workspace *w)
{
	struct workspaces *ws = &s->workspaces;
	char item[WS_NAME_SIZE];
	struct err e;

	if (ws_trash_take(
		&ws->root, ws->root.kind_fd[w->kind], w->id, item, &e) >= 0)
		workspaces_sweep_soon(ws);
	if (workspaces_make(s, w, &e) < 0)
		log_warn("%s", e.msg);
}

void workspaces_queue_turn(struct server *s, struct client *c,
    struct workspace *session, struct workspace *volume, uint64_t deadline_us)
{
	point(&c->turn, session, volume);
	c->turn.deadline_us = deadline_us;
	turn_request(&s->workspaces.turns, &c->turn, false);
}

int workspaces_spare(
    struct server *s, char name[WS_NAME_SIZE], struct step *ret, struct err *e)
{
	const struct ws_root *root = &s->workspaces.root;
	struct step_space *x = &ret->spaces[0];
	int n;

	ws_unique(root, name);
	n = snprintf(
	    x->path, sizeof x->path, "%s/staging/%s", root->path, name);
	if (n < 0 || (size_t)n >= sizeof x->path)
		return err_set(e, ERR_INTERNAL, ENAMETOOLONG,
		    "workspaces_dir has too long a path");
	if (mkdirat(root->staging_fd, name, 0755) != 0)
		return err_sys(e, errno, "making a spare workspace");
	x->kind = WS_SESSION;
	ret->count = 1;
	ret->ledger = &s->workspaces.table.ledger;
	return 0;
}

void workspaces_drop_spare(struct server *s, const char *name)
{
	/* What is not empty, the next start removes. */
	(void)unlinkat(s->workspaces.root.staging_fd, name, AT_REMOVEDIR);
}

int workspaces_adopt(struct server *s, const char *spare, struct workspace *w,
    struct step *ret, struct err *e)
{
	const struct ws_root *root = &s->workspaces.root;

	/* In the place of the empty one; of no other, says rename(2). */
	if (renameat(root->staging_fd, spare, root->kind_fd[w->kind], w->id) !=
	    0)
		return err_sys(e, errno, "taking a spare workspace");
	return workspaces_spaces(s, w, NULL, ret, e);
}

static int add_space(struct server *s, const struct workspace *w,
    struct step *step, struct err *e)
{
	struct step_space *x = &step->spaces[step->count];
	int rc =
	    ws_dir_path(&s->workspaces.root, w, x->path, sizeof x->path, e);

	x->kind = w->kind;
	x->account = ws_account(&s->workspaces.table, w);
	x->quota = ws_quota(s->config, w->kind);
	step->count++;
	return rc;
}

int workspaces_spaces(struct server *s, const struct workspace *session,
    const struct workspace *volume, struct step *ret, struct err *e)
{
	int rc;

	*ret = (struct step){.ledger = &s->workspaces.table.ledger};
	rc = add_space(s, session, ret, e);
	if (rc == 0 && volume != NULL)
		rc = add_space(s, volume, ret, e);
	return rc;
}

void workspaces_mount(struct server *s, struct turn *mount,
    struct workspace *session, struct workspace *volume)
{
	struct ws_table *t = &s->workspaces.table;

	point(mount, session, volume);
	ws_sandbox_begins(t, session);
	if (volume != NULL)
		ws_sandbox_begins(t, volume);
}

void workspaces_take_turn(struct server *s, struct turn *t,
    struct workspace *session, struct workspace *volume)
{
	if (t->held)
		return;
	point(t, session, volume);
	if (!turn_take(t))
		workspaces_turn_end(s, t);
}
