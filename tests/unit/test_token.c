/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/token.h"

#include <string.h>

#include "tests/unit/unit.h"

static int set_up(void **state)
{
	struct err e;

	(void)state;
	return token_init(&e);
}

static void ids_are_url_safe_and_differ(void **state)
{
	static const char safe[] = "abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	char ids[1000][TOKEN_ID_LEN + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		token_new_id(ids[i]);
		assert_int_equal(strlen(ids[i]), TOKEN_ID_LEN);
		assert_int_equal(strspn(ids[i], safe), TOKEN_ID_LEN);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(ids[i], ids[j]);
	}
}

static void random_fills_exactly(void **state)
{
	uint8_t bytes[66] = {0};
	unsigned seen = 0;

	(void)state;
	for (unsigned i = 0; i < 64; i++) {
		token_random(bytes + 1, 64);
		seen |= bytes[1] | bytes[64];
		assert_int_equal(bytes[0], 0);
		assert_int_equal(bytes[65], 0);
	}
	assert_int_equal(seen, 0xff);
}

/* BLAKE2b-256 of "abc", as b2sum -l 256 prints it. */
static void hash_is_blake2b_256(void **state)
{
	static const uint8_t abc[] = {0xbd, 0xdd, 0x81, 0x3c, 0x63, 0x42, 0x39,
	    0x72, 0x31, 0x71, 0xef, 0x3f, 0xee, 0x98, 0x57, 0x9b, 0x94, 0x96,
	    0x4e, 0x3b, 0xb1, 0xcb, 0x3e, 0x42, 0x72, 0x62, 0xc8, 0xc0, 0x68,
	    0xd5, 0x23, 0x19};
	uint8_t h[TOKEN_HASH_LEN];

	(void)state;
	token_hash("abc", 3, h);
	assert_memory_equal(h, abc, sizeof(abc));
	assert_true(token_hash_equal(h, abc));
}

static void hashes_differ_with_each_bit(void **state)
{
	uint8_t a[TOKEN_HASH_LEN];
	uint8_t b[TOKEN_HASH_LEN];

	(void)state;
	token_hash("abc\0d", 5, a);
	token_hash("abc\0e", 5, b);
	assert_false(token_hash_equal(a, b));
	token_hash("", 0, a);
	token_hash("", 0, b);
	assert_true(token_hash_equal(a, b));
	for (unsigned i = 0; i < TOKEN_HASH_LEN * 8; i++) {
		b[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_false(token_hash_equal(a, b));
		b[i / 8] ^= (uint8_t)(1u << i % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ids_are_url_safe_and_differ),
	    cmocka_unit_test(random_fills_exactly),
	    cmocka_unit_test(hash_is_blake2b_256),
	    cmocka_unit_test(hashes_differ_with_each_bit),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
