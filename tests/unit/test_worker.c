/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner's children as its loop sees them: with a supervisor and leaves of
 * our own.
 *
 * LINK: runner/worker.o runner/admit.o
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/server_int.h"

static char leaf_name[80]; /* of the newest */
static struct run_report health_seen;
static unsigned doubts;
static unsigned lost;
static bool hanging;

/* ---- what worker.c calls ------------------------------------------------ */

int supervisor_main(const struct run_order *order)
{
	const struct run_report r = {.end = RUN_END_EXIT, .boot_us = 7};
	const struct run_report waits = {.end = RUN_END_NONE};
	char byte;

	if (hanging)
		(void)raise(SIGSTOP);
	if (order->mailbox != NULL) {
		(void)send(order->control_fd, &waits, sizeof waits, 0);
		if (recv(order->control_fd, &byte, 1, 0) == 1)
			_exit(order->mailbox[0] == 'j' ? 0 : 1);
		_exit(0);
	}
	(void)send(order->control_fd, &r, sizeof r, MSG_NOSIGNAL);
	return 0;
}

uint64_t supervisor_max_us(const struct run_order *order)
{
	(void)order;
	return 50000;
}

int leaf_create(
    struct cgroup *cg, const char *name, struct leaf **ret, struct err *e)
{
	(void)cg;
	(void)e;
	(void)snprintf(leaf_name, sizeof leaf_name, "%s", name);
	*ret = NULL;
	return 0;
}

void leaf_free(struct leaf *l)
{
	(void)l;
}

int leaf_destroy(struct leaf *l, unsigned timeout_ms, struct err *e)
{
	(void)l;
	(void)timeout_ms;
	(void)e;
	return 0;
}

int server_watch(struct server *s, struct source *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, src->fd, &ev);
}

void health_probe_result(struct server *s, const struct run_report *r)
{
	(void)s;
	health_seen = r != NULL ? *r : (struct run_report){0};
}

void pool_ready(struct server *s, struct worker *w, const struct run_report *r)
{
	(void)s;
	(void)r;
	w->seat.waits = true;
}

void pool_lost(struct server *s, struct worker *w, const struct run_report *r)
{
	(void)s;
	(void)w;
	(void)r;
	lost++;
}

void pool_poke(struct server *s, uint64_t delay_us)
{
	(void)s;
	(void)delay_us;
}

void health_note_network(struct server *s, const struct run_report *r,
    uint64_t begun_us, bool was_run)
{
	(void)s;
	(void)r;
	(void)begun_us;
	(void)was_run;
}

void health_doubt(struct server *s)
{
	(void)s;
	doubts++;
}

/* No run here is a session's. */
int workspaces_step(
    struct server *s, const struct turn *t, struct step *ret, struct err *e)
{
	(void)s;
	(void)t;
	(void)ret;
	return err_set(e, ERR_INTERNAL, EINVAL, "no session");
}

void workspaces_step_begins(
    struct server *s, struct turn *from, struct turn *to)
{
	(void)s;
	(void)from;
	(void)to;
}

void workspaces_step_ends(struct server *s, struct turn *t)
{
	(void)s;
	assert_null(t->things[0]);
}

void workspaces_turn_end(struct server *s, struct turn *t)
{
	(void)s;
	(void)t;
}

void workspaces_drop_spare(struct server *s, const char *name)
{
	(void)s;
	(void)name;
}

void kernels_report(
    struct server *s, struct worker *w, const struct run_report *r)
{
	(void)s;
	(void)w;
	(void)r;
}

void kernels_lost(
    struct server *s, struct worker *w, const struct run_report *r)
{
	(void)s;
	(void)w;
	(void)r;
}

bool workspaces_reaped(struct server *s, pid_t pid, int status)
{
	(void)s;
	(void)pid;
	(void)status;
	return false;
}

void workspaces_close_lock(const struct server *s)
{
	(void)s;
}

/* ---- the tests ---------------------------------------------------------- */

static int setup(void **state)
{
	struct server *s = calloc(1, sizeof *s);

	assert_non_null(s);
	s->listen.fd = s->signal.fd = s->lock_fd = -1;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->begun_us = 0x5000;
	TAILQ_INIT(&s->clients);
	TAILQ_INIT(&s->workers);
	admit_init(&s->admit, 2, 0, 0);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct server *s = *state;

	(void)close(s->epoll_fd);
	free(s);
	return 0;
}

