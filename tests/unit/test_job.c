/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINK: -Wl,--wrap=calloc
 */
#include "lib/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/path.h"
#include "lib/proto.h"
#include "tests/unit/unit.h"

#define BLOB(s)                                     \
	{                                           \
		(const uint8_t *)(s), sizeof(s) - 1 \
	}

static bool out_of_memory;
static size_t largest;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	if (n * size > largest)
		largest = n * size;
	return out_of_memory ? NULL : __real_calloc(n, size);
}

static struct job_file two_files[] = {
    {BLOB("main.py"), BLOB("print(1)\n\0")},
    {BLOB("pkg/mod.py"), BLOB("")},
};
static struct blob three_args[] = {BLOB(""), BLOB("a b"), BLOB("\"'\n\xff")};

static struct blob two_names[] = {BLOB("pypi.org"), BLOB("*.GitHub.com")};

static struct job sample(void)
{
	return (struct job){
	    .request_id = BLOB("Az09_-"),
	    .runtime = BLOB("python"),
	    .version = BLOB("3.14-agent"),
	    .limits = {1u << 28, 1500, 128, 65536, 15000},
	    .network = true,
	    .entry = 1,
	    .files = two_files,
	    .file_count = 2,
	    .args = three_args,
	    .arg_count = 3,
	    .stdin_data = BLOB("in\0put"),
	    .session = BLOB("Sess_-1"),
	    .volume = BLOB("vol"),
	    .allow = two_names,
	    .allow_count = 2,
	};
}

static void assert_blob(const struct blob *a, const struct blob *b)
{
	assert_int_equal(a->len, b->len);
	if (a->len > 0)
		assert_memory_equal(a->data, b->data, a->len);
}

static void jobs_are_read_back(void **state)
{
	struct job in = sample();
	cleanup_buf struct buf b = {0};
	struct job out;
	struct err e;

	(void)state;
	in.kernel = in.display = true;
	job_encode(&in, &b);
	assert_int_equal(job_decode(b.data, b.len, &out, &e), 0);
	assert_blob(&out.request_id, &in.request_id);
	assert_blob(&out.runtime, &in.runtime);
	assert_blob(&out.version, &in.version);
	assert_true(out.limits.memory_bytes == in.limits.memory_bytes);
	assert_int_equal(out.limits.cpus_milli, in.limits.cpus_milli);
	assert_int_equal(out.limits.pids, in.limits.pids);
	assert_int_equal(out.limits.output_bytes, in.limits.output_bytes);
	assert_int_equal(out.limits.wall_time_ms, in.limits.wall_time_ms);
	assert_true(out.network);
	assert_int_equal(out.entry, 1);
	assert_int_equal(out.file_count, 2);
	assert_int_equal(out.arg_count, 3);
	for (size_t i = 0; i < 2; i++) {
		assert_blob(&out.files[i].name, &in.files[i].name);
		assert_blob(&out.files[i].content, &in.files[i].content);
	}
	for (size_t i = 0; i < 3; i++)
		assert_blob(&out.args[i], &in.args[i]);
	assert_blob(&out.stdin_data, &in.stdin_data);
	assert_blob(&out.session, &in.session);
	assert_blob(&out.volume, &in.volume);
	assert_true(out.kernel && out.display);
	assert_int_equal(out.allow_count, 2);
	for (size_t i = 0; i < 2; i++)
		assert_blob(&out.allow[i], &in.allow[i]);
	job_done(&out);
	assert_null(out.files);
	job_done(&out);
}

/* Refused, with this in the message, and *ret untouched. */
static void assert_refused(const struct job *j, const char *why)
{
	cleanup_buf struct buf b = {0};
	struct job out = {.entry = 99};
	struct err e;

	job_encode(j, &b);
	assert_true(job_decode(b.data, b.len, &out, &e) < 0);
	assert_contains(e.msg, why);
	assert_int_equal(out.entry, 99);
	assert_null(out.files);
}

static void assert_accepted(const struct job *j)
{
	cleanup_buf struct buf b = {0};
	struct job out;
	struct err e;

	job_encode(j, &b);
	if (job_decode(b.data, b.len, &out, &e) < 0)
		fail_msg("%s", e.msg);
	job_done(&out);
}

