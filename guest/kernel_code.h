/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_KERNEL_CODE_H
#define ISOBOX_GUEST_KERNEL_CODE_H

#include <stdbool.h>

#include "lib/job.h"

/*
 * The program that an interpreter runs to be a kernel: the files of
 * guest/kernel, held in init, so that no image has to have them. With
 * tells_start a step cannot be interrupted before the kernel has said that it
 * runs. False for a language that there is none for.
 */
struct kernel_code {
	struct blob program;
	struct blob reseed; /* to be its input after a restore, or empty */
	bool tells_start;
};

bool kernel_code(const struct blob *language, struct kernel_code *ret);

#endif
