/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/json.h"

#include <float.h>
#include <string.h>

#include "tests/unit/unit.h"

static struct json_object *obj;

static void parse(const char *text)
{
	struct err e;

	if (json_parse_strict((const uint8_t *)text, strlen(text), &obj, &e) <
	    0)
		fail_msg("%s", e.msg);
}

static int release(void **state)
{
	(void)state;
	json_object_put(obj);
	obj = NULL;
	return 0;
}

static void strings(void **state)
{
	const char *s = "untouched";
	size_t len = 99;
	struct err e;

	(void)state;
	parse("{\"a\":\"x\\u0000y\\ud83d\\ude00\\/\xc3\xa9\",\"b\":\"\","
	      "\"c\":1,\"d\":null}");
	assert_int_equal(json_get_str(obj, "z", "z", &s, &len, &e), 0);
	assert_int_equal(json_get_str(obj, "d", "d", &s, &len, &e), 0);
	assert_string_equal(s, "untouched");
	assert_int_equal(len, 99);
	assert_int_equal(json_get_str(obj, "a", "a", &s, &len, &e), 1);
	assert_int_equal(len, 10);
	assert_memory_equal(s, "x\0y\xf0\x9f\x98\x80/\xc3\xa9", 10);
	assert_int_equal(json_get_str(obj, "b", "b", &s, &len, &e), 1);
	assert_int_equal(len, 0);
	assert_true(json_get_str(obj, "c", "x.c", &s, &len, &e) < 0);
	assert_int_equal(e.kind, ERR_INVALID_REQUEST);
	assert_string_equal(e.msg, "x.c must be a string");
}

static void booleans(void **state)
{
	bool b = true;
	struct err e;

	(void)state;
	parse("{\"t\":true,\"f\":false,\"n\":null,\"i\":1,\"s\":\"true\"}");
	assert_int_equal(json_get_bool(obj, "z", "z", &b, &e), 0);
	assert_int_equal(json_get_bool(obj, "n", "n", &b, &e), 0);
	assert_true(b);
	assert_int_equal(json_get_bool(obj, "f", "f", &b, &e), 1);
	assert_false(b);
	assert_int_equal(json_get_bool(obj, "t", "t", &b, &e), 1);
	assert_true(b);
	assert_true(json_get_bool(obj, "i", "i", &b, &e) < 0);
	assert_true(json_get_bool(obj, "s", "s", &b, &e) < 0);
	assert_string_equal(e.msg, "s must be true or false");
}

static void integers(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} cases[] = {
	    {"{\"a\":0}", 0},
	    {"{\"a\":-0}", 0},
	    {"{\"a\":-17}", -17},
	    {"{\"a\":268435456}", 268435456},
	    {"{\"a\":9223372036854775807}", INT64_MAX},
	    {"{\"a\":9223372036854775808}", INT64_MAX},
	    {"{\"a\":18446744073709551615}", INT64_MAX},
	    {"{\"a\":18446744073709551616}", INT64_MAX},
	    {"{\"a\":999999999999999999999999999999999999}", INT64_MAX},
	    {"{\"a\":-9223372036854775808}", INT64_MIN},
	    {"{\"a\":-9223372036854775809}", INT64_MIN},
	    {"{\"a\":-999999999999999999999999999999999999}", INT64_MIN},
	};
	struct err e;
	int64_t v;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		parse(cases[i].text);
		v = 42;
		assert_int_equal(json_get_int(obj, "a", "a", &v, &e), 1);
		assert_true(v == cases[i].value);
		v = 42;
		assert_int_equal(json_get_int(obj, "b", "b", &v, &e), 0);
		assert_true(v == 42);
		release(state);
	}
}

static void not_integers(void **state)
{
	static const char *const texts[] = {
	    "{\"a\":1.0}",
	    "{\"a\":1.5}",
	    "{\"a\":1e3}",
	    "{\"a\":1E3}",
	    "{\"a\":0e0}",
	    "{\"a\":\"1\"}",
	    "{\"a\":true}",
	    "{\"a\":[]}",
	    "{\"a\":{}}",
	};
	struct err e;
	int64_t v = 42;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		parse(texts[i]);
		assert_true(
		    json_get_int(obj, "a", "limits.memoryBytes", &v, &e) < 0);
		assert_string_equal(
		    e.msg, "limits.memoryBytes must be an integer");
		assert_true(v == 42);
		release(state);
	}
}

