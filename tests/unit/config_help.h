/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TEST_CONFIG_HELP_H
#define ISOBOX_TEST_CONFIG_HELP_H

#include "lib/config.h"
#include "tests/unit/scratch.h"

/* For the tests of config.h: no variable of ours is set, a directory is there. */
static struct scratch tmp;

static inline int set_up(void **state)
{
	(void)state;
	for (char **var = environ; *var != NULL;) {
		char name[128];

		if (strncmp(*var, "ISOBOX_", 7) != 0) {
			var++;
			continue;
		}
		(void)snprintf(
		    name, sizeof(name), "%.*s", (int)strcspn(*var, "="), *var);
		assert_int_equal(unsetenv(name), 0);
		var = environ;
	}
	scratch_make(&tmp);
	return 0;
}

static inline int tear_down(void **state)
{
	scratch_remove(&tmp);
	return set_up(state) == 0 ? rmdir(tmp.dir) : -1;
}

/* Loads a configuration of that text, which must be good. */
static inline struct config *load_text(const char *text)
{
	struct config *c = NULL;
	struct err e = {0};

	if (config_load(scratch_write(&tmp, "c.yaml", text), &c, &e) < 0)
		fail_msg("refused: %s", e.msg);
	return c;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
