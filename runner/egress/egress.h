/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_H
#define ISOBOX_EGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"
#include "lib/job.h"
#include "lib/limits.h"
#include "runner/cgroup.h"
#include "runner/egress/policy.h"

/*
 * Filtered egress of one sandbox, as its supervisor holds it. In this order:
 *
 *	egress_open()	before sandbox_start(): starts the router beside it
 *	egress_attach()	after sandbox_start(): links the sandbox's network
 *			namespace to it, and verifies. Only after that may runsc
 *			be started with a network.
 *	egress_check()	when a job is about to use it: still as verified? Or
 *			egress_allow(), when its names were not known before
 *	egress_rest()	before a sandbox is saved
 *	egress_close()	after the answer
 *
 * Whatever fails leaves no way out: the caller goes on without network. The
 * router dies with the supervisor and lives in the sandbox's leaf.
 */
struct egress {
	pid_t pid; /* the router process, 0: none */
	int pidfd;
	int control;
	char resolv_conf[160]; /* for the sandbox's /etc */
};

#define EGRESS_NONE                        \
	{                                  \
		.pidfd = -1, .control = -1 \
	}

/* What may be reached by name only; count 0: all that is not denied. */
struct egress_names {
	const struct blob *names;
	size_t count;
	bool late; /* they come by egress_allow(): nothing until then */
};

static inline bool egress_by_name(const struct egress_names *names)
{
	return names->late || names->count > 0;
}

/* The names in one packet, each with a NUL. */
#define EGRESS_LIST_MAX (LIMIT_ALLOW * 256u)

/*
 * Moves the calling process, which has to be single-threaded, into a user
 * namespace of its own (it is uid 0 there and nobody new outside): the router's
 * and the sandbox's namespaces must have a common parent for a link between
 * them. leaf: whose cgroup the router is in, or NULL. On failure *eg is closed.
 */
int egress_open(struct egress *eg, const struct egress_policy *policy,
    const struct egress_names *names, const struct leaf *leaf, struct err *e);

/* sandbox: a process in the sandbox's network namespace, which has no link yet.
 * Takes milliseconds, bounded by EGRESS_OPEN_MS. On failure *eg is closed. */
int egress_attach(struct egress *eg, pid_t sandbox, struct err *e);

/* Takes microseconds. On failure *eg is closed. */
int egress_check(struct egress *eg, struct err *e);

/* Of one that was opened for names to come, once: these are they. Checks, too. */
int egress_allow(
    struct egress *eg, const struct egress_names *names, struct err *e);

/*
 * Whether the sandbox can be saved: gVisor refuses to save an end of a connection,
 * and that end takes nothing any more then, like others that it had saved before.
 * One in TIME-WAIT is none yet that is gone. -EBUSY: there is one, e says where to,
 * *eg stays as it was. On any other failure *eg is closed.
 */
int egress_rest(struct egress *eg, struct err *e);

void egress_close(struct egress *eg);

/* Opens and verifies it for no sandbox and closes it again: whether this host can
 * do it, and how long it takes until it is open. That what is allowed is reached,
 * too, is tried with a port of the host's own. Moves the process as egress_open()
 * does. */
int egress_try(
    const struct egress_policy *policy, uint64_t *ret_us, struct err *e);

static inline bool egress_is_open(const struct egress *eg)
{
	return eg->pid > 0;
}

#define EGRESS_OPEN_MS 3000u
#define EGRESS_TRIAL_MS 5000u /* what egress_try() takes besides, at most */

#endif
