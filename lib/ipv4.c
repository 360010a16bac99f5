/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/ipv4.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/num.h"

/* The longest: "255.255.255.255/32:65535" */
#define TEXT_MAX 32u

int ipv4_parse(const char *s, uint32_t *ret, struct err *e)
{
	struct in_addr a;

	/* inet_pton(3) is as strict as we are; inet_aton(3) reads octal. */
	if (inet_pton(AF_INET, s, &a) != 1)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "must be an IPv4 address like 192.0.2.1");
	*ret = ntohl(a.s_addr);
	return 0;
}

/* A copy of what stands before `mark` in s; *ret_rest is what follows it, NULL
 * when there is no mark. */
static int split(const char *s, char mark, char text[TEXT_MAX],
    const char **ret_rest, struct err *e)
{
	const char *at = strchr(s, mark);
	size_t len = at != NULL ? (size_t)(at - s) : strlen(s);

	if (len >= TEXT_MAX)
		return err_set(e, ERR_INTERNAL, EINVAL, "is too long");
	memcpy(text, s, len);
	text[len] = '\0';
	*ret_rest = at != NULL ? at + 1 : NULL;
	return 0;
}

int ipv4_parse_prefix(const char *s, struct ipv4_range *ret, struct err *e)
{
	char text[TEXT_MAX];
	const char *bits_text;
	uint64_t bits = 32;
	uint32_t first = 0, host;
	int r;

	if ((r = split(s, '/', text, &bits_text, e)) < 0 ||
	    (r = ipv4_parse(text, &first, e)) < 0)
		return r;
	if (bits_text != NULL && num_parse(bits_text, 0, 32, &bits, e) < 0)
		return err_wrap(e, "the bits of the prefix");
	host = bits < 32 ? UINT32_MAX >> bits : 0;
	if ((first & host) != 0)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "must be zero beyond the %u bits of its prefix",
		    (unsigned)bits);
	*ret = (struct ipv4_range){first, first | host};
	return 0;
}

int ipv4_parse_prefix_port(
    const char *s, struct ipv4_range *ret, uint16_t *ret_port, struct err *e)
{
	char text[TEXT_MAX];
	const char *port_text;
	struct ipv4_range prefix;
	uint64_t port;
	int r;

	if ((r = split(s, ':', text, &port_text, e)) < 0 ||
	    (r = ipv4_parse_prefix(text, &prefix, e)) < 0)
		return r;
	if (port_text == NULL)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "must be an address or prefix and a port, like "
		    "192.0.2.1:3128 or 192.0.2.0/24:443");
	if (num_parse(port_text, 1, 65535, &port, e) < 0)
		return err_wrap(e, "the port");
	*ret = prefix;
	*ret_port = (uint16_t)port;
	return 0;
}

unsigned ipv4_prefix_bits(const struct ipv4_range *prefix)
{
	uint32_t host = prefix->first ^ prefix->last;

	return host == 0 ? 32u : (unsigned)__builtin_clz(host);
}

int ipv4_set_add(struct ipv4_set *s, uint32_t first, uint32_t last)
{
	if (s->count == s->room) {
		size_t room = s->room > 0 ? 2 * s->room : 32;
		void *grown = reallocarray(s->ranges, room, sizeof(*s->ranges));

		if (grown == NULL)
			return -ENOMEM;
		s->ranges = grown;
		s->room = room;
	}
	s->ranges[s->count++] = (struct ipv4_range){first, last};
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct ipv4_range *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

void ipv4_set_settle(struct ipv4_set *s)
{
	size_t n = 0;

	if (s->count == 0)
		return;
	qsort(s->ranges, s->count, sizeof(*s->ranges), compare);
	for (size_t i = 1; i < s->count; i++) {
		const struct ipv4_range *r = &s->ranges[i];
		struct ipv4_range *top = &s->ranges[n];

		if (top->last != UINT32_MAX && r->first > top->last + 1)
			s->ranges[++n] = *r;
		else if (r->last > top->last)
			top->last = r->last;
	}
	s->count = n + 1;
}

bool ipv4_set_has(const struct ipv4_set *s, uint32_t address)
{
	for (size_t i = 0; i < s->count; i++)
		if (address >= s->ranges[i].first &&
		    address <= s->ranges[i].last)
			return true;
	return false;
}

bool ipv4_set_equal(const struct ipv4_set *a, const struct ipv4_set *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (a->ranges[i].first != b->ranges[i].first ||
		    a->ranges[i].last != b->ranges[i].last)
			return false;
	return true;
}

void ipv4_set_free(struct ipv4_set *s)
{
	free(s->ranges);
	*s = (struct ipv4_set){0};
}

const char *ipv4_text(uint32_t address, char text[IPV4_TEXT])
{
	(void)snprintf(text, IPV4_TEXT, "%u.%u.%u.%u", address >> 24,
	    address >> 16 & 0xff, address >> 8 & 0xff, address & 0xff);
	return text;
}
