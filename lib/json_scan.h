/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_JSON_SCAN_H
#define ISOBOX_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/*
 * Whether data is one JSON object as RFC 8259 has it, with what the contract adds:
 * at most LIMIT_JSON_DEPTH levels, valid UTF-8, no byte order mark, no lone
 * surrogates, no duplicate member names, and nothing but white space around it.
 * Also refused is what json-c cannot hold: NUL in a member name (it would end
 * there and pass for another), and more than LIMIT_JSON_VALUES values or
 * LIMIT_JSON_OBJECTS objects. One pass, no recursion; memory is a small multiple
 * of the longest run of member names.
 */
int json_scan(const uint8_t *data, size_t len, struct err *e);

#endif
