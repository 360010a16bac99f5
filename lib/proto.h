/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_PROTO_H
#define ISOBOX_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/limits.h"

/*
 * Frames between our processes: isobox.fcgi <-> isobox-runner on a unix stream
 * socket, supervisor <-> isobox-init on the sandbox's stdin and stdout.
 *
 *	u32 length of the payload, little-endian, at most LIMIT_FRAME
 *	u8  type (enum proto_type)
 *	u8  zero, zero, zero
 *	payload
 *
 * A payload is a sequence of little-endian integers, and of byte strings as u32
 * length and bytes. A reader that finds a length beyond the limit, an unknown
 * type, non-zero padding or a payload with too few or too many bytes treats the
 * peer as broken. No allocation in here but buf's, so that the guest's static
 * init uses the same code.
 */
enum proto_type {
	/* fcgi -> runner, the first frame of a connection */
	PROTO_RUN = 1, /* struct job */
	PROTO_STATUS = 2, /* empty; answered by PROTO_STATUS_REPLY */
	PROTO_WS = 3, /* struct ws_request; see lib/wsproto.h */
	PROTO_WS_COMMIT = 4, /* struct ws_commit; ends an upload */
	PROTO_KERNEL = 5, /* struct kernel_request; see lib/kernelproto.h */

	/* runner or supervisor -> fcgi */
	PROTO_STATUS_REPLY = 16, /* struct runner_status */
	PROTO_STARTED = 17, /* empty: the program runs, no errors before it
				 * are left */
	PROTO_STDOUT = 18, /* raw bytes, capped */
	PROTO_STDERR = 19,
	PROTO_DONE = 20, /* struct run_result; the last frame */
	PROTO_FAIL = 21, /* u32 err_kind, u32 retry_after_s, string
				 * message; the last frame */
	PROTO_WS_INFO = 22, /* struct ws_info; a descriptor may come with it */
	PROTO_WS_ENTRIES = 23, /* ws_entry, any number, to the frame's end */
	PROTO_WS_IDS = 24, /* strings, any number, to the frame's end */
	PROTO_WS_DATA = 25, /* raw bytes of an archive */
	PROTO_WS_END = 26, /* empty: all of it came; the last frame */
	PROTO_KERNEL_INFO = 27, /* struct kernel_info; the last frame */
	PROTO_ARTIFACT = 28, /* struct guest_artifact of lib/kproto.h: of a
			      * kernel's step, among its output. Its text is
			      * UTF-8 as far as one believes the program */
	PROTO_ARTIFACT_DATA = 29, /* raw bytes of it, until all are there */

	/* supervisor -> init (PROTO_GUEST_*), runs in this order */
	PROTO_GUEST_JOB = 32, /* struct guest_job */
	PROTO_GUEST_WARM = 33, /* struct guest_warm, before a job or never */
	PROTO_GUEST_KERNEL = 40, /* struct guest_kernel, instead of a job */
	PROTO_GUEST_STEP = 41, /* struct guest_step */
	PROTO_GUEST_INTERRUPT = 42, /* empty: the running step shall end */
	PROTO_GUEST_RESTORED = 43, /* empty: after a restore of the sandbox */

	/* init -> supervisor */
	PROTO_GUEST_READY = 48, /* empty: booted, waits for a job; or
				 * answers RESTORED, for itself alone */
	PROTO_GUEST_STARTED = 49, /* empty: first exec done or about to be */
	PROTO_GUEST_STDOUT = 50, /* raw bytes */
	PROTO_GUEST_STDERR = 51,
	PROTO_GUEST_EXIT = 52, /* struct guest_exit; the last frame */
	PROTO_GUEST_FAIL = 53, /* string: init could not do it; the last */
	PROTO_GUEST_WARMED = 54, /* struct guest_warmed; answers WARM */
	PROTO_GUEST_KERNEL_READY = 64, /* struct guest_modules; answers KERNEL
					* and RESTORED */
	PROTO_GUEST_ARTIFACT = 65, /* struct guest_artifact */
	PROTO_GUEST_ARTIFACT_DATA = 66, /* raw bytes of it */
	PROTO_GUEST_STEP_DONE = 67, /* struct guest_step_result */
};

#define PROTO_HEADER 8u

/* Appends a frame's header and payload to out. */
void proto_put_frame(
    struct buf *out, enum proto_type type, const void *payload, size_t len);

/* The header alone, for a payload of len bytes that is sent from where it lies. */
void proto_put_header(struct buf *out, enum proto_type type, size_t len);

/* A frame whose payload is built in place: begin, put parts, end. */
size_t proto_begin(struct buf *out, enum proto_type type);
void proto_end(struct buf *out, size_t begun);

/*
 * The next whole frame in in[0..len): returns the bytes it takes (header
 * included) and points *ret_payload into `in`; 0 when more bytes are needed;
 * -EPROTO when the peer is broken.
 */
ssize_t proto_next(const uint8_t *in, size_t len, enum proto_type *ret_type,
    const uint8_t **ret_payload, size_t *ret_len);

/* Writers and a bounds-checked reader of payloads. A reader that ran over its
 * end is `bad` and answers zeros; check once by reader_done(): true only when
 * all bytes were taken and none was lacking. */
void put_u8(struct buf *b, uint8_t v);
void put_bool(struct buf *b, bool v);
void put_u32(struct buf *b, uint32_t v);
void put_u64(struct buf *b, uint64_t v);
void put_bytes(struct buf *b, const void *data, size_t len);
void put_cstr(struct buf *b, const char *s);

struct reader {
	const uint8_t *p;
	size_t left;
	bool bad;
};

uint8_t get_u8(struct reader *r);
bool get_bool(struct reader *r); /* anything but 0 and 1 is bad */
uint32_t get_u32(struct reader *r);
uint64_t get_u64(struct reader *r);
/* Points into the payload; NULL and 0 when bad. */
const uint8_t *get_bytes(struct reader *r, size_t *ret_len);
bool reader_done(const struct reader *r);

/* Blocking whole writes and reads of frames (fcgi's side; the runner's loop has
 * its own). fd may be a pipe or a socket; EINTR is retried; never SIGPIPE on a
 * socket. 0 or negative errno. */
int proto_send(int fd, const struct buf *frames);

#endif
