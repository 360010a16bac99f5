/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_CONTROL_H
#define ISOBOX_GUEST_CONTROL_H

#include <stdbool.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/job.h"
#include "lib/proto.h"

/*
 * init's end of the two control pipes: frames from and to the supervisor.
 * When the supervisor is slow, nothing is read from the program either, which
 * fills its own pipes and waits, so nothing piles up here.
 */
#define CONTROL_IN 0
#define CONTROL_OUT 1

struct control {
	struct buf in; /* holds the frame that was received */
	size_t taken; /* its bytes */
	struct buf out; /* one frame, its memory used again */
};

/* Whoever calls these: -EPIPE means that the supervisor is gone. */
int control_send(struct control *c, enum proto_type type, const void *payload,
    size_t len, struct err *e);
/* Sends what was built in c->out by proto_begin() and proto_end(). */
int control_flush(struct control *c, struct err *e);

/*
 * Waits for the next frame. The payload points into c->in, until the next call. -EPIPE
 * when the pipe ended before a frame began.
 */
int control_receive(struct control *c, enum proto_type *ret_type,
    struct blob *ret_payload, struct err *e);

/*
 * The same for a loop of its own. control_read() takes what there is, of a pipe
 * that is readable; -EPIPE when it was closed. control_next() returns 1 for a
 * frame, as control_receive() does, and 0 when there is no whole one.
 */
int control_read(struct control *c, struct err *e);
int control_next(struct control *c, enum proto_type *ret_type,
    struct blob *ret_payload, struct err *e);

/* From here on control_push() writes as much of c->out as the pipe takes, and
 * control_flush() still all of it. */
int control_unblock(struct err *e);
int control_push(struct control *c, struct err *e);

/* Whether bytes are here already that no control_receive() has returned. */
bool control_pending(const struct control *c);

/*
 * To be called when CONTROL_IN is readable during a run: -EPIPE when the
 * supervisor has closed it, another error when it sent something.
 */
int control_check(struct err *e);

/* The last frame of a run that init could not do; also to the log. */
void control_fail(struct control *c, const struct err *e);

void control_done(struct control *c);

#endif
