/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The interpreter is started exactly as a job would start
 * it (child.c), but for one descriptor more, WARM_FD. A hook of its image finds
 * that while the interpreter starts, before the program's own file is read, and
 * speaks first:
 *
 *	hook		its language and a line feed
 *	init		a message: the code of guest/warm that is to be run
 *	init		a message: the modules to load ahead
 *	code		"missing NAME", any number of times, then "ready"
 *	init		a message: the request's arguments, the files' names
 *	code		"go"; it closes WARM_FD, and the interpreter goes on.
 *			Or "no": it could not be as if started for them
 *
 * WARM_ENDING_FD is a library for the code to load and close (guest/warm/ending.c),
 * by which the interpreter will tell that it ends.
 *
 * A message is its length in decimal, a line feed, and that many bytes; strings
 * in it end with NUL.
 *
 * Nobody's code has run in the interpreter until it says "go". It is trusted no
 * more for that: what it says picks code, and modules from the list, and can only
 * end its own waiting; files and limits are set from here.
 */
#include "guest/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest/child.h"
#include "guest/cpustat.h"
#include "guest/ending.h"
#include "guest/files.h"
#include "guest/pump.h"
#include "guest/strings.h"
#include "guest/warm_code.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

#define START_US 60000000u /* modules take seconds on a busy machine */
#define GO_US 10000000u
#define LINE_MAX_LEN 256u
#define PIPE_CHUNK 4096u
#define REHEARSALS 3

/* Ruby takes a look at the first byte already, and at an empty file no second
 * one. */
#define EMPTY_ENTRY                      \
	{                                \
		(const uint8_t *)"\n", 1 \
	}

void warm_init(struct warm *w, struct control *control,
    const struct program_pipes *pipes, int signal_fd)
{
	*w = (struct warm){.control = control,
	    .pipes = pipes,
	    .signal_fd = signal_fd,
	    .fd = -1,
	    .end_fd = -1,
	    .entry_fd = -1,
	    .stat_fd = -1};
}

static void close_all(struct warm *w)
{
	close_fd(&w->fd);
	close_fd(&w->end_fd);
	close_fd(&w->entry_fd);
	close_fd(&w->stat_fd);
}

void warm_done(struct warm *w)
{
	close_all(w);
	guest_warm_done(&w->what);
	buf_free(&w->order);
	buf_free(&w->heard);
}

enum heard {
	HEARD_LINE,
	HEARD_END, /* it is dead, or says what nobody may */
	HEARD_SUPERVISOR, /* the supervisor was first */
	HEARD_NOTHING /* in time */
};

/* The next whole line, without its end; false when there is none yet. */
static bool take_line(struct warm *w, char line[LINE_MAX_LEN])
{
	const uint8_t *end = NULL;
	size_t len;

	if (w->heard.len > 0)
		end = memchr(w->heard.data, '\n', w->heard.len);
	if (end == NULL)
		return false;
	len = (size_t)(end - w->heard.data);
	if (len >= LINE_MAX_LEN)
		return false;
	memcpy(line, w->heard.data, len);
	line[len] = '\0';
	buf_consume(&w->heard, len + 1);
	return true;
}

