/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/version.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

#define ANSWER_MS 2000u
#define ANSWER_MAX 4096u

/* ---- the text ------------------------------------------------------------- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_sign(char c)
{
	return c == '_' || c == '.' || c == '-';
}

/* n digits at s, of which as many are there, or -1. */
static int read_digits(const char *s, size_t n)
{
	int value = 0;

	for (size_t i = 0; i < n; i++) {
		if (!is_digit(s[i]))
			return -1;
		value = value * 10 + (s[i] - '0');
	}
	return value;
}

/* A day at s: YYYYMMDD, or with the same sign twice between its parts. 0: none. */
static uint32_t read_day(const char *s, size_t len)
{
	const size_t sign = len > 4 && is_sign(s[4]) ? 1 : 0;
	const size_t whole = 8 + 2 * sign;
	int year, month, day;

	if (len < whole || (len > whole && is_digit(s[whole])) ||
	    (sign != 0 && s[4] != s[7]))
		return 0;
	year = read_digits(s, 4);
	month = read_digits(s + 4 + sign, 2);
	day = read_digits(s + 6 + 2 * sign, 2);
	if (year < 2000 || month < 1 || month > 12 || day < 1 || day > 31)
		return 0;
	return (uint32_t)(year * 10000 + month * 100 + day);
}

int version_parse(
    const char *name, const char *text, size_t len, uint32_t *ret_day)
{
	const size_t begin = strlen(name);
	const char *end = memchr(text, '\n', len);

	if (end != NULL)
		len = (size_t)(end - text);
	if (len <= begin || memcmp(text, name, begin) != 0 ||
	    text[begin] != ' ')
		return -EINVAL;
	for (size_t i = begin + 1; i < len; i++) {
		uint32_t day;

		if (is_digit(text[i - 1]))
			continue; /* in the middle of a number */
		day = read_day(text + i, len - i);
		if (day != 0) {
			*ret_day = day;
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- the program ---------------------------------------------------------- */

/* A terminal: there each line is written when it is printed. pasta of spring 2025
 * ends without writing what it has printed to a pipe. */
static int open_terminal(int *ret_ours, int *ret_its)
{
	char name[64];
	cleanup_fd int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	int its;

	if (ours < 0 || unlockpt(ours) != 0)
		return -errno;
	errno = ptsname_r(ours, name, sizeof(name));
	if (errno != 0)
		return -errno;
	its = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (its < 0)
		return -errno;
	*ret_ours = take_fd(&ours);
	*ret_its = its;
	return 0;
}

/* Where there are no terminals, a pipe: later ones write to that, too. */
static int open_output(int *ret_ours, int *ret_its)
{
	int fds[2];

	if (open_terminal(ret_ours, ret_its) == 0)
		return 0;
	if (pipe2(fds, O_CLOEXEC) != 0)
		return -errno;
	*ret_ours = fds[0];
	*ret_its = fds[1];
	return 0;
}

static _Noreturn void launch(const char *name, const char *path, int out)
{
	const char *const argv[] = {name, "--version", NULL};
	const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || null < 0 ||
	    dup2(out, 1) < 0 || dup2(null, 0) < 0 || dup2(null, 2) < 0 ||
	    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
		_exit(125);
	(void)execve(path, (char *const *)(uintptr_t)argv,
	    (char *const *)(uintptr_t)env);
	_exit(125);
}

/* Up to the end, or until there is no room or no time. */
static size_t read_answer(int fd, char *room, size_t size)
{
	const uint64_t until = clock_ms() + ANSWER_MS;
	struct pollfd p = {fd, POLLIN, 0};
	size_t len = 0;

	while (len < size) {
		int r = poll(&p, 1, clock_left_ms(until));
		ssize_t n;

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		n = read(fd, room + len, size - len);
		if (n <= 0)
			break; /* of a terminal EIO is its end */
		len += (size_t)n;
	}
	return len;
}

int version_ask(
    const char *name, const char *path, uint32_t *ret_day, struct err *e)
{
	char text[ANSWER_MAX] = "";
	cleanup_fd int out = -1;
	int its = -1, rc;
	size_t len;
	pid_t pid;

	if (access(path, X_OK) != 0)
		return err_sys(e, errno, "%s", path);
	rc = open_output(&out, &its);
	if (rc < 0)
		return err_sys(e, -rc, "asking %s for its version", path);
	pid = fork();
	if (pid == 0)
		launch(name, path, its);
	(void)close(its);
	if (pid < 0)
		return err_sys(e, errno, "fork");
	len = read_answer(out, text, sizeof(text));
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (version_parse(name, text, len, ret_day) < 0)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "%s does not tell of which day it is", path);
	return 0;
}
