/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel prints, and what it never would, through the cgroup parsers.
 * LINK: runner/cgroup_parse.o
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runner/cgroup_ops.h"

static int parse(
    const char *text, char *line, size_t size, struct cgroup_mount *ret)
{
	(void)snprintf(line, size, "%s", text);
	memset(ret, 0xff, sizeof(*ret));
	return cgroup_parse_mount(line, ret);
}

static void mount_of_each_kind(void **state)
{
	struct cgroup_mount m;
	char line[512];

	(void)state;
	assert_int_equal(
	    parse("35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup "
		  "cgroup rw,memory\n",
		line, sizeof(line), &m),
	    1);
	assert_false(m.v2);
	assert_string_equal(m.root, "/");
	assert_string_equal(m.point, "/sys/fs/cgroup/memory");
	assert_string_equal(m.options, "rw,memory");

	/* optional fields, a container's root, no newline */
	assert_int_equal(
	    parse("30 23 0:26 /../../x /sys/fs/cgroup ro shared:9 master:1 "
		  "propagate_from:2 - cgroup2 cgroup2 rw,nsdelegate",
		line, sizeof(line), &m),
	    1);
	assert_true(m.v2);
	assert_string_equal(m.root, "/../../x");
	assert_string_equal(m.options, "rw,nsdelegate");

	assert_int_equal(parse("22 1 254:0 / / rw - ext4 /dev/vda rw", line,
			     sizeof(line), &m),
	    0);
	/* an empty source leaves two spaces */
	assert_int_equal(
	    parse("22 1 0:1 / /c rw - cgroup2  rw", line, sizeof(line), &m), 1);
	assert_string_equal(m.options, "rw");
}

static void mount_points_are_unescaped(void **state)
{
	struct cgroup_mount m;
	char line[512];

	(void)state;
	assert_int_equal(parse("1 2 0:3 /a\\040b /m\\011\\012\\134040\\04 rw - "
			       "cgroup2 none rw",
			     line, sizeof(line), &m),
	    1);
	assert_string_equal(m.root, "/a b");
	assert_string_equal(m.point, "/m\t\n\\040\\04");
}

/* A mount point cannot pretend to be the end of the fields: its spaces come
 * escaped, so these lines are other mounts or none. */
