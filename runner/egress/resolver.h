/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_RESOLVER_H
#define ISOBOX_EGRESS_RESOLVER_H

#include "runner/egress/egress.h"

/* A name's addresses stay open so long, whatever its records say. */
#define RESOLVER_TTL_MIN 60u
#define RESOLVER_TTL_MAX 3600u

/*
 * The life of the process that answers the sandbox's DNS. It is in the router's
 * network namespace and gives up every capability. On the socket it sends a
 * struct dns_addresses to be opened and waits for one byte: '1' when they are,
 * '0' when there is no room. With names that come late it hears them there first.
 */
_Noreturn void resolver_main(const struct egress_policy *policy,
    const struct egress_names *names, int socket);

#endif
