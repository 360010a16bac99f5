/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. One walk over the source, a folder before what is in it;
 * each entry is made in the copy at the same path, found beneath the copy's top
 * without following a link. What is copied may change meanwhile (the file API
 * writes): a file that goes away is left out, one that becomes something else is
 * left out, too. A second walk sets the times of folders, when nothing is made in
 * them any more.
 */
#include "runner/ws_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/buf.h"
#include "lib/cleanup.h"
#include "lib/limits.h"

#define MODES 01777u /* no set-id bits */
#define RANGE (64u << 20) /* bytes of one copy_file_range(2) */

/* A file that has more names, and its first one in the copy. */
struct linked {
	ino_t ino;
	char *path;
};

struct copy {
	int to;
	uint64_t max_bytes;
	bool by_reference; /* not yet refused */
	struct ws_usage usage;
	struct buf dir; /* the path of dir_fd, with its NUL */
	int dir_fd; /* in the copy; -1: none */
	void *links; /* tsearch(3), struct linked */
};

static int over_quota(const struct copy *c, struct err *e)
{
	if (c->usage.files > LIMIT_WS_FILES)
		return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
		    "the workspace has more than %u files and folders",
		    LIMIT_WS_FILES);
	return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
	    "the workspace takes more than the %llu MiB of its quota",
	    (unsigned long long)(c->max_bytes >> 20));
}

static int failed(const char *what, struct err *e)
{
	int code = errno;

	if (code == ENOSPC || code == EDQUOT)
		return err_set(e, ERR_STORAGE_FULL, code,
		    "there is no room on the disk to copy the workspace");
	return err_sys(e, code, "copying the workspace: %s", what);
}

