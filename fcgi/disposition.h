/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_DISPOSITION_H
#define ISOBOX_FCGI_DISPOSITION_H

#include <stddef.h>

#include "lib/buf.h"

/*
 * Appends "Content-Disposition: attachment; filename=..." and its CRLF for any
 * file name (RFC 6266, RFC 8187): what is not plain ASCII has a form for old
 * clients, with "_" in the place of what they do not take, and the exact one in
 * UTF-8. Bytes that are no UTF-8 are U+FFFD in it. suffix is plain ASCII.
 */
void disposition_put(
    struct buf *out, const char *name, size_t len, const char *suffix);

#endif
