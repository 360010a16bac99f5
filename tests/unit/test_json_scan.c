/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/json.h"
#include "lib/limits.h"
#include "tests/unit/unit.h"

struct text {
	const char *s;
	size_t len;
	size_t offset; /* of what is wrong */
	const char *why;
};

#define GOOD(s)                           \
	{                                 \
		s, sizeof(s) - 1, 0, NULL \
	}
#define BAD(s, offset, why)                   \
	{                                     \
		s, sizeof(s) - 1, offset, why \
	}
/* As the value of a member; its own bytes start at offset 5. */
#define GOOD_VALUE(s) GOOD("{\"a\":" s "}")
#define BAD_VALUE(s, offset, why) BAD("{\"a\":" s "}", 5 + (offset), why)
/* As the content of a string; its own bytes start at offset 6. */
#define GOOD_STRING(s) GOOD_VALUE("\"" s "\"")
#define BAD_STRING(s, offset, why) BAD_VALUE("\"" s "\"", 1 + (offset), why)

static const struct text good[] = {
    GOOD("{}"),
    GOOD(" \t\r\n{ \t\r\n} \t\r\n"),
    GOOD("{\"\":0}"),
    GOOD("{\"a\":1,\"b\":2}"),
    GOOD("{\"a\" : 1 , \"A\" : 2}"),
    GOOD("{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}"),
    GOOD("{\"a\":[{\"a\":1},{\"a\":1}]}"),
    GOOD("{\"\\u0061\":1,\"b\":2}"),
    GOOD("{\"a\":1,\"a\\n\":2}"),
    GOOD("{\"\xc3\xa9\":1,\"e\xcc\x81\":2}"),
    GOOD("{\"a\":1,\"aa\":2,\"aaa\":3,\"\":4}"),
    GOOD_VALUE("[]"),
    GOOD_VALUE("[ ]"),
    GOOD_VALUE("[[],[[]]]"),
    GOOD_VALUE("[1,2 , 3]"),
    GOOD_VALUE("[null,true,false,0,\"\",{},[]]"),
    GOOD_VALUE("null"),
    GOOD_VALUE("true"),
    GOOD_VALUE("false"),
    GOOD_VALUE("0"),
    GOOD_VALUE("-0"),
    GOOD_VALUE("-1"),
    GOOD_VALUE("10"),
    GOOD_VALUE("1234567890"),
    GOOD_VALUE("0.0"),
    GOOD_VALUE("-0.01"),
    GOOD_VALUE("0e0"),
    GOOD_VALUE("0e+1"),
    GOOD_VALUE("0e-1"),
    GOOD_VALUE("1E22"),
    GOOD_VALUE("1E-2"),
    GOOD_VALUE("1e00"),
    GOOD_VALUE("123.456e78"),
    GOOD_VALUE("1e9999"),
    GOOD_VALUE("-1e-9999"),
    GOOD_VALUE("99999999999999999999999999999999999999999999"),
    GOOD_VALUE("0.000000000000000000000000000000000000000000000001"),
    GOOD_STRING(""),
    GOOD_STRING(" "),
    GOOD_STRING("'"),
    GOOD_STRING("/* // # */"),
    GOOD_STRING("\\\"\\\\\\/\\b\\f\\n\\r\\t"),
    GOOD_STRING("\\u0000"),
    GOOD_STRING("\\u0000\\u0001\\u001f\\u007f"),
    GOOD_STRING("\\u00e9\\u00E9\\uAbCd"),
    GOOD_STRING("\\ud83d\\ude00"),
    GOOD_STRING("\\uD800\\uDC00"),
    GOOD_STRING("\\uDBFF\\uDFFF"),
    GOOD_STRING("\\ud7ff\\ue000"),
    GOOD_STRING("\\ufffe\\uffff"),
    GOOD_STRING("\\\\u0000"),
    GOOD_STRING("\\\\ud800"),
    GOOD_STRING("\x7f"),
    GOOD_STRING("\xc2\x80\xdf\xbf"),
    GOOD_STRING("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"),
    GOOD_STRING("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"),
    GOOD_STRING("\xe2\x80\xa8\xe2\x80\xa9"),
    GOOD_STRING("\xef\xbb\xbf"),
    GOOD_STRING("[{:,}]"),
};

