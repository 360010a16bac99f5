/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library for an interpreter that waits: loaded once, from WARM_ENDING_FD, by
 * the code in this folder. Its handler is the last of exit(3) that does anything:
 * those that come later were registered before it, by what the interpreter is linked
 * with. See guest/ending.h for what it says.
 */
#include <elf.h>
#include <link.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

/* What the dynamic linker tells of. */
struct libraries {
	unsigned n; /* those that are seen */
	unsigned long long loaded, unloaded; /* ever */
};

static struct libraries known; /* while nothing of the program has run */

static int say(const void *message, size_t len)
{
	struct sockaddr_un a;
	const socklen_t a_len = ending_address(&a);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ssize_t n;

	if (fd < 0)
		return 0;
	n = sendto(fd, message, len, MSG_DONTWAIT | MSG_NOSIGNAL,
	    (const struct sockaddr *)&a, a_len);
	(void)close(fd);
	return n == (ssize_t)len;
}

static void count(const struct dl_phdr_info *info, struct libraries *l)
{
	l->n++;
	l->loaded = info->dlpi_adds;
	l->unloaded = info->dlpi_subs;
}

static int count_one(struct dl_phdr_info *info, size_t size, void *libraries)
{
	(void)size;
	count(info, libraries);
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
	return usual ? functions != 1 : functions != 0;
}

/* Libraries come in the order of their loading, if none has gone. */
static int look_at_one(struct dl_phdr_info *info, size_t size, void *libraries)
{
	struct libraries *l = libraries;

	(void)size;
	count(info, l);
	if (l->n <= known.n && l->unloaded == known.unloaded)
		return 0;
	return has_destructors(info);
}

/* Those of dlmopen(3) are counted, and not seen. */
static unsigned long long unseen(const struct libraries *l)
{
	return l->loaded - l->unloaded - l->n;
}

/* Whether all that the program may do is done: what its own libraries do at their
 * end is not. With a filter of its own, what comes here could be its death. */
static int is_over(void)
{
	struct libraries now = {0};

	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 0 &&
	       dl_iterate_phdr(look_at_one, &now) == 0 &&
	       unseen(&now) == unseen(&known);
}

static void at_exit(int status, void *unused)
{
	(void)unused;
	/* A child has this handler, too; and what another thread says, init would
	 * not believe. */
	if (syscall(SYS_gettid) != owner || !is_over())
		return;
	/* What exit(3) does after its handlers. */
	(void)fcloseall();
	/* To be taken apart now would only be in init's way; what comes next is the
	 * end of the sandbox. */
	if (say(&status, sizeof(status)))
		(void)poll(NULL, 0, BELIEVED_MS);
}

/* Before modules are loaded ahead, whose handlers so come first. */
__attribute__((constructor)) static void begin(void)
{
	if (on_exit == NULL || fcloseall == NULL)
		return;
	owner = getpid();
	(void)dl_iterate_phdr(count_one, &known);
	for (int i = 0; i < REHEARSALS; i++) {
		(void)say("", 0);
		(void)poll(NULL, 0, 0);
	}
	(void)on_exit(at_exit, NULL);
}

/* Python calls it each time that it loads us: the last time, when all is there that
 * is loaded ahead. That we are no module of its is an error there. */
void *PyInit_ending(void);
void *PyInit_ending(void)
{
	known = (struct libraries){0};
	(void)dl_iterate_phdr(count_one, &known);
	return NULL;
}