static void sessions_and_volumes(void **state)
{
	struct job in = sample();

	(void)state;
	in.volume.len = 0;
	assert_accepted(&in);
	in.session.len = 0;
	assert_accepted(&in);
	in.volume = (struct blob)BLOB("v");
	assert_refused(&in, "without a session");
	in.volume.len = 0;
	in.kernel = true;
	assert_refused(&in, "a kernel without a session");
	in.kernel = false;
	in.display = true;
	in.session = (struct blob)BLOB("x");
	assert_refused(&in, "display without a kernel");
	in.kernel = true;
	assert_accepted(&in);
	in.limits.wall_time_ms = LIMIT_KERNEL_WALL_MAX_MS;
	assert_accepted(&in);
	in.limits.wall_time_ms++;
	assert_refused(&in, "limits");
	in.limits.wall_time_ms = LIMIT_WALL_MIN_MS - 1;
	assert_refused(&in, "limits");
	in = sample();
	in.volume = (struct blob)BLOB("v");
	in.session = (struct blob)BLOB("../x");
	assert_refused(&in, "bad session");
	in.session = (struct blob)BLOB("x");
	in.volume = (struct blob)BLOB("a/b");
	assert_refused(&in, "bad session or volume");
}

static void names_to_reach(void **state)
{
	static struct blob bad[] = {BLOB("a.org"), BLOB("1.1.1.1")};
	struct job in = sample();

	(void)state;
	in.allow_count = 0;
	assert_accepted(&in);
	in.network = false;
	assert_accepted(&in);
	in.allow_count = 1;
	assert_refused(&in, "names to reach without a network");
	in.network = true;
	assert_accepted(&in);
	in.allow = bad;
	assert_accepted(&in);
	in.allow_count = 2;
	assert_refused(&in, "bad host name");
}

static void bad_words(void **state)
{
	static const struct blob bad_ids[] = {BLOB(""), BLOB("a b"),
	    BLOB("a/b"), BLOB("a\0"), BLOB("\xc3\xa9"), BLOB("."),
	    BLOB("12345678901234567890123456789012"
		 "345678901234567890123456789012345")};
	static const struct blob bad_words[] = {BLOB(""), BLOB("a b"),
	    BLOB("a\0"), BLOB("\xc3\xa9"), BLOB("a\n"),
	    BLOB("12345678901234567890123456789012"
		 "345678901234567890123456789012345")};
	struct job j;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad_ids); i++) {
		j = sample();
		j.request_id = bad_ids[i];
		assert_refused(&j, "request id");
	}
	for (size_t i = 0; i < ARRAY_LEN(bad_words); i++) {
		j = sample();
		j.runtime = bad_words[i];
		assert_refused(&j, "runtime or version");
		j = sample();
		j.version = bad_words[i];
		assert_refused(&j, "runtime or version");
	}
}

static void limits_out_of_bounds(void **state)
{
	static const struct limits good[] = {
	    {LIMIT_MEMORY_MIN, LIMIT_CPUS_MIN, LIMIT_PIDS_MIN, LIMIT_OUTPUT_MIN,
		LIMIT_WALL_MIN_MS},
	    {LIMIT_MEMORY_MAX, LIMIT_CPUS_MAX, LIMIT_PIDS_MAX, LIMIT_OUTPUT_MAX,
		LIMIT_WALL_MAX_MS},
	};
	struct job j = sample();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		uint32_t step = i == 0 ? UINT32_MAX : 1; /* -1 or 1 */

		j.limits = good[i];
		assert_accepted(&j);
		j.limits.memory_bytes += i == 0 ? UINT64_MAX : 1;
		assert_refused(&j, "limits");
		j.limits = good[i];
		j.limits.cpus_milli += step;
		assert_refused(&j, "limits");
		j.limits = good[i];
		j.limits.pids += step;
		assert_refused(&j, "limits");
		j.limits = good[i];
		j.limits.output_bytes += step;
		assert_refused(&j, "limits");
		j.limits = good[i];
		j.limits.wall_time_ms += step;
		assert_refused(&j, "limits");
	}
}

static void counts_and_names(void **state)
{
	static struct job_file files[LIMIT_FILES + 1];
	static struct blob args[LIMIT_ARGS + 1];
	static struct job_file evil = {BLOB("a/../../etc/passwd"), BLOB("x")};
	static struct job_file nul = {BLOB("a\0b"), BLOB("x")};
	static struct blob nul_arg = BLOB("a\0b");
	struct job j = sample();

	(void)state;
	j.file_count = 0;
	assert_refused(&j, "no file");
	j = sample();
	j.entry = 2;
	assert_refused(&j, "entry point");
	j.entry = UINT32_MAX;
	assert_refused(&j, "entry point");
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		files[i] = two_files[0];
	j = sample();
	j.files = files;
	j.file_count = LIMIT_FILES;
	assert_accepted(&j);
	j.file_count = LIMIT_FILES + 1;
	assert_refused(&j, "cut short");
	j = sample();
	j.args = args;
	j.arg_count = LIMIT_ARGS;
	assert_accepted(&j);
	j.arg_count = LIMIT_ARGS + 1;
	assert_refused(&j, "cut short");
	j = sample();
	j.entry = 0;
	j.files = &evil;
	j.file_count = 1;
	assert_refused(&j, "job: files[0].name: \".\" and \"..\"");
	j.files = &nul;
	assert_refused(&j, "NUL");
	j = sample();
	j.args = &nul_arg;
	j.arg_count = 1;
	assert_refused(&j, "job: args: NUL");
}