static const struct text bad[] = {
    /* not an object */
    BAD("", 0, "unexpected end at offset 0: expected an object"),
    BAD(" ", 1, "expected an object"),
    BAD("\0", 0, "found 0x00, expected an object"),
    BAD("[]", 0, "found [, expected an object"),
    BAD("null", 0, "expected an object"),
    BAD("1", 0, "expected an object"),
    BAD("\"a\"", 0, "expected an object"),
    BAD("<html>", 0, "found <"),
    BAD("a=1&b=2", 0, "found a"),
    BAD("\xef\xbb\xbf{}", 0, "byte order mark"),
    BAD("\xff\xfe{\0}\0", 0, "found 0xff"),
    BAD("{\0}\0", 1, "found 0x00"),
    BAD("\xc2\xa0{}", 0, "found 0xc2"),
    BAD("\f{}", 0, "found 0x0c"),
    BAD("\v{}", 0, "found 0x0b"),
    BAD("\xe2\x80\x8b{}", 0, "found 0xe2"),
    /* what follows it */
    BAD("{}x", 2, "found x, expected the end"),
    BAD("{}{}", 2, "found {"),
    BAD("{} {}", 3, "found {"),
    BAD("{}]", 2, "found ]"),
    BAD("{},", 2, "found ,"),
    BAD("{}\0", 2, "found 0x00"),
    BAD("{}#", 2, "found #"),
    BAD("{}//", 2, "found /"),
    BAD("{}\xef\xbb\xbf", 2, "found 0xef"),
    /* members */
    BAD("{", 1, "unexpected end"),
    BAD("{\"a\"", 4, "unexpected end at offset 4: expected :"),
    BAD("{\"a\":", 5, "unexpected end at offset 5: expected a value"),
    BAD("{\"a\":1", 6, "expected , or }"),
    BAD("{\"a\":1,", 7, "expected a member name"),
    BAD("{\"a\":1,}", 7, "found }, expected a member name"),
    BAD("{,}", 1, "found ,"),
    BAD("{,\"a\":1}", 1, "found ,"),
    BAD("{\"a\":1,,\"b\":2}", 7, "found ,"),
    BAD("{\"a\":1 \"b\":2}", 7, "found \", expected , or }"),
    BAD("{\"a\":1;\"b\":2}", 6, "found ;"),
    BAD("{\"a\" 1}", 5, "found 1, expected :"),
    BAD("{\"a\"=1}", 4, "found ="),
    BAD("{\"a\"::1}", 5, "found :"),
    BAD("{\"a\"}", 4, "found }"),
    BAD("{\"a\",\"b\":1}", 4, "found ,"),
    BAD("{:1}", 1, "found :"),
    BAD("{a:1}", 1, "found a, expected a member name in double quotes"),
    BAD("{'a':1}", 1, "found '"),
    BAD("{1:1}", 1, "found 1"),
    BAD("{null:1}", 1, "found n"),
    BAD("{[]:1}", 1, "found ["),
    BAD("{\"a\":1]", 6, "found ], expected , or }"),
    BAD("{]", 1, "found ]"),
    BAD("}", 0, "found }"),
    BAD("{{}}", 1, "found {"),
    BAD("{}}", 2, "found }"),
    /* the same name twice */
    BAD("{\"a\":1,\"a\":2}", 7, "duplicate member name"),
    BAD("{\"a\":1,\"a\":1}", 7, "duplicate member name"),
    BAD("{\"a\":1,\"\\u0061\":2}", 7, "duplicate member name"),
    BAD("{\"\\u0061\":1,\"a\":2}", 12, "duplicate member name"),
    BAD("{\"\":1,\"\":2}", 6, "duplicate member name"),
    BAD("{\"a\":1,\"a\":2,\"b\":3,\"b\":4}", 7, "duplicate member name"),
    BAD("{\"b\":1,\"a\":2,\"c\":3,\"a\":4}", 19, "duplicate member name"),
    BAD("{\"a\":{\"b\":1,\"c\":{},\"b\":2}}", 19, "duplicate member name"),
    BAD("{\"a\":{\"a\":1},\"a\":2}", 13, "duplicate member name"),
    BAD("{\"a\":[{\"x\":1,\"x\":1}]}", 13, "duplicate member name"),
    BAD("{\"\xc3\xa9\":1,\"\\u00e9\":2}", 8, "duplicate member name"),
    BAD("{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\uDE00\":2}", 10,
	"duplicate member name"),
    BAD("{\"\xe2\x82\xac\":1,\"\\u20AC\":2}", 9, "duplicate member name"),
    BAD("{\"/\":1,\"\\/\":2}", 7, "duplicate member name"),
    BAD("{\"\\n\":1,\"\\u000a\":2}", 8, "duplicate member name"),
    BAD("{\"a\\u0000b\":1}", 3, "NUL in a member name"),
    BAD("{\"code\\u0000\":1,\"code\":2}", 6, "NUL in a member name"),
    BAD("{\"a\0b\":1}", 3, "control character"),
    /* arrays */
    BAD_VALUE("[", 1, "found }, expected a value"),
    BAD("{\"a\":[", 6, "unexpected end"),
    BAD("{\"a\":[1", 7, "unexpected end at offset 7: expected , or ]"),
    BAD_VALUE("[1,]", 3, "found ], expected a value"),
    BAD_VALUE("[,]", 1, "found ,"),
    BAD_VALUE("[,1]", 1, "found ,"),
    BAD_VALUE("[1,,2]", 3, "found ,"),
    BAD_VALUE("[1 2]", 3, "found 2"),
    BAD_VALUE("[1}", 2, "found }, expected , or ]"),
    BAD_VALUE("[1:2]", 2, "found :"),
    BAD_VALUE("[\"a\":1]", 4, "found :"),
    BAD_VALUE("]", 0, "found ]"),
    BAD_VALUE("[1]]", 3, "found ]"),
    BAD_VALUE("[<null>]", 1, "found <"),
    /* literals */
    BAD_VALUE("", 0, "found }, expected a value"),
    BAD_VALUE("nul", 0, "expected null"),
    BAD_VALUE("NULL", 0, "found N"),
    BAD_VALUE("True", 0, "found T"),
    BAD_VALUE("tru", 0, "expected true"),
    BAD_VALUE("truE", 0, "expected true"),
    BAD_VALUE("truee", 4, "found e"),
    BAD_VALUE("fals", 0, "expected false"),
    BAD("{\"a\":t", 5, "expected true"),
    BAD_VALUE("undefined", 0, "found u"),
    BAD_VALUE("NaN", 0, "found N"),
    BAD_VALUE("-NaN", 1, "found N"),
    BAD_VALUE("nan", 0, "expected null"),
    BAD_VALUE("Infinity", 0, "found I"),
    BAD_VALUE("-Infinity", 1, "found I"),
    BAD_VALUE("inf", 0, "found i"),
    BAD_VALUE("a", 0, "found a"),
    BAD_VALUE("\\u0031", 0, "found \\"),
    BAD_VALUE("\xc3\xa9", 0, "found 0xc3"),
    /* numbers */
    BAD_VALUE("-", 1, "expected a digit"),
    BAD("{\"a\":-", 6, "unexpected end at offset 6: expected a digit"),
    BAD_VALUE("+1", 0, "found +"),
    BAD_VALUE("--1", 1, "found -"),
    BAD_VALUE("- 1", 1, "found 0x20"),
    BAD_VALUE(".5", 0, "found ."),
    BAD_VALUE("-.5", 1, "found ."),
    BAD_VALUE("1.", 2, "expected a digit"),
    BAD_VALUE("1.e1", 2, "found e"),
    BAD_VALUE("1..2", 2, "found ."),
    BAD_VALUE("1.2.3", 3, "found ."),
    BAD_VALUE("1e", 2, "expected a digit"),
    BAD_VALUE("1e+", 3, "expected a digit"),
    BAD_VALUE("1eE2", 2, "found E"),
    BAD_VALUE("1e1.5", 3, "found ."),
    BAD_VALUE("0e", 2, "expected a digit"),
    BAD_VALUE("01", 0, "leading zero"),
    BAD_VALUE("-01", 1, "leading zero"),
    BAD_VALUE("00", 0, "leading zero"),
    BAD_VALUE("012.5", 0, "leading zero"),
    BAD_VALUE("0x1F", 1, "found x"),
    BAD_VALUE("1_000", 1, "found _"),
    BAD_VALUE("1 000", 2, "found 0"),
    BAD_VALUE("1a", 1, "found a"),
    BAD_VALUE("1,5", 2, "found 5, expected a member name"),
    BAD_VALUE("\xef\xbc\x91", 0, "found 0xef"),
    /* strings */
    BAD("{\"a", 3, "unexpected end at offset 3: expected \""),
    BAD("{\"a\":\"", 6, "expected \""),
    BAD("{\"a\":\"\\", 7, "unexpected end"),
    BAD("{\"a\":\"\\\"}", 9, "expected \""),
    BAD("{\"a\":\"\\u", 8, "four hexadecimal digits"),
    BAD("{\"a\":\"\\u12", 10, "four hexadecimal digits"),
    BAD_VALUE("'x'", 0, "found '"),
    BAD_VALUE("`x`", 0, "found `"),
    BAD_VALUE("\"a\" \"b\"", 4, "found \""),
    BAD_STRING("\0", 0, "control character"),
    BAD_STRING("x\n", 1, "control character"),
    BAD_STRING("\t", 0, "control character"),
    BAD_STRING("\x1f", 0, "control character"),
    BAD_STRING("\\\n", 1, "found 0x0a"),
    BAD_STRING("\\\0", 1, "found 0x00"),
    BAD_STRING("\\a", 1, "found a"),
    BAD_STRING("\\x41", 1, "found x"),
    BAD_STRING("\\'", 1, "found '"),
    BAD_STRING("\\0", 1, "found 0"),
    BAD_STRING("\\U0041", 1, "found U"),
    BAD_STRING("\\\xc3\xa9", 1, "found 0xc3"),
    BAD_STRING("\\u", 2, "four hexadecimal digits"),
    BAD_STRING("\\u123", 5, "four hexadecimal digits"),
    BAD_STRING("\\u12G4", 4, "found G"),
    BAD_STRING("\\u+123", 2, "found +"),
    BAD_STRING("\\u 123", 2, "found 0x20"),
    BAD_STRING("\\u{41}", 2, "found {"),
    BAD_STRING("\\ud800", 0, "lone surrogate"),
    BAD_STRING("x\\udbff", 1, "lone surrogate"),
    BAD_STRING("\\udc00", 0, "lone surrogate"),
    BAD_STRING("\\uDFFF", 0, "lone surrogate"),
    BAD_STRING("\\ude00\\ud83d", 0, "lone surrogate"),
    BAD_STRING("\\ude00\\ude00", 0, "lone surrogate"),
    BAD_STRING("\\ud83dx", 0, "lone surrogate"),
    BAD_STRING("\\ud83d\\n", 0, "lone surrogate"),
    BAD_STRING("\\ud83d\\ud83d", 0, "lone surrogate"),
    BAD_STRING("\\ud83d\\u0041", 0, "lone surrogate"),
    BAD_STRING("\\ud83d\\u12", 10, "four hexadecimal digits"),
    BAD_STRING("\\ud83d\\ude00\\ude00", 12, "lone surrogate"),
    BAD("{\"\\ud800\":1}", 2, "lone surrogate"),
    /* UTF-8 */
    BAD_STRING("\x80", 0, "invalid UTF-8"),
    BAD_STRING("ab\xff", 2, "invalid UTF-8"),
    BAD_STRING("\xc3", 0, "invalid UTF-8"),
    BAD_STRING("\xc0\xaf", 0, "invalid UTF-8"),
    BAD_STRING("\xe0\x80\x80", 0, "invalid UTF-8"),
    BAD_STRING("\xed\xa0\x80", 0, "invalid UTF-8"),
    BAD_STRING("\xed\xa0\xbd\xed\xb8\x80", 0, "invalid UTF-8"),
    BAD_STRING("\xf0\x80\x80\x80", 0, "invalid UTF-8"),
    BAD_STRING("\xf4\x90\x80\x80", 0, "invalid UTF-8"),
    BAD_STRING("\xe2\x82\xac\xe2\x82", 3, "invalid UTF-8"),
    BAD("{\"a\":\"\xf0\x9f\x98", 6, "invalid UTF-8"),
    BAD("{\"\xff\":1}", 2, "invalid UTF-8"),
    /* comments */
    BAD("/**/{}", 0, "found /"),
    BAD("{/**/}", 1, "found /"),
    BAD("{\"a\":/**/1}", 5, "found /"),
    BAD("{\"a\":1/**/}", 6, "found /"),
    BAD("{\"a\":1}//x", 7, "found /"),
    BAD("#x\n{}", 0, "found #"),
    BAD("{\"a\":1 # x\n}", 7, "found #"),
};

