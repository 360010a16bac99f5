/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_IPV4_H
#define ISOBOX_IPV4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/* IPv4 addresses and sets of them, in host byte order. */

struct ipv4_range {
	uint32_t first;
	uint32_t last; /* inclusive */
};

/* "192.0.2.1": four decimal numbers without leading zeros and nothing else. */
int ipv4_parse(const char *s, uint32_t *ret, struct err *e);

/* "192.0.2.0/24", or an address alone; bits beyond the prefix must be zero. */
int ipv4_parse_prefix(const char *s, struct ipv4_range *ret, struct err *e);

/* "192.0.2.0/24:443": such a prefix and a port. */
int ipv4_parse_prefix_port(
    const char *s, struct ipv4_range *ret, uint16_t *ret_port, struct err *e);

/* The number of bits of a range that is a prefix. */
unsigned ipv4_prefix_bits(const struct ipv4_range *prefix);

/*
 * A set of addresses: ranges in ascending order that neither overlap nor touch,
 * once ipv4_set_settle() was called after the last add. Zero-initialise it.
 */
struct ipv4_set {
	struct ipv4_range *ranges;
	size_t count;
	size_t room;
};

/* 0 or -ENOMEM. */
int ipv4_set_add(struct ipv4_set *s, uint32_t first, uint32_t last);
void ipv4_set_settle(struct ipv4_set *s);
bool ipv4_set_has(const struct ipv4_set *s, uint32_t address);
bool ipv4_set_equal(const struct ipv4_set *a, const struct ipv4_set *b);
void ipv4_set_free(struct ipv4_set *s);

/* "192.0.2.1" into text. */
#define IPV4_TEXT 16
const char *ipv4_text(uint32_t address, char text[IPV4_TEXT]);

#endif
