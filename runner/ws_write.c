/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. An upload is a file without a name in the staging folder.
 * The client gets its descriptor and writes; it says when it is done, and only then
 * does the file get a name, first in the staging folder and from there, in one
 * step, its place. Whatever ends before leaves nothing: the kernel lets go of a
 * file without a name.
 *
 * A file that is there already changes places with it, and goes after the answer.
 * To rename over it would have ext4 begin to write the new one to the disk at that
 * moment (auto_da_alloc: so that after a power failure it is not found empty),
 * which takes half as long as the upload; it is told to after the answer instead.
 *
 * Room is promised before the first byte (a claim in the ledger) under the lock of
 * the workspace, so that parallel uploads cannot together be more than the quota.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "runner/ws_op.h"
#include "runner/ws_trash.h"

struct upload {
	int fd;
	char name[WS_NAME_SIZE]; /* in staging, its own or that of what it
				  * replaces; "" as long as there is none */
	bool swapped;
	uint64_t claim;
};

static int over_quota(const struct ws_task *op, struct err *e)
{
	return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
	    "the %s's disk quota of %llu MiB does not have room for it",
	    ws_kind_word(op->order->request->kind),
	    (unsigned long long)(op->quota >> 20));
}

static int check_size(const struct ws_request *q, struct err *e)
{
	if (q->size == WS_SIZE_UNKNOWN || q->size <= LIMIT_UPLOAD)
		return 0;
	return err_set(e, ERR_TOO_LARGE, EFBIG, "a file has at most %llu bytes",
	    (unsigned long long)LIMIT_UPLOAD);
}

/* The lock is held. An upload of unknown length is promised what is left. */
static int claim_locked(struct ws_task *op, uint64_t *ret, struct err *e)
{
	const struct ws_order *o = op->order;
	const struct ws_ledger *ledger = &o->table->ledger;
	const uint64_t size = o->request->size;
	struct ws_usage usage;
	uint64_t used, left;
	int rc = ws_usage_now(op, &usage, e);

	if (rc < 0)
		return rc;
	used = usage.bytes + ws_ledger_claimed(ledger, o->workspace->account);
	left = used < op->quota ? op->quota - used : 0;
	if (size == WS_SIZE_UNKNOWN && left > LIMIT_UPLOAD)
		left = LIMIT_UPLOAD;
	if (left == 0 || (size != WS_SIZE_UNKNOWN && size > left))
		return over_quota(op, e);
	if (usage.files >= LIMIT_WS_FILES)
		return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
		    "there are %u files and folders, no more are allowed",
		    LIMIT_WS_FILES);
	*ret = size == WS_SIZE_UNKNOWN ? left : size;
	atomic_store(&ledger->claims[o->claim].bytes, *ret);
	rc = ws_check_storage(op, e);
	if (rc < 0)
		atomic_store(&ledger->claims[o->claim].bytes, 0);
	return rc;
}

static int claim(struct ws_task *op, uint64_t *ret, struct err *e)
{
	int rc = ws_lock(op, e);

	if (rc < 0)
		return rc;
	rc = claim_locked(op, ret, e);
	ws_unlock(op);
	return rc;
}

