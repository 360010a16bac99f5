/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. Here init lives long: it starts the interpreter, its
 * code as its standard input, and from then on one loop waits for the
 * supervisor's frames, the kernel's (klink.c), what the program writes, and the
 * end of processes.
 *
 * Nothing in the loop may wait for somebody who need not come. Frames for the
 * supervisor are written as far as its pipe takes them, and nothing more is read
 * from the program meanwhile; but its own frames are read, so an interrupt
 * arrives whatever the program does. Deadlines are the supervisor's.
 *
 * Output belongs to a step. What comes between two is kept for the next one, as
 * far as that could be asked to show it; the rest is dropped, so that threads and
 * children in the background go on.
 *
 * Descriptor 0 of the program is a file of init's that both have open as one:
 * init writes a step's input to it and puts its offset to the begin, whatever
 * was read by whom.
 */
#include "guest/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/child.h"
#include "guest/cpustat.h"
#include "guest/kernel_code.h"
#include "guest/klink.h"
#include "guest/strings.h"
#include "lib/cleanup.h"
#include "lib/kproto.h"

#define CHUNK (64u * 1024)
#define EXIT_SIGNAL 128u

#define REPEATS 8
#define REPEAT_MS 200

/* What an interpreter that does not get ready may put into the log. */
#define LOG_MAX 4096u

/* One byte more than a step may show tells that there was more. */
#define HELD_MAX (LIMIT_OUTPUT_MAX + 1)

struct stream {
	int fd; /* -1 when every writer has closed it */
	enum proto_type type;
	size_t room; /* what this step may still send */
	struct buf held; /* written between steps */
};

struct kernel {
	struct control *control;
	int signal_fd;
	struct kernel_code code;
	int data_fd; /* to write the program's input to */
	int in_fd; /* its descriptor 0, the same file */
	bool had_input;
	struct stream out[2];
	struct klink link;
	pid_t pid;
	int stat_fd; /* of its CPU time */
	bool ready; /* it has been once */
	size_t logged;
	uint64_t cpu_us; /* at the end of the last step */
	bool interrupt; /* as soon as the step has started */
	unsigned repeat; /* how many more times, if it goes on */
	bool ended;
	struct guest_exit exit;
};

static int set_input(struct kernel *k, const struct blob *data, struct err *e)
{
	size_t done = 0;

	if (data->len == 0 && !k->had_input)
		return 0;
	k->had_input = data->len > 0;
	if (ftruncate(k->data_fd, 0) != 0)
		return err_sys(e, errno, "cannot empty the input");
	while (done < data->len) {
		ssize_t n = pwrite(k->data_fd, data->data + done,
		    data->len - done, (off_t)done);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			return err_sys(e, n == 0 ? ENOSPC : errno,
			    "cannot write the input");
	}
	if (lseek(k->in_fd, 0, SEEK_SET) != 0)
		return err_sys(e, errno, "cannot rewind the input");
	return 0;
}

/* Whatever it has become: its end is seen by SIGCHLD. */
static void condemn(struct kernel *k, const struct err *e)
{
	(void)dprintf(STDERR_FILENO, "isobox-init: %s\n", e->msg);
	(void)kill(k->pid, SIGKILL);
	klink_done(&k->link);
}

static void log_output(struct kernel *k, const uint8_t *data, size_t len)
{
	size_t room = LOG_MAX - k->logged;

	if (len > room)
		len = room;
	k->logged += len;
	(void)!write(STDERR_FILENO, data, len);
}

/* Output of the program, where it belongs at this time. */
static void put_output(
    struct kernel *k, struct stream *s, const uint8_t *data, size_t len)
{
	size_t room = HELD_MAX - s->held.len;

	if (k->link.stepping) {
		len = len < s->room ? len : s->room;
		s->room -= len;
		if (len > 0)
			proto_put_frame(&k->control->out, s->type, data, len);
	} else if (k->ready) {
		buf_put(&s->held, data, len < room ? len : room);
	} else {
		log_output(k, data, len);
	}
}

/* One read of at most max bytes. Returns how many there were; 0 also when there
 * will be no more. */
static size_t read_output(struct kernel *k, struct stream *s, size_t max)
{
	uint8_t data[CHUNK];
	ssize_t n = read(s->fd, data, max < CHUNK ? max : CHUNK);

	if (n > 0) {
		put_output(k, s, data, (size_t)n);
		return (size_t)n;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		(void)close(s->fd);
		s->fd = -1;
	}
	return 0;
}

/* What lies in the pipes now, and no more. Mostly nothing does, and to ask for
 * both at once takes half as long. */
