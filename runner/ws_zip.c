/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder as a zip archive, sent while it is made. The tree is walked twice:
 * first to learn whether it may be too large, since that can only be said before
 * the first byte; then for its contents. What changes in between does no harm: the
 * length of each file is what it was when it was opened, and the whole is capped.
 * Links, FIFOs, sockets and devices are left out.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/utf8.h"
#include "runner/ws_op.h"

#define READ_SIZE (64u * 1024)
#define SEND_SIZE (64u * 1024)

struct zip {
	struct ws_task *op;
	struct archive *archive;
	struct archive_entry *entry;
	struct buf frame;
	struct buf name;
	uint64_t bytes; /* of contents, then of the archive */
	struct err *e; /* why a callback of libarchive failed */
};

static int too_large(struct err *e)
{
	return err_set(e, ERR_TOO_LARGE, EFBIG,
	    "an archive holds at most %llu MiB; take a folder further down",
	    (unsigned long long)(LIMIT_ARCHIVE >> 20));
}

static int measure(void *arg, const struct ws_item *item, struct err *e)
{
	struct zip *z = arg;

	if (strlen(item->dir) + strlen(item->name) > LIMIT_WS_PATH)
		return err_set(e, ERR_TOO_LARGE, ENAMETOOLONG,
		    "a file lies too deep for an archive: its path has more "
		    "than %u bytes",
		    LIMIT_WS_PATH);
	if (!S_ISREG(item->st->st_mode))
		return 0;
	z->bytes += (uint64_t)item->st->st_size;
	return z->bytes > LIMIT_ARCHIVE ? too_large(e) : 0;
}

static int send_frame(struct zip *z)
{
	cleanup_buf struct buf out = {0};

	if (z->frame.len == 0)
		return 0;
	proto_put_frame(&out, PROTO_WS_DATA, z->frame.data, z->frame.len);
	buf_clear(&z->frame);
	return ws_send(z->op, &out, z->e);
}

/* libarchive writes its headers in small pieces: gathered here. */
static la_ssize_t write_archive(
    struct archive *a, void *arg, const void *data, size_t len)
{
	struct zip *z = arg;
	size_t n = len < SEND_SIZE ? len : SEND_SIZE;

	(void)a;
	z->bytes += n;
	buf_put(&z->frame, data, n);
	if (z->frame.failed)
		return err_set(z->e, ERR_INTERNAL, ENOMEM, "out of memory");
	if (z->bytes > LIMIT_ARCHIVE)
		return too_large(z->e);
	if (z->frame.len >= SEND_SIZE && send_frame(z) < 0)
		return -1;
	return (la_ssize_t)n;
}

/* No two files may have one name there: who unpacks it would lose one. */
static int set_name(
    struct zip *z, const struct ws_item *item, bool dir, struct err *e)
{
	buf_clear(&z->name);
	utf8_spell(&z->name, (const uint8_t *)item->dir, strlen(item->dir));
	utf8_spell(&z->name, (const uint8_t *)item->name, strlen(item->name));
	if (dir)
		buf_putc(&z->name, '/');
	buf_putc(&z->name, '\0');
	if (z->name.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	return 0;
}

static int check(const struct zip *z, la_ssize_t rc, struct err *e)
{
	if (rc >= ARCHIVE_WARN)
		return 0;
	if (e->code != 0) /* a callback's */
		return -e->code;
	return err_set(e, ERR_INTERNAL, EIO, "making the archive: %s",
	    archive_error_string(z->archive));
}

static int put_header(struct zip *z, const struct ws_item *item,
    const struct stat *st, struct err *e)
{
	bool dir = S_ISDIR(st->st_mode);
	int rc = set_name(z, item, dir, e);

	if (rc < 0)
		return rc;
	(void)archive_entry_clear(z->entry);
	archive_entry_set_pathname(z->entry, (const char *)z->name.data);
	archive_entry_set_filetype(z->entry, dir ? AE_IFDIR : AE_IFREG);
	/* Whoever unpacks it is its owner, and wants to read it. */
	archive_entry_set_perm(
	    z->entry, (st->st_mode & 0755) | (dir ? 0700 : 0600));
	archive_entry_set_mtime(z->entry, st->st_mtime, 0);
	archive_entry_set_size(z->entry, dir ? 0 : st->st_size);
	return check(z, archive_write_header(z->archive, z->entry), e);
}

static int put_content(struct zip *z, int fd, uint64_t left, struct err *e)
{
	uint8_t data[READ_SIZE];

	/* Not more than was said, should it grow. */
	while (left > 0) {
		size_t want = left < sizeof data ? (size_t)left : sizeof data;
		ssize_t n = read(fd, data, want);
		int rc;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "reading a file");
		if (n == 0) /* it has become shorter */
			return 0;
		rc = check(
		    z, archive_write_data(z->archive, data, (size_t)n), e);
		if (rc < 0)
			return rc;
		left -= (uint64_t)n;
	}
	return 0;
}

