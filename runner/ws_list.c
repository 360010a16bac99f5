/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder's entries. They are sorted by name as long as they are few enough to
 * keep; a folder of more comes in the order of the disk, frame by frame, so that
 * neither we nor the client ever hold it whole.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "runner/ws_op.h"

#define READ_SIZE (32u * 1024)
#define FRAME_SIZE (64u * 1024)

/* Names of 100 bytes, 10,000 of them. */
#define SORT_BYTES (1024u * 1024)

struct listing {
	struct ws_task *op;
	int dir_fd;
	struct buf names; /* not sent yet, each with its NUL */
	bool sorting;
	struct buf frame;
	size_t begun; /* of the frame */
};

/* A link that stays inside counts as what it leads to. */
static bool follow_link(
    const struct listing *l, const char *name, struct stat *ret)
{
	cleanup_buf struct buf path = {0};
	cleanup_fd int fd = -1;
	struct err ignored;

	buf_puts(&path, (const char *)l->op->path.data);
	if (path.len > 0)
		buf_putc(&path, '/');
	buf_puts(&path, name);
	buf_putc(&path, '\0');
	if (path.failed)
		return false;
	fd = ws_find(l->op->fd, (const char *)path.data, &ignored);
	return fd >= 0 && fstat(fd, ret) == 0;
}

static enum ws_type type_of(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return WS_FILE;
	if (S_ISDIR(st->st_mode))
		return WS_DIR;
	return S_ISLNK(st->st_mode) ? WS_LINK : WS_OTHER;
}

static int flush(struct listing *l, size_t enough, struct err *e)
{
	int rc;

	if (l->frame.len < enough)
		return 0;
	proto_end(&l->frame, l->begun);
	rc = ws_send(l->op, &l->frame, e);
	buf_clear(&l->frame);
	l->begun = proto_begin(&l->frame, PROTO_WS_ENTRIES);
	return rc;
}

static int put_entry(struct listing *l, const char *name, struct err *e)
{
	struct ws_entry x = {.name = {(const uint8_t *)name, strlen(name)}};
	struct ws_info i;
	struct stat st;

	if (fstatat(l->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "stat");
	if (S_ISLNK(st.st_mode))
		(void)follow_link(l, name, &st);
	i = ws_info_of(&st);
	x.type = type_of(&st);
	x.size = i.size;
	x.mtime_ns = i.mtime_ns;
	ws_entry_put(&x, &l->frame);
	return flush(l, FRAME_SIZE, e);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int put_sorted(struct listing *l, struct err *e)
{
	cleanup_free const char **sorted = NULL;
	size_t n = 0;
	int rc = 0;

	for (size_t i = 0; i < l->names.len; i++)
		n += l->names.data[i] == '\0';
	sorted = calloc(n + 1, sizeof *sorted);
	if (sorted == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	n = 0;
	for (size_t i = 0; i < l->names.len; i += strlen(sorted[n - 1]) + 1)
		sorted[n++] = (const char *)l->names.data + i;
	qsort(sorted, n, sizeof *sorted, compare);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = put_entry(l, sorted[i], e);
	return rc;
}

/* More than can be sorted: what was kept goes first. */
static int stop_sorting(struct listing *l, struct err *e)
{
	int rc = 0;

	l->sorting = false;
	for (size_t i = 0; rc == 0 && i < l->names.len;
	     i += strlen((const char *)l->names.data + i) + 1)
		rc = put_entry(l, (const char *)l->names.data + i, e);
	buf_free(&l->names);
	return rc;
}

static int take_name(struct listing *l, const char *name, struct err *e)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (!l->sorting)
		return put_entry(l, name, e);
	buf_put(&l->names, name, strlen(name) + 1);
	if (l->names.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	return l->names.len > SORT_BYTES ? stop_sorting(l, e) : 0;
}

static int read_names(struct listing *l, struct err *e)
{
	_Alignas(struct dirent64) char entries[READ_SIZE];
	ssize_t n;

	while ((n = getdents64(l->dir_fd, entries, sizeof entries)) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const void *)(entries + at);
			int rc = take_name(l, d->d_name, e);

			if (rc < 0)
				return rc;
			at += d->d_reclen;
		}
	}
	if (n < 0 && errno != ENOENT) /* it was removed meanwhile */
		return err_sys(e, errno, "reading the folder");
	return 0;
}

int ws_op_list(struct ws_task *op, int dir_fd, struct err *e)
{
	struct listing l = {.op = op, .dir_fd = dir_fd, .sorting = true};
	int rc;

	l.begun = proto_begin(&l.frame, PROTO_WS_ENTRIES);
	rc = read_names(&l, e);
	if (rc == 0 && l.sorting)
		rc = put_sorted(&l, e);
	if (rc == 0)
		rc = flush(&l, PROTO_HEADER + 1, e);
	buf_free(&l.names);
	buf_free(&l.frame);
	return rc;
}
