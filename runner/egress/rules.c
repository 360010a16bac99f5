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
 *	    oifname tap0 ip daddr RESOLVER udp dport 53 accept	names
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

#include <arpa/inet.h>
#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>

#include "runner/egress/net.h"

#define RATE_PER_SECOND 200u
#define RATE_BURST 400u
#define FLOWS_MAX 512u
#define NAT_PORT_FIRST 32768u /* not below 1024, whatever the guest took */
#define NAT_PORT_LAST 60999u

/* State bits of ct, NF_CT_STATE_BIT() of the kernel. */
#define STATE(s) (1u << ((s) % IP_CT_IS_REPLY + 1))
#define STATE_INVALID 1u
#define STATE_ESTABLISHED STATE(IP_CT_ESTABLISHED)
#define STATE_RELATED STATE(IP_CT_RELATED)
#define STATE_NEW STATE(IP_CT_NEW)

#define REG NFT_REG_1

/* ---- building blocks: each adds one match or statement to a rule ---------- */

static struct nftnl_expr *add(struct rules *r, const char *name)
{
	struct nftnl_expr *x = nftnl_expr_alloc(name);

	if (x == NULL)
		r->failed = true;
	else
		nftnl_rule_add_expr(r->rules[r->rule_count - 1], x);
	return x;
}

/* A new rule at the end of a chain. False when there is no room for it. */
static bool begin(struct rules *r, const char *chain)
{
	struct nftnl_rule *rule = NULL;

	if (!r->failed && r->rule_count < RULES_MAX)
		rule = nftnl_rule_alloc();
	if (rule == NULL) {
		r->failed = true;
		return false;
	}
	nftnl_rule_set_u32(rule, NFTNL_RULE_FAMILY, NFPROTO_IPV4);
	(void)nftnl_rule_set_str(rule, NFTNL_RULE_TABLE, RULES_TABLE);
	(void)nftnl_rule_set_str(rule, NFTNL_RULE_CHAIN, chain);
	r->rules[r->rule_count++] = rule;
	return true;
}

static void compare(
    struct rules *r, uint32_t op, const void *data, uint32_t len)
{
	struct nftnl_expr *x = add(r, "cmp");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_CMP_SREG, REG);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CMP_OP, op);
	if (nftnl_expr_set(x, NFTNL_EXPR_CMP_DATA, data, len) < 0)
		r->failed = true;
}

static void mask(struct rules *r, const void *bits, uint32_t len)
{
	static const uint8_t none[4];
	struct nftnl_expr *x = add(r, "bitwise");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_BITWISE_SREG, REG);
	nftnl_expr_set_u32(x, NFTNL_EXPR_BITWISE_DREG, REG);
	nftnl_expr_set_u32(x, NFTNL_EXPR_BITWISE_OP, NFT_BITWISE_BOOL);
	nftnl_expr_set_u32(x, NFTNL_EXPR_BITWISE_LEN, len);
	if (nftnl_expr_set(x, NFTNL_EXPR_BITWISE_MASK, bits, len) < 0 ||
	    nftnl_expr_set(x, NFTNL_EXPR_BITWISE_XOR, none, len) < 0)
		r->failed = true;
}

static void meta(struct rules *r, uint32_t key)
{
	struct nftnl_expr *x = add(r, "meta");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_META_KEY, key);
	nftnl_expr_set_u32(x, NFTNL_EXPR_META_DREG, REG);
}

static void payload(
    struct rules *r, uint32_t base, uint32_t offset, uint32_t len)
{
	struct nftnl_expr *x = add(r, "payload");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_PAYLOAD_BASE, base);
	nftnl_expr_set_u32(x, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
	nftnl_expr_set_u32(x, NFTNL_EXPR_PAYLOAD_LEN, len);
	nftnl_expr_set_u32(x, NFTNL_EXPR_PAYLOAD_DREG, REG);
}

static void link_is(struct rules *r, uint32_t key, const char *name)
{
	char padded[IFNAMSIZ] = {0};

	(void)snprintf(padded, sizeof(padded), "%s", name);
	meta(r, key);
	compare(r, NFT_CMP_EQ, padded, sizeof(padded));
}

static void from(struct rules *r, const char *name)
{
	link_is(r, NFT_META_IIFNAME, name);
}

static void to(struct rules *r, const char *name)
{
	link_is(r, NFT_META_OIFNAME, name);
}

static void protocol(struct rules *r, uint8_t number)
{
	meta(r, NFT_META_L4PROTO);
	compare(r, NFT_CMP_EQ, &number, sizeof(number));
}

