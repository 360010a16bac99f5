/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TEST_UNIT_H
#define ISOBOX_TEST_UNIT_H

/* What each unit test includes after the headers under test. cmocka.h wants the
 * standard ones before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Evaluates to whether the string has the part; names both when it has not. */
#define assert_contains(s, part)                                      \
	do {                                                          \
		if (strstr((s), (part)) == NULL)                      \
			fail_msg("\"%s\" lacks \"%s\"", (s), (part)); \
	} while (0)

#endif
