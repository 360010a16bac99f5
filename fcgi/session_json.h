/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_SESSION_JSON_H
#define ISOBOX_FCGI_SESSION_JSON_H

#include <stdint.h>

#include "lib/buf.h"
#include "lib/kernelproto.h"
#include "lib/store.h"

/* What is told about a session: an object without its closing brace. token NULL:
 * it is told at the creation only. */
void session_put_facts(
    struct buf *out, const struct store_session *s, const char *token);

/* Further members, of a kernel session. */
void session_put_kernel(struct buf *out, const struct store_session *s,
    const struct kernel_info *info);

/* A time as "2026-01-02T03:04:05.678Z", with its quotes; also a volume's. */
void session_put_time(struct buf *out, int64_t ms);

#endif
