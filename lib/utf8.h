/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_UTF8_H
#define ISOBOX_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"

/* Whether the whole of data is well-formed UTF-8 (Unicode 15, table 3-7). On
 * false *ret_offset (if not NULL) is the offset of the first bad byte. */
bool utf8_valid(const uint8_t *data, size_t len, size_t *ret_offset);

/*
 * Streaming decoder: bytes in, well-formed UTF-8 out. Each maximal subpart of an
 * ill-formed sequence becomes one U+FFFD (Unicode 15 section 3.9, as WHATWG). A
 * character split over two calls is held back until it is whole.
 */
struct utf8_stream {
	uint8_t held[4];
	uint8_t held_len;
};

/* Appends the decoded form of data to out. */
void utf8_stream_put(
    struct utf8_stream *u, const uint8_t *data, size_t len, struct buf *out);

/* The end: what is held becomes U+FFFD, or is dropped when `cut` says that the
 * stream was cut by a cap (then it is half a character, not a bad one). */
void utf8_stream_end(struct utf8_stream *u, bool cut, struct buf *out);

/*
 * Appends a name of any bytes as well-formed UTF-8, of no two the same: each byte
 * that is none becomes U+FFFD and two digits (0-9A-F), and so do the bytes of
 * U+FFFD. Every other text stays as it is. At most five times as long.
 */
void utf8_spell(struct buf *out, const uint8_t *data, size_t len);

#endif
