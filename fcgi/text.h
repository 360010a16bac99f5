/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_TEXT_H
#define ISOBOX_FCGI_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"

/* Appends a program's output as a JSON string. */

/* Well-formed UTF-8. */
void text_put_utf8(struct buf *out, const uint8_t *data, size_t len);

/* Any bytes, in base64 (RFC 4648, section 4). */
void text_put_base64(struct buf *out, const uint8_t *data, size_t len);

/* Any bytes; each bad part becomes U+FFFD. A character cut in two at the end is
 * left out when the output was cut there. */
void text_put_decoded(
    struct buf *out, const uint8_t *data, size_t len, bool cut);

#endif
