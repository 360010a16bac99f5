/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. There is no quota in the kernel for a user without rights,
 * so we count: walk the tree and add up blocks. That costs some microseconds a
 * file, too much for each tick, so every tick first looks at the file system's
 * free space. The step cannot have taken more than what is gone of it; others
 * write there, too, but that only makes us count in vain. It may have taken more
 * when others gave space back at the same time; so we also look at what the
 * sentry and the gofer have written, which is all but what programs write to
 * mapped files, and count every now and then without a reason.
 *
 * When so much is gone that the step may be over its quota, the sentry and the
 * gofer, which do all the writing, are stopped (SIGSTOP) while we count. Only such
 * a count ends a step: no file comes, goes or moves during it, so none is counted
 * twice. The program itself may run on, but gets no further than to write to
 * pages that it has mapped, which is as much its own.
 */
#include "runner/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "runner/quota_int.h"

/* Less is gone: not worth a count. */
#define FALL_BYTES (4ull << 20)
#define FALL_FILES 2000u

/* Counting beside the program takes at most a quarter of a processor when there
 * is a reason, a twentieth when there is none. */
#define COST_REASON 4u
#define COST_NONE 20u
#define NO_REASON_US 20000u

/* Between the steps of a kernel: 0.3 % of a processor for each instead of 5. */
#define REST_TICK_US 20000u
#define REST_NO_REASON_US 2000000u
#define REST_FALL_BYTES (LIMIT_WS_OVERSHOOT / 2)

/* How far beyond its room a step may seem to be before it is stopped: others
 * write, too, and to stop it costs its time. What it writes until we have seen
 * that comes on top, and has to stay below LIMIT_WS_OVERSHOOT: a busy host may
 * let us wait for some ticks. */
#define SLACK_BYTES (LIMIT_WS_OVERSHOOT / 8)
#define SLACK_FILES 5000u

/* Growth that counts when the disk or the service's ceiling is full. */
#define GROWTH_BYTES (1ull << 20)

/* ---- decisions ----------------------------------------------------------- */

uint64_t quota_limit(uint64_t quota, uint64_t used)
{
	return used > quota ? used : quota;
}

static uint64_t fell(uint64_t then, uint64_t now)
{
	return then > now ? then - now : 0;
}

static uint64_t more(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

enum quota_verdict quota_decide(
    const struct quota_state *s, const struct quota_signal *now)
{
	const uint64_t bytes = more(fell(s->then.free_bytes, now->free_bytes),
	    fell(now->written_bytes, s->then.written_bytes));
	const uint64_t files = fell(s->then.free_files, now->free_files);
	const uint64_t since = now->now_us - s->then.now_us;

	if (bytes > s->room_bytes + SLACK_BYTES ||
	    files > s->room_files + SLACK_FILES)
		return QUOTA_FREEZE;
	if ((bytes >= (s->rests ? REST_FALL_BYTES : FALL_BYTES) ||
		files >= FALL_FILES) &&
	    since >= COST_REASON * s->cost_us)
		return QUOTA_COUNT;
	if (since >= (s->rests ? REST_NO_REASON_US : NO_REASON_US) &&
	    since >= COST_NONE * s->cost_us)
		return QUOTA_COUNT;
	return QUOTA_WAIT;
}

/* To the process; any ends the hold. */
struct word {
	bool rests;
	bool saves;
	uint32_t cpus_milli;
};

/* ---- the process --------------------------------------------------------- */

struct message {
	uint32_t kind; /* enum err_kind */
	char msg[sizeof(((struct err *)0)->msg)];
};

static _Noreturn void tell(const struct watch *w, const struct err *e)
{
	struct message m = {.kind = (uint32_t)e->kind};

	(void)snprintf(m.msg, sizeof m.msg, "%s", e->msg);
	(void)send(w->out, &m, sizeof m, MSG_NOSIGNAL);
	/* The supervisor may take its time; the program writes to what it has
	 * mapped as long as its sentry is there. */
	quota_kill(w);
	_exit(0);
}

/* What for: quota_count.c. */
static int enter_sandbox(pid_t pid, struct err *e)
{
	char path[48];
	cleanup_fd int fd = -1;

	(void)snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWUSER) != 0)
		return err_sys(
		    e, errno, "the user namespace of sandbox %d", pid);
	return 0;
}

