/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/config.h"

#include <errno.h>
#include <inttypes.h>

#include "lib/config_table.h"
#include "tests/unit/config_help.h"

static void refuse_text(const char *text, const char *const *parts)
{
	struct config *c = NULL;
	struct err e = {0};

	if (config_load(scratch_write(&tmp, "c.yaml", text), &c, &e) >= 0)
		fail_msg("accepted: %s", text);
	assert_null(c);
	assert_int_equal(e.kind, ERR_INTERNAL);
	assert_contains(e.msg, "c.yaml:");
	for (; *parts != NULL; parts++)
		assert_contains(e.msg, *parts);
}

static void refuse_environment(
    const char *var, const char *value, const char *part)
{
	struct config *c = NULL;
	struct err e = {0};

	assert_int_equal(setenv(var, value, 1), 0);
	assert_true(config_load(scratch_write(&tmp, "c.yaml", ""), &c, &e) < 0);
	assert_null(c);
	assert_contains(e.msg, var);
	assert_contains(e.msg, part);
	assert_int_equal(unsetenv(var), 0);
}

static void defaults_are_the_contracts(void **state)
{
	struct config *c = load_text("");

	(void)state;
	assert_int_equal(c->key_count, 0);
	assert_false(c->require_auth);
	assert_false(c->memory_require_key);
	assert_int_equal(c->concurrency, 4);
	assert_int_equal(c->acquire_wait_ms, 2000);
	assert_int_equal(c->rate_per_min, 30);
	assert_int_equal(c->rate_burst, 10);
	assert_int_equal(c->threads, 64);
	assert_true(c->allow_network);
	assert_int_equal(c->sandbox_overhead_mb, 48);
	assert_int_equal(c->boot_timeout_ms, 10000);
	assert_string_equal(c->runsc_platform, "systrap");
	assert_contains(c->runsc, "/bin/runsc");
	assert_string_equal(c->init_path, ISOBOX_LIBEXECDIR "/isobox-init");
	assert_string_equal(c->registry_dir, ISOBOX_DATADIR "/registry");
	assert_string_equal(c->images_dir, "/var/lib/isobox/images");
	assert_string_equal(c->runner_socket, "/run/isobox/runner.sock");
	assert_string_equal(c->state_dir, "/var/lib/isobox/state");
	assert_string_equal(c->access_log, "-");
	assert_string_equal(c->log_level, "info");
	assert_null(c->cgroup);
	assert_null(c->api_keys_file);
	assert_non_null(c->allowed_users);
	assert_null(c->allowed_users[0]);
	assert_int_equal(c->max_sessions, 200);
	assert_int_equal(c->kernel_slots, 6);
	assert_null(c->ai_base);
	assert_true(c->ai_search);
	config_free(c);
}

static void file_is_read(void **state)
{
	struct config *c = load_text("# comment\n"
				     "concurrency: 256\n"
				     "acquire_wait_ms: 0\n"
				     "allow_network: false\n"
				     "require_auth: true\n"
				     "api_key: \"k,1\"\n"
				     "runsc: '/opt/run sc'\n"
				     "runsc_platform: ptrace\n"
				     "access_log: \"\"\n"
				     "cgroup: /isobox\n"
				     "allowed_users:\n  - www-data\n  - 1000\n"
				     "ai_base: https://x.test/v1\n");

	(void)state;
	assert_int_equal(c->concurrency, 256);
	assert_int_equal(c->acquire_wait_ms, 0);
	assert_false(c->allow_network);
	assert_true(c->require_auth);
	assert_int_equal(c->key_count, 1);
	assert_string_equal(c->runsc, "/opt/run sc");
	assert_string_equal(c->runsc_platform, "ptrace");
	assert_string_equal(c->access_log, "");
	assert_string_equal(c->cgroup, "/isobox");
	assert_string_equal(c->allowed_users[0], "www-data");
	assert_string_equal(c->allowed_users[1], "1000");
	assert_null(c->allowed_users[2]);
	assert_string_equal(c->ai_base, "https://x.test/v1");
	config_free(c);
}

