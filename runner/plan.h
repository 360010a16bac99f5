/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_PLAN_H
#define ISOBOX_PLAN_H

#include <stdbool.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/job.h"
#include "lib/registry.h"

/*
 * From what a client asked (struct job) and what the registry says of the
 * runtime to what isobox-init is told: appends a whole PROTO_GUEST_JOB frame to
 * out. The entry's name stands in argv where the registry has "{source}"; the
 * request's arguments follow the run command. A session's step works in
 * /workspace, its source is in /box all the same. Pure.
 */
int plan_guest_job(const struct runtime *rt, const struct job *job,
    struct buf *out, struct err *e);

/*
 * Likewise a whole PROTO_GUEST_WARM frame: the interpreter, or compiler (`warm:`
 * in the registry), that a job of this runtime would be started with, if its entry is called as the runtime's
 * source_file. preload: NULL-terminated names of modules, or NULL for none; more
 * than LIMIT_PRELOAD of them is an error. `step`: for the steps of a session. Pure.
 */
int plan_guest_warm(const struct runtime *rt, char *const *preload, bool step,
    struct buf *out, struct err *e);

/*
 * A PROTO_GUEST_KERNEL frame: the runtime's interpreter, as one that reads its
 * program from standard input. ERR_KERNEL_UNSUPPORTED when isobox-init has no
 * kernel for it. Pure.
 */
int plan_guest_kernel(
    const struct runtime *rt, uint32_t pids, struct buf *out, struct err *e);

/* The PROTO_GUEST_STEP frame of a job in a kernel. Pure. */
int plan_guest_step(
    const struct job *job, uint32_t number, struct buf *out, struct err *e);

#endif
