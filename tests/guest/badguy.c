/* SPDX-License-Identifier: Apache-2.0 */
/*
 * badguy COMMAND [ARG...]: a program that behaves badly on demand, to be run
 * inside a sandbox. Static, so that it needs nothing of an image. What it has
 * to say are lines "word value"; it fails with status 99 when it cannot even
 * try. `badguy` alone lists the commands. snoop.c is its curious brother.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CANNOT_TRY 99
#define MIB (1024ul * 1024)

static _Noreturn void give_up(const char *what)
{
	(void)fprintf(stderr, "badguy: %s: %s\n", what, strerror(errno));
	_exit(CANNOT_TRY);
}

static unsigned long number(const char *s)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(s, &end, 10);
	if (errno != 0 || end == s || *end != '\0')
		give_up("not a number");
	return n;
}

static void sleep_ms(unsigned long ms)
{
	struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static void say(const char *word, long value)
{
	printf("%s %ld\n", word, value);
	(void)fflush(stdout);
}

static void write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0)
			give_up("write");
		data += n;
		len -= (size_t)n;
	}
}

static int cmd_exit(char **arg)
{
	return (int)number(arg[0]);
}

static int cmd_signal(char **arg)
{
	(void)raise((int)number(arg[0]));
	return CANNOT_TRY; /* it ought to be dead */
}

/* Forks until refused. The children wait for the end of a pipe. */
static int cmd_forkbomb(char **arg)
{
	long forked = 0;
	int fds[2], why;

	(void)arg;
	if (pipe(fds) != 0)
		give_up("pipe");
	for (;;) {
		pid_t pid = fork();
		char c;

		if (pid < 0)
			break;
		if (pid == 0) {
			(void)close(fds[1]);
			_exit(read(fds[0], &c, 1) == 0 ? 0 : 1);
		}
		forked++;
	}
	why = errno;
	say("processes", forked + 1);
	say(strerrorname_np(why), why);
	(void)close(fds[1]);
	while (wait(NULL) > 0)
		;
	return 0;
}

/* Each child forks the next one: nobody but the last is a leaf. */
static int cmd_forkchain(char **arg)
{
	long depth = 1;
	pid_t pid = 0;

	(void)arg;
	while ((pid = fork()) == 0)
		depth++;
	if (pid < 0) {
		say("processes", depth);
		say(strerrorname_np(errno), errno);
		return 0;
	}
	(void)waitpid(pid, NULL, 0);
	return 0;
}

static void *wait_for_mutex(void *mutex)
{
	(void)pthread_mutex_lock(mutex);
	(void)pthread_mutex_unlock(mutex);
	return NULL;
}

static int cmd_threads(char **arg)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static pthread_t threads[4096];
	pthread_attr_t attr;
	size_t n = 0;
	int why = 0;

	(void)arg;
	(void)pthread_mutex_lock(&mutex);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 64u * 1024);
	while (n < sizeof(threads) / sizeof(threads[0]) &&
	       (why = pthread_create(
		    &threads[n], &attr, wait_for_mutex, &mutex)) == 0)
		n++;
	say("threads", (long)n + 1);
	say(why == 0 ? "none" : strerrorname_np(why), why);
	(void)pthread_mutex_unlock(&mutex);
	while (n > 0)
		(void)pthread_join(threads[--n], NULL);
	return 0;
}

/* flood STREAMS BYTES: 1 stdout, 2 stderr, 3 both, BYTES to each. */
static int cmd_flood(char **arg)
{
	static char block[65536];
	unsigned long streams = number(arg[0]);
	unsigned long left = number(arg[1]);

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)('a' + i % 26);
	while (left > 0) {
		size_t n = left < sizeof(block) ? left : sizeof(block);

		if (streams & 1)
			write_all(STDOUT_FILENO, block, n);
		if (streams & 2)
			write_all(STDERR_FILENO, block, n);
		left -= n;
	}
	return 0;
}

/* trickle COUNT MS: a byte to each stream every MS milliseconds. */
static int cmd_trickle(char **arg)
{
	unsigned long count = number(arg[0]), ms = number(arg[1]);

	for (unsigned long i = 0; i < count; i++) {
		sleep_ms(ms);
		write_all(STDOUT_FILENO, "o", 1);
		write_all(STDERR_FILENO, "e", 1);
	}
	return 0;
}