static int beneath(int top, const char *path, uint64_t flags)
{
	const struct open_how how = {.flags = flags | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

	return (int)syscall(
	    SYS_openat2, top, path[0] != '\0' ? path : ".", &how, sizeof how);
}

/* The folder of the copy in which the item goes, into c->dir_fd. */
static int enter_dir(struct copy *c, const char *dir, struct err *e)
{
	if (c->dir_fd >= 0 && strcmp((const char *)c->dir.data, dir) == 0)
		return 0;
	if (c->dir_fd >= 0)
		(void)close(c->dir_fd);
	c->dir_fd = beneath(c->to, dir, O_PATH | O_DIRECTORY);
	if (c->dir_fd < 0 && errno == ENAMETOOLONG)
		return err_set(e, ERR_INVALID_PATH, ENAMETOOLONG,
		    "the workspace has folders too deep to be copied");
	if (c->dir_fd < 0)
		return failed("a folder", e);
	buf_clear(&c->dir);
	buf_put(&c->dir, dir, strlen(dir) + 1);
	return c->dir.failed ? err_set(e, ERR_INTERNAL, ENOMEM, "out of memory")
			     : 0;
}

/* ---- files --------------------------------------------------------------- */

/* From one hole to the next. 0: no data behind *at. */
static int next_data(int from, off_t size, off_t *at, off_t *end)
{
	off_t data = lseek(from, *at, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? 0 : -1;
	*at = data;
	*end = lseek(from, data, SEEK_HOLE);
	if (*end < 0)
		return -1;
	if (*end > size)
		*end = size;
	return *at < *end ? 1 : 0;
}

/* budget: how much may be written, for the file may grow meanwhile. */
static int copy_range(struct copy *c, int from, int to, off_t at, off_t end,
    uint64_t *budget, struct err *e)
{
	while (at < end) {
		off_t in = at, out = at;
		size_t want = (size_t)(end - at);
		ssize_t n;

		if (want > RANGE)
			want = RANGE;
		n = copy_file_range(from, &in, to, &out, want, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed("a file", e);
		if (n == 0) /* it has become shorter */
			return 0;
		at += n;
		*budget -= (uint64_t)n < *budget ? (uint64_t)n : *budget;
		if (*budget == 0 && at < end)
			return over_quota(c, e);
	}
	return 0;
}

static int copy_data(
    struct copy *c, int from, int to, off_t size, struct err *e)
{
	uint64_t budget = c->max_bytes - c->usage.bytes;
	off_t at = 0, end = 0;
	int more;

	if (c->by_reference && ioctl(to, FICLONE, from) == 0)
		return 0;
	/* Another file system will not learn it. */
	c->by_reference = false;
	if (ftruncate(to, size) != 0)
		return failed("a file", e);
	while ((more = next_data(from, size, &at, &end)) > 0) {
		int rc = copy_range(c, from, to, at, end, &budget, e);

		if (rc < 0)
			return rc;
		at = end;
	}
	return more < 0 ? failed("a file", e) : 0;
}

static int finish_file(
    struct copy *c, int to, const struct stat *st, struct err *e)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	struct stat made;

	if (fchmod(to, st->st_mode & MODES) != 0 || futimens(to, times) != 0 ||
	    fstat(to, &made) != 0)
		return failed("a file", e);
	c->usage.bytes += (uint64_t)made.st_blocks * 512;
	return c->usage.bytes > c->max_bytes ? over_quota(c, e) : 0;
}

static int copy_file(struct copy *c, const struct ws_item *item, struct err *e)
{
	cleanup_fd int from = openat(item->dir_fd, item->name,
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	cleanup_fd int to = -1;
	struct stat st;
	int rc;

	if (from < 0)
		return errno == ENOENT || errno == ELOOP || errno == ENXIO
			   ? 0
			   : failed("a file", e);
	if (fstat(from, &st) != 0)
		return failed("a file", e);
	if (!S_ISREG(st.st_mode))
		return 0;
	if (c->usage.bytes + (uint64_t)st.st_blocks * 512 > c->max_bytes)
		return over_quota(c, e);
	to = openat(c->dir_fd, item->name,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return failed("a file", e);
	rc = copy_data(c, from, to, st.st_size, e);
	return rc < 0 ? rc : finish_file(c, to, &st, e);
}

/* ---- hard links ---------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	const struct linked *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

static void free_linked(void *p)
{
	struct linked *l = p;

	free(l->path);
	free(l);
}

/* Another name of a file that was copied: 1. Else it is remembered. */
static int copy_link(struct copy *c, const struct ws_item *item, struct err *e)
{
	struct linked *l = calloc(1, sizeof *l);
	struct linked **found;

	if (l == NULL ||
	    asprintf(&l->path, "%s%s", item->dir, item->name) < 0) {
		free(l);
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	}
	l->ino = item->st->st_ino;
	found = tsearch(l, &c->links, compare);
	if (found == NULL) {
		free_linked(l);
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	}
	if (*found == l)
		return 0;
	free_linked(l);
	if (linkat(c->to, (*found)->path, c->dir_fd, item->name, 0) == 0)
		return 1;
	/* The first one was left out, or has too many names: a file then. */
	return errno == ENOENT || errno == EMLINK ? 0 : failed("a link", e);
}

/* ---- the rest ------------------------------------------------------------ */

static int copy_symlink(
    struct copy *c, const struct ws_item *item, struct err *e)
{
	char target[LIMIT_WS_PATH + 1];
	ssize_t n =
	    readlinkat(item->dir_fd, item->name, target, sizeof target - 1);

	if (n < 0)
		return errno == ENOENT || errno == EINVAL ? 0
							  : failed("a link", e);
	target[n] = '\0';
	return symlinkat(target, c->dir_fd, item->name) == 0
		   ? 0
		   : failed("a link", e);
}

static int copy_dir(struct copy *c, const struct ws_item *item, struct err *e)
{
	struct stat made;

	if (mkdirat(c->dir_fd, item->name, 0700) != 0 ||
	    fchmodat(c->dir_fd, item->name, item->st->st_mode & MODES, 0) !=
		0 ||
	    fstatat(c->dir_fd, item->name, &made, AT_SYMLINK_NOFOLLOW) != 0)
		return failed("a folder", e);
	c->usage.bytes += (uint64_t)made.st_blocks * 512;
	return 0;
}

/* A FIFO or a socket; a program cannot make a device. */
static int copy_node(struct copy *c, const struct ws_item *item, struct err *e)
{
	const mode_t type = item->st->st_mode & S_IFMT;

	if (type != S_IFIFO && type != S_IFSOCK)
		return 0;
	if (mknodat(c->dir_fd, item->name, type | (item->st->st_mode & 0777),
		0) != 0)
		return failed("a FIFO or socket", e);
	return 0;
}

static int copy_one(void *arg, const struct ws_item *item, struct err *e)
{
	struct copy *c = arg;
	int rc = enter_dir(c, item->dir, e);

	if (rc < 0)
		return rc;
	if (++c->usage.files > LIMIT_WS_FILES)
		return over_quota(c, e);
	if (S_ISDIR(item->st->st_mode))
		return copy_dir(c, item, e);
	if (S_ISLNK(item->st->st_mode))
		return copy_symlink(c, item, e);
	if (item->st->st_nlink > 1 && (rc = copy_link(c, item, e)) != 0)
		return rc < 0 ? rc : 0;
	if (S_ISREG(item->st->st_mode))
		return copy_file(c, item, e);
	return copy_node(c, item, e);
}

/* What is not in the copy has come later. */
static int copy_times(void *arg, const struct ws_item *item, struct err *e)
{
	struct copy *c = arg;
	const struct timespec times[2] = {item->st->st_atim, item->st->st_mtim};

	if (!S_ISDIR(item->st->st_mode) || enter_dir(c, item->dir, e) < 0)
		return 0;
	(void)utimensat(c->dir_fd, item->name, times, AT_SYMLINK_NOFOLLOW);
	return 0;
}

int ws_copy(int from_fd, int to_fd, uint64_t max_bytes, struct ws_usage *ret,
    struct err *e)
{
	struct copy c = {.to = to_fd,
	    .max_bytes = max_bytes,
	    .by_reference = true,
	    .usage = {.files = 1},
	    .dir_fd = -1};
	int rc = ws_walk(from_fd, copy_one, &c, e);

	if (rc == 0)
		rc = ws_walk(from_fd, copy_times, &c, e);
	if (c.dir_fd >= 0)
		(void)close(c.dir_fd);
	tdestroy(c.links, free_linked);
	buf_free(&c.dir);
	if (rc == 0)
		*ret = c.usage;
	return rc;
}
