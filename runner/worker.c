/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner's children. A supervisor removes its own leaf; when one was killed
 * a janitor does it, so that the loop never waits. A slot is free again when
 * nothing of its sandbox is left. Both have bounds of their own for all that they
 * do; who is still there after that was stopped or hangs, and is killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "runner/server_int.h"

/* What was just started takes its memory by and by. */
#define MEMORY_LOOK_US 50000u

#define JANITOR_MS 20000u
#define JANITOR_MAX_US (2u * JANITOR_MS * 1000u)

/* After a janitor that was killed or failed, the next one comes so soon. */
#define JANITOR_AGAIN_US 1000000u

/* That a supervisor may have sent since we looked: it waits, a step has ended, it
 * has ended. */
#define REPORTS_MAX 4

/* A supervisor that was let go has nothing to do but clean up. */
#define LET_GO_MAX_US 30000000u

/* In a child: nothing of the loop may be kept open, or a peer would wait for an
 * end of file that never comes. `keep` is the one client that stays. */
static void close_loop(const struct server *s, int keep)
{
	const struct client *c;
	const struct worker *w;

	(void)close(s->epoll_fd);
	(void)close(s->signal.fd);
	(void)close(s->listen.fd);
	if (s->images.fd >= 0)
		(void)close(s->images.fd);
	(void)close(s->lock_fd);
	(void)close(s->subtree_lock_fd);
	workspaces_close_lock(s);
	TAILQ_FOREACH (c, &s->clients, link)
		if (c->source.fd >= 0 && c->source.fd != keep)
			(void)close(c->source.fd);
	TAILQ_FOREACH (w, &s->workers, link)
		if (w->source.fd >= 0)
			(void)close(w->source.fd);
}

/* A child of its own session: a terminal's Ctrl-C is for the runner, which ends
 * its children in order by closing their control sockets. */
void worker_settle_child(const struct server *s, int keep)
{
	sigset_t none;

	close_loop(s, keep);
	(void)setsid();
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	if (sigemptyset(&none) != 0 ||
	    sigprocmask(SIG_SETMASK, &none, NULL) != 0)
		die("sigprocmask");
}

static struct worker *worker_new(enum worker_kind kind, struct leaf *leaf)
{
	struct worker *w = calloc(1, sizeof *w);

	if (w == NULL)
		return NULL;
	w->source = (struct source){.kind = SOURCE_WORKER, .fd = -1};
	w->kind = kind;
	w->begun_us = clock_us();
	w->is_kernel = kind == WORKER_KERNEL;
	w->leaf = leaf;
	return w;
}

