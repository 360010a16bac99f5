/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WS_TABLE_H
#define ISOBOX_WS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "lib/config.h"
#include "lib/wsproto.h"
#include "runner/turn.h"
#include "runner/ws_dir.h"
#include "runner/ws_ledger.h"

struct kernel;

/* The workspaces that there are, in the runner's memory: read from the disk at the
 * start, right from then on, since nobody else makes or removes any. */
struct workspace {
	TAILQ_ENTRY(workspace) link;
	enum ws_kind kind;
	char id[LIMIT_ID + 1];
	size_t account; /* in the ledger */
	struct turn_thing turn;
	unsigned refs; /* operations and turns that point here */
	struct kernel *kernel; /* of a session; NULL: none */
	unsigned sandboxes; /* that write here; of a kernel that was fetched
			     * while its old one dies, two */
	bool gone; /* removed: freed when nothing points here */
};

TAILQ_HEAD(ws_list, workspace);

struct ws_table {
	struct ws_list list;
	size_t count;
	struct ws_ledger ledger;
	bool *taken; /* which accounts are */
	size_t next_account; /* where to look for one */
};

/* Volumes have no limit of the runner's own. */
#define WS_VOLUMES_MAX 16384u

int ws_table_open(const struct config *c, const struct ws_root *root,
    size_t claims, struct ws_table *ret, struct err *e);
void ws_table_close(struct ws_table *t);

/* NULL when there is none. */
struct workspace *ws_table_find(
    const struct ws_table *t, enum ws_kind kind, const struct blob *id);

/* A new one; NULL: as many as there can be, *e says so. */
struct workspace *ws_table_add(struct ws_table *t, enum ws_kind kind,
    const struct blob *id, struct err *e);

/* It is no longer there. */
void ws_table_remove(struct ws_table *t, struct workspace *w);

void ws_ref(struct workspace *w);
void ws_unref(struct ws_table *t, struct workspace *w);

/* Between these a sandbox writes there; nested, if one dies while the next one
 * is there already. */
void ws_sandbox_begins(const struct ws_table *t, struct workspace *w);
void ws_sandbox_ends(const struct ws_table *t, struct workspace *w);

struct ws_account *ws_account(
    const struct ws_table *t, const struct workspace *w);

/* What the checkpoint of w's kernel takes; nothing of it is being saved any more. */
void ws_set_saved(
    const struct ws_table *t, const struct workspace *w, uint64_t bytes);

/* In bytes. */
uint64_t ws_quota(const struct config *c, enum ws_kind kind);

/* The directory of w, for the mounts of a sandbox. */
int ws_dir_path(const struct ws_root *root, const struct workspace *w,
    char *ret, size_t size, struct err *e);

#endif
