/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/slirp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/clock.h"
#include "runner/egress/net.h"

#define READY_FD 3
#define TEXT(x) TEXT_(x)
#define TEXT_(x) #x

/* After exec: nothing of ours is open but a null device, its log and READY_FD. */
static int setup_fds(int ready, int log)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int high_ready = fcntl(ready, F_DUPFD_CLOEXEC, 10);
	int high_log = fcntl(log, F_DUPFD_CLOEXEC, 10);

	if (null < 0 || high_ready < 0 || high_log < 0 || dup2(null, 0) < 0 ||
	    dup2(null, 1) < 0 || dup2(high_log, 2) < 0 ||
	    dup2(high_ready, READY_FD) < 0)
		return -errno;
	return close_range(READY_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC) == 0
		   ? 0
		   : -errno;
}

static _Noreturn void launch(const char *path, int go, int ready, int log)
{
	/* /proc/1: the router, in whose PID namespace this is. */
	const char *const argv[] = {"slirp4netns", "--configure",
	    "--mtu=" TEXT(NET_MTU), "--cidr=" NET_TAP_CIDR,
	    "--disable-host-loopback", "--disable-dns", "--enable-sandbox",
	    "--enable-seccomp", "--ready-fd=" TEXT(READY_FD),
	    "--netns-type=path", "/proc/1/ns/net", NET_TAPDEV, NULL};
	const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
	char byte;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || read(go, &byte, 1) != 1)
		_exit(125);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	if (setup_fds(ready, log) == 0)
		(void)execve(path, (char *const *)(uintptr_t)argv,
		    (char *const *)(uintptr_t)env);
	(void)dprintf(log, "%s: %s\n", path, strerror(errno));
	_exit(125);
}

static int make_pipes(int go[2], int ready[2], int log[2], struct err *e)
{
	/* The log does not block: who does not read it holds nobody up. */
	if (pipe2(go, O_CLOEXEC) != 0 || pipe2(ready, O_CLOEXEC) != 0 ||
	    pipe2(log, O_CLOEXEC | O_NONBLOCK) != 0)
		return err_sys(e, errno, "pipe");
	return 0;
}

int slirp_fork(struct slirp *s, const char *path, struct err *e)
{
	int go[2], ready[2], log[2], pidfd = -1;
	struct clone_args args = {
	    .flags = CLONE_PIDFD,
	    .pidfd = (uint64_t)(uintptr_t)&pidfd,
	    .exit_signal = SIGCHLD,
	};
	int rc = make_pipes(go, ready, log, e);
	pid_t pid;

	if (rc < 0)
		return rc; /* what is open ends with the router */
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		return err_sys(e, errno, "clone3 of slirp4netns");
	if (pid == 0) {
		(void)close(go[1]);
		launch(path, go[0], ready[1], log[1]);
	}
	(void)close(go[0]);
	(void)close(ready[1]);
	(void)close(log[1]);
	*s = (struct slirp){.pid = pid,
	    .pidfd = pidfd,
	    .go = go[1],
	    .ready = ready[0],
	    .log = log[0]};
	return 0;
}

int slirp_go(struct slirp *s, struct err *e)
{
	ssize_t n = write(s->go, "1", 1);

	(void)close(s->go);
	s->go = -1;
	return n == 1 ? 0 : slirp_ended(s, e);
}

/* Its last line. */
int slirp_ended(const struct slirp *s, struct err *e)
{
	char text[4096];
	ssize_t n = read(s->log, text, sizeof(text) - 1);
	char *line;

	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	if (n <= 0)
		return err_set(e, ERR_INTERNAL, ESRCH, "slirp4netns ended");
	text[n] = '\0';
	line = strrchr(text, '\n');
	return err_set(e, ERR_INTERNAL, ESRCH, "slirp4netns ended: %s",
	    line != NULL ? line + 1 : text);
}

int slirp_await(struct slirp *s, uint64_t until_ms, struct err *e)
{
	struct pollfd p = {s->ready, POLLIN, 0};
	char byte;
	int r;

	do
		r = poll(&p, 1, clock_left_ms(until_ms));
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return err_set(e, ERR_INTERNAL, ETIMEDOUT,
		    "slirp4netns is not ready in time");
	if (r < 0 || read(s->ready, &byte, 1) != 1)
		return slirp_ended(s, e);
	(void)close(s->ready);
	s->ready = -1;
	return 0;
}
