/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/ratelimit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "lib/ratelimit_file.h"
#include "tests/unit/scratch.h"

/* The file between threads, between processes, and after the worst. */

#define THREADS 8u
#define BURST 1000u

static struct scratch tmp;
static char file[PATH_MAX];

static int set_up(void **state)
{
	(void)state;
	scratch_make(&tmp);
	(void)snprintf(file, sizeof(file), "%s", scratch_path(&tmp, "rate"));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	scratch_remove(&tmp);
	return 0;
}

static struct ratelimit *open_file(void)
{
	struct ratelimit *r = NULL;
	struct err e = {0};

	if (ratelimit_open(file, &r, &e) < 0)
		fail_msg("%s", e.msg);
	return r;
}

/* Takes until five refusals came in a row; how often there was a token. */
static unsigned take_all(struct ratelimit *r, uint64_t key)
{
	unsigned got = 0;

	for (unsigned refused = 0; refused < 5;) {
		if (ratelimit_take(r, 0, key, 1, BURST) == 0)
			got++;
		else
			refused++;
	}
	return got;
}

struct work {
	struct ratelimit *r;
	uint64_t key;
	unsigned got;
};

static void *thread(void *arg)
{
	struct work *w = arg;

	w->got = take_all(w->r, w->key);
	return NULL;
}

static void threads_share_one_bucket(void **state)
{
	struct ratelimit *r = open_file();
	struct work work[THREADS];
	pthread_t threads[THREADS];
	unsigned sum = 0;

	(void)state;
	for (size_t i = 0; i < THREADS; i++) {
		work[i] = (struct work){r, ratelimit_key(r, "192.0.2.1"), 0};
		assert_int_equal(
		    pthread_create(&threads[i], NULL, thread, &work[i]), 0);
	}
	for (size_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		sum += work[i].got;
	}
	assert_int_equal(sum, BURST);
	ratelimit_close(r);
}

/* A child: waits for the start, opens, takes all, tells how many it got. */
static void child(int start_fd, int out_fd)
{
	struct ratelimit *r = NULL;
	struct err e = {0};
	unsigned got;
	char c;

	(void)!read(start_fd, &c, 1);
	if (ratelimit_open(file, &r, &e) < 0)
		_exit(1);
	got = take_all(r, ratelimit_key(r, "192.0.2.1"));
	_exit(write(out_fd, &got, sizeof(got)) == (ssize_t)sizeof(got) ? 0 : 1);
}

/* Processes that start at once, before the file is there, count together. */
static void makers_at_the_same_time_agree(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		int start[2];
		int out[2];
		unsigned sum = 0;

		assert_int_equal(pipe2(start, O_CLOEXEC), 0);
		assert_int_equal(pipe2(out, O_CLOEXEC), 0);
		for (unsigned i = 0; i < THREADS; i++) {
			pid_t pid = fork();

			assert_true(pid >= 0);
			if (pid == 0) {
				(void)close(start[1]);
				child(start[0], out[1]);
			}
		}
		/* All wait in read(): the end of the pipe starts them. */
		assert_int_equal(close(start[1]), 0);
		for (unsigned i = 0; i < THREADS; i++) {
			unsigned got;
			int status;

			assert_int_equal(read(out[0], &got, sizeof(got)),
			    (ssize_t)sizeof(got));
			sum += got;
			assert_true(wait(&status) > 0);
			assert_int_equal(status, 0);
		}
		assert_int_equal(sum, BURST);
		(void)close(start[0]);
		(void)close(out[0]);
		(void)close(out[1]);
		/* What is replaced in the next round is absent or bad. */
		if (round % 2 == 0)
			assert_int_equal(unlink(file), 0);
		else
			(void)scratch_write(&tmp, "rate", "of another version");
	}
}

static void counts_outlive_the_process(void **state)
{
	struct ratelimit *r = open_file();
	uint64_t key = ratelimit_key(r, "192.0.2.1");

	(void)state;
	assert_int_equal(take_all(r, key), BURST);
	ratelimit_close(r);
	r = open_file();
	assert_int_equal(ratelimit_key(r, "192.0.2.1"), key);
	assert_int_equal(take_all(r, key), 0);
	ratelimit_close(r);
}

