/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. A tree is made flat while it is removed: a folder that is
 * not empty moves out of its own one, beside it, and has its turn later. So no
 * folder is ever deeper than one level, no path long, no stack needed, and two
 * descriptors do.
 */
#include "runner/ws_trash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define READ_SIZE (32u * 1024)

/* Reading a folder while entries of it go may pass over some (readdir(3)), and
 * a program may still make new ones. */
#define ROUNDS_MAX 1000

/* An empty folder beside the trash. To take something away needs a new one, for
 * which a full disk has no room. By this name, since whoever removes has the
 * trash, and not the folder that holds both. */
#define SPARE "../spare"

struct heap {
	int fd; /* the item's folder */
	uint64_t serial; /* names for what is moved here */
};

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Calls fn for what is in a folder; how many there were, or its error. */
static int each_entry(int dir_fd,
    int (*fn)(
	struct heap *h, int dir_fd, const struct dirent64 *d, struct err *e),
    struct heap *h, struct err *e)
{
	_Alignas(struct dirent64) char entries[READ_SIZE];
	int seen = 0;

	if (lseek(dir_fd, 0, SEEK_SET) < 0)
		return err_sys(e, errno, "reading the trash");
	for (;;) {
		ssize_t n = getdents64(dir_fd, entries, sizeof entries);

		if (n < 0 && errno != ENOENT)
			return err_sys(e, errno, "reading the trash");
		if (n <= 0)
			return seen;
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const void *)(entries + at);
			int rc = is_dots(d->d_name) ? 0 : fn(h, dir_fd, d, e);

			if (rc < 0)
				return rc;
			seen += !is_dots(d->d_name);
			at += d->d_reclen;
		}
	}
}

/* 0: it is gone; 1: a folder that is not empty. */
static int try_remove(int dir_fd, const char *name, bool dir, struct err *e)
{
	if (!dir) {
		if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
			return 0;
		if (errno != EISDIR && errno != EPERM)
			return err_sys(e, errno, "removing a file");
	}
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == ENOTEMPTY || errno == EEXIST)
		return 1;
	/* It was a folder when it was read. */
	if (errno == ENOTDIR && unlinkat(dir_fd, name, 0) == 0)
		return 0;
	return err_sys(e, errno, "removing a folder");
}

static int remove_or_move(
    struct heap *h, int dir_fd, const struct dirent64 *d, struct err *e)
{
	int rc = try_remove(dir_fd, d->d_name, d->d_type == DT_DIR, e);
	char to[32];

	if (rc <= 0)
		return rc;
	(void)snprintf(to, sizeof to, "%" PRIu64, ++h->serial);
	if (renameat(dir_fd, d->d_name, h->fd, to) == 0 || errno == ENOENT)
		return 0;
	return err_sys(e, errno, "moving a folder in the trash");
}

/* Empties a folder of the heap and removes it. */
static int remove_folder(
    struct heap *h, int heap_fd, const struct dirent64 *d, struct err *e)
{
	cleanup_fd int fd = -1;
	int rc = try_remove(heap_fd, d->d_name, d->d_type == DT_DIR, e);

	if (rc <= 0)
		return rc;
	fd = openat(heap_fd, d->d_name, DIR_FLAGS);
	if (fd < 0)
		return errno == ENOENT
			   ? 0
			   : err_sys(e, errno, "opening a folder to remove");
	for (int i = 0; i < ROUNDS_MAX; i++) {
		rc = each_entry(fd, remove_or_move, h, e);
		if (rc >= 0)
			rc = try_remove(heap_fd, d->d_name, true, e);
		if (rc <= 0)
			return rc;
	}
	return err_set(e, ERR_INTERNAL, EBUSY,
	    "a folder in the trash fills faster than it is emptied");
}

void ws_trash_keep_spare(const struct ws_root *r)
{
	(void)mkdirat(r->trash_fd, SPARE, 0700);
}

/* On a disk that is full the spare one will do: of several at the same time one
 * has it, and makes room for the others. */
