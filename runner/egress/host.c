/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

/* A host with more than that is not followed, and has no egress. */
#define ADDRESSES_MAX 1024u
/* Each is told as a route, as an address, and perhaps with its broadcast's. */
#define TOLD_MAX (4 * ADDRESSES_MAX)
#define READ_TRIES 5u

static bool means_host(unsigned type)
{
	return type == RTN_LOCAL || type == RTN_BROADCAST ||
	       type == RTN_ANYCAST;
}

/* 127.0.0.0/8 is no address that another host could use. */
static bool is_public_side(uint32_t address)
{
	return address >> 24 != 127;
}

static int take_route(const struct nlmsghdr *nlh, void *data)
{
	const struct rtmsg *r = mnl_nlmsg_get_payload(nlh);
	struct host *h = data;
	uint32_t first = 0, host_bits;

	if (nlh->nlmsg_type != RTM_NEWROUTE || r->rtm_family != AF_INET ||
	    !means_host(r->rtm_type) || r->rtm_dst_len > 32)
		return 0;
	if (nl_find_u32(nlh, sizeof(*r), RTA_DST, &first))
		first = ntohl(first);
	host_bits = r->rtm_dst_len < 32 ? UINT32_MAX >> r->rtm_dst_len : 0;
	if (h->addresses.count >= TOLD_MAX)
		return -E2BIG;
	if (h->canary == 0 && r->rtm_type == RTN_LOCAL && host_bits == 0 &&
	    is_public_side(first))
		h->canary = first;
	return ipv4_set_add(&h->addresses, first, first | host_bits);
}

/* Addresses that are in another table: of a VRF, or of a link that is off. */
static int take_address(const struct nlmsghdr *nlh, void *data)
{
	const struct ifaddrmsg *a = mnl_nlmsg_get_payload(nlh);
	struct host *h = data;
	uint32_t address;

	if (nlh->nlmsg_type != RTM_NEWADDR || a->ifa_family != AF_INET ||
	    !nl_find_u32(nlh, sizeof(*a), IFA_LOCAL, &address))
		return 0;
	if (h->addresses.count >= TOLD_MAX)
		return -E2BIG;
	return ipv4_set_add(&h->addresses, ntohl(address), ntohl(address));
}

static int dump_routes(struct host *h)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct rtmsg *r;

	nlh->nlmsg_type = RTM_GETROUTE;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	r = mnl_nlmsg_put_extra_header(nlh, sizeof(*r));
	r->rtm_family = AF_INET;
	mnl_attr_put_u32(nlh, RTA_TABLE, RT_TABLE_LOCAL);
	return nl_request(&h->requests, nlh, take_route, h);
}

static int dump_addresses(struct host *h)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct ifaddrmsg *a;

	nlh->nlmsg_type = RTM_GETADDR;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	a = mnl_nlmsg_put_extra_header(nlh, sizeof(*a));
	a->ifa_family = AF_INET;
	return nl_request(&h->requests, nlh, take_address, h);
}

static int read_addresses(struct host *h, struct err *e)
{
	int rc = -EINTR;

	/* EINTR: it changed while it was read. */
	for (unsigned tries = 0; rc == -EINTR && tries < READ_TRIES; tries++) {
		h->addresses.count = 0;
		h->canary = 0;
		rc = dump_routes(h);
		if (rc == 0)
			rc = dump_addresses(h);
	}
	ipv4_set_settle(&h->addresses);
	if (rc == 0 && h->addresses.count > ADDRESSES_MAX)
		rc = -E2BIG;
	return rc < 0 ? err_sys(e, -rc, "the host's addresses") : 0;
}

int host_open(struct host *h, struct err *e)
{
	const int on = 1;
	int rc;

	/* First the events, then the table: nothing falls between. */
	if ((rc = nl_open(&h->events, NETLINK_ROUTE, e)) < 0 ||
	    (rc = nl_join(&h->events, RTNLGRP_IPV4_IFADDR, e)) < 0 ||
	    (rc = nl_join(&h->events, RTNLGRP_IPV4_ROUTE, e)) < 0 ||
	    (rc = nl_open(&h->requests, NETLINK_ROUTE, e)) < 0)
		return rc;
	/* Else the kernel dumps every table, of a router a million routes. */
	if (setsockopt(nl_fd(&h->requests), SOL_NETLINK, NETLINK_GET_STRICT_CHK,
		&on, sizeof(on)) != 0)
		return err_sys(e, errno, "NETLINK_GET_STRICT_CHK");
	return read_addresses(h, e);
}

void host_close(struct host *h)
{
	nl_close(&h->events);
	nl_close(&h->requests);
	ipv4_set_free(&h->addresses);
}

int host_fd(const struct host *h)
{
	return nl_fd(&h->events);
}

/* Other routes come and go by the thousand on some hosts. */
static int note_event(const struct nlmsghdr *nlh, void *data)
{
	const struct rtmsg *r = mnl_nlmsg_get_payload(nlh);
	bool *dirty = data;

	if (nlh->nlmsg_type == RTM_NEWADDR || nlh->nlmsg_type == RTM_DELADDR)
		*dirty = true;
	else if (nlh->nlmsg_type == RTM_NEWROUTE ||
		 nlh->nlmsg_type == RTM_DELROUTE)
		*dirty |= means_host(r->rtm_type);
	return 0;
}

int host_update(struct host *h, bool *ret_changed, struct err *e)
{
	struct ipv4_set old;
	bool dirty = false;
	int rc = nl_drain(&h->events, note_event, &dirty);

	if (rc < 0 && rc != -ENOBUFS)
		return err_sys(e, -rc, "following the host's addresses");
	*ret_changed = false;
	if (!dirty && rc == 0)
		return 0;
	old = h->addresses;
	h->addresses = (struct ipv4_set){0};
	rc = read_addresses(h, e);
	*ret_changed = rc < 0 || !ipv4_set_equal(&old, &h->addresses);
	ipv4_set_free(&old);
	return rc;
}