static int drain(struct kernel *k, struct err *e)
{
	struct pollfd f[2] = {
	    {k->out[0].fd, POLLIN, 0}, {k->out[1].fd, POLLIN, 0}};

	if (poll(f, 2, 0) < 0)
		return err_sys(e, errno, "poll");
	for (size_t i = 0; i < 2; i++) {
		struct stream *s = &k->out[i];
		int left = 0;

		if ((f[i].revents & POLLIN) != 0 &&
		    ioctl(s->fd, FIONREAD, &left) != 0)
			return err_sys(e, errno, "FIONREAD");
		while (left > 0) {
			size_t n = read_output(k, s, (size_t)left);

			if (n == 0)
				break;
			left -= (int)n;
		}
	}
	return 0;
}

static void send_to_kernel(struct kernel *k)
{
	struct err why;

	if (k->link.fd >= 0 && klink_write(&k->link, &why) < 0)
		condemn(k, &why);
}

static int begin_step(
    struct kernel *k, const struct guest_step *step, struct err *e)
{
	int rc = set_input(k, &step->stdin_data, e);

	if (rc < 0)
		return rc;
	klink_step(&k->link, step);
	send_to_kernel(k);
	for (size_t i = 0; i < 2; i++) {
		struct stream *s = &k->out[i];

		s->room = (size_t)step->output_bytes + 1;
		put_output(k, s, s->held.data, s->held.len);
		buf_clear(&s->held);
	}
	return 0;
}

static int take_step(
    struct kernel *k, const struct blob *payload, struct err *e)
{
	struct guest_step step;
	int rc;

	if (!k->ready || k->link.stepping || k->link.expects_ready)
		return err_set(
		    e, ERR_INTERNAL, EPROTO, "a step before the kernel waits");
	rc = guest_step_decode(payload->data, payload->len, &step, e);
	if (rc < 0)
		return rc;
	rc = begin_step(k, &step, e);
	guest_step_done(&step);
	return rc;
}

/* The group has the step's child processes in it, as a terminal's foreground
 * has. A kernel that was stopped gets to see the signal. */
static void send_interrupt(struct kernel *k)
{
	k->link.interrupts++;
	(void)kill(-k->pid, SIGINT);
	(void)kill(-k->pid, SIGCONT);
}

/* node has moments in which a signal is lost, so it gets some more. */
static void interrupt(struct kernel *k)
{
	if (k->ready && k->link.expects_ready) {
		send_interrupt(k); /* of what holds it up after a restore */
		return;
	}
	k->interrupt = k->link.stepping && !k->link.started;
	if (!k->link.stepping || k->interrupt)
		return;
	k->repeat = k->link.tells_start ? REPEATS : 0;
	send_interrupt(k);
}

/* The control pipes are others than before, and must be init's as those were
 * before anything is said on them. */
static int take_restored(struct kernel *k, struct err *e)
{
	int rc = boot_check_descriptors(e);

	if (rc < 0)
		return rc;
	if (!k->ready || k->link.stepping || k->link.expects_ready)
		return err_set(e, ERR_INTERNAL, EPROTO,
		    "a restore before the kernel waits");
	rc = set_input(k, &k->code.reseed, e);
	if (rc < 0)
		return rc;
	klink_restored(&k->link);
	proto_put_frame(&k->control->out, PROTO_GUEST_READY, NULL, 0);
	return 0;
}

static int take_order(struct kernel *k, enum proto_type type,
    const struct blob *payload, struct err *e)
{
	if (type == PROTO_GUEST_STEP)
		return take_step(k, payload, e);
	if (type == PROTO_GUEST_INTERRUPT && payload->len == 0) {
		interrupt(k);
		return 0;
	}
	if (type == PROTO_GUEST_RESTORED && payload->len == 0)
		return take_restored(k, e);
	return err_set(e, ERR_INTERNAL, EPROTO,
	    "a frame of type %u is none for a kernel", (unsigned)type);
}

static int take_orders(struct kernel *k, struct err *e)
{
	int rc = control_read(k->control, e);

	while (rc >= 0) {
		enum proto_type type;
		struct blob payload;

		rc = control_next(k->control, &type, &payload, e);
		if (rc <= 0)
			break;
		rc = take_order(k, type, &payload, e);
	}
	return rc;
}

static int finish_step(
    struct kernel *k, struct guest_step_result *x, struct err *e)
{
	const uint64_t before_us = k->cpu_us;
	size_t begun;
	int rc;

	/* Still part of it: written before its end was told. */
	k->link.stepping = true;
	rc = drain(k, e);
	k->link.stepping = false;
	k->repeat = 0;
	if (rc < 0)
		return rc;
	k->cpu_us = cpustat_read(k->stat_fd, before_us);
	x->cpu_us = k->cpu_us > before_us ? k->cpu_us - before_us : 0;
	begun = proto_begin(&k->control->out, PROTO_GUEST_STEP_DONE);
	guest_step_result_encode(x, &k->control->out);
	proto_end(&k->control->out, begun);
	return 0;
}