static double seconds(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Uses every lock; all of it must be quick. */
static void use_all(struct ratelimit *r)
{
	double begin = seconds();

	for (uint64_t key = 0; key < 5000; key++)
		(void)ratelimit_take(r, 7, key, 30, 10);
	assert_true(seconds() - begin < 1);
}

static void killed_holders_let_go(void **state)
{
	struct ratelimit *r = open_file();
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rate_file *f;
		struct err e;

		if (rate_file_map(file, &f, &e) < 0)
			_exit(1);
		for (size_t i = 0; i < RATE_LOCKS; i++)
			if (pthread_mutex_lock(&f->locks[i].mutex) != 0)
				_exit(1);
		(void)kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	use_all(r);
	assert_int_equal(take_all(r, 1), BURST);
	ratelimit_close(r);
}

/* Two children take without pause and are killed at any moment. */
static void kills_in_the_middle_of_updates_do_no_harm(void **state)
{
	struct ratelimit *r = open_file();

	(void)state;
	assert_int_equal(take_all(r, 1), BURST);
	for (unsigned round = 0; round < 100; round++) {
		pid_t pids[2];

		for (size_t i = 0; i < 2; i++) {
			pids[i] = fork();
			assert_true(pids[i] >= 0);
			for (uint64_t key = 2; pids[i] == 0; key++)
				(void)ratelimit_take(r, 0, key, 30, 10);
		}
		(void)usleep(1000 + round * 37 % 2000);
		for (size_t i = 0; i < 2; i++) {
			assert_int_equal(kill(pids[i], SIGKILL), 0);
			assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
		}
		use_all(r);
	}
	/* What was counted before is still there. */
	assert_int_equal(take_all(r, 1), 0);
	ratelimit_close(r);
}

static void stopped_holders_delay_but_do_not_block(void **state)
{
	struct ratelimit *r = open_file();
	struct rate_file *f;
	struct err e = {0};
	double begin;
	pid_t pid;
	int ready[2];
	char c;

	(void)state;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (rate_file_map(file, &f, &e) < 0)
			_exit(1);
		for (size_t i = 0; i < RATE_LOCKS; i++)
			(void)pthread_mutex_lock(&f->locks[i].mutex);
		(void)!write(ready[1], "x", 1);
		for (;;)
			(void)pause();
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	begin = seconds();
	assert_int_equal(ratelimit_take(r, 0, 1, 30, 10), 1);
	assert_true(seconds() - begin > 0.9 && seconds() - begin < 5);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(ratelimit_take(r, 0, 1, 30, 10), 0);
	ratelimit_close(r);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

/* Opens the file, which must be a new one, with mode and size as they should. */
static void expect_new(uint64_t old_key)
{
	struct ratelimit *r = open_file();
	struct stat st;

	assert_int_not_equal(ratelimit_key(r, "192.0.2.1"), old_key);
	assert_int_equal(lstat(file, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, sizeof(struct rate_file));
	/* All blocks are there: no hole to fill on a full disk. */
	assert_true(st.st_blocks * 512 >= st.st_size);
	ratelimit_close(r);
}

static uint64_t current_key(void)
{
	struct ratelimit *r = open_file();
	uint64_t key = ratelimit_key(r, "192.0.2.1");

	ratelimit_close(r);
	return key;
}

static void patch(size_t offset)
{
	int fd = open(file, O_RDWR | O_CLOEXEC);
	char c;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &c, 1, (off_t)offset), 1);
	c ^= 1;
	assert_int_equal(pwrite(fd, &c, 1, (off_t)offset), 1);
	assert_int_equal(close(fd), 0);
}

static void other_files_are_replaced(void **state)
{
	uint64_t key = current_key();
	const char *target;

	(void)state;
	assert_int_equal(truncate(file, sizeof(struct rate_file) + 1), 0);
	expect_new(key);
	key = current_key();
	assert_int_equal(truncate(file, 0), 0);
	expect_new(key);
	key = current_key();
	assert_int_equal(chmod(file, 0640), 0);
	expect_new(key);
	key = current_key();
	patch(offsetof(struct rate_file, magic));
	expect_new(key);
	key = current_key();
	patch(offsetof(struct rate_file, boot_id)); /* before the last boot */
	expect_new(key);
	key = current_key();
	assert_int_equal(current_key(), key); /* a good one stays */
	assert_int_equal(unlink(file), 0);
	target = scratch_write(&tmp, "target", "precious");
	assert_int_equal(symlink(target, file), 0);
	expect_new(key);
	assert_int_equal(access(scratch_path(&tmp, "target"), F_OK), 0);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(mkfifo(file, 0600), 0);
	expect_new(key);
	if (geteuid() == 0) {
		key = current_key();
		assert_int_equal(chown(file, 12345, 12345), 0);
		expect_new(key);
	}
}

static void hopeless_places_fail(void **state)
{
	struct ratelimit *r = NULL;
	struct err e = {0};

	(void)state;
	assert_true(ratelimit_open("/nonexistent/rate", &r, &e) < 0);
	assert_contains(e.msg, "/nonexistent/rate");
	assert_int_equal(mkdir(file, 0700), 0); /* a directory in its place */
	assert_true(ratelimit_open(file, &r, &e) < 0);
	assert_contains(e.msg, "rate: ");
	assert_null(r);
	/* Nothing half-made remains. */
	assert_int_equal(access(scratch_path(&tmp, "rate.new"), F_OK), -1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(threads_share_one_bucket),
	    TEST(makers_at_the_same_time_agree),
	    TEST(counts_outlive_the_process),
	    TEST(killed_holders_let_go),
	    TEST(kills_in_the_middle_of_updates_do_no_harm),
	    TEST(stopped_holders_delay_but_do_not_block),
	    TEST(other_files_are_replaced),
	    TEST(hopeless_places_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
