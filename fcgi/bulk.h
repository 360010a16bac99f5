/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_BULK_H
#define ISOBOX_FCGI_BULK_H

#include <stdint.h>
#include <sys/types.h>

/* What one FastCGI record takes at most; a multiple of eight wants no padding. */
#define BULK_RECORD_MAX 65528u

/*
 * Sends len bytes (BULK_RECORD_MAX at most) of a file as one FCGI_STDOUT record,
 * without copying them through this process. Nothing may be buffered for the
 * connection elsewhere. 0; negative when the peer takes nothing any more, or the
 * file has become shorter: then half a record is sent, and the connection is of
 * no use.
 */
int bulk_send(
    int sock, uint16_t request_id, int file, uint64_t offset, size_t len);

#endif
