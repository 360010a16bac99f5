/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CLEANUP_H
#define ISOBOX_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Owning locals that let go by themselves at the end of their scope:
 *	cleanup_free char *s = NULL;
 *	cleanup_fd int fd = -1;
 * Hand the value on with take_ptr() or take_fd().
 */
static inline void cleanup_freep(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_fdp(const int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void cleanup_filep(FILE **f)
{
	if (*f != NULL)
		(void)fclose(*f);
}

static inline void cleanup_dirp(DIR **d)
{
	if (*d != NULL)
		(void)closedir(*d);
}

/* For what no scope owns; -1 is nothing, and what is left. */
static inline void close_fd(int *fd)
{
	cleanup_fdp(fd);
	*fd = -1;
}

static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

static inline void *take_ptr_(void *pp)
{
	void *taken = *(void **)pp;

	*(void **)pp = NULL;
	return taken;
}

#define take_ptr(pp) ((__typeof__(*(pp)))take_ptr_(pp))

#define cleanup_free __attribute__((cleanup(cleanup_freep)))
#define cleanup_fd __attribute__((cleanup(cleanup_fdp)))
#define cleanup_file __attribute__((cleanup(cleanup_filep)))
#define cleanup_dir __attribute__((cleanup(cleanup_dirp)))

#endif
