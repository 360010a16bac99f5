/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the rule set that the kernel has with the one that was meant: object
 * by object, in the kernel's order, handles and counters left out. Anything more,
 * less or other is an error.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <stdlib.h>
#include <string.h>

#include "runner/egress/nft.h"

#define EXPR_TEXT 512

/* What a dump is compared with, and how far it has come. */
struct progress {
	const struct rules *rules;
	size_t index;
	uint64_t packets; /* of the last counter seen */
};

static int dump(struct nft *n, uint16_t type, uint16_t family,
    int (*each)(const struct nlmsghdr *, void *), struct progress *p)
{
	char room[256];
	struct nlmsghdr *nlh =
	    nftnl_nlmsg_build_hdr(room, type, family, NLM_F_DUMP, 0);

	return nl_request(&n->requests, nlh, each, p);
}

/* NULL is only equal to NULL. */
static bool same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Every take_*(): a negative answer ends the dump, -EILSEQ is "differs". */
static int verdict_of(bool same)
{
	return same ? 0 : -EILSEQ;
}

static int take_table(const struct nlmsghdr *nlh, void *data)
{
	struct progress *p = data;
	struct nftnl_table *t = nftnl_table_alloc();
	const struct nftnl_table *want;
	bool same = false;

	if (t == NULL)
		return -ENOMEM;
	if (p->index < p->rules->table_count &&
	    nftnl_table_nlmsg_parse(nlh, t) == 0) {
		want = p->rules->tables[p->index++];
		same = nftnl_table_get_u32(t, NFTNL_TABLE_FAMILY) ==
			   nftnl_table_get_u32(want, NFTNL_TABLE_FAMILY) &&
		       nftnl_table_get_u32(t, NFTNL_TABLE_FLAGS) == 0 &&
		       same_text(nftnl_table_get_str(t, NFTNL_TABLE_NAME),
			   nftnl_table_get_str(want, NFTNL_TABLE_NAME));
	}
	nftnl_table_free(t);
	return verdict_of(same);
}

static bool same_hook(const struct nftnl_chain *a, const struct nftnl_chain *b)
{
	static const uint16_t numbers[] = {
	    NFTNL_CHAIN_HOOKNUM, NFTNL_CHAIN_PRIO, NFTNL_CHAIN_POLICY};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (nftnl_chain_is_set(a, numbers[i]) !=
			nftnl_chain_is_set(b, numbers[i]) ||
		    nftnl_chain_get_u32(a, numbers[i]) !=
			nftnl_chain_get_u32(b, numbers[i]))
			return false;
	return true;
}

static bool same_chain(const struct nftnl_chain *a, const struct nftnl_chain *b)
{
	static const uint16_t texts[] = {
	    NFTNL_CHAIN_NAME, NFTNL_CHAIN_TABLE, NFTNL_CHAIN_TYPE};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!same_text(nftnl_chain_get_str(a, texts[i]),
			nftnl_chain_get_str(b, texts[i])))
			return false;
	return nftnl_chain_get_u32(a, NFTNL_CHAIN_FAMILY) ==
		   nftnl_chain_get_u32(b, NFTNL_CHAIN_FAMILY) &&
	       same_hook(a, b);
}

static int take_chain(const struct nlmsghdr *nlh, void *data)
{
	struct progress *p = data;
	struct nftnl_chain *c = nftnl_chain_alloc();
	bool same = false;

	if (c == NULL)
		return -ENOMEM;
	if (p->index < p->rules->chain_count &&
	    nftnl_chain_nlmsg_parse(nlh, c) == 0)
		same = same_chain(c, p->rules->chains[p->index++]);
	nftnl_chain_free(c);
	return verdict_of(same);
}

static bool is_counter(const struct nftnl_expr *x)
{
	return same_text(nftnl_expr_get_str(x, NFTNL_EXPR_NAME), "counter");
}