/* One read; false at the end. */
static bool take_bytes(struct warm *w)
{
	uint8_t *room = buf_reserve(&w->heard, LINE_MAX_LEN);
	ssize_t n;

	if (room == NULL)
		return false;
	n = read(w->fd, room, LINE_MAX_LEN);
	if (n > 0)
		w->heard.len += (size_t)n;
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static int wait_ms(uint64_t until_us)
{
	uint64_t now = clock_us();

	return now >= until_us ? 0 : (int)((until_us - now) / 1000 + 1);
}

/* Left to be reaped by whoever looks after the program. */
static bool is_dead(const struct warm *w)
{
	struct signalfd_siginfo info;
	siginfo_t ended = {0};

	/* Read first: a later end gives another signal. */
	(void)!read(w->signal_fd, &info, sizeof(info));
	return waitid(P_PID, (id_t)w->pid, &ended,
		   WEXITED | WNOHANG | WNOWAIT) != 0 ||
	       ended.si_pid == w->pid;
}

/* What it says next, in line. With supervisor, only until that one says
 * something. */
static enum heard hear(
    struct warm *w, bool supervisor, uint64_t until_us, char line[LINE_MAX_LEN])
{
	bool dead = false;

	while (!take_line(w, line)) {
		struct pollfd f[3] = {{w->fd, POLLIN, 0},
		    {w->signal_fd, POLLIN, 0}, {CONTROL_IN, POLLIN, 0}};
		int n;

		if (dead || w->heard.len >= LINE_MAX_LEN)
			return HEARD_END;
		n = poll(f, supervisor ? 3 : 2, wait_ms(until_us));
		if (n < 0 && errno != EINTR)
			return HEARD_END;
		if (n == 0)
			return HEARD_NOTHING;
		if (n < 0)
			continue;
		if (supervisor && f[2].revents != 0)
			return HEARD_SUPERVISOR;
		/* Its last words count, and others may hold the socket. */
		dead = f[1].revents != 0 && is_dead(w);
		if ((f[0].revents != 0 || dead) && !take_bytes(w))
			dead = true;
	}
	return HEARD_LINE;
}

/* All of it, or false. */
static bool say(const struct warm *w, const void *data, size_t len)
{
	const uint64_t until_us = clock_us() + GO_US;
	const uint8_t *p = data;

	while (len > 0) {
		struct pollfd f = {w->fd, POLLOUT, 0};
		ssize_t n = send(w->fd, p, len, MSG_NOSIGNAL);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (errno != EINTR &&
			   (errno != EAGAIN ||
			       poll(&f, 1, wait_ms(until_us)) == 0)) {
			return false;
		}
	}
	return true;
}

static bool say_message(const struct warm *w, const void *data, size_t len)
{
	cleanup_buf struct buf m = {0};

	/* in one piece: it wakes the other side */
	buf_printf(&m, "%zu\n", len);
	buf_put(&m, data, len);
	return !m.failed && say(w, m.data, m.len);
}

static void put_string(struct buf *b, const struct blob *s)
{
	buf_put(b, s->data, s->len);
	buf_putc(b, '\0');
}

/* The answer to the first line. A compiler that waits needs no code. */
static bool say_code(const struct warm *w, const char *language)
{
	cleanup_buf struct buf names = {0};
	struct blob code = {0};

	if (w->what.compiles ? strcmp(language, "compiler") != 0
			     : !warm_code(language, &code))
		return false;
	if (!say_message(w, code.data, code.len))
		return false;
	for (size_t i = 0; i < w->what.preload_count; i++)
		put_string(&names, &w->what.preload[i]);
	return !names.failed && say_message(w, names.data, names.len);
}

static bool note_missing(struct warm *w, const char *name)
{
	const struct blob said = {(const uint8_t *)name, strlen(name)};

	for (size_t i = 0; i < w->what.preload_count; i++) {
		if (!blob_equal(&said, &w->what.preload[i]))
			continue;
		if (w->missing_count < LIMIT_PRELOAD)
			w->missing[w->missing_count++] = w->what.preload[i];
		return true;
	}
	return false;
}

/* Until it waits, or does not. */
static enum heard talk(struct warm *w, bool *ret_ready)
{
	static const char missing[] = "missing ";
	const uint64_t until_us = clock_us() + START_US;
	char line[LINE_MAX_LEN];
	enum heard h = hear(w, true, until_us, line);

	if (h != HEARD_LINE)
		return h;
	if (!say_code(w, line))
		return HEARD_END;
	while ((h = hear(w, true, until_us, line)) == HEARD_LINE) {
		if (strcmp(line, "ready") == 0) {
			*ret_ready = true;
			return h;
		}
		if (strncmp(line, missing, strlen(missing)) != 0 ||
		    !note_missing(w, line + strlen(missing)))
			return HEARD_END;
	}
	return h;
}

/* What it wrote is not the program's: dropped, but for its beginning. */
static void drop_output(int fd, char *keep, size_t size)
{
	char chunk[PIPE_CHUNK];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, chunk, sizeof(chunk))) > 0)
		for (ssize_t i = 0; i < n && len + 1 < size; i++, len++) {
			keep[len] = chunk[i];
			if (chunk[i] < ' ' || chunk[i] > '~')
				keep[len] = ' ';
		}
	keep[len] = '\0';
}

