/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_TEXT_H
#define ISOBOX_FCGI_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"

/* What comes from elsewhere, for a client. First a program's output, each appended as
 * a JSON string. */

/* Well-formed UTF-8. */
void text_put_utf8(struct buf *out, const uint8_t *data, size_t len);

/* Any bytes, in base64 (RFC 4648, section 4). */
void text_put_base64(struct buf *out, const uint8_t *data, size_t len);

/* Any bytes; each bad part becomes U+FFFD. A character cut in two at the end is
 * left out when the output was cut there. */
void text_put_decoded(
    struct buf *out, const uint8_t *data, size_t len, bool cut);

/*
 * Appends a reason of the host's side without the host's paths: each word with a
 * slash in it becomes "[path]". So who writes a reason need not think of who reads
 * it; the log has it whole.
 */
void text_hide_paths(struct buf *out, const char *reason);

/* The same as a JSON string, of any bytes. */
void text_put_reason(struct buf *out, const char *reason);

#endif
