/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_KERNEL_H
#define ISOBOX_GUEST_KERNEL_H

#include "guest/boot.h"
#include "guest/control.h"
#include "lib/err.h"
#include "lib/job.h"

/*
 * The life of a sandbox that is given a kernel instead of a job: starts the
 * interpreter that payload (PROTO_GUEST_KERNEL, part of control->in) describes
 * and serves its steps until it has died: then 0, PROTO_GUEST_EXIT is sent.
 * Takes the pipes.
 */
int kernel_serve(struct control *control, int signal_fd,
    struct program_pipes *pipes, const struct blob *payload, struct err *e);

#endif
