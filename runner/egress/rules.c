/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule set. As text it would be:
 *
 *	table ip6 fw { every hook: policy drop }
 *	table ip fw {
 *	  chain raw (prerouting, before connection tracking; accept)
 *	    iifname sb0 ip saddr != 10.255.0.2 drop
 *	    iifname sb0 ip hdrlength > 5 drop			IP options
 *	    iifname tap0 ip daddr != 10.255.1.100 drop
 *	    iifname tap0 meta mark set 0x1b0c			see net.h
 *	  chain pre (prerouting, after connection tracking; accept)
 *	    iifname sb0 ip daddr 10.255.0.1 udp dport 53 accept	names
 *	    iifname sb0 jump out
 *	  chain input (drop)
 *	    iifname sb0 ip daddr 10.255.0.1 udp dport 53 accept	names
 *	    iifname tap0 ct state established accept			names
 *	    iifname sb0 jump no
 *	  chain forward (drop)
 *	    iifname sb0 oifname tap0 meta mark 0x1b0c accept
 *	    iifname tap0 oifname sb0 ct direction reply established accept
 *	    iifname tap0 oifname sb0 ip protocol icmp ct state related accept
 *	    iifname sb0 jump no
 *	  chain output (drop)
 *	    oifname sb0 ip protocol icmp accept
 *	    oifname sb0 tcp flags rst accept
 *	    oifname sb0 udp sport 53 accept			names
 *	    oifname tap0 ip daddr RESOLVER {tcp,udp} dport 53 accept	names
 *	  chain out
 *	    ip daddr PREFIX th dport PORT goto flow		operator's allow
 *	    ip daddr @host counter jump no
 *	    ip daddr @special jump no
 *	    tcp dport {25, 465, 587} jump no
 *	    {udp,tcp} dport {53, 853} jump no			names
 *	    goto flow
 *	  chain flow
 *	    ct state invalid drop
 *	    ct state established goto pass
 *	    ip daddr != @names jump no				names
 *	    ct state new limit rate over 200/second burst 400 jump no
 *	    ct state new ct count over 512 jump no
 *	    ct state new {tcp,udp} goto pass
 *	    jump no
 *	  chain pass
 *	    meta mark set 0x1b0c
 *	    accept
 *	  chain no
 *	    {tcp} reject with tcp reset
 *	    reject with icmp port-unreachable
 *	  chain post (nat postrouting)
 *	    oifname tap0 {tcp,udp} masquerade to :32768-60999
 *	}
 *
 * What may leave is settled before routing, all of it in one walk through rules of
 * one generation, and its last word is the mark, without which nothing is routed.
 * Were it settled in forward, then for a moment, when root takes all rules away,
 * packets on their way that have a mark could find nobody there any more (seen: in
 * 3 of 2200 times, beside a flood of refused packets).
 *
 * Deny stands before "established": an address that becomes the host's is
 * refused in open flows, too. Refusals are a reset for TCP and port-unreachable
 * for the rest: gVisor ignores "administratively prohibited". The counter is
 * what the canary looks at.
 */
#include "runner/egress/rules.h"

#include <arpa/inet.h> /* before linux/in.h */
#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>

#include "runner/egress/net.h"
#include "runner/egress/rule.h"

#define RATE_PER_SECOND 200u
#define RATE_BURST 400u
#define FLOWS_MAX 512u
#define NAT_PORT_FIRST 32768u /* not below 1024, whatever the guest took */
#define NAT_PORT_LAST 60999u

static const uint8_t tcp_udp[] = {IPPROTO_TCP, IPPROTO_UDP};

static void refuse(struct rules *r)
{
	rule_verdict(r, NFT_JUMP, "no");
}

static void to_resolver(struct rules *r)
{
	rule_destination(r, NFT_CMP_EQ, NET_ROUTER);
	rule_protocol(r, IPPROTO_UDP);
	rule_destination_port(r, 53);
}

static void put_raw(struct rules *r)
{
	if (rule_begin(r, "raw")) {
		rule_from(r, NET_SB);
		rule_source(r, NFT_CMP_NEQ, NET_SANDBOX);
		rule_drop(r);
	}
	if (rule_begin(r, "raw")) {
		rule_from(r, NET_SB);
		/* the low half of the first byte: header length in words */
		rule_byte_bits(
		    r, NFT_PAYLOAD_NETWORK_HEADER, 0, 0x0f, NFT_CMP_GT, 5);
		rule_drop(r);
	}
	if (rule_begin(r, "raw")) {
		rule_from(r, NET_TAPDEV);
		rule_destination(r, NFT_CMP_NEQ, NET_TAP);
		rule_drop(r);
	}
	if (rule_begin(r, "raw")) {
		rule_from(r, NET_TAPDEV);
		rule_set_mark(r, NET_MARK);
	}
}

