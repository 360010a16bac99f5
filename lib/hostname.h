/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_HOSTNAME_H
#define ISOBOX_HOSTNAME_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"

#define HOSTNAME_MAX 253u /* RFC 1035, as text without the last dot */
#define HOSTNAME_LABEL_MAX 63u

/*
 * Checks a host name of an allow-list: labels of letters, digits, "-" and "_"
 * joined by dots; "*." before it stands for one label or more. The last label is
 * no number, so that no address passes for a name. Fails with
 * ERR_INVALID_REQUEST and what is wrong.
 */
int hostname_check_pattern(const char *s, size_t len, struct err *e);

/* Whether a name is what a checked pattern allows; case does not matter. */
bool hostname_matches(
    const char *pattern, size_t pattern_len, const char *name, size_t len);

#endif
