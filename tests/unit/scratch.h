/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TEST_SCRATCH_H
#define ISOBOX_TEST_SCRATCH_H

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/unit.h"

/* A directory of the test's own, gone afterwards with all that is in it. */
struct scratch {
	char dir[PATH_MAX / 2];
	char path[PATH_MAX]; /* of the last scratch_path() */
};

static inline void scratch_make(struct scratch *s)
{
	(void)snprintf(s->dir, sizeof(s->dir), "/tmp/isobox-unit-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
}

/* The path of a name in the directory, good until the next call. */
static inline const char *scratch_path(struct scratch *s, const char *name)
{
	(void)snprintf(s->path, sizeof(s->path), "%s/%s", s->dir, name);
	return s->path;
}

static inline const char *scratch_write_bytes(
    struct scratch *s, const char *name, const void *data, size_t len)
{
	const char *path = scratch_path(s, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	assert_int_equal(close(fd), 0);
	return path;
}

static inline const char *scratch_write(
    struct scratch *s, const char *name, const char *text)
{
	return scratch_write_bytes(s, name, text, strlen(text));
}

static inline int scratch_remove_one(
    const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

static inline void scratch_remove(struct scratch *s)
{
	assert_int_equal(
	    nftw(s->dir, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

#endif
