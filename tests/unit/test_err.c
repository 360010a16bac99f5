/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/err.h"

#include <errno.h>
#include <string.h>

#include "lib/utf8.h"
#include "tests/unit/unit.h"

static void set_fills_everything(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(
	    err_set(&e, ERR_INVALID_FILE, ENOENT, "%s %d", "x", 7), -ENOENT);
	assert_int_equal(e.code, ENOENT);
	assert_int_equal(e.kind, ERR_INVALID_FILE);
	assert_string_equal(e.msg, "x 7");
}

static void no_code_is_einval(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(err_set(&e, ERR_INTERNAL, 0, "x"), -EINVAL);
	assert_int_equal(e.code, 0);
	assert_int_equal(err_wrap(&e, "y"), -EINVAL);
}

static void sys_appends_reason(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(err_sys(&e, EACCES, "open %s", "f"), -EACCES);
	assert_int_equal(e.kind, ERR_INTERNAL);
	assert_string_equal(e.msg, "open f: Permission denied");
}

static void wrap_puts_context_first(void **state)
{
	struct err e;

	(void)state;
	(void)err_set(&e, ERR_INVALID_REQUEST, EPROTO, "inner");
	assert_int_equal(err_wrap(&e, "outer %d", 2), -EPROTO);
	assert_string_equal(e.msg, "outer 2: inner");
	assert_int_equal(e.kind, ERR_INVALID_REQUEST);
	(void)err_wrap(&e, "[%s]", e.msg);
	assert_string_equal(e.msg, "[outer 2: inner]: outer 2: inner");
}

/* At each length of what comes before, a cut leaves whole characters. */
static void long_messages_stay_text(void **state)
{
	struct err e;
	char filler[300];

	(void)state;
	memset(filler, 'a', sizeof(filler));
	for (size_t n = 240; n < 260; n++) {
		filler[n] = '\0';
		(void)err_set(&e, ERR_INTERNAL, 0, "%s%s", filler,
		    "\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9");
		assert_true(
		    utf8_valid((const uint8_t *)e.msg, strlen(e.msg), NULL));
		assert_true(strlen(e.msg) >= 252 || n < 246);
		(void)err_wrap(&e, "\xe2\x82\xac\xe2\x82\xac");
		assert_true(
		    utf8_valid((const uint8_t *)e.msg, strlen(e.msg), NULL));
		(void)err_sys(&e, ENOENT, "%s\xe2\x82\xac", filler);
		assert_true(
		    utf8_valid((const uint8_t *)e.msg, strlen(e.msg), NULL));
		filler[n] = 'a';
	}
}

static void exact_fit_is_not_cut(void **state)
{
	struct err e;
	char text[sizeof(e.msg)];

	(void)state;
	memset(text, 'a', sizeof(text));
	memcpy(text + sizeof(text) - 3, "\xc3\xa9", 3);
	(void)err_set(&e, ERR_INTERNAL, 0, "%s", text);
	assert_string_equal(e.msg, text);
}

static void kinds_have_words_and_statuses(void **state)
{
	(void)state;
	for (int k = 0; k < ERR_KIND_COUNT; k++) {
		assert_non_null(err_kind_word((enum err_kind)k));
		assert_in_range(err_kind_status((enum err_kind)k), 400, 599);
	}
	assert_string_equal(err_kind_word(ERR_RATE_LIMITED), "rate_limited");
	assert_int_equal(err_kind_status(ERR_RATE_LIMITED), 429);
	assert_int_equal(err_kind_status(ERR_SANDBOX_FAILED), 503);
	assert_string_equal(err_kind_word((enum err_kind)99), "internal_error");
	assert_int_equal(err_kind_status((enum err_kind) - 1), 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(set_fills_everything),
	    cmocka_unit_test(no_code_is_einval),
	    cmocka_unit_test(sys_appends_reason),
	    cmocka_unit_test(wrap_puts_context_first),
	    cmocka_unit_test(long_messages_stay_text),
	    cmocka_unit_test(exact_fit_is_not_cut),
	    cmocka_unit_test(kinds_have_words_and_statuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
