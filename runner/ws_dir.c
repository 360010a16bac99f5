/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/ws_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/buf.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/file.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* The kernel gives up a resolution when something else was renamed at the wrong
 * moment, in all the system (EAGAIN, openat2(2)). */
#define RESOLVE_TRIES 1000

/* As many links in a row as the kernel follows (MAXSYMLINKS). */
#define LINKS_MAX 40

static int make_dir(int at, const char *name, struct err *e)
{
	int fd;

	if (mkdirat(at, name, 0700) != 0 && errno != EEXIST)
		return err_sys(e, errno, "%s", name);
	fd = openat(at, name, DIR_FLAGS);
	return fd >= 0 ? fd : err_sys(e, errno, "%s", name);
}

static int check_owner(int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return err_sys(e, errno, "stat");
	if (st.st_uid != geteuid() || (st.st_mode & 022) != 0)
		return err_set(e, ERR_INTERNAL, EPERM,
		    "must belong to the runner's user, and nobody else may "
		    "write there (mode 0700)");
	return 0;
}

static int open_parts(struct ws_root *r, struct err *e)
{
	int rc;

	r->fd = make_dir(AT_FDCWD, r->path, e);
	if (r->fd < 0)
		return r->fd;
	if ((rc = check_owner(r->fd, e)) < 0)
		return rc;
	if (file_lock(r->fd) < 0)
		return err_set(
		    e, ERR_INTERNAL, EBUSY, "another isobox-runner has it");
	if ((r->kind_fd[WS_SESSION] = make_dir(r->fd, "sessions", e)) < 0)
		return r->kind_fd[WS_SESSION];
	if ((r->kind_fd[WS_VOLUME] = make_dir(r->fd, "volumes", e)) < 0)
		return r->kind_fd[WS_VOLUME];
	if ((r->staging_fd = make_dir(r->fd, "staging", e)) < 0)
		return r->staging_fd;
	return r->trash_fd = make_dir(r->fd, "trash", e);
}

int ws_root_open(
    const struct config *c, uint64_t life, struct ws_root *ret, struct err *e)
{
	struct ws_root r = {.path = c->workspaces_dir,
	    .fd = -1,
	    .kind_fd = {-1, -1, -1},
	    .staging_fd = -1,
	    .trash_fd = -1,
	    .life = life};
	int rc = open_parts(&r, e);

	if (rc < 0) {
		(void)err_wrap(e, "workspaces_dir %.100s", c->workspaces_dir);
		ws_root_close(&r);
	}
	*ret = r;
	return rc < 0 ? rc : 0;
}

void ws_root_close(struct ws_root *r)
{
	close_fd(&r->fd);
	close_fd(&r->kind_fd[WS_SESSION]);
	close_fd(&r->kind_fd[WS_VOLUME]);
	close_fd(&r->staging_fd);
	close_fd(&r->trash_fd);
}

void ws_unique(const struct ws_root *r, char name[WS_NAME_SIZE])
{
	/* The clock and not a counter: no state, and one process does one of
	 * these things after the other. */
	(void)snprintf(name, WS_NAME_SIZE, "%" PRIx64 "-%x-%" PRIx64, r->life,
	    (unsigned)getpid(), clock_us());
}

const char *ws_kind_word(enum ws_kind kind)
{
	return kind == WS_VOLUME ? "volume" : "session";
}

int ws_gone(enum ws_kind kind, struct err *e)
{
	return err_set(e,
	    kind == WS_VOLUME ? ERR_VOLUME_NOT_FOUND : ERR_SESSION_NOT_FOUND,
	    ENOENT, "there is no such %s", ws_kind_word(kind));
}

int ws_open(
    const struct ws_root *r, enum ws_kind kind, const char *id, struct err *e)
{
	int fd = openat(r->kind_fd[kind], id, DIR_FLAGS);

	if (fd >= 0)
		return fd;
	return errno == ENOENT ? ws_gone(kind, e) : err_sys(e, errno, "%s", id);
}

