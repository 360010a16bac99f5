/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_NAMES_H
#define ISOBOX_EGRESS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/ipv4.h"
#include "runner/egress/dns.h"
#include "runner/egress/egress.h"
#include "runner/egress/nft.h"

/*
 * Egress by name. A process of its own answers the sandbox's DNS: it reads what
 * the sandbox and name servers send, and so holds no right over the rule set.
 * For each name that is allowed it asks the router, by a socket between them, to
 * open the addresses; only then it answers.
 */
struct names {
	int socket; /* to that process; -1: everything public is open */
	struct ipv4_set open; /* as the rule set has it */
	struct names_entry *entries;
	size_t count;
	bool late; /* the process waits for the names */
};

#define NAMES_NONE           \
	{                    \
		.socket = -1 \
	}

/* Forks it; the caller is in the router's network namespace. Nothing is done
 * where no names are given. */
int names_start(struct names *n, const struct egress_policy *policy,
    const struct egress_names *names, struct err *e);

/* Tells the process, which waits for it, what is allowed. */
int names_allow(
    struct names *n, const void *list, size_t list_len, struct err *e);

/* The socket is readable: opens what is asked for. Fails when the process is
 * gone. */
int names_serve(struct names *n, struct nft *nft, struct err *e);

/* Closes what has expired. */
int names_expire(struct names *n, struct nft *nft, struct err *e);

/* When something will expire; UINT64_MAX: nothing. */
uint64_t names_next_ms(const struct names *n);

#endif