static int open_spaces(struct watch *w, struct err *e)
{
	for (unsigned i = 0; i < w->order->step->count; i++) {
		struct space *s = &w->spaces[i];

		s->is = &w->order->step->spaces[i];
		s->fd = open(s->is->path,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (s->fd < 0)
			return err_sys(e, errno, "the workspace");
	}
	return 0;
}

/* ---- verdicts ------------------------------------------------------------ */

/* What follows from a count: the room that is left, the accounts; at the first one
 * the limits. */
static void take_count(struct watch *w)
{
	w->state.room_bytes = UINT64_MAX / 2;
	w->state.room_files = UINT64_MAX / 2;
	for (unsigned i = 0; i < w->order->step->count; i++) {
		struct space *s = &w->spaces[i];
		uint64_t room, files = 0;

		if (!w->begun) {
			s->begun_bytes = s->usage.bytes;
			s->limit = quota_limit(s->is->quota, s->usage.bytes);
		}
		room =
		    s->limit > s->usage.bytes ? s->limit - s->usage.bytes : 0;
		if (s->usage.files < LIMIT_WS_FILES)
			files = LIMIT_WS_FILES - s->usage.files;
		if (room < w->state.room_bytes)
			w->state.room_bytes = room;
		if (files < w->state.room_files)
			w->state.room_files = files;
		/* Odd: a step writes here, this is no last word. */
		ws_account_set(s->is->account, 1, &s->usage);
	}
	w->begun = true;
}

static int check_space(const struct space *s, struct err *e)
{
	const char *word = ws_kind_word(s->is->kind);

	if (s->usage.bytes > s->limit ||
	    s->usage.bytes > s->is->quota + LIMIT_WS_OVERSHOOT)
		return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
		    "the %s's disk quota of %llu MiB is exceeded; delete "
		    "files to make room",
		    word, (unsigned long long)(s->is->quota >> 20));
	if (s->usage.files > LIMIT_WS_FILES)
		return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
		    "the %s has more than %u files and folders", word,
		    LIMIT_WS_FILES);
	return 0;
}

static bool has_grown(const struct watch *w)
{
	for (unsigned i = 0; i < w->order->step->count; i++)
		if (w->spaces[i].usage.bytes >
		    w->spaces[i].begun_bytes + GROWTH_BYTES)
			return true;
	return false;
}

static int check_storage(const struct watch *w, struct err *e)
{
	const struct config *c = w->order->config;
	struct statvfs fs;

	/* At rest nothing of what fills the disk is its own. */
	if (w->state.rests || !has_grown(w))
		return 0;
	if (fstatvfs(w->spaces[0].fd, &fs) != 0)
		return err_sys(e, errno, "asking for the free disk space");
	if (fs.f_bavail * fs.f_frsize < (uint64_t)c->min_free_disk_gb << 30)
		return err_set(e, ERR_STORAGE_FULL, ENOSPC,
		    "the server's disk has less than %u GiB free",
		    c->min_free_disk_gb);
	if (ws_ledger_total(w->order->step->ledger) >
	    (uint64_t)c->sessions_disk_max_gb << 30)
		return err_set(e, ERR_STORAGE_FULL, ENOSPC,
		    "all sessions and volumes together have %u GiB, which are "
		    "in use",
		    c->sessions_disk_max_gb);
	return 0;
}

static int check_all(const struct watch *w, struct err *e)
{
	for (unsigned i = 0; i < w->order->step->count; i++) {
		int rc = check_space(&w->spaces[i], e);

		if (rc < 0)
			return rc;
	}
	return check_storage(w, e);
}