static void source(struct rules *r, uint32_t op, uint32_t address)
{
	const uint32_t be = htonl(address);

	payload(r, NFT_PAYLOAD_NETWORK_HEADER, offsetof(struct iphdr, saddr),
	    sizeof(be));
	compare(r, op, &be, sizeof(be));
}

static void load_destination(struct rules *r)
{
	payload(r, NFT_PAYLOAD_NETWORK_HEADER, offsetof(struct iphdr, daddr),
	    sizeof(uint32_t));
}

static void destination(struct rules *r, uint32_t op, uint32_t address)
{
	const uint32_t be = htonl(address);

	load_destination(r);
	compare(r, op, &be, sizeof(be));
}

static void destination_prefix(struct rules *r, const struct ipv4_range *prefix)
{
	const uint32_t bits = htonl(~(prefix->first ^ prefix->last));
	const uint32_t be = htonl(prefix->first);

	load_destination(r);
	mask(r, &bits, sizeof(bits));
	compare(r, NFT_CMP_EQ, &be, sizeof(be));
}

static void destination_in(struct rules *r, const char *set, bool inverted)
{
	struct nftnl_expr *x;

	load_destination(r);
	x = add(r, "lookup");
	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_LOOKUP_SREG, REG);
	if (nftnl_expr_set_str(x, NFTNL_EXPR_LOOKUP_SET, set) < 0)
		r->failed = true;
	nftnl_expr_set_u32(x, NFTNL_EXPR_LOOKUP_FLAGS,
	    inverted ? (uint32_t)NFT_LOOKUP_F_INV : 0);
}

/* Ports stand at the same place in TCP and UDP. */
static void port(struct rules *r, uint32_t offset, uint16_t number)
{
	const uint16_t be = htons(number);

	payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, offset, sizeof(be));
	compare(r, NFT_CMP_EQ, &be, sizeof(be));
}

static void source_port(struct rules *r, uint16_t number)
{
	port(r, 0, number);
}

static void destination_port(struct rules *r, uint16_t number)
{
	port(r, 2, number);
}

/* One byte of a header of which only `bits` count. */
static void byte_bits(struct rules *r, uint32_t base, uint32_t offset,
    uint8_t bits, uint32_t op, uint8_t value)
{
	payload(r, base, offset, 1);
	mask(r, &bits, sizeof(bits));
	compare(r, op, &value, sizeof(value));
}

static void ct(struct rules *r, uint32_t key)
{
	struct nftnl_expr *x = add(r, "ct");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_CT_KEY, key);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CT_DREG, REG);
}

static void state(struct rules *r, uint32_t bits)
{
	static const uint32_t none = 0;

	ct(r, NFT_CT_STATE);
	mask(r, &bits, sizeof(bits));
	compare(r, NFT_CMP_NEQ, &none, sizeof(none));
}

static void is_reply(struct rules *r)
{
	static const uint8_t reply = IP_CT_DIR_REPLY;

	ct(r, NFT_CT_DIRECTION);
	compare(r, NFT_CMP_EQ, &reply, sizeof(reply));
}

static void counter(struct rules *r)
{
	(void)add(r, "counter");
}

static void rate_over(struct rules *r)
{
	struct nftnl_expr *x = add(r, "limit");

	if (x == NULL)
		return;
	nftnl_expr_set_u64(x, NFTNL_EXPR_LIMIT_RATE, RATE_PER_SECOND);
	nftnl_expr_set_u64(x, NFTNL_EXPR_LIMIT_UNIT, 1);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_BURST, RATE_BURST);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_TYPE, NFT_LIMIT_PKTS);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_FLAGS, NFT_LIMIT_F_INV);
}

static void flows_over(struct rules *r)
{
	struct nftnl_expr *x = add(r, "connlimit");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_CONNLIMIT_COUNT, FLOWS_MAX);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
}

static void verdict(struct rules *r, int code, const char *chain)
{
	struct nftnl_expr *x = add(r, "immediate");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
	nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_VERDICT, (uint32_t)code);
	if (chain != NULL &&
	    nftnl_expr_set_str(x, NFTNL_EXPR_IMM_CHAIN, chain) < 0)
		r->failed = true;
}

static void accept_it(struct rules *r)
{
	verdict(r, NF_ACCEPT, NULL);
}

static void drop_it(struct rules *r)
{
	verdict(r, NF_DROP, NULL);
}

static void refuse(struct rules *r)
{
	verdict(r, NFT_JUMP, "no");
}