static void numbers(void **state)
{
	static const struct {
		const char *text;
		double value;
	} cases[] = {
	    {"{\"a\":1}", 1},
	    {"{\"a\":0.5}", 0.5},
	    {"{\"a\":-2.5e3}", -2500},
	    {"{\"a\":1e999}", DBL_MAX},
	    {"{\"a\":-1e999}", -DBL_MAX},
	    {"{\"a\":1e-999}", 0},
	    {"{\"a\":18446744073709551616}", 18446744073709551616.0},
	};
	struct err e;
	double v;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		parse(cases[i].text);
		v = 42;
		assert_int_equal(json_get_num(obj, "a", "a", &v, &e), 1);
		assert_true(v == cases[i].value);
		release(state);
	}
	parse("{\"a\":\"1\",\"b\":null}");
	assert_true(json_get_num(obj, "a", "cpus", &v, &e) < 0);
	assert_string_equal(e.msg, "cpus must be a number");
	assert_int_equal(json_get_num(obj, "b", "b", &v, &e), 0);
}

static void containers(void **state)
{
	struct json_object *sub = NULL;
	struct err e;

	(void)state;
	parse("{\"o\":{\"x\":1},\"a\":[1,2],\"n\":null}");
	assert_int_equal(json_get_obj(obj, "n", "n", &sub, &e), 0);
	assert_int_equal(json_get_arr(obj, "z", "z", &sub, &e), 0);
	assert_null(sub);
	assert_int_equal(json_get_obj(obj, "o", "o", &sub, &e), 1);
	assert_int_equal(json_object_object_length(sub), 1);
	assert_int_equal(json_get_arr(obj, "a", "a", &sub, &e), 1);
	assert_int_equal(json_object_array_length(sub), 2);
	assert_true(json_get_obj(obj, "a", "a", &sub, &e) < 0);
	assert_string_equal(e.msg, "a must be an object");
	assert_true(json_get_arr(obj, "o", "files", &sub, &e) < 0);
	assert_string_equal(e.msg, "files must be an array");
}

static void assert_put(const char *s, size_t len, const char *want)
{
	cleanup_buf struct buf b = {0};

	json_put_str(&b, s, len);
	buf_putc(&b, '\0');
	assert_string_equal((const char *)b.data, want);
}

static void written_strings(void **state)
{
	(void)state;
	assert_put(NULL, 0, "\"\"");
	assert_put("a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\"");
	assert_put("\0\n\r\t\b\x1f\x7f", 7,
	    "\"\\u0000\\n\\r\\t\\u0008\\u001f\\u007f\"");
	assert_put(
	    "\xc3\xa9\xf0\x9f\x98\x80", 6, "\"\xc3\xa9\xf0\x9f\x98\x80\"");
	assert_put("a\xff\xe2\x82", 4, "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
}

/* Whatever is written is read back the same. */
static void written_strings_are_read_back(void **state)
{
	cleanup_buf struct buf b = {0};
	char text[300];
	const char *s = NULL;
	size_t len = 0;
	struct err e;

	(void)state;
	for (unsigned i = 0; i < 128; i++)
		text[i] = (char)i;
	memcpy(text + 128, "\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf", 9);
	buf_puts(&b, "{\"a\":");
	json_put_str(&b, text, 137);
	buf_puts(&b, "}");
	assert_int_equal(json_parse_strict(b.data, b.len, &obj, &e), 0);
	assert_int_equal(json_get_str(obj, "a", "a", &s, &len, &e), 1);
	assert_int_equal(len, 137);
	assert_memory_equal(s, text, 137);
}

#define TEST(f) cmocka_unit_test_teardown(f, release)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(strings),
	    TEST(booleans),
	    TEST(integers),
	    TEST(not_integers),
	    TEST(numbers),
	    TEST(containers),
	    TEST(written_strings),
	    TEST(written_strings_are_read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
