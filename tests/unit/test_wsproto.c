/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/wsproto.h"

#include <string.h>

#include "lib/limits.h"
#include "tests/unit/unit.h"

#define BLOB(s)                                     \
	(struct blob)                               \
	{                                           \
		(const uint8_t *)(s), sizeof(s) - 1 \
	}

static struct ws_request sample(void)
{
	return (struct ws_request){.op = WS_WRITE,
	    .kind = WS_SESSION,
	    .request_id = BLOB("req-1"),
	    .id = BLOB("Az09_-"),
	    .path = BLOB("a/\xff/../b\0c"),
	    .size = WS_SIZE_UNKNOWN};
}

static int reread(const struct ws_request *q, struct ws_request *ret)
{
	static struct buf b; /* what was read points into it */
	struct err e;

	buf_free(&b);
	ws_request_encode(q, &b);
	return ws_request_decode(b.data, b.len, ret, &e);
}

static void requests_are_read_back(void **state)
{
	struct ws_request in = sample();
	struct ws_request out = {0};

	(void)state;
	assert_int_equal(reread(&in, &out), 0);
	assert_int_equal(out.op, WS_WRITE);
	assert_int_equal(out.kind, WS_SESSION);
	assert_int_equal(out.path.len, in.path.len);
	assert_memory_equal(out.path.data, in.path.data, in.path.len);
	assert_int_equal(out.id.len, 6);
	assert_true(out.size == WS_SIZE_UNKNOWN);
}

static void requests_that_are_refused(void **state)
{
	struct ws_request out = {.size = 7};
	struct ws_request q;

	(void)state;
	q = sample();
	q.op = (enum ws_op)9;
	assert_true(reread(&q, &out) < 0);
	q = sample();
	q.kind = (enum ws_kind)3;
	assert_true(reread(&q, &out) < 0);
	q = sample();
	q.id = BLOB("../x");
	assert_true(reread(&q, &out) < 0);
	q.id = BLOB("");
	assert_true(reread(&q, &out) < 0);
	q = sample();
	q.request_id = BLOB("a b");
	assert_true(reread(&q, &out) < 0);
	q = sample();
	q.op = WS_OPEN; /* with a size */
	assert_true(reread(&q, &out) < 0);
	q.size = 0;
	assert_int_equal(reread(&q, &out), 0);
	q.op = WS_STAT; /* with a path */
	out.size = 7;
	assert_true(reread(&q, &out) < 0);
	q.path = BLOB("");
	q.op = WS_LIST; /* with an id */
	assert_true(reread(&q, &out) < 0);
	assert_true(out.size == 7);
}

static void every_cut_is_refused(void **state)
{
	struct ws_request in = sample();
	cleanup_buf struct buf b = {0};
	struct ws_request out;
	struct err e;

	(void)state;
	ws_request_encode(&in, &b);
	for (size_t n = 0; n < b.len; n++)
		assert_true(ws_request_decode(b.data, n, &out, &e) < 0);
	put_u8(&b, 0);
	assert_true(ws_request_decode(b.data, b.len, &out, &e) < 0);
}

static void infos_are_read_back(void **state)
{
	struct ws_info in = {true, 1, -2, 3, 4, 5, 6, 7, true};
	cleanup_buf struct buf b = {0};
	struct ws_info out;
	struct err e;

	(void)state;
	ws_info_encode(&in, &b);
	assert_int_equal(ws_info_decode(b.data, b.len, &out, &e), 0);
	assert_true(out.dir);
	assert_true(out.mtime_ns == -2);
	assert_true(out.quota_bytes == 7 && out.busy);
	b.data[0] = 2;
	assert_true(ws_info_decode(b.data, b.len, &out, &e) < 0);
}

static void put_name(struct buf *b, struct blob name, uint8_t type)
{
	struct ws_entry x = {name, (enum ws_type)type, 9, -1};

	ws_entry_put(&x, b);
}

static void entries_are_read_back(void **state)
{
	cleanup_buf struct buf b = {0};
	struct ws_entry x;
	struct reader r;
	struct err e;

	(void)state;
	put_name(&b, BLOB("a"), WS_FILE);
	put_name(&b, BLOB("\xff"), WS_OTHER);
	r = (struct reader){b.data, b.len, false};
	assert_int_equal(ws_entry_next(&r, &x, &e), 1);
	assert_int_equal(x.type, WS_FILE);
	assert_true(x.size == 9 && x.mtime_ns == -1);
	assert_int_equal(ws_entry_next(&r, &x, &e), 1);
	assert_int_equal(x.name.data[0], 0xff);
	assert_int_equal(ws_entry_next(&r, &x, &e), 0);
	r = (struct reader){b.data, b.len - 1, false};
	assert_int_equal(ws_entry_next(&r, &x, &e), 1);
	assert_true(ws_entry_next(&r, &x, &e) < 0);
}

static void entries_that_are_refused(void **state)
{
	static const uint8_t longest[LIMIT_NAME_COMPONENT + 1] = {'a'};
	const struct blob bad[] = {
	    BLOB(""), BLOB("a/b"), BLOB("a\0b"), {longest, sizeof(longest)}};
	struct ws_entry x;
	struct reader r;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cleanup_buf struct buf b = {0};

		put_name(&b, bad[i], WS_FILE);
		r = (struct reader){b.data, b.len, false};
		assert_true(ws_entry_next(&r, &x, &e) < 0);
	}
	for (uint8_t type = 0; type < 7; type++) {
		cleanup_buf struct buf b = {0};

		put_name(&b, BLOB("a"), type);
		r = (struct reader){b.data, b.len, false};
		assert_int_equal(ws_entry_next(&r, &x, &e) > 0,
		    type >= WS_FILE && type <= WS_OTHER);
	}
}

static void ids_are_read_back(void **state)
{
	cleanup_buf struct buf b = {0};
	struct blob id;
	struct reader r;
	struct err e;

	(void)state;
	put_cstr(&b, "one");
	put_cstr(&b, "../two");
	r = (struct reader){b.data, b.len, false};
	assert_int_equal(ws_id_next(&r, &id, &e), 1);
	assert_int_equal(id.len, 3);
	assert_true(ws_id_next(&r, &id, &e) < 0);
}

static void a_commit_is_its_length(void **state)
{
	struct ws_commit in = {1u << 24};
	cleanup_buf struct buf b = {0};
	struct ws_commit out;
	struct err e;

	(void)state;
	ws_commit_encode(&in, &b);
	assert_int_equal(ws_commit_decode(b.data, b.len, &out, &e), 0);
	assert_true(out.bytes == in.bytes);
	assert_true(ws_commit_decode(b.data, b.len - 1, &out, &e) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(requests_are_read_back),
	    cmocka_unit_test(requests_that_are_refused),
	    cmocka_unit_test(every_cut_is_refused),
	    cmocka_unit_test(infos_are_read_back),
	    cmocka_unit_test(entries_are_read_back),
	    cmocka_unit_test(entries_that_are_refused),
	    cmocka_unit_test(ids_are_read_back),
	    cmocka_unit_test(a_commit_is_its_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
