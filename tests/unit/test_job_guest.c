/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "lib/job.h"
#include "lib/proto.h"
#include "lib/status.h"
#include "tests/unit/unit.h"

#define BLOB(s)                                     \
	{                                           \
		(const uint8_t *)(s), sizeof(s) - 1 \
	}

static struct job_file one_file[] = {{BLOB("src/main.rs"), BLOB("\0\xff")}};
static struct blob compile[] = {BLOB("rustc"), BLOB("src/main.rs")};
static struct blob run[] = {BLOB("./main"), BLOB(""), BLOB("x y")};
static struct blob env[] = {BLOB("HOME=/box"), BLOB("EMPTY=")};

static struct guest_job sample(void)
{
	return (struct guest_job){
	    .cwd = BLOB("/box"),
	    .compile = compile,
	    .compile_count = 2,
	    .run = run,
	    .run_count = 3,
	    .env = env,
	    .env_count = 2,
	    .files = one_file,
	    .file_count = 1,
	    .stdin_data = BLOB("in"),
	    .pids = 128,
	    .output_bytes = 65536,
	    .tmpfs_bytes = 1ull << 40,
	};
}

static void guest_jobs_are_read_back(void **state)
{
	struct guest_job in = sample();
	cleanup_buf struct buf b = {0};
	struct guest_job out;
	struct err e;

	(void)state;
	guest_job_encode(&in, &b);
	assert_int_equal(guest_job_decode(b.data, b.len, &out, &e), 0);
	assert_memory_equal(out.cwd.data, "/box", 4);
	assert_int_equal(out.compile_count, 2);
	assert_memory_equal(out.compile[1].data, "src/main.rs", 11);
	assert_int_equal(out.run_count, 3);
	assert_int_equal(out.run[1].len, 0);
	assert_int_equal(out.run[2].len, 3);
	assert_int_equal(out.env_count, 2);
	assert_memory_equal(out.env[1].data, "EMPTY=", 6);
	assert_int_equal(out.file_count, 1);
	assert_memory_equal(out.files[0].content.data, "\0\xff", 2);
	assert_int_equal(out.stdin_data.len, 2);
	assert_int_equal(out.pids, 128);
	assert_int_equal(out.output_bytes, 65536);
	assert_true(out.tmpfs_bytes == 1ull << 40);
	guest_job_done(&out);
	for (size_t n = 0; n < b.len; n++)
		assert_true(guest_job_decode(b.data, n, &out, &e) < 0);
	buf_putc(&b, '\0');
	assert_true(guest_job_decode(b.data, b.len, &out, &e) < 0);
}

static void assert_refused(const struct guest_job *j, const char *why)
{
	cleanup_buf struct buf b = {0};
	struct guest_job out;
	struct err e;

	guest_job_encode(j, &b);
	assert_true(guest_job_decode(b.data, b.len, &out, &e) < 0);
	assert_contains(e.msg, why);
}