static bool same_expr(
    const struct nftnl_expr *a, const struct nftnl_expr *b, struct progress *p)
{
	char text_a[EXPR_TEXT], text_b[EXPR_TEXT];
	int len_a, len_b;

	if (!same_text(nftnl_expr_get_str(a, NFTNL_EXPR_NAME),
		nftnl_expr_get_str(b, NFTNL_EXPR_NAME)))
		return false;
	if (is_counter(a)) {
		p->packets = nftnl_expr_get_u64(a, NFTNL_EXPR_CTR_PACKETS);
		return true;
	}
	len_a = nftnl_expr_snprintf(
	    text_a, sizeof(text_a), a, NFTNL_OUTPUT_DEFAULT, 0);
	len_b = nftnl_expr_snprintf(
	    text_b, sizeof(text_b), b, NFTNL_OUTPUT_DEFAULT, 0);
	return len_a > 0 && len_a < EXPR_TEXT && len_a == len_b &&
	       memcmp(text_a, text_b, (size_t)len_a) == 0;
}

static bool same_exprs(
    const struct nftnl_rule *a, const struct nftnl_rule *b, struct progress *p)
{
	struct nftnl_expr_iter *in_a = nftnl_expr_iter_create(a);
	struct nftnl_expr_iter *in_b = nftnl_expr_iter_create(b);
	bool same = in_a != NULL && in_b != NULL;

	while (same) {
		const struct nftnl_expr *x = nftnl_expr_iter_next(in_a);
		const struct nftnl_expr *y = nftnl_expr_iter_next(in_b);

		if (x == NULL || y == NULL) {
			same = x == y;
			break;
		}
		same = same_expr(x, y, p);
	}
	if (in_a != NULL)
		nftnl_expr_iter_destroy(in_a);
	if (in_b != NULL)
		nftnl_expr_iter_destroy(in_b);
	return same;
}

static int take_rule(const struct nlmsghdr *nlh, void *data)
{
	struct progress *p = data;
	struct nftnl_rule *r = nftnl_rule_alloc();
	const struct nftnl_rule *want;
	bool same = false;

	if (r == NULL)
		return -ENOMEM;
	if (p->index < p->rules->rule_count &&
	    nftnl_rule_nlmsg_parse(nlh, r) == 0) {
		want = p->rules->rules[p->index++];
		same = nftnl_rule_get_u32(r, NFTNL_RULE_FAMILY) ==
			   nftnl_rule_get_u32(want, NFTNL_RULE_FAMILY) &&
		       same_text(nftnl_rule_get_str(r, NFTNL_RULE_TABLE),
			   nftnl_rule_get_str(want, NFTNL_RULE_TABLE)) &&
		       same_text(nftnl_rule_get_str(r, NFTNL_RULE_CHAIN),
			   nftnl_rule_get_str(want, NFTNL_RULE_CHAIN)) &&
		       same_exprs(r, want, p);
	}
	nftnl_rule_free(r);
	return verdict_of(same);
}

static int take_set(const struct nlmsghdr *nlh, void *data)
{
	struct progress *p = data;
	struct nftnl_set *s = nftnl_set_alloc();
	const struct nftnl_set *want;
	bool same = false;

	if (s == NULL)
		return -ENOMEM;
	if (p->index < p->rules->set_count &&
	    nftnl_set_nlmsg_parse(nlh, s) == 0) {
		want = p->rules->sets[p->index++];
		same = nftnl_set_get_u32(s, NFTNL_SET_FAMILY) ==
			   nftnl_set_get_u32(want, NFTNL_SET_FAMILY) &&
		       nftnl_set_get_u32(s, NFTNL_SET_FLAGS) ==
			   nftnl_set_get_u32(want, NFTNL_SET_FLAGS) &&
		       nftnl_set_get_u32(s, NFTNL_SET_KEY_LEN) ==
			   nftnl_set_get_u32(want, NFTNL_SET_KEY_LEN) &&
		       same_text(nftnl_set_get_str(s, NFTNL_SET_NAME),
			   nftnl_set_get_str(want, NFTNL_SET_NAME));
	}
	nftnl_set_free(s);
	return verdict_of(same);
}

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* An element as address * 2, and 1 more for the end of a range: sorted, they are
 * beginnings and ends in turn. */
