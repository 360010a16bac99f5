/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/path.h"

#include <string.h>

#include "lib/limits.h"
#include "tests/unit/unit.h"

#define NAME(s)                  \
	{                        \
		s, sizeof(s) - 1 \
	}

struct name {
	const char *s;
	size_t len;
};

static void good_names(void **state)
{
	static const struct name names[] = {
	    NAME("a"),
	    NAME("main.py"),
	    NAME("pkg/mod.py"),
	    NAME("a/b/c/d/e"),
	    NAME("..."),
	    NAME(".hidden"),
	    NAME("..x/x.."),
	    NAME(" "),
	    NAME("a\nb"),
	    NAME("-rf"),
	    NAME("\xe2\x82\xac/\xff"),
	    NAME("a\\b"),
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(
		    path_check_name(names[i].s, names[i].len, &e), 0);
}

static void bad_names(void **state)
{
	static const struct {
		struct name name;
		const char *why;
	} cases[] = {
	    {NAME(""), "empty"},
	    {NAME("/"), "relative"},
	    {NAME("/etc/passwd"), "relative"},
	    {NAME("//a"), "relative"},
	    {NAME("a/"), "empty"},
	    {NAME("a//b"), "empty"},
	    {NAME("."), "\"..\""},
	    {NAME(".."), "\"..\""},
	    {NAME("./a"), "\"..\""},
	    {NAME("../a"), "\"..\""},
	    {NAME("a/.."), "\"..\""},
	    {NAME("a/."), "\"..\""},
	    {NAME("a/../b"), "\"..\""},
	    {NAME("a/./b"), "\"..\""},
	    {NAME("a\0b"), "NUL"},
	    {NAME("\0"), "NUL"},
	    {NAME("a\0/../../b"), "NUL"},
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_true(path_check_name(
				cases[i].name.s, cases[i].name.len, &e) < 0);
		assert_int_equal(e.kind, ERR_INVALID_FILE);
		assert_contains(e.msg, cases[i].why);
	}
}

static void lengths_at_their_bounds(void **state)
{
	char name[LIMIT_NAME + 2];
	struct err e;

	(void)state;
	memset(name, 'a', sizeof(name));
	assert_int_equal(path_check_name(name, 255, &e), 0);
	assert_true(path_check_name(name, 256, &e) < 0);
	assert_contains(e.msg, "256 bytes, at most 255");
	for (size_t i = 255; i < sizeof(name); i += 256)
		name[i] = '/';
	assert_int_equal(path_check_name(name, 1023, &e), 0);
	name[1023] = 'a';
	name[1000] = '/';
	assert_int_equal(path_check_name(name, 1024, &e), 0);
	assert_true(path_check_name(name, 1025, &e) < 0);
	assert_contains(e.msg, "1025 bytes, at most 1024");
}

static void sets(void **state)
{
	static const struct {
		const char *names[5];
		size_t n;
		size_t later; /* 0 = a good set */
		const char *why;
	} cases[] = {
	    {{"a"}, 1, 0, NULL},
	    {{NULL}, 0, 0, NULL},
	    {{"a", "b", "c/d", "c/e"}, 4, 0, NULL},
	    {{"a", "a.b", "ab/c", "A"}, 4, 0, NULL},
	    {{"a/b", "a/c/d", "a/cd"}, 3, 0, NULL},
	    {{"a", "b", "a"}, 3, 2, "same name as files[0]"},
	    {{"a", "a.b", "a/b"}, 3, 2, "files[0]"},
	    {{"x", "a/b", "y", "a"}, 4, 3, "files[1]"},
	    {{"a/b/c", "a/b"}, 2, 1, "files[0]"},
	    {{"a/b", "a/b/c/d"}, 2, 1, "files[0]"},
	    {{"\xc3\xa9", "e", "\xc3\xa9/f"}, 3, 2, "files[0]"},
	};
	struct err e;
	size_t later;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int r;

		later = 0;
		r = path_check_set(cases[i].names, cases[i].n, &later, &e);
		assert_int_equal(r < 0, cases[i].later != 0);
		assert_int_equal(later, cases[i].later);
		if (r == 0)
			continue;
		assert_int_equal(e.kind, ERR_INVALID_FILE);
		assert_contains(e.msg, cases[i].why);
	}
}

static void assert_folds(const char *path, const char *expected)
{
	cleanup_buf struct buf b = {0};
	struct err e;

	buf_puts(&b, "before");
	assert_int_equal(path_fold(path, strlen(path), &b, &e), 0);
	buf_putc(&b, '\0');
	assert_string_equal((const char *)b.data + strlen("before"), expected);
}

static void folding_stays_inside(void **state)
{
	(void)state;
	assert_folds("", "");
	assert_folds("/", "");
	assert_folds("..", "");
	assert_folds("../../..", "");
	assert_folds("a", "a");
	assert_folds("/a/b/", "a/b");
	assert_folds("a//b///c", "a/b/c");
	assert_folds("./a/./b/.", "a/b");
	assert_folds("a/../../b", "b");
	assert_folds("a/b/../../../etc/passwd", "etc/passwd");
	assert_folds("a/..", "");
	assert_folds("aa/bb/..", "aa");
	assert_folds(".../..a/b..", ".../..a/b..");
	assert_folds("%2e%2e/x", "%2e%2e/x");
	assert_folds("\xff\xfe/\n", "\xff\xfe/\n");
}

static void paths_that_cannot_be(void **state)
{
	static char longest[LIMIT_WS_PATH + 2];
	cleanup_buf struct buf b = {0};
	struct err e;

	(void)state;
	assert_true(path_fold("a\0b", 3, &b, &e) < 0);
	assert_int_equal(e.kind, ERR_INVALID_PATH);
	memset(longest, 'a', sizeof(longest));
	assert_true(path_fold(longest, LIMIT_NAME_COMPONENT + 1, &b, &e) < 0);
	assert_int_equal(e.kind, ERR_INVALID_PATH);
	assert_int_equal(path_fold(longest, LIMIT_NAME_COMPONENT, &b, &e), 0);
	buf_clear(&b);
	for (size_t i = 1; i < sizeof(longest); i += 2)
		longest[i] = '/';
	assert_int_equal(path_fold(longest, LIMIT_WS_PATH, &b, &e), 0);
	assert_true(path_fold(longest, LIMIT_WS_PATH + 1, &b, &e) < 0);
	assert_int_equal(e.kind, ERR_INVALID_PATH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(folding_stays_inside),
	    cmocka_unit_test(paths_that_cannot_be),
	    cmocka_unit_test(good_names),
	    cmocka_unit_test(bad_names),
	    cmocka_unit_test(lengths_at_their_bounds),
	    cmocka_unit_test(sets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