static void mount_lines_that_lie(void **state)
{
	static const struct {
		const char *line;
		int want;
	} t[] = {
	    {"", -EINVAL},
	    {"\n", -EINVAL},
	    {"35", -EINVAL},
	    {"35 31 0:32 / /x", -EINVAL},
	    {"35 31 0:32 / /x rw", -EINVAL},
	    {"35 31 0:32 / /x rw -", -EINVAL},
	    {"35 31 0:32 / /x rw - cgroup2", -EINVAL},
	    {"35 31 0:32 / /x rw - cgroup2 none", -EINVAL},
	    {"35 31 0:32 / /x rw - cgroup2 none rw extra", -EINVAL},
	    {"35 31 0:32 / /x rw shared:1 cgroup2 none rw", -EINVAL},
	    {"35 31 0:32 / /x\\040-\\040cgroup2\\040n\\040rw rw - tmpfs t rw",
		0},
	    {"35 31 0:32 / /x rw - fuse.cgroup2 cgroup2 rw", 0},
	    {"35 31 0:32 / - rw - cgroup22 none rw", 0},
	    {"- - - - - - - cgroup2 - -", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct cgroup_mount m;
		char line[256];

		if (parse(t[i].line, line, sizeof(line), &m) != t[i].want)
			fail_msg("\"%s\" is not %d", t[i].line, t[i].want);
	}
}

static const char hybrid[] = "9:name=systemd:/init.scope\n"
			     "8:pids:/isobox/main\n"
			     "4:memory:/isobox\n"
			     "2:cpu,cpuacct:/a:b/c\n"
			     "0::/unified\n";

static void check_self(
    const char *text, const char *controller, const char *want)
{
	size_t len = 12345;
	const char *got = cgroup_parse_self(text, controller, &len);

	if (want == NULL) {
		assert_null(got);
		return;
	}
	assert_non_null(got);
	assert_int_equal(len, strlen(want));
	assert_memory_equal(got, want, len);
}

static void own_groups(void **state)
{
	(void)state;
	check_self(hybrid, "memory", "/isobox");
	check_self(hybrid, "pids", "/isobox/main");
	check_self(hybrid, "cpu", "/a:b/c");
	check_self(hybrid, "cpuacct", "/a:b/c");
	check_self(hybrid, "", "/unified");
	check_self(hybrid, "mem", NULL);
	check_self(hybrid, "memoryx", NULL);
	check_self(hybrid, "systemd", NULL);
	check_self("0::/", "", "/");
	check_self("0::", "", "");
	check_self("", "memory", NULL);
	check_self("\n\n::\n:", "memory", NULL);
	check_self("junk", "", NULL);
	/* a v1 hierarchy without controllers is not the v2 tree */
	check_self("7::/x\n", "", NULL);
	/* a path that looks like another line */
	check_self("3:cpu:/x:memory:/y\n", "memory", NULL);
}

static void paths(void **state)
{
	static const char *const good[] = {
	    "/", "/a", "/a/b.scope", "/...", "/a..", "/.a", "/a:b c"};
	static const char *const bad[] = {"", "a", "a/b", "//", "/a/", "/a//b",
	    "/.", "/..", "/../x", "/a/../b", "/a/.", "/a/.."};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		if (!cgroup_path_ok(good[i]))
			fail_msg("%s refused", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (cgroup_path_ok(bad[i]))
			fail_msg("\"%s\" accepted", bad[i]);

	assert_string_equal(cgroup_path_below("/", "/a/b"), "a/b");
	assert_string_equal(cgroup_path_below("/", "/"), "");
	assert_string_equal(cgroup_path_below("/a", "/a"), "");
	assert_string_equal(cgroup_path_below("/a", "/a/b"), "b");
	assert_null(cgroup_path_below("/a", "/ab"));
	assert_null(cgroup_path_below("/a/b", "/a"));
	assert_null(cgroup_path_below("/..", "/a"));
}

static void names(void **state)
{
	char longest[CGROUP_LEAF_NAME_MAX + 2];

	(void)state;
	assert_true(cgroup_name_ok("a"));
	assert_true(cgroup_name_ok("AZaz09_-"));
	memset(longest, 'x', sizeof(longest));
	longest[CGROUP_LEAF_NAME_MAX + 1] = '\0';
	assert_false(cgroup_name_ok(longest));
	longest[CGROUP_LEAF_NAME_MAX] = '\0';
	assert_true(cgroup_name_ok(longest));
	assert_false(cgroup_name_ok(""));
	assert_false(cgroup_name_ok("."));
	assert_false(cgroup_name_ok("a/b"));
	assert_false(cgroup_name_ok("a b"));
	assert_false(cgroup_name_ok("a\n"));
	assert_false(cgroup_name_ok("\xc3\xa9"));
}

static void lists(void **state)
{
	(void)state;
	assert_true(cgroup_list_has("cpu memory pids", 15, ' ', "memory"));
	assert_true(cgroup_list_has("cpu memory pids", 15, ' ', "pids"));
	assert_false(cgroup_list_has("cpu memory pids", 13, ' ', "pids"));
	assert_false(cgroup_list_has("cpuset memory", 13, ' ', "cpu"));
	assert_false(cgroup_list_has("", 0, ' ', "cpu"));
	assert_true(cgroup_list_has(",,cpu,", 6, ',', "cpu"));
}

static void check_limit(const char *text, int rc, uint64_t want)
{
	uint64_t got = 42;

	if (cgroup_parse_limit(text, &got) != rc)
		fail_msg("\"%s\" is not %d", text, rc);
	assert_true(got == (rc == 0 ? want : 42));
}

static void limits(void **state)
{
	(void)state;
	check_limit("0\n", 0, 0);
	check_limit("1073741824\n", 0, 1ull << 30);
	check_limit("1073741824", 0, 1ull << 30);
	check_limit("max\n", 0, UINT64_MAX);
	/* v1 without a limit, 4 KiB and 64 KiB pages */
	check_limit("9223372036854771712\n", 0, UINT64_MAX);
	check_limit("9223372036854710272\n", 0, UINT64_MAX);
	check_limit("9223372036854775807\n", 0, UINT64_MAX);
	check_limit("18446744073709551615\n", 0, UINT64_MAX);
	check_limit("9223372036854644736\n", 0, 9223372036854644736ull);
	check_limit("18446744073709551616\n", -EINVAL, 0);
	check_limit("", -EINVAL, 0);
	check_limit("\n", -EINVAL, 0);
	check_limit("maximum", -EINVAL, 0);
	check_limit("-1\n", -EINVAL, 0);
	check_limit("+1\n", -EINVAL, 0);
	check_limit(" 1\n", -EINVAL, 0);
	check_limit("1 \n", -EINVAL, 0);
	check_limit("0x10\n", -EINVAL, 0);
	check_limit("1\n2\n", -EINVAL, 0);
}

static void keys(void **state)
{
	static const char events[] = "low 0\nhigh 0\nmax 7\noom 2\n"
				     "oom_kill 1\noom_group_kill 3\n";

	(void)state;
	assert_int_equal(cgroup_parse_key(events, "oom_kill"), 1);
	assert_int_equal(cgroup_parse_key(events, "oom"), 2);
	assert_int_equal(cgroup_parse_key(events, "oom_group_kill"), 3);
	assert_int_equal(cgroup_parse_key(events, "kill"), -ENOENT);
	assert_int_equal(cgroup_parse_key("", "oom"), -ENOENT);
	assert_int_equal(cgroup_parse_key("oom_kill_disable 0\nunder_oom 0\n"
					  "oom_kill 4",
			     "oom_kill"),
	    4);
	assert_int_equal(cgroup_parse_key("oom\n", "oom"), -ENOENT);
	assert_int_equal(cgroup_parse_key("oom \n", "oom"), -EINVAL);
	assert_int_equal(cgroup_parse_key("oom  1\n", "oom"), -EINVAL);
	assert_int_equal(cgroup_parse_key("oom -1\n", "oom"), -EINVAL);
	assert_int_equal(cgroup_parse_key("oom 1 2\n", "oom"), -EINVAL);
	assert_int_equal(
	    cgroup_parse_key("oom 9223372036854775808\n", "oom"), -EINVAL);
	assert_int_equal(
	    cgroup_parse_key("oom 99999999999999999999999\n", "oom"), -EINVAL);
	assert_true(
	    cgroup_parse_key("oom 9223372036854775807\n", "oom") == INT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(mount_of_each_kind),
	    cmocka_unit_test(mount_points_are_unescaped),
	    cmocka_unit_test(mount_lines_that_lie),
	    cmocka_unit_test(own_groups),
	    cmocka_unit_test(paths),
	    cmocka_unit_test(names),
	    cmocka_unit_test(lists),
	    cmocka_unit_test(limits),
	    cmocka_unit_test(keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
