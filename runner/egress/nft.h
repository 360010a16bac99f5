/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_NFT_H
#define ISOBOX_EGRESS_NFT_H

#include <stdint.h>

#include "lib/err.h"
#include "lib/ipv4.h"
#include "runner/egress/nl.h"
#include "runner/egress/rules.h"

/*
 * The rule set in the kernel, of the network namespace in which nft_open() was
 * called. Its generation is the kernel's count of changes: every change of ours
 * names the one that it expects, so that nobody else's can hide behind it.
 */
struct nft {
	struct nl requests;
	struct nl events; /* readable after any change, ours included */
	uint32_t generation;
};

int nft_open(struct nft *n, struct err *e);
void nft_close(struct nft *n);
int nft_event_fd(const struct nft *n);

/* Loads a whole rule set, at once or not at all, into a namespace without any. */
int nft_load(struct nft *n, const struct rules *r, struct err *e);

/* Whether the kernel has exactly these tables, chains, sets, elements and rules,
 * and nothing else. */
int nft_verify(struct nft *n, const struct rules *r, struct err *e);

/* Replaces all elements of a set at once. */
int nft_replace(struct nft *n, const char *set, const struct ipv4_set *elements,
    struct err *e);

/* Fails when anybody but us has changed anything since nft_open(). */
int nft_check(struct nft *n, struct err *e);

/* Packets that the one counter of the rule set, on the host set, has seen. */
int nft_read_counter(
    struct nft *n, const struct rules *r, uint64_t *ret, struct err *e);

#endif
