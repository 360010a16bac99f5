/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_DNS_H
#define ISOBOX_EGRESS_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/hostname.h"

/*
 * The little of DNS (RFC 1035) that an allow-list by name takes: one question,
 * IPv4 addresses for answers. All of it reads hostile bytes; pure.
 */

#define DNS_TYPE_A 1u
#define DNS_CLASS_IN 1u

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	/* Ours, never on the wire: cut off before the first address. */
	DNS_TRUNCATED = 16
};

/* What a resolver without EDNS takes, RFC 1035 4.2.1; our answers fit. */
#define DNS_UDP_MAX 512u
/* What we offer to take, and more than any path splits (RFC 9715). */
#define DNS_EDNS_MAX 1232u

/* An answer for the longest name, in DNS_UDP_MAX: (512 - 12 - 259) / 16. */
#define DNS_ADDRESSES_MAX 15u

/* The name with a length before each label and after the last, type, class. */
#define DNS_QUESTION_MAX (HOSTNAME_MAX + 2 + 4)

struct dns_question {
	uint16_t id;
	bool recursion; /* desired */
	bool read; /* what follows; it may be of the root, which has no name */
	uint16_t type;
	uint16_t class;
	char name[HOSTNAME_MAX + 1]; /* lower case, without the last dot */
	size_t name_len;
	/* All of it as it came: who mixes upper and lower case looks whether
	 * the answer has them, too. */
	uint8_t wire[DNS_QUESTION_MAX];
	size_t wire_len;
};

struct dns_addresses {
	uint32_t list[DNS_ADDRESSES_MAX]; /* host byte order */
	size_t count;
	uint32_t ttl; /* of the shortest-lived record that led here */
};

/*
 * Reads a query. 0; -EPROTO when no answer can be given to it; else -EINVAL, and
 * *ret is good enough to be answered with DNS_FORMERR or DNS_NOTIMP (*ret_rcode).
 * A name with other bytes than a host name's is such a one.
 */
int dns_read_query(const uint8_t *msg, size_t len, struct dns_question *ret,
    enum dns_rcode *ret_rcode);

/* A query for the IPv4 addresses of q's name; edns: we take DNS_EDNS_MAX. */
void dns_put_query(
    struct buf *out, uint16_t id, const struct dns_question *q, bool edns);

/*
 * Reads what came for such a query: that id, that question. 0, the response code
 * and the addresses, aliases followed; -EPROTO when it is no such thing. DNS_FORMERR
 * and DNS_NOTIMP may come without the question.
 */
int dns_read_answer(const uint8_t *msg, size_t len, uint16_t id,
    const struct dns_question *q, enum dns_rcode *ret_rcode,
    struct dns_addresses *ret);

/* The answer to q, none of which but the addresses comes from elsewhere. */
void dns_put_answer(struct buf *out, const struct dns_question *q,
    enum dns_rcode rcode, const struct dns_addresses *a);

#endif
