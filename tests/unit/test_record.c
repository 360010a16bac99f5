/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FastCGI records to requests, in pieces of every size.
 *
 * LINK: fcgi/record.o
 */
#include <errno.h>
#include <string.h>

#include "fcgi/record.h"
#include "lib/limits.h"
#include "tests/unit/unit.h"

#define BEGIN 1
#define ABORT 2
#define PARAMS 4
#define STDIN 5

static void put_record(
    struct buf *b, int type, const void *content, size_t len, int padding)
{
	const uint8_t header[8] = {1, (uint8_t)type, 0, 7, (uint8_t)(len >> 8),
	    (uint8_t)len, (uint8_t)padding, 0};
	const uint8_t zeros[255] = {0};

	buf_put(b, header, sizeof(header));
	buf_put(b, content, len);
	buf_put(b, zeros, (size_t)padding);
}

static void put_begin(struct buf *b, int flags)
{
	const uint8_t body[8] = {0, 1, (uint8_t)flags};

	put_record(b, BEGIN, body, sizeof(body), 0);
}

static void put_pair(struct buf *b, const char *name, size_t value_len)
{
	size_t n = strlen(name);

	buf_putc(b, (char)n);
	if (value_len < 128) {
		buf_putc(b, (char)value_len);
	} else {
		buf_putc(b, (char)(0x80 | value_len >> 24));
		buf_putc(b, (char)(value_len >> 16));
		buf_putc(b, (char)(value_len >> 8));
		buf_putc(b, (char)value_len);
	}
	buf_put(b, name, n);
	memset(buf_reserve(b, value_len), 'v', value_len);
	b->len += value_len;
}

/* A whole request: two parameters in two records, a body in two. */
static void put_request(struct buf *b, int flags, int padding)
{
	cleanup_buf struct buf params = {0};

	put_pair(&params, "REQUEST_URI", 3);
	put_pair(&params, "LONG", 300);
	put_begin(b, flags);
	put_record(b, PARAMS, params.data, 10, padding);
	put_record(b, PARAMS, params.data + 10, params.len - 10, padding);
	put_record(b, PARAMS, NULL, 0, padding);
	put_record(b, STDIN, "hello ", 6, padding);
	put_record(b, STDIN, "world", 5, padding);
	put_record(b, STDIN, NULL, 0, padding);
}

static void assert_request(const struct record_in *in)
{
	size_t len;

	assert_true(record_is_whole(in));
	assert_int_equal(in->id, 7);
	assert_int_equal(in->body_len, 11);
	assert_int_equal(in->body.len, 11);
	assert_memory_equal(in->body.data, "hello world", 11);
	assert_null(in->refused);
	assert_non_null(record_find(in, "LONG", &len));
	assert_int_equal(len, 300);
	assert_memory_equal(record_find(in, "REQUEST_URI", &len), "vvv", 3);
	assert_int_equal(len, 3);
	assert_null(record_find(in, "REQUEST", &len));
	assert_null(record_find(in, "", &len));
}

static void test_in_pieces_of_every_size(void **state)
{
	(void)state;
	for (int padding = 0; padding < 256; padding += 85) {
		cleanup_buf struct buf b = {0};

		put_request(&b, 1, padding);
		for (size_t size = 1; size <= b.len; size++) {
			struct record_in in = {0};
			struct err e;

			for (size_t i = 0; i < b.len; i += size) {
				size_t n = b.len - i < size ? b.len - i : size;

				assert_false(record_is_whole(&in));
				assert_int_equal(
				    record_put(&in, b.data + i, n, &e), n);
			}
			assert_request(&in);
			assert_true(in.keep_conn);
			record_free(&in);
		}
	}
}

static void test_the_next_request_is_left(void **state)
{
	cleanup_buf struct buf b = {0};
	struct record_in in = {0};
	struct err e;
	size_t first;

	(void)state;
	put_request(&b, 1, 3);
	first = b.len;
	put_request(&b, 0, 0);
	assert_int_equal(record_put(&in, b.data, b.len, &e), first);
	assert_request(&in);
	assert_int_equal(record_put(&in, b.data, b.len, &e), 0);
	record_reset(&in);
	assert_int_equal(in.state, RECORD_IDLE);
	assert_int_equal(
	    record_put(&in, b.data + first, b.len - first, &e), b.len - first);
	assert_request(&in);
	assert_false(in.keep_conn);
	record_free(&in);
}

