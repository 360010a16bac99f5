/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. runsc speaks to a sandbox that runs through a socket in its
 * state directory, which is in the sandbox's own tree, and looks for processes by
 * the numbers that they have in its PID namespace. So it has to be in both: a
 * child enters the namespaces, and its child, which is in the PID namespace,
 * becomes the runsc of that tree.
 *
 * A sentry that was broken out of could lay hands on this second runsc. So that
 * has no way to the host either: its one directory is a mount of its own, without
 * the tree above it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "runner/bundle.h"
#include "runner/sandbox.h"

/* Of what runsc says: its first words tell what failed, a trace follows. */
#define LOG_HEAD 2048u

/* How long the kernel may take to end a process that was killed. */
#define REAP_MS 1000u

#define NAMESPACES                                                   \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | \
	    CLONE_NEWIPC)

struct helper {
	pid_t pid;
	int pidfd;
};

/* fork(2), or with `flags` more (sched.h). 0 in the child. */
static pid_t helper_start(uint64_t flags, struct helper *ret)
{
	struct clone_args args = {
	    .flags = flags | CLONE_PIDFD,
	    .pidfd = (uint64_t)(uintptr_t)&ret->pidfd,
	    .exit_signal = SIGCHLD,
	};

	return ret->pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* Its exit status; -ETIMEDOUT after the deadline, when it is killed. */
static int helper_end(struct helper *h, uint64_t deadline_us)
{
	struct pollfd p = {h->pidfd, POLLIN, 0};
	struct timespec wait = clock_left(deadline_us);
	bool late, known;
	int status = 0;

	while (ppoll(&p, 1, &wait, NULL) < 0 && errno == EINTR)
		wait = clock_left(deadline_us);
	late = p.revents == 0;
	if (late) {
		(void)syscall(
		    SYS_pidfd_send_signal, h->pidfd, SIGKILL, NULL, 0);
		(void)poll(&p, 1, (int)REAP_MS);
	}
	known = waitpid(h->pid, &status, WNOHANG) == h->pid;
	(void)close(h->pidfd);
	if (late)
		return -ETIMEDOUT;
	return known && WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* ---- a mount in no tree -------------------------------------------------- */

/* Puts it at the descriptor `slot`, which the parent has, too. */
static _Noreturn void mount_child(const char *path, int slot)
{
	struct mount_attr a = {.attr_set = MOUNT_ATTR_NOSUID |
					   MOUNT_ATTR_NODEV |
					   MOUNT_ATTR_NOEXEC};
	int fd = open_tree(AT_FDCWD, path,
	    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);

	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof a) != 0 ||
	    dup3(fd, slot, O_CLOEXEC) < 0)
		_exit(errno);
	(void)close(fd);
	_exit(0);
}

static int check_same(int a, int b, struct err *e)
{
	struct stat one, other;

	if (fstat(a, &one) != 0 || fstat(b, &other) != 0)
		return err_sys(e, errno, "stat");
	if (one.st_dev != other.st_dev || one.st_ino != other.st_ino)
		return err_set(e, ERR_INTERNAL, ESTALE,
		    "the directory was replaced meanwhile");
	return 0;
}

int sandbox_mount_fd(const char *path, int dir_fd, struct err *e)
{
	cleanup_fd int slot = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct helper h = {-1, -1};
	int rc;

	if (slot < 0)
		return err_sys(e, errno, "/dev/null");
	if (helper_start(CLONE_NEWUSER | CLONE_NEWNS | CLONE_FILES, &h) == 0)
		mount_child(path, slot);
	if (h.pid < 0)
		return err_sys(e, errno, "clone3 into new namespaces");
	rc = helper_end(&h, clock_us() + REAP_MS * 1000);
	if (rc != 0)
		return err_sys(
		    e, rc < 0 ? -rc : rc, "a mount of the directory");
	rc = check_same(slot, dir_fd, e);
	return rc < 0 ? rc : take_fd(&slot);
}

/* ---- runsc --------------------------------------------------------------- */

struct call {
	const struct sandbox *box;
	enum runsc_verb verb;
	const char *platform;
	int image; /* -1: none */
	int log; /* write end */
};