static size_t list_elements(struct nftnl_set *s, uint64_t *list, size_t max)
{
	struct nftnl_set_elems_iter *iter = nftnl_set_elems_iter_create(s);
	struct nftnl_set_elem *elem;
	size_t n = 0;

	if (iter == NULL)
		return max + 1;
	while ((elem = nftnl_set_elems_iter_next(iter)) != NULL) {
		uint32_t len = 0, flags = 0, be;
		const void *key =
		    nftnl_set_elem_get(elem, NFTNL_SET_ELEM_KEY, &len);

		if (n == max || key == NULL || len != sizeof(be)) {
			n = max + 1;
			break;
		}
		memcpy(&be, key, sizeof(be));
		if (nftnl_set_elem_is_set(elem, NFTNL_SET_ELEM_FLAGS))
			flags =
			    nftnl_set_elem_get_u32(elem, NFTNL_SET_ELEM_FLAGS);
		list[n++] = (uint64_t)ntohl(be) * 2 +
			    (flags & NFT_SET_ELEM_INTERVAL_END ? 1 : 0);
	}
	nftnl_set_elems_iter_destroy(iter);
	qsort(list, n <= max ? n : 0, sizeof(*list), compare_numbers);
	return n;
}

static bool same_elements(struct nftnl_set *s, const struct ipv4_set *want)
{
	const size_t max = 2 * want->count + 1;
	uint64_t *list = calloc(max, sizeof(*list));
	size_t n, k = 0;
	bool same;

	if (list == NULL)
		return false;
	n = list_elements(s, list, max);
	same = n <= max;
	for (size_t i = 0; same && i < want->count; i++) {
		const struct ipv4_range *r = &want->ranges[i];

		same = k < n && list[k++] == (uint64_t)r->first * 2;
		if (same && r->last != UINT32_MAX)
			same = k < n &&
			       list[k++] == ((uint64_t)r->last + 1) * 2 + 1;
	}
	same = same && k == n;
	free(list);
	return same;
}

static int take_elements(const struct nlmsghdr *nlh, void *data)
{
	return nftnl_set_elems_nlmsg_parse(nlh, data) < 0 ? -EILSEQ : 0;
}

static int verify_elements(
    struct nft *n, const struct nftnl_set *set, const struct ipv4_set *want)
{
	static const struct ipv4_set none;
	const char *name = nftnl_set_get_str(set, NFTNL_SET_NAME);
	struct nftnl_set *found = rules_new_set(name, &none);
	char room[512];
	struct nlmsghdr *nlh = nftnl_nlmsg_build_hdr(
	    room, NFT_MSG_GETSETELEM, NFPROTO_IPV4, NLM_F_DUMP, 0);
	int rc;

	if (found == NULL)
		return -ENOMEM;
	nftnl_set_elems_nlmsg_build_payload(nlh, found);
	rc = nl_request(&n->requests, nlh, take_elements, found);
	if (rc == 0)
		rc = verdict_of(same_elements(found, want));
	nftnl_set_free(found);
	return rc;
}

static int verify(struct nft *n, const struct rules *r)
{
	struct progress tables = {.rules = r}, chains = {.rules = r},
			sets = {.rules = r}, rules = {.rules = r};
	int rc;

	if ((rc = dump(n, NFT_MSG_GETTABLE, AF_UNSPEC, take_table, &tables)) <
		0 ||
	    (rc = dump(n, NFT_MSG_GETCHAIN, AF_UNSPEC, take_chain, &chains)) <
		0 ||
	    (rc = dump(n, NFT_MSG_GETSET, AF_UNSPEC, take_set, &sets)) < 0 ||
	    (rc = dump(n, NFT_MSG_GETRULE, AF_UNSPEC, take_rule, &rules)) < 0)
		return rc;
	for (size_t i = 0; i < r->set_count; i++)
		if ((rc = verify_elements(n, r->sets[i], r->elements[i])) < 0)
			return rc;
	return verdict_of(
	    tables.index == r->table_count && chains.index == r->chain_count &&
	    sets.index == r->set_count && rules.index == r->rule_count);
}

int nft_verify(struct nft *n, const struct rules *r, struct err *e)
{
	int rc = verify(n, r);

	if (rc == -EILSEQ)
		return err_set(e, ERR_INTERNAL, EILSEQ,
		    "the kernel's rule set is not the one that was loaded");
	if (rc < 0)
		return err_sys(e, -rc, "reading the rule set back");
	/* It was read in parts: all of one generation. */
	return nft_check(n, e);
}

int nft_read_counter(
    struct nft *n, const struct rules *r, uint64_t *ret, struct err *e)
{
	struct progress p = {.rules = r};
	int rc = dump(n, NFT_MSG_GETRULE, NFPROTO_IPV4, take_rule, &p);

	if (rc < 0)
		return err_sys(e, -rc, "reading the rules' counter");
	*ret = p.packets;
	return 0;
}
