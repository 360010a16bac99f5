/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "lib/json.h"
#include "lib/utf8.h"
#include "tests/fuzz/fuzz.h"

/* Each getter on a member: one type at most is right, null is none. */
static void get_all(struct json_object *obj, const char *key)
{
	struct json_object *sub;
	struct err e;
	const char *s;
	size_t len;
	bool b;
	int64_t i;
	double d;
	int right = 0;

	right += json_get_str(obj, key, key, &s, &len, &e) == 1;
	right += json_get_bool(obj, key, key, &b, &e) == 1;
	right += json_get_int(obj, key, key, &i, &e) == 1;
	right += json_get_obj(obj, key, key, &sub, &e) == 1;
	right += json_get_arr(obj, key, key, &sub, &e) == 1;
	require(right <= 1);
	if (json_get_num(obj, key, key, &d, &e) == 1)
		require(d - d == 0); /* finite */
}

/* What was accepted is JSON that json-c writes and we read back the same. */
static void check_accepted(struct json_object *obj)
{
	struct json_object *again = NULL;
	const char *text;
	size_t len;
	struct err e;

	require(json_object_is_type(obj, json_type_object));
	json_object_object_foreach(obj, key, value)
	{
		(void)value;
		get_all(obj, key);
	}
	text = json_object_to_json_string_length(
	    obj, JSON_C_TO_STRING_PLAIN, &len);
	require(json_parse_strict((const uint8_t *)text, len, &again, &e) == 0);
	require(json_object_equal(obj, again));
	json_object_put(again);
}

/* Any bytes are written as a string that reads back, the same if well-formed. */
static void check_written(const uint8_t *data, size_t size)
{
	struct json_object *obj = NULL;
	cleanup_buf struct buf b = {0};
	const char *s = NULL;
	size_t len = 0;
	struct err e;

	buf_puts(&b, "{\"a\":");
	json_put_str(&b, (const char *)data, size);
	buf_puts(&b, "}");
	require(json_parse_strict(b.data, b.len, &obj, &e) == 0);
	require(json_get_str(obj, "a", "a", &s, &len, &e) == 1);
	if (utf8_valid(data, size, NULL))
		require(len == size && memcmp(s, data, len) == 0);
	json_object_put(obj);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_object *obj = NULL;
	struct err e;

	if (json_parse_strict(data, size, &obj, &e) == 0) {
		check_accepted(obj);
		json_object_put(obj);
	} else {
		require(e.kind == ERR_INVALID_JSON);
		require(strstr(e.msg, " at offset ") != NULL);
	}
	check_written(data, size);
	return 0;
}
