/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of which day a pasta is, as it says itself, and as programs say that are none.
 *
 * LINK: runner/egress/version.o
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "runner/egress/version.h"
#include "tests/unit/scratch.h"

static struct scratch tmp;

static uint32_t day_of(const char *text)
{
	uint32_t day = 0;

	return version_parse("pasta", text, strlen(text), &day) == 0 ? day : 0;
}

static void days(void **state)
{
	static const char *const good[] = {
	    "pasta 2025_05_03.587980c\nCopyright Red Hat\n",
	    "pasta 20250503.587980c\n",
	    "pasta 2025.05.03\n",
	    "pasta 2025-05-03",
	    "pasta 0.0~git20250503.587980c-2+deb13u1\r\nCopyright 2099_01_01",
	    "pasta 0^20250503.g587980c-1.fc42.x86_64\n",
	    "pasta 0.0~git20250503.20990101-1 2099_01_01\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (day_of(good[i]) != 20250503)
			fail_msg("%s is of %u", good[i], day_of(good[i]));
	assert_int_equal(day_of("pasta 2025_12_31"), 20251231);
}

static void no_days(void **state)
{
	static const char *const bad[] = {"", "pasta", "pasta ", "pasta\n",
	    "pasta unknown version\nCopyright 2025_05_03\n",
	    "passt 2025_05_03\n", "pastas 2025_05_03\n", "\npasta 2025_05_03\n",
	    "pasta 1.2.3\n", "pasta 2025_05\n", "pasta 2025_0503\n",
	    "pasta 202505_03\n", "pasta 2025_05.03\n", "pasta 2025-05-3x\n",
	    "pasta 2025_13_01\n", "pasta 2025_00_01\n", "pasta 2025_05_32\n",
	    "pasta 1999_05_03\n", "pasta 202505031\n", "pasta 120250503\n",
	    "pasta 2025_05_031\n", "pasta -2025_-5_03\n", "pasta 2025+05+03\n"};
	static const char nul[] = "pasta 2025\0"
				  "05\0"
				  "03\n";
	uint32_t day = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (day_of(bad[i]) != 0)
			fail_msg("\"%s\" is of %u", bad[i], day_of(bad[i]));
	assert_int_equal(
	    version_parse("pasta", nul, sizeof(nul), &day), -EINVAL);
	assert_int_equal(version_parse("pasta", "pasta 20250503", 13, &day),
	    -EINVAL); /* no byte beyond its length */
	assert_int_equal(day, 7);
}

static const char *program(const char *name, const char *text)
{
	char whole[256];
	const char *path;

	(void)snprintf(whole, sizeof(whole), "#!/bin/sh\n%s\n", text);
	path = scratch_write(&tmp, name, whole);
	assert_int_equal(chmod(path, 0700), 0);
	return path;
}

static int ask(const char *name, const char *text, uint32_t *ret, struct err *e)
{
	return version_ask("pasta", program(name, text), ret, e);
}

static void programs(void **state)
{
	uint32_t day = 0;
	struct err e;

	(void)state;
	assert_int_equal(
	    ask("good", "echo pasta 2025_05_03.x; exit 1", &day, &e), 0);
	assert_int_equal(day, 20250503);
	/* As spring 2025's, which writes its buffer to terminals only. */
	assert_int_equal(
	    ask("tty", "[ -t 1 ] && echo pasta 2025_06_07", &day, &e), 0);
	assert_int_equal(day, 20250607);
	assert_true(ask("mute", "exit 0", &day, &e) < 0);
	assert_contains(e.msg, "does not tell of which day it is");
	assert_true(ask("stderr", "echo pasta 2025_05_03 >&2", &day, &e) < 0);
	assert_true(version_ask("pasta", "/no/such", &day, &e) == -ENOENT);
	assert_int_equal(day, 20250607);
}

static void hostile_programs(void **state)
{
	const uint64_t begun = clock_ms();
	uint32_t day = 0;
	struct err e;

	(void)state;
	assert_true(ask("flood", "exec yes pasta", &day, &e) < 0);
	assert_true(ask("hang", "exec sleep 100", &day, &e) < 0);
	/* What it leaves running holds nobody up either. */
	assert_true(ask("child", "sleep 9 & exec sleep 9", &day, &e) < 0);
	assert_int_equal(day, 0);
	assert_true(clock_ms() - begun < 30000);
}

static int set_up(void **state)
{
	(void)state;
	scratch_make(&tmp);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	scratch_remove(&tmp);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(days),
	    cmocka_unit_test(no_days),
	    cmocka_unit_test(programs),
	    cmocka_unit_test(hostile_programs),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
