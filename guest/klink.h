/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_KLINK_H
#define ISOBOX_GUEST_KLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/kproto.h"
#include "lib/proto.h"

/*
 * init's end of the socket to a kernel's process. That process is the
 * program: any frame that comes may be forged by what it runs, and it may stop
 * reading. So frames have their place, or the kernel is to be killed; nothing
 * here blocks.
 */
struct klink {
	int fd; /* -1 when closed */
	struct buf in;
	struct buf out;
	bool expects_ready; /* KERNEL or RESTORED is not yet answered */
	bool stepping;
	bool tells_start; /* by a frame, when a step's code begins */
	bool started; /* it may be interrupted */
	uint32_t step; /* its number */
	uint32_t interrupts; /* signals sent to the kernel so far */
	uint32_t artifacts; /* of this step */
	uint32_t artifact_left; /* bytes of the last one */
};

/* What one frame means to init. */
enum klink_event {
	KLINK_NONE, /* no whole frame there */
	KLINK_FORWARD, /* it was appended to `to` for the supervisor */
	KLINK_READY, /* likewise */
	KLINK_STARTED,
	KLINK_DONE /* *ret_result is set */
};

/* Makes the pair of sockets; *ret_theirs is the kernel's end. Both are
 * close-on-exec. */
int klink_open(struct klink *l, int *ret_theirs, struct err *e);

/* Queue a frame for the kernel. */
void klink_start(struct klink *l, const struct guest_kernel *k);
void klink_step(struct klink *l, const struct guest_step *s);
void klink_restored(struct klink *l);

/* Writes what the socket takes; returns a negative errno when it is broken. */
int klink_write(struct klink *l, struct err *e);

/* One read; -EPIPE at the end of the stream. */
int klink_read(struct klink *l, struct err *e);

/* Takes one frame out of what was read. Negative: it is none that the kernel
 * may send now. */
int klink_next(struct klink *l, struct buf *to, enum klink_event *ret,
    struct guest_step_result *ret_result, struct err *e);

void klink_done(struct klink *l);

#endif
