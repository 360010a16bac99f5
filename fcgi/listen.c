/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define BACKLOG 1024 /* the kernel cuts it to somaxconn */

static int fill_address(struct sockaddr_un *a, const char *path, struct err *e)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	if (path[0] == '\0' || strlen(path) >= sizeof(a->sun_path))
		return err_set(e, ERR_INTERNAL, ENAMETOOLONG,
		    "%s: a socket's path has 1 to %zu bytes", path,
		    sizeof(a->sun_path) - 1);
	memcpy(a->sun_path, path, strlen(path) + 1);
	return 0;
}

static int new_socket(struct err *e)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? err_sys(e, errno, "socket") : fd;
}

/* Whether somebody listens at path: 1, 0, or negative when it is no socket. */
static int check_path(const char *path, struct err *e)
{
	struct sockaddr_un a;
	struct stat st;
	cleanup_fd int fd = -1;
	int r = fill_address(&a, path, e);

	if (r < 0)
		return r;
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "%s", path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_INTERNAL, EEXIST,
		    "%s is there and is no socket", path);
	fd = new_socket(e);
	if (fd < 0)
		return fd;
	/* A full backlog (EAGAIN) answers, too. */
	if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 &&
	    errno == ECONNREFUSED)
		return 0;
	return 1;
}

/* Binds under a name of our own, so that no client meets a half-made socket. */
static int bind_listen(
    int fd, const char *name, mode_t mode, struct listener *l, struct err *e)
{
	struct sockaddr_un a;
	struct stat st;
	int r = fill_address(&a, name, e);

	if (r < 0)
		return r;
	if (unlink(name) < 0 && errno != ENOENT)
		return err_sys(e, errno, "%s", name);
	if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return err_sys(e, errno, "bind %s", name);
	if (chmod(name, mode) < 0 || listen(fd, BACKLOG) < 0 ||
	    lstat(name, &st) < 0) {
		r = err_sys(e, errno, "%s", name);
		(void)unlink(name);
		return r;
	}
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	return 0;
}

int listen_at(
    const char *path, mode_t mode, struct listener *ret, struct err *e)
{
	struct listener l = {.fd = -1, .path = path};
	char name[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 32];
	cleanup_fd int fd = -1;
	mode_t old;
	int r = check_path(path, e);

	if (r < 0)
		return r;
	if (r > 0)
		return err_set(e, ERR_INTERNAL, EADDRINUSE,
		    "%s: another process listens there", path);
	(void)snprintf(name, sizeof(name), "%s.%ld", path, (long)getpid());
	fd = new_socket(e);
	if (fd < 0)
		return fd;
	old = umask(0177);
	r = bind_listen(fd, name, mode, &l, e);
	(void)umask(old);
	if (r < 0)
		return r;
	if (rename(name, path) < 0) {
		r = err_sys(e, errno, "%s", path);
		(void)unlink(name);
		return r;
	}
	l.fd = take_fd(&fd);
	*ret = l;
	return 0;
}

static int socket_option(int name, int *ret)
{
	socklen_t len = sizeof(*ret);

	return getsockopt(STDIN_FILENO, SOL_SOCKET, name, ret, &len);
}

bool listen_is_inherited(void)
{
	int listening = 0;

	return socket_option(SO_ACCEPTCONN, &listening) == 0 && listening != 0;
}

int listen_inherit(struct listener *ret, struct err *e)
{
	int domain = -1;

	if (socket_option(SO_DOMAIN, &domain) < 0 || domain != AF_UNIX)
		return err_set(e, ERR_INTERNAL, EAFNOSUPPORT,
		    "descriptor 0 is not a unix socket: any user of this "
		    "host, or of the network, could pose as the web server");
	/* Other processes may accept from it, too: never wait in accept(2). */
	if (fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) < 0 ||
	    fcntl(STDIN_FILENO, F_SETFD, FD_CLOEXEC) < 0)
		return err_sys(e, errno, "descriptor 0");
	*ret = (struct listener){.fd = STDIN_FILENO, .path = NULL};
	return 0;
}

void listen_close(struct listener *l)
{
	struct stat st;

	if (l->fd < 0)
		return;
	(void)close(l->fd);
	l->fd = -1;
	if (l->path != NULL && lstat(l->path, &st) == 0 &&
	    st.st_dev == l->dev && st.st_ino == l->ino)
		(void)unlink(l->path);
}