static void test_head_is_what_came(void **state)
{
	cleanup_buf struct buf b = {0};
	cleanup_buf struct buf head = {0};
	struct record_in in = {0};
	struct record_in again = {0};
	struct err e;

	(void)state;
	put_request(&b, 1, 9);
	assert_true(record_put(&in, b.data, b.len, &e) > 0);
	record_head(&in, &head);
	assert_int_equal(head.len, 16 + 8 + in.params.len + 8);
	assert_int_equal(record_put(&again, head.data, head.len, &e), head.len);
	assert_int_equal(again.state, RECORD_BODY);
	assert_int_equal(again.params.len, in.params.len);
	assert_memory_equal(again.params.data, in.params.data, in.params.len);
	record_free(&in);
	record_free(&again);
}

/* Parameters of this many bytes in all, and the head that they give. */
static const char *head_len(size_t params_len, size_t *ret)
{
	cleanup_buf struct buf params = {0};
	cleanup_buf struct buf b = {0};
	cleanup_buf struct buf head = {0};
	struct record_in in = {0};
	struct err e;
	const char *refused;

	put_pair(&params, "X", params_len - 6);
	assert_int_equal(params.len, params_len);
	put_begin(&b, 0);
	for (size_t i = 0; i < params.len; i += 50000)
		put_record(&b, PARAMS, params.data + i,
		    params.len - i < 50000 ? params.len - i : 50000, 0);
	put_record(&b, PARAMS, NULL, 0, 0);
	assert_int_equal(record_put(&in, b.data, b.len, &e), b.len);
	record_head(&in, &head);
	*ret = head.len;
	refused = in.refused;
	record_free(&in);
	return refused;
}

static void test_head_fits_the_pipe(void **state)
{
	size_t max = LIMIT_PARAMS - 40;
	size_t len;

	(void)state;
	assert_null(head_len(max, &len));
	assert_in_range(len, max, LIMIT_PARAMS);
	assert_non_null(head_len(max + 1, &len));
	assert_int_equal(len, 16 + 8); /* without parameters */
	assert_non_null(head_len(5u << 20, &len));
	assert_int_equal(len, 16 + 8);
}

static void test_too_many_parameters(void **state)
{
	(void)state;
	for (unsigned n = LIMIT_PARAM_COUNT; n <= LIMIT_PARAM_COUNT + 1; n++) {
		cleanup_buf struct buf params = {0};
		cleanup_buf struct buf b = {0};
		struct record_in in = {0};
		struct err e;

		for (unsigned i = 0; i < n; i++)
			put_pair(&params, "A", 1);
		put_begin(&b, 0);
		put_record(&b, PARAMS, params.data, params.len, 0);
		put_record(&b, PARAMS, NULL, 0, 0);
		assert_true(record_put(&in, b.data, b.len, &e) > 0);
		assert_int_equal(in.refused != NULL, n > LIMIT_PARAM_COUNT);
		record_free(&in);
	}
}

/* A request whose head is whole and says so, with a body to come. */
static void put_large(struct buf *b, const char *length)
{
	cleanup_buf struct buf params = {0};

	put_begin(b, 1);
	if (length != NULL) {
		put_pair(&params, "CONTENT_LENGTH", strlen(length));
		memcpy(params.data + params.len - strlen(length), length,
		    strlen(length));
		put_record(b, PARAMS, params.data, params.len, 0);
	}
	put_record(b, PARAMS, NULL, 0, 0);
}

