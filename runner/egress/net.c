/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "runner/egress/nl.h"

struct setting {
	const char *path; /* below /proc/sys/net */
	const char *value;
};

#define SYSCTL "/proc/sys/net/"
#define AWAIT_NS 200000

/* Of routing: after the local table (0), before the main one (32766). */
#define PRIORITY_MARKED 10u
#define PRIORITY_REST 11u

/* RFC 2863, IF_OPER_* of linux/if.h, which clashes with net/if.h. */
#define OPER_UNKNOWN 0
#define OPER_UP 6

/* A new namespace has the host's ip_forward: it is the first to go. ICMP that
 * refuses UDP must come at once, so no limit on it; ratemask 0 keeps it out of
 * the limit that all namespaces of the host share. */
static const struct setting router_settings[] = {
    {"ipv4/ip_forward", "0"},
    {"ipv4/conf/all/rp_filter", "1"},
    {"ipv4/conf/default/rp_filter", "1"},
    {"ipv4/conf/all/src_valid_mark", "1"}, /* see net_route_marked() */
    {"ipv4/conf/all/accept_redirects", "0"},
    {"ipv4/conf/default/accept_redirects", "0"},
    {"ipv4/conf/all/send_redirects", "0"},
    {"ipv4/conf/default/send_redirects", "0"},
    {"ipv4/conf/all/accept_source_route", "0"},
    {"ipv4/conf/default/accept_source_route", "0"},
    {"ipv4/conf/all/route_localnet", "0"},
    {"ipv4/conf/default/route_localnet", "0"},
    {"ipv4/conf/all/proxy_arp", "0"},
    {"ipv4/conf/default/proxy_arp", "0"},
    {"ipv4/conf/all/arp_ignore", "1"},
    {"ipv4/icmp_ratelimit", "0"},
    {"ipv4/icmp_ratemask", "0"},
};

/* Kernels differ in which of these a namespace has, and none before what follows
 * connections is loaded, with the rule set. Nothing that is refused depends on
 * them. gVisor's TIME-WAIT lasts a minute: who is asked whether a connection is
 * left (flows.h) must not say no before that, nor much later (its own is two). */
static const struct setting tracking[] = {
    {"netfilter/nf_conntrack_checksum", "0"},
    {"netfilter/nf_conntrack_tcp_timeout_time_wait", "61"},
};

/* Absent where the kernel has no IPv6 at all. */
static const struct setting no_ipv6[] = {
    {"ipv6/conf/all/disable_ipv6", "1"},
    {"ipv6/conf/default/disable_ipv6", "1"},
};