static uint64_t cpu_now_us(void)
{
	struct timespec t = {0};

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* One count and what follows from it. An inexact one only calls for an exact. */
static int count(struct watch *w, bool frozen, struct err *e)
{
	struct quota_signal before;
	uint64_t cpu_us = cpu_now_us();
	int rc;

	/* What is written meanwhile may not be counted: it comes on top. */
	if ((rc = quota_read_pids(w, e)) < 0 ||
	    (rc = quota_look(w, &before, e)) < 0)
		return rc;
	rc = quota_count_spaces(w, e);
	if (rc == -ESTALE && !frozen)
		return QUOTA_FREEZE;
	if (rc < 0)
		return rc;
	take_count(w);
	w->state.then = before;
	w->state.then.now_us = clock_us();
	w->state.cost_us = cpu_now_us() - cpu_us;
	rc = check_all(w, e);
	if (rc < 0 && !frozen && e->kind != ERR_INTERNAL)
		return QUOTA_FREEZE;
	return rc < 0 ? rc : QUOTA_WAIT;
}

static int count_frozen(struct watch *w, struct err *e)
{
	bool slow;
	int rc = quota_freeze(w, e);

	if (rc == 0)
		rc = count(w, true, e);
	/* Over: it is not thawed again. */
	if (rc < 0)
		return rc;
	slow = quota_too_fast(&w->pace, &w->state, &w->state.then);
	rc = quota_set_pace(w, slow, e);
	quota_thaw(w);
	return rc;
}

/* What the file system's signs say. */
static int look(struct watch *w, enum quota_verdict *ret, struct err *e)
{
	struct quota_signal now;
	int rc = quota_look(w, &now, e);
	bool slow;

	if (rc < 0)
		return rc;
	slow = quota_too_fast(&w->pace, &w->state, &now);
	*ret = quota_decide(&w->state, &now);
	return *ret == QUOTA_FREEZE ? 0 : quota_set_pace(w, slow, e);
}

static int tick(struct watch *w, struct err *e)
{
	enum quota_verdict v;
	int rc = look(w, &v, e);

	if (rc < 0)
		return rc;
	if (!w->begun || v == QUOTA_COUNT) {
		rc = count(w, false, e);
		if (rc < 0)
			return rc;
		v = (enum quota_verdict)rc;
	}
	return v == QUOTA_FREEZE ? count_frozen(w, e) : 0;
}

static void take_word(struct watch *w, const struct word *word)
{
	/* The supervisor has set it, we may have set it since. */
	if (word->cpus_milli != w->cpus_milli)
		w->cpus_set = 0;
	w->cpus_milli = word->cpus_milli;
	w->state.rests = word->rests;
	w->saves = word->saves;
	for (unsigned i = 0; i < w->order->step->count; i++)
		w->spaces[i].begun_bytes = w->spaces[i].usage.bytes;
}

/* What the supervisor says; `flags` of recv(2). Ends with it. */
static bool listen_to(struct watch *w, int flags)
{
	struct word word;
	ssize_t n;

	do
		n = recv(w->out, &word, sizeof word, flags);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		_exit(0);
	if (n == sizeof word)
		take_word(w, &word);
	return n > 0;
}

static _Noreturn void watch_main(struct watch *w, pid_t supervisor)
{
	struct err e;
	int rc;

	for (unsigned i = 0; i < w->order->close_count; i++)
		if (w->order->close_fds[i] >= 0)
			(void)close(w->order->close_fds[i]);
	if (open_spaces(w, &e) < 0 || enter_sandbox(w->order->sandbox, &e) < 0)
		tell(w, &e);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != supervisor)
		_exit(1);
	rc = quota_find_writers(w, &e);
	if (rc < 0)
		tell(w, &e);
	/* Why it has ended, the supervisor knows or will hear from the guest. */
	if (rc == 0)
		for (;;)
			(void)pause();
	/* Until the sandbox that waits has a program. */
	if (w->order->hold)
		(void)listen_to(w, 0);
	while (tick(w, &e) >= 0) {
		(void)usleep(w->state.rests ? REST_TICK_US : QUOTA_TICK_US);
		while (listen_to(w, MSG_DONTWAIT))
			;
	}
	tell(w, &e);
}

/* ---- for the supervisor -------------------------------------------------- */

int quota_start(
    const struct quota_order *o, struct quota_watch *ret, struct err *e)
{
	const pid_t supervisor = getpid();
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		return err_sys(e, errno, "the quota's watch");
	pid = fork();
	if (pid == 0) {
		struct watch *w = calloc(1, sizeof *w);

		if (w == NULL)
			_exit(1);
		(void)close(fds[0]);
		w->order = o;
		w->out = fds[1];
		w->cpus_milli = w->cpus_set = o->cpus_milli;
		watch_main(w, supervisor);
	}
	(void)close(fds[1]);
	if (pid < 0) {
		int code = errno;

		(void)close(fds[0]);
		return err_sys(e, code, "the quota's watch");
	}
	*ret = (struct quota_watch){pid, fds[0]};
	return 0;
}

static void say(const struct quota_watch *q, struct word word)
{
	/* If it is not there any more, quota_read() tells. */
	if (q->fd >= 0)
		(void)send(
		    q->fd, &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void quota_begin(const struct quota_watch *q, uint32_t cpus_milli)
{
	say(q, (struct word){.cpus_milli = cpus_milli});
}

void quota_rest(const struct quota_watch *q, uint32_t cpus_milli)
{
	say(q, (struct word){.rests = true, .cpus_milli = cpus_milli});
}

void quota_save(const struct quota_watch *q, uint32_t cpus_milli)
{
	say(q, (struct word){
		   .rests = true, .saves = true, .cpus_milli = cpus_milli});
}

int quota_read(struct quota_watch *q, struct err *e)
{
	struct message m;
	ssize_t n = recv(q->fd, &m, sizeof m, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n != (ssize_t)sizeof m || m.kind >= ERR_KIND_COUNT)
		return err_set(e, ERR_INTERNAL, EPIPE,
		    "nobody watches the disk quota any more");
	m.msg[sizeof m.msg - 1] = '\0';
	return err_set(e, (enum err_kind)m.kind, EDQUOT, "%s", m.msg);
}

void quota_stop(struct quota_watch *q)
{
	if (q->pid > 0) {
		(void)kill(q->pid, SIGKILL);
		while (waitpid(q->pid, NULL, 0) < 0 && errno == EINTR)
			;
		(void)close(q->fd);
	}
	*q = (struct quota_watch){-1, -1};
}
