/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINK: -Wl,--wrap=syscall
 */
#include "lib/harden.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/scratch.h"
#include "tests/unit/valgrind.h"

/* Hardening cannot be taken back: each test does it in a child, whose checks are
 * plain ifs. The child's line number comes back when one fails. */
#define CHECK(cond)                      \
	do {                             \
		if (!(cond))             \
			return __LINE__; \
	} while (0)

static struct scratch tmp;
static int fail_number; /* the system call to fail, 0 = none */
static int fail_errno;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

/* Landlock's calls have at most four arguments. */
long __wrap_syscall(long number, ...)
{
	va_list ap;
	long arg[4];

	if (number == fail_number) {
		errno = fail_errno;
		return -1;
	}
	va_start(ap, number);
	for (size_t i = 0; i < ARRAY_LEN(arg); i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	return __real_syscall(number, arg[0], arg[1], arg[2], arg[3]);
}

static int set_up(void **state)
{
	(void)state;
	scratch_make(&tmp);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	scratch_remove(&tmp);
	return 0;
}

/* A child's exit status is a byte: the line goes through a pipe. */
static void run_child(int (*body)(void))
{
	int fds[2];
	int line = -1;
	int status;
	pid_t pid;

	skip_under_valgrind();
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		line = body();
		(void)!write(fds[1], &line, sizeof(line));
		_exit(0);
	}
	(void)close(fds[1]);
	(void)!read(fds[0], &line, sizeof(line));
	(void)close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	if (line != 0)
		fail_msg("the check of line %d failed", line);
}

static int process_body(void)
{
	struct rlimit lim = {64, 300};
	struct err e = {0};
	int fds[2];
	mode_t mask;

	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	CHECK(pipe(fds) == 0);
	CHECK(close(fds[0]) == 0);
	CHECK(harden_process(200, &e) == 0);
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	CHECK(lim.rlim_cur == 200 && lim.rlim_max == 300);
	CHECK(getrlimit(RLIMIT_CORE, &lim) == 0);
	CHECK(lim.rlim_cur == 0 && lim.rlim_max == 0);
	CHECK(write(fds[1], "x", 1) < 0 && errno == EPIPE);
	mask = umask(0);
	CHECK(mask == 0077);
	/* Up to the hard limit, and never down. */
	CHECK(harden_process(100000, &e) == 0);
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur == 300);
	CHECK(harden_process(10, &e) == 0);
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur == 300);
	return 0;
}

static void process_has_its_marks(void **state)
{
	(void)state;
	run_child(process_body);
}

static bool can_read(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && close(fd) == 0;
}

static bool can_write(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return fd >= 0 && close(fd) == 0;
}

static void *thread_body(void *path)
{
	return can_read(path) ? path : NULL;
}

static char at_buf[5][PATH_MAX];

/* The n-th path below the scratch directory. */
static const char *at(size_t n, const char *name)
{
	(void)snprintf(at_buf[n], PATH_MAX, "%s/%s", tmp.dir, name);
	return at_buf[n];
}

static int make_tree(void)
{
	CHECK(mkdir(at(0, "rw"), 0700) == 0);
	CHECK(mkdir(at(0, "ro"), 0700) == 0);
	CHECK(mkdir(at(0, "no"), 0700) == 0);
	CHECK(can_write(at(0, "ro/file")));
	CHECK(can_write(at(0, "no/file")));
	CHECK(can_write(at(0, "one")));
	CHECK(can_write(at(0, "two")));
	CHECK(symlink("../no/file", at(0, "ro/link")) == 0);
	return 0;
}

static int harden_tree(void)
{
	const struct harden_path paths[] = {
	    {at(0, "rw"), true},
	    {at(1, "ro"), false},
	    {at(2, "one"), true},
	    {at(3, "absent"), true},
	    {at(4, "one/absent"), true},
	};
	struct err e = {0};

	CHECK(harden_files(paths, ARRAY_LEN(paths), &e) == 0);
	return 0;
}

