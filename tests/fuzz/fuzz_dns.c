/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox asks and what name servers answer.
 *
 * LINK: runner/egress/dns.o
 */
#include <string.h>

#include "lib/hostname.h"
#include "lib/ipv4.h"
#include "runner/egress/dns.h"
#include "tests/fuzz/fuzz.h"

static void check_question(const struct dns_question *q)
{
	require(q->name_len <= HOSTNAME_MAX);
	require(strlen(q->name) == q->name_len);
	for (size_t i = 0; i < q->name_len; i++)
		require(q->name[i] < 'A' || q->name[i] > 'Z');
}

/* What is answered to it fits, and is read as an answer to it. */
static void check_answer(const struct dns_question *q)
{
	struct dns_addresses in = {.count = DNS_ADDRESSES_MAX, .ttl = 60}, out;
	cleanup_buf struct buf msg = {0};
	enum dns_rcode rcode;

	dns_put_answer(&msg, q, DNS_NOERROR, &in);
	require(msg.len <= DNS_UDP_MAX);
	if (q->type != DNS_TYPE_A || q->class != DNS_CLASS_IN)
		return;
	require(
	    dns_read_answer(msg.data, msg.len, q->id, q, &rcode, &out) == 0);
	require(out.count == in.count && out.ttl == in.ttl);
}

static void check_query(const uint8_t *data, size_t size)
{
	struct dns_question q, again;
	cleanup_buf struct buf msg = {0};
	enum dns_rcode rcode;

	if (dns_read_query(data, size, &q, &rcode) < 0)
		return;
	check_question(&q);
	check_answer(&q);
	dns_put_query(&msg, 7, &q, size % 2 == 0);
	require(dns_read_query(msg.data, msg.len, &again, &rcode) == 0);
	require(again.name_len == q.name_len);
	require(memcmp(again.name, q.name, q.name_len) == 0);
	(void)hostname_matches("*.example.org", 13, q.name, q.name_len);
}

/* An answer to a question that itself is at the front of the data. */
static void check_reply(const uint8_t *data, size_t size)
{
	struct dns_question q;
	struct dns_addresses a;
	enum dns_rcode rcode;
	size_t n;

	if (size < 1)
		return;
	n = data[0] < size - 1 ? data[0] : size - 1;
	if (dns_read_query(data + 1, n, &q, &rcode) < 0)
		return;
	if (dns_read_answer(data + 1 + n, size - 1 - n, q.id, &q, &rcode, &a) ==
	    0)
		require(a.count <= DNS_ADDRESSES_MAX);
}

static void check_texts(const uint8_t *data, size_t size)
{
	char text[512];
	struct ipv4_range r;
	struct err e;
	uint16_t port;

	if (size >= sizeof(text))
		return;
	memcpy(text, data, size);
	text[size] = '\0';
	if (ipv4_parse_prefix(text, &r, &e) == 0)
		require(r.first <= r.last && ipv4_prefix_bits(&r) <= 32);
	if (ipv4_parse_prefix_port(text, &r, &port, &e) == 0)
		require(port > 0);
	if (hostname_check_pattern(text, size, &e) == 0)
		require(size > 0 && size <= HOSTNAME_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_query(data, size);
	check_reply(data, size);
	check_texts(data, size);
	return 0;
}