static int beneath(int ws_fd, const char *path, uint64_t flags)
{
	const struct open_how how = {.flags = flags | O_PATH | O_CLOEXEC,
	    .resolve =
		RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
	int fd = -1;

	for (int i = 0; i < RESOLVE_TRIES; i++) {
		fd = (int)syscall(SYS_openat2, ws_fd,
		    path[0] != '\0' ? path : ".", &how, sizeof how);
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd;
}

static int refused(int code, struct err *e)
{
	switch (code) {
	case ENOENT:
		return err_set(e, ERR_NOT_FOUND, ENOENT,
		    "there is no such file or folder");
	case ENOTDIR:
		return err_set(e, ERR_NOT_FOUND, ENOTDIR,
		    "a component of the path is a file");
	case EXDEV:
		return err_set(e, ERR_INVALID_PATH, EXDEV,
		    "the path meets a link that leaves the workspace");
	case ELOOP:
		return err_set(e, ERR_INVALID_PATH, ELOOP,
		    "the path meets too many links");
	case ENAMETOOLONG:
		return err_set(
		    e, ERR_INVALID_PATH, ENAMETOOLONG, "the path is too long");
	case EAGAIN:
		return err_set(e, ERR_SESSION_BUSY, EAGAIN,
		    "the files change too fast to find this one");
	default:
		return err_sys(e, code, "cannot look up the path");
	}
}

int ws_find(int ws_fd, const char *path, struct err *e)
{
	int fd = beneath(ws_fd, path, 0);

	return fd >= 0 ? fd : refused(errno, e);
}

int ws_reopen(int path_fd, struct stat *ret, struct err *e)
{
	char name[32];
	struct stat st;
	int fd;

	if (fstat(path_fd, &st) != 0)
		return err_sys(e, errno, "stat");
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return err_set(e, ERR_INVALID_PATH, EINVAL,
		    "the path is neither a file nor a folder");
	/* The very inode that was looked at, whatever has its name by now. */
	(void)snprintf(name, sizeof name, "/proc/self/fd/%d", path_fd);
	fd = open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "cannot open the file");
	*ret = st;
	return fd;
}

/* Splits at the last slash: *ret_dir is empty for the top. The path may come from
 * a link, so its last component may be empty or dots: false. */
static bool split(
    const char *path, struct buf *ret_dir, char name[LIMIT_NAME_COMPONENT + 1])
{
	const char *slash = strrchr(path, '/');
	const char *last = slash != NULL ? slash + 1 : path;
	size_t len = strlen(last);

	if (len == 0 || len > LIMIT_NAME_COMPONENT || strcmp(last, ".") == 0 ||
	    strcmp(last, "..") == 0)
		return false;
	(void)memcpy(name, last, len + 1);
	if (slash != NULL)
		buf_put(ret_dir, path, (size_t)(slash - path));
	buf_putc(ret_dir, '\0');
	return true;
}

static int is_folder(struct err *e)
{
	return err_set(
	    e, ERR_INVALID_PATH, EISDIR, "the path is a folder, not a file");
}

int ws_find_parent(int ws_fd, const char *path,
    char ret_name[LIMIT_NAME_COMPONENT + 1], struct err *e)
{
	cleanup_buf struct buf dir = {0};
	int fd;

	if (!split(path, &dir, ret_name))
		return is_folder(e);
	if (dir.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	fd = beneath(ws_fd, (const char *)dir.data, O_DIRECTORY);
	return fd >= 0 ? fd : refused(errno, e);
}

/* One more component of a path, `dir` being the path up to its end. The path may
 * go through links, which the kernel has to see from the top on. */
static int make_folder(
    int ws_fd, int at, const char *dir, const char *name, struct err *e)
{
	int fd = beneath(ws_fd, dir, O_DIRECTORY);

	if (fd < 0 && errno == ENOENT) {
		/* EEXIST: a link to nowhere, or another one has just made it */
		if (mkdirat(at, name, 0755) != 0 && errno != EEXIST)
			return refused(errno, e);
		fd = beneath(ws_fd, dir, O_DIRECTORY);
	}
	return fd >= 0 ? fd : refused(errno, e);
}

/* Opens a folder and makes what lacks of it; dir is changed on the way. */
static int make_folders(int ws_fd, char *dir, struct err *e)
{
	int at = beneath(ws_fd, "", O_DIRECTORY);

	if (at < 0)
		return refused(errno, e);
	for (char *c = dir; *c != '\0';) {
		char *slash = strchrnul(c, '/');
		char end = *slash;
		int next;

		*slash = '\0';
		next = make_folder(ws_fd, at, dir, c, e);
		*slash = end;
		(void)close(at);
		if (next < 0)
			return next;
		at = next;
		c = end != '\0' ? slash + 1 : slash;
	}
	return at;
}

/* What stands where a file is to be written: 1, something that it may replace, or
 * nothing; 0, a link, its target in
 * ret_link. */
static int look_at_target(int dir_fd, const char *name,
    char ret_link[LIMIT_WS_PATH + 1], struct err *e)
{
	struct stat st;
	ssize_t n;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 1 : refused(errno, e);
	if (S_ISREG(st.st_mode))
		return 1;
	if (S_ISDIR(st.st_mode))
		return is_folder(e);
	if (!S_ISLNK(st.st_mode))
		return err_set(
		    e, ERR_INVALID_PATH, EINVAL, "the path is no regular file");
	n = readlinkat(dir_fd, name, ret_link, LIMIT_WS_PATH);
	if (n < 0)
		return refused(errno, e);
	ret_link[n] = '\0';
	if (ret_link[0] == '/')
		return refused(EXDEV, e);
	return 0;
}

static int find_or_make(int ws_fd, struct buf *dir, bool make, struct err *e)
{
	int fd;

	if (dir->failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	if (make) {
		fd = make_folders(ws_fd, (char *)dir->data, e);
	} else {
		fd = beneath(ws_fd, (const char *)dir->data, O_DIRECTORY);
		if (fd < 0)
			fd = refused(errno, e);
	}
	/* Here it is no file that lacks, but a path that can be none. */
	if (fd == -ENOTDIR)
		e->kind = ERR_INVALID_PATH;
	return fd;
}

int ws_find_target(int ws_fd, const char *path, bool make,
    char ret_name[LIMIT_NAME_COMPONENT + 1], struct err *e)
{
	char at[2 * LIMIT_WS_PATH + 2];
	char link[LIMIT_WS_PATH + 1];

	(void)snprintf(at, sizeof at, "%s", path);
	for (int i = 0; i < LINKS_MAX; i++) {
		cleanup_buf struct buf dir = {0};
		cleanup_fd int fd = -1;
		int rc;

		if (!split(at, &dir, ret_name))
			return is_folder(e);
		fd = find_or_make(ws_fd, &dir, make, e);
		if (fd < 0)
			return fd;
		rc = look_at_target(fd, ret_name, link, e);
		if (rc < 0)
			return rc;
		if (rc > 0)
			return take_fd(&fd);
		/* From the link's own folder on. */
		if (snprintf(at, sizeof at, "%s%s%s", (char *)dir.data,
			dir.data[0] != '\0' ? "/" : "",
			link) > (int)LIMIT_WS_PATH)
			return refused(ENAMETOOLONG, e);
	}
	return refused(ELOOP, e);
}

static int write_map(const char *path, const char *text, struct err *e)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return err_sys(e, errno, "%s", path);
	return 0;
}

int ws_override_modes(struct err *e)
{
	char uid_map[48], gid_map[48];
	int rc;

	(void)snprintf(uid_map, sizeof uid_map, "0 %u 1", geteuid());
	(void)snprintf(gid_map, sizeof gid_map, "0 %u 1", getegid());
	if (unshare(CLONE_NEWUSER) != 0)
		return err_sys(e, errno, "cannot make a user namespace");
	if ((rc = write_map("/proc/self/setgroups", "deny", e)) < 0 ||
	    (rc = write_map("/proc/self/uid_map", uid_map, e)) < 0 ||
	    (rc = write_map("/proc/self/gid_map", gid_map, e)) < 0)
		return rc;
	return 0;
}
