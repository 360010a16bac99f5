/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_CONTROL_H
#define ISOBOX_GUEST_CONTROL_H

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/job.h"
#include "lib/proto.h"

/*
 * init's end of the two control pipes: frames from and to the supervisor.
 * Writes block when the supervisor is slow: then nothing is read from the
 * program either, which fills its own pipes and waits, so nothing piles up
 * here.
 */
#define CONTROL_IN 0
#define CONTROL_OUT 1

struct control {
	struct buf in; /* holds the job that was received */
	struct buf out; /* one frame, its memory used again */
};

/* Whoever calls these: -EPIPE means that the supervisor is gone. */
int control_send(struct control *c, enum proto_type type, const void *payload,
    size_t len, struct err *e);
/* Sends what was built in c->out by proto_begin() and proto_end(). */
int control_flush(struct control *c, struct err *e);

/*
 * Waits for PROTO_GUEST_JOB, the only frame that there is in this direction.
 * *ret points into c->in. -EPIPE when the pipe ended before a frame began.
 */
int control_receive_job(
    struct control *c, struct guest_job *ret, struct err *e);

/*
 * To be called when CONTROL_IN is readable during a run: -EPIPE when the
 * supervisor has closed it, another error when it sent something.
 */
int control_check(struct err *e);

/* The last frame of a run that init could not do; also to the log. */
void control_fail(struct control *c, const struct err *e);

void control_done(struct control *c);

#endif
