/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. A process beside the supervisor has runsc pause the sandbox
 * and save it into a new folder, hashes and syncs what is there, writes the stamp,
 * and gives the folder its name. The sandbox is paused and not ended, so that a
 * failure (gVisor cannot save an open file that was deleted from a workspace)
 * leaves a kernel that goes on; and it is paused and not running, so that nothing
 * happens after the moment that was saved: no line in a file twice. Once it stands,
 * the supervisor is asked whether it may be saved as it is.
 *
 * The process has deadlines on all that it waits for but the disk, which may hold it
 * for as long as it wants: then it is killed, and another one has the sandbox go on.
 * Both die with their parent.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "runner/checkpoint.h"
#include "runner/checkpoint_image.h"

/* Beyond the order's deadline, with the time to end. */
#define END_US (SAVE_PAUSE_US + SAVE_RESUME_US + 1000000u)
#define REAP_MS 1000u

/* All descriptors but these and the standard ones are the supervisor's. */
static void close_others(const int *keep, size_t n)
{
	int from = 3;

	for (;;) {
		int next = INT_MAX;

		for (size_t i = 0; i < n; i++)
			if (keep[i] >= from && keep[i] < next)
				next = keep[i];
		if (next > from)
			(void)close_range((unsigned)from,
			    next == INT_MAX ? ~0u : (unsigned)next - 1, 0);
		if (next == INT_MAX)
			return;
		from = next + 1;
	}
}

typedef void save_fn(const struct save_call *c);

static _Noreturn void child_main(const struct checkpoint_save *x, save_fn *fn,
    uint64_t deadline_us, int parent_fd)
{
	const struct checkpoint_order *o = &x->order;
	const struct save_call call = {o, x->state, parent_fd, deadline_us};
	const int keep[] = {parent_fd, o->cp->fd, o->cp->root->trash_fd,
	    o->box->pidfd, o->copy_from, o->copy_to};

	close_others(keep, sizeof keep / sizeof keep[0]);
	fn(&call);
	_exit(1);
}

/* Forks one that does it; on failure x is as it was. */
static int start_child(struct checkpoint_save *x, save_fn *fn,
    uint64_t deadline_us, uint64_t end_us, struct err *e)
{
	const pid_t parent = getpid();
	struct checkpoint_save s = *x;
	cleanup_fd int ours = -1, theirs = -1;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		return err_sys(e, errno, "socketpair");
	ours = fds[0];
	theirs = fds[1];
	s.pid = fork();
	if (s.pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
		    getppid() != parent)
			_exit(1);
		child_main(&s, fn, deadline_us, theirs);
	}
	if (s.pid < 0)
		return err_sys(e, errno, "fork");
	s.pidfd = (int)syscall(SYS_pidfd_open, s.pid, 0);
	if (s.pidfd < 0 || fcntl(ours, F_SETFL, O_NONBLOCK) != 0) {
		int code = errno;

		(void)kill(s.pid, SIGKILL);
		(void)waitpid(s.pid, NULL, 0);
		if (s.pidfd >= 0)
			(void)close(s.pidfd);
		return err_sys(e, code, "watching the save");
	}
	s.fd = take_fd(&ours);
	s.deadline_us = end_us;
	*x = s;
	return 0;
}

/* Of the process; one that the disk holds ends when that lets it go. Who undoes has
 * its time to remove what there is. */
static void reap(struct checkpoint_save *s, unsigned wait_ms)
{
	const bool leave = s->undoing && wait_ms > 0;
	struct pollfd p = {s->pidfd, POLLIN, 0};

	if (s->pid <= 0)
		return;
	if (poll(&p, 1, leave ? 0 : (int)wait_ms) <= 0 && !leave) {
		(void)kill(s->pid, SIGKILL);
		(void)poll(&p, 1, (int)REAP_MS);
	}
	(void)waitpid(s->pid, NULL, WNOHANG);
	(void)close(s->pidfd);
	(void)close(s->fd);
	s->pid = -1;
	s->pidfd = s->fd = -1;
}

static void forget(struct checkpoint_save *s)
{
	if (s->state != NULL)
		(void)munmap(s->state, sizeof *s->state);
	*s = (struct checkpoint_save)CHECKPOINT_SAVE_NONE;
}

int checkpoint_save_begin(const struct checkpoint_order *o,
    struct checkpoint_save *ret, struct err *e)
{
	const uint64_t deadline = clock_us() + (uint64_t)o->timeout_ms * 1000;
	struct checkpoint_save s = CHECKPOINT_SAVE_NONE;
	int rc;

	s.order = *o;
	s.state = mmap(NULL, sizeof *s.state, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s.state == MAP_FAILED)
		return err_sys(e, errno, "mmap");
	rc = start_child(
	    &s, checkpoint_saver_main, deadline, deadline + END_US, e);
	if (rc < 0)
		forget(&s);
	else
		*ret = s;
	return rc;
}

void checkpoint_save_cancel(struct checkpoint_save *s)
{
	reap(s, 0);
	forget(s);
}

/* It said nothing and is dead, or will be as soon as the disk lets it. */
static int broke_off(struct checkpoint_save *s, struct err *e)
{
	const uint64_t deadline = clock_us() + SAVE_RESUME_US;

	if (!s->undoing) {
		s->undoing = true;
		if (start_child(s, checkpoint_undoer_main, deadline,
			deadline + REAP_MS * 1000, e) == 0)
			return -EINPROGRESS;
	}
	forget(s);
	return err_set(
	    e, ERR_INTERNAL, ETIMEDOUT, "saving the kernel broke off");
}

void checkpoint_save_answer(
    const struct checkpoint_save *s, const struct err *against)
{
	const struct err none = {0};

	/* One that is gone, or never reads it, has a deadline. */
	(void)!send(s->fd, against != NULL ? against : &none,
	    sizeof(struct err), MSG_NOSIGNAL);
}

int checkpoint_save_end(
    struct checkpoint_save *s, struct checkpoint_saved *ret, struct err *e)
{
	struct save_message m;
	struct pollfd p = {s->fd, POLLIN, 0};
	ssize_t n;

	(void)poll(&p, 1, 0);
	n = recv(s->fd, &m, sizeof m, 0);
	if (n == (ssize_t)sizeof m && m.stands)
		return -EAGAIN;
	reap(s, n == (ssize_t)sizeof m ? REAP_MS : 0);
	if (n != (ssize_t)sizeof m)
		return broke_off(s, e);
	forget(s);
	if (m.err.code != 0) {
		*e = m.err;
		return -m.err.code;
	}
	*ret = m.saved;
	return 0;
}