static int make_item(const struct ws_root *r, const char *item, struct err *e)
{
	int code;

	if (mkdirat(r->trash_fd, item, 0700) == 0)
		return 0;
	code = errno;
	if ((code == ENOSPC || code == EDQUOT) &&
	    renameat(r->trash_fd, SPARE, r->trash_fd, item) == 0)
		return 0;
	return err_sys(e, code, "making room in the trash");
}

int ws_trash_take(const struct ws_root *r, int dir_fd, const char *name,
    char ret_item[WS_NAME_SIZE], struct err *e)
{
	cleanup_fd int heap = -1;
	int code;

	ws_unique(r, ret_item);
	code = make_item(r, ret_item, e);
	if (code < 0)
		return code;
	heap = openat(r->trash_fd, ret_item, DIR_FLAGS);
	if (heap >= 0 && renameat(dir_fd, name, heap, "0") == 0)
		return 0;
	code = errno;
	/* It may be the spare one, and a new one could not be made. */
	if (renameat(r->trash_fd, ret_item, r->trash_fd, SPARE) != 0)
		(void)unlinkat(r->trash_fd, ret_item, AT_REMOVEDIR);
	if (code == ENOENT)
		return err_set(e, ERR_NOT_FOUND, ENOENT,
		    "there is no such file or folder");
	return err_sys(e, code, "moving into the trash");
}

int ws_trash_empty(const struct ws_root *r, const char *item, struct err *e)
{
	cleanup_fd int fd = openat(r->trash_fd, item, DIR_FLAGS);
	/* Another process may be at the same item, and number as well. */
	struct heap h = {.fd = fd, .serial = (uint64_t)getpid() << 32};
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "the trash");
	do {
		rc = each_entry(fd, remove_folder, &h, e);
		if (rc < 0)
			return rc;
	} while (rc > 0);
	rc = try_remove(r->trash_fd, item, true, e);
	if (rc == 0)
		ws_trash_keep_spare(r);
	return rc == 1 ? err_set(e, ERR_INTERNAL, EBUSY, "the trash is in use")
		       : rc;
}

static void sweep_one(
    const struct ws_root *r, const char *item, int *ret_rc, struct err *e)
{
	struct err one;
	int rc = ws_trash_empty(r, item, &one);

	if (rc < 0 && *ret_rc == 0) {
		*ret_rc = rc;
		*e = one;
	}
}

/* An upload; or the workspace of a kernel that waited for a session. */
static void remove_staged(const struct ws_root *r, const char *name)
{
	char item[WS_NAME_SIZE];
	struct err e;

	if (unlinkat(r->staging_fd, name, 0) != 0 && errno == EISDIR &&
	    ws_trash_take(r, r->staging_fd, name, item, &e) >= 0)
		(void)ws_trash_empty(r, item, &e);
}

/* A runner that was killed while it put an upload in its place. */
static int sweep_staging(const struct ws_root *r, struct err *e)
{
	char own[24];
	cleanup_dir DIR *d = NULL;
	const struct dirent *x;
	int fd = openat(r->staging_fd, ".", DIR_FLAGS);

	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (d == NULL)
		return err_sys(e, errno, "reading the staging folder");
	(void)snprintf(own, sizeof own, "%" PRIx64 "-", r->life);
	while ((x = readdir(d)) != NULL)
		if (!is_dots(x->d_name) &&
		    strncmp(x->d_name, own, strlen(own)) != 0)
			remove_staged(r, x->d_name);
	return 0;
}

int ws_trash_sweep(const struct ws_root *r, struct err *e)
{
	cleanup_dir DIR *d = NULL;
	const struct dirent *x;
	int rc = sweep_staging(r, e);
	int fd = openat(r->trash_fd, ".", DIR_FLAGS);

	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (d == NULL)
		return err_sys(e, errno, "reading the trash");
	while ((x = readdir(d)) != NULL)
		if (!is_dots(x->d_name))
			sweep_one(r, x->d_name, &rc, e);
	return rc;
}
