/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_VERSION_H
#define ISOBOX_EGRESS_VERSION_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/* pasta has no version numbers: a version is a day, here as 20250503. */

/*
 * The day in the first line of what `NAME --version` prints: "pasta 2025_05_03.x",
 * "pasta 0.0~git20250503.x-2", "pasta 0^20250503.gx-1.fc42". -EINVAL when there
 * is none, as where a distribution's says "unknown version".
 */
int version_parse(
    const char *name, const char *text, size_t len, uint32_t *ret_day);

/* Runs `path --version`, for at most two seconds. */
int version_ask(
    const char *name, const char *path, uint32_t *ret_day, struct err *e);

#endif