static int files_body(void)
{
	pthread_t t;
	void *result;

	CHECK(make_tree() == 0);
	CHECK(harden_tree() == 0);
	CHECK(can_write(at(0, "rw/new")));
	CHECK(truncate(at(0, "rw/new"), 5) == 0);
	CHECK(mkdir(at(0, "rw/dir"), 0700) == 0);
	CHECK(rename(at(0, "rw/new"), at(1, "rw/dir/new")) == 0);
	CHECK(unlink(at(1, "rw/dir/new")) == 0);
	CHECK(rmdir(at(0, "rw/dir")) == 0);
	CHECK(can_read(at(0, "ro/file")) && can_read(at(0, "ro")));
	CHECK(!can_write(at(0, "ro/file")) && errno == EACCES);
	CHECK(!can_write(at(0, "ro/new")) && errno == EACCES);
	CHECK(unlink(at(0, "ro/file")) < 0 && errno == EACCES);
	CHECK(can_write(at(0, "one")) && can_read(at(0, "one")));
	CHECK(!can_read(at(0, "two")) && errno == EACCES);
	CHECK(!can_read(at(0, "no/file")) && errno == EACCES);
	CHECK(!can_read(at(0, "ro/link")) && errno == EACCES);
	CHECK(!can_read(tmp.dir) && errno == EACCES);
	CHECK(!can_read("/etc/passwd") && errno == EACCES);
	CHECK(symlink("x", at(0, "rw/link")) < 0 && errno == EACCES);
	(void)at(0, "ro/file");
	CHECK(pthread_create(&t, NULL, thread_body, at_buf[0]) == 0);
	CHECK(pthread_join(t, &result) == 0 && result != NULL);
	(void)at(0, "no/file");
	CHECK(pthread_create(&t, NULL, thread_body, at_buf[0]) == 0);
	CHECK(pthread_join(t, &result) == 0 && result == NULL);
	return 0;
}

static void skip_without_landlock(void)
{
	skip_under_valgrind();
	if (syscall(SYS_landlock_create_ruleset, NULL, 0L, 1L, 0L) >= 0)
		return;
	print_message("this kernel has no Landlock\n");
	skip();
}

static void files_are_within_the_paths(void **state)
{
	(void)state;
	skip_without_landlock();
	run_child(files_body);
}

static int without_landlock_body(void)
{
	char line[512] = "";
	int fds[2];

	CHECK(make_tree() == 0);
	CHECK(pipe2(fds, O_NONBLOCK) == 0);
	CHECK(dup2(fds[1], STDERR_FILENO) >= 0);
	CHECK(harden_tree() == 0);
	/* Said, once, and nothing is taken away. */
	CHECK(read(fds[0], line, sizeof(line) - 1) > 0);
	CHECK(strstr(line, "no Landlock") != NULL);
	CHECK(strchr(line, '\n') == line + strlen(line) - 1);
	CHECK(can_read(at(0, "no/file")));
	return 0;
}

static void kernels_without_landlock_are_served(void **state)
{
	static const int codes[] = {ENOSYS, EOPNOTSUPP};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		fail_number = SYS_landlock_create_ruleset;
		fail_errno = codes[i];
		run_child(without_landlock_body);
		fail_number = 0;
		scratch_remove(&tmp);
		scratch_make(&tmp);
	}
}

/* Whatever else fails is an error, never silence. */
static void failures_of_landlock_are_errors(void **state)
{
	static const struct {
		int number;
		int code;
	} cases[] = {
	    {SYS_landlock_create_ruleset, EPERM},
	    {SYS_landlock_add_rule, ENOMEM},
	    {SYS_landlock_restrict_self, E2BIG},
	};
	const struct harden_path path = {tmp.dir, true};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = {0};

		if (i > 0)
			skip_without_landlock();
		fail_number = cases[i].number;
		fail_errno = cases[i].code;
		assert_int_equal(harden_files(&path, 1, &e), -cases[i].code);
		fail_number = 0;
		assert_contains(e.msg, "Landlock");
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(process_has_its_marks),
	    TEST(files_are_within_the_paths),
	    TEST(kernels_without_landlock_are_served),
	    TEST(failures_of_landlock_are_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
