/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/ws_op.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/path.h"
#include "runner/checkpoint.h"
#include "runner/ws_trash.h"

/* A client that takes nothing for so long is given up. */
#define SEND_TIMEOUT_S 60

#define GIB_SHIFT 30

int ws_send(const struct ws_task *op, const struct buf *frames, struct err *e)
{
	int rc = proto_send(op->order->client_fd, frames);

	return rc < 0 ? err_set(e, ERR_CLIENT_GONE, -rc, "the client is gone")
		      : 0;
}

/* The frame's first byte carries the descriptor. */
static ssize_t send_with_fd(int sock, const struct buf *frame, int fd)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {frame->data, frame->len};
	struct msghdr m = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = control.space,
	    .msg_controllen = sizeof control.space};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	(void)memcpy(CMSG_DATA(c), &fd, sizeof fd);
	return sendmsg(sock, &m, MSG_NOSIGNAL);
}

int ws_send_info(
    const struct ws_task *op, const struct ws_info *i, int fd, struct err *e)
{
	cleanup_buf struct buf frame = {0};
	size_t begun = proto_begin(&frame, PROTO_WS_INFO);
	ssize_t n;

	ws_info_encode(i, &frame);
	proto_end(&frame, begun);
	if (fd < 0 || frame.failed)
		return ws_send(op, &frame, e);
	n = send_with_fd(op->order->client_fd, &frame, fd);
	if (n < 0)
		return err_set(e, ERR_CLIENT_GONE, errno, "the client is gone");
	buf_consume(&frame, (size_t)n);
	return ws_send(op, &frame, e);
}

static int send_end(const struct ws_task *op, struct err *e)
{
	cleanup_buf struct buf frame = {0};

	proto_put_frame(&frame, PROTO_WS_END, NULL, 0);
	return ws_send(op, &frame, e);
}

static void send_failure(const struct ws_task *op, const struct err *why)
{
	cleanup_buf struct buf frame = {0};
	size_t begun = proto_begin(&frame, PROTO_FAIL);
	struct err ignored;

	put_u32(&frame, (uint32_t)why->kind);
	put_u32(&frame, why->kind == ERR_SESSION_BUSY ? 1 : 0);
	put_cstr(&frame, why->msg);
	proto_end(&frame, begun);
	(void)ws_send(op, &frame, &ignored);
}

/* A program may set any time: what is too far away (the years from 2262 on) is
 * as far as can be said. */
static int64_t to_ns(const struct timespec *t)
{
	const int64_t ns = 1000000000;

	if (t->tv_sec >= INT64_MAX / ns)
		return INT64_MAX;
	if (t->tv_sec <= INT64_MIN / ns)
		return INT64_MIN;
	return t->tv_sec * ns + t->tv_nsec;
}

struct ws_info ws_info_of(const struct stat *st)
{
	struct ws_info i = {.dir = S_ISDIR(st->st_mode),
	    .mtime_ns = to_ns(&st->st_mtim),
	    .ctime_ns = to_ns(&st->st_ctim),
	    .inode = st->st_ino};

	if (S_ISREG(st->st_mode))
		i.size = (uint64_t)st->st_size;
	return i;
}

int ws_lock(const struct ws_task *op, struct err *e)
{
	while (flock(op->fd, LOCK_EX) != 0)
		if (errno != EINTR)
			return err_sys(e, errno, "locking the workspace");
	return 0;
}

void ws_unlock(const struct ws_task *op)
{
	(void)flock(op->fd, LOCK_UN);
}

int ws_usage_now(struct ws_task *op, struct ws_usage *ret, struct err *e)
{
	uint_fast32_t state = atomic_load(&op->account->state);
	int rc;

	if (ws_account_good(op->account)) {
		ret->bytes = atomic_load(&op->account->bytes);
		ret->files = atomic_load(&op->account->files);
		return 0;
	}
	rc = ws_count(op->fd, UINT64_MAX, ret, e);
	if (rc == 0)
		ws_account_set(op->account, state, ret);
	return rc;
}

/* Counts what is not known, unless somebody is just counting or putting a file
 * in its place there: that is not to be overwritten. Whether it did. */
static bool count_one(const struct ws_root *root, const struct ws_table *table,
    const struct workspace *w)
{
	struct ws_account *a = ws_account(table, w);
	struct ws_usage usage;
	uint_fast32_t state;
	struct err e;
	cleanup_fd int fd = ws_open(root, w->kind, w->id, &e);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
		return false;
	state = atomic_load(&a->state);
	if (ws_account_good(a) || ws_count(fd, UINT64_MAX, &usage, &e) != 0)
		return false;
	ws_account_set(a, state, &usage);
	return true;
}

static bool count_doubtful(const struct ws_order *o)
{
	const struct workspace *w = NULL;
	bool some = false;

	TAILQ_FOREACH (w, &o->table->list, link) {
		if (ws_account_doubtful(ws_account(o->table, w)))
			some |= count_one(o->root, o->table, w);
	}
	return some;
}

