/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/cleanup.h"

/* A batch is one datagram to the kernel, within a socket's default buffer: a
 * rule set of ours is some 12 KiB, each range of addresses 80 bytes. */
#define BATCH_ROOM (192u * 1024)
/* What the next message may take: an attribute ends at 64 KiB. */
#define MESSAGE_ROOM (66u * 1024)

#define TYPE(message) ((uint16_t)((NFNL_SUBSYS_NFTABLES << 8) | (message)))

int nft_open(struct nft *n, struct err *e)
{
	int rc;

	if ((rc = nl_open(&n->events, NETLINK_NETFILTER, e)) < 0 ||
	    (rc = nl_join(&n->events, NFNLGRP_NFTABLES, e)) < 0 ||
	    (rc = nl_open(&n->requests, NETLINK_NETFILTER, e)) < 0)
		return rc;
	return 0;
}

void nft_close(struct nft *n)
{
	nl_close(&n->events);
	nl_close(&n->requests);
}

int nft_event_fd(const struct nft *n)
{
	return nl_fd(&n->events);
}

/* ---- the generation -------------------------------------------------------- */

static int take_generation(const struct nlmsghdr *nlh, void *data)
{
	uint32_t *ret = data;

	if (nl_find_u32(nlh, sizeof(struct nfgenmsg), NFTA_GEN_ID, ret))
		*ret = ntohl(*ret);
	return 0;
}

static int read_generation(struct nft *n, uint32_t *ret, struct err *e)
{
	char room[64];
	struct nlmsghdr *nlh =
	    nftnl_nlmsg_build_hdr(room, NFT_MSG_GETGEN, AF_UNSPEC, 0, 0);
	uint32_t generation = 0;
	int rc = nl_request(&n->requests, nlh, take_generation, &generation);

	if (rc < 0 || generation == 0)
		return err_sys(
		    e, rc < 0 ? -rc : EPROTO, "the generation of the rule set");
	*ret = generation;
	return 0;
}

int nft_check(struct nft *n, struct err *e)
{
	uint32_t now;
	int rc;

	/* Only what the kernel says now counts. */
	(void)nl_drain(&n->events, NULL, NULL);
	if ((rc = read_generation(n, &now, e)) < 0)
		return rc;
	if (now != n->generation)
		return err_set(e, ERR_INTERNAL, EPERM,
		    "somebody else has changed the rule set");
	return 0;
}

/* ---- batches ------------------------------------------------------------- */

struct batch {
	char *room;
	size_t len;
	uint32_t seq;
	struct nlmsghdr *last;
	bool full;
};

static void batch_add(struct batch *b, const struct nlmsghdr *nlh)
{
	b->len += NLMSG_ALIGN(nlh->nlmsg_len);
	if (b->len > BATCH_ROOM - MESSAGE_ROOM)
		b->full = true;
}

/* The next message's header; NULL when there is no room for another. */
static struct nlmsghdr *batch_put(
    struct batch *b, uint16_t type, uint16_t family, uint16_t flags)
{
	if (b->full)
		return NULL;
	b->last = nftnl_nlmsg_build_hdr(
	    b->room + b->len, type, family, flags, ++b->seq);
	return b->last;
}

/* The kernel refuses a batch that expects another generation than it has. */
static int batch_begin(struct batch *b, uint32_t generation, uint32_t seq)
{
	struct nlmsghdr *nlh;

	b->room = malloc(BATCH_ROOM);
	if (b->room == NULL)
		return -ENOMEM;
	b->seq = seq + 1;
	nlh = nftnl_batch_begin(b->room, b->seq);
	mnl_attr_put_u32(nlh, NFNL_BATCH_GENID, htonl(generation));
	batch_add(b, nlh);
	return 0;
}

/* Until the last message is acknowledged or any is refused. */
static int await_commit(struct nl *nl, uint32_t last_seq)
{
	char room[16384];

	for (;;) {
		ssize_t n = mnl_socket_recvfrom(nl->socket, room, sizeof(room));
		int left = (int)n;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		for (struct nlmsghdr *nlh = (void *)room;
		     mnl_nlmsg_ok(nlh, left);
		     nlh = mnl_nlmsg_next(nlh, &left)) {
			const struct nlmsgerr *err = mnl_nlmsg_get_payload(nlh);

			if (nlh->nlmsg_type != NLMSG_ERROR)
				continue;
			if (err->error != 0)
				return err->error;
			if (nlh->nlmsg_seq == last_seq)
				return 0;
		}
	}
}

static int batch_commit(struct nft *n, struct batch *b, struct err *e)
{
	int rc;

	if (b->full || b->last == NULL)
		return err_sys(e, E2BIG, "the rule set");
	b->last->nlmsg_flags |= NLM_F_ACK;
	n->requests.seq = b->last->nlmsg_seq + 1;
	batch_add(b, nftnl_batch_end(b->room + b->len, n->requests.seq));
	if (mnl_socket_sendto(n->requests.socket, b->room, b->len) < 0)
		return err_sys(e, errno, "sending the rule set");
	rc = await_commit(&n->requests, b->last->nlmsg_seq);
	if (rc < 0)
		return err_sys(e, -rc, "the kernel refuses the rule set");
	return 0;
}