/* Any cut and any byte more is refused. */
static void length_is_exact(void **state)
{
	struct job in = sample();
	cleanup_buf struct buf b = {0};
	struct job out;
	struct err e;

	(void)state;
	job_encode(&in, &b);
	for (size_t n = 0; n < b.len; n++) {
		uint8_t *copy = malloc(n + 1);

		assert_non_null(copy);
		memcpy(copy, b.data, n);
		assert_true(job_decode(copy, n, &out, &e) < 0);
		free(copy);
	}
	buf_putc(&b, '\0');
	assert_true(job_decode(b.data, b.len, &out, &e) < 0);
	assert_string_equal(e.msg, "job: too long");
	assert_int_equal(e.code, EPROTO);
	assert_int_equal(e.kind, ERR_INTERNAL);
}

/* Each byte set to some others: refused, or a job that keeps the promises. */
static void any_byte_may_change(void **state)
{
	static const uint8_t values[] = {0x00, 0x01, '.', '/', 0x7f, 0xff};
	struct job in = sample();
	cleanup_buf struct buf b = {0};
	struct job out;
	struct err e;

	(void)state;
	job_encode(&in, &b);
	largest = 0;
	for (size_t i = 0; i < b.len * sizeof(values); i++) {
		uint8_t *p = &b.data[i / sizeof(values)];
		uint8_t old = *p;

		*p = values[i % sizeof(values)];
		if (job_decode(b.data, b.len, &out, &e) == 0) {
			assert_in_range(out.entry, 0, out.file_count - 1);
			for (size_t f = 0; f < out.file_count; f++)
				assert_int_equal(
				    path_check_name(
					(const char *)out.files[f].name.data,
					out.files[f].name.len, &e),
				    0);
			job_done(&out);
		}
		*p = old;
	}
	assert_true(largest <= LIMIT_FILES * sizeof(struct job_file));
}

/* A count that the payload has no bytes for allocates nothing. */
static void counts_beyond_the_payload(void **state)
{
	struct job in = sample();
	cleanup_buf struct buf b = {0};
	struct job out;
	struct err e;
	size_t at;

	(void)state;
	in.file_count = 0;
	in.arg_count = 0;
	in.allow_count = 0;
	in.stdin_data.len = in.session.len = in.volume.len = 0;
	job_encode(&in, &b);
	at = b.len - 26; /* the counts of files, of args, lengths of stdin,
			  * session and volume, the count of names, two bools */
	b.data[at] = 3;
	largest = 0;
	assert_true(job_decode(b.data, b.len, &out, &e) < 0);
	assert_int_equal(largest, 0);
	b.data[at] = 1;
	assert_true(job_decode(b.data, b.len, &out, &e) < 0);
	assert_int_equal(largest, sizeof(struct job_file));
	memset(b.data + at, 0xff, 4);
	largest = 0;
	assert_true(job_decode(b.data, b.len, &out, &e) < 0);
	assert_int_equal(largest, 0);
}

static void memory_may_run_out(void **state)
{
	struct job in = sample();
	cleanup_buf struct buf b = {0};
	struct job out;
	struct err e;

	(void)state;
	job_encode(&in, &b);
	out_of_memory = true;
	assert_int_equal(job_decode(b.data, b.len, &out, &e), -ENOMEM);
	out_of_memory = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(jobs_are_read_back),
	    cmocka_unit_test(sessions_and_volumes),
	    cmocka_unit_test(names_to_reach),
	    cmocka_unit_test(bad_words),
	    cmocka_unit_test(limits_out_of_bounds),
	    cmocka_unit_test(counts_and_names),
	    cmocka_unit_test(length_is_exact),
	    cmocka_unit_test(any_byte_may_change),
	    cmocka_unit_test(counts_beyond_the_payload),
	    cmocka_unit_test(memory_may_run_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