static void environment_goes_over_the_file(void **state)
{
	struct config *c;

	(void)state;
	assert_int_equal(setenv("ISOBOX_CONCURRENCY", "7", 1), 0);
	assert_int_equal(setenv("ISOBOX_REQUIRE_AUTH", "0", 1), 0);
	assert_int_equal(setenv("ISOBOX_AI_SEARCH", "off", 1), 0);
	assert_int_equal(setenv("ISOBOX_ALLOWED_USERS", " a , 7", 1), 0);
	assert_int_equal(setenv("ISOBOX_ACCESS_LOG", "", 1), 0);
	assert_int_equal(setenv("ISOBOX_TEST_ANYTHING", "x", 1), 0);
	assert_int_equal(setenv("ISOBOXER", "x", 1), 0);
	c = load_text("concurrency: 3\nrate_burst: 5\nrequire_auth: true\n"
		      "allowed_users: [z]\n");
	assert_int_equal(c->concurrency, 7);
	assert_int_equal(c->rate_burst, 5);
	assert_false(c->require_auth);
	assert_false(c->ai_search);
	assert_string_equal(c->allowed_users[0], "a");
	assert_string_equal(c->allowed_users[1], "7");
	assert_null(c->allowed_users[2]);
	assert_string_equal(c->access_log, "");
	config_free(c);
	assert_int_equal(unsetenv("ISOBOXER"), 0);
}