/* What the process that answers DNS gets goes on to input. */
static void put_pre(struct rules *r, bool names)
{
	if (names && rule_begin(r, "pre")) {
		rule_from(r, NET_SB);
		to_resolver(r);
		rule_accept(r);
	}
	if (rule_begin(r, "pre")) {
		rule_from(r, NET_SB);
		rule_verdict(r, NFT_JUMP, "out");
	}
}

static void put_input(struct rules *r, bool names)
{
	if (names && rule_begin(r, "input")) {
		rule_from(r, NET_SB);
		to_resolver(r);
		rule_accept(r);
	}
	if (names && rule_begin(r, "input")) {
		rule_from(r, NET_TAPDEV);
		rule_state(r, RULE_ESTABLISHED);
		rule_accept(r);
	}
	if (rule_begin(r, "input")) {
		rule_from(r, NET_SB);
		refuse(r);
	}
}

static void put_forward(struct rules *r)
{
	if (rule_begin(r, "forward")) {
		rule_from(r, NET_SB);
		rule_to(r, NET_TAPDEV);
		rule_mark_is(r, NET_MARK);
		rule_accept(r);
	}
	if (rule_begin(r, "forward")) {
		rule_from(r, NET_TAPDEV);
		rule_to(r, NET_SB);
		rule_is_reply(r);
		rule_state(r, RULE_ESTABLISHED);
		rule_accept(r);
	}
	if (rule_begin(r, "forward")) {
		rule_from(r, NET_TAPDEV);
		rule_to(r, NET_SB);
		rule_protocol(r, IPPROTO_ICMP);
		rule_state(r, RULE_RELATED);
		rule_accept(r);
	}
	if (rule_begin(r, "forward")) {
		rule_from(r, NET_SB);
		refuse(r);
	}
}

/* What the process that answers DNS sends. */
static void put_output_dns(struct rules *r, const struct egress_policy *p)
{
	if (rule_begin(r, "output")) {
		rule_to(r, NET_SB);
		rule_protocol(r, IPPROTO_UDP);
		rule_source_port(r, 53);
		rule_accept(r);
	}
	for (size_t k = 0; k < p->resolver_count * sizeof(tcp_udp); k++) {
		if (!rule_begin(r, "output"))
			return;
		rule_to(r, NET_TAPDEV);
		rule_destination(
		    r, NFT_CMP_EQ, p->resolvers[k / sizeof(tcp_udp)]);
		rule_protocol(r, tcp_udp[k % sizeof(tcp_udp)]);
		rule_destination_port(r, 53);
		rule_accept(r);
	}
}

static void put_output(
    struct rules *r, const struct egress_policy *p, bool names)
{
	if (rule_begin(r, "output")) {
		rule_to(r, NET_SB);
		rule_protocol(r, IPPROTO_ICMP);
		rule_accept(r);
	}
	if (rule_begin(r, "output")) {
		rule_to(r, NET_SB);
		rule_protocol(r, IPPROTO_TCP);
		rule_byte_bits(r, NFT_PAYLOAD_TRANSPORT_HEADER, 13, TH_RST,
		    NFT_CMP_EQ, TH_RST);
		rule_accept(r);
	}
	if (names)
		put_output_dns(r, p);
}

static void refuse_port(struct rules *r, uint8_t proto, uint16_t number)
{
	if (!rule_begin(r, "out"))
		return;
	rule_protocol(r, proto);
	rule_destination_port(r, number);
	refuse(r);
}

