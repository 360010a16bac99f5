/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_ROUTER_H
#define ISOBOX_EGRESS_ROUTER_H

#include <stdint.h>

#include "runner/egress/egress.h"

/* What the supervisor asks on the control socket, one packet that begins with
 * this byte; every question has one answer. */
enum router_ask {
	ROUTER_ATTACH = 'A', /* with the sandbox's network namespace */
	ROUTER_CHECK = 'C',
	ROUTER_REST = 'R', /* is there a connection? */
	ROUTER_ALLOW = 'N' /* and the names, up to EGRESS_LIST_MAX bytes */
};

struct router_answer {
	int32_t code; /* 0, or an errno value: that is its end */
	/* The reason; of ROUTER_REST with code 0: empty, or why it must not be
	 * saved. */
	char why[sizeof(((struct err *)0)->msg)];
};

struct router_order {
	const struct egress_policy *policy;
	const struct egress_names *names;
	const struct leaf *leaf;
	bool enter_leaf; /* v1: not cloned into it */
	int control;
};

/*
 * The life of a router process: PID 1 of a PID namespace of its own, in a mount
 * namespace of its own, still in the host's network, uid 0 of a user namespace
 * that the sandbox's is below.
 */
_Noreturn void router_main(const struct router_order *order);

#endif
