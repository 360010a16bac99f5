/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

/* A holder that does not stay is done in some milliseconds, but on a busy host it
 * may have to wait for a CPU. */
#define LOCK_WAIT_US 5000000u
#define LOCK_STEP_MS 10u

static int check_kind(int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "cannot look at it");
	if (!S_ISREG(st.st_mode))
		return err_set(
		    e, ERR_INTERNAL, EINVAL, "is not a regular file");
	if (st.st_mode & S_IWOTH)
		return err_set(e, ERR_INTERNAL, EPERM,
		    "may be written by everybody; allowed is mode 0664 or "
		    "less");
	return 0;
}

/* Reads to the end instead of trusting st_size: the file may grow meanwhile. */
static int read_all(int fd, size_t max, struct buf *out, struct err *e)
{
	size_t total = 0;

	for (;;) {
		uint8_t *room = buf_reserve(out, 4096);
		ssize_t n;

		if (room == NULL)
			return err_sys(e, ENOMEM, "cannot read it");
		n = read(fd, room, 4096);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "cannot read it");
		if (n == 0)
			return 0;
		total += (size_t)n;
		if (total > max)
			return err_set(e, ERR_INTERNAL, EFBIG,
			    "is longer than %zu bytes", max);
		out->len += (size_t)n;
	}
}

int file_read(int dirfd, const char *name, int flags, size_t max,
    struct buf *out, struct err *e)
{
	cleanup_fd int fd = -1;
	int r;

	fd = openat(
	    dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
	if (fd < 0)
		return err_sys(e, errno, "cannot open it");
	r = check_kind(fd, e);
	if (r < 0)
		return r;
	return read_all(fd, max, out, e);
}

int file_lock(int fd)
{
	static const struct timespec step = {.tv_nsec = LOCK_STEP_MS * 1000000};
	uint64_t end_us = clock_us() + LOCK_WAIT_US;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno == EINTR)
			continue;
		if (errno != EWOULDBLOCK || clock_us() >= end_us)
			return -errno;
		(void)nanosleep(&step, NULL);
	}
	return 0;
}

int file_lock_dir(const char *dir, struct err *e)
{
	cleanup_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return err_sys(e, errno, "cannot open its directory");
	r = file_lock(fd);
	if (r < 0)
		return err_sys(e, -r, "cannot lock its directory");
	return take_fd(&fd);
}