/* Leaves nothing of it; why goes to the supervisor. */
static int end_waiting(struct warm *w, const char *why, struct err *e)
{
	char said[sizeof(w->why) / 2];
	int rc = pump_end_leftovers(w->signal_fd, e);

	if (rc < 0)
		return rc;
	close_all(w);
	w->pid = 0;
	drop_output(w->pipes->out[PIPE_READ], said, sizeof(said));
	drop_output(w->pipes->err[PIPE_READ], said, sizeof(said));
	(void)snprintf(w->why, sizeof(w->why), "%s%s%s", why,
	    said[0] != '\0' ? ": " : "", said);
	return 0;
}

static int start_child(struct warm *w, int theirs, struct err *e)
{
	cleanup_strings char **argv =
	    strings_new(w->what.run, w->what.run_count);
	cleanup_strings char **env =
	    strings_new(w->what.env, w->what.env_count);
	cleanup_free char *cwd =
	    strndup((const char *)w->what.cwd.data, w->what.cwd.len);
	const struct job_file entry = {w->what.entry, EMPTY_ENTRY};
	struct child c = {.argv = argv,
	    .env = env,
	    .cwd = cwd,
	    .files = &entry,
	    .file_count = 1,
	    .fds = {w->pipes->in[PIPE_READ], w->pipes->out[PIPE_WRITE],
		w->pipes->err[PIPE_WRITE]},
	    .link_fd = theirs,
	    .link_at = WARM_FD,
	    .pids = LIMIT_PIDS_MAX};
	cleanup_fd int null = -1, library = -1;
	int rc;

	if (argv == NULL || env == NULL || cwd == NULL)
		return err_sys(e, ENOMEM, "cannot start what waits");
	if (w->what.compiles) {
		null = child_compiler_fds(w->pipes, c.fds, e);
		if (null < 0)
			return null;
		c.cwd = FILES_DIR;
	} else {
		if ((rc = ending_open(&w->end_fd, e)) < 0 ||
		    (rc = ending_library(&library, e)) < 0)
			return rc;
		c.ending_fd = library;
	}
	w->entry_there = true;
	return child_start(&c, &w->pid, e);
}

static int start(struct warm *w, struct err *e)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return err_sys(e, errno, "cannot make a socket");
	w->fd = pair[0];
	rc = fcntl(w->fd, F_SETFL, O_NONBLOCK) != 0
		 ? err_sys(e, errno, "cannot set up a socket")
		 : start_child(w, pair[1], e);
	(void)close(pair[1]);
	return rc;
}

static int answer(struct warm *w, struct err *e)
{
	const struct guest_warmed reply = {.waiting = w->pid != 0,
	    .missing = w->missing,
	    .missing_count = w->missing_count,
	    .why = {(const uint8_t *)w->why, strlen(w->why)}};
	size_t begun = proto_begin(&w->control->out, PROTO_GUEST_WARMED);

	guest_warmed_encode(&reply, &w->control->out);
	proto_end(&w->control->out, begun);
	return control_flush(w->control, e);
}

/*
 * What a claim does, while nobody waits for it. systrap rewrites each place that
 * makes a system call when it is first come by, which stops the process for up to
 * a millisecond or two (in the vDSO: the clock below); memory is touched, too.
 */
static int rehearse(struct warm *w, struct err *e)
{
	const struct job_file entry = {w->what.entry, EMPTY_ENTRY};
	const struct child c = {.files = &entry,
	    .file_count = 1,
	    .there = &entry.name,
	    .pids = LIMIT_PIDS_MAX};
	struct pollfd f = {w->end_fd, POLLIN, 0};
	int unused, rc;

	for (int i = 0; i < REHEARSALS && poll(&f, 1, 0) > 0; i++)
		(void)ending_take(w->end_fd, w->pid, &unused);
	rc = child_open_file(&entry.name, &w->entry_fd, e);
	for (int i = 0; i < REHEARSALS && rc == 0; i++)
		rc = child_claim(&c, w->entry_fd, w->pid, e);
	if (rc == 0)
		rc = cpustat_open(w->pid, &w->stat_fd, e);
	if (rc == 0)
		(void)cpustat_read(w->stat_fd, 0);
	if (rc == -ESRCH || rc == -ENOENT)
		return 0; /* it is dead; the claim will find that out */
	if (rc == 0 &&
	    buf_reserve(&w->control->out, PROTO_HEADER + PUMP_CHUNK) == NULL)
		return err_sys(e, ENOMEM, "cannot wait");
	return rc;
}