/* Where something was deleted since it was counted there may be room. */
int ws_check_storage(const struct ws_task *op, struct err *e)
{
	const struct ws_order *o = op->order;
	const struct ws_ledger *ledger = &o->table->ledger;
	int rc = ws_storage_room(o->config, o->root, ledger, e);

	if (rc == 0 || !count_doubtful(o))
		return rc;
	return ws_storage_room(o->config, o->root, ledger, e);
}

int ws_storage_room(const struct config *c, const struct ws_root *root,
    const struct ws_ledger *ledger, struct err *e)
{
	const uint64_t floor = (uint64_t)c->min_free_disk_gb << GIB_SHIFT;
	const uint64_t ceiling = (uint64_t)c->sessions_disk_max_gb << GIB_SHIFT;
	struct statvfs fs;

	if (fstatvfs(root->staging_fd, &fs) != 0)
		return err_sys(e, errno, "asking for the free disk space");
	/* Some of the promised may be written already: that is on the safe
	 * side. */
	if (fs.f_bavail * fs.f_frsize < floor + ws_ledger_promised(ledger))
		return err_set(e, ERR_STORAGE_FULL, ENOSPC,
		    "the server's disk has less than %u GiB free",
		    c->min_free_disk_gb);
	if (ws_ledger_total(ledger) > ceiling)
		return err_set(e, ERR_STORAGE_FULL, ENOSPC,
		    "all sessions and volumes together have %u GiB, which are "
		    "in use",
		    c->sessions_disk_max_gb);
	return 0;
}

static int op_create(struct ws_task *op, struct err *e)
{
	const struct workspace *w = op->order->workspace;
	int rc = ws_check_storage(op, e);

	if (rc < 0)
		return rc;
	if (mkdirat(op->order->root->kind_fd[w->kind], w->id, 0755) != 0 &&
	    errno != EEXIST)
		return err_sys(e, errno, "making the workspace");
	return send_end(op, e);
}

/* Answers when nobody can get at it any more, then does the work. */
static int op_remove(struct ws_task *op, struct err *e)
{
	const struct ws_root *root = op->order->root;
	const struct workspace *w = op->order->workspace;
	char item[WS_NAME_SIZE];
	struct err gone;
	int rc = ws_trash_take(root, root->kind_fd[w->kind], w->id, item, e);

	if (rc < 0 && rc != -ENOENT)
		return rc;
	(void)send_end(op, &gone);
	if (op->order->checkpoints != NULL && w->kind == WS_SESSION &&
	    checkpoint_remove(op->order->checkpoints, w->id, &gone) < 0)
		log_warn("%s", gone.msg); /* the next start tries again */
	return rc < 0 || ws_trash_empty(root, item, e) == 0 ? WS_END_DONE
							    : WS_END_TRASH_LEFT;
}

static int op_stat(struct ws_task *op, struct err *e)
{
	const struct turn_thing *turn = &op->order->workspace->turn;
	struct ws_usage usage;
	struct ws_info i;
	struct stat st;
	int rc = ws_lock(op, e);

	if (rc < 0)
		return rc;
	rc = ws_usage_now(op, &usage, e);
	ws_unlock(op);
	if (rc < 0)
		return rc;
	if (fstat(op->fd, &st) != 0)
		return err_sys(e, errno, "stat");
	i = ws_info_of(&st);
	i.used_bytes = usage.bytes + op->order->reserved;
	i.files = usage.files;
	i.quota_bytes = ws_quota(op->order->config, op->order->request->kind);
	i.busy = turn->held || turn->wanted;
	rc = ws_send_info(op, &i, -1, e);
	return rc < 0 ? rc : send_end(op, e);
}

static int op_open(struct ws_task *op, struct err *e)
{
	cleanup_fd int found = ws_find(op->fd, (char *)op->path.data, e);
	cleanup_fd int fd = -1;
	struct ws_info i;
	struct stat st;
	int rc;

	if (found < 0)
		return found;
	fd = ws_reopen(found, &st, e);
	if (fd < 0)
		return fd;
	i = ws_info_of(&st);
	rc = ws_send_info(op, &i, i.dir ? -1 : fd, e);
	if (rc == 0 && i.dir)
		rc = ws_op_list(op, fd, e);
	return rc < 0 ? rc : send_end(op, e);
}

static int delete_folder(
    const struct ws_task *op, int dir_fd, const char *name, struct err *e)
{
	char item[WS_NAME_SIZE];
	struct err gone;
	int rc = ws_trash_take(op->order->root, dir_fd, name, item, e);

	if (rc < 0)
		return rc;
	/* The room is there again when the client hears of it. */
	rc = ws_trash_empty(op->order->root, item, e);
	(void)send_end(op, &gone);
	return rc < 0 ? WS_END_TRASH_LEFT : WS_END_DONE;
}

