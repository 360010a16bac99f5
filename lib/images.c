/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/buf.h"
#include "lib/cleanup.h"
#include "lib/file.h"

#define LOCK_MAX (64u * 1024)
#define HEX_LEN 64u /* of a SHA-256 */

struct lock_line {
	char hex[HEX_LEN + 1];
	char *name;
};

struct images {
	int dirfd;
	int open_errno; /* why dirfd is -1 */
	bool has_lock;
	struct lock_line *lines;
	size_t count;
};

static const struct lock_line *find_line(
    const struct images *im, const char *name)
{
	for (size_t i = 0; i < im->count; i++)
		if (strcmp(im->lines[i].name, name) == 0)
			return &im->lines[i];
	return NULL;
}

static bool is_hex(const char *s)
{
	for (size_t i = 0; i < HEX_LEN; i++)
		if (!(s[i] >= '0' && s[i] <= '9') &&
		    !(s[i] >= 'a' && s[i] <= 'f'))
			return false;
	return true;
}

static int add_line(struct images *im, char *line, struct err *e)
{
	const char *name = line + HEX_LEN + 2;
	struct lock_line *lines;

	if (line[0] == '\0' || line[0] == '#')
		return 0;
	if (!is_hex(line) || strncmp(line + HEX_LEN, "  ", 2) != 0 ||
	    *name == '\0' || strpbrk(name, " \t\r/") != NULL)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "must be 64 hexadecimal digits, two spaces and a name");
	if (find_line(im, name) != NULL)
		return err_set(
		    e, ERR_INTERNAL, EINVAL, "has a name for the second time");
	lines = reallocarray(im->lines, im->count + 1, sizeof(*lines));
	if (lines == NULL)
		return err_sys(e, ENOMEM, "cannot read it");
	im->lines = lines;
	lines += im->count;
	lines->name = strdup(name);
	if (lines->name == NULL)
		return err_sys(e, ENOMEM, "cannot read it");
	(void)snprintf(lines->hex, sizeof(lines->hex), "%s", line);
	im->count++;
	return 0;
}

static int parse_lock(struct images *im, char *text, struct err *e)
{
	unsigned line = 1;

	for (char *next; text != NULL; text = next, line++) {
		int r;

		next = strchr(text, '\n');
		if (next != NULL)
			*next++ = '\0';
		r = add_line(im, text, e);
		if (r < 0)
			return err_wrap(e, "images.lock:%u", line);
	}
	return 0;
}

static int read_lock(struct images *im, struct err *e)
{
	cleanup_buf struct buf text = {0};
	int r;

	r = file_read(im->dirfd, "images.lock", O_NOFOLLOW, LOCK_MAX, &text, e);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_wrap(e, "images.lock");
	im->has_lock = true;
	if (text.len > 0 && memchr(text.data, '\0', text.len) != NULL)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "images.lock: must be a text without NUL");
	buf_putc(&text, '\0');
	if (text.failed)
		return err_sys(e, ENOMEM, "images.lock");
	return parse_lock(im, (char *)text.data, e);
}

int images_open(const char *dir, struct images **ret, struct err *e)
{
	struct images *im = calloc(1, sizeof(*im));
	int r = 0;

	if (im == NULL)
		return err_sys(e, ENOMEM, "cannot read %.100s", dir);
	im->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (im->dirfd < 0)
		im->open_errno = errno;
	else
		r = read_lock(im, e);
	if (r < 0) {
		images_close(im);
		return err_wrap(e, "%.100s", dir);
	}
	*ret = im;
	return 0;
}

void images_close(struct images *im)
{
	if (im == NULL)
		return;
	for (size_t i = 0; i < im->count; i++)
		free(im->lines[i].name);
	free(im->lines);
	if (im->dirfd >= 0)
		(void)close(im->dirfd);
	free(im);
}

/* A link in its place could lead anywhere on the host. */
static int check_directory(
    const struct images *im, const char *name, struct err *e)
{
	struct stat st;

	if (fstatat(im->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return err_set(e, ERR_INTERNAL, ENOENT,
			    "there is no image %s; isobox-image makes it",
			    name);
		return err_sys(e, errno, "cannot look at image %s", name);
	}
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_INTERNAL, ENOTDIR,
		    "image %s is not a directory", name);
	return 0;
}

static int check_digest(const struct images *im, const char *name,
    const struct lock_line *line, struct err *e)
{
	cleanup_buf struct buf text = {0};
	cleanup_free char *file = NULL;
	size_t len;
	int r;

	if (asprintf(&file, "%s.digest", name) < 0) {
		file = NULL;
		return err_sys(e, ENOMEM, "cannot look at image %s", name);
	}
	r = file_read(im->dirfd, file, O_NOFOLLOW, HEX_LEN + 1, &text, e);
	if (r < 0)
		return err_wrap(e, "%s", file);
	len = text.len;
	if (len == HEX_LEN + 1 && text.data[HEX_LEN] == '\n')
		len--;
	if (len != HEX_LEN || !is_hex((const char *)text.data))
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "%s must be 64 hexadecimal digits", file);
	if (memcmp(text.data, line->hex, HEX_LEN) != 0)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "image %s is not the one of images.lock: %s differs", name,
		    file);
	return 0;
}

int images_check(const struct images *im, const char *name, struct err *e)
{
	const struct lock_line *line = find_line(im, name);
	int r;

	if (im->dirfd < 0)
		return err_sys(
		    e, im->open_errno, "cannot open the images' directory");
	if (!im->has_lock)
		return err_set(e, ERR_INTERNAL, ENOENT,
		    "there is no images.lock in the images' directory");
	if (line == NULL)
		return err_set(e, ERR_INTERNAL, ENOENT,
		    "images.lock has no line for image %s", name);
	r = check_directory(im, name, e);
	if (r < 0)
		return r;
	return check_digest(im, name, line, e);
}