/* A copy of exactly len bytes: ASan sees a read beyond it. */
static int parse(
    const char *s, size_t len, struct json_object **ret, struct err *e)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, s, len);
	r = json_parse_strict(copy, len, ret, e);
	free(copy);
	return r;
}

static void good_texts(void **state)
{
	struct json_object *obj;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		if (parse(good[i].s, good[i].len, &obj, &e) < 0)
			fail_msg("%s: %s", good[i].s, e.msg);
		assert_true(json_object_is_type(obj, json_type_object));
		assert_int_equal(json_object_put(obj), 1);
	}
}

/* The message names this offset, and not one that it begins with. */
static void assert_offset(const char *msg, size_t offset)
{
	char at[48];
	const char *found;

	(void)snprintf(at, sizeof(at), " at offset %zu", offset);
	assert_contains(msg, at);
	found = strstr(msg, at) + strlen(at);
	assert_true(*found == '\0' || *found == ':');
}

static void bad_texts(void **state)
{
	struct json_object *obj = NULL;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (parse(bad[i].s, bad[i].len, &obj, &e) == 0)
			fail_msg("accepted: %s", bad[i].s);
		assert_null(obj);
		assert_int_equal(e.kind, ERR_INVALID_JSON);
		assert_offset(e.msg, bad[i].offset);
		assert_contains(e.msg, bad[i].why);
	}
}

