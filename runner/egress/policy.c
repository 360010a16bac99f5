/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * What is no address of the public internet: IANA's registry of special-purpose
 * addresses (RFC 6890 and its updates), multicast and the reserved rest, and the
 * one public address at which a cloud (Azure) has its metadata service.
 */
static const char *const special[] = {
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
};

static int deny(struct egress_policy *p, const char *text, struct err *e)
{
	struct ipv4_range r;
	int rc = ipv4_parse_prefix(text, &r, e);

	if (rc < 0)
		return rc;
	if (ipv4_set_add(&p->special, r.first, r.last) < 0)
		return err_sys(e, ENOMEM, "cannot keep it");
	return 0;
}

static int fill_special(
    struct egress_policy *p, char *const *more, struct err *e)
{
	int rc = 0;

	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if ((rc = deny(p, special[i], e)) < 0)
			return rc;
	for (size_t i = 0; more != NULL && more[i] != NULL; i++)
		if (deny(p, more[i], e) < 0)
			return err_wrap(e, "egress_deny: \"%s\"", more[i]);
	ipv4_set_settle(&p->special);
	return 0;
}

static int fill_allow(struct egress_policy *p, char *const *list, struct err *e)
{
	for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
		struct policy_allow *a = &p->allow[p->allow_count];

		if (p->allow_count == POLICY_ALLOW_MAX)
			return err_set(e, ERR_INTERNAL, E2BIG,
			    "egress_allow: at most %u are allowed",
			    POLICY_ALLOW_MAX);
		if (ipv4_parse_prefix_port(list[i], &a->prefix, &a->port, e) <
		    0)
			return err_wrap(e, "egress_allow: \"%s\"", list[i]);
		p->allow_count++;
	}
	return 0;
}

static int fill_resolvers(
    struct egress_policy *p, char *const *list, struct err *e)
{
	for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
		if (p->resolver_count == POLICY_RESOLVERS_MAX)
			return err_set(e, ERR_INTERNAL, E2BIG,
			    "resolvers: at most %u are allowed",
			    POLICY_RESOLVERS_MAX);
		if (ipv4_parse(list[i], &p->resolvers[p->resolver_count], e) <
		    0)
			return err_wrap(e, "resolvers: \"%s\"", list[i]);
		p->resolver_count++;
	}
	return 0;
}

int egress_policy_new(
    const struct config *config, struct egress_policy **ret, struct err *e)
{
	struct egress_policy *p = calloc(1, sizeof(*p));
	int rc;

	if (p == NULL)
		return err_sys(e, ENOMEM, "egress");
	if ((rc = fill_special(p, config->egress_deny, e)) < 0 ||
	    (rc = fill_allow(p, config->egress_allow, e)) < 0 ||
	    (rc = fill_resolvers(p, config->resolvers, e)) < 0) {
		egress_policy_free(p);
		return rc;
	}
	egress_policy_use(p, config,
	    strcmp(config->egress_driver, carrier_pasta.name) == 0
		? &carrier_pasta
		: &carrier_slirp4netns);
	*ret = p;
	return 0;
}

void egress_policy_use(struct egress_policy *p, const struct config *config,
    const struct carrier_driver *driver)
{
	p->driver = driver;
	p->carrier =
	    driver == &carrier_pasta ? config->pasta : config->slirp4netns;
}

void egress_policy_free(struct egress_policy *p)
{
	if (p == NULL)
		return;
	ipv4_set_free(&p->special);
	free(p);
}

bool egress_policy_allows(
    const struct egress_policy *p, uint32_t address, uint16_t port)
{
	for (size_t i = 0; i < p->allow_count; i++)
		if (p->allow[i].port == port &&
		    address >= p->allow[i].prefix.first &&
		    address <= p->allow[i].prefix.last)
			return true;
	return false;
}

void egress_resolv_conf(
    const uint32_t *resolvers, size_t count, struct buf *out)
{
	char text[IPV4_TEXT];

	for (size_t i = 0; i < count; i++)
		buf_printf(
		    out, "nameserver %s\n", ipv4_text(resolvers[i], text));
	/* The second resolver is asked soon, and no suffix is tried. */
	buf_puts(out, "options timeout:2 attempts:2 ndots:1\n");
}
