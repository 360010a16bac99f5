/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_RULES_H
#define ISOBOX_EGRESS_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/ipv4.h"
#include "runner/egress/policy.h"

struct nftnl_table;
struct nftnl_chain;
struct nftnl_set;
struct nftnl_rule;

#define RULES_TABLE "fw"
#define RULES_SET_SPECIAL "special" /* not the public internet */
#define RULES_SET_HOST "host" /* the host's own addresses, live */
#define RULES_SET_NAMES "names" /* what allowed names stand for, live */

#define RULES_TABLES 2
#define RULES_CHAINS 12
#define RULES_SETS 3
#define RULES_MAX (48 + POLICY_ALLOW_MAX)

/*
 * The rule set of one router: objects of libnftnl, in the order in which the
 * kernel gets them and tells them back. Built in memory; nft.c loads it and
 * compares it.
 */
struct rules {
	struct nftnl_table *tables[RULES_TABLES];
	struct nftnl_chain *chains[RULES_CHAINS];
	struct nftnl_set *sets[RULES_SETS];
	struct nftnl_rule *rules[RULES_MAX];
	size_t table_count, chain_count, set_count, rule_count;
	const struct ipv4_set *elements[RULES_SETS]; /* of each set, borrowed */
	bool failed; /* out of memory, or a table too small */
};

/* names: only what is in the set of that name may be reached, and the router
 * answers DNS; NULL: all that is not denied. */
int rules_build(struct rules *r, const struct egress_policy *policy,
    const struct ipv4_set *host, const struct ipv4_set *names, struct err *e);
void rules_free(struct rules *r);

/* The parts of rules_build() that rules_sets.c has; r->failed when there is no
 * memory or room. The sets' elements are borrowed. */
void rules_put_table(struct rules *r, uint32_t family);
void rules_put_chains(struct rules *r);
void rules_put_set(
    struct rules *r, const char *name, const struct ipv4_set *elements);

/* A set with its elements, for replacing them; NULL when memory is out. */
struct nftnl_set *rules_new_set(
    const char *name, const struct ipv4_set *elements);

#endif
