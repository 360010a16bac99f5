/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/unit/config_help.h"

static bool has_key(const struct config *c, const char *key)
{
	uint8_t h[TOKEN_HASH_LEN];

	token_hash(key, strlen(key), h);
	for (size_t i = 0; i < c->key_count; i++)
		if (token_hash_equal(c->key_hashes[i], h))
			return true;
	return false;
}

static void keys_come_from_three_places(void **state)
{
	struct config *c;

	(void)state;
	assert_int_equal(
	    setenv("ISOBOX_API_KEYS_FILE",
		scratch_write(&tmp, "keys",
		    "# ours\n\nfile-1\r\n  file-2\t\n #no\nboth\nlast"),
		1),
	    0);
	assert_int_equal(setenv("ISOBOX_API_KEYS", "env-1, both", 1), 0);
	c = load_text("api_key: file-key\napi_keys: [hidden]\n");
	assert_int_equal(c->key_count, 6);
	assert_true(has_key(c, "file-1"));
	assert_true(has_key(c, "file-2"));
	assert_true(has_key(c, "last"));
	assert_true(has_key(c, "both"));
	assert_true(has_key(c, "env-1"));
	assert_true(has_key(c, "file-key"));
	assert_false(has_key(c, "hidden")); /* the variable replaced it */
	assert_null(c->api_key);
	assert_null(c->api_keys);
	config_free(c);
}

static void bad_key_files_are_refused(void **state)
{
	static const struct {
		const char *text;
		const char *part;
	} cases[] = {
	    {"", "holds no key"},
	    {"\n# a\n  \n", "holds no key"},
	    {"good\nb ad\n", "keys:2: "},
	    {"good\n\nb\xc3\xa9\n", "keys:3: "},
	};
	struct config *c = NULL;
	struct err e = {0};
	char path[PATH_MAX];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s", scratch_path(&tmp, "keys"));
	assert_int_equal(setenv("ISOBOX_API_KEYS_FILE", path, 1), 0);
	(void)scratch_write(&tmp, "c.yaml", "api_key: x\n");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		(void)scratch_write(&tmp, "keys", cases[i].text);
		assert_true(
		    config_load(scratch_path(&tmp, "c.yaml"), &c, &e) < 0);
		assert_contains(e.msg, cases[i].part);
		assert_null(strstr(e.msg, "b ad"));
	}
	(void)scratch_write_bytes(&tmp, "keys", "a\0b\n", 4);
	assert_true(config_load(scratch_path(&tmp, "c.yaml"), &c, &e) < 0);
	(void)scratch_write(&tmp, "keys", "k\n");
	assert_int_equal(chmod(path, 0622), 0);
	assert_true(config_load(scratch_path(&tmp, "c.yaml"), &c, &e) < 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(
	    config_load(scratch_path(&tmp, "c.yaml"), &c, &e), -ENOENT);
	assert_contains(e.msg, "api_keys_file");
	/* The runner neither reads the keys nor needs them. */
	assert_int_equal(
	    config_load_without_keys(scratch_path(&tmp, "c.yaml"), &c, &e), 0);
	assert_int_equal(c->key_count, 0);
	assert_null(c->api_key);
	config_free(c);
}

static void required_auth_needs_a_key(void **state)
{
	struct config *c = NULL;
	struct err e = {0};

	(void)state;
	(void)scratch_write(&tmp, "c.yaml", "require_auth: true\n");
	assert_true(config_load(tmp.path, &c, &e) < 0);
	assert_contains(e.msg, "require_auth");
	assert_contains(e.msg, "api_keys_file");
	assert_int_equal(config_load_without_keys(tmp.path, &c, &e), 0);
	config_free(c);
}

static void keys_are_reloaded_whole_or_not_at_all(void **state)
{
	struct config *c = load_text("api_keys: [a, b]\nthreads: 3\n");
	struct err e = {0};

	(void)state;
	(void)scratch_write(
	    &tmp, "c.yaml", "api_keys: [b, c, d]\nthreads: 5\n");
	assert_int_equal(config_reload_keys(tmp.path, c, &e), 0);
	assert_int_equal(c->key_count, 3);
	assert_false(has_key(c, "a"));
	assert_true(has_key(c, "d"));
	assert_int_equal(c->threads, 3);
	(void)scratch_write(&tmp, "c.yaml", "api_keys: [x, \"\"]\n");
	assert_true(config_reload_keys(tmp.path, c, &e) < 0);
	(void)scratch_write(&tmp, "c.yaml", "threads: 3\n");
	assert_true(config_reload_keys(tmp.path, c, &e) < 0);
	assert_contains(e.msg, "no key is left");
	assert_int_equal(c->key_count, 3);
	assert_true(has_key(c, "d"));
	config_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(keys_come_from_three_places),
	    TEST(bad_key_files_are_refused),
	    TEST(required_auth_needs_a_key),
	    TEST(keys_are_reloaded_whole_or_not_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