/* A good text is refused when it ends anywhere before its last brace. */
static void cut_texts(void **state)
{
	static const char text[] = "{\"a\":[1.5e3,true,{\"b\":"
				   "\"\\ud83d\\ude00\xc3\xa9\"}],\"c\":null}";
	struct json_object *obj;
	struct err e;

	(void)state;
	for (size_t n = 0; n < sizeof(text) - 1; n++)
		assert_true(parse(text, n, &obj, &e) < 0);
	assert_int_equal(parse(text, sizeof(text) - 1, &obj, &e), 0);
	json_object_put(obj);
}

/* levels - 1 opening brackets in an object, and as many closing ones. */
static int parse_nested(unsigned levels, const char *inner, struct err *e)
{
	cleanup_buf struct buf b = {0};
	struct json_object *obj;
	int r;

	buf_puts(&b, "{\"a\":");
	for (unsigned i = 1; i < levels; i++)
		buf_puts(&b, i % 2 != 0 ? "[" : "{\"a\":");
	buf_puts(&b, inner);
	for (unsigned i = levels - 1; i >= 1; i--)
		buf_puts(&b, i % 2 != 0 ? "]" : "}");
	buf_putc(&b, '}');
	r = parse((const char *)b.data, b.len, &obj, e);
	if (r == 0)
		json_object_put(obj);
	return r;
}