/* fill DIR MIB: one file that grows until refused, or MIB are written. */
static int cmd_fill(char **arg)
{
	static char block[MIB];
	char path[4096];
	unsigned long done = 0, most = number(arg[1]);
	int fd;

	(void)snprintf(path, sizeof(path), "%s/fill", arg[0]);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		give_up(path);
	memset(block, 'x', sizeof(block));
	while (done < most && write(fd, block, sizeof(block)) > 0)
		done++;
	say("mib", (long)done);
	say("errno", done < most ? errno : 0);
	return 0;
}

/* fsize BYTES: a file of that size, to meet RLIMIT_FSIZE. */
static int cmd_fsize(char **arg)
{
	int fd = open("/tmp/big", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		give_up("/tmp/big");
	if (pwrite(fd, "x", 1, (off_t)number(arg[0]) - 1) != 1)
		give_up("pwrite");
	say("written", 1);
	return 0;
}

static int cmd_eat(char **arg)
{
	unsigned long most = number(arg[0]);

	for (unsigned long i = 0; i < most; i++) {
		char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			give_up("mmap");
		memset(p, (int)(i % 251) + 1, MIB);
	}
	say("mib", (long)most);
	return 0;
}

static int cmd_spin(char **arg)
{
	unsigned long ms = number(arg[0]);
	struct timespec begin, now;

	(void)clock_gettime(CLOCK_MONOTONIC, &begin);
	do
		(void)clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begin.tv_sec) * 1000 +
		   (now.tv_nsec - begin.tv_nsec) / 1000000 <
	       (long)ms);
	return 0;
}

/* spinner MS: a child that spins, waited for. */
static int cmd_spinner(char **arg)
{
	pid_t pid = fork();

	if (pid < 0)
		give_up("fork");
	if (pid == 0)
		_exit(cmd_spin(arg));
	(void)waitpid(pid, NULL, 0);
	return 0;
}

static int cmd_sleep(char **arg)
{
	sleep_ms(number(arg[0]));
	return 0;
}

/* Closes every descriptor first. */
static int cmd_closesleep(char **arg)
{
	(void)close_range(0, INT_MAX, 0);
	sleep_ms(number(arg[0]));
	return 7;
}

static int cmd_ignore(char **arg)
{
	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_IGN);
	write_all(STDOUT_FILENO, "ignoring\n", 9);
	sleep_ms(number(arg[0]));
	return 0;
}

/* The grandchild in a session of its own that keeps the pipes. */
static bool daemonize(void)
{
	pid_t pid = fork();

	if (pid < 0)
		give_up("fork");
	if (pid > 0) {
		(void)waitpid(pid, NULL, 0);
		return false;
	}
	if (setsid() < 0)
		_exit(CANNOT_TRY);
	pid = fork();
	if (pid != 0)
		_exit(pid < 0 ? CANNOT_TRY : 0);
	return true;
}

/* daemon MS STATUS: leaves one behind that sleeps. */
static int cmd_daemon(char **arg)
{
	if (daemonize()) {
		sleep_ms(number(arg[0]));
		write_all(STDOUT_FILENO, "daemon\n", 7);
		_exit(0);
	}
	write_all(STDOUT_FILENO, "main\n", 5);
	return (int)number(arg[1]);
}

/* daemonflood STREAMS STATUS: leaves one behind that never stops writing. */
static int cmd_daemonflood(char **arg)
{
	if (daemonize()) {
		char bytes[] = "1000000000000";
		char *endless[] = {arg[0], bytes, NULL};

		(void)cmd_flood(endless);
		_exit(0);
	}
	sleep_ms(100);
	return (int)number(arg[1]);
}

static int cmd_stopgroup(char **arg)
{
	(void)arg;
	write_all(STDOUT_FILENO, "stopping\n", 9);
	(void)kill(0, SIGSTOP);
	write_all(STDOUT_FILENO, "woken\n", 6);
	return 0;
}

/* killall MS: kills all that it may, a daemon among them. */
static int cmd_killall(char **arg)
{
	if (daemonize()) {
		sleep_ms(number(arg[0]));
		_exit(0);
	}
	(void)kill(-1, SIGKILL);
	write_all(STDOUT_FILENO, "alive\n", 6);
	return 5;
}

/* orphans COUNT: processes that end as init's children. */
static int cmd_orphans(char **arg)
{
	unsigned long count = number(arg[0]);

	for (unsigned long i = 0; i < count; i++)
		if (daemonize())
			_exit(1);
	sleep_ms(100);
	say("orphans", (long)count);
	return 0;
}