static int put_file(struct zip *z, const struct ws_item *item, struct err *e)
{
	struct err ignored;
	struct stat st;
	cleanup_fd int fd = -1;
	cleanup_fd int found =
	    openat(item->dir_fd, item->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int rc;

	if (found < 0)
		return errno == ENOENT ? 0
				       : err_sys(e, errno, "finding a file");
	fd = ws_reopen(found, &st, &ignored);
	if (fd < 0 || !S_ISREG(st.st_mode)) /* by now */
		return 0;
	rc = put_header(z, item, &st, e);
	return rc < 0 ? rc : put_content(z, fd, (uint64_t)st.st_size, e);
}

static int put_item(void *arg, const struct ws_item *item, struct err *e)
{
	struct zip *z = arg;

	if (S_ISDIR(item->st->st_mode))
		return put_header(z, item, item->st, e);
	return S_ISREG(item->st->st_mode) ? put_file(z, item, e) : 0;
}

static int open_archive(struct zip *z, struct err *e)
{
	z->archive = archive_write_new();
	z->entry = archive_entry_new();
	if (z->archive == NULL || z->entry == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	/* Names are bytes to libarchive, in the locale's encoding. Half the
	 * archive's time is level 1's of it, and it is ours, not a program's. */
	if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
		return err_set(e, ERR_INTERNAL, ENOENT, "no locale C.UTF-8");
	if (archive_write_set_format_zip(z->archive) != ARCHIVE_OK ||
	    archive_write_set_options(z->archive,
		"zip:hdrcharset=UTF-8,zip:compression-level=1") != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(z->archive, 0) != ARCHIVE_OK ||
	    archive_write_open(z->archive, z, NULL, write_archive, NULL) !=
		ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, EIO, "making the archive: %s",
		    archive_error_string(z->archive));
	return 0;
}

static int send_archive(struct zip *z, int dir_fd, struct err *e)
{
	int rc;

	e->code = 0;
	z->e = e;
	z->bytes = 0;
	if ((rc = open_archive(z, e)) < 0 ||
	    (rc = ws_walk(dir_fd, put_item, z, e)) < 0 ||
	    (rc = check(z, archive_write_close(z->archive), e)) < 0)
		return rc;
	return send_frame(z);
}

static int open_folder(struct ws_task *op, struct stat *ret, struct err *e)
{
	cleanup_fd int found = ws_find(op->fd, (char *)op->path.data, e);
	int fd;

	if (found < 0)
		return found;
	fd = ws_reopen(found, ret, e);
	if (fd < 0 || S_ISDIR(ret->st_mode))
		return fd;
	(void)close(fd);
	return err_set(e, ERR_INVALID_PATH, ENOTDIR,
	    "the path is a file; only a folder comes as an archive");
}

int ws_op_zip(struct ws_task *op, struct err *e)
{
	struct zip z = {.op = op};
	struct ws_info i;
	struct stat st;
	cleanup_fd int fd = open_folder(op, &st, e);
	int rc;

	if (fd < 0)
		return fd;
	(void)setpriority(PRIO_PROCESS, 0, 10);
	rc = ws_walk(fd, measure, &z, e);
	if (rc < 0)
		return rc;
	i = ws_info_of(&st);
	rc = ws_send_info(op, &i, -1, e);
	if (rc == 0)
		rc = send_archive(&z, fd, e);
	archive_entry_free(z.entry);
	if (z.archive != NULL && rc < 0)
		(void)archive_write_fail(z.archive);
	if (z.archive != NULL)
		(void)archive_write_free(z.archive);
	buf_free(&z.frame);
	buf_free(&z.name);
	return rc;
}
