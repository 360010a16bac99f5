/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the quota's watch counts, and the ledger that it writes into.
 *
 * LINK: runner/quota.o runner/quota_count.o runner/quota_pace.o runner/ws_walk.o
 * LINK: runner/ws_ledger.o runner/ws_dir.o
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/quota_int.h"
#include "runner/ws_ledger.h"
#include "tests/unit/valgrind.h"

#define MIB (1ull << 20)

static pid_t in_leaf[8];
static int in_leaf_count;

int leaf_pids(const struct leaf *l, pid_t *ret, size_t max)
{
	(void)l;
	assert_true((size_t)in_leaf_count <= max);
	memcpy(ret, in_leaf, sizeof in_leaf);
	return in_leaf_count;
}

int leaf_set_cpu(struct leaf *l, uint32_t cpus_milli, struct err *e)
{
	(void)l;
	(void)cpus_milli;
	(void)e;
	return 0;
}

static const struct quota_state at_rest = {.then = {.free_bytes = 1000 * MIB,
					       .free_files = 1000000,
					       .written_bytes = 77 * MIB,
					       .now_us = 1000000},
    .cost_us = 100,
    .room_bytes = 100 * MIB,
    .room_files = 10000};

/* So much less is free, so much more was written, so much later. */
static enum quota_verdict after(
    uint64_t gone, uint64_t written, uint64_t files, uint64_t us)
{
	struct quota_signal now = at_rest.then;

	now.free_bytes -= gone;
	now.written_bytes += written;
	now.free_files -= files;
	now.now_us += us;
	return quota_decide(&at_rest, &now);
}

static void nothing_happens(void **state)
{
	(void)state;
	assert_int_equal(after(0, 0, 0, 10000), QUOTA_WAIT);
	assert_int_equal(after(MIB, MIB, 10, 10000), QUOTA_WAIT);
}

static void every_now_and_then(void **state)
{
	struct quota_state s = at_rest;
	struct quota_signal now = s.then;

	(void)state;
	assert_int_equal(after(0, 0, 0, 20000), QUOTA_COUNT);
	/* What costs more is done less often. */
	s.cost_us = 100000;
	now.now_us += 1000000;
	assert_int_equal(quota_decide(&s, &now), QUOTA_WAIT);
	now.now_us += 1000000;
	assert_int_equal(quota_decide(&s, &now), QUOTA_COUNT);
}

static void something_is_written(void **state)
{
	(void)state;
	assert_int_equal(after(4 * MIB, 0, 0, 1000), QUOTA_COUNT);
	assert_int_equal(after(0, 4 * MIB, 0, 1000), QUOTA_COUNT);
	assert_int_equal(after(0, 0, 2000, 1000), QUOTA_COUNT);
	assert_int_equal(after(4 * MIB, 0, 0, 100), QUOTA_WAIT);
}

/* Then there is no waiting, whatever it costs. */
static void it_may_be_over(void **state)
{
	(void)state;
	assert_int_equal(after(109 * MIB, 0, 0, 0), QUOTA_FREEZE);
	assert_int_equal(after(0, 109 * MIB, 0, 0), QUOTA_FREEZE);
	assert_int_equal(after(0, 0, 15001, 0), QUOTA_FREEZE);
	assert_int_equal(after(101 * MIB, 0, 0, 1000), QUOTA_COUNT);
}

static void space_may_come_back(void **state)
{
	struct quota_signal now = at_rest.then;

	(void)state;
	now.free_bytes += 500 * MIB;
	now.free_files += 5;
	now.written_bytes = 0; /* a process is gone */
	assert_int_equal(quota_decide(&at_rest, &now), QUOTA_WAIT);
	now.written_bytes = at_rest.then.written_bytes + 300 * MIB;
	assert_int_equal(quota_decide(&at_rest, &now), QUOTA_FREEZE);
}

/* A step that wrote so much so long after the look before. */
static bool too_fast(
    struct quota_pace *p, struct quota_signal *now, uint64_t bytes, uint64_t us)
{
	now->written_bytes += bytes;
	now->now_us += us;
	return quota_too_fast(p, &at_rest, now);
}

static void what_cannot_get_too_far_keeps_its_pace(void **state)
{
	struct quota_signal now = at_rest.then;
	struct quota_pace p = {now.written_bytes, now.now_us, 0, false};

	(void)state;
	/* 300 MB a second: 30 until a late look, of 100 and what is spare. */
	for (int i = 0; i < 30; i++)
		assert_false(too_fast(&p, &now, 3 * MIB, 10000));
	/* One write is no pace. */
	assert_false(too_fast(&p, &now, 3 * MIB, 100));
}

static void what_could_get_too_far_is_slowed(void **state)
{
	struct quota_signal now = at_rest.then;
	struct quota_pace p = {now.written_bytes, now.now_us, 0, false};

	(void)state;
	assert_false(too_fast(&p, &now, 11 * MIB, 10000));
	assert_true(too_fast(&p, &now, 14 * MIB, 10000));
	/* Slow, it writes a tenth of the time, which is no reason to let it go. */
	for (int i = 0; i < 30; i++)
		assert_true(
		    too_fast(&p, &now, i % 10 == 9 ? 14 * MIB : 0, 10000));
	/* That it writes no more, or little, is. */
	for (int i = 0; i < 60; i++)
		(void)too_fast(&p, &now, i % 20 == 9 ? MIB / 8 : 0, 10000);
	assert_false(too_fast(&p, &now, MIB / 8, 10000));
}

/* What it has written is no longer missing, but it stood still meanwhile. */
static void a_count_does_not_let_it_go(void **state)
{
	struct quota_signal now = at_rest.then;
	struct quota_pace p = {now.written_bytes, now.now_us, 0, false};
	struct quota_state s = at_rest;

	(void)state;
	s.room_bytes = 10 * MIB;
	assert_true(too_fast(&p, &now, 14 * MIB, 10000));
	now.now_us += 50000;
	s.then = now;
	assert_true(quota_too_fast(&p, &s, &s.then));
}