static uint8_t *mailbox_new(void)
{
	void *p = mmap(NULL, MAILBOX_SIZE, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p != MAP_FAILED ? p : NULL;
}

static void mailbox_free(uint8_t *mailbox)
{
	if (mailbox != NULL)
		(void)munmap(mailbox, MAILBOX_SIZE);
}

/* Taken out of the epoll set by name: a child that was just forked may still
 * hold a copy, and then closing alone would leave an event that points to w. */
static void worker_unwatch(struct server *s, struct worker *w)
{
	if (w->source.fd < 0)
		return;
	(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, w->source.fd, NULL);
	(void)close(w->source.fd);
	w->source.fd = -1;
}

static void worker_free(struct server *s, struct worker *w)
{
	TAILQ_REMOVE(&s->workers, w, link);
	worker_unwatch(s, w);
	mailbox_free(w->seat.mailbox);
	if (w->is_kernel) {
		workspaces_turn_end(s, &w->turn);
		workspaces_step_ends(s, &w->mount);
	} else {
		workspaces_step_ends(s, &w->turn);
	}
	if (w->kernel_slot)
		s->kernels.used--;
	if (w->spare[0] != '\0')
		workspaces_drop_spare(s, w->spare);
	if (w->leaf != NULL)
		leaf_free(w->leaf);
	free(w);
}

static int make_leaf(struct server *s, struct leaf **ret, struct err *e)
{
	char name[48];

	/* No name comes twice, not in another life of the runner either: a
	 * supervisor that outlived a killed runner removes its leaf by name. */
	(void)snprintf(name, sizeof name, "%llx-%llu",
	    (unsigned long long)s->begun_us,
	    (unsigned long long)++s->leaf_serial);
	return leaf_create(s->cgroup, name, ret, e);
}

static void drop_leaf(struct leaf *leaf)
{
	struct err e;

	if (leaf_destroy(leaf, 0, &e) < 0)
		log_error("%s", e.msg);
}

/* Forks a supervisor for `order`, in which leaf and control_fd are filled in. */
static int fork_supervisor(struct server *s, struct run_order *order,
    enum worker_kind kind, struct worker **ret, struct err *e)
{
	int control[2] = {-1, -1};
	struct worker *w = NULL;
	int rc = make_leaf(s, &order->leaf, e);

	if (rc < 0)
		return rc;
	w = worker_new(kind, order->leaf);
	if (w == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
			     control) != 0) {
		rc = err_sys(e, errno, "preparing a supervisor");
		goto fail;
	}
	w->pid = fork();
	if (w->pid == 0) {
		(void)close(control[0]);
		worker_settle_child(s, order->client_fd);
		order->control_fd = control[1];
		_exit(supervisor_main(order));
	}
	(void)close(control[1]);
	if (w->pid < 0) {
		rc = err_sys(e, errno, "fork");
		(void)close(control[0]);
		goto fail;
	}
	w->deadline_us = clock_us() + supervisor_max_us(order);
	w->source.fd = control[0];
	w->holds_slot = kind == WORKER_RUN;
	TAILQ_INSERT_TAIL(&s->workers, w, link);
	/* It may take memory. */
	pool_poke(s, MEMORY_LOOK_US);
	/* Failing to watch only loses the report; the child's end is seen. */
	(void)server_watch(s, &w->source, EPOLLIN);
	*ret = w;
	return 0;
fail:
	free(w);
	drop_leaf(order->leaf);
	return rc;
}

uint64_t worker_memory(
    const struct server *s, const struct limits *l, bool network)
{
	return l->memory_bytes +
	       ((uint64_t)s->config->sandbox_overhead_mb << 20) +
	       (network && s->egress != NULL ? s->egress->driver->memory_bytes
					     : 0);
}

int worker_run(struct server *s, const struct runtime *rt, struct client *c,
    uint64_t queue_us, struct err *e)
{
	struct run_order order = {.config = s->config,
	    .runtime = rt,
	    .egress = s->egress,
	    .job = &c->job,
	    .client_fd = c->source.fd,
	    .queue_us = queue_us,
	    .slot_us = clock_us()};
	struct worker *w;
	struct step step;
	int rc;

	if (c->turn.held) {
		rc = workspaces_step(s, &c->turn, &step, e);
		if (rc < 0)
			return rc;
		order.step = &step;
	}
	rc = fork_supervisor(s, &order, WORKER_RUN, &w, e);
	if (rc < 0)
		return rc;
	w->memory_bytes = worker_memory(s, &c->job.limits, c->job.network);
	workspaces_step_begins(s, &c->turn, &w->turn);
	return 0;
}

static bool works_in(const struct worker *w, const struct workspace *space)
{
	for (unsigned i = 0; i < TURN_THINGS; i++)
		if (w->turn.things[i] == &space->turn)
			return true;
	return false;
}

