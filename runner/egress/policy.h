/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_POLICY_H
#define ISOBOX_EGRESS_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/config.h"
#include "lib/err.h"
#include "lib/ipv4.h"
#include "runner/egress/carrier.h"

#define POLICY_ALLOW_MAX 64u
#define POLICY_RESOLVERS_MAX 3u /* MAXNS of resolv.h: no program asks more */

/* An exception that the operator makes: a private proxy or mirror. */
struct policy_allow {
	struct ipv4_range prefix;
	uint16_t port; /* TCP and UDP */
};

/* What every sandbox may reach and what not, besides the host's addresses. */
struct egress_policy {
	struct ipv4_set special; /* not the public internet; operator's deny */
	struct policy_allow allow[POLICY_ALLOW_MAX + 1]; /* and a trial's */
	size_t allow_count;
	uint32_t resolvers[POLICY_RESOLVERS_MAX];
	size_t resolver_count;
	const struct carrier_driver *driver; /* egress_choose() has the word */
	const char *carrier; /* the path of that program, the configuration's */
	struct err refused; /* code != 0: nobody gets a network, and why */
	char choice[384]; /* how it came to that driver, for the log */
};

/* Reads egress_deny, egress_allow, resolvers and egress_driver (of auto, which
 * egress_choose() settles, the first choice). The caller frees *ret by
 * egress_policy_free(); config must outlive it. */
int egress_policy_new(
    const struct config *config, struct egress_policy **ret, struct err *e);
void egress_policy_free(struct egress_policy *p);

/* That driver, at the path that the configuration has for it. */
void egress_policy_use(struct egress_policy *p, const struct config *config,
    const struct carrier_driver *driver);

/* Whether the operator made an exception for that. */
bool egress_policy_allows(
    const struct egress_policy *p, uint32_t address, uint16_t port);

/* The text of a sandbox's /etc/resolv.conf that names these resolvers. */
void egress_resolv_conf(
    const uint32_t *resolvers, size_t count, struct buf *out);

#endif
