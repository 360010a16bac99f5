/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library for an interpreter that waits: loaded once, from WARM_ENDING_FD, by
 * the code in this folder. Its handler is the last of exit(3) that does anything,
 * since those that come later were registered before it, by the interpreter's own
 * libraries. See guest/ending.h for what it says.
 */
#include <elf.h>
#include <link.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest/ending.h"

/* systrap rewrites a place that makes a system call when it was come by twice. */
#define REHEARSALS 3

/* By then init has believed it, or never will. */
#define BELIEVED_MS 1000

/* Other C libraries have none of these. */
extern int on_exit(void (*)(int, void *), void *) __attribute__((weak));
extern int fcloseall(void) __attribute__((weak));

static pid_t owner;
static int known_libraries;
static unsigned long long unloaded; /* of them, so far */

static void say(const void *message, size_t len)
{
	static const char address[] = ENDING_ADDRESS;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	(void)memcpy(a.sun_path, address, sizeof(address) - 1);
	(void)sendto(fd, message, len, MSG_DONTWAIT | MSG_NOSIGNAL,
	    (const struct sockaddr *)&a,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
			sizeof(address) - 1));
	(void)close(fd);
}

static int count(struct dl_phdr_info *info, size_t size, void *n)
{
	(void)size;
	unloaded = info->dlpi_subs;
	++*(int *)n;
	return 0;
}

/* Whether a library has functions that run when it is unloaded. Each that was
 * linked in the usual way has one that does nothing, and DT_FINI. */
static int has_destructors(const struct dl_phdr_info *info)
{
	const ElfW(Dyn) *d = NULL;
	size_t functions = 0, usual = 0;

	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const ElfW(Dyn) *)(info->dlpi_addr +
						info->dlpi_phdr[i].p_vaddr);
	for (; d != NULL && d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_FINI_ARRAYSZ)
			functions = d->d_un.d_val / sizeof(void (*)(void));
		if (d->d_tag == DT_FINI)
			usual = 1;
	}
	return functions > usual;
}

/* Libraries come in the order of their loading, if none has gone. */
static int look(struct dl_phdr_info *info, size_t size, void *n)
{
	(void)size;
	if (++*(int *)n <= known_libraries && info->dlpi_subs == unloaded)
		return 0;
	return has_destructors(info);
}

static void at_exit(int status, void *unused)
{
	int n = 0;

	(void)unused;
	/* A child has this handler, too. What the program's own libraries do at
	 * their end is waited for. */
	if (getpid() != owner || dl_iterate_phdr(look, &n) != 0)
		return;
	/* What exit(3) does after its handlers. */
	(void)fcloseall();
	say(&status, sizeof(status));
	/* To be taken apart now would only be in init's way; what comes next is the
	 * end of the sandbox. */
	(void)poll(NULL, 0, BELIEVED_MS);
}

__attribute__((constructor)) static void begin(void)
{
	if (on_exit == NULL || fcloseall == NULL)
		return;
	owner = getpid();
	(void)dl_iterate_phdr(count, &known_libraries);
	for (int i = 0; i < REHEARSALS; i++) {
		say("", 0);
		(void)poll(NULL, 0, 0);
	}
	(void)on_exit(at_exit, NULL);
}
