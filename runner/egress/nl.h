/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_NL_H
#define ISOBOX_EGRESS_NL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"

struct mnl_socket;
struct nlmsghdr;

/* A netlink socket. It belongs to the network namespace that the caller was in
 * when it was opened, wherever the caller goes. */
struct nl {
	struct mnl_socket *socket;
	uint32_t port;
	uint32_t seq;
};

/* protocol: NETLINK_ROUTE, NETLINK_NETFILTER. Nothing waits longer than a
 * second for the kernel. */
int nl_open(struct nl *nl, int protocol, struct err *e);
void nl_close(struct nl *nl);
int nl_fd(const struct nl *nl);
int nl_join(struct nl *nl, unsigned group, struct err *e);

/*
 * Sends one request, with an acknowledgement asked for unless it is a dump, and
 * has `each` called for every answer; after a negative answer of `each` the
 * rest is passed over. 0 or negative errno.
 */
int nl_request(struct nl *nl, struct nlmsghdr *nlh,
    int (*each)(const struct nlmsghdr *, void *), void *data);

/* Reads what has been sent to it so far and has `each` called; never waits. 0,
 * or -ENOBUFS when the kernel had to drop something. */
int nl_drain(
    struct nl *nl, int (*each)(const struct nlmsghdr *, void *), void *data);

/* The last attribute of that type, of four bytes, after `offset` bytes of the
 * payload; in network byte order where the kernel has it so. */
bool nl_find_u32(
    const struct nlmsghdr *nlh, unsigned offset, uint16_t type, uint32_t *ret);

#endif
