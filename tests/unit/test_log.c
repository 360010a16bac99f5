/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log.h"

#include <errno.h>
#include <regex.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

/* What is written to stderr between capture_begin() and capture_end(). */
struct capture {
	int saved;
	int pipe[2];
	char text[65536];
};

static void capture_begin(struct capture *c)
{
	c->saved = dup(STDERR_FILENO);
	assert_return_code(pipe(c->pipe), errno);
	assert_return_code(dup2(c->pipe[1], STDERR_FILENO), errno);
	close(c->pipe[1]);
}

static void capture_end(struct capture *c)
{
	ssize_t n;
	size_t len = 0;

	(void)dup2(c->saved, STDERR_FILENO);
	close(c->saved);
	while ((n = read(
		    c->pipe[0], c->text + len, sizeof(c->text) - 1 - len)) > 0)
		len += (size_t)n;
	close(c->pipe[0]);
	c->text[len] = '\0';
}

static struct capture cap;

static const char *logged(const char *message)
{
	capture_begin(&cap);
	log_error("%s", message);
	capture_end(&cap);
	return cap.text;
}

/* The line without its prefix, which ends in "]: ". */
static const char *body(const char *line)
{
	const char *colon = strstr(line, "]: ");

	assert_non_null(colon);
	return colon + 3;
}

static void a_line_has_the_documented_form(void **state)
{
	static const char form[] =
	    "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
	    "\\.[0-9]{3}Z ERROR prog\\[[0-9]+\\]: hello\n$";
	regex_t re;

	(void)state;
	log_init("prog", LOG_LVL_INFO);
	assert_int_equal(regcomp(&re, form, REG_EXTENDED | REG_NOSUB), 0);
	assert_int_equal(regexec(&re, logged("hello"), 0, NULL, 0), 0);
	regfree(&re);
}

static void control_bytes_are_escaped(void **state)
{
	static const struct {
		const char *in;
		const char *out;
	} cases[] = {
	    {"a\nb\r\x1b[0m\x7f\t", "a\\nb\\x0d\\x1b[0m\\x7f\\x09\n"},
	    {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n"},
	    {"c1 \xc2\x85\xc2\x9b\xc2\xa0",
		"c1 \\xc2\\x85\\xc2\\x9b\xc2\xa0\n"},
	    {"bad \xff \xc3\xa9", "bad \\xff \\xc3\\xa9\n"},
	    {"\xc2", "\\xc2\n"},
	    {"", "\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_string_equal(body(logged(cases[i].in)), cases[i].out);
}

static void long_lines_are_cut_and_atomic(void **state)
{
	char text[8192];
	size_t n;

	(void)state;
	memset(text, '\x01', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	n = strlen(logged(text));
	assert_in_range(n, 4000, 4096);
	assert_string_equal(cap.text + n - 4, "...\n");
	memset(text, 'a', sizeof(text) - 1);
	n = strlen(logged(text));
	assert_in_range(n, 2048, 4096);
	assert_string_equal(cap.text + n - 4, "...\n");
}

static void levels_filter(void **state)
{
	(void)state;
	log_init("prog", LOG_LVL_WARN);
	capture_begin(&cap);
	log_debug("1");
	log_info("2");
	log_warn("3");
	log_error("4");
	capture_end(&cap);
	assert_null(strstr(cap.text, ": 1"));
	assert_null(strstr(cap.text, ": 2"));
	assert_contains(cap.text, " WARN prog[");
	assert_contains(cap.text, ": 4\n");
	log_init("prog", LOG_LVL_DEBUG);
	capture_begin(&cap);
	log_debug("1");
	capture_end(&cap);
	assert_contains(cap.text, " DEBUG prog[");
}

static void level_words(void **state)
{
	(void)state;
	assert_int_equal(log_level_parse("error"), LOG_LVL_ERROR);
	assert_int_equal(log_level_parse("warn"), LOG_LVL_WARN);
	assert_int_equal(log_level_parse("info"), LOG_LVL_INFO);
	assert_int_equal(log_level_parse("debug"), LOG_LVL_DEBUG);
	assert_int_equal(log_level_parse("Error"), -1);
	assert_int_equal(log_level_parse(""), -1);
}

static void errno_survives(void **state)
{
	(void)state;
	log_init("prog", LOG_LVL_INFO);
	capture_begin(&cap);
	close(STDERR_FILENO); /* the write fails with EBADF */
	errno = ENOENT;
	log_error("x");
	assert_int_equal(errno, ENOENT);
	capture_end(&cap);
}

static void die_says_why_and_exits_1(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	log_init("prog", LOG_LVL_ERROR);
	capture_begin(&cap);
	pid = fork();
	if (pid == 0)
		die("no %s", "luck");
	capture_end(&cap);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_string_equal(body(cap.text), "fatal: no luck\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_line_has_the_documented_form),
	    cmocka_unit_test(control_bytes_are_escaped),
	    cmocka_unit_test(long_lines_are_cut_and_atomic),
	    cmocka_unit_test(levels_filter),
	    cmocka_unit_test(level_words),
	    cmocka_unit_test(errno_survives),
	    cmocka_unit_test(die_says_why_and_exits_1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