static void test_large_body(void **state)
{
	static const uint8_t part[65528];
	cleanup_buf struct buf b = {0};
	struct record_in in = {0};
	uint64_t total = 0;
	struct err e;

	(void)state;
	put_large(&b, NULL);
	assert_true(record_put(&in, b.data, b.len, &e) > 0);
	buf_clear(&b);
	put_record(&b, STDIN, part, sizeof(part), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(record_put(&in, b.data, b.len, &e), b.len);
	assert_false(record_is_large(&in));
	/* The next has no room: what came of it waits for the reader. */
	total = (size_t)record_put(&in, b.data, b.len, &e);
	assert_int_equal(in.body.len, LIMIT_BODY);
	assert_int_equal(in.body_len, LIMIT_BODY);
	assert_true(record_is_large(&in));
	assert_int_equal(record_put(&in, b.data + total, 1, &e), 0);
	buf_clear(&in.body);
	assert_false(record_is_large(&in));
	assert_int_equal(
	    record_put(&in, b.data + total, b.len - total, &e), b.len - total);
	assert_int_equal(in.body_len, 5 * sizeof(part));
	/* Nor is it kept when nobody reads it. */
	in.drop = true;
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(record_put(&in, b.data, b.len, &e), b.len);
	assert_in_range(in.body.len, 0, LIMIT_BODY);
	assert_int_equal(in.body_len, 25 * sizeof(part));
	assert_false(record_is_whole(&in));
	buf_clear(&b);
	put_record(&b, STDIN, NULL, 0, 3);
	assert_int_equal(record_put(&in, b.data, b.len, &e), b.len);
	assert_true(record_is_whole(&in));
	record_free(&in);
}

static void test_body_that_is_announced_as_large(void **state)
{
	const struct {
		const char *length;
		bool large;
	} cases[] = {{NULL, false}, {"", false}, {"0", false}, {"-1", false},
	    {"262144", false}, {"262145", true}, {"9223372036854775808", false},
	    {"999999999999", true}, {"262145x", false}, {" 262145", false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		cleanup_buf struct buf b = {0};
		struct record_in in = {0};
		struct err e;

		put_large(&b, cases[i].length);
		assert_int_equal(record_put(&in, b.data, b.len, &e), b.len);
		if (record_is_large(&in) != cases[i].large)
			fail_msg("%s", cases[i].length);
		record_free(&in);
	}
}

static void test_endless_parameters(void **state)
{
	static uint8_t part[65528];
	cleanup_buf struct buf b = {0};
	struct record_in in = {0};
	struct err e;
	ssize_t n;

	(void)state;
	put_begin(&b, 1);
	assert_true(record_put(&in, b.data, b.len, &e) > 0);
	buf_clear(&b);
	put_record(&b, PARAMS, part, sizeof(part), 0);
	while ((n = record_put(&in, b.data, b.len, &e)) > 0)
		assert_in_range(in.total, 0, 17u << 20);
	assert_int_equal(n, -EPROTO);
	assert_int_equal(in.params.len, 0);
	record_free(&in);
}

/* The first record is refused as soon as its header is there. */
static void test_refused_by_the_header(void **state)
{
	const uint8_t headers[][8] = {
	    {2, BEGIN, 0, 1, 0, 8}, /* version */
	    {1, BEGIN, 0, 0, 0, 8}, /* request 0 */
	    {1, BEGIN, 0, 1, 0, 9}, /* length */
	    {1, BEGIN, 0, 1, 1, 8},
	    {1, ABORT, 0, 1, 0, 0},
	    {1, PARAMS, 0, 1, 0, 0},
	    {1, STDIN, 0, 1, 0, 0},
	    {1, 9, 0, 0, 0, 0}, /* FCGI_GET_VALUES */
	    {1, 0, 0, 1, 0, 0},
	    {1, 255, 0, 1, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
		struct record_in in = {0};
		struct err e;

		assert_int_equal(record_put(&in, headers[i], 7, &e), 7);
		assert_int_equal(
		    record_put(&in, headers[i] + 7, 1, &e), -EPROTO);
		record_free(&in);
	}
}

static void test_bad_pairs(void **state)
{
	const struct {
		size_t len;
		const char *bytes;
	} bad[] = {
	    {1, "\x01"},
	    {2, "\x80\x00"},
	    {3, "\x01\x01"
		"a"},
	    {3, "\x01\x7f"
		"a"},
	    {4, "\x00\x02"
		"ab"}, /* no name */
	    {4, "\x01\x01"
		"\0b"}, /* NUL */
	    {4, "\x01\x01"
		"a\0"},
	    {8, "\xff\xff\xff\xff\xff\xff\xff\xff"},
	    {8, "\xff\xff\xff\xf0\xff\xff\xff\xf0"},
	    {9, "\x80\x00\x00\x01\x80\x00\x00\x01"
		"a"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		cleanup_buf struct buf b = {0};
		struct record_in in = {0};
		struct err e;

		put_begin(&b, 0);
		put_record(&b, PARAMS, bad[i].bytes, bad[i].len, 0);
		put_record(&b, PARAMS, NULL, 0, 0);
		assert_int_equal(record_put(&in, b.data, b.len, &e), -EPROTO);
		record_free(&in);
	}
}

static void test_abort(void **state)
{
	const uint8_t record[8] = {1, ABORT, 0, 7, 0, 0, 0, 0};
	struct record_in in = {.id = 7};

	(void)state;
	assert_true(record_is_abort(&in, record, 8));
	assert_false(record_is_abort(&in, record, 7));
	in.id = 8;
	assert_false(record_is_abort(&in, record, 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_in_pieces_of_every_size),
	    cmocka_unit_test(test_the_next_request_is_left),
	    cmocka_unit_test(test_head_is_what_came),
	    cmocka_unit_test(test_head_fits_the_pipe),
	    cmocka_unit_test(test_too_many_parameters),
	    cmocka_unit_test(test_large_body),
	    cmocka_unit_test(test_body_that_is_announced_as_large),
	    cmocka_unit_test(test_endless_parameters),
	    cmocka_unit_test(test_refused_by_the_header),
	    cmocka_unit_test(test_bad_pairs),
	    cmocka_unit_test(test_abort),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
