/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/strings.h"
#include "lib/cleanup.h"
#include "lib/limits.h"

/* Makes every folder that is part of path. */
static int make_folders(char *path, struct err *e)
{
	for (char *slash = strchr(path, '/'); slash != NULL;
	     slash = strchr(slash + 1, '/')) {
		int rc;

		*slash = '\0';
		rc = mkdir(path, 0755);
		*slash = '/';
		if (rc != 0 && errno != EEXIST)
			return err_sys(e, errno, "cannot make its folder");
	}
	return 0;
}

static int copy_name(
    const struct blob *name, char ret[LIMIT_NAME + 1], struct err *e)
{
	if (name->len == 0 || name->len > LIMIT_NAME)
		return err_set(e, ERR_INTERNAL, ENAMETOOLONG, "name too long");
	memcpy(ret, name->data, name->len);
	ret[name->len] = '\0';
	return 0;
}

int files_fill(int fd, const struct blob *content, struct err *e)
{
	size_t done = 0;

	while (done < content->len) {
		ssize_t n = pwrite(
		    fd, content->data + done, content->len - done, (off_t)done);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			return err_sys(
			    e, n == 0 ? ENOSPC : errno, "cannot write it");
	}
	if (ftruncate(fd, (off_t)content->len) != 0)
		return err_sys(e, errno, "cannot cut it");
	return 0;
}

static int write_content(
    const char *path, int flags, const struct blob *content, struct err *e)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);

	if (fd < 0)
		return err_sys(e, errno, "cannot create it");
	return files_fill(fd, content, e);
}

int files_open(const struct blob *name, int *ret_fd, struct err *e)
{
	cleanup_fd int fd = -1;
	struct stat st;
	char path[LIMIT_NAME + 1];
	int rc = copy_name(name, path, e);

	if (rc < 0)
		return rc;
	fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) != 0)
		return err_sys(e, errno, "cannot open it");
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INTERNAL, EINVAL, "is no file");
	*ret_fd = take_fd(&fd);
	return 0;
}

static int write_file(const struct job_file *f, bool there, struct err *e)
{
	char path[LIMIT_NAME + 1];
	int rc = copy_name(&f->name, path, e);

	if (rc == 0 && !there)
		rc = make_folders(path, e);
	return rc < 0 ? rc
		      : write_content(path, there ? O_TRUNC : O_CREAT | O_EXCL,
			    &f->content, e);
}

int files_write(const struct job_file *files, size_t count,
    const struct blob *there, struct err *e)
{
	for (size_t i = 0; i < count; i++) {
		int rc = write_file(&files[i],
		    there != NULL && blob_equal(&files[i].name, there), e);

		if (rc < 0)
			return err_wrap(e, "files[%zu]", i);
	}
	return 0;
}

int files_remove(const struct blob *name, struct err *e)
{
	char path[LIMIT_NAME + 1];
	int rc = copy_name(name, path, e);
	char *slash;

	if (rc < 0)
		return rc;
	if (unlink(path) != 0 && errno != ENOENT)
		return err_sys(e, errno, "cannot remove %s", path);
	while ((slash = strrchr(path, '/')) != NULL) {
		*slash = '\0';
		if (rmdir(path) != 0 && errno != ENOENT)
			return err_sys(e, errno, "cannot remove %s", path);
	}
	return 0;
}
