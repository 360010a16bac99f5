/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_PROBE_H
#define ISOBOX_EGRESS_PROBE_H

#include <stdint.h>

#include "lib/err.h"
#include "runner/egress/policy.h"

/*
 * Tries from inside a sandbox's network what must not work: the metadata
 * service, private addresses, the carrier's own, the router, IPv6, and a port at
 * an address of the host where somebody does listen. All must be refused, at
 * once: a time-out is no refusal.
 */
int probe_all(const struct egress_policy *policy, uint32_t host_address,
    uint16_t host_port, struct err *e);

/* A listener at an address of the host, the canary that must not be reached. */
int probe_listen(
    uint32_t address, int *ret_fd, uint16_t *ret_port, struct err *e);

/* Whether anybody has reached it. */
int probe_unreached(int fd, struct err *e);

#endif