static void reap_all(struct server *s)
{
	for (int i = 0; i < 2000 && !TAILQ_EMPTY(&s->workers); i++) {
		worker_reap(s);
		(void)usleep(5000);
	}
	assert_true(TAILQ_EMPTY(&s->workers));
}

static void start_probe(struct server *s)
{
	struct err e;

	assert_int_equal(worker_probe(s, NULL, &e), 0);
}

/* The report counts although its supervisor is gone before the loop read it. */
static void test_report_is_not_lost(void **state)
{
	struct server *s = *state;

	start_probe(s);
	reap_all(s);
	assert_int_equal(health_seen.end, RUN_END_EXIT);
	assert_int_equal(health_seen.boot_us, 7);
}

/* A child that was forked meanwhile holds a copy of the control socket until it
 * has closed what is the loop's: no event may point to the worker by then. */
static void test_no_event_of_a_freed_worker(void **state)
{
	struct server *s = *state;
	struct epoll_event ev;
	int copy;

	start_probe(s);
	copy = dup(TAILQ_FIRST(&s->workers)->source.fd);
	assert_true(copy >= 0);
	reap_all(s);
	assert_int_equal(epoll_wait(s->epoll_fd, &ev, 1, 0), 0);
	(void)close(copy);
}

/* Stopped, it would never end; its slot comes back all the same. */
static void test_who_hangs_is_killed(void **state)
{
	struct server *s = *state;
	const struct worker *w;

	hanging = true;
	start_probe(s);
	hanging = false;
	w = TAILQ_FIRST(&s->workers);
	assert_true(worker_deadline_us(s) == w->deadline_us);
	worker_timeouts(s, w->deadline_us - 1);
	assert_true(w->deadline_us != UINT64_MAX);
	worker_timeouts(s, w->deadline_us);
	assert_true(worker_deadline_us(s) == UINT64_MAX);
	reap_all(s); /* its janitor, too */
	assert_int_equal(health_seen.end, RUN_END_NONE);
}

static void test_no_leaf_name_comes_twice(void **state)
{
	struct server *s = *state;
	char first[sizeof leaf_name];

	start_probe(s);
	(void)memcpy(first, leaf_name, sizeof first);
	start_probe(s);
	assert_string_not_equal(leaf_name, first);
	reap_all(s);

	/* the runner begins anew */
	s->leaf_serial = 0;
	s->begun_us++;
	start_probe(s);
	assert_string_not_equal(leaf_name, first);
	reap_all(s);
	assert_int_equal(doubts, 0);
}

static struct worker *start_ahead(struct server *s)
{
	struct run_order order = {.client_fd = -1};
	struct worker *w;
	struct err e;

	assert_int_equal(worker_ahead(s, &order, &w, &e), 0);
	for (int i = 0; i < 2000 && !w->seat.waits; i++) {
		worker_event(s, w);
		(void)usleep(1000);
	}
	assert_true(w->seat.waits);
	return w;
}

/* What the runner writes there its supervisor reads, and no other child. */
static void test_mailbox_is_for_one(void **state)
{
	struct server *s = *state;
	const struct worker *w = start_ahead(s);
	int status;
	pid_t pid;

	w->seat.mailbox[0] = 'j';
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		_exit(w->seat.mailbox[0]);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	assert_int_equal(send(w->source.fd, "c", 1, 0), 1);
	lost = 0;
	reap_all(s);
	assert_int_equal(lost, 1); /* by itself, not let go */
}

static void test_let_go(void **state)
{
	struct server *s = *state;
	struct worker *w = start_ahead(s);

	w->deadline_us = UINT64_MAX;
	worker_let_go(w);
	assert_int_equal(w->kind, WORKER_DROPPED);
	assert_true(worker_deadline_us(s) != UINT64_MAX);
	lost = 0;
	reap_all(s);
	assert_int_equal(lost, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		test_report_is_not_lost, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_no_event_of_a_freed_worker, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_who_hangs_is_killed, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_no_leaf_name_comes_twice, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_mailbox_is_for_one, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_let_go, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
