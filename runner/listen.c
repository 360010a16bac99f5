/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file.h"

/* More than the web side's threads; the kernel cuts it to somaxconn. */
#define BACKLOG 1024

static int take_lock(const char *path, struct err *e)
{
	char name[PATH_MAX];
	cleanup_fd int fd = -1;
	int n = snprintf(name, sizeof name, "%s.lock", path);

	if (n < 0 || (size_t)n >= sizeof name)
		return err_set(
		    e, ERR_INTERNAL, ENAMETOOLONG, "%s: too long", path);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(e, errno, "%s", name);
	if (file_lock(fd) < 0)
		return err_set(e, ERR_INTERNAL, EBUSY,
		    "another isobox-runner is at %s", path);
	return take_fd(&fd);
}

static int bind_fresh(int fd, const char *path, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	mode_t old;
	int rc;

	if (strlen(path) >= sizeof a.sun_path)
		return err_set(e, ERR_INTERNAL, ENAMETOOLONG,
		    "%s: a socket's path has at most %zu bytes", path,
		    sizeof a.sun_path - 1);
	(void)memcpy(a.sun_path, path, strlen(path) + 1);
	/* The lock is ours, so nobody answers at what is there. */
	if (unlink(path) != 0 && errno != ENOENT)
		return err_sys(e, errno, "%s", path);
	old = umask(0117);
	rc = bind(fd, (const struct sockaddr *)&a, sizeof a);
	(void)umask(old);
	if (rc != 0)
		return err_sys(e, errno, "bind %s", path);
	return 0;
}

int listen_open(const char *path, int *ret_fd, int *ret_lock_fd, struct err *e)
{
	cleanup_fd int lock = -1;
	cleanup_fd int fd = -1;
	int rc;

	lock = take_lock(path, e);
	if (lock < 0)
		return lock;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, errno, "socket");
	if ((rc = bind_fresh(fd, path, e)) < 0)
		return rc;
	if (listen(fd, BACKLOG) != 0)
		return err_sys(e, errno, "listen at %s", path);
	*ret_fd = take_fd(&fd);
	*ret_lock_fd = take_fd(&lock);
	return 0;
}

static int resolve(const char *name, uid_t *ret, struct err *e)
{
	const struct passwd *pw = getpwnam(name);
	char *end = NULL;
	unsigned long uid;

	if (pw != NULL) {
		*ret = pw->pw_uid;
		return 0;
	}
	errno = 0;
	uid = strtoul(name, &end, 10);
	if (name[0] < '0' || name[0] > '9' || *end != '\0' || errno != 0 ||
	    uid >= (uid_t)-1)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "allowed_users: no user \"%s\" on this host", name);
	*ret = (uid_t)uid;
	return 0;
}

int peers_resolve(char *const *names, struct peers *ret, struct err *e)
{
	struct peers p = {0};
	size_t n = 0;

	while (names != NULL && names[n] != NULL)
		n++;
	p.uids = calloc(n + 1, sizeof *p.uids);
	if (p.uids == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	p.uids[p.count++] = geteuid();
	for (size_t i = 0; i < n; i++) {
		int rc = resolve(names[i], &p.uids[p.count++], e);

		if (rc < 0) {
			peers_free(&p);
			return rc;
		}
	}
	*ret = p;
	return 0;
}

void peers_free(struct peers *p)
{
	free(p->uids);
	*p = (struct peers){0};
}

bool peers_allow(const struct peers *p, int fd, uid_t *ret_uid)
{
	struct ucred cred;
	socklen_t len = sizeof cred;

	*ret_uid = (uid_t)-1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
		return false;
	*ret_uid = cred.uid;
	for (size_t i = 0; i < p->count; i++)
		if (p->uids[i] == cred.uid)
			return true;
	return false;
}
