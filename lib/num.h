/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_NUM_H
#define ISOBOX_NUM_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/*
 * Strict numbers: decimal digits and nothing else. No sign, no space, no
 * trailing byte, no leading zero (which YAML 1.1 and C read as octal).
 */

/* A whole number from min to max. *e says what is allowed. */
int num_parse(
    const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct err *e);

/* A number with at most three decimals, in thousandths ("1.5" is 1500); min and
 * max are thousandths too. */
int num_parse_milli(
    const char *s, uint32_t min, uint32_t max, uint32_t *ret, struct err *e);

/* Digits only, as the headers of HTTP have lengths: -1 for anything else, and for
 * what is beyond 64 bits. */
int64_t num_digits(const char *s, size_t len);

#endif