/* What it took to get there is no step's. */
static void became_ready(struct kernel *k)
{
	k->ready = true;
	k->cpu_us = cpustat_read(k->stat_fd, k->cpu_us);
}

/* Frames of the kernel, until the supervisor has something to take. */
static int take_said(struct kernel *k, struct err *e)
{
	while (k->link.fd >= 0 && k->control->out.len == 0) {
		struct guest_step_result x;
		enum klink_event event;
		struct err why;
		int rc = 0;

		if (klink_next(&k->link, &k->control->out, &event, &x, &why) <
		    0)
			condemn(k, &why);
		else if (event == KLINK_DONE)
			rc = finish_step(k, &x, e);
		else if (event == KLINK_READY)
			became_ready(k);
		else if (event == KLINK_STARTED && k->interrupt)
			interrupt(k);
		else if (event == KLINK_NONE)
			return 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* As long as the supervisor takes it: what was read from the kernel is not
 * polled for again. */
static int pass_on(struct kernel *k, struct err *e)
{
	int rc = control_push(k->control, e);
	bool some = true;

	while (rc == 0 && some && k->control->out.len == 0) {
		rc = take_said(k, e);
		some = k->control->out.len > 0;
		if (rc == 0)
			rc = control_push(k->control, e);
	}
	return rc;
}

static void talk(struct kernel *k, const struct pollfd *f)
{
	struct err why;

	if ((f->revents & POLLOUT) != 0)
		send_to_kernel(k);
	if (k->link.fd >= 0 &&
	    (f->revents & (POLLIN | POLLHUP | POLLERR)) != 0 &&
	    klink_read(&k->link, &why) < 0)
		condemn(k, &why);
}

static void reap(struct kernel *k)
{
	struct signalfd_siginfo info;
	pid_t pid;
	int status;

	/* One signal may stand for many ends: it only wakes us. */
	(void)!read(k->signal_fd, &info, sizeof(info));
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != k->pid)
			continue;
		k->ended = true;
		if (WIFSIGNALED(status)) {
			k->exit.signal = (uint32_t)WTERMSIG(status);
			k->exit.exit_code = EXIT_SIGNAL + k->exit.signal;
		} else {
			k->exit.exit_code = (uint32_t)WEXITSTATUS(status);
		}
	}
}

enum slot {
	SLOT_CONTROL,
	SLOT_REPLY,
	SLOT_SIGNAL,
	SLOT_LINK,
	SLOT_OUT,
	SLOT_ERR,
	SLOT_COUNT
};

