/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINK: -Wl,--wrap=realloc
 */
#include "lib/buf.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"

static bool out_of_memory;

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_realloc(void *p, size_t n)
{
	return out_of_memory ? NULL : __real_realloc(p, n);
}

static void puts_append(void **state)
{
	cleanup_buf struct buf b = {0};

	(void)state;
	buf_puts(&b, "abc");
	buf_putc(&b, 'd');
	buf_put(&b, "\0e", 2);
	buf_printf(&b, "%s-%d", "f", 12);
	buf_put(&b, NULL, 0);
	assert_int_equal(b.len, 10);
	assert_memory_equal(b.data, "abcd\0ef-12", 10);
	assert_false(b.failed);
}

static void growth_keeps_content(void **state)
{
	cleanup_buf struct buf b = {0};

	(void)state;
	for (unsigned i = 0; i < 100000; i++)
		buf_putc(&b, (char)(i % 251));
	assert_int_equal(b.len, 100000);
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal(b.data[i], i % 251);
	assert_in_range(b.cap, 100000, 200000);
}

static void printf_of_any_length(void **state)
{
	char text[3000];

	(void)state;
	memset(text, 'x', sizeof(text));
	for (size_t n = 250; n < sizeof(text); n += 13) {
		cleanup_buf struct buf b = {0};

		text[n] = '\0';
		buf_printf(&b, "%s", text);
		assert_int_equal(b.len, n);
		assert_memory_equal(b.data, text, n);
		text[n] = 'x';
	}
}

static void clear_keeps_memory_free_does_not(void **state)
{
	struct buf b = {0};

	(void)state;
	buf_puts(&b, "abc");
	buf_clear(&b);
	assert_int_equal(b.len, 0);
	assert_non_null(b.data);
	buf_free(&b);
	assert_null(b.data);
	assert_int_equal(b.cap, 0);
	buf_free(&b);
}

static void consume_drops_the_front(void **state)
{
	cleanup_buf struct buf b = {0};

	(void)state;
	buf_consume(&b, 0);
	buf_puts(&b, "abcdef");
	buf_consume(&b, 2);
	assert_int_equal(b.len, 4);
	assert_memory_equal(b.data, "cdef", 4);
	buf_consume(&b, 4);
	assert_int_equal(b.len, 0);
}

static void reserve_gives_room(void **state)
{
	cleanup_buf struct buf b = {0};
	uint8_t *p;

	(void)state;
	assert_non_null(buf_reserve(&b, 0));
	p = buf_reserve(&b, 1000);
	assert_non_null(p);
	assert_int_equal(b.len, 0);
	memset(p, 'x', 1000);
	b.len += 1000;
	assert_ptr_equal(buf_reserve(&b, 0), b.data + 1000);
}

static void failure_is_remembered(void **state)
{
	cleanup_buf struct buf b = {0};

	(void)state;
	buf_puts(&b, "abc");
	out_of_memory = true;
	assert_null(buf_reserve(&b, 1000));
	out_of_memory = false;
	assert_true(b.failed);
	buf_puts(&b, "d");
	buf_printf(&b, "%d", 1);
	assert_null(buf_reserve(&b, 1));
	assert_int_equal(b.len, 3);
	buf_clear(&b);
	assert_false(b.failed);
	buf_puts(&b, "d");
	assert_int_equal(b.len, 1);
}

static void absurd_sizes_fail(void **state)
{
	cleanup_buf struct buf b = {0};

	(void)state;
	buf_puts(&b, "abc");
	assert_null(buf_reserve(&b, SIZE_MAX));
	assert_true(b.failed);
	buf_clear(&b);
	assert_null(buf_reserve(&b, SIZE_MAX / 2 + 1));
	assert_true(b.failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(puts_append),
	    cmocka_unit_test(growth_keeps_content),
	    cmocka_unit_test(printf_of_any_length),
	    cmocka_unit_test(clear_keeps_memory_free_does_not),
	    cmocka_unit_test(consume_drops_the_front),
	    cmocka_unit_test(reserve_gives_room),
	    cmocka_unit_test(failure_is_remembered),
	    cmocka_unit_test(absurd_sizes_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
