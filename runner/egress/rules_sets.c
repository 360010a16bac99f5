/* SPDX-License-Identifier: Apache-2.0 */
/* What rules stand in and look at: tables, chains, sets. rules.c says what they
 * are for. */
#include <arpa/inet.h>
#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter_ipv4.h>

#include "runner/egress/rules.h"

/* nft's number for the type ipv4_addr, which only nft looks at. */
#define TYPE_IPV4_ADDR 7u

void rules_put_table(struct rules *r, uint32_t family)
{
	struct nftnl_table *t =
	    r->table_count < RULES_TABLES ? nftnl_table_alloc() : NULL;

	if (t == NULL) {
		r->failed = true;
		return;
	}
	nftnl_table_set_u32(t, NFTNL_TABLE_FAMILY, family);
	(void)nftnl_table_set_str(t, NFTNL_TABLE_NAME, RULES_TABLE);
	nftnl_table_set_u32(t, NFTNL_TABLE_FLAGS, 0);
	r->tables[r->table_count++] = t;
}

static struct nftnl_chain *put_chain(
    struct rules *r, uint32_t family, const char *name)
{
	struct nftnl_chain *c =
	    r->chain_count < RULES_CHAINS ? nftnl_chain_alloc() : NULL;

	if (c == NULL) {
		r->failed = true;
		return NULL;
	}
	nftnl_chain_set_u32(c, NFTNL_CHAIN_FAMILY, family);
	(void)nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, RULES_TABLE);
	(void)nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, name);
	r->chains[r->chain_count++] = c;
	return c;
}

static void put_hook(struct rules *r, uint32_t family, const char *name,
    const char *type, uint32_t hook, int priority, uint32_t policy)
{
	struct nftnl_chain *c = put_chain(r, family, name);

	if (c == NULL)
		return;
	(void)nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, type);
	nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, hook);
	nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, priority);
	nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, policy);
}

void rules_put_chains(struct rules *r)
{
	const uint32_t v4 = NFPROTO_IPV4, v6 = NFPROTO_IPV6;

	put_hook(r, v6, "pre", "filter", NF_INET_PRE_ROUTING, NF_IP_PRI_RAW,
	    NF_DROP);
	put_hook(r, v6, "output", "filter", NF_INET_LOCAL_OUT, NF_IP_PRI_FILTER,
	    NF_DROP);
	put_hook(r, v4, "raw", "filter", NF_INET_PRE_ROUTING, NF_IP_PRI_RAW,
	    NF_ACCEPT);
	put_hook(r, v4, "pre", "filter", NF_INET_PRE_ROUTING, NF_IP_PRI_MANGLE,
	    NF_ACCEPT);
	put_hook(r, v4, "input", "filter", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER,
	    NF_DROP);
	put_hook(r, v4, "forward", "filter", NF_INET_FORWARD, NF_IP_PRI_FILTER,
	    NF_DROP);
	put_hook(r, v4, "output", "filter", NF_INET_LOCAL_OUT, NF_IP_PRI_FILTER,
	    NF_DROP);
	(void)put_chain(r, v4, "out");
	(void)put_chain(r, v4, "flow");
	(void)put_chain(r, v4, "pass");
	(void)put_chain(r, v4, "no");
	put_hook(r, v4, "post", "nat", NF_INET_POST_ROUTING, NF_IP_PRI_NAT_SRC,
	    NF_ACCEPT);
}

static int add_element(struct nftnl_set *set, uint32_t address, uint32_t flags)
{
	struct nftnl_set_elem *elem = nftnl_set_elem_alloc();
	const uint32_t be = htonl(address);

	if (elem == NULL)
		return -ENOMEM;
	if (nftnl_set_elem_set(elem, NFTNL_SET_ELEM_KEY, &be, sizeof(be)) < 0) {
		nftnl_set_elem_free(elem);
		return -ENOMEM;
	}
	if (flags != 0)
		nftnl_set_elem_set_u32(elem, NFTNL_SET_ELEM_FLAGS, flags);
	nftnl_set_elem_add(set, elem);
	return 0;
}

/* The kernel wants a range as its first address and, as an end, the one after
 * its last; a range to the end of all has no end. */
static int add_elements(struct nftnl_set *set, const struct ipv4_set *from_set)
{
	for (size_t i = 0; i < from_set->count; i++) {
		const struct ipv4_range *range = &from_set->ranges[i];

		if (add_element(set, range->first, 0) < 0 ||
		    (range->last != UINT32_MAX &&
			add_element(set, range->last + 1,
			    NFT_SET_ELEM_INTERVAL_END) < 0))
			return -ENOMEM;
	}
	return 0;
}

struct nftnl_set *rules_new_set(
    const char *name, const struct ipv4_set *elements)
{
	struct nftnl_set *s = nftnl_set_alloc();

	if (s == NULL)
		return NULL;
	nftnl_set_set_u32(s, NFTNL_SET_FAMILY, NFPROTO_IPV4);
	(void)nftnl_set_set_str(s, NFTNL_SET_TABLE, RULES_TABLE);
	(void)nftnl_set_set_str(s, NFTNL_SET_NAME, name);
	nftnl_set_set_u32(s, NFTNL_SET_FLAGS, NFT_SET_INTERVAL);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_TYPE, TYPE_IPV4_ADDR);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_LEN, sizeof(uint32_t));
	if (add_elements(s, elements) < 0) {
		nftnl_set_free(s);
		return NULL;
	}
	return s;
}

void rules_put_set(
    struct rules *r, const char *name, const struct ipv4_set *elements)
{
	struct nftnl_set *s =
	    r->set_count < RULES_SETS ? rules_new_set(name, elements) : NULL;

	if (s == NULL) {
		r->failed = true;
		return;
	}
	/* Within its batch a set is known by this number. */
	nftnl_set_set_u32(s, NFTNL_SET_ID, (uint32_t)r->set_count + 1);
	r->elements[r->set_count] = elements;
	r->sets[r->set_count++] = s;
}
