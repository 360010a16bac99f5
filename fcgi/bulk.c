/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/bulk.h"

#include <assert.h>
#include <errno.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

/* FastCGI 1.0, sections 3.3 and 8. */
#define VERSION_1 1
#define TYPE_STDOUT 6

static int send_header(int sock, uint16_t id, size_t len)
{
	const uint8_t header[8] = {VERSION_1, TYPE_STDOUT, (uint8_t)(id >> 8),
	    (uint8_t)id, (uint8_t)(len >> 8), (uint8_t)len};
	ssize_t n;

	do
		n = send(sock, header, sizeof(header), MSG_NOSIGNAL | MSG_MORE);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	/* A stream socket takes so few bytes whole or not at all. */
	return n == (ssize_t)sizeof(header) ? 0 : -EIO;
}

int bulk_send(
    int sock, uint16_t request_id, int file, uint64_t offset, size_t len)
{
	off_t at = (off_t)offset;
	int r;

	assert(len > 0 && len <= BULK_RECORD_MAX);
	r = send_header(sock, request_id, len);
	while (r == 0 && len > 0) {
		ssize_t n = sendfile(sock, file, &at, len);

		if (n > 0)
			len -= (size_t)n;
		else if (n == 0)
			r = -EIO; /* the file ends before */
		else if (errno != EINTR)
			r = -errno;
	}
	return r;
}
