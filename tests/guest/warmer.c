/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warmer HOW FILE: what a waiting interpreter could do wrong, as a static
 * program. It plays the part as guest/warm.c has it; HOW says where it errs:
 *
 *	good	nowhere
 *	no	it declines the job
 *	dies	when it has been asked to wait
 *	dumb	it says nothing
 *	junk	it speaks without sense
 *	endless	its first line has no end
 *	late	it dies with the job in its hands
 *	lies	it says that it goes, and something else after that
 *	leaves	it has a child when it dies
 *	other	it asks for code that there is none of
 *	naps	it dies after half a second of waiting
 *	spins	it uses a second of CPU time ahead
 *	compiler it is one
 *	missing	it could not load "a", nor what nobody asked for
 *	ends	it says that it ends with 9, and stays; a child of its has said
 *		that it ends with 5 a moment before
 *	babbles	what it says of its end is none
 *
 * Started with nobody to speak to, or when it goes, it shows FILE, its
 * arguments, its limits and what it has open.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONTROL 1023
#define ENDING 1021

static void say(const char *text)
{
	if (write(CONTROL, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(90);
}

/* A message; its first bytes in text. */
static size_t hear(char *text, size_t size)
{
	size_t len = 0;
	char c;

	while (read(CONTROL, &c, 1) == 1 && c != '\n')
		len = len * 10 + (size_t)(c - '0');
	for (size_t got = 0; got < len;) {
		char chunk[65536];
		size_t want =
		    len - got < sizeof(chunk) ? len - got : sizeof(chunk);
		ssize_t n = read(CONTROL, chunk, want);

		if (n <= 0)
			_exit(91);
		for (size_t i = 0; i < (size_t)n && got + i < size; i++)
			text[got + i] = chunk[i];
		got += (size_t)n;
	}
	return len < size ? len : size;
}

static void show_file(const char *name)
{
	char text[4096];
	int fd = open(name, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	printf("file %.*s\n", n < 0 ? 4 : (int)n, n < 0 ? "none" : text);
	if (fd >= 0)
		(void)close(fd);
}

static void show(const char *name, const char *args, size_t args_len)
{
	struct rlimit pids, bytes;

	show_file(name);
	printf("args");
	for (size_t i = 0; i < args_len; i++)
		printf(" %02x", (unsigned char)args[i]);
	(void)getrlimit(RLIMIT_NPROC, &pids);
	(void)getrlimit(RLIMIT_FSIZE, &bytes);
	printf("\nlimits %ld %ld %ld\n", (long)pids.rlim_cur,
	    (long)pids.rlim_max, (long)bytes.rlim_cur);
	printf("open");
	for (int fd = 0; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf(" %d", fd);
	printf("\nids %d %d %d\n", getpid(), getppid(), getuid());
}

static bool is(const char *how, const char *word)
{
	return strcmp(how, word) == 0;
}

static void leave_child(void)
{
	if (fork() == 0)
		for (;;)
			(void)pause();
	puts("not to be seen");
	(void)fflush(stdout);
	_exit(1);
}

/* What init listens to for an end; with a descriptor beside it. */
static void tell_end(const void *message, size_t len)
{
	static const char name[] = "\0isobox-end";
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0), passed = 0;
	struct iovec part = {(void *)(uintptr_t)message, len};
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(passed))] = {0};
	struct msghdr m = {.msg_name = &a,
	    .msg_namelen =
		offsetof(struct sockaddr_un, sun_path) + sizeof(name) - 1,
	    .msg_iov = &part,
	    .msg_iovlen = 1,
	    .msg_control = room,
	    .msg_controllen = sizeof(room)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	memcpy(a.sun_path, name, sizeof(name) - 1);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(passed));
	memcpy(CMSG_DATA(c), &passed, sizeof(passed));
	/* gVisor may leave a sender asleep that waited for room. */
	if (sendmsg(fd, &m, MSG_DONTWAIT) != (ssize_t)len && errno != EAGAIN)
		perror("sendmsg");
	(void)close(fd);
}

static void end_early(void)
{
	const int first = 5, last = 9;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		tell_end(&first, sizeof(first));
		_exit(0);
	}
	(void)waitpid(pid, NULL, 0);
	(void)usleep(300000);
	puts("still there");
	(void)fflush(stdout);
	tell_end(&last, sizeof(last));
	for (;;)
		(void)pause();
}

static void babble(void)
{
	static const char text[4096];

	for (int i = 0; i < 2000; i++)
		tell_end(text, i % 4 == 0 ? sizeof(text) : (size_t)(i % 4));
}

static void start_waiting(const char *how)
{
	char ignored[16];

	if (is(how, "dumb"))
		for (;;)
			(void)pause();
	if (is(how, "endless"))
		for (;;)
			say("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	say(is(how, "other")	  ? "cobol\n"
	    : is(how, "compiler") ? "compiler\n"
				  : "python\n");
	(void)hear(ignored, sizeof(ignored));
	(void)hear(ignored, sizeof(ignored));
	if (is(how, "dies")) {
		fputs("a reason\n", stderr);
		_exit(1);
	}
	if (is(how, "leaves"))
		leave_child();
	if (is(how, "junk"))
		say("go\nready\n\n");
	if (is(how, "missing"))
		say("missing a\n");
	if (is(how, "spins"))
		while (clock() < CLOCKS_PER_SEC)
			;
	if (is(how, "naps"))
		(void)ualarm(500000, 0);
	say("ready\n");
}

int main(int argc, char **argv)
{
	char args[4096];
	size_t len = 0;

	if (argc < 3)
		return 2;
	if (fcntl(CONTROL, F_GETFD) < 0) {
		puts("plain");
	} else {
		start_waiting(argv[1]);
		len = hear(args, sizeof(args));
		if (is(argv[1], "late"))
			(void)raise(SIGKILL);
		say(is(argv[1], "no") ? "no\n" : "go\n");
		if (is(argv[1], "no"))
			for (;;)
				(void)pause();
		if (is(argv[1], "lies"))
			say("ready\ngo\nno\n");
		(void)close(CONTROL);
		(void)close(ENDING);
		puts("warm");
	}
	show(argv[2], args, len);
	if (is(argv[1], "ends"))
		end_early();
	if (is(argv[1], "babbles"))
		babble();
	return 7;
}
