/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_ENDING_H
#define ISOBOX_GUEST_ENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "lib/err.h"

/* The abstract Unix socket at which init hears of an end. A message is the status
 * that was given to exit(3), an int. Returns the length of *ret. */
static inline socklen_t ending_address(struct sockaddr_un *ret)
{
	static const char name[] = "\0isobox-end";

	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	(void)memcpy(ret->sun_path, name, sizeof(name) - 1);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
			   sizeof(name) - 1);
}

/*
 * How a claimed interpreter tells that it ends (guest/warm/ending.c), before
 * gVisor takes its memory apart, which takes milliseconds for which nobody needs
 * to wait. It is the last that it does: its output is flushed, the exit handlers of
 * the program have run. Whoever ends otherwise says nothing, and is waited for.
 *
 * A program can say the same early: then it has ended itself, which it may. Others
 * in the sandbox are not believed: the kernel tells who has sent it.
 */
int ending_open(int *ret_fd, struct err *e);

/* Takes one message, if there is one. Whether process pid says that it ends, with
 * *ret_status as from waitpid(2). */
bool ending_take(int fd, pid_t pid, int *ret_status);

/* A file with the library that tells, read-only; the caller's to close. */
int ending_library(int *ret_fd, struct err *e);

#endif
