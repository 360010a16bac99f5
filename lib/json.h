/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_JSON_H
#define ISOBOX_JSON_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"

/*
 * Strict JSON on top of json-c. json-c alone, even with STRICT|VALIDATE_UTF8,
 * lets duplicate keys, single quotes, NaN, raw control characters and lone
 * surrogates pass; a scan before it refuses them.
 */

/*
 * Parses exactly one JSON object of at most LIMIT_JSON_DEPTH levels, valid UTF-8,
 * no duplicate keys, nothing but white space after it. Anything else:
 * ERR_INVALID_JSON with a message that names the byte offset ("unexpected byte
 * at offset 17: ..."). The caller owns *ret (json_object_put()). Never crashes,
 * never uses memory out of proportion to len.
 */
int json_parse_strict(
    const uint8_t *data, size_t len, struct json_object **ret, struct err *e);

/*
 * Typed members of an object; `path` is the name for messages
 * ("limits.memoryBytes"). Absent and null members answer 0 and leave *ret alone;
 * present ones 1; of the wrong type ERR_INVALID_REQUEST
 * ("limits.memoryBytes must be an integer"). Strings are borrowed from obj and
 * may hold NUL bytes: use the length.
 */
int json_get_str(struct json_object *obj, const char *key, const char *path,
    const char **ret, size_t *ret_len, struct err *e);
int json_get_bool(struct json_object *obj, const char *key, const char *path,
    bool *ret, struct err *e);
/* Integers; 1.0 and 1e3 are not integers. Beyond 64 bits clamps (contract). */
int json_get_int(struct json_object *obj, const char *key, const char *path,
    int64_t *ret, struct err *e);
/* Any number, finite. */
int json_get_num(struct json_object *obj, const char *key, const char *path,
    double *ret, struct err *e);
int json_get_obj(struct json_object *obj, const char *key, const char *path,
    struct json_object **ret, struct err *e);
int json_get_arr(struct json_object *obj, const char *key, const char *path,
    struct json_object **ret, struct err *e);

/* Appends s as a JSON string with its quotes; s must be well-formed UTF-8, any
 * bytes below 0x20 and 0x7f are escaped. Non-ASCII is passed through. */
void json_put_str(struct buf *out, const char *s, size_t len);
void json_put_cstr(struct buf *out, const char *s);

#endif