static int write_setting(const char *name, const char *value, struct err *e)
{
	char path[128];
	cleanup_fd int fd = -1;
	int n = snprintf(path, sizeof(path), SYSCTL "%s", name);

	if (n < 0 || (size_t)n >= sizeof(path))
		return err_sys(e, ENAMETOOLONG, "%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		return err_sys(e, errno, "%s", path);
	return 0;
}

static bool has_setting(const char *name)
{
	char path[128];
	int n = snprintf(path, sizeof(path), SYSCTL "%s", name);

	return n > 0 && (size_t)n < sizeof(path) && access(path, F_OK) == 0;
}

int net_setup_sandbox(struct err *e)
{
	int rc;

	if (!has_setting("ipv6"))
		return 0;
	for (size_t i = 0; i < sizeof(no_ipv6) / sizeof(no_ipv6[0]); i++)
		if ((rc = write_setting(no_ipv6[i].path, no_ipv6[i].value, e)) <
		    0)
			return rc;
	return 0;
}

int net_setup_router(struct err *e)
{
	const struct setting *s = router_settings;
	int rc;

	for (size_t i = 0;
	     i < sizeof(router_settings) / sizeof(router_settings[0]); i++)
		if ((rc = write_setting(s[i].path, s[i].value, e)) < 0)
			return rc;
	return net_setup_sandbox(e);
}

int net_setup_tracking(struct err *e)
{
	int rc = 0;

	for (size_t i = 0;
	     rc == 0 && i < sizeof(tracking) / sizeof(tracking[0]); i++)
		if (has_setting(tracking[i].path))
			rc = write_setting(
			    tracking[i].path, tracking[i].value, e);
	return rc;
}

int net_forward(int on, struct err *e)
{
	return write_setting("ipv4/ip_forward", on ? "1" : "0", e);
}

static int talk(struct nlmsghdr *nlh, const char *what, struct err *e)
{
	struct nl nl = {0};
	int rc = nl_open(&nl, NETLINK_ROUTE, e);

	if (rc < 0)
		return rc;
	rc = nl_request(&nl, nlh, NULL, NULL);
	nl_close(&nl);
	return rc < 0 ? err_sys(e, -rc, "%s", what) : 0;
}

int net_make_pair(int other_netns, struct err *e)
{
	char room[512];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct nlattr *info, *data, *peer;

	nlh->nlmsg_type = RTM_NEWLINK;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
	(void)mnl_nlmsg_put_extra_header(nlh, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(nlh, IFLA_IFNAME, NET_SB);
	mnl_attr_put_u32(nlh, IFLA_MTU, NET_MTU);
	info = mnl_attr_nest_start(nlh, IFLA_LINKINFO);
	mnl_attr_put_strz(nlh, IFLA_INFO_KIND, "veth");
	data = mnl_attr_nest_start(nlh, IFLA_INFO_DATA);
	peer = mnl_attr_nest_start(nlh, VETH_INFO_PEER);
	(void)mnl_nlmsg_put_extra_header(nlh, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(nlh, IFLA_IFNAME, NET_ETH);
	mnl_attr_put_u32(nlh, IFLA_MTU, NET_MTU);
	mnl_attr_put_u32(nlh, IFLA_NET_NS_FD, (uint32_t)other_netns);
	mnl_attr_nest_end(nlh, peer);
	mnl_attr_nest_end(nlh, data);
	mnl_attr_nest_end(nlh, info);
	return talk(nlh, "making a pair of links", e);
}

/* mark 0: any. */
static int add_routing_rule(uint32_t priority, uint32_t mark, uint8_t action,
    uint8_t table, struct err *e)
{
	char room[256];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct fib_rule_hdr *r;

	nlh->nlmsg_type = RTM_NEWRULE;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
	r = mnl_nlmsg_put_extra_header(nlh, sizeof(*r));
	r->family = AF_INET;
	r->action = action;
	r->table = table;
	mnl_attr_put_u32(nlh, FRA_PRIORITY, priority);
	mnl_attr_put_strz(nlh, FRA_IIFNAME, NET_SB);
	if (mark != 0)
		mnl_attr_put_u32(nlh, FRA_FWMARK, mark);
	return talk(nlh, "a rule of routing", e);
}

int net_route_marked(struct err *e)
{
	int rc = add_routing_rule(
	    PRIORITY_MARKED, NET_MARK, FR_ACT_TO_TBL, RT_TABLE_MAIN, e);

	return rc < 0
		   ? rc
		   : add_routing_rule(PRIORITY_REST, 0, FR_ACT_BLACKHOLE, 0, e);
}

int net_up(const char *link, struct err *e)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct ifinfomsg *i;

	nlh->nlmsg_type = RTM_NEWLINK;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	i = mnl_nlmsg_put_extra_header(nlh, sizeof(*i));
	i->ifi_index = (int)if_nametoindex(link);
	i->ifi_flags = i->ifi_change = IFF_UP;
	return talk(nlh, link, e);
}

static int add_address(
    const char *link, uint32_t address, unsigned bits, struct err *e)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct ifaddrmsg *a;

	nlh->nlmsg_type = RTM_NEWADDR;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
	a = mnl_nlmsg_put_extra_header(nlh, sizeof(*a));
	a->ifa_family = AF_INET;
	a->ifa_prefixlen = (unsigned char)bits;
	a->ifa_index = if_nametoindex(link);
	mnl_attr_put_u32(nlh, IFA_LOCAL, htonl(address));
	mnl_attr_put_u32(nlh, IFA_ADDRESS, htonl(address));
	return talk(nlh, "giving a link its address", e);
}

static int add_default_route(const char *link, uint32_t gateway, struct err *e)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct rtmsg *r;

	nlh->nlmsg_type = RTM_NEWROUTE;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
	r = mnl_nlmsg_put_extra_header(nlh, sizeof(*r));
	r->rtm_family = AF_INET;
	r->rtm_table = RT_TABLE_MAIN;
	r->rtm_protocol = RTPROT_STATIC;
	r->rtm_scope = RT_SCOPE_UNIVERSE;
	r->rtm_type = RTN_UNICAST;
	mnl_attr_put_u32(nlh, RTA_GATEWAY, htonl(gateway));
	mnl_attr_put_u32(nlh, RTA_OIF, if_nametoindex(link));
	return talk(nlh, "adding a default route", e);
}

