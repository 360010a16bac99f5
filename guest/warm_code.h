/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_WARM_CODE_H
#define ISOBOX_GUEST_WARM_CODE_H

#include <stdbool.h>

#include "lib/job.h"

/*
 * What an interpreter runs to wait: the files of guest/warm, held in init. So an
 * image has no more than a hook that asks for it, and stays as it is when this
 * changes. False for a language that there is none for.
 */
bool warm_code(const char *language, struct blob *ret);

#endif