static void bad_files_name_line_key_and_what_is_allowed(void **state)
{
	static const struct {
		const char *text;
		const char *parts[4];
	} cases[] = {
	    {"threads: 1\nconcurency: 4\n",
		{":2: concurency: ", "unknown key", "isobox.yaml(5)"}},
	    {"\nconcurrency: 257\n",
		{":2: concurrency: ", "whole number from 1 to 256"}},
	    {"concurrency: 0\n", {":1: concurrency: ", "from 1 to 256"}},
	    {"concurrency: -1\n", {":1: concurrency: ", "from 1 to 256"}},
	    {"concurrency: +4\n", {":1: concurrency: ", "from 1 to 256"}},
	    {"concurrency: 4.0\n", {":1: concurrency: ", "from 1 to 256"}},
	    {"concurrency: 4k\n", {":1: concurrency: ", "from 1 to 256"}},
	    {"concurrency: 004\n", {":1: concurrency: ", "from 1 to 256"}},
	    {"concurrency: 0x4\n", {":1: concurrency: ", "from 1 to 256"}},
	    {"concurrency: 18446744073709551620\n", {"from 1 to 256"}},
	    {"concurrency: \"4\"\n", {":1: concurrency: ", "from 1 to 256"}},
	    {"concurrency: [4]\n", {":1: concurrency: ", "single value"}},
	    {"concurrency:\n", {":1: concurrency: ", "no value"}},
	    {"concurrency: ~\n", {":1: concurrency: ", "no value"}},
	    {"require_auth: maybe\n", {":1: require_auth: ", "true, on, yes"}},
	    {"require_auth: \"true\"\n", {":1: require_auth: ", "must be"}},
	    {"runsc_platform: gvisor\n",
		{":1: runsc_platform: ", "systrap|ptrace"}},
	    {"runsc_platform: systrap|ptrace\n", {"systrap|ptrace"}},
	    {"runsc_platform: sys\n", {"systrap|ptrace"}},
	    {"log_level: verbose\n", {"error|warn|info|debug"}},
	    {"images_dir: images\n", {":1: images_dir: ", "absolute path"}},
	    {"images_dir: \"\"\n", {":1: images_dir: ", "absolute path"}},
	    {"images_dir: \"/a\\nb\"\n", {":1: images_dir: ", "absolute path"}},
	    {"access_log: log\n", {":1: access_log: ", "\"-\" or \"\""}},
	    {"api_key: \"\"\n", {":1: api_key: ", "1 to 512"}},
	    {"api_key: \"a b\"\n", {":1: api_key: ", "visible ASCII"}},
	    {"api_key: \"a\\0b\"\n", {":1: ", "NUL"}},
	    {"api_keys: a\n", {":1: api_keys: ", "must be a list"}},
	    {"api_keys: []\n", {":1: api_keys: ", "1 to 256 entries"}},
	    {"api_keys:\n- a\n- \"\"\n", {":3: api_keys[1]: ", "1 to 512"}},
	    {"api_keys: [a, [b]]\n", {":1: api_keys[1]: ", "single value"}},
	    {"threads: 4\nthreads: 5\n", {":2: threads: ", "same key twice"}},
	    {"- threads\n", {":1: ", "map of keys"}},
	    {"threads\n", {":1: ", "map of keys"}},
	    {"threads: &x 4\n", {":1: ", "anchors"}},
	    {"threads: *x\n", {":1: ", "anchors"}},
	    {"threads: !!int 4\n", {":1: ", "tags"}},
	    {"? [a]\n: 4\n", {":1: ", "a key must be"}},
	    {"<<: {threads: 4}\n", {":1: ", "a key must be"}},
	    {"&a threads: 4\n", {":1: ", "anchors"}},
	    {"threads: 4\n---\nthreads: 5\n", {":2: ", "one document"}},
	    {"%TAG ! tag:x,2000:\n---\nthreads: 4\n", {"tags"}},
	    {"threads: {a: {b: {c: {d: 1}}}}\n", {":1: ", "nested"}},
	    {"\"a\\nb\": 4\n", {":1: ", "a key must be"}},
	    {"threads: 4\n bad: [\n", {":2: "}},
	    {"threads: \x01\n", {":1: ", "control characters"}},
	    {"threads: 4\napi_key: \xff\n", {":2: ", "UTF-8"}},
	    {"threads: 4\n\napi_key: a\x7f\n", {":3: ", "control"}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		refuse_text(cases[i].text, cases[i].parts);
}

static void bad_variables_are_named(void **state)
{
	char many[2 * 257];

	(void)state;
	memset(many, ',', sizeof(many));
	for (size_t i = 0; i < sizeof(many); i += 2)
		many[i] = 'k';
	many[sizeof(many) - 1] = '\0';
	refuse_environment("ISOBOX_API_KEYS", many, "1 to 256 entries");
	refuse_environment("ISOBOX_CONCURRENCY", "", "from 1 to 256");
	refuse_environment("ISOBOX_CONCURRENCY", "4 ", "from 1 to 256");
	refuse_environment("ISOBOX_CONCURRENCY", "999", "from 1 to 256");
	refuse_environment("ISOBOX_REQUIRE_AUTH", "", "true, on, yes or 1");
	refuse_environment("ISOBOX_REGISTRY", "x.yaml", "absolute path");
	refuse_environment("ISOBOX_API_KEY", "", "1 to 512");
	refuse_environment("ISOBOX_API_KEYS", "", "1 to 512");
	refuse_environment("ISOBOX_API_KEYS", "a,,b", "1 to 512");
	refuse_environment("ISOBOX_API_KEYS", "a,", "1 to 512");
	refuse_environment("ISOBOX_API_KEYS", "a, ,b", "1 to 512");
	refuse_environment("ISOBOX_API_KEYS_FILE", "", "absolute path");
	refuse_environment("ISOBOX_LOG_LEVEL", "", "error|warn|info|debug");
	refuse_environment("ISOBOX_CONCURENCY", "4", "unknown variable");
	refuse_environment("ISOBOX_", "4", "unknown variable");
	refuse_environment("ISOBOX_TEST", "4", "unknown variable");
	refuse_environment("ISOBOX_CONFIGURATION", "4", "unknown variable");
}

/* Each range of the table, at its edges and one beyond. */
static void numbers_have_exact_ranges(void **state)
{
	char text[128];

	(void)state;
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *k = &config_keys[i];
		const uint64_t good[] = {k->min, k->max};
		const uint64_t bad[] = {k->min - 1, k->max + 1};

		if (k->type != CONFIG_UINT)
			continue;
		for (size_t j = 0; j < 2; j++) {
			const char *parts[] = {k->name, "whole number", NULL};
			struct config *c;
			uint32_t v;

			(void)snprintf(text, sizeof(text), "%s: %" PRIu64 "\n",
			    k->name, good[j]);
			c = load_text(text);
			memcpy(&v, (const char *)c + k->offset, sizeof(v));
			assert_int_equal(v, good[j]);
			config_free(c);
			(void)snprintf(text, sizeof(text), "%s: %" PRIu64 "\n",
			    k->name, bad[j]);
			refuse_text(text, parts);
		}
	}
}

static void file_is_found(void **state)
{
	struct config *c = NULL;
	struct err e = {0};

	(void)state;
	assert_int_equal(
	    config_load(scratch_path(&tmp, "absent.yaml"), &c, &e), -ENOENT);
	assert_contains(e.msg, "absent.yaml");
	assert_int_equal(setenv("ISOBOX_CONFIG", tmp.path, 1), 0);
	assert_int_equal(config_load(NULL, &c, &e), -ENOENT);
	assert_int_equal(setenv("ISOBOX_CONFIG", "", 1), 0);
	assert_true(config_load(NULL, &c, &e) < 0);
	assert_contains(e.msg, "ISOBOX_CONFIG");
	assert_int_equal(
	    setenv("ISOBOX_CONFIG",
		scratch_write(&tmp, "env.yaml", "threads: 9\n"), 1),
	    0);
	assert_int_equal(config_load(NULL, &c, &e), 0);
	assert_int_equal(c->threads, 9);
	config_free(c);
	c = load_text("threads: 8\n"); /* the argument goes first */
	assert_int_equal(c->threads, 8);
	config_free(c);
}

static void odd_files_are_refused(void **state)
{
	static char big[65 * 1024];
	static const char *const none[] = {NULL};
	struct config *c = NULL;
	struct err e = {0};

	(void)state;
	assert_true(config_load(tmp.dir, &c, &e) < 0);
	assert_contains(e.msg, "regular file");
	assert_int_equal(mkfifo(scratch_path(&tmp, "fifo"), 0600), 0);
	assert_true(config_load(tmp.path, &c, &e) < 0);
	assert_contains(e.msg, "regular file");
	assert_true(config_load("/dev/null", &c, &e) < 0);
	assert_int_equal(
	    chmod(scratch_write(&tmp, "w.yaml", "threads: 8\n"), 0666), 0);
	assert_true(config_load(tmp.path, &c, &e) < 0);
	assert_contains(e.msg, "0664");
	memset(big, '#', sizeof(big) - 1);
	assert_true(
	    config_load(scratch_write(&tmp, "big.yaml", big), &c, &e) < 0);
	assert_contains(e.msg, "65536 bytes");
	memset(big, '[', 50000);
	big[50000] = '\0';
	refuse_text(big, none);
	memset(big, ' ', 40000);
	memcpy(big + 40000, "a: 1", 5);
	refuse_text(big, none);
}

static void empty_documents_are_the_defaults(void **state)
{
	static const char *const texts[] = {
	    "", "\n\n", "# only this\n", "---\n", "--- {}\n", "\xef\xbb\xbf"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct config *c = load_text(texts[i]);

		assert_int_equal(c->concurrency, 4);
		config_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(defaults_are_the_contracts),
	    TEST(file_is_read),
	    TEST(environment_goes_over_the_file),
	    TEST(bad_files_name_line_key_and_what_is_allowed),
	    TEST(bad_variables_are_named),
	    TEST(numbers_have_exact_ranges),
	    TEST(file_is_found),
	    TEST(odd_files_are_refused),
	    TEST(empty_documents_are_the_defaults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
