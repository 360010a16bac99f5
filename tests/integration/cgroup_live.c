/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroup layer against this host's kernel, v1 or v2. Run it as an
 * unprivileged user in a delegated, capped subtree of its own:
 *
 *	tools/isobox-cgroup exec NAME --user isobox --memory 512M -- \
 *	    setpriv --reuid isobox --clear-groups build/integration/cgroup_live 512
 *
 * The argument is the cap in MiB, or "none" for a subtree without one that
 * counts; a cap at or over the host's memory must be refused. A second argument
 * picks tests by a shell pattern.
 * LINK: runner/cgroup*.c tests/integration/cgroup_jobs.c
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/cgroup_ops.h"
#include "tests/integration/cgroup_jobs.h"

#define MIB (1ull << 20)
#define END_MS 10000

struct live {
	struct cgroup *cg;
	uint64_t cap_bytes; /* 0: none */
	bool cap_is_good;
};

static struct err e;

static double now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void must(int rc)
{
	if (rc < 0)
		fail_msg("%d: %s", rc, e.msg);
}

static struct leaf *new_leaf(void **state, const char *name)
{
	struct live *t = *state;
	struct leaf *l = NULL;

	must(leaf_create(t->cg, name, &l, &e));
	must(leaf_set_memory(l, 64 * MIB, &e));
	must(leaf_set_pids(l, 200, &e));
	must(leaf_set_cpu(l, 1000, &e));
	return l;
}

/* A process in the leaf that runs job() and exits with its value. */
static pid_t start(const struct leaf *l, int (*job)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		if (leaf_enter(l) < 0)
			_exit(111);
		_exit(job());
	}
	assert_true(pid > 0);
	return pid;
}

