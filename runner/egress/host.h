/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_HOST_H
#define ISOBOX_EGRESS_HOST_H

#include <stdbool.h>

#include "lib/err.h"
#include "lib/ipv4.h"
#include "runner/egress/nl.h"

/*
 * Every IPv4 address that means the host itself: what its local routing table
 * says, which is what its kernel goes by. Addresses of interfaces are in it,
 * broadcast addresses, and prefixes that were declared local.
 */
struct host {
	struct nl events;
	struct nl requests;
	struct ipv4_set addresses;
	uint32_t canary; /* an address of a link, for a probe; 0: none */
};

/* Called in the host's namespace; follows from then on. */
int host_open(struct host *h, struct err *e);
void host_close(struct host *h);

/* Readable when something may have changed. */
int host_fd(const struct host *h);

/* Takes what has changed, without waiting. *ret_changed: the set is another
 * one. */
int host_update(struct host *h, bool *ret_changed, struct err *e);

#endif