static _Noreturn void call_fail(const struct call *c, const char *what)
{
	(void)dprintf(c->log, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

/* Descriptors 0, 1, 2, and RUNSC_IMAGE_FD if there is one. */
static void setup_call_fds(const struct call *c)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int log = fcntl(c->log, F_DUPFD_CLOEXEC, 10);
	int image = c->image >= 0 ? fcntl(c->image, F_DUPFD_CLOEXEC, 10) : -1;
	unsigned first = RUNSC_IMAGE_FD;

	if (null < 0 || log < 0 || (c->image >= 0 && image < 0) ||
	    dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		call_fail(c, "moving descriptors");
	if (image >= 0 && dup2(image, (int)first++) < 0)
		call_fail(c, "moving descriptors");
	if (close_range(first, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
		call_fail(c, "close_range");
}

static _Noreturn void call_exec(const struct call *c)
{
	static const char *const env[] = {"PATH=/", "HOME=/tmp", NULL};
	const char *argv[RUNSC_ARGV_MAX];
	char flag[64];
	sigset_t none;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		call_fail(c, "prctl(PR_SET_PDEATHSIG)");
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	(void)signal(SIGCHLD, SIG_DFL);
	if (sigemptyset(&none) != 0 ||
	    sigprocmask(SIG_SETMASK, &none, NULL) != 0)
		call_fail(c, "sigprocmask");
	setup_call_fds(c);
	runsc_argv(c->verb, c->platform, false, flag, argv);
	/* execve() takes char *const[] for history; it changes nothing. */
	(void)execve(BUNDLE_RUNSC, (char *const *)(uintptr_t)argv,
	    (char *const *)(uintptr_t)env);
	call_fail(c, "exec of runsc");
}

/* Only a child of who entered a PID namespace is in it. */
static _Noreturn void call_child(const struct call *c)
{
	int status = 0;
	pid_t pid;

	if (setns(c->box->pidfd, NAMESPACES) != 0)
		call_fail(c, "entering the sandbox's namespaces");
	/* Only now: a change of rights clears it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		call_fail(c, "prctl(PR_SET_PDEATHSIG)");
	pid = fork();
	if (pid == 0)
		call_exec(c);
	if (pid < 0)
		call_fail(c, "fork");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
}

/* Reads until the child has ended, its deadline has passed or nothing can come any
 * more. */
static void read_log(int fd, int pidfd, uint64_t deadline_us, struct buf *log)
{
	const size_t begun = log->len;

	for (;;) {
		struct pollfd p[2] = {{fd, POLLIN, 0}, {pidfd, POLLIN, 0}};
		struct timespec wait = clock_left(deadline_us);
		char text[1024];
		ssize_t n;

		if (ppoll(p, 2, &wait, NULL) == 0)
			return;
		n = read(fd, text, sizeof text);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return;
		if (n > 0 && log->len - begun < LOG_HEAD)
			buf_put(log, text, (size_t)n);
		if (n < 0 && p[1].revents != 0)
			return;
	}
}

int sandbox_runsc(const struct sandbox *s, enum runsc_verb verb,
    const char *platform, int image_fd, uint64_t deadline_us, struct buf *log,
    struct err *e)
{
	struct call c = {s, verb, platform, image_fd, -1};
	cleanup_fd int out = -1, in = -1;
	struct helper h = {-1, -1};
	int fds[2];
	int rc;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
		return err_sys(e, errno, "pipe");
	out = fds[0];
	c.log = in = fds[1];
	if (helper_start(0, &h) == 0)
		call_child(&c);
	if (h.pid < 0)
		return err_sys(e, errno, "clone3");
	(void)close(take_fd(&in));
	read_log(out, h.pidfd, deadline_us, log);
	rc = helper_end(&h, deadline_us);
	if (rc == -ETIMEDOUT)
		return err_set(e, ERR_INTERNAL, ETIMEDOUT,
		    "runsc does not answer in time");
	return rc == 0 ? 0
		       : err_set(e, ERR_INTERNAL, EIO,
			     "runsc failed (exit status %d)", rc);
}