static int status_of(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void until_procs(const struct leaf *l, int least)
{
	for (int i = 0; i < 1000; i++) {
		if (cgroup_signal(leaf_dir(l, CGROUP_PIDS), 0) >= least)
			return;
		(void)usleep(5000);
	}
	fail_msg("never %d processes in the leaf", least);
}

static void text_is(const struct leaf *l, enum cgroup_ctl ctl, const char *file,
    const char *want)
{
	char text[128];

	if (cgroup_read(leaf_dir(l, ctl), file, text, sizeof(text)) < 0)
		fail_msg("cannot read %s", file);
	assert_string_equal(text, want);
}

/* Whether the group of the leaf is still there, in any hierarchy. */
static bool exists(const struct live *t, const char *name)
{
	for (unsigned i = 0; i < t->cg->ndir; i++)
		if (faccessat(t->cg->dir[i], name, F_OK, 0) == 0)
			return true;
	return false;
}

/* ---- tests ------------------------------------------------------------ */

static void runner_is_in_main(void **state)
{
	struct live *t = *state;
	char text[4096];
	size_t len = 0;
	const char *path;
	int dir = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(cgroup_read(dir, "cgroup", text, sizeof(text)) > 0);
	(void)close(dir);
	for (unsigned i = 0; i < CGROUP_CTL_COUNT; i++) {
		static const char *const v1[] = {"memory", "pids", "cpu"};

		path = cgroup_parse_self(
		    text, t->cg->ops->clone_into ? "" : v1[i], &len);
		assert_non_null(path);
		assert_int_equal(len, strlen(t->cg->path) + 5);
		assert_memory_equal(path, t->cg->path, len - 5);
		assert_memory_equal(path + len - 5, "/main", 5);
	}
}

static void opened_by_its_path(void **state)
{
	struct live *t = *state;
	struct cgroup *again = NULL;

	must(cgroup_open(t->cg->path, &again, &e));
	assert_string_equal(again->path, t->cg->path);
	cgroup_close(again);

	assert_int_equal(cgroup_open("/no-such-subtree", &again, &e), -ENOENT);
	print_message("absent: %s\n", e.msg);
	assert_int_equal(cgroup_open("../x", &again, &e), -EINVAL);
	print_message("relative: %s\n", e.msg);
	assert_true(cgroup_open("/", &again, &e) < 0);
	print_message("root: %s\n", e.msg);
}

static void cap_is_told(void **state)
{
	struct live *t = *state;
	int rc = cgroup_check_cap(t->cg, &e);

	if (t->cap_is_good) {
		must(rc);
	} else {
		assert_int_equal(rc, -EPERM);
		assert_int_equal(e.kind, ERR_SANDBOX_FAILED);
		print_message("bad cap: %s\n", e.msg);
	}
	assert_true(cgroup_memory_cap(t->cg) == t->cap_bytes);
}

static void cap_is_not_ours(void **state)
{
	struct live *t = *state;
	int dir = t->cg->dir[t->cg->of[CGROUP_MEMORY]];

	if (!t->cap_is_good)
		skip();
	assert_int_equal(
	    cgroup_write(dir, t->cg->ops->memory_max, "999999999"), -EACCES);
}

/* A cap that we could lift is none: a leaf of ours stands for the subtree. */
static void own_cap_is_none(void **state)
{
	struct live *t = *state;
	struct leaf *l = new_leaf(state, "own-cap");
	struct cgroup fake = *t->cg;

	fake.dir[fake.of[CGROUP_MEMORY]] = leaf_dir(l, CGROUP_MEMORY);
	/* what stands above counts still */
	assert_true(cgroup_memory_cap(&fake) == t->cap_bytes);
	if (t->cap_bytes == 0) {
		assert_int_equal(cgroup_check_cap(&fake, &e), -EPERM);
		print_message("own cap: %s\n", e.msg);
	}
	must(leaf_destroy(l, END_MS, &e));
}

static void limits_are_written(void **state)
{
	struct live *t = *state;
	struct leaf *l = new_leaf(state, "limits");
	bool v2 = t->cg->ops->clone_into;

	text_is(l, CGROUP_MEMORY, t->cg->ops->memory_max, "67108864\n");
	text_is(l, CGROUP_PIDS, "pids.max", "200\n");
	if (v2) {
		text_is(l, CGROUP_CPU, "cpu.max", "100000 100000\n");
		text_is(l, CGROUP_MEMORY, "memory.oom.group", "1\n");
	} else {
		text_is(l, CGROUP_CPU, "cpu.cfs_quota_us", "100000\n");
		text_is(l, CGROUP_CPU, "cpu.cfs_period_us", "100000\n");
		text_is(l, CGROUP_MEMORY, "memory.swappiness", "0\n");
	}
	/* both ways */
	must(leaf_set_memory(l, 128 * MIB, &e));
	text_is(l, CGROUP_MEMORY, t->cg->ops->memory_max, "134217728\n");
	must(leaf_set_memory(l, 32 * MIB, &e));
	text_is(l, CGROUP_MEMORY, t->cg->ops->memory_max, "33554432\n");
	if (faccessat(
		leaf_dir(l, CGROUP_MEMORY), t->cg->ops->swap_max, F_OK, 0) == 0)
		text_is(l, CGROUP_MEMORY, t->cg->ops->swap_max,
		    v2 ? "0\n" : "33554432\n");
	must(leaf_set_cpu(l, 250, &e));
	text_is(l, CGROUP_CPU, v2 ? "cpu.max" : "cpu.cfs_quota_us",
	    v2 ? "25000 100000\n" : "25000\n");
	assert_int_equal(leaf_set_cpu(l, 0, &e), -EINVAL);
	assert_true((leaf_clone_fd(l) >= 0) == v2);
	must(leaf_destroy(l, END_MS, &e));
	assert_false(exists(t, "run-limits"));
}

/* A second leaf of a name is refused and the first is left alone. */
static void name_taken(void **state)
{
	struct live *t = *state;
	struct leaf *l = new_leaf(state, "twice"), *second = NULL;
	pid_t pid = start(l, job_sleep);

	until_procs(l, 1);
	assert_int_equal(leaf_create(t->cg, "twice", &second, &e), -EEXIST);
	assert_int_equal(leaf_create(t->cg, "../x", &second, &e), -EINVAL);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	must(leaf_destroy(l, END_MS, &e));
	assert_int_equal(WTERMSIG(status_of(pid)), SIGKILL);
}

/* Of a leaf that cannot be made for want of descriptors nothing is left. */
static void without_descriptors(void **state)
{
	struct live *t = *state;
	const int next = dup(STDIN_FILENO);
	unsigned failures = 0;
	struct rlimit old, few;

	assert_true(next >= 0 && close(next) == 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (unsigned room = 0; room < 2 * CGROUP_CTL_COUNT; room++) {
		struct leaf *l = NULL;
		int rc;

		few = (struct rlimit){(rlim_t)next + room, old.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		rc = leaf_create(t->cg, "few", &l, &e);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		if (rc < 0)
			failures++;
		else
			must(leaf_destroy(l, END_MS, &e));
		assert_int_equal(cgroup_sweep(t->cg, &e), 0);
	}
	assert_true(failures > 0);
}

static void oom_is_noticed(void **state)
{
	struct leaf *l = new_leaf(state, "oom");
	struct pollfd p = {.fd = leaf_oom_fd(l, &p.events)};
	double begun;
	int64_t kills;
	pid_t pid;

	assert_true(p.fd >= 0);
	assert_int_equal(leaf_oom_fd(l, &p.events), p.fd);
	assert_int_equal(leaf_oom_kills(l), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(status_of(start(l, job_modest)), 0);
	assert_int_equal(leaf_oom_kills(l), 0);
	assert_false(leaf_limit_met(l));
	assert_true(leaf_memory_now(l) >= 0);

	begun = now_ms();
	pid = start(l, job_hog);
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_true((p.revents & p.events) != 0);
	/* v2 tells of each time the limit was met, v1 before it kills */
	while ((kills = leaf_oom_kills(l)) == 0 && now_ms() - begun < 20000)
		(void)poll(&p, 1, 10);
	print_message("oom: told after %.1f ms, %lld kill(s), peak %lld\n",
	    now_ms() - begun, (long long)kills, (long long)leaf_memory_peak(l));
	/* the kernel counts a victim twice when the whole group goes with it */
	assert_true(kills >= 1);
	assert_int_equal(WTERMSIG(status_of(pid)), SIGKILL);
	assert_true(leaf_oom_kills(l) >= kills);
	assert_true(leaf_limit_met(l));
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_true(leaf_memory_peak(l) <= (int64_t)(64 * MIB));
	must(leaf_destroy(l, END_MS, &e));
}

/* One leaf's memory is no other's business. */
static void oom_is_not_the_neighbours(void **state)
{
	struct leaf *a = new_leaf(state, "a"), *b = new_leaf(state, "b");
	short events;
	pid_t pid = start(b, job_sleep);

	assert_true(leaf_oom_fd(b, &events) >= 0);
	until_procs(b, 1);
	assert_int_equal(WTERMSIG(status_of(start(a, job_hog))), SIGKILL);
	assert_true(leaf_oom_kills(a) >= 1);
	assert_int_equal(leaf_oom_kills(b), 0);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	must(leaf_destroy(a, END_MS, &e));
	must(leaf_destroy(b, END_MS, &e));
	(void)status_of(pid);
}

/* The subtree is full, the leaf is not: the kill in it is not the program's. */
static void oom_from_above_is_told_apart(void **state)
{
	struct live *t = *state;
	struct leaf *l;

	if (!t->cap_is_good)
		skip();
	l = new_leaf(state, "above");
	must(leaf_set_memory(l, 4 * t->cap_bytes, &e));
	assert_int_equal(WTERMSIG(status_of(start(l, job_flood))), SIGKILL);
	assert_true(leaf_oom_kills(l) >= 1);
	assert_false(leaf_limit_met(l));
	must(leaf_destroy(l, END_MS, &e));
}

static void pids_are_limited(void **state)
{
	struct leaf *l = new_leaf(state, "pids");
	int status;

	must(leaf_set_pids(l, 20, &e));
	status = status_of(start(l, job_count_forks));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 19);
	assert_int_equal(leaf_kill(l, END_MS), 0);
	assert_int_equal(cgroup_signal(leaf_dir(l, CGROUP_PIDS), 0), 0);
	must(leaf_destroy(l, END_MS, &e));
}

static void kill_and_time(struct leaf *l, const char *what, double most_ms)
{
	int n = cgroup_signal(leaf_dir(l, CGROUP_PIDS), 0);
	double begun = now_ms(), took;

	assert_int_equal(leaf_kill(l, END_MS), 0);
	took = now_ms() - begun;
	assert_int_equal(cgroup_signal(leaf_dir(l, CGROUP_PIDS), 0), 0);
	print_message("kill: %s, %d processes, %.1f ms\n", what, n, took);
	assert_true(took < most_ms);
}

static void fork_bomb_dies(void **state)
{
	struct leaf *l = new_leaf(state, "bomb");
	pid_t pid = start(l, job_fork_bomb);

	until_procs(l, 150);
	kill_and_time(l, "fork bomb", END_MS);
	(void)status_of(pid);
	must(leaf_destroy(l, END_MS, &e));
}

/* Under a hundredth of a CPU a killed process would wait for its turn to die. */
static void throttled_dies(void **state)
{
	struct leaf *l = new_leaf(state, "slow");
	pid_t pids[20];

	for (unsigned i = 0; i < 20; i++)
		pids[i] = start(l, job_spin);
	until_procs(l, 20);
	must(leaf_set_cpu(l, 10, &e));
	(void)usleep(300000);
	kill_and_time(l, "throttled", END_MS);
	for (unsigned i = 0; i < 20; i++)
		(void)status_of(pids[i]);
	must(leaf_destroy(l, END_MS, &e));
}

static void stopped_dies(void **state)
{
	struct leaf *l = new_leaf(state, "stopped");
	pid_t pid = start(l, job_sleep);
	int status;

	until_procs(l, 1);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	kill_and_time(l, "stopped", END_MS);
	(void)status_of(pid);
	must(leaf_destroy(l, END_MS, &e));
}

static void clone_into(void **state)
{
	struct leaf *l = new_leaf(state, "clone");
	struct clone_args args = {
	    .flags = CLONE_INTO_CGROUP,
	    .exit_signal = SIGCHLD,
	    .cgroup = (uint64_t)(unsigned)leaf_clone_fd(l),
	};
	long pid;

	if (leaf_clone_fd(l) < 0) {
		must(leaf_destroy(l, END_MS, &e));
		skip();
	}
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		_exit(job_sleep());
	assert_true(pid > 0);
	assert_int_equal(cgroup_signal(leaf_dir(l, CGROUP_PIDS), 0), 1);
	must(leaf_destroy(l, END_MS, &e));
	(void)status_of((pid_t)pid);
}

/* What cannot be removed in time stays, says so, and goes with the next sweep. */
static void destroy_in_no_time(void **state)
{
	struct live *t = *state;
	struct leaf *l = new_leaf(state, "late");
	pid_t pid = start(l, job_fork_bomb);
	int rc;

	until_procs(l, 100);
	rc = leaf_destroy(l, 0, &e);
	if (rc < 0) {
		assert_int_equal(rc, -EBUSY);
		print_message("late: %s\n", e.msg);
		assert_true(exists(t, "run-late"));
	}
	must(cgroup_sweep(t->cg, &e));
	assert_false(exists(t, "run-late"));
	(void)status_of(pid);
}

/* A life of the runner that ends by SIGKILL with a sandbox at work. */
static void sweep_after_a_crash(void **state)
{
	struct live *t = *state;
	pid_t life = fork();
	double begun;
	int swept;

	if (life == 0) {
		struct cgroup *cg;
		struct leaf *l;

		if (cgroup_open(NULL, &cg, &e) < 0 ||
		    leaf_create(cg, "left-1", &l, &e) < 0 ||
		    leaf_set_pids(l, 200, &e) < 0)
			_exit(1);
		(void)start(l, job_fork_bomb);
		(void)usleep(200000);
		if (leaf_create(cg, "left-2", &l, &e) < 0)
			_exit(1);
		(void)start(l, job_sleep);
		(void)usleep(50000);
		(void)raise(SIGKILL);
	}
	assert_int_equal(WTERMSIG(status_of(life)), SIGKILL);
	assert_true(exists(t, "run-left-1") && exists(t, "run-left-2"));
	/* half made, and what is not ours */
	assert_int_equal(mkdirat(t->cg->dir[0], "run-half", 0755), 0);
	assert_int_equal(mkdirat(t->cg->dir[0], "keep", 0755), 0);
	assert_int_equal(mkdirat(t->cg->dir[0], "run-no leaf", 0755), 0);

	begun = now_ms();
	swept = cgroup_sweep(t->cg, &e);
	must(swept);
	print_message("sweep: %d leaves, %.1f ms\n", swept, now_ms() - begun);
	assert_int_equal(swept, 3);
	assert_false(exists(t, "run-left-1") || exists(t, "run-left-2") ||
		     exists(t, "run-half"));
	assert_true(
	    exists(t, "main") && exists(t, "keep") && exists(t, "run-no leaf"));
	assert_int_equal(unlinkat(t->cg->dir[0], "keep", AT_REMOVEDIR), 0);
	assert_int_equal(
	    unlinkat(t->cg->dir[0], "run-no leaf", AT_REMOVEDIR), 0);
	assert_int_equal(cgroup_sweep(t->cg, &e), 0);
}

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d) != NULL)
		n++;
	(void)closedir(d);
	return n;
}

