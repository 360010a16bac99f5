/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_NET_H
#define ISOBOX_EGRESS_NET_H

#include <stdint.h>

#include "lib/err.h"

/*
 * The little network of one sandbox.
 *
 *	sandbox B          router A                           host
 *	eth0 ------------- sb0   tap0 ------- carrier ------- its network
 *	10.255.0.2/30      .1    10.255.1.100/24
 */
#define NET_SANDBOX 0x0aff0002u /* 10.255.0.2 */
#define NET_ROUTER 0x0aff0001u /* 10.255.0.1 */
#define NET_LINK_BITS 30
#define NET_TAP_CIDR "10.255.1.0/24"
#define NET_TAP_BITS 24
#define NET_TAP 0x0aff0164u
#define NET_TAP_TEXT "10.255.1.100" /* slirp4netns takes that one */
#define NET_TAP_GATEWAY 0x0aff0102u
#define NET_TAP_GATEWAY_TEXT "10.255.1.2" /* the carrier itself */
#define NET_SB "sb0"
#define NET_ETH "eth0"
#define NET_TAPDEV "tap0"

/* The largest that every carrier takes: fewer, larger packets. */
#define NET_MTU 65520

/* What the rule set puts on each packet that may pass, and routing asks for. */
#define NET_MARK 0x1b0cu

/* Settings of the network namespace that the caller is in, before it has any
 * link: no forwarding, no IPv6, no redirects, strict source addresses. */
int net_setup_router(struct err *e);
int net_setup_sandbox(struct err *e); /* only: no IPv6 */

/*
 * Routing of the namespace that the caller is in: the sandbox's packets go
 * somewhere only with NET_MARK on them, and what comes back passes the check of
 * its source only so. Who takes the rule set away takes the way out with it.
 */
int net_route_marked(struct err *e);

/* How the kernel follows connections in the namespace that the caller is in; after
 * the rule set. Without a look at the sums of what it passes on: they are the two
 * ends' business, and in packets of 64 KiB they cost half of what all the rules do. */
int net_setup_tracking(struct err *e);

/* Writes ip_forward of the namespace that the caller is in. */
int net_forward(int on, struct err *e);

/* A pair of links: sb0 here, eth0 in the namespace of the descriptor. */
int net_make_pair(int other_netns, struct err *e);

/* Gives a link of this namespace its address and turns it on; the gateway is
 * for a default route by it, 0 for none. */
int net_configure(const char *link, uint32_t address, unsigned bits,
    uint32_t gateway, struct err *e);

/* Turns on a link of this namespace. */
int net_up(const char *link, struct err *e);

/*
 * Waits until a link passes packets. Of a pair the one that was turned on first
 * drops them until a worker of the kernel has seen that the other is on, too: on
 * a busy host that takes milliseconds.
 */
int net_await(const char *link, uint64_t until_ms, struct err *e);

/* Whether tap0 is there, up, and has its address. */
int net_check_tap(struct err *e);

#endif