static void bad_guest_jobs(void **state)
{
	static const struct blob bad_cwds[] = {
	    BLOB(""), BLOB("box"), BLOB("/b\0ox")};
	static const struct blob bad_env[] = {
	    BLOB(""), BLOB("A"), BLOB("="), BLOB("=x")};
	static const struct blob nul_env = BLOB("A=b\0c");
	static struct blob empty = BLOB("");
	static struct blob many[LIMIT_ARGV + 1];
	struct guest_job j = sample();
	struct blob var;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad_cwds); i++) {
		j.cwd = bad_cwds[i];
		assert_refused(&j, "working directory");
	}
	j = sample();
	j.env = &var;
	j.env_count = 1;
	for (size_t i = 0; i < ARRAY_LEN(bad_env); i++) {
		var = bad_env[i];
		assert_refused(&j, "KEY=");
	}
	var = nul_env;
	assert_refused(&j, "guest job: env: NUL");
	j = sample();
	j.run_count = 0;
	assert_refused(&j, "nothing to run");
	j.run = &empty;
	j.run_count = 1;
	assert_refused(&j, "nothing to run");
	j = sample();
	j.compile = &empty;
	j.compile_count = 1;
	assert_refused(&j, "nothing to compile with");
	j = sample();
	j.run = many;
	j.run_count = LIMIT_ARGV + 1;
	assert_refused(&j, "cut short");
	j = sample();
	j.env = many;
	j.env_count = LIMIT_ENV + 1;
	assert_refused(&j, "cut short");
	j = sample();
	j.pids = 0;
	assert_refused(&j, "limits");
	j.pids = LIMIT_PIDS_MAX + 1;
	assert_refused(&j, "limits");
	j = sample();
	j.output_bytes = LIMIT_OUTPUT_MIN - 1;
	assert_refused(&j, "limits");
	j.output_bytes = LIMIT_OUTPUT_MAX + 1;
	assert_refused(&j, "limits");
}

static struct blob preload[] = {BLOB("numpy"), BLOB("matplotlib.pyplot")};

static struct guest_warm sample_warm(void)
{
	return (struct guest_warm){
	    .entry = BLOB("main.x"),
	    .cwd = BLOB("/box"),
	    .run = run,
	    .run_count = 1,
	    .env = env,
	    .env_count = 2,
	    .preload = preload,
	    .preload_count = 2,
	    .compiles = true,
	};
}

static void warms_are_read_back(void **state)
{
	struct guest_warm in = sample_warm();
	cleanup_buf struct buf b = {0};
	struct guest_warm out;
	struct err e;

	(void)state;
	guest_warm_encode(&in, &b);
	assert_int_equal(guest_warm_decode(b.data, b.len, &out, &e), 0);
	assert_memory_equal(out.entry.data, "main.x", 6);
	assert_memory_equal(out.cwd.data, "/box", 4);
	assert_int_equal(out.run_count, 1);
	assert_memory_equal(out.run[0].data, "./main", 6);
	assert_int_equal(out.env_count, 2);
	assert_int_equal(out.preload_count, 2);
	assert_memory_equal(out.preload[1].data, "matplotlib.pyplot", 17);
	assert_true(out.compiles);
	guest_warm_done(&out);
	for (size_t n = 0; n < b.len; n++)
		assert_true(guest_warm_decode(b.data, n, &out, &e) < 0);
	buf_putc(&b, '\0');
	assert_true(guest_warm_decode(b.data, b.len, &out, &e) < 0);
}

static void assert_warm_refused(const struct guest_warm *w, const char *why)
{
	cleanup_buf struct buf b = {0};
	struct guest_warm out;
	struct err e;

	guest_warm_encode(w, &b);
	assert_true(guest_warm_decode(b.data, b.len, &out, &e) < 0);
	assert_contains(e.msg, why);
}

static void bad_warms(void **state)
{
	static const uint8_t long_name[LIMIT_PRELOAD_NAME + 1] = "x";
	static struct blob many[LIMIT_PRELOAD + 1];
	struct guest_warm w = sample_warm();
	struct blob bad = BLOB("box");

	(void)state;
	w.cwd = bad;
	assert_warm_refused(&w, "working directory");
	w = sample_warm();
	w.entry = (struct blob)BLOB("../main.x");
	assert_warm_refused(&w, "entry");
	w = sample_warm();
	w.run_count = 0;
	assert_warm_refused(&w, "nothing to run");
	w = sample_warm();
	w.env = &bad;
	w.env_count = 1;
	assert_warm_refused(&w, "KEY=");
	w = sample_warm();
	w.preload = many;
	w.preload_count = 1;
	assert_warm_refused(&w, "name of a module");
	w.preload_count = LIMIT_PRELOAD + 1;
	assert_warm_refused(&w, "cut short");
	bad = (struct blob)BLOB("a\0b");
	w.preload = &bad;
	w.preload_count = 1;
	assert_warm_refused(&w, "NUL");
	bad = (struct blob){long_name, sizeof(long_name)};
	assert_warm_refused(&w, "NUL");
}