static void depth_is_bounded(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(parse_nested(LIMIT_JSON_DEPTH, "1", &e), 0);
	assert_int_equal(parse_nested(LIMIT_JSON_DEPTH, "\"\"", &e), 0);
	assert_int_equal(parse_nested(LIMIT_JSON_DEPTH - 1, "[]", &e), 0);
	assert_true(parse_nested(LIMIT_JSON_DEPTH, "[]", &e) < 0);
	assert_contains(e.msg, "more than 32 levels");
	assert_true(parse_nested(LIMIT_JSON_DEPTH + 1, "1", &e) < 0);
	assert_true(parse_nested(100000, "1", &e) < 0);
	assert_contains(e.msg, "more than 32 levels");
}

static int parse_repeated(unsigned n, const char *item, struct err *e)
{
	cleanup_buf struct buf b = {0};
	struct json_object *obj;
	int r;

	buf_puts(&b, "{\"a\":[");
	for (unsigned i = 0; i < n; i++)
		buf_printf(&b, "%s%s", i > 0 ? "," : "", item);
	buf_puts(&b, "]}");
	r = parse((const char *)b.data, b.len, &obj, e);
	if (r == 0)
		json_object_put(obj);
	return r;
}

/* The object around them and its array count, too. */
static void values_are_bounded(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(parse_repeated(LIMIT_JSON_VALUES - 2, "0", &e), 0);
	assert_true(parse_repeated(LIMIT_JSON_VALUES - 1, "0", &e) < 0);
	assert_contains(e.msg, "more than 16384 values at offset");
	assert_int_equal(parse_repeated(LIMIT_JSON_OBJECTS - 1, "{}", &e), 0);
	assert_true(parse_repeated(LIMIT_JSON_OBJECTS, "{}", &e) < 0);
	assert_contains(e.msg, "more than 4096 objects at offset");
}

