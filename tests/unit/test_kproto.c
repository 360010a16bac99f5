/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "lib/kproto.h"
#include "lib/limits.h"
#include "tests/unit/unit.h"

#define BLOB(s)                                     \
	{                                           \
		(const uint8_t *)(s), sizeof(s) - 1 \
	}

static struct blob run[] = {BLOB("python3"), BLOB("/k.py")};
static struct blob env[] = {BLOB("HOME=/workspace")};
static struct blob preload[] = {BLOB("numpy"), BLOB("pandas")};
static struct job_file files[] = {
    {BLOB("util.py"), BLOB("\0x")}, {BLOB("main.py"), BLOB("import util")}};

static struct guest_kernel sample_kernel(void)
{
	return (struct guest_kernel){.language = BLOB("python"),
	    .cwd = BLOB("/workspace"),
	    .run = run,
	    .run_count = 2,
	    .env = env,
	    .env_count = 1,
	    .preload = preload,
	    .preload_count = 2,
	    .pids = 64,
	    .file_bytes = 1ull << 33};
}

static void kernels_are_read_back(void **state)
{
	struct guest_kernel in = sample_kernel();
	cleanup_buf struct buf b = {0};
	struct guest_kernel out;
	struct err e;

	(void)state;
	guest_kernel_encode(&in, &b);
	assert_int_equal(guest_kernel_decode(b.data, b.len, &out, &e), 0);
	assert_memory_equal(out.language.data, "python", 6);
	assert_memory_equal(out.cwd.data, "/workspace", 10);
	assert_int_equal(out.run_count, 2);
	assert_int_equal(out.env_count, 1);
	assert_int_equal(out.preload_count, 2);
	assert_memory_equal(out.preload[1].data, "pandas", 6);
	assert_int_equal(out.pids, 64);
	assert_int_equal(out.file_bytes, 1ull << 33);
	guest_kernel_done(&out);
	for (size_t n = 0; n < b.len; n++)
		assert_true(guest_kernel_decode(b.data, n, &out, &e) < 0);
	buf_putc(&b, 0);
	assert_true(guest_kernel_decode(b.data, b.len, &out, &e) < 0);
}

static void refuse_kernel(const struct guest_kernel *k, const char *why)
{
	cleanup_buf struct buf b = {0};
	struct guest_kernel out;
	struct err e;

	guest_kernel_encode(k, &b);
	assert_int_equal(guest_kernel_decode(b.data, b.len, &out, &e), -EPROTO);
	assert_contains(e.msg, why);
}

static void bad_kernels(void **state)
{
	struct guest_kernel k = sample_kernel();

	(void)state;
	k.pids = 0;
	refuse_kernel(&k, "limits");
	k = sample_kernel();
	k.run_count = 0;
	refuse_kernel(&k, "nothing to run");
	k = sample_kernel();
	k.cwd = (struct blob)BLOB("box");
	refuse_kernel(&k, "working directory");
	k = sample_kernel();
	k.preload = (struct blob[]){BLOB("")};
	k.preload_count = 1;
	refuse_kernel(&k, "module");
}

static struct guest_step sample_step(void)
{
	return (struct guest_step){.number = 7,
	    .display = true,
	    .output_bytes = LIMIT_OUTPUT_MIN,
	    .entry = 1,
	    .files = files,
	    .file_count = 2,
	    .stdin_data = BLOB("in\0")};
}

static void steps_are_read_back(void **state)
{
	struct guest_step in = sample_step();
	cleanup_buf struct buf b = {0};
	struct guest_step out;
	struct err e;

	(void)state;
	guest_step_encode(&in, &b);
	assert_int_equal(guest_step_decode(b.data, b.len, &out, &e), 0);
	assert_int_equal(out.number, 7);
	assert_true(out.display);
	assert_int_equal(out.entry, 1);
	assert_int_equal(out.file_count, 2);
	assert_memory_equal(out.files[0].content.data, "\0x", 2);
	assert_int_equal(out.stdin_data.len, 3);
	guest_step_done(&out);
	for (size_t n = 0; n < b.len; n++)
		assert_true(guest_step_decode(b.data, n, &out, &e) < 0);
}

static void refuse_step(const struct guest_step *s, const char *why)
{
	cleanup_buf struct buf b = {0};
	struct guest_step out;
	struct err e;

	guest_step_encode(s, &b);
	assert_true(guest_step_decode(b.data, b.len, &out, &e) < 0);
	assert_contains(e.msg, why);
}

