/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. A checkpoint is a folder that comes into being by a rename
 * and goes by one, into the trash: whoever is killed meanwhile leaves the old one,
 * the new one, or a folder by a name that no session has. A replaced one changes
 * places with its successor (RENAME_EXCHANGE), so there is no moment without any.
 */
#include "runner/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file.h"
#include "lib/limits.h"
#include "lib/log.h"
#include "runner/ws_trash.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define FOLDER "kernels"

/* A sandbox whose checkpoint turned out to be broken. */
#define END_MS 5000u

int checkpoints_open(
    const struct ws_root *root, struct checkpoints *ret, struct err *e)
{
	int fd;

	if (mkdirat(root->fd, FOLDER, 0700) != 0 && errno != EEXIST)
		return err_sys(e, errno, "%s/" FOLDER, root->path);
	fd = openat(root->fd, FOLDER, DIR_FLAGS);
	if (fd < 0)
		return err_sys(e, errno, "%s/" FOLDER, root->path);
	*ret = (struct checkpoints){root, fd};
	return 0;
}

void checkpoints_close(struct checkpoints *cp)
{
	if (cp->fd >= 0)
		(void)close(cp->fd);
	cp->fd = -1;
}

int checkpoint_path(
    const struct checkpoints *cp, const char *name, char ret[PATH_MAX])
{
	int n =
	    snprintf(ret, PATH_MAX, "%s/" FOLDER "/%s", cp->root->path, name);

	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Blocks may not have been given out yet. */
static uint64_t room_of(const struct stat *st)
{
	uint64_t blocks = (uint64_t)st->st_blocks * 512;

	return blocks > (uint64_t)st->st_size ? blocks : (uint64_t)st->st_size;
}

int checkpoint_usage(int dir_fd, uint64_t *ret, struct err *e)
{
	int fd = openat(dir_fd, ".", DIR_FLAGS);
	cleanup_dir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *x;
	uint64_t sum = 0;
	struct stat st;

	if (d == NULL)
		return err_sys(e, errno, "reading a checkpoint");
	while ((x = readdir(d)) != NULL)
		if (strcmp(x->d_name, "..") != 0 &&
		    fstatat(fd, x->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			sum += room_of(&st);
	*ret = sum;
	return 0;
}

static int open_one(const struct checkpoints *cp, const char *id, struct err *e)
{
	int fd = openat(cp->fd, id, DIR_FLAGS);

	if (fd >= 0)
		return fd;
	return errno == ENOENT ? err_set(e, ERR_INTERNAL, ENOENT,
				     "there is no checkpoint of the kernel")
			       : err_sys(e, errno, "opening a checkpoint");
}

int checkpoint_bytes(
    const struct checkpoints *cp, const char *id, uint64_t *ret, struct err *e)
{
	cleanup_fd int fd = open_one(cp, id, e);

	return fd < 0 ? fd : checkpoint_usage(fd, ret, e);
}

int checkpoint_discard(
    const struct checkpoints *cp, const char *name, struct err *e)
{
	char item[WS_NAME_SIZE];
	int rc = ws_trash_take(cp->root, cp->fd, name, item, e);

	if (rc == -ENOENT)
		return 0;
	if (rc == 0)
		rc = ws_trash_empty(cp->root, item, e);
	return rc < 0 ? rc : 1;
}

void checkpoint_new_name(const char *id, char ret[CHECKPOINT_NAME_SIZE])
{
	(void)snprintf(ret, CHECKPOINT_NAME_SIZE, ".new-%s", id);
}

int checkpoint_remove_new(
    const struct checkpoints *cp, const char *id, struct err *e)
{
	char name[CHECKPOINT_NAME_SIZE];

	checkpoint_new_name(id, name);
	return checkpoint_discard(cp, name, e);
}

int checkpoint_remove(
    const struct checkpoints *cp, const char *id, struct err *e)
{
	/* In this order: a commit between the two is found by the second. */
	int rc = checkpoint_remove_new(cp, id, e);

	if (rc >= 0)
		rc = checkpoint_discard(cp, id, e);
	return rc < 0 ? rc : 0;
}

/* Calls fn for each name that begins with a dot, or for each other. */
static int each_name(const struct checkpoints *cp, bool dotted,
    int (*fn)(const struct checkpoints *cp, const char *name, void *arg,
	struct err *e),
    void *arg, struct err *e)
{
	int fd = openat(cp->fd, ".", DIR_FLAGS);
	cleanup_dir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *x;
	int rc = 0;

	if (d == NULL)
		return err_sys(e, errno, "reading the checkpoints");
	while (rc == 0 && (x = readdir(d)) != NULL)
		if (strcmp(x->d_name, ".") != 0 &&
		    strcmp(x->d_name, "..") != 0 &&
		    (x->d_name[0] == '.') == dotted)
			rc = fn(cp, x->d_name, arg, e);
	return rc;
}

static int sweep_one(
    const struct checkpoints *cp, const char *name, void *arg, struct err *e)
{
	int rc = checkpoint_discard(cp, name, e);

	(void)arg;
	return rc < 0 ? rc : 0;
}

int checkpoints_sweep(const struct checkpoints *cp, struct err *e)
{
	return each_name(cp, true, sweep_one, NULL, e);
}

struct listing {
	checkpoint_list_fn *fn;
	void *arg;
};

static int list_one(
    const struct checkpoints *cp, const char *name, void *arg, struct err *e)
{
	const struct listing *l = arg;
	uint64_t bytes = 0;

	if (checkpoint_bytes(cp, name, &bytes, e) >= 0)
		return l->fn(l->arg, name, bytes);
	/* Not ours, or broken: the others are there nevertheless. */
	log_warn("%s: %s", name, e->msg);
	return 0;
}

int checkpoints_list(const struct checkpoints *cp, checkpoint_list_fn *fn,
    void *arg, struct err *e)
{
	struct listing l = {fn, arg};

	return each_name(cp, false, list_one, &l, e);
}

/* ---- making one ---------------------------------------------------------- */

int checkpoint_begin(
    const struct checkpoints *cp, const char *name, struct err *e)
{
	int rc = checkpoint_discard(cp, name, e);
	int fd;

	if (rc < 0)
		return rc;
	if (mkdirat(cp->fd, name, 0700) != 0)
		return err_sys(e, errno, "making a checkpoint");
	fd = openat(cp->fd, name, DIR_FLAGS);
	return fd >= 0 ? fd : err_sys(e, errno, "making a checkpoint");
}

int checkpoint_commit(const struct checkpoints *cp, const char *name,
    int dir_fd, const char *id, struct err *e)
{
	struct err ignored;

	if (fsync(dir_fd) != 0)
		return err_sys(e, errno, "syncing a checkpoint");
	if (renameat2(cp->fd, name, cp->fd, id, RENAME_NOREPLACE) != 0) {
		if (errno != EEXIST ||
		    renameat2(cp->fd, name, cp->fd, id, RENAME_EXCHANGE) != 0)
			return err_sys(e, errno, "placing a checkpoint");
		/* What is left of it, a sweep finds. */
		(void)checkpoint_discard(cp, name, &ignored);
	}
	return fsync(cp->fd) == 0 ? 0
				  : err_sys(e, errno, "syncing checkpoints");
}

static int link_one(int from, int to, const char *name, struct err *e)
{
	if (linkat(from, name, to, name, 0) != 0)
		return err_sys(e, errno, "copying a checkpoint");
	return 0;
}

/* Not of the files, which may be as they should. */
static bool is_hosts_fault(int code)
{
	return code == ENOMEM || code == EMFILE || code == ENFILE ||
	       code == EIO || code == EINTR || code == EAGAIN;
}

static int read_manifest(int dir_fd, struct stamp_manifest *ret, struct err *e)
{
	cleanup_buf struct buf text = {0};
	int rc = file_read(
	    dir_fd, CHECKPOINT_STAMP, O_NOFOLLOW, STAMP_TEXT_MAX, &text, e);

	if (rc < 0 && is_hosts_fault(-rc))
		return rc;
	if (rc < 0)
		return err_set(
		    e, ERR_INTERNAL, EBADMSG, "the checkpoint has no stamp");
	return stamp_decode(text.data, text.len, ret, e);
}

static int broken(const char *what, struct err *e)
{
	return err_set(
	    e, ERR_INTERNAL, EBADMSG, "the checkpoint is damaged: %s", what);
}

/* 0: it is what was saved. */
static int check_about(
    const struct stamp_manifest *m, const struct buf *text, struct err *e)
{
	uint8_t hash[TOKEN_HASH_LEN];

	token_hash((const char *)text->data, text->len, hash);
	for (size_t i = 0; i < m->file_count; i++)
		if (strcmp(m->files[i].name, CHECKPOINT_ABOUT) == 0 &&
		    token_hash_equal(hash, m->files[i].hash))
			return 0;
	return broken("what it says about the kernel", e);
}

int checkpoint_about(const struct checkpoints *cp, const char *id,
    struct buf *out, struct err *e)
{
	cleanup_fd int fd = open_one(cp, id, e);
	cleanup_buf struct buf text = {0};
	struct stamp_manifest m;
	int rc;

	if (fd < 0)
		return fd;
	rc = read_manifest(fd, &m, e);
	if (rc < 0)
		return rc;
	if (file_read(fd, CHECKPOINT_ABOUT, O_NOFOLLOW, CHECKPOINT_ABOUT_MAX,
		&text, e) < 0)
		return broken("what it says about the kernel", e);
	rc = check_about(&m, &text, e);
	if (rc < 0)
		return rc;
	buf_put(out, text.data, text.len);
	return out->failed ? err_set(e, ERR_INTERNAL, ENOMEM, "out of memory")
			   : 0;
}

int checkpoint_copy(const struct checkpoints *cp, const char *from,
    const char *to, struct err *e)
{
	cleanup_fd int from_fd = open_one(cp, from, e);
	char name[CHECKPOINT_NAME_SIZE];
	cleanup_fd int to_fd = -1;
	struct stamp_manifest m;
	struct err ignored;
	int rc;

	if (from_fd < 0)
		return from_fd;
	rc = read_manifest(from_fd, &m, e);
	if (rc < 0)
		return rc;
	checkpoint_new_name(to, name);
	rc = to_fd = checkpoint_begin(cp, name, e);
	for (size_t i = 0; rc >= 0 && i < m.file_count; i++)
		rc = link_one(from_fd, to_fd, m.files[i].name, e);
	if (rc >= 0)
		rc = link_one(from_fd, to_fd, CHECKPOINT_STAMP, e);
	if (rc >= 0)
		rc = checkpoint_commit(cp, name, to_fd, to, e);
	if (rc < 0)
		(void)checkpoint_discard(cp, name, &ignored);
	return rc;
}

/* ---- restoring ----------------------------------------------------------- */

static void close_files(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
}

static int open_files(
    int dir_fd, const struct stamp_manifest *m, int *fds, struct err *e)
{
	struct stat st;

	for (size_t i = 0; i < m->file_count; i++) {
		fds[i] = openat(dir_fd, m->files[i].name,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fds[i] < 0 && is_hosts_fault(errno))
			return err_sys(e, errno, "opening the checkpoint");
		if (fds[i] < 0)
			return broken("a file lacks", e);
		if (fstat(fds[i], &st) != 0)
			return err_sys(e, errno, "stat of the checkpoint");
		if (!S_ISREG(st.st_mode) ||
		    (uint64_t)st.st_size != m->files[i].size)
			return broken("a file has another length", e);
	}
	return 0;
}

static int check_hashes(
    const struct stamp_manifest *m, const int *fds, struct err *e)
{
	uint8_t hash[TOKEN_HASH_LEN];
	uint64_t size;

	for (size_t i = 0; i < m->file_count; i++) {
		int rc = stamp_hash_fd(fds[i], &size, hash, e);

		if (rc < 0)
			return rc;
		if (!token_hash_equal(hash, m->files[i].hash))
			return broken("a file has another content", e);
	}
	return 0;
}

/* The files are read through once while runsc starts, which takes longer: what is
 * broken is found out before the kernel is told that it was restored. */
static int start_checked(const struct sandbox_spec *spec,
    const struct stamp_manifest *m, const int *fds, struct leaf *leaf,
    struct sandbox *ret, struct err *e)
{
	struct sandbox box = SANDBOX_NONE;
	struct err ignored;
	int rc = sandbox_start(spec, leaf, &box, e);

	if (rc < 0)
		return rc;
	rc = check_hashes(m, fds, e);
	if (rc < 0) {
		(void)sandbox_done(&box, END_MS, &ignored);
		return rc;
	}
	*ret = box;
	return 0;
}

int checkpoint_restore(const struct checkpoints *cp, const char *id,
    const struct sandbox_spec *spec, const struct checkpoint_stamp *now,
    struct leaf *leaf, struct sandbox *ret, struct err *e)
{
	cleanup_fd int dir_fd = open_one(cp, id, e);
	struct sandbox_spec with = *spec;
	struct stamp_manifest m;
	int fds[STAMP_FILES_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
	char path[PATH_MAX];
	int rc;

	if (dir_fd < 0)
		return dir_fd;
	if (checkpoint_path(cp, id, path) < 0)
		return err_sys(e, ENAMETOOLONG, "the checkpoint");
	with.checkpoint = path;
	with.checkpoint_fd = dir_fd;
	if ((rc = read_manifest(dir_fd, &m, e)) < 0 ||
	    (rc = checkpoint_stamp_check(&m.stamp, now, e)) < 0)
		return rc;
	rc = open_files(dir_fd, &m, fds, e);
	if (rc == 0)
		rc = start_checked(&with, &m, fds, leaf, ret, e);
	close_files(fds, m.file_count);
	return rc;
}