static void reject(struct rules *r, uint32_t type, uint8_t code)
{
	struct nftnl_expr *x = add(r, "reject");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_REJECT_TYPE, type);
	nftnl_expr_set_u8(x, NFTNL_EXPR_REJECT_CODE, code);
}

static void set_mark(struct rules *r, uint32_t mark)
{
	struct nftnl_expr *x = add(r, "immediate");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_DREG, REG);
	if (nftnl_expr_set(x, NFTNL_EXPR_IMM_DATA, &mark, sizeof(mark)) < 0)
		r->failed = true;
	x = add(r, "meta");
	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_META_KEY, NFT_META_MARK);
	nftnl_expr_set_u32(x, NFTNL_EXPR_META_SREG, REG);
}

static void mark_is(struct rules *r, uint32_t mark)
{
	meta(r, NFT_META_MARK);
	compare(r, NFT_CMP_EQ, &mark, sizeof(mark));
}

static void load_port(struct rules *r, uint32_t reg, uint16_t number)
{
	const uint16_t be = htons(number);
	struct nftnl_expr *x = add(r, "immediate");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_DREG, reg);
	if (nftnl_expr_set(x, NFTNL_EXPR_IMM_DATA, &be, sizeof(be)) < 0)
		r->failed = true;
}

static void masquerade(struct rules *r)
{
	struct nftnl_expr *x;

	load_port(r, NFT_REG_1, NAT_PORT_FIRST);
	load_port(r, NFT_REG_2, NAT_PORT_LAST);
	x = add(r, "masq");
	if (x == NULL)
		return;
	nftnl_expr_set_u32(
	    x, NFTNL_EXPR_MASQ_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
	nftnl_expr_set_u32(x, NFTNL_EXPR_MASQ_REG_PROTO_MIN, NFT_REG_1);
	nftnl_expr_set_u32(x, NFTNL_EXPR_MASQ_REG_PROTO_MAX, NFT_REG_2);
}

/* ---- the chains ----------------------------------------------------------- */

static const uint8_t tcp_udp[] = {IPPROTO_TCP, IPPROTO_UDP};

static void to_resolver(struct rules *r)
{
	destination(r, NFT_CMP_EQ, NET_ROUTER);
	protocol(r, IPPROTO_UDP);
	destination_port(r, 53);
}

static void put_raw(struct rules *r)
{
	if (begin(r, "raw")) {
		from(r, NET_SB);
		source(r, NFT_CMP_NEQ, NET_SANDBOX);
		drop_it(r);
	}
	if (begin(r, "raw")) {
		from(r, NET_SB);
		/* the low half of the first byte: header length in words */
		byte_bits(
		    r, NFT_PAYLOAD_NETWORK_HEADER, 0, 0x0f, NFT_CMP_GT, 5);
		drop_it(r);
	}
	if (begin(r, "raw")) {
		from(r, NET_TAPDEV);
		destination(r, NFT_CMP_NEQ, NET_TAP);
		drop_it(r);
	}
	if (begin(r, "raw")) {
		from(r, NET_TAPDEV);
		set_mark(r, NET_MARK);
	}
}

/* What the process that answers DNS gets goes on to input. */
static void put_pre(struct rules *r, bool names)
{
	if (names && begin(r, "pre")) {
		from(r, NET_SB);
		to_resolver(r);
		accept_it(r);
	}
	if (begin(r, "pre")) {
		from(r, NET_SB);
		verdict(r, NFT_JUMP, "out");
	}
}

static void put_input(struct rules *r, bool names)
{
	if (names && begin(r, "input")) {
		from(r, NET_SB);
		to_resolver(r);
		accept_it(r);
	}
	if (names && begin(r, "input")) {
		from(r, NET_TAPDEV);
		state(r, STATE_ESTABLISHED);
		accept_it(r);
	}
	if (begin(r, "input")) {
		from(r, NET_SB);
		refuse(r);
	}
}

static void put_forward(struct rules *r)
{
	if (begin(r, "forward")) {
		from(r, NET_SB);
		to(r, NET_TAPDEV);
		mark_is(r, NET_MARK);
		accept_it(r);
	}
	if (begin(r, "forward")) {
		from(r, NET_TAPDEV);
		to(r, NET_SB);
		is_reply(r);
		state(r, STATE_ESTABLISHED);
		accept_it(r);
	}
	if (begin(r, "forward")) {
		from(r, NET_TAPDEV);
		to(r, NET_SB);
		protocol(r, IPPROTO_ICMP);
		state(r, STATE_RELATED);
		accept_it(r);
	}
	if (begin(r, "forward")) {
		from(r, NET_SB);
		refuse(r);
	}
}

/* What the process that answers DNS sends. */
static void put_output_dns(struct rules *r, const struct egress_policy *p)
{
	if (begin(r, "output")) {
		to(r, NET_SB);
		protocol(r, IPPROTO_UDP);
		source_port(r, 53);
		accept_it(r);
	}
	for (size_t k = 0; k < p->resolver_count; k++) {
		if (!begin(r, "output"))
			return;
		to(r, NET_TAPDEV);
		destination(r, NFT_CMP_EQ, p->resolvers[k]);
		protocol(r, IPPROTO_UDP);
		destination_port(r, 53);
		accept_it(r);
	}
}

static void put_output(
    struct rules *r, const struct egress_policy *p, bool names)
{
	if (begin(r, "output")) {
		to(r, NET_SB);
		protocol(r, IPPROTO_ICMP);
		accept_it(r);
	}
	if (begin(r, "output")) {
		to(r, NET_SB);
		protocol(r, IPPROTO_TCP);
		byte_bits(r, NFT_PAYLOAD_TRANSPORT_HEADER, 13, TH_RST,
		    NFT_CMP_EQ, TH_RST);
		accept_it(r);
	}
	if (names)
		put_output_dns(r, p);
}

static void refuse_port(struct rules *r, uint8_t proto, uint16_t number)
{
	if (!begin(r, "out"))
		return;
	protocol(r, proto);
	destination_port(r, number);
	refuse(r);
}

static void put_out(struct rules *r, const struct egress_policy *p, bool names)
{
	static const uint16_t smtp[] = {25, 465, 587};
	static const uint16_t dns[] = {53, 853};

	for (size_t i = 0; i < p->allow_count; i++) {
		if (!begin(r, "out"))
			return;
		destination_prefix(r, &p->allow[i].prefix);
		destination_port(r, p->allow[i].port);
		verdict(r, NFT_GOTO, "flow");
	}
	if (begin(r, "out")) {
		destination_in(r, RULES_SET_HOST, false);
		counter(r);
		refuse(r);
	}
	if (begin(r, "out")) {
		destination_in(r, RULES_SET_SPECIAL, false);
		refuse(r);
	}
	for (size_t i = 0; i < sizeof(smtp) / sizeof(smtp[0]); i++)
		refuse_port(r, IPPROTO_TCP, smtp[i]);
	for (size_t i = 0; names && i < sizeof(tcp_udp); i++)
		for (size_t k = 0; k < sizeof(dns) / sizeof(dns[0]); k++)
			refuse_port(r, tcp_udp[i], dns[k]);
	if (begin(r, "out"))
		verdict(r, NFT_GOTO, "flow");
}

static void put_flow(struct rules *r, bool names)
{
	if (begin(r, "flow")) {
		state(r, STATE_INVALID);
		drop_it(r);
	}
	if (begin(r, "flow")) {
		state(r, STATE_ESTABLISHED);
		verdict(r, NFT_GOTO, "pass");
	}
	if (names && begin(r, "flow")) {
		destination_in(r, RULES_SET_NAMES, true);
		refuse(r);
	}
	if (begin(r, "flow")) {
		state(r, STATE_NEW);
		rate_over(r);
		refuse(r);
	}
	if (begin(r, "flow")) {
		state(r, STATE_NEW);
		flows_over(r);
		refuse(r);
	}
	for (size_t i = 0; i < sizeof(tcp_udp); i++) {
		if (!begin(r, "flow"))
			return;
		state(r, STATE_NEW);
		protocol(r, tcp_udp[i]);
		verdict(r, NFT_GOTO, "pass");
	}
	if (begin(r, "flow"))
		refuse(r);
}

static void put_pass(struct rules *r)
{
	if (begin(r, "pass"))
		set_mark(r, NET_MARK);
	if (begin(r, "pass"))
		accept_it(r);
}

static void put_no(struct rules *r)
{
	if (begin(r, "no")) {
		protocol(r, IPPROTO_TCP);
		reject(r, NFT_REJECT_TCP_RST, 0);
	}
	if (begin(r, "no"))
		reject(r, NFT_REJECT_ICMP_UNREACH, ICMP_PORT_UNREACH);
}

static void put_post(struct rules *r)
{
	for (size_t i = 0; i < sizeof(tcp_udp); i++) {
		if (!begin(r, "post"))
			return;
		to(r, NET_TAPDEV);
		protocol(r, tcp_udp[i]);
		masquerade(r);
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
