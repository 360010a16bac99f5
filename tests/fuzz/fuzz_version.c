/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program says of its version.
 *
 * LINK: runner/egress/version.o
 */
#include "runner/egress/version.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t day = 0;

	if (version_parse("pasta", (const char *)data, size, &day) < 0)
		return 0;
	require(day >= 20000101 && day <= 99991231);
	require(day / 100 % 100 >= 1 && day / 100 % 100 <= 12);
	require(day % 100 >= 1 && day % 100 <= 31);
	return 0;
}
