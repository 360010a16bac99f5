/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WS_COPY_H
#define ISOBOX_WS_COPY_H

#include <stdint.h>

#include "lib/err.h"
#include "runner/ws_walk.h"

/*
 * Copies what is in a workspace into an empty directory that is nobody else's yet:
 * files (by reference where the file system can, else without their holes), hard
 * links among them, folders, links as they are, FIFOs and sockets; modes without
 * set-id bits, and times. Links are never followed, other file systems not
 * entered. Call it as uid 0 of a user namespace (ws_override_modes()), in a
 * process that may be killed: it takes as long as the disk does.
 *
 * ERR_QUOTA_EXCEEDED beyond max_bytes of the disk or LIMIT_WS_FILES files; what
 * was copied by then is the caller's to remove. ERR_SESSION_BUSY (-ESTALE):
 * somebody moved folders meanwhile.
 */
int ws_copy(int from_fd, int to_fd, uint64_t max_bytes, struct ws_usage *ret,
    struct err *e);

#endif
