/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINK: fcgi/cond.o fcgi/disposition.o
 */
#include "fcgi/cond.h"

#include <string.h>

#include "fcgi/disposition.h"
#include "tests/unit/unit.h"

#define NOW 1700000000
#define THEN (NOW - 100)
#define THEN_TEXT "Tue, 14 Nov 2023 22:11:40 GMT"

static const struct validators strong = {"\"abc\"", THEN, NOW};
static const struct validators weak = {"W/\"abc\"", THEN, NOW};

static void lists(void **state)
{
	static const struct {
		const char *list;
		bool weak_match, strong_match;
	} cases[] = {
	    {"\"abc\"", true, true},
	    {"W/\"abc\"", true, false},
	    {"*", true, true},
	    {" * ", false, false}, /* servers trim it */
	    {"\"x\", \"abc\"", true, true},
	    {",, \"x\" ,W/\"abc\"", true, false},
	    {"\"x\"\"abc\"", true, true},
	    {"\"ab\"", false, false},
	    {"\"abcd\"", false, false},
	    {"\"abc", false, false},
	    {"abc", false, false},
	    {"abc, \"abc\"", false, false}, /* malformed: ignored from there */
	    {"w/\"abc\"", false, false},
	    {"", false, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(cond_lists(cases[i].list, "\"abc\"", false),
		    cases[i].weak_match);
		assert_int_equal(cond_lists(cases[i].list, "\"abc\"", true),
		    cases[i].strong_match);
	}
	assert_true(cond_lists("\"abc\"", "W/\"abc\"", false));
	assert_false(cond_lists("\"abc\"", "W/\"abc\"", true));
}

static void dates(void **state)
{
	char text[HTTP_DATE_SIZE];

	(void)state;
	http_date(784111777, text);
	assert_string_equal(text, "Sun, 06 Nov 1994 08:49:37 GMT");
	http_date(-1, text);
	assert_string_equal(text, "");
	http_date(INT64_MAX, text);
	assert_string_equal(text, "");
	http_date(253402300800, text); /* the year 10000 */
	assert_string_equal(text, "");
	assert_int_equal(
	    http_date_parse("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777);
	assert_int_equal(
	    http_date_parse("Sunday, 06-Nov-94 08:49:37 GMT"), 784111777);
	assert_int_equal(
	    http_date_parse("Sun Nov  6 08:49:37 1994"), 784111777);
	assert_int_equal(http_date_parse("Sun, 06 Nov 1994"), -1);
	assert_int_equal(http_date_parse(""), -1);
	assert_int_equal(http_date_parse("1994-11-06T08:49:37Z"), -1);
}

static void conditions(void **state)
{
	static const struct {
		enum method method;
		const char *match, *none_match, *modified, *unmodified;
		enum cond there, lacking;
	} cases[] = {
	    {METHOD_GET, NULL, NULL, NULL, NULL, COND_GO, COND_GO},
	    {METHOD_GET, NULL, "\"abc\"", NULL, NULL, COND_NOT_MODIFIED,
		COND_GO},
	    {METHOD_HEAD, NULL, "*", NULL, NULL, COND_NOT_MODIFIED, COND_GO},
	    {METHOD_PUT, NULL, "*", NULL, NULL, COND_FAILED, COND_GO},
	    {METHOD_PUT, "\"abc\"", NULL, NULL, NULL, COND_GO, COND_FAILED},
	    {METHOD_PUT, "\"x\"", NULL, NULL, NULL, COND_FAILED, COND_FAILED},
	    {METHOD_GET, "*", "\"x\"", NULL, NULL, COND_GO, COND_FAILED},
	    {METHOD_GET, NULL, NULL, THEN_TEXT, NULL, COND_NOT_MODIFIED,
		COND_GO},
	    {METHOD_GET, NULL, NULL, "Tue, 14 Nov 2023 22:11:39 GMT", NULL,
		COND_GO, COND_GO},
	    {METHOD_GET, NULL, NULL, "nonsense", "nonsense", COND_GO, COND_GO},
	    /* The tag decides, not the date. */
	    {METHOD_GET, NULL, "\"x\"", THEN_TEXT, NULL, COND_GO, COND_GO},
	    {METHOD_PUT, NULL, NULL, THEN_TEXT, NULL, COND_GO, COND_GO},
	    {METHOD_GET, NULL, NULL, NULL, "Tue, 14 Nov 2023 22:11:39 GMT",
		COND_FAILED, COND_GO},
	    {METHOD_GET, NULL, NULL, NULL, THEN_TEXT, COND_GO, COND_GO},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct request q = {.method = cases[i].method,
		    .if_match = cases[i].match,
		    .if_none_match = cases[i].none_match,
		    .if_modified_since = cases[i].modified,
		    .if_unmodified_since = cases[i].unmodified};

		assert_int_equal(cond_check(&q, &strong), cases[i].there);
		assert_int_equal(cond_check(&q, NULL), cases[i].lacking);
	}
}

static void ranges(void **state)
{
	static const struct {
		const char *range;
		enum range_kind kind;
		uint64_t first, len;
	} cases[] = {
	    {"bytes=0-0", RANGE_PART, 0, 1},
	    {"BYTES=0-99", RANGE_PART, 0, 100},
	    {"bytes=0-1000", RANGE_PART, 0, 100},
	    {"bytes=99-", RANGE_PART, 99, 1},
	    {"bytes= 5-6 ", RANGE_PART, 5, 2},
	    {"bytes=,5-6,", RANGE_PART, 5, 2},
	    {"bytes=-1", RANGE_PART, 99, 1},
	    {"bytes=-1000", RANGE_PART, 0, 100},
	    {"bytes=0-18446744073709551615", RANGE_PART, 0, 100},
	    {"bytes=0-99999999999999999999999", RANGE_PART, 0, 100},
	    {"bytes=-99999999999999999999999", RANGE_PART, 0, 100},
	    {"bytes=100-", RANGE_NONE, 0, 100},
	    {"bytes=99999999999999999999999-", RANGE_NONE, 0, 100},
	    {"bytes=-0", RANGE_NONE, 0, 100},
	    {"bytes=2-1", RANGE_ALL, 0, 100},
	    {"bytes=-", RANGE_ALL, 0, 100},
	    {"bytes=", RANGE_ALL, 0, 100},
	    {"bytes=1", RANGE_ALL, 0, 100},
	    {"bytes=a-b", RANGE_ALL, 0, 100},
	    {"bytes=0-1x", RANGE_ALL, 0, 100},
	    {"bytes=0-1,2-3", RANGE_ALL, 0, 100},
	    {"bytes=+0-1", RANGE_ALL, 0, 100},
	    {"lines=0-1", RANGE_ALL, 0, 100},
	    {"", RANGE_ALL, 0, 100},
	};
	struct request q = {.method = METHOD_GET};
	struct range r;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		q.range = cases[i].range;
		assert_int_equal(
		    cond_range(&q, &strong, 100, &r), cases[i].kind);
		assert_int_equal(r.first, cases[i].first);
		assert_int_equal(r.len, cases[i].len);
	}
	q.range = "bytes=0-";
	assert_int_equal(cond_range(&q, &strong, 0, &r), RANGE_NONE);
	q.method = METHOD_HEAD;
	assert_int_equal(cond_range(&q, &strong, 100, &r), RANGE_ALL);
	assert_int_equal(r.len, 100);
}

static void if_range(void **state)
{
	static const struct {
		const char *text;
		enum range_kind strong, weak;
	} cases[] = {
	    {"\"abc\"", RANGE_PART, RANGE_ALL},
	    {"W/\"abc\"", RANGE_ALL, RANGE_ALL},
	    {"\"x\"", RANGE_ALL, RANGE_ALL},
	    {"\"", RANGE_ALL, RANGE_ALL},
	    {"*", RANGE_ALL, RANGE_ALL},
	    {THEN_TEXT, RANGE_PART, RANGE_PART},
	    {"Tue, 14 Nov 2023 22:11:41 GMT", RANGE_ALL, RANGE_ALL},
	};
	const struct validators fresh = {"\"abc\"", THEN, THEN};
	struct request q = {.method = METHOD_GET, .range = "bytes=0-1"};
	struct range r;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		q.if_range = cases[i].text;
		assert_int_equal(
		    cond_range(&q, &strong, 100, &r), cases[i].strong);
		assert_int_equal(cond_range(&q, &weak, 100, &r), cases[i].weak);
	}
	q.if_range = THEN_TEXT; /* of this second: it may change yet */
	assert_int_equal(cond_range(&q, &fresh, 100, &r), RANGE_ALL);
}

static void dispositions(void **state)
{
	static const struct {
		const char *name, *suffix, *value;
	} cases[] = {
	    {"x.txt", "", "\"x.txt\""},
	    {"a b;c.txt", "", "\"a b;c.txt\""},
	    {"dir", ".zip", "\"dir.zip\""},
	    {"a\"b\\c", "", "\"a_b_c\"; filename*=UTF-8''a%22b%5Cc"},
	    {"50%.txt", "", "\"50_.txt\"; filename*=UTF-8''50%25.txt"},
	    {"na\xc3\xafve \xe2\x82\xac.txt", ".zip",
		"\"na_ve _.txt.zip\"; "
		"filename*=UTF-8''na%C3%AFve%20%E2%82%AC.txt.zip"},
	    {"a\r\nSet-Cookie: x=y", "",
		"\"a__Set-Cookie: x=y\"; "
		"filename*=UTF-8''a%0D%0ASet-Cookie%3A%20x%3Dy"},
	    {"\xff", "", "\"_\"; filename*=UTF-8''%EF%BF%BD"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf want = {0};
		struct buf got = {0};

		buf_printf(&want,
		    "Content-Disposition: attachment; filename=%s\r\n",
		    cases[i].value);
		disposition_put(&got, cases[i].name, strlen(cases[i].name),
		    cases[i].suffix);
		buf_putc(&want, '\0');
		buf_putc(&got, '\0');
		assert_string_equal(
		    (const char *)got.data, (const char *)want.data);
		buf_free(&want);
		buf_free(&got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lists),
	    cmocka_unit_test(dates),
	    cmocka_unit_test(conditions),
	    cmocka_unit_test(ranges),
	    cmocka_unit_test(if_range),
	    cmocka_unit_test(dispositions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
