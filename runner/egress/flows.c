/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/flows.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <netinet/in.h>
#include <stdbool.h>

/* One entry of the kernel's table, as far as it was read. */
struct entry {
	uint32_t address_be;
	uint16_t port_be;
	uint8_t protocol;
	uint8_t state; /* enum tcp_conntrack */
};

struct search {
	struct flow_peer peer;
	bool found;
};

static bool holds(const struct nlattr *a, uint16_t type, size_t size)
{
	return mnl_attr_get_type(a) == type &&
	       mnl_attr_get_payload_len(a) == size;
}

/* Every on_*() looks at one attribute and goes on, whatever it is. */
static int on_address(const struct nlattr *a, void *data)
{
	struct entry *x = data;

	if (holds(a, CTA_IP_V4_DST, sizeof(x->address_be)))
		x->address_be = mnl_attr_get_u32(a);
	return MNL_CB_OK;
}

static int on_protocol(const struct nlattr *a, void *data)
{
	struct entry *x = data;

	if (holds(a, CTA_PROTO_NUM, sizeof(x->protocol)))
		x->protocol = mnl_attr_get_u8(a);
	else if (holds(a, CTA_PROTO_DST_PORT, sizeof(x->port_be)))
		x->port_be = mnl_attr_get_u16(a);
	return MNL_CB_OK;
}

static int on_tuple(const struct nlattr *a, void *data)
{
	if (mnl_attr_get_type(a) == CTA_TUPLE_IP)
		return mnl_attr_parse_nested(a, on_address, data);
	if (mnl_attr_get_type(a) == CTA_TUPLE_PROTO)
		return mnl_attr_parse_nested(a, on_protocol, data);
	return MNL_CB_OK;
}

static int on_state(const struct nlattr *a, void *data)
{
	struct entry *x = data;

	if (holds(a, CTA_PROTOINFO_TCP_STATE, sizeof(x->state)))
		x->state = mnl_attr_get_u8(a);
	return MNL_CB_OK;
}

static int on_info(const struct nlattr *a, void *data)
{
	return mnl_attr_get_type(a) == CTA_PROTOINFO_TCP
		   ? mnl_attr_parse_nested(a, on_state, data)
		   : MNL_CB_OK;
}

static int on_entry(const struct nlattr *a, void *data)
{
	if (mnl_attr_get_type(a) == CTA_TUPLE_ORIG)
		return mnl_attr_parse_nested(a, on_tuple, data);
	if (mnl_attr_get_type(a) == CTA_PROTOINFO)
		return mnl_attr_parse_nested(a, on_info, data);
	return MNL_CB_OK;
}

static int take_entry(const struct nlmsghdr *nlh, void *data)
{
	struct search *s = data;
	struct entry x = {.state = TCP_CONNTRACK_MAX};

	if (mnl_attr_parse(nlh, sizeof(struct nfgenmsg), on_entry, &x) < 0)
		return -EPROTO;
	if (x.protocol != IPPROTO_TCP || x.state == TCP_CONNTRACK_CLOSE)
		return 0;
	s->peer = (struct flow_peer){ntohl(x.address_be), ntohs(x.port_be)};
	s->found = true;
	return 0;
}

int flows_find(struct nl *nl, struct flow_peer *ret, struct err *e)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct search s = {.found = false};
	struct nfgenmsg *g;
	int rc;

	nlh->nlmsg_type = (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_GET;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	g = mnl_nlmsg_put_extra_header(nlh, sizeof(*g));
	*g =
	    (struct nfgenmsg){.nfgen_family = AF_INET, .version = NFNETLINK_V0};
	rc = nl_request(nl, nlh, take_entry, &s);
	if (rc < 0)
		return err_sys(e, -rc, "the table of connections");
	*ret = s.peer;
	return s.found ? 1 : 0;
}
