/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/ending.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"

/* Made by the Makefile of guest/warm/ending.c. */
__asm__(".section .rodata\nending_so: .incbin \"ending.so\"\n"
	".balign 8\nending_so_size: .8byte ending_so_size - ending_so\n"
	".previous\n");
extern const char ending_so[];
extern const uint64_t ending_so_size; /* a few zero bytes included */

int ending_open(int *ret_fd, struct err *e)
{
	struct sockaddr_un a;
	const socklen_t len = ending_address(&a);
	const int on = 1;
	cleanup_fd int fd =
	    socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
	    bind(fd, (const struct sockaddr *)&a, len) != 0)
		return err_sys(e, errno, "cannot listen for an end");
	*ret_fd = take_fd(&fd);
	return 0;
}

/* The sender, or 0. Descriptors that came along are closed. */
static pid_t sender(struct msghdr *m)
{
	pid_t pid = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL;
	     c = CMSG_NXTHDR(m, c)) {
		const uint8_t *data = CMSG_DATA(c);
		struct ucred who;
		int fd;

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS &&
		    c->cmsg_len == CMSG_LEN(sizeof(who))) {
			(void)memcpy(&who, data, sizeof(who));
			pid = who.pid;
		}
		for (size_t at = 0; c->cmsg_type == SCM_RIGHTS &&
				    CMSG_LEN(at + sizeof(fd)) <= c->cmsg_len;
		     at += sizeof(fd)) {
			(void)memcpy(&fd, data + at, sizeof(fd));
			(void)close(fd);
		}
	}
	return pid;
}

bool ending_take(int fd, pid_t pid, int *ret_status)
{
	_Alignas(struct cmsghdr) uint8_t room[CMSG_SPACE(sizeof(struct ucred))];
	int64_t said = 0; /* a longer message is none */
	struct iovec part = {&said, sizeof(said)};
	struct msghdr m = {.msg_iov = &part,
	    .msg_iovlen = 1,
	    .msg_control = room,
	    .msg_controllen = sizeof(room)};
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	int code;

	if (n < 0 || sender(&m) != pid || n != sizeof(code))
		return false;
	(void)memcpy(&code, &said, sizeof(code));
	*ret_status = W_EXITCODE(code & 0xff, 0);
	return true;
}

int ending_library(int *ret_fd, struct err *e)
{
	cleanup_fd int fd = memfd_create("ending", MFD_CLOEXEC);
	char path[40];
	int readable;

	if (fd < 0 ||
	    write(fd, ending_so, ending_so_size) != (ssize_t)ending_so_size)
		return err_sys(e, errno, "memfd_create");
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	readable = open(path, O_RDONLY | O_CLOEXEC);
	if (readable < 0)
		return err_sys(e, errno, "%s", path);
	*ret_fd = readable;
	return 0;
}