static int poll_slots(struct kernel *k, struct pollfd *f, struct err *e)
{
	int n;

	do
		n = poll(f, SLOT_COUNT, k->repeat > 0 ? REPEAT_MS : -1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(e, errno, "poll");
	if (n == 0) {
		k->repeat--;
		send_interrupt(k);
	}
	return 0;
}

static int wait_for_work(
    struct kernel *k, struct pollfd f[SLOT_COUNT], struct err *e)
{
	const bool full = k->control->out.len > 0;
	const short in = full ? 0 : POLLIN;
	const short out = k->link.out.len > 0 ? POLLOUT : 0;

	f[SLOT_CONTROL] = (struct pollfd){CONTROL_IN, POLLIN, 0};
	f[SLOT_REPLY] = (struct pollfd){full ? CONTROL_OUT : -1, POLLOUT, 0};
	f[SLOT_SIGNAL] = (struct pollfd){k->signal_fd, POLLIN, 0};
	/* A descriptor without events would still report a hang-up, again and
	 * again. */
	f[SLOT_LINK] = (struct pollfd){
	    in != 0 || out != 0 ? k->link.fd : -1, (short)(in | out), 0};
	f[SLOT_OUT] = (struct pollfd){full ? -1 : k->out[0].fd, POLLIN, 0};
	f[SLOT_ERR] = (struct pollfd){full ? -1 : k->out[1].fd, POLLIN, 0};
	return poll_slots(k, f, e);
}

static int work(struct kernel *k, struct err *e)
{
	struct pollfd f[SLOT_COUNT];
	int rc = wait_for_work(k, f, e);

	if (rc == 0 && f[SLOT_CONTROL].revents != 0)
		rc = take_orders(k, e);
	if (rc < 0)
		return rc;
	if (f[SLOT_SIGNAL].revents != 0)
		reap(k);
	for (size_t i = 0; i < 2; i++)
		if (f[SLOT_OUT + i].revents != 0)
			(void)read_output(k, &k->out[i], CHUNK);
	if (f[SLOT_LINK].revents != 0)
		talk(k, &f[SLOT_LINK]);
	return pass_on(k, e);
}

static int send_exit(struct kernel *k, struct err *e)
{
	size_t begun;
	int rc = drain(k, e);

	if (rc < 0)
		return rc;
	k->exit.cpu_us = 0;
	begun = proto_begin(&k->control->out, PROTO_GUEST_EXIT);
	guest_exit_encode(&k->exit, &k->control->out);
	proto_end(&k->control->out, begun);
	return control_flush(k->control, e);
}

/* Not a pipe, so that what one step did not read is not there in the next. The
 * program's descriptor can only read, though anybody may open a memfd anew. */
static int make_input(struct kernel *k, struct err *e)
{
	char path[40];

	k->data_fd = memfd_create("stdin", MFD_CLOEXEC);
	if (k->data_fd < 0)
		return err_sys(e, errno, "memfd_create");
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", k->data_fd);
	k->in_fd = open(path, O_RDONLY | O_CLOEXEC);
	return k->in_fd < 0 ? err_sys(e, errno, "%s", path) : 0;
}

static int start(struct kernel *k, const struct guest_kernel *what, int theirs,
    struct program_pipes *pipes, struct err *e)
{
	cleanup_strings char **argv = strings_new(what->run, what->run_count);
	cleanup_strings char **env = strings_new(what->env, what->env_count);
	char cwd[LIMIT_NAME + 1];
	const struct child c = {
	    .argv = argv,
	    .env = env,
	    .cwd = cwd,
	    .fds = {k->in_fd, pipes->out[PIPE_WRITE], pipes->err[PIPE_WRITE]},
	    .link_fd = theirs,
	    .link_at = KERNEL_FD,
	    .pids = what->pids,
	    .file_bytes = what->file_bytes,
	};
	int why;

	if (argv == NULL || env == NULL)
		return err_sys(e, ENOMEM, "cannot start the kernel");
	memcpy(cwd, what->cwd.data, what->cwd.len);
	cwd[what->cwd.len] = '\0';
	why = child_start(&c, &k->pid, e);
	return why <= 0 ? why : err_sys(e, why, "cannot run %s", c.argv[0]);
}

static void take_pipes(struct kernel *k, struct program_pipes *p)
{
	(void)close(p->in[PIPE_READ]);
	(void)close(p->in[PIPE_WRITE]);
	(void)close(p->out[PIPE_WRITE]);
	(void)close(p->err[PIPE_WRITE]);
	k->out[0] = (struct stream){
	    .fd = take_fd(&p->out[PIPE_READ]), .type = PROTO_GUEST_STDOUT};
	k->out[1] = (struct stream){
	    .fd = take_fd(&p->err[PIPE_READ]), .type = PROTO_GUEST_STDERR};
}

static int open_kernel(struct kernel *k, const struct guest_kernel *what,
    struct program_pipes *pipes, struct err *e)
{
	int theirs = -1, rc;

	if (!kernel_code(&what->language, &k->code))
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "no kernel for the language %.*s", (int)what->language.len,
		    (const char *)what->language.data);
	if ((rc = make_input(k, e)) < 0 ||
	    (rc = set_input(k, &k->code.program, e)) < 0 ||
	    (rc = klink_open(&k->link, &theirs, e)) < 0)
		return rc;
	k->link.tells_start = k->code.tells_start;
	klink_start(&k->link, what);
	rc = start(k, what, theirs, pipes, e);
	(void)close(theirs);
	take_pipes(k, pipes);
	if (rc < 0 || (rc = cpustat_open(k->pid, &k->stat_fd, e)) < 0 ||
	    (rc = boot_keep_kill(e)) < 0)
		return rc;
	return control_unblock(e);
}

int kernel_serve(struct control *control, int signal_fd,
    struct program_pipes *pipes, const struct blob *payload, struct err *e)
{
	struct kernel k = {.control = control,
	    .signal_fd = signal_fd,
	    .in_fd = -1,
	    .link = {.fd = -1}};
	struct guest_kernel what;
	int rc;

	rc = guest_kernel_decode(payload->data, payload->len, &what, e);
	if (rc < 0)
		return rc;
	rc = open_kernel(&k, &what, pipes, e);
	guest_kernel_done(&what);
	while (rc == 0 && !k.ended)
		rc = work(&k, e);
	if (rc == 0)
		rc = send_exit(&k, e);
	klink_done(&k.link);
	buf_free(&k.out[0].held);
	buf_free(&k.out[1].held);
	return rc;
}