static int parse_names(unsigned n, unsigned twice, struct err *e)
{
	cleanup_buf struct buf b = {0};
	struct json_object *obj;
	int r;

	buf_putc(&b, '{');
	for (unsigned i = 0; i < n; i++)
		buf_printf(&b, "%s\"name-%u\":0", i > 0 ? "," : "",
		    i * 7919u % n == twice ? 0 : i * 7919u % n);
	buf_putc(&b, '}');
	r = parse((const char *)b.data, b.len, &obj, e);
	if (r < 0)
		return r;
	assert_int_equal(json_object_object_length(obj), n);
	json_object_put(obj);
	return 0;
}

/* Slow machines and valgrind included; the square would take minutes there. */
static void many_names_are_not_quadratic(void **state)
{
	clock_t begin = clock();
	struct err e;

	(void)state;
	assert_int_equal(parse_names(10000, UINT32_MAX, &e), 0);
	assert_int_equal(parse_names(16000, UINT32_MAX, &e), 0);
	assert_true(parse_names(10000, 5000, &e) < 0);
	assert_contains(e.msg, "duplicate member name");
	assert_true(clock() - begin < 10 * CLOCKS_PER_SEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(good_texts),
	    cmocka_unit_test(bad_texts),
	    cmocka_unit_test(cut_texts),
	    cmocka_unit_test(depth_is_bounded),
	    cmocka_unit_test(values_are_bounded),
	    cmocka_unit_test(many_names_are_not_quadratic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