int warm_start(struct warm *w, const struct blob *payload, struct err *e)
{
	bool ready = false;
	enum heard h;
	int rc;

	buf_put(&w->order, payload->data, payload->len);
	if (w->order.failed)
		return err_sys(e, ENOMEM, "cannot take the order to wait");
	rc = guest_warm_decode(w->order.data, w->order.len, &w->what, e);
	if (rc < 0 || control_pending(w->control))
		return rc;
	rc = start(w, e);
	if (rc < 0)
		return rc;
	if (rc > 0) {
		(void)snprintf(w->why, sizeof(w->why),
		    "cannot run the interpreter: %s", strerror(rc));
		return answer(w, e);
	}
	h = talk(w, &ready);
	if (h == HEARD_SUPERVISOR)
		return end_waiting(w, "", e);
	if (ready)
		rc = rehearse(w, e);
	else
		rc = end_waiting(w,
		    h == HEARD_NOTHING ? "not ready in time"
				       : "the interpreter does not wait",
		    e);
	return rc < 0 ? rc : answer(w, e);
}

static bool all_equal(const struct blob *a, const struct blob *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!blob_equal(&a[i], &b[i]))
			return false;
	return true;
}

static bool has_file(const struct guest_job *job, const struct blob *name)
{
	for (size_t i = 0; i < job->file_count; i++)
		if (blob_equal(&job->files[i].name, name))
			return true;
	return false;
}

/* Whether the job's first step is what was started, but for more arguments of a
 * program. */
static bool same_step(
    const struct guest_warm *what, const struct guest_job *job)
{
	if (what->compiles)
		return what->run_count == job->compile_count &&
		       all_equal(what->run, job->compile, what->run_count);
	return job->compile_count == 0 && what->run_count <= job->run_count &&
	       all_equal(what->run, job->run, what->run_count);
}

static bool is_for(const struct guest_warm *what, const struct guest_job *job)
{
	return same_step(what, job) && blob_equal(&what->cwd, &job->cwd) &&
	       what->env_count == job->env_count &&
	       all_equal(what->env, job->env, job->env_count) &&
	       has_file(job, &what->entry);
}

/* The message that ends the waiting. */
static bool say_job(const struct warm *w, const struct guest_job *job)
{
	const size_t first =
	    w->what.compiles ? job->run_count : w->what.run_count;
	cleanup_buf struct buf m = {0};

	buf_printf(&m, "%zu", job->run_count - first);
	buf_putc(&m, '\0');
	for (size_t i = first; i < job->run_count; i++)
		put_string(&m, &job->run[i]);
	for (size_t i = 0; i < job->file_count; i++)
		put_string(&m, &job->files[i].name);
	return !m.failed && say_message(w, m.data, m.len);
}

/* 1: it goes; 0: it has died instead. */
static int hand_over(struct warm *w, const struct guest_job *job, struct err *e)
{
	const struct child c = {.files = job->files,
	    .file_count = job->file_count,
	    .there = &w->what.entry,
	    .pids = job->pids,
	    .file_bytes = job->tmpfs_bytes};
	char line[LINE_MAX_LEN];
	int rc = child_claim(&c, w->entry_fd, w->pid, e);

	close_fd(&w->entry_fd);
	if (rc == -ESRCH)
		return 0;
	if (rc < 0)
		return rc;
	w->files_there = true;
	if (!say_job(w, job))
		return 0;
	switch (hear(w, false, clock_us() + GO_US, line)) {
	case HEARD_LINE:
		return strcmp(line, "go") == 0;
	case HEARD_NOTHING:
	case HEARD_SUPERVISOR:
		return err_set(e, ERR_INTERNAL, ETIMEDOUT,
		    "the interpreter that waited does not go on");
	case HEARD_END:
		break;
	}
	return 0;
}

int warm_claim(struct warm *w, const struct guest_job *job,
    struct warm_claimed *ret, struct err *e)
{
	struct warm_claimed claimed = {
	    .pid = w->pid, .end_fd = w->end_fd, .stat_fd = w->stat_fd};
	int rc = 0;

	*ret = (struct warm_claimed){.end_fd = -1, .stat_fd = -1};
	if (w->pid == 0)
		return 0;
	if (is_for(&w->what, job)) {
		claimed.cpu_us = cpustat_read(w->stat_fd, 0);
		rc = hand_over(w, job, e);
	}
	if (rc == 0)
		return end_waiting(w, "", e);
	if (rc > 0)
		*ret = claimed;
	return rc < 0 ? rc : 0;
}
