/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WS_OP_H
#define ISOBOX_WS_OP_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/buf.h"
#include "lib/config.h"
#include "lib/wsproto.h"
#include "runner/ws_dir.h"
#include "runner/ws_table.h"

struct checkpoints;

/*
 * One operation on a workspace, in a child process of the runner: what it does may
 * take as long as the disk wants, and it meets what programs have left there.
 */
struct ws_order {
	const struct config *config;
	const struct ws_root *root;
	const struct ws_table *table;
	const struct workspace *workspace; /* NULL for WS_LIST */
	const struct ws_request *request;
	size_t claim; /* in the ledger, of this child alone */
	const struct checkpoints *checkpoints; /* NULL: there are none */
	uint64_t reserved; /* bytes of the quota that a kernel on disk takes */
	int client_fd;
};

/* How the child ended, as its exit status. */
enum ws_end {
	WS_END_DONE = 0,
	WS_END_REFUSED = 1,
	WS_END_TRASH_LEFT = 2 /* done; what was removed has to be swept */
};

/* The life of the child after its fork. */
enum ws_end ws_op_main(const struct ws_order *order);

/* The one that removes what was left in the trash, and counts what has not been
 * counted yet. */
enum ws_end ws_sweep_main(
    const struct ws_root *root, const struct ws_table *table);

/* ---- inside: ws_op.c, ws_list.c, ws_write.c, ws_zip.c ---------------------- */

struct ws_task {
	const struct ws_order *order;
	struct ws_account *account;
	uint64_t quota; /* bytes */
	int fd; /* of the workspace */
	struct buf path; /* folded, with its NUL */
};

/* Frames to the client; -EPIPE and its like when it is gone. */
int ws_send(const struct ws_task *op, const struct buf *frames, struct err *e);
int ws_send_info(const struct ws_task *op, const struct ws_info *i, int fd,
    struct err *e); /* fd goes with it; -1: none */

/* What INFO says of a file or folder. */
struct ws_info ws_info_of(const struct stat *st);

/* What the workspace takes, counted now if that is not known. The caller holds the
 * workspace's lock. */
int ws_usage_now(struct ws_task *op, struct ws_usage *ret, struct err *e);

/* Nobody else counts and promises in this workspace meanwhile. */
int ws_lock(const struct ws_task *op, struct err *e);
void ws_unlock(const struct ws_task *op);

/*
 * Whether the disk and the whole service have room for what is in the ledger, the
 * promised included. Whoever wants more promises it first, and takes that back
 * when this fails: of two at the same time both may be refused, and never both
 * let in beyond the ceiling.
 */
int ws_storage_room(const struct config *c, const struct ws_root *root,
    const struct ws_ledger *ledger, struct err *e);
int ws_check_storage(const struct ws_task *op, struct err *e);

int ws_op_list(struct ws_task *op, int dir_fd, struct err *e);
int ws_op_write(struct ws_task *op, struct err *e);
int ws_op_zip(struct ws_task *op, struct err *e);

#endif