static int op_delete(struct ws_task *op, struct err *e)
{
	char name[LIMIT_NAME_COMPONENT + 1];
	cleanup_fd int dir_fd = -1;
	struct stat st;

	if (op->path.data == NULL || op->path.data[0] == '\0')
		return err_set(e, ERR_INVALID_PATH, EINVAL,
		    "the workspace itself cannot be deleted, only what is in "
		    "it");
	dir_fd = ws_find_parent(op->fd, (char *)op->path.data, name, e);
	if (dir_fd < 0)
		return dir_fd;
	ws_account_doubt(op->account);
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISDIR(st.st_mode))
		return delete_folder(op, dir_fd, name, e);
	if (unlinkat(dir_fd, name, 0) == 0)
		return send_end(op, e);
	if (errno == EISDIR) /* by now */
		return delete_folder(op, dir_fd, name, e);
	if (errno == ENOENT)
		return err_set(e, ERR_NOT_FOUND, ENOENT,
		    "there is no such file or folder");
	return err_sys(e, errno, "deleting the file");
}

/* All that the runner knows of, as it was when it forked. */
static int op_list_ids(struct ws_task *op, struct err *e)
{
	const size_t enough = 64u * 1024;
	const struct workspace *w = NULL;
	cleanup_buf struct buf out = {0};
	size_t begun = proto_begin(&out, PROTO_WS_IDS);
	int rc = 0;

	TAILQ_FOREACH (w, &op->order->table->list, link) {
		if (w->kind != op->order->request->kind || w->gone)
			continue;
		put_cstr(&out, w->id);
		if (out.len < enough)
			continue;
		proto_end(&out, begun);
		rc = ws_send(op, &out, e);
		if (rc < 0)
			return rc;
		buf_clear(&out);
		begun = proto_begin(&out, PROTO_WS_IDS);
	}
	proto_end(&out, begun);
	rc = ws_send(op, &out, e);
	return rc < 0 ? rc : send_end(op, e);
}

/* Negative: *e is to be told; else enum ws_end. */
static int run_op(struct ws_task *op, struct err *e)
{
	switch (op->order->request->op) {
	case WS_CREATE:
		return op_create(op, e);
	case WS_REMOVE:
		return op_remove(op, e);
	case WS_STAT:
		return op_stat(op, e);
	case WS_OPEN:
		return op_open(op, e);
	case WS_WRITE: {
		int rc = ws_op_write(op, e);

		return rc < 0 ? rc : send_end(op, e);
	}
	case WS_DELETE:
		return op_delete(op, e);
	case WS_ZIP: {
		int rc = ws_op_zip(op, e);

		return rc < 0 ? rc : send_end(op, e);
	}
	case WS_LIST:
		return op_list_ids(op, e);
	}
	return err_set(e, ERR_INTERNAL, EINVAL, "no such operation");
}

static bool is_about_files(enum ws_op op)
{
	return op != WS_CREATE && op != WS_REMOVE && op != WS_LIST;
}

static int open_workspace(struct ws_task *op, struct err *e)
{
	const struct ws_order *o = op->order;
	const struct ws_request *q = o->request;
	int rc;

	if (o->workspace == NULL)
		return 0;
	op->account = ws_account(o->table, o->workspace);
	op->quota = ws_quota(o->config, q->kind);
	op->quota -= o->reserved < op->quota ? o->reserved : op->quota;
	if (!is_about_files(q->op))
		return 0;
	rc = path_fold((const char *)q->path.data, q->path.len, &op->path, e);
	if (rc < 0)
		return rc;
	buf_putc(&op->path, '\0');
	if (op->path.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	op->fd = ws_open(o->root, q->kind, o->workspace->id, e);
	return op->fd < 0 ? op->fd : 0;
}

static void log_failure(const struct ws_task *op, const struct err *e)
{
	const struct blob *id = &op->order->request->request_id;

	/* What a client did wrong is nothing for our log. */
	if (e->kind == ERR_INTERNAL)
		log_error("%.*s: workspace operation %d: %s", (int)id->len,
		    (const char *)id->data, (int)op->order->request->op,
		    e->msg);
}

/* The client's socket came non-blocking from the loop. */
static void settle_client(int fd)
{
	const struct timeval t = {.tv_sec = SEND_TIMEOUT_S};

	(void)fcntl(fd, F_SETFL, 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

enum ws_end ws_op_main(const struct ws_order *order)
{
	struct ws_task op = {.order = order, .fd = -1};
	struct err e;
	int rc;

	settle_client(order->client_fd);
	(void)umask(022);
	if (ws_override_modes(&e) < 0 || open_workspace(&op, &e) < 0 ||
	    (rc = run_op(&op, &e)) < 0) {
		log_failure(&op, &e);
		send_failure(&op, &e);
		return WS_END_REFUSED;
	}
	return (enum ws_end)rc;
}

enum ws_end ws_sweep_main(
    const struct ws_root *root, const struct ws_table *table)
{
	const struct workspace *w = NULL;
	struct err e;
	int rc;

	/* There is time. */
	(void)setpriority(PRIO_PROCESS, 0, 10);
	if (ws_override_modes(&e) < 0) {
		log_error("sweeping the workspaces: %s", e.msg);
		return WS_END_REFUSED;
	}
	rc = ws_trash_sweep(root, &e);
	if (rc < 0)
		log_warn("sweeping the workspaces: %s", e.msg);
	TAILQ_FOREACH (w, &table->list, link) {
		(void)count_one(root, table, w);
	}
	return rc < 0 ? WS_END_TRASH_LEFT : WS_END_DONE;
}
