/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_SLIRP_H
#define ISOBOX_EGRESS_SLIRP_H

#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"

/*
 * slirp4netns: tap0 in the router, and at its other end ordinary sockets of an
 * ordinary process in the host's network.
 */
struct slirp {
	pid_t pid; /* 0: none */
	int pidfd;
	int go; /* a byte here, and it starts */
	int ready; /* a byte here: tap0 is there */
	int log;
};

/* Forks it while the caller, PID 1 of a PID namespace with its own /proc, is
 * still in the host's network; it waits. */
int slirp_fork(struct slirp *s, const char *path, struct err *e);

/* Lets it go: it makes tap0 in the network namespace that PID 1 now has. */
int slirp_go(struct slirp *s, struct err *e);

/* Waits until tap0 is there. */
int slirp_await(struct slirp *s, uint64_t until_ms, struct err *e);

/* Why it ended, if it said something. */
int slirp_ended(const struct slirp *s, struct err *e);

#endif