static void bad_steps(void **state)
{
	struct guest_step s = sample_step();

	(void)state;
	s.entry = 2;
	refuse_step(&s, "entry point");
	s.file_count = 0;
	refuse_step(&s, "entry point");
	s = sample_step();
	s.output_bytes = LIMIT_OUTPUT_MAX + 1;
	refuse_step(&s, "limits");
	s = sample_step();
	s.files = (struct job_file[]){{BLOB("../x"), BLOB("")}};
	s.file_count = 1;
	s.entry = 0;
	refuse_step(&s, "files[0].name");
}

static void modules(void **state)
{
	struct guest_modules in = {preload, 2}, out;
	cleanup_buf struct buf b = {0};
	struct err e;

	(void)state;
	guest_modules_encode(&in, &b);
	assert_int_equal(guest_modules_decode(b.data, b.len, &out, &e), 0);
	assert_int_equal(out.count, 2);
	assert_memory_equal(out.names[0].data, "numpy", 5);
	guest_modules_done(&out);
	for (size_t n = 0; n < b.len; n++)
		assert_true(guest_modules_decode(b.data, n, &out, &e) < 0);
}

static int try_artifact(const char *type, bool text, uint32_t bytes)
{
	struct guest_artifact in = {
	    {(const uint8_t *)type, strlen(type)}, text, bytes};
	cleanup_buf struct buf b = {0};
	struct guest_artifact out;
	struct err e;
	int rc;

	guest_artifact_encode(&in, &b);
	rc = guest_artifact_decode(b.data, b.len, &out, &e);
	if (rc == 0) {
		assert_int_equal(out.type.len, strlen(type));
		assert_int_equal(out.text, text);
		assert_int_equal(out.bytes, bytes);
	}
	return rc;
}

static void artifacts(void **state)
{
	static const char *const bad[] = {"", "/", "a", "a/", "/a", "a/b/c",
	    "Image/png", "a/b c", "a/b;c=d", "a/b\n", "a/\"b\""};
	char longest[LIMIT_MIME_TYPE + 2] = "a/";

	(void)state;
	assert_int_equal(try_artifact("image/svg+xml", true, 0), 0);
	assert_int_equal(
	    try_artifact("application/vnd.x-y_z.v1+json", true, 9), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(try_artifact(bad[i], true, 1), -EPROTO);
	memset(longest + 2, 'b', LIMIT_MIME_TYPE - 2);
	assert_int_equal(try_artifact(longest, true, 1), 0);
	longest[LIMIT_MIME_TYPE] = 'b';
	assert_int_equal(try_artifact(longest, true, 1), -EPROTO);
	assert_int_equal(try_artifact("a/b", true, LIMIT_ARTIFACT), 0);
	assert_int_equal(
	    try_artifact("a/b", true, LIMIT_ARTIFACT + 1), -EPROTO);
	assert_int_equal(try_artifact("a/b", false, LIMIT_ARTIFACT / 4 * 3), 0);
	assert_int_equal(
	    try_artifact("a/b", false, LIMIT_ARTIFACT / 4 * 3 + 1), -EPROTO);
	assert_int_equal(try_artifact("a/b", false, UINT32_MAX), -EPROTO);
}

static void results(void **state)
{
	const struct guest_step_result in = {3, 255, true, false, true, 99};
	cleanup_buf struct buf b = {0};
	struct guest_step_result out;
	struct err e;

	(void)state;
	guest_step_result_encode(&in, &b);
	assert_int_equal(guest_step_result_decode(b.data, b.len, &out, &e), 0);
	assert_int_equal(out.number, 3);
	assert_int_equal(out.exit_code, 255);
	assert_true(out.raised && !out.interrupted && out.dropped);
	assert_int_equal(out.cpu_us, 99);
	for (size_t n = 0; n < b.len; n++)
		assert_true(guest_step_result_decode(b.data, n, &out, &e) < 0);
	b.data[5] = 1; /* exit code 511 */
	assert_int_equal(
	    guest_step_result_decode(b.data, b.len, &out, &e), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(kernels_are_read_back),
	    cmocka_unit_test(bad_kernels),
	    cmocka_unit_test(steps_are_read_back),
	    cmocka_unit_test(bad_steps),
	    cmocka_unit_test(modules),
	    cmocka_unit_test(artifacts),
	    cmocka_unit_test(results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
