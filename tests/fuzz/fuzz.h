/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TEST_FUZZ_H
#define ISOBOX_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise of the code under test; broken, it is a finding like a crash. */
#define require(cond)                                                          \
	do {                                                                   \
		if (!(cond)) {                                                 \
			(void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, \
			    __LINE__, #cond);                                  \
			abort();                                               \
		}                                                              \
	} while (0)

#endif