void worker_end_step(struct server *s, const struct workspace *w)
{
	const uint32_t gone = RUN_CONTROL_GONE;
	const struct worker *x;

	TAILQ_FOREACH (x, &s->workers, link)
		if (x->source.fd >= 0 && works_in(x, w))
			(void)send(x->source.fd, &gone, sizeof gone,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
}

int worker_probe(struct server *s, const struct runtime *rt, struct err *e)
{
	struct run_order order = {.config = s->config,
	    .runtime = rt,
	    .egress = s->egress,
	    .client_fd = -1};
	struct worker *w;

	return fork_supervisor(s, &order, WORKER_PROBE, &w, e);
}

static int fork_with_mailbox(struct server *s, struct run_order *order,
    enum worker_kind kind, struct worker **ret, struct err *e)
{
	uint8_t *mailbox = mailbox_new();
	int rc;

	if (mailbox == NULL)
		return err_sys(e, errno, "a mailbox");
	order->mailbox = mailbox;
	rc = fork_supervisor(s, order, kind, ret, e);
	/* For this supervisor and no other, nor for what they start: the job
	 * of one client will be in it. */
	if (rc == 0 && madvise(mailbox, MAILBOX_SIZE, MADV_DONTFORK) != 0) {
		rc = err_sys(e, errno, "MADV_DONTFORK");
		worker_let_go(*ret);
	}
	if (rc < 0)
		mailbox_free(mailbox);
	else
		(*ret)->seat.mailbox = mailbox;
	return rc;
}

int worker_ahead(struct server *s, struct run_order *order, struct worker **ret,
    struct err *e)
{
	return fork_with_mailbox(s, order, WORKER_AHEAD, ret, e);
}

int worker_kernel(struct server *s, struct run_order *order,
    struct worker **ret, struct err *e)
{
	return fork_with_mailbox(s, order, WORKER_KERNEL, ret, e);
}

void worker_must_end(struct worker *w)
{
	w->deadline_us = clock_us() + LET_GO_MAX_US;
}

void worker_let_go(struct worker *w)
{
	w->kind = WORKER_DROPPED;
	if (w->deadline_us == UINT64_MAX)
		w->deadline_us = clock_us() + LET_GO_MAX_US;
	/* The socket stays watched: it tells when the other end closes. */
	if (w->source.fd >= 0)
		(void)shutdown(w->source.fd, SHUT_WR);
}

/* Turns w, whose process is gone, into a janitor for the leaf that it left. */
static void become_janitor(struct server *s, struct worker *w)
{
	struct err e;
	pid_t pid = fork();

	if (pid == 0) {
		worker_settle_child(s, -1);
		if (leaf_destroy(w->leaf, JANITOR_MS, &e) < 0) {
			log_error("%s", e.msg);
			_exit(1);
		}
		_exit(0);
	}
	if (pid < 0)
		log_error("cannot fork a janitor: %s", strerror(errno));
	w->kind = WORKER_JANITOR;
	w->pid = pid > 0 ? pid : 0;
	w->deadline_us =
	    clock_us() + (pid > 0 ? JANITOR_MAX_US : JANITOR_AGAIN_US);
}

/* The janitor w ended, and its leaf is still there. Another one comes for that,
 * but nobody else waits any longer. */
static void leave_leaf(struct server *s, struct worker *w)
{
	struct worker *next = worker_new(WORKER_JANITOR, w->leaf);

	if (next == NULL) {
		/* The next start sweeps it. */
		log_error("no memory for a janitor: leaf left behind");
		return;
	}
	next->memory_bytes = w->memory_bytes;
	next->deadline_us = clock_us() + JANITOR_AGAIN_US;
	w->leaf = NULL;
	TAILQ_INSERT_TAIL(&s->workers, next, link);
}

/* One that was booted ahead has told of its boot before its end. */
static void count_boot_cpu(struct server *s, const struct run_report *r)
{
	uint64_t *total = &s->status.boot_cpu_us_total;

	if (r->boot_cpu_us == UINT64_MAX)
		*total = STATUS_UNKNOWN;
	else if (*total != STATUS_UNKNOWN)
		*total += r->boot_cpu_us;
}

static bool has_booted(const struct run_report *r)
{
	return r->end != RUN_END_FAILED && r->end != RUN_END_GONE;
}

static void take_report(
    struct server *s, struct worker *w, const struct run_report *r)
{
	if (has_booted(r) && (r->end == RUN_END_NONE || !w->seat.waits))
		count_boot_cpu(s, r);
	health_note_network(
	    s, r, w->begun_us, w->kind == WORKER_RUN && r->end != RUN_END_NONE);
	if (r->end == RUN_END_NONE) {
		pool_ready(s, w, r);
		return;
	}
	w->report = *r;
	w->has_report = true;
	w->report_us = clock_us();
}

void worker_event(struct server *s, struct worker *w)
{
	struct run_report r;
	ssize_t n = recv(w->source.fd, &r, sizeof r, MSG_DONTWAIT);

	if (n == (ssize_t)sizeof r) {
		r.why[sizeof r.why - 1] = '\0';
		r.network_why[sizeof r.network_why - 1] = '\0';
		if (w->kind == WORKER_KERNEL) {
			kernels_report(s, w, &r);
			return;
		}
		take_report(s, w, &r);
		if (r.sandbox_gone)
			workspaces_step_ends(s, &w->turn);
		return;
	}
	if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		worker_unwatch(s, w);
}

static void count_end(struct server *s, const struct worker *w)
{
	const struct run_report *r = &w->report;

	s->status.runs_total++;
	/* A program that did not start, or of which nothing is known, took no
	 * time that could be told. */
	if (r->run_us > 0) {
		histogram_add(&s->status.phases[STATUS_BOOT], r->boot_us);
		histogram_add(&s->status.phases[STATUS_RUN], r->run_us);
	}
	if (w->has_report)
		histogram_add(&s->status.phases[STATUS_CLEANUP],
		    clock_us() - w->report_us);
	switch ((enum run_end)r->end) {
	case RUN_END_TIMEOUT:
		s->status.timeouts_total++;
		break;
	case RUN_END_OOM:
		s->status.ooms_total++;
		break;
	case RUN_END_GONE:
		s->status.gone_total++;
		break;
	case RUN_END_NONE:
	case RUN_END_FAILED:
		s->status.failures_total++;
		if (!s->draining)
			health_doubt(s);
		break;
	case RUN_END_EXIT:
	case RUN_END_REFUSED:
		break;
	}
}

static void worker_ended(struct server *s, struct worker *w, int status)
{
	bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;

	/* Its reports may still lie in the socket. */
	for (int i = 0; i < REPORTS_MAX && w->source.fd >= 0; i++)
		worker_event(s, w);
	if (w->kind == WORKER_RUN)
		count_end(s, w);
	else if (w->kind == WORKER_PROBE)
		health_probe_result(s, w->has_report ? &w->report : NULL);
	else if (w->kind == WORKER_KERNEL)
		kernels_lost(s, w, w->has_report ? &w->report : NULL);
	else if (w->kind == WORKER_AHEAD)
		pool_lost(s, w, w->has_report ? &w->report : NULL);
	if (!clean && w->kind != WORKER_JANITOR) {
		log_warn("supervisor %d ended with status 0x%x; cleaning up",
		    w->pid, (unsigned)status);
		become_janitor(s, w);
		return;
	}
	/* While draining, what is left is swept at the end. */
	if (!clean && !s->draining)
		leave_leaf(s, w);
	if (w->holds_slot)
		admit_release(&s->admit);
	worker_free(s, w);
	pool_poke(s, 0);
}

static struct worker *find_worker(const struct server *s, pid_t pid)
{
	struct worker *w;

	TAILQ_FOREACH (w, &s->workers, link)
		if (w->pid == pid)
			return w;
	return NULL;
}

void worker_reap(struct server *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct worker *w = find_worker(s, pid);

		if (w != NULL)
			worker_ended(s, w, status);
		else
			(void)workspaces_reaped(s, pid, status);
	}
}

void worker_timeouts(struct server *s, uint64_t now_us)
{
	struct worker *w = NULL;

	TAILQ_FOREACH (w, &s->workers, link) {
		if (now_us < w->deadline_us)
			continue;
		if (w->pid == 0) {
			become_janitor(s, w);
			continue;
		}
		log_error("child %d is late with its end; killing it", w->pid);
		(void)kill(w->pid, SIGKILL);
		w->deadline_us = UINT64_MAX;
	}
}

uint64_t worker_deadline_us(const struct server *s)
{
	uint64_t first = UINT64_MAX;
	const struct worker *w;

	TAILQ_FOREACH (w, &s->workers, link)
		if (w->deadline_us < first)
			first = w->deadline_us;
	return first;
}

void worker_abandon_all(struct server *s)
{
	struct worker *w;

	TAILQ_FOREACH (w, &s->workers, link)
		if (w->source.fd >= 0)
			(void)shutdown(w->source.fd, SHUT_RDWR);
}