static void put_out(struct rules *r, const struct egress_policy *p, bool names)
{
	static const uint16_t smtp[] = {25, 465, 587};
	static const uint16_t dns[] = {53, 853};

	for (size_t i = 0; i < p->allow_count; i++) {
		if (!rule_begin(r, "out"))
			return;
		rule_destination_prefix(r, &p->allow[i].prefix);
		rule_destination_port(r, p->allow[i].port);
		rule_verdict(r, NFT_GOTO, "flow");
	}
	if (rule_begin(r, "out")) {
		rule_destination_in(r, RULES_SET_HOST, false);
		rule_counter(r);
		refuse(r);
	}
	if (rule_begin(r, "out")) {
		rule_destination_in(r, RULES_SET_SPECIAL, false);
		refuse(r);
	}
	for (size_t i = 0; i < sizeof(smtp) / sizeof(smtp[0]); i++)
		refuse_port(r, IPPROTO_TCP, smtp[i]);
	for (size_t i = 0; names && i < sizeof(tcp_udp); i++)
		for (size_t k = 0; k < sizeof(dns) / sizeof(dns[0]); k++)
			refuse_port(r, tcp_udp[i], dns[k]);
	if (rule_begin(r, "out"))
		rule_verdict(r, NFT_GOTO, "flow");
}

static void put_flow(struct rules *r, bool names)
{
	if (rule_begin(r, "flow")) {
		rule_state(r, RULE_INVALID);
		rule_drop(r);
	}
	if (rule_begin(r, "flow")) {
		rule_state(r, RULE_ESTABLISHED);
		rule_verdict(r, NFT_GOTO, "pass");
	}
	if (names && rule_begin(r, "flow")) {
		rule_destination_in(r, RULES_SET_NAMES, true);
		refuse(r);
	}
	if (rule_begin(r, "flow")) {
		rule_state(r, RULE_NEW);
		rule_rate_over(r, RATE_PER_SECOND, RATE_BURST);
		refuse(r);
	}
	if (rule_begin(r, "flow")) {
		rule_state(r, RULE_NEW);
		rule_flows_over(r, FLOWS_MAX);
		refuse(r);
	}
	for (size_t i = 0; i < sizeof(tcp_udp); i++) {
		if (!rule_begin(r, "flow"))
			return;
		rule_state(r, RULE_NEW);
		rule_protocol(r, tcp_udp[i]);
		rule_verdict(r, NFT_GOTO, "pass");
	}
	if (rule_begin(r, "flow"))
		refuse(r);
}

static void put_pass(struct rules *r)
{
	if (rule_begin(r, "pass"))
		rule_set_mark(r, NET_MARK);
	if (rule_begin(r, "pass"))
		rule_accept(r);
}

static void put_no(struct rules *r)
{
	if (rule_begin(r, "no")) {
		rule_protocol(r, IPPROTO_TCP);
		rule_reject(r, NFT_REJECT_TCP_RST, 0);
	}
	if (rule_begin(r, "no"))
		rule_reject(r, NFT_REJECT_ICMP_UNREACH, ICMP_PORT_UNREACH);
}

static void put_post(struct rules *r)
{
	for (size_t i = 0; i < sizeof(tcp_udp); i++) {
		if (!rule_begin(r, "post"))
			return;
		rule_to(r, NET_TAPDEV);
		rule_protocol(r, tcp_udp[i]);
		rule_masquerade(r, NAT_PORT_FIRST, NAT_PORT_LAST);
	}
}

int rules_build(struct rules *r, const struct egress_policy *policy,
    const struct ipv4_set *host, const struct ipv4_set *names, struct err *e)
{
	*r = (struct rules){0};
	rules_put_table(r, NFPROTO_IPV6);
	rules_put_table(r, NFPROTO_IPV4);
	rules_put_chains(r);
	rules_put_set(r, RULES_SET_SPECIAL, &policy->special);
	rules_put_set(r, RULES_SET_HOST, host);
	if (names != NULL)
		rules_put_set(r, RULES_SET_NAMES, names);
	/* In the order of the chains: so the kernel tells them back. */
	put_raw(r);
	put_pre(r, names != NULL);
	put_input(r, names != NULL);
	put_forward(r);
	put_output(r, policy, names != NULL);
	put_out(r, policy, names != NULL);
	put_flow(r, names != NULL);
	put_pass(r);
	put_no(r);
	put_post(r);
	if (!r->failed)
		return 0;
	rules_free(r);
	return err_sys(e, ENOMEM, "building the rule set");
}

void rules_free(struct rules *r)
{
	for (size_t i = 0; i < r->table_count; i++)
		nftnl_table_free(r->tables[i]);
	for (size_t i = 0; i < r->chain_count; i++)
		nftnl_chain_free(r->chains[i]);
	for (size_t i = 0; i < r->set_count; i++)
		nftnl_set_free(r->sets[i]);
	for (size_t i = 0; i < r->rule_count; i++)
		nftnl_rule_free(r->rules[i]);
	*r = (struct rules){0};
}
