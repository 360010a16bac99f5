/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_RULE_H
#define ISOBOX_EGRESS_RULE_H

#include <linux/netfilter/nf_conntrack_common.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/ipv4.h"
#include "runner/egress/rules.h"

/*
 * The words that rules are made of, as the kernel's expressions: each adds one
 * match or statement to the rule that rule_begin() has begun. Where memory is
 * out, r->failed is set. `op` is NFT_CMP_EQ and its kin.
 */

/* A new rule at the end of a chain. False when there is no room for it. */
bool rule_begin(struct rules *r, const char *chain);

/* The link it came by, and the one it leaves by. */
void rule_from(struct rules *r, const char *link);
void rule_to(struct rules *r, const char *link);

void rule_protocol(struct rules *r, uint8_t number); /* IPPROTO_TCP */
void rule_source(struct rules *r, uint32_t op, uint32_t address);
void rule_destination(struct rules *r, uint32_t op, uint32_t address);
void rule_destination_prefix(struct rules *r, const struct ipv4_range *prefix);
void rule_destination_in(struct rules *r, const char *set, bool inverted);
void rule_source_port(struct rules *r, uint16_t number);
void rule_destination_port(struct rules *r, uint16_t number);

/* One byte of a header of which only `bits` count; base is
 * NFT_PAYLOAD_NETWORK_HEADER or its kin. */
void rule_byte_bits(struct rules *r, uint32_t base, uint32_t offset,
    uint8_t bits, uint32_t op, uint8_t value);

/* State bits of connection tracking, NF_CT_STATE_BIT() of the kernel. */
#define RULE_STATE(s) (1u << ((s) % IP_CT_IS_REPLY + 1))
#define RULE_INVALID 1u
#define RULE_ESTABLISHED RULE_STATE(IP_CT_ESTABLISHED)
#define RULE_RELATED RULE_STATE(IP_CT_RELATED)
#define RULE_NEW RULE_STATE(IP_CT_NEW)
void rule_state(struct rules *r, uint32_t bits); /* any of them */
void rule_is_reply(struct rules *r); /* in the other direction */

/* True beyond so many packets a second, beyond so many connections at once. */
void rule_rate_over(struct rules *r, uint32_t per_second, uint32_t burst);
void rule_flows_over(struct rules *r, uint32_t max);

void rule_mark_is(struct rules *r, uint32_t mark);
void rule_set_mark(struct rules *r, uint32_t mark);
void rule_counter(struct rules *r);

/* code: NFT_JUMP or NFT_GOTO with a chain, NF_ACCEPT or NF_DROP without. */
void rule_verdict(struct rules *r, int code, const char *chain);
void rule_accept(struct rules *r);
void rule_drop(struct rules *r);
void rule_reject(struct rules *r, uint32_t type, uint8_t code);

/* From the address of the link that it leaves by, and a port in between. */
void rule_masquerade(struct rules *r, uint16_t first, uint16_t last);

#endif
