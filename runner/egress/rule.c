/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/rule.h"

#include <stdio.h> /* which libnftnl/expr.h forgets */

#include <arpa/inet.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <stddef.h>

#define REG NFT_REG_1

static struct nftnl_expr *add(struct rules *r, const char *name)
{
	struct nftnl_expr *x = nftnl_expr_alloc(name);

	if (x == NULL)
		r->failed = true;
	else
		nftnl_rule_add_expr(r->rules[r->rule_count - 1], x);
	return x;
}

bool rule_begin(struct rules *r, const char *chain)
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

void rule_from(struct rules *r, const char *link)
{
	link_is(r, NFT_META_IIFNAME, link);
}

void rule_to(struct rules *r, const char *link)
{
	link_is(r, NFT_META_OIFNAME, link);
}

void rule_protocol(struct rules *r, uint8_t number)
{
	meta(r, NFT_META_L4PROTO);
	compare(r, NFT_CMP_EQ, &number, sizeof(number));
}

void rule_source(struct rules *r, uint32_t op, uint32_t address)
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

void rule_destination(struct rules *r, uint32_t op, uint32_t address)
{
	const uint32_t be = htonl(address);

	load_destination(r);
	compare(r, op, &be, sizeof(be));
}

void rule_destination_prefix(struct rules *r, const struct ipv4_range *prefix)
{
	const uint32_t bits = htonl(~(prefix->first ^ prefix->last));
	const uint32_t be = htonl(prefix->first);

	load_destination(r);
	mask(r, &bits, sizeof(bits));
	compare(r, NFT_CMP_EQ, &be, sizeof(be));
}

void rule_destination_in(struct rules *r, const char *set, bool inverted)
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

void rule_source_port(struct rules *r, uint16_t number)
{
	port(r, 0, number);
}

void rule_destination_port(struct rules *r, uint16_t number)
{
	port(r, 2, number);
}

void rule_byte_bits(struct rules *r, uint32_t base, uint32_t offset,
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

void rule_state(struct rules *r, uint32_t bits)
{
	static const uint32_t none = 0;

	ct(r, NFT_CT_STATE);
	mask(r, &bits, sizeof(bits));
	compare(r, NFT_CMP_NEQ, &none, sizeof(none));
}

void rule_is_reply(struct rules *r)
{
	static const uint8_t reply = IP_CT_DIR_REPLY;

	ct(r, NFT_CT_DIRECTION);
	compare(r, NFT_CMP_EQ, &reply, sizeof(reply));
}

void rule_counter(struct rules *r)
{
	(void)add(r, "counter");
}

void rule_rate_over(struct rules *r, uint32_t per_second, uint32_t burst)
{
	struct nftnl_expr *x = add(r, "limit");

	if (x == NULL)
		return;
	nftnl_expr_set_u64(x, NFTNL_EXPR_LIMIT_RATE, per_second);
	nftnl_expr_set_u64(x, NFTNL_EXPR_LIMIT_UNIT, 1);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_BURST, burst);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_TYPE, NFT_LIMIT_PKTS);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_FLAGS, NFT_LIMIT_F_INV);
}

void rule_flows_over(struct rules *r, uint32_t max)
{
	struct nftnl_expr *x = add(r, "connlimit");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_CONNLIMIT_COUNT, max);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
}

void rule_verdict(struct rules *r, int code, const char *chain)
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

void rule_accept(struct rules *r)
{
	rule_verdict(r, NF_ACCEPT, NULL);
}

void rule_drop(struct rules *r)
{
	rule_verdict(r, NF_DROP, NULL);
}

void rule_reject(struct rules *r, uint32_t type, uint8_t code)
{
	struct nftnl_expr *x = add(r, "reject");

	if (x == NULL)
		return;
	nftnl_expr_set_u32(x, NFTNL_EXPR_REJECT_TYPE, type);
	nftnl_expr_set_u8(x, NFTNL_EXPR_REJECT_CODE, code);
}

void rule_set_mark(struct rules *r, uint32_t mark)
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

void rule_mark_is(struct rules *r, uint32_t mark)
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

void rule_masquerade(struct rules *r, uint16_t first, uint16_t last)
{
	struct nftnl_expr *x;

	load_port(r, NFT_REG_1, first);
	load_port(r, NFT_REG_2, last);
	x = add(r, "masq");
	if (x == NULL)
		return;
	nftnl_expr_set_u32(
	    x, NFTNL_EXPR_MASQ_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
	nftnl_expr_set_u32(x, NFTNL_EXPR_MASQ_REG_PROTO_MIN, NFT_REG_1);
	nftnl_expr_set_u32(x, NFTNL_EXPR_MASQ_REG_PROTO_MAX, NFT_REG_2);
}