static void warmed(void **state)
{
	static const uint8_t text[sizeof(((struct err *)0)->msg) + 1] = "x";
	struct guest_warmed in = {.waiting = true,
	    .missing = preload,
	    .missing_count = 2,
	    .why = BLOB("because")};
	cleanup_buf struct buf b = {0};
	struct guest_warmed out;
	struct err e;

	(void)state;
	guest_warmed_encode(&in, &b);
	assert_int_equal(guest_warmed_decode(b.data, b.len, &out, &e), 0);
	assert_true(out.waiting);
	assert_int_equal(out.missing_count, 2);
	assert_memory_equal(out.missing[0].data, "numpy", 5);
	assert_int_equal(out.why.len, 7);
	guest_warmed_done(&out);
	for (size_t n = 0; n < b.len; n++)
		assert_true(guest_warmed_decode(b.data, n, &out, &e) < 0);
	b.data[0] = 2; /* no boolean */
	assert_true(guest_warmed_decode(b.data, b.len, &out, &e) < 0);
	buf_clear(&b);
	in.why = (struct blob){text, sizeof(text)};
	guest_warmed_encode(&in, &b);
	assert_true(guest_warmed_decode(b.data, b.len, &out, &e) < 0);
	assert_contains(e.msg, "bad reason");
}

static void exits(void **state)
{
	static const struct {
		struct guest_exit x;
		bool good;
	} cases[] = {
	    {{0, 0, 0, false}, true},
	    {{255, 0, UINT64_MAX, true}, true},
	    {{139, 0, 1, false}, true}, /* it may exit(139) itself */
	    {{139, 11, 1, false}, true},
	    {{192, 64, 1, false}, true},
	    {{256, 0, 1, false}, false},
	    {{0, 11, 1, false}, false},
	    {{193, 65, 1, false}, false},
	    {{UINT32_MAX, UINT32_MAX - 128, 1, false}, false},
	};
	struct guest_exit out;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_buf struct buf b = {0};
		int r;

		guest_exit_encode(&cases[i].x, &b);
		r = guest_exit_decode(b.data, b.len, &out, &e);
		assert_int_equal(r == 0, cases[i].good);
		if (r < 0)
			continue;
		assert_int_equal(out.exit_code, cases[i].x.exit_code);
		assert_int_equal(out.signal, cases[i].x.signal);
		assert_true(out.cpu_us == cases[i].x.cpu_us);
		assert_int_equal(out.compile_failed, cases[i].x.compile_failed);
		for (size_t n = 0; n < b.len; n++)
			assert_true(guest_exit_decode(b.data, n, &out, &e) < 0);
		b.data[b.len - 1] = 2; /* no boolean */
		assert_true(guest_exit_decode(b.data, b.len, &out, &e) < 0);
	}
}