static void nothing_leaks(void **state)
{
	struct live *t = *state;
	unsigned before = count_fds();
	double begun = now_ms();

	for (unsigned i = 0; i < 50; i++) {
		struct leaf *l = new_leaf(state, "leak");
		short events;

		assert_true(leaf_oom_fd(l, &events) >= 0);
		assert_int_equal(status_of(start(l, job_nothing)), 0);
		must(leaf_destroy(l, END_MS, &e));
	}
	print_message(
	    "leaf: %.2f ms from making to removing\n", (now_ms() - begun) / 50);
	assert_int_equal(count_fds(), before);
	assert_false(exists(t, "run-leak"));
}

/* A failed test leaves nothing for the next one. */
static int sweep(void **state)
{
	struct live *t = *state;

	return cgroup_sweep(t->cg, &e) < 0 ? -1 : 0;
}

#define LIVE(test) \
	cmocka_unit_test_prestate_setup_teardown(test, NULL, sweep, &t)

int main(int argc, char **argv)
{
	static struct live t;
	const struct CMUnitTest tests[] = {
	    LIVE(runner_is_in_main),
	    LIVE(opened_by_its_path),
	    LIVE(cap_is_told),
	    LIVE(cap_is_not_ours),
	    LIVE(own_cap_is_none),
	    LIVE(limits_are_written),
	    LIVE(name_taken),
	    LIVE(without_descriptors),
	    LIVE(oom_is_noticed),
	    LIVE(oom_is_not_the_neighbours),
	    LIVE(oom_from_above_is_told_apart),
	    LIVE(pids_are_limited),
	    LIVE(fork_bomb_dies),
	    LIVE(throttled_dies),
	    LIVE(stopped_dies),
	    LIVE(clone_into),
	    LIVE(destroy_in_no_time),
	    LIVE(sweep_after_a_crash),
	    LIVE(nothing_leaks),
	};
	struct sysinfo host;
	int failed;

	if (argc < 2 || argc > 3 || sysinfo(&host) < 0) {
		(void)fprintf(
		    stderr, "usage: cgroup_live CAP_MIB|none [PATTERN]\n");
		return 2;
	}
	if (argc == 3)
		cmocka_set_test_filter(argv[2]);
	t.cap_bytes = strtoull(argv[1], NULL, 10) * MIB;
	t.cap_is_good = t.cap_bytes > 0 &&
			t.cap_bytes < (uint64_t)host.totalram * host.mem_unit;
	if (cgroup_open(NULL, &t.cg, &e) < 0) {
		(void)fprintf(stderr, "cgroup_live: %s\n", e.msg);
		return 1;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cgroup_close(t.cg);
	return failed;
}
