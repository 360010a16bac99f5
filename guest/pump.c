/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/pump.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/cpustat.h"
#include "guest/ending.h"
#include "lib/cleanup.h"

#define LEFTOVERS_WAIT_MS 100
#define LEFTOVERS_TRIES 50

void pump_init(struct pump *p, struct control *control, int signal_fd,
    struct program_pipes *pipes, const struct guest_job *job)
{
	/* One byte more tells the supervisor that there was more. */
	const size_t room = (size_t)job->output_bytes + 1;

	*p = (struct pump){
	    .control = control,
	    .signal_fd = signal_fd,
	    .in_fd = take_fd(&pipes->in[PIPE_WRITE]),
	    .in = job->stdin_data,
	    .end_fd = -1,
	    .stat_fd = -1,
	    .out = {{take_fd(&pipes->out[PIPE_READ]), PROTO_GUEST_STDOUT, room},
		{take_fd(&pipes->err[PIPE_READ]), PROTO_GUEST_STDERR, room}},
	};
	if (p->in.len == 0)
		close_fd(&p->in_fd);
}

static void feed(struct pump *p)
{
	ssize_t n = write(p->in_fd, p->in.data, p->in.len);

	if (n > 0) {
		p->in.data += n;
		p->in.len -= (size_t)n;
	}
	/* EPIPE: the program does not want the rest. */
	if (p->in.len == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_fd(&p->in_fd);
}

/* One read of at most max bytes, forwarded as far as there is room. Returns the
 * bytes read; 0 when there is nothing, or nothing more ever. */
static ssize_t forward(
    struct pump *p, struct pump_stream *s, size_t max, struct err *e)
{
	struct buf *out = &p->control->out;
	size_t begun = proto_begin(out, s->type);
	uint8_t *room = buf_reserve(out, PUMP_CHUNK);
	size_t keep;
	ssize_t n;
	int rc;

	if (room == NULL)
		return err_sys(e, ENOMEM, "cannot forward output");
	n = read(s->fd, room, max < PUMP_CHUNK ? max : PUMP_CHUNK);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_fd(&s->fd);
	keep = n <= 0 ? 0 : (size_t)n < s->room ? (size_t)n : s->room;
	if (keep == 0) {
		buf_clear(out);
		return n < 0 ? 0 : n;
	}
	s->room -= keep;
	out->len += keep;
	proto_end(out, begun);
	rc = control_flush(p->control, e);
	return rc < 0 ? rc : n;
}

struct ended {
	pid_t pid; /* whose end is awaited */
	bool done;
	int status;
	struct rusage usage;
};

/* One signal may stand for many ends: it only wakes us. */
static void take_signal(int signal_fd)
{
	struct signalfd_siginfo info;

	(void)!read(signal_fd, &info, sizeof(info));
}

static void reap(struct ended *x)
{
	struct rusage usage;
	pid_t pid;
	int status;

	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
		if (pid != x->pid)
			continue;
		x->done = true;
		x->status = status;
		x->usage = usage;
	}
}

/* Whether it has ended, without reaping it: to take an interpreter apart takes
 * gVisor 2 ms, for which nobody needs to wait. Reaps the others, if it has not.
 * The system call tells of the CPU time; glibc's function does not. */
static void look(struct ended *x)
{
	siginfo_t info = {0};
	struct rusage usage;

	if (syscall(SYS_waitid, P_PID, x->pid, &info,
		WEXITED | WNOHANG | WNOWAIT, &usage) != 0 ||
	    info.si_pid != x->pid) {
		reap(x);
		return;
	}
	x->done = true;
	x->status = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0)
					       : W_EXITCODE(0, info.si_status);
	x->usage = usage;
}

enum slot {
	SLOT_CONTROL,
	SLOT_SIGNAL,
	SLOT_IN,
	SLOT_OUT,
	SLOT_ERR,
	SLOT_END,
	SLOT_COUNT
};

static int wait_for_work(
    const struct pump *p, struct pollfd f[SLOT_COUNT], struct err *e)
{
	f[SLOT_CONTROL] = (struct pollfd){CONTROL_IN, POLLIN, 0};
	f[SLOT_SIGNAL] = (struct pollfd){p->signal_fd, POLLIN, 0};
	f[SLOT_IN] = (struct pollfd){p->in_fd, POLLOUT, 0};
	f[SLOT_OUT] = (struct pollfd){p->out[0].fd, POLLIN, 0};
	f[SLOT_ERR] = (struct pollfd){p->out[1].fd, POLLIN, 0};
	f[SLOT_END] = (struct pollfd){p->end_fd, POLLIN, 0};
	while (poll(f, SLOT_COUNT, -1) < 0)
		if (errno != EINTR)
			return err_sys(e, errno, "poll");
	return 0;
}

static uint64_t cpu_us(const struct rusage *u)
{
	return (uint64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

int pump_until_exit(struct pump *p, pid_t pid, int *ret_status,
    uint64_t *ret_cpu_us, struct err *e)
{
	struct ended x = {.pid = pid};

	/* The signal of an early end may have been read by somebody else. */
	look(&x);
	while (!x.done) {
		struct pollfd f[SLOT_COUNT];
		ssize_t rc = wait_for_work(p, f, e);

		if (rc == 0 && f[SLOT_CONTROL].revents != 0)
			rc = control_check(e);
		if (rc < 0)
			return (int)rc;
		if (f[SLOT_IN].revents != 0)
			feed(p);
		for (size_t i = 0; i < 2; i++) {
			if (f[SLOT_OUT + i].revents == 0)
				continue;
			rc = forward(p, &p->out[i], PUMP_CHUNK, e);
			if (rc < 0)
				return (int)rc;
		}
		if (f[SLOT_END].revents != 0 &&
		    ending_take(p->end_fd, pid, ret_status)) {
			*ret_cpu_us = cpustat_read(p->stat_fd, 0);
			return 0;
		}
		if (f[SLOT_SIGNAL].revents != 0) {
			take_signal(p->signal_fd);
			look(&x);
		}
	}
	*ret_status = x.status;
	*ret_cpu_us = cpu_us(&x.usage);
	return 0;
}

int pump_drain(struct pump *p, struct err *e)
{
	for (size_t i = 0; i < 2; i++) {
		struct pump_stream *s = &p->out[i];
		int left = 0;

		if (s->fd >= 0 && ioctl(s->fd, FIONREAD, &left) != 0)
			return err_sys(e, errno, "FIONREAD");
		while (left > 0) {
			ssize_t n = forward(p, s, (size_t)left, e);

			if (n < 0)
				return (int)n;
			if (n == 0)
				break;
			left -= (int)n;
		}
	}
	return 0;
}

int pump_end_leftovers(int signal_fd, struct err *e)
{
	struct pollfd f = {signal_fd, POLLIN, 0};
	struct ended nobody = {0};

	for (int i = 0; i < LEFTOVERS_TRIES; i++) {
		take_signal(signal_fd);
		reap(&nobody);
		if (kill(-1, SIGKILL) != 0 && errno == ESRCH)
			return 0;
		(void)poll(&f, 1, LEFTOVERS_WAIT_MS);
	}
	return err_set(e, ERR_INTERNAL, ETIMEDOUT,
	    "what is still running cannot be killed");
}
