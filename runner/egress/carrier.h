/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_CARRIER_H
#define ISOBOX_EGRESS_CARRIER_H

#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"

/*
 * The carrier, a program of others': tap0 in the router, and at its other end
 * ordinary sockets of an ordinary process in the host's network. Which programs
 * can be it is a table in carrier.c.
 */
struct carrier_driver {
	const char *name; /* as egress_driver has it */
	const char *const *argv;
	int ready_fd; /* what it says there means: tap0 is there */
	uint64_t memory_bytes; /* it and a router, of a sandbox's leaf */
	uint32_t since; /* its oldest version that will do; 0: any */
};

extern const struct carrier_driver carrier_slirp4netns;
extern const struct carrier_driver carrier_pasta;

struct carrier {
	const struct carrier_driver *driver;
	pid_t pid; /* 0: none */
	int pidfd;
	int go; /* a byte here, and it starts */
	int ready; /* a byte here: tap0 is there */
	int log;
};

/* Forks it while the caller, PID 1 of a PID namespace with its own /proc, is
 * still in the host's network; it waits. */
int carrier_fork(struct carrier *c, const struct carrier_driver *driver,
    const char *path, struct err *e);

/* Lets it go: it makes tap0 in the network namespace that PID 1 now has. */
int carrier_go(struct carrier *c, struct err *e);

/* Waits until tap0 is there. */
int carrier_await(struct carrier *c, uint64_t until_ms, struct err *e);

/* Why it ended, if it said something. */
int carrier_ended(const struct carrier *c, struct err *e);

#endif