int net_configure(const char *link, uint32_t address, unsigned bits,
    uint32_t gateway, struct err *e)
{
	int rc;

	if ((rc = add_address(link, address, bits, e)) < 0 ||
	    (rc = net_up(link, e)) < 0)
		return rc;
	return gateway != 0 ? add_default_route(link, gateway, e) : 0;
}

static int on_state(const struct nlattr *attr, void *data)
{
	uint8_t *state = data;

	if (mnl_attr_get_type(attr) == IFLA_OPERSTATE)
		*state = mnl_attr_get_u8(attr);
	return MNL_CB_OK;
}

static int take_state(const struct nlmsghdr *nlh, void *data)
{
	return mnl_attr_parse(nlh, sizeof(struct ifinfomsg), on_state, data) < 0
		   ? -EPROTO
		   : 0;
}

/* Not IFF_RUNNING: a new link has that until it is known better. */
static int read_state(
    struct nl *nl, const char *link, uint8_t *ret, struct err *e)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct ifinfomsg *i;
	int rc;

	nlh->nlmsg_type = RTM_GETLINK;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	i = mnl_nlmsg_put_extra_header(nlh, sizeof(*i));
	i->ifi_index = (int)if_nametoindex(link);
	rc = nl_request(nl, nlh, take_state, ret);
	return rc < 0 ? err_sys(e, -rc, "%s", link) : 0;
}

int net_await(const char *link, uint64_t until_ms, struct err *e)
{
	const struct timespec pause = {.tv_nsec = AWAIT_NS};
	uint8_t state = OPER_UNKNOWN;
	struct nl nl = {0};
	int rc = nl_open(&nl, NETLINK_ROUTE, e);

	while (rc == 0) {
		rc = read_state(&nl, link, &state, e);
		if (rc < 0 || state == OPER_UP)
			break;
		if (clock_ms() >= until_ms)
			rc = err_set(e, ERR_INTERNAL, ETIMEDOUT,
			    "%s is not ready in time", link);
		(void)nanosleep(&pause, NULL);
	}
	nl_close(&nl);
	/* The worker says so a moment before it is done, and holds the lock
	 * that any change of a link waits for. */
	return rc < 0 ? rc : net_up(link, e);
}

int net_check_tap(struct err *e)
{
	cleanup_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = {.ifr_name = NET_TAPDEV};
	struct sockaddr_in a;

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) != 0)
		return err_sys(e, errno, NET_TAPDEV);
	if ((r.ifr_flags & IFF_UP) == 0)
		return err_set(e, ERR_INTERNAL, ENETDOWN, NET_TAPDEV " is off");
	if (ioctl(fd, SIOCGIFADDR, &r) != 0)
		return err_sys(e, errno, "the address of " NET_TAPDEV);
	memcpy(&a, &r.ifr_addr, sizeof(a));
	if (ntohl(a.sin_addr.s_addr) != NET_TAP)
		return err_set(e, ERR_INTERNAL, EADDRNOTAVAIL,
		    NET_TAPDEV " has another address than expected");
	return 0;
}
