/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/limits.h"

/* Makes every folder of path that ends at a slash in rest, a part of path. */
static int make_folders(const char *path, char *rest, struct err *e)
{
	for (char *slash = strchr(rest, '/'); slash != NULL;
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

static int write_content(
    const char *path, const struct blob *content, struct err *e)
{
	cleanup_fd int fd =
	    open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	size_t done = 0;

	if (fd < 0)
		return err_sys(e, errno, "cannot create it");
	while (done < content->len) {
		ssize_t n =
		    write(fd, content->data + done, content->len - done);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			return err_sys(
			    e, n == 0 ? ENOSPC : errno, "cannot write it");
	}
	return 0;
}

static int write_file(const struct job_file *f, struct err *e)
{
	char path[sizeof(FILES_DIR "/") + LIMIT_NAME];
	const size_t dir_len = strlen(FILES_DIR "/");
	int rc;

	if (f->name.len > LIMIT_NAME)
		return err_set(e, ERR_INTERNAL, ENAMETOOLONG, "name too long");
	memcpy(path, FILES_DIR "/", dir_len);
	memcpy(path + dir_len, f->name.data, f->name.len);
	path[dir_len + f->name.len] = '\0';
	rc = make_folders(path, path + dir_len, e);
	return rc < 0 ? rc : write_content(path, &f->content, e);
}

int files_write(const struct job_file *files, size_t count, struct err *e)
{
	for (size_t i = 0; i < count; i++) {
		int rc = write_file(&files[i], e);

		if (rc < 0)
			return err_wrap(e, "files[%zu]", i);
	}
	return 0;
}