static int cmd_cat(char **arg)
{
	static char block[65536];
	ssize_t n;

	(void)arg;
	while ((n = read(STDIN_FILENO, block, sizeof(block))) > 0)
		write_all(STDOUT_FILENO, block, (size_t)n);
	return n < 0 ? CANNOT_TRY : 0;
}

/* show FILE: what is in it. */
static int cmd_show(char **arg)
{
	int fd = open(arg[0], O_RDONLY | O_CLOEXEC);

	if (fd < 0 || dup2(fd, STDIN_FILENO) < 0)
		give_up(arg[0]);
	return cmd_cat(NULL);
}

/* Reads one byte of input, closes it, goes on for a while. */
static int cmd_nostdin(char **arg)
{
	char c;

	if (read(STDIN_FILENO, &c, 1) != 1)
		give_up("read");
	(void)close(STDIN_FILENO);
	sleep_ms(number(arg[0]));
	return 6;
}

/* The ways by which scripts open their own standard descriptors. */
static int cmd_reopen(char **arg)
{
	static const char *const out[] = {
	    "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"};
	char line[64] = "";
	int fd = open("/dev/stdin", O_RDONLY | O_CLOEXEC);

	(void)arg;
	if (fd < 0 || read(fd, line, sizeof(line) - 1) < 0)
		give_up("/dev/stdin");
	for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
		fd = open(out[i], O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			give_up(out[i]);
		write_all(fd, line, strlen(line));
	}
	fd = open("/dev/stderr", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		give_up("/dev/stderr");
	write_all(fd, "err\n", 4);
	return 0;
}

static void *spend_time(void *ms)
{
	sleep_ms((unsigned long)(uintptr_t)ms);
	return NULL;
}

/* The main thread ends, the process goes on. */
static int cmd_mainthread(char **arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, spend_time,
		(void *)(uintptr_t)number(arg[0])) != 0)
		give_up("thread");
	pthread_exit(NULL);
}

/* Whether another user namespace gives more processes. */
static int cmd_escape(char **arg)
{
	long pid;

	say("unshare", unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
	say("unshare-all", unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET |
				   CLONE_NEWPID) == 0
			       ? 0
			       : errno);
	pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0L);
	if (pid == 0)
		_exit(0);
	say("clone", pid > 0 ? 0 : errno);
	say("chroot", chroot("/tmp") == 0 ? 0 : errno);
	return cmd_forkbomb(arg);
}

static const struct {
	const char *name;
	int args;
	int (*run)(char **arg);
} commands[] = {
    {"cat", 0, cmd_cat},
    {"closesleep", 1, cmd_closesleep},
    {"daemon", 2, cmd_daemon},
    {"daemonflood", 2, cmd_daemonflood},
    {"eat", 1, cmd_eat},
    {"escape", 0, cmd_escape},
    {"exit", 1, cmd_exit},
    {"fill", 2, cmd_fill},
    {"flood", 2, cmd_flood},
    {"forkbomb", 0, cmd_forkbomb},
    {"forkchain", 0, cmd_forkchain},
    {"fsize", 1, cmd_fsize},
    {"ignore", 1, cmd_ignore},
    {"killall", 1, cmd_killall},
    {"mainthread", 1, cmd_mainthread},
    {"nostdin", 1, cmd_nostdin},
    {"orphans", 1, cmd_orphans},
    {"reopen", 0, cmd_reopen},
    {"show", 1, cmd_show},
    {"signal", 1, cmd_signal},
    {"sleep", 1, cmd_sleep},
    {"spin", 1, cmd_spin},
    {"spinner", 1, cmd_spinner},
    {"stopgroup", 0, cmd_stopgroup},
    {"threads", 0, cmd_threads},
    {"trickle", 2, cmd_trickle},
};

int main(int argc, char **argv)
{
	const size_t n = sizeof(commands) / sizeof(commands[0]);

	for (size_t i = 0; argc > 1 && i < n; i++)
		if (strcmp(argv[1], commands[i].name) == 0 &&
		    argc == commands[i].args + 2)
			return commands[i].run(argv + 2);
	for (size_t i = 0; i < n; i++)
		(void)fprintf(stderr, "badguy %s (%d arguments)\n",
		    commands[i].name, commands[i].args);
	return CANNOT_TRY;
}
