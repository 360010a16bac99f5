/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/ratelimit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file.h"

/*
 * A whole file appears under its name by rename(2) and is never changed in its
 * size or header afterwards. So a file that is found good may be used at once;
 * one that is not is replaced under a lock on its directory, after another look.
 */

/* The id of this boot, random(4). */
static int read_boot_id(char ret[RATE_BOOT_LEN], struct err *e)
{
	static const char path[] = "/proc/sys/kernel/random/boot_id";
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	if (read(fd, ret, RATE_BOOT_LEN) != (ssize_t)RATE_BOOT_LEN)
		return err_set(e, ERR_INTERNAL, EIO, "%s: too short", path);
	return 0;
}

/* NULL on failure. */
static struct rate_file *map(int fd, struct err *e)
{
	void *p = mmap(NULL, sizeof(struct rate_file), PROT_READ | PROT_WRITE,
	    MAP_SHARED, fd, 0);

	if (p != MAP_FAILED)
		return p;
	(void)err_sys(e, errno, "cannot map it");
	return NULL;
}

static bool is_ours(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       st.st_uid == geteuid() && (st.st_mode & 07777) == 0600 &&
	       st.st_size == (off_t)sizeof(struct rate_file);
}

/* 1 when there is a good file, mapped at *ret; 0 when there is none. */
static int try_open(const char *path, const char *boot_id,
    struct rate_file **ret, struct err *e)
{
	cleanup_fd int fd = -1;
	struct rate_file *f;

	fd =
	    open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return err_sys(e, errno, "cannot open it");
	if (fd < 0 || !is_ours(fd))
		return 0;
	f = map(fd, e);
	if (f == NULL)
		return -e->code;
	if (f->magic != RATE_MAGIC || f->size != sizeof(*f) ||
	    memcmp(f->boot_id, boot_id, RATE_BOOT_LEN) != 0) {
		(void)munmap(f, sizeof(*f));
		return 0;
	}
	*ret = f;
	return 1;
}

static int init_locks(struct rate_file *f, struct err *e)
{
	pthread_mutexattr_t attr;
	int r;

	r = pthread_mutexattr_init(&attr);
	if (r != 0)
		return err_sys(e, r, "cannot make a lock");
	r = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	if (r == 0)
		r = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	for (size_t i = 0; r == 0 && i < RATE_LOCKS; i++)
		r = pthread_mutex_init(&f->locks[i].mutex, &attr);
	(void)pthread_mutexattr_destroy(&attr);
	return r == 0 ? 0 : err_sys(e, r, "cannot make a lock");
}

static int init_file(int fd, const char *boot_id, struct err *e)
{
	struct rate_file *f;
	int r;

	/* Real blocks: a write into a hole of a full disk would be SIGBUS. */
	r = posix_fallocate(fd, 0, (off_t)sizeof(*f));
	if (r != 0)
		return err_sys(e, r, "cannot take %zu bytes", sizeof(*f));
	f = map(fd, e);
	if (f == NULL)
		return -e->code;
	r = init_locks(f, e);
	f->size = sizeof(*f);
	memcpy(f->boot_id, boot_id, RATE_BOOT_LEN);
	crypto_shorthash_keygen(f->hash_key);
	f->magic = RATE_MAGIC;
	(void)munmap(f, sizeof(*f));
	return r;
}

/* Called under the directory's lock. */
static int replace(const char *path, const char *boot_id, struct err *e)
{
	cleanup_free char *tmp = NULL;
	cleanup_fd int fd = -1;
	int r;

	if (asprintf(&tmp, "%s.new", path) < 0) {
		tmp = NULL;
		return err_sys(e, ENOMEM, "cannot make it");
	}
	/* Only a maker that was killed leaves one: we hold the lock. */
	(void)unlink(tmp);
	fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "cannot make it");
	r = init_file(fd, boot_id, e);
	if (r == 0 && fchmod(fd, 0600) < 0) /* whatever the umask took */
		r = err_sys(e, errno, "cannot make it");
	if (r == 0 && rename(tmp, path) < 0)
		r = err_sys(e, errno, "cannot put it in place");
	if (r < 0)
		(void)unlink(tmp);
	return r;
}

static int lock_directory(const char *path, struct err *e)
{
	char copy[PATH_MAX];

	if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy))
		return err_sys(e, ENAMETOOLONG, "cannot open its directory");
	return file_lock_dir(dirname(copy), e);
}

static int map_or_make(const char *path, struct rate_file **ret, struct err *e)
{
	cleanup_fd int lock = -1;
	char boot_id[RATE_BOOT_LEN];
	int r;

	r = read_boot_id(boot_id, e);
	if (r < 0)
		return r;
	r = try_open(path, boot_id, ret, e);
	if (r != 0)
		return r;
	lock = lock_directory(path, e);
	if (lock < 0)
		return lock;
	r = try_open(path, boot_id, ret, e);
	if (r != 0)
		return r;
	r = replace(path, boot_id, e);
	if (r < 0)
		return r;
	r = try_open(path, boot_id, ret, e);
	if (r == 0)
		r = err_set(e, ERR_INTERNAL, EIO, "is not what was made");
	return r;
}

int rate_file_map(const char *path, struct rate_file **ret, struct err *e)
{
	int r = map_or_make(path, ret, e);

	return r < 0 ? err_wrap(e, "%.100s", path) : 0;
}