static int open_staged(struct ws_task *op, struct upload *u, struct err *e)
{
	const struct ws_root *root = op->order->root;

	u->fd = openat(
	    root->staging_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
	if (u->fd >= 0)
		return 0;
	/* Not every file system can (NFS, older overlayfs). */
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)
		return err_sys(e, errno, "making a file");
	ws_unique(root, u->name);
	u->fd = openat(root->staging_fd, u->name,
	    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	return u->fd >= 0 ? 0 : err_sys(e, errno, "making a file");
}

/* One frame, then nothing: the client's word that all is written. */
static int await_commit(const struct ws_task *op, uint64_t *ret, struct err *e)
{
	uint8_t in[64];
	struct ws_commit c;
	const uint8_t *payload;
	enum proto_type type;
	size_t len, have = 0;
	ssize_t n = 0;

	while (have < sizeof in) {
		ssize_t got =
		    recv(op->order->client_fd, in + have, sizeof in - have, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return err_set(e, ERR_CLIENT_GONE, EPIPE,
			    "the client left before the end of its upload");
		have += (size_t)got;
		n = proto_next(in, have, &type, &payload, &len);
		if (n != 0)
			break;
	}
	if (n <= 0 || (size_t)n != have || type != PROTO_WS_COMMIT)
		return err_set(
		    e, ERR_INTERNAL, EPROTO, "an upload without its commit");
	if (ws_commit_decode(payload, len, &c, e) < 0)
		return -e->code;
	*ret = c.bytes;
	return 0;
}

/* What was written is what was said, and no more than was promised. */
static int check_written(const struct ws_task *op, const struct upload *u,
    uint64_t bytes, struct stat *ret, struct err *e)
{
	const uint64_t declared = op->order->request->size;

	if (fstat(u->fd, ret) != 0)
		return err_sys(e, errno, "stat");
	if ((uint64_t)ret->st_size != bytes ||
	    (declared != WS_SIZE_UNKNOWN && declared != bytes))
		return err_set(e, ERR_INTERNAL, EPROTO,
		    "the upload has another length than was said");
	if (bytes > LIMIT_UPLOAD)
		return err_set(e, ERR_TOO_LARGE, EFBIG,
		    "a file has at most %llu bytes",
		    (unsigned long long)LIMIT_UPLOAD);
	return bytes > u->claim ? over_quota(op, e) : 0;
}

static int give_name(const struct ws_task *op, struct upload *u, struct err *e)
{
	const struct ws_root *root = op->order->root;
	char self[32];

	if (u->name[0] != '\0')
		return 0;
	ws_unique(root, u->name);
	(void)snprintf(self, sizeof self, "/proc/self/fd/%d", u->fd);
	if (linkat(AT_FDCWD, self, root->staging_fd, u->name,
		AT_SYMLINK_FOLLOW) == 0)
		return 0;
	u->name[0] = '\0';
	return err_sys(e, errno, "giving the file a name");
}

/* The folder that the file goes into. Making folders is not added up. */
static int find_place(
    struct ws_task *op, char name[LIMIT_NAME_COMPONENT + 1], struct err *e)
{
	const char *path = (const char *)op->path.data;
	int fd = ws_find_target(op->fd, path, false, name, e);

	if (fd != -ENOENT)
		return fd;
	ws_account_doubt(op->account);
	return ws_find_target(op->fd, path, true, name, e);
}

static void add_up(
    struct ws_account *a, const struct stat *st, const struct stat *old)
{
	(void)atomic_fetch_add(&a->bytes, (uint64_t)st->st_blocks * 512);
	if (old == NULL)
		(void)atomic_fetch_add(&a->files, 1);
	else if (S_ISREG(old->st_mode) && old->st_nlink == 1)
		ws_account_take_off(a, (uint64_t)old->st_blocks * 512);
	else
		ws_account_doubt(a);
}

static bool is_folder(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISDIR(st.st_mode);
}

/* 0 when the file at `name` and ours have changed places; -EISDIR when a program
 * has just made a folder of it. */
static int swap(const struct ws_task *op, const struct upload *u, int dir_fd,
    const char *name)
{
	const struct ws_root *root = op->order->root;
	char item[WS_NAME_SIZE];
	struct err e;

	if (renameat2(
		root->staging_fd, u->name, dir_fd, name, RENAME_EXCHANGE) != 0)
		return -errno;
	if (!is_folder(root->staging_fd, u->name))
		return 0;
	/* Back with it; if it made a third thing of it, there is no place. */
	if (renameat2(root->staging_fd, u->name, dir_fd, name,
		RENAME_EXCHANGE) != 0 &&
	    ws_trash_take(root, root->staging_fd, u->name, item, &e) >= 0)
		(void)ws_trash_empty(root, item, &e);
	return -EISDIR;
}

static int put(const struct ws_task *op, struct upload *u, int dir_fd,
    const char *name, bool replaces_file, struct err *e)
{
	int code = replaces_file ? -swap(op, u, dir_fd, name) : ENOENT;

	u->swapped = code == 0;
	/* It was gone by then, or the file system cannot do it. */
	if (!u->swapped && code != EISDIR) {
		code = renameat(op->order->root->staging_fd, u->name, dir_fd,
			   name) == 0
			   ? 0
			   : errno;
		if (code == 0)
			u->name[0] = '\0';
	}
	if (code == EISDIR || code == ENOTEMPTY)
		return err_set(e, ERR_INVALID_PATH, EISDIR,
		    "the path is a folder, not a file");
	return code == 0 ? 0 : err_sys(e, code, "putting the file in place");
}

/* The lock is held: nobody counts between the account and the claim. */
static int place_locked(
    struct ws_task *op, struct upload *u, const struct stat *st, struct err *e)
{
	const struct ws_order *o = op->order;
	char name[LIMIT_NAME_COMPONENT + 1];
	cleanup_fd int dir_fd = find_place(op, name, e);
	struct stat old;
	bool replaces;
	int rc;

	if (dir_fd < 0)
		return dir_fd;
	rc = give_name(op, u, e);
	if (rc < 0)
		return rc;
	replaces = fstatat(dir_fd, name, &old, AT_SYMLINK_NOFOLLOW) == 0;
	rc = put(op, u, dir_fd, name, replaces && !S_ISDIR(old.st_mode), e);
	if (rc < 0)
		return rc;
	add_up(op->account, st, replaces ? &old : NULL);
	atomic_store(&o->table->ledger.claims[o->claim].bytes, 0);
	return 0;
}

static int place(
    struct ws_task *op, struct upload *u, struct ws_info *ret, struct err *e)
{
	struct stat st;
	int rc = ws_lock(op, e);

	if (rc < 0)
		return rc;
	if (fstat(u->fd, &st) != 0)
		rc = err_sys(e, errno, "stat");
	else
		rc = place_locked(op, u, &st, e);
	ws_unlock(op);
	/* A second time: its new name has changed its ctime. */
	if (rc == 0 && fstat(u->fd, &st) != 0)
		rc = err_sys(e, errno, "stat");
	if (rc == 0)
		*ret = ws_info_of(&st);
	return rc;
}

static int write_staged(struct ws_task *op, struct upload *u, struct err *e)
{
	struct ws_info i = {0};
	struct stat st;
	uint64_t bytes = 0;
	int rc;

	if ((rc = open_staged(op, u, e)) < 0 ||
	    (rc = ws_send_info(op, &i, u->fd, e)) < 0 ||
	    (rc = await_commit(op, &bytes, e)) < 0 ||
	    (rc = check_written(op, u, bytes, &st, e)) < 0 ||
	    (rc = place(op, u, &i, e)) < 0)
		return rc;
	return ws_send_info(op, &i, -1, e);
}

/* Refuses what cannot be a file's place before anything is sent; folders that
 * lack are made at the end. */
static int check_target(struct ws_task *op, struct err *e)
{
	char name[LIMIT_NAME_COMPONENT + 1];
	int fd = ws_find_target(op->fd, (char *)op->path.data, false, name, e);

	if (fd >= 0)
		(void)close(fd);
	return fd >= 0 || fd == -ENOENT ? 0 : fd;
}

int ws_op_write(struct ws_task *op, struct err *e)
{
	struct upload u = {.fd = -1};
	int rc;

	if ((rc = check_size(op->order->request, e)) < 0 ||
	    (rc = check_target(op, e)) < 0 || (rc = claim(op, &u.claim, e)) < 0)
		return rc;
	rc = write_staged(op, &u, e);
	if (u.name[0] != '\0')
		(void)unlinkat(op->order->root->staging_fd, u.name, 0);
	if (u.swapped)
		(void)sync_file_range(u.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	if (u.fd >= 0)
		(void)close(u.fd);
	return rc;
}
