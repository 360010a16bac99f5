/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_SSE_H
#define ISOBOX_FCGI_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fcgi/out.h"
#include "lib/buf.h"
#include "lib/utf8.h"

enum stream {
	STREAM_STDOUT,
	STREAM_STDERR,
	STREAM_COUNT
};

/*
 * A stream of server-sent events (WHATWG HTML, section 9.2). Every function is
 * harmless once the client is gone; out->gone tells.
 *
 * Also keeps telling whether the client is still there. Apache and Caddy notice
 * that only when they write: Caddy at the third write. So comments go out in
 * bursts, whatever the program prints meanwhile, so often that a client that
 * left is known well within a second.
 */
struct sse {
	struct out *out;
	bool base64;
	struct utf8_stream utf8[STREAM_COUNT];
	enum stream which; /* of pending */
	struct buf pending; /* output not yet made into an event */
	struct buf event; /* scratch */
	uint64_t beat_ms; /* the next comment is due, clock_ms() */
	unsigned beat; /* its number in the burst */
};

/* After the headers: writes a first comment, so that they leave every front. */
void sse_begin(struct sse *s, struct out *out, bool base64);
void sse_done(struct sse *s); /* frees */

/* Output of the program; what comes together becomes one event. */
void sse_output(
    struct sse *s, enum stream which, const uint8_t *data, size_t len);

/* Sends what is there. */
void sse_flush(struct sse *s);

/* The end of a stream: half a character is a bad one, or was cut by the cap. */
void sse_output_end(struct sse *s, enum stream which, bool cut);

/* An event of its own, sent at once. data is one line. */
void sse_event(struct sse *s, const char *name, const void *data, size_t len);

/* A comment line, not yet sent: it goes out with what follows. */
void sse_comment(struct sse *s, const char *text);

/* Sends the comment when it is due. */
void sse_beat(struct sse *s);

#endif
