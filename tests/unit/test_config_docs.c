/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/config_table.h"
#include "tests/unit/config_help.h"

/* What is printed and written about the configuration agrees with its table. */

/* What config_print() writes, in a buffer of ours. */
static void print_to(const struct config *c, char *ret, size_t size)
{
	int saved = dup(STDOUT_FILENO);
	int fd = open(scratch_path(&tmp, "out.yaml"),
	    O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	assert_true(saved >= 0 && fd >= 0);
	assert_int_equal(fflush(stdout), 0);
	assert_true(dup2(fd, STDOUT_FILENO) >= 0);
	config_print(c);
	assert_int_equal(fflush(stdout), 0);
	assert_true(dup2(saved, STDOUT_FILENO) >= 0);
	n = pread(fd, ret, size - 1, 0);
	assert_true(n > 0 && (size_t)n < size - 1);
	ret[n] = '\0';
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(saved), 0);
}

static void printed_configuration_reads_back_without_secrets(void **state)
{
	static char first[32768];
	static char second[32768];
	struct config *c = load_text("api_key: sEcReT1\napi_keys: [sEcReT2]\n"
				     "ai_key: sEcReT3\nconcurrency: 77\n"
				     "runsc: \"/a \\\"b\\\" \\\\c\"\n"
				     "allowed_users: [www-data, '12']\n"
				     "access_log: ''\nallow_network: no\n");

	(void)state;
	print_to(c, first, sizeof(first));
	config_free(c);
	assert_null(strstr(first, "sEcReT"));
	assert_contains(first, "(2 keys in all)");
	assert_contains(first, "ai_key: (set, not shown)");
	assert_contains(first, "concurrency: 77\n");
	for (size_t i = 0; i < config_key_count; i++) {
		assert_contains(first, config_keys[i].name);
		assert_contains(first, config_keys[i].env);
		assert_contains(first, config_keys[i].meaning);
	}
	c = load_text(first);
	assert_int_equal(c->concurrency, 77);
	assert_string_equal(c->runsc, "/a \"b\" \\c");
	assert_string_equal(c->allowed_users[1], "12");
	assert_false(c->allow_network);
	c->key_count = 2;
	print_to(c, second, sizeof(second));
	config_free(c);
	assert_int_equal(strlen(first),
	    strlen(second) + strlen("(set, not shown)") - strlen("(not set)"));
}

static char *read_repository_file(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (f == NULL)
		fail_msg("%s: run this in the repository's root", path);
	assert_true(getdelim(&text, &size, '\0', f) > 0);
	(void)fclose(f);
	return text;
}

/* Takes the comment sign off the lines that are "#key: value". */
static void uncomment(char *text)
{
	for (char *p = text; (p = strstr(p, "\n#")) != NULL; p++)
		if (p[2] >= 'a' && p[2] <= 'z')
			memmove(p + 1, p + 2, strlen(p + 2) + 1);
}

static void assert_same_list(char *const *a, char *const *b)
{
	size_t i = 0;

	for (; a[i] != NULL && b[i] != NULL; i++)
		assert_string_equal(a[i], b[i]);
	assert_null(a[i]);
	assert_null(b[i]);
}

static void assert_same(
    const struct config *a, const struct config *b, const struct config_key *k)
{
	const void *x = (const char *)a + k->offset;
	const void *y = (const char *)b + k->offset;

	/* These two follow the PREFIX of the build. */
	if (k->def != NULL && strncmp(k->def, "/usr/", 5) == 0)
		return;
	if (k->type == CONFIG_BOOL)
		assert_memory_equal(x, y, sizeof(bool));
	else if (k->type == CONFIG_UINT)
		assert_memory_equal(x, y, sizeof(uint32_t));
	else if (k->type == CONFIG_LIST && k->def != NULL)
		assert_same_list(
		    *(char *const *const *)x, *(char *const *const *)y);
	else if (k->def != NULL)
		assert_string_equal(*(char *const *)x, *(char *const *)y);
}

static void example_file_shows_each_key_with_its_default(void **state)
{
	char *text = read_repository_file("examples/isobox.yaml");
	struct config *plain = load_text("");
	struct config *c = load_text(text);
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *k = &config_keys[i];
		char line[256];

		assert_same(c, plain, k);
		(void)snprintf(line, sizeof(line), "\n#%s: ", k->name);
		if (k->offset != offsetof(struct config, allowed_users))
			assert_contains(text, line);
		(void)snprintf(line, sizeof(line), "\n# %s, ", k->env);
		assert_contains(text, line);
		if (k->type != CONFIG_UINT)
			continue;
		(void)snprintf(line, sizeof(line),
		    "\n# %s, %" PRIu64 " to %" PRIu64 "\n", k->env, k->min,
		    k->max);
		assert_contains(text, line);
	}
	config_free(c);
	uncomment(text);
	(void)scratch_write(&tmp, "c.yaml", text);
	if (config_load_without_keys(tmp.path, &c, &e) < 0)
		fail_msg("refused: %s", e.msg);
	for (size_t i = 0; i < config_key_count; i++)
		assert_same(c, plain, &config_keys[i]);
	assert_non_null(c->api_keys_file);
	config_free(c);
	config_free(plain);
	free(text);
}

/* The manual's part about k; the caller frees it. */
static char *manual_entry(char *text, const struct config_key *k)
{
	char head[256];
	char *begin;
	char *end;

	(void)snprintf(
	    head, sizeof(head), "\n.It Ic %s\n.Pq Ev %s\n", k->name, k->env);
	begin = strstr(text, head);
	if (begin == NULL)
		fail_msg("the manual lacks \"%s\"", head + 1);
	end = strstr(begin + strlen(head), "\n.It");
	if (end == NULL)
		end = strstr(begin, "\n.El");
	assert_non_null(end);
	return strndup(begin, (size_t)(end - begin));
}

static void manual_describes_each_key(void **state)
{
	char *text = read_repository_file("docs/man/isobox.yaml.5");

	(void)state;
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *k = &config_keys[i];
		char *entry = manual_entry(text, k);
		char line[256];

		assert_non_null(entry);
		(void)snprintf(line, sizeof(line),
		    "\n%" PRIu64 " to %" PRIu64 ", default %s.", k->min, k->max,
		    k->def != NULL ? k->def : "");
		if (k->type == CONFIG_UINT)
			assert_contains(entry, line);
		free(entry);
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(printed_configuration_reads_back_without_secrets),
	    TEST(example_file_shows_each_key_with_its_default),
	    TEST(manual_describes_each_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