static void results(void **state)
{
	const struct run_result in = {.exit_code = 137,
	    .signal = 9,
	    .timed_out = true,
	    .stderr_truncated = true,
	    .duration_us = 1,
	    .cpu_us = 2,
	    .memory_peak_bytes = -1,
	    .queue_us = 3,
	    .boot_us = 4,
	    .warm = true,
	    .kernel = RUN_KERNEL_DEAD,
	    .interrupted = true};
	struct run_result bad = in;
	cleanup_buf struct buf b = {0};
	struct run_result out;
	struct err e;

	(void)state;
	run_result_encode(&in, &b);
	assert_int_equal(run_result_decode(b.data, b.len, &out, &e), 0);
	assert_int_equal(out.exit_code, 137);
	assert_int_equal(out.signal, 9);
	assert_true(out.timed_out && out.stderr_truncated);
	assert_false(out.oom_killed || out.stdout_truncated || out.network);
	assert_true(out.duration_us == 1 && out.cpu_us == 2);
	assert_true(out.memory_peak_bytes == -1);
	assert_true(out.queue_us == 3 && out.boot_us == 4 && out.warm);
	assert_int_equal(out.kernel, RUN_KERNEL_DEAD);
	assert_true(out.interrupted);
	assert_false(out.raised || out.artifacts_dropped);
	for (size_t n = 0; n < b.len; n++)
		assert_true(run_result_decode(b.data, n, &out, &e) < 0);
	bad.memory_peak_bytes = -2;
	buf_clear(&b);
	run_result_encode(&bad, &b);
	assert_true(run_result_decode(b.data, b.len, &out, &e) < 0);
	assert_contains(e.msg, "run result");
	bad = in;
	bad.kernel = (enum run_kernel)3;
	buf_clear(&b);
	run_result_encode(&bad, &b);
	assert_true(run_result_decode(b.data, b.len, &out, &e) < 0);
}

static void statuses(void **state)
{
	struct runner_status in = {.ready = true,
	    .backend = "gvisor",
	    .egress_driver = "pasta",
	    .slots = 4,
	    .running = 1,
	    .queued = 2,
	    .runs_total = 3,
	    .boot_cpu_us_total = STATUS_UNKNOWN,
	    .pool = {.waiting = 5, .dropped_total = 6},
	    .kernels = {
		.max = 7, .deaths_total = {[KERNEL_DEATH_RESTORE] = 8}}};
	cleanup_buf struct buf b = {0};
	struct runner_status out;
	struct err e;

	(void)state;
	memset(in.reason, 'r', sizeof(in.reason) - 1);
	histogram_add(&in.phases[STATUS_QUEUE], 500);
	histogram_add(&in.phases[STATUS_AHEAD], 30000001);
	runner_status_encode(&in, &b);
	assert_int_equal(runner_status_decode(b.data, b.len, &out, &e), 0);
	assert_true(out.ready);
	assert_string_equal(out.reason, in.reason);
	assert_string_equal(out.backend, "gvisor");
	assert_string_equal(out.egress_driver, "pasta");
	assert_int_equal(out.slots, 4);
	assert_int_equal(out.running, 1);
	assert_int_equal(out.queued, 2);
	assert_true(out.runs_total == 3);
	assert_true(out.boot_cpu_us_total == STATUS_UNKNOWN);
	assert_true(out.pool.waiting == 5 && out.pool.dropped_total == 6);
	assert_int_equal(out.kernels.max, 7);
	assert_true(out.kernels.deaths_total[KERNEL_DEATH_RESTORE] == 8);
	assert_string_equal(kernel_death_word(KERNEL_DEATH_OOM), "oom");
	assert_true(out.phases[STATUS_QUEUE].count[0] == 1);
	assert_true(out.phases[STATUS_AHEAD].count[HISTOGRAM_BOUND_COUNT] == 1);
	assert_true(out.phases[STATUS_AHEAD].sum_us == 30000001);
	for (size_t n = 0; n < b.len; n++)
		assert_true(runner_status_decode(b.data, n, &out, &e) < 0);
	b.data[5] = '\0'; /* in the reason */
	assert_true(runner_status_decode(b.data, b.len, &out, &e) < 0);
	buf_clear(&b);
	put_u8(&b, 1);
	put_bytes(&b, in.reason, sizeof(in.reason)); /* one byte too long */
	assert_true(runner_status_decode(b.data, b.len, &out, &e) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(guest_jobs_are_read_back),
	    cmocka_unit_test(bad_guest_jobs),
	    cmocka_unit_test(warms_are_read_back),
	    cmocka_unit_test(bad_warms),
	    cmocka_unit_test(warmed),
	    cmocka_unit_test(exits),
	    cmocka_unit_test(results),
	    cmocka_unit_test(statuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