static void put_tables(struct batch *b, const struct rules *r)
{
	for (size_t i = 0; i < r->table_count; i++) {
		struct nlmsghdr *nlh = batch_put(b, NFT_MSG_NEWTABLE,
		    (uint16_t)nftnl_table_get_u32(
			r->tables[i], NFTNL_TABLE_FAMILY),
		    NLM_F_CREATE | NLM_F_EXCL);

		if (nlh == NULL)
			return;
		nftnl_table_nlmsg_build_payload(nlh, r->tables[i]);
		batch_add(b, nlh);
	}
}

static void put_chains(struct batch *b, const struct rules *r)
{
	for (size_t i = 0; i < r->chain_count; i++) {
		struct nlmsghdr *nlh = batch_put(b, NFT_MSG_NEWCHAIN,
		    (uint16_t)nftnl_chain_get_u32(
			r->chains[i], NFTNL_CHAIN_FAMILY),
		    NLM_F_CREATE | NLM_F_EXCL);

		if (nlh == NULL)
			return;
		nftnl_chain_nlmsg_build_payload(nlh, r->chains[i]);
		batch_add(b, nlh);
	}
}

static void put_set(struct batch *b, struct nftnl_set *s)
{
	struct nlmsghdr *nlh = batch_put(
	    b, NFT_MSG_NEWSET, NFPROTO_IPV4, NLM_F_CREATE | NLM_F_EXCL);

	if (nlh == NULL)
		return;
	nftnl_set_nlmsg_build_payload(nlh, s);
	batch_add(b, nlh);
}

/* As many messages as it takes: an attribute is at most 64 KiB long. */
static void put_elements(struct batch *b, struct nftnl_set *s)
{
	struct nftnl_set_elems_iter *iter = nftnl_set_elems_iter_create(s);
	int more = 1;

	if (iter == NULL) {
		b->full = true;
		return;
	}
	while (more > 0) {
		struct nlmsghdr *nlh = batch_put(
		    b, NFT_MSG_NEWSETELEM, NFPROTO_IPV4, NLM_F_CREATE);

		if (nlh == NULL)
			break;
		more = nftnl_set_elems_nlmsg_build_payload_iter(nlh, iter);
		batch_add(b, nlh);
	}
	nftnl_set_elems_iter_destroy(iter);
}

static void put_rules(struct batch *b, const struct rules *r)
{
	for (size_t i = 0; i < r->rule_count; i++) {
		struct nlmsghdr *nlh = batch_put(b, NFT_MSG_NEWRULE,
		    NFPROTO_IPV4, NLM_F_CREATE | NLM_F_APPEND);

		if (nlh == NULL)
			return;
		nftnl_rule_nlmsg_build_payload(nlh, r->rules[i]);
		batch_add(b, nlh);
	}
}

int nft_load(struct nft *n, const struct rules *r, struct err *e)
{
	struct batch b = {0};
	int rc = read_generation(n, &n->generation, e);

	if (rc < 0)
		return rc;
	if (batch_begin(&b, n->generation, n->requests.seq) < 0)
		return err_sys(e, ENOMEM, "the rule set");
	put_tables(&b, r);
	put_chains(&b, r);
	for (size_t i = 0; i < r->set_count; i++) {
		put_set(&b, r->sets[i]);
		if (r->elements[i]->count > 0)
			put_elements(&b, r->sets[i]);
	}
	put_rules(&b, r);
	rc = batch_commit(n, &b, e);
	free(b.room);
	if (rc == 0)
		n->generation++;
	return rc;
}

int nft_replace(struct nft *n, const char *set, const struct ipv4_set *elements,
    struct err *e)
{
	static const struct ipv4_set none;
	struct nftnl_set *empty = rules_new_set(set, &none);
	struct nftnl_set *full = rules_new_set(set, elements);
	struct batch b = {0};
	struct nlmsghdr *nlh;
	int rc = -ENOMEM;

	if (empty != NULL && full != NULL)
		rc = batch_begin(&b, n->generation, n->requests.seq);
	if (rc < 0) {
		rc = err_sys(e, ENOMEM, "a set of addresses");
		goto out;
	}
	/* A removal that names no element takes all. */
	nlh = batch_put(&b, NFT_MSG_DELSETELEM, NFPROTO_IPV4, 0);
	if (nlh != NULL) {
		nftnl_set_elems_nlmsg_build_payload(nlh, empty);
		batch_add(&b, nlh);
	}
	if (elements->count > 0)
		put_elements(&b, full);
	rc = batch_commit(n, &b, e);
	if (rc == 0)
		n->generation++;
out:
	free(b.room);
	if (empty != NULL)
		nftnl_set_free(empty);
	if (full != NULL)
		nftnl_set_free(full);
	return rc;
}
