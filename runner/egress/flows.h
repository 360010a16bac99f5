/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_FLOWS_H
#define ISOBOX_EGRESS_FLOWS_H

#include <stdint.h>

#include "lib/err.h"
#include "runner/egress/nl.h"

/* The far end of a connection, in host byte order. */
struct flow_peer {
	uint32_t address;
	uint16_t port;
};

/*
 * Looks for a TCP connection, open or in TIME-WAIT, among those that the kernel
 * follows in the namespace of nl, a NETLINK_NETFILTER socket. 1: there is one, it
 * is in *ret; 0: there is none; or negative errno.
 */
int flows_find(struct nl *nl, struct flow_peer *ret, struct err *e);

#endif
