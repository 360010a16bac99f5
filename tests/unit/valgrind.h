/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TEST_VALGRIND_H
#define ISOBOX_TEST_VALGRIND_H

#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"

/* valgrind answers some system calls itself and does not know others: what is
 * about the kernel's own answer cannot be tested under it. */
static inline void skip_under_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	if (preload == NULL || strstr(preload, "vgpreload") == NULL)
		return;
	print_message("the kernel's answers cannot be seen under valgrind\n");
	skip();
}

#endif
