/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kernelproto.h"

#include <string.h>

#include "lib/payload.h"
#include "tests/unit/unit.h"

#define BLOB(s)                                     \
	(struct blob)                               \
	{                                           \
		(const uint8_t *)(s), sizeof(s) - 1 \
	}

static struct blob names[] = {
    {(const uint8_t *)"pypi.org", 8}, {(const uint8_t *)"*.example.org", 13}};

static struct kernel_request creation(void)
{
	return (struct kernel_request){.op = KERNEL_CREATE,
	    .request_id = BLOB("req-1"),
	    .id = BLOB("Az09_-"),
	    .runtime = BLOB("python-agent"),
	    .version = BLOB("3.14"),
	    .volume = BLOB("vol"),
	    .network = true,
	    .allow = names,
	    .allow_count = 2,
	    .tenant = 77};
}

static struct kernel_request plain(enum kernel_op op)
{
	return (struct kernel_request){
	    .op = op, .request_id = BLOB("req-1"), .id = BLOB("s")};
}

/* Encodes and decodes; *ret, which the caller frees, points into a buffer that
 * stays until the next call. */
static int reread(const struct kernel_request *q, struct kernel_request *ret)
{
	static struct buf b;
	struct err e;

	buf_free(&b);
	kernel_request_encode(q, &b);
	return kernel_request_decode(b.data, b.len, ret, &e);
}

static void requests_are_read_back(void **state)
{
	struct kernel_request in = creation();
	struct kernel_request out;

	(void)state;
	assert_int_equal(reread(&in, &out), 0);
	assert_int_equal(out.op, KERNEL_CREATE);
	assert_memory_equal(out.id.data, "Az09_-", out.id.len);
	assert_memory_equal(out.runtime.data, "python-agent", out.runtime.len);
	assert_int_equal(out.version.len, 4);
	assert_int_equal(out.volume.len, 3);
	assert_true(out.network);
	assert_int_equal(out.allow_count, 2);
	assert_true(out.tenant == 77);
	assert_memory_equal(out.allow[1].data, "*.example.org", 13);
	kernel_request_done(&out);
	assert_null(out.allow);

	in = plain(KERNEL_FORK);
	in.new_id = BLOB("t");
	assert_int_equal(reread(&in, &out), 0);
	assert_int_equal(out.new_id.len, 1);
	in = plain(KERNEL_INTERRUPT);
	assert_int_equal(reread(&in, &out), 0);
	assert_int_equal(out.op, KERNEL_INTERRUPT);
	in = plain(KERNEL_STAT);
	assert_int_equal(reread(&in, &out), 0);
}

static void assert_refused(const struct kernel_request *q)
{
	struct kernel_request out = {.network = true};

	assert_true(reread(q, &out) < 0);
	assert_true(out.network); /* untouched */
}

static void requests_that_are_refused(void **state)
{
	struct kernel_request q;

	(void)state;
	q = plain((enum kernel_op)0);
	assert_refused(&q);
	q = plain((enum kernel_op)5);
	assert_refused(&q);
	q = plain(KERNEL_STAT);
	q.id = BLOB("../x");
	assert_refused(&q);
	q.id = BLOB("");
	assert_refused(&q);
	q = plain(KERNEL_STAT);
	q.request_id = BLOB("a b");
	assert_refused(&q);
	q = plain(KERNEL_FORK); /* to where? */
	assert_refused(&q);
	q = plain(KERNEL_STAT);
	q.new_id = BLOB("t");
	assert_refused(&q);
	q = plain(KERNEL_STAT);
	q.network = true;
	assert_refused(&q);
	q = plain(KERNEL_FORK);
	q.new_id = BLOB("t");
	q.tenant = 1;
	assert_refused(&q);
	q = creation();
	q.runtime = BLOB("");
	assert_refused(&q);
	q = creation();
	q.volume = BLOB("a/b");
	assert_refused(&q);
	q = creation();
	q.network = false; /* with names */
	assert_refused(&q);
	names[0] = BLOB("a b");
	q = creation();
	assert_refused(&q);
	names[0] = BLOB("pypi.org");
}

static void requests_cut_short_or_too_long(void **state)
{
	struct kernel_request in = creation();
	cleanup_buf struct buf b = {0};
	struct kernel_request out;
	struct err e;

	(void)state;
	kernel_request_encode(&in, &b);
	for (size_t n = 0; n < b.len; n++)
		assert_true(kernel_request_decode(b.data, n, &out, &e) < 0);
	put_u8(&b, 0);
	assert_true(kernel_request_decode(b.data, b.len, &out, &e) < 0);
	assert_contains(e.msg, "too long");
}

static void infos(void **state)
{
	struct kernel_info in = {.state = KERNEL_DEAD,
	    .busy = true,
	    .reason = "it was killed",
	    .memory_bytes = -1,
	    .checkpoint_bytes = 5,
	    .steps = 7,
	    .network = true,
	    .network_reason = "none"};
	cleanup_buf struct buf b = {0};
	struct kernel_info out;
	struct err e;

	(void)state;
	kernel_info_encode(&in, &b);
	assert_int_equal(kernel_info_decode(b.data, b.len, &out, &e), 0);
	assert_int_equal(out.state, KERNEL_DEAD);
	assert_true(out.busy && out.network);
	assert_string_equal(out.reason, in.reason);
	assert_string_equal(out.network_reason, "none");
	assert_true(out.memory_bytes == -1);
	assert_true(out.checkpoint_bytes == 5 && out.steps == 7);
	for (size_t n = 0; n < b.len; n++)
		assert_true(kernel_info_decode(b.data, n, &out, &e) < 0);
	b.data[0] = KERNEL_DEAD + 1;
	assert_true(kernel_info_decode(b.data, b.len, &out, &e) < 0);
	b.data[0] = 0;
	assert_true(kernel_info_decode(b.data, b.len, &out, &e) < 0);
	in.memory_bytes = -2;
	buf_clear(&b);
	kernel_info_encode(&in, &b);
	assert_true(kernel_info_decode(b.data, b.len, &out, &e) < 0);
	assert_string_equal(kernel_state_word(KERNEL_HIBERNATED), "hibernated");
	assert_string_equal(kernel_state_word(KERNEL_STARTING), "starting");
	assert_string_equal(kernel_state_word(KERNEL_RESIDENT), "resident");
	assert_string_equal(kernel_state_word(KERNEL_DEAD), "dead");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(requests_are_read_back),
	    cmocka_unit_test(requests_that_are_refused),
	    cmocka_unit_test(requests_cut_short_or_too_long),
	    cmocka_unit_test(infos),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
