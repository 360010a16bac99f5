/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TIMESTAMP_H
#define ISOBOX_TIMESTAMP_H

#include <stdint.h>

#define TIMESTAMP_SIZE 25u

/* "2026-01-02T03:04:05.678Z" (RFC 3339) of milliseconds since 1970; "" when that
 * is before 1970 or behind the year 9999. */
void timestamp(int64_t ms, char ret[TIMESTAMP_SIZE]);

#endif