static void room_lets_it_go(void **state)
{
	struct quota_signal now = at_rest.then;
	struct quota_pace p = {now.written_bytes, now.now_us, 0, false};
	struct quota_state more = at_rest;

	(void)state;
	assert_true(too_fast(&p, &now, 14 * MIB, 10000));
	more.room_bytes = 500 * MIB;
	now.now_us += 10000;
	assert_false(quota_too_fast(&p, &more, &now));
}

/* A process that has a child, which has one, too; all end with it. */
static pid_t start_line(pid_t ret[2])
{
	int fds[2];
	pid_t first;

	assert_int_equal(pipe(fds), 0);
	first = fork();
	if (first == 0) {
		pid_t mine = fork();

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (mine == 0 && (mine = fork()) != 0)
			(void)!write(fds[1], (pid_t[]){getpid(), mine},
			    2 * sizeof(pid_t));
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)pause();
	}
	assert_int_equal(
	    read(fds[0], ret, 2 * sizeof *ret), 2 * (ssize_t)sizeof *ret);
	(void)close(fds[0]);
	(void)close(fds[1]);
	return first;
}

/* Wherever they are in the list: pids begin again at the least. */
static void runscs_children_are_the_writers(void **state)
{
	struct quota_order o = {0};
	struct watch *w;
	struct err e;
	pid_t others[2], runsc;

	(void)state;
	skip_under_valgrind(); /* pidfd_open */
	w = calloc(1, sizeof *w);
	assert_non_null(w);
	runsc = start_line(others);
	w->order = &o;
	o.sandbox = runsc;
	in_leaf_count = 3;
	in_leaf[0] = others[1]; /* a stub */
	in_leaf[1] = others[0]; /* the sentry */
	in_leaf[2] = runsc;
	assert_int_equal(quota_find_writers(w, &e), 1);
	assert_int_equal(w->writers[0].pid, others[0]);
	(void)close(w->writers[0].pidfd);

	/* Not yet there, and never. */
	w->writer_count = 0;
	in_leaf_count = 0;
	assert_int_equal(quota_find_writers(w, &e), -ESRCH);
	/* It has ended, nobody has waited for it. */
	(void)kill(runsc, SIGKILL);
	assert_int_equal(
	    waitid(P_PID, (id_t)runsc, NULL, WEXITED | WNOWAIT), 0);
	assert_int_equal(quota_find_writers(w, &e), 0);
	assert_int_equal(waitpid(runsc, NULL, 0), runsc);
	assert_int_equal(quota_find_writers(w, &e), 0);
	free(w);
}

static void over_already(void **state)
{
	(void)state;
	assert_true(quota_limit(100, 50) == 100);
	assert_true(quota_limit(100, 100) == 100);
	assert_true(quota_limit(100, 130) == 130);
}

static void a_count_is_good_until_something_happens(void **state)
{
	struct ws_account a;
	struct ws_usage u = {4096, 2};

	(void)state;
	ws_account_reset(&a);
	assert_false(ws_account_good(&a));
	ws_account_set(&a, atomic_load(&a.state), &u);
	assert_true(ws_account_good(&a));
	ws_account_doubt(&a);
	assert_false(ws_account_good(&a));

	/* Counted across the begin of a step, or within it: not good. */
	ws_account_set(&a, atomic_load(&a.state), &u);
	assert_true(ws_account_good(&a));
	ws_account_step_begins(&a);
	assert_false(ws_account_good(&a));
	ws_account_set(&a, 0, &u);
	assert_false(ws_account_good(&a));
	ws_account_set(&a, atomic_load(&a.state), &u);
	assert_false(ws_account_good(&a));
	ws_account_doubt(&a);
	ws_account_step_ends(&a);
	assert_false(ws_account_good(&a));
	ws_account_set(&a, atomic_load(&a.state), &u);
	assert_true(ws_account_good(&a));
}

static void the_ledger_is_shared(void **state)
{
	struct ws_ledger l;
	struct err e;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(ws_ledger_open(10, 4, &l, &e), 0);
	pid = fork();
	if (pid == 0) {
		atomic_store(&l.accounts[3].bytes, 100);
		atomic_store(&l.claims[1].account, 3);
		atomic_store(&l.claims[1].bytes, 11);
		atomic_store(&l.claims[2].bytes, 5);
		atomic_store(&l.accounts[4].saved, 1000);
		atomic_store(&l.accounts[4].saving, 2000);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(ws_ledger_claimed(&l, 3) == 11);
	assert_true(ws_ledger_promised(&l) == 2016);
	assert_true(ws_ledger_total(&l) == 3116);
	ws_account_reset(&l.accounts[4]);
	assert_true(ws_ledger_total(&l) == 116);
	ws_ledger_close(&l);
	assert_null(l.accounts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_happens),
	    cmocka_unit_test(every_now_and_then),
	    cmocka_unit_test(something_is_written),
	    cmocka_unit_test(it_may_be_over),
	    cmocka_unit_test(space_may_come_back),
	    cmocka_unit_test(what_cannot_get_too_far_keeps_its_pace),
	    cmocka_unit_test(what_could_get_too_far_is_slowed),
	    cmocka_unit_test(a_count_does_not_let_it_go),
	    cmocka_unit_test(room_lets_it_go),
	    cmocka_unit_test(runscs_children_are_the_writers),
	    cmocka_unit_test(over_already),
	    cmocka_unit_test(a_count_is_good_until_something_happens),
	    cmocka_unit_test(the_ledger_is_shared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
