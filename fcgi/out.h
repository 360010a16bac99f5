/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_OUT_H
#define ISOBOX_FCGI_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Where an answer goes: the FastCGI connection (conn.c) or a CGI program's
 * standard output (cgi.c). Writes are buffered until out_flush(). A write that
 * fails sets `gone` for good: nobody listens any more.
 */
struct out {
	int (*write)(struct out *o, const void *data, size_t len);
	int (*flush)(struct out *o);
	/* Some of len bytes of a file, when nothing is buffered; how many, or
	 * negative. NULL: it has no way that is better than write. */
	ssize_t (*send_file)(
	    struct out *o, int fd, uint64_t offset, size_t len);
	int (*finish)(struct out *o); /* flush, and the answer is whole */
	/* Whether the client told that it left, though its descriptor is
	 * readable (FCGI_ABORT_REQUEST); NULL when there is no such thing. */
	bool (*aborted)(struct out *o);
	int watch_fd; /* poll(2) tells here that the client is gone, */
	short watch_events; /* by these and what poll always reports */
	bool gone;
	uint64_t bytes; /* written, headers included */
};

static inline int out_write(struct out *o, const void *data, size_t len)
{
	if (!o->gone && o->write(o, data, len) < 0)
		o->gone = true;
	o->bytes += len;
	return o->gone ? -1 : 0;
}

static inline int out_flush(struct out *o)
{
	if (!o->gone && o->flush(o) < 0)
		o->gone = true;
	return o->gone ? -1 : 0;
}

static inline void out_finish(struct out *o)
{
	if (o->finish(o) < 0)
		o->gone = true;
}

/*
 * Writes len bytes of a file. Returns how many it was: less when the client is
 * gone, or the file has become shorter, which breaks the answer off (`gone`).
 */
size_t out_send_file(struct out *o, int fd, uint64_t offset, size_t len);

/* Whether the client is gone, given what poll(2) reported of watch_fd. */
bool out_is_gone(struct out *o, short revents);

/* The same, asked now and without waiting. */
bool out_check_gone(struct out *o);

#endif
