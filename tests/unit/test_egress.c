/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be reached, by default and as the configuration has it; the rule set
 * that is made of it. Whether the kernel does what it says is tested with real
 * packets in tests/integration.
 *
 * LINK: runner/egress/policy.o runner/egress/carrier.o
 * LINK: runner/egress/rule.o runner/egress/rules.o runner/egress/rules_sets.o
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runner/egress/net.h"
#include "runner/egress/policy.h"
#include "runner/egress/rules.h"
#include "tests/unit/unit.h"

static const char *one_resolver[] = {"1.1.1.1", NULL};

/* The configuration owns its lists; ours are constants. */
static char **writable(const char *const *list)
{
	return (char **)(uintptr_t)list;
}

static struct egress_policy *make(const char *const *deny,
    const char *const *allow, const char *const *resolvers)
{
	static char path[] = "/x", driver[] = "auto";
	const struct config c = {.egress_deny = writable(deny),
	    .egress_allow = writable(allow),
	    .resolvers = writable(resolvers),
	    .egress_driver = driver,
	    .slirp4netns = path,
	    .pasta = path};
	struct egress_policy *p = NULL;
	struct err e;

	if (egress_policy_new(&c, &p, &e) < 0)
		fail_msg("%s", e.msg);
	return p;
}

static void assert_bad(const char *const *deny, const char *const *allow,
    const char *const *resolvers, const char *why)
{
	const struct config c = {.egress_deny = writable(deny),
	    .egress_allow = writable(allow),
	    .resolvers = writable(resolvers)};
	struct egress_policy *p = NULL;
	struct err e;

	assert_true(egress_policy_new(&c, &p, &e) < 0);
	assert_null(p);
	assert_contains(e.msg, why);
}

static bool denied(const struct egress_policy *p, const char *address)
{
	uint32_t a = 0;
	struct err e;

	assert_int_equal(ipv4_parse(address, &a, &e), 0);
	return ipv4_set_has(&p->special, a);
}

static void special_addresses_are_denied(void **state)
{
	static const char *const refused[] = {"0.0.0.0", "0.255.255.255",
	    "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255",
	    "127.0.0.1", "168.63.129.16", "169.254.169.254", "172.16.0.0",
	    "172.31.255.255", "192.0.0.255", "192.0.2.1", "192.31.196.1",
	    "192.52.193.1", "192.88.99.1", "192.168.255.255", "192.175.48.1",
	    "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.255",
	    "224.0.0.0", "239.1.2.3", "240.0.0.0", "255.255.255.255",
	    "10.255.0.1", "10.255.1.2"};
	static const char *const fine[] = {"1.0.0.0", "9.255.255.255",
	    "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
	    "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255",
	    "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
	    "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
	    "198.20.0.0", "203.0.114.0", "223.255.255.255"};
	struct egress_policy *p = make(NULL, NULL, one_resolver);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		if (!denied(p, refused[i]))
			fail_msg("%s is allowed", refused[i]);
	for (size_t i = 0; i < ARRAY_LEN(fine); i++)
		if (denied(p, fine[i]))
			fail_msg("%s is denied", fine[i]);
	egress_policy_free(p);
}

static void operators_wishes(void **state)
{
	static const char *deny[] = {"8.8.0.0/16", "1.2.3.4", NULL};
	static const char *allow[] = {"10.1.2.3:3128", "10.9.0.0/16:443", NULL};
	struct egress_policy *p = make(deny, allow, one_resolver);

	(void)state;
	assert_true(denied(p, "8.8.8.8") && denied(p, "1.2.3.4"));
	assert_false(denied(p, "8.9.0.0") || denied(p, "1.2.3.5"));
	assert_true(egress_policy_allows(p, 0x0a010203, 3128));
	assert_true(egress_policy_allows(p, 0x0a090909, 443));
	assert_false(egress_policy_allows(p, 0x0a010203, 443));
	assert_false(egress_policy_allows(p, 0x0a010204, 3128));
	egress_policy_free(p);
}

static void bad_wishes(void **state)
{
	static const char *bad_deny[] = {"8.8.0.0/16", "8.8.0.0/8", NULL};
	static const char *bad_allow[] = {"10.0.0.1", NULL};
	static const char *bad_resolver[] = {"1.1.1.1", "::1", NULL};
	static const char *many[] = {
	    "1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", NULL};

	(void)state;
	assert_bad(bad_deny, NULL, one_resolver, "egress_deny: \"8.8.0.0/8\"");
	assert_bad(NULL, bad_allow, one_resolver, "egress_allow: \"10.0.0.1\"");
	assert_bad(NULL, NULL, bad_resolver, "resolvers: \"::1\"");
	assert_bad(NULL, NULL, many, "at most 3");
}

static void resolv_conf(void **state)
{
	static const uint32_t two[] = {0x01010101, 0x08080808};
	cleanup_buf struct buf b = {0};

	(void)state;
	egress_resolv_conf(two, 2, &b);
	buf_putc(&b, '\0');
	assert_contains(
	    (const char *)b.data, "nameserver 1.1.1.1\nnameserver 8.8.8.8\n");
}

/* Every wish fits into the tables, by name or not; some rules for each. */
static void the_largest_rule_set(void **state)
{
	static char text[POLICY_ALLOW_MAX][32];
	static const char *allow[POLICY_ALLOW_MAX + 1];
	static const char *three[] = {"1.1.1.1", "8.8.8.8", "9.9.9.9", NULL};
	static const struct ipv4_set none;
	struct egress_policy *p;
	struct rules r;
	size_t open, by_name;
	struct err e;

	(void)state;
	for (size_t i = 0; i < POLICY_ALLOW_MAX; i++) {
		(void)snprintf(text[i], sizeof(text[i]), "10.0.0.%zu:80", i);
		allow[i] = text[i];
	}
	p = make(NULL, allow, three);
	assert_int_equal(rules_build(&r, p, &none, NULL, &e), 0);
	open = r.rule_count;
	assert_int_equal(r.set_count, 2);
	rules_free(&r);
	assert_int_equal(rules_build(&r, p, &none, &none, &e), 0);
	by_name = r.rule_count;
	assert_int_equal(r.set_count, RULES_SETS);
	assert_true(open > POLICY_ALLOW_MAX + 20 && by_name > open);
	assert_true(by_name + 1 <= RULES_MAX); /* a trial's exception */
	rules_free(&r);
	assert_int_equal(r.rule_count, 0);
	egress_policy_free(p);
}

/* What slirp4netns and the sandbox are told must be what the rules say. */
static void the_addresses_agree(void **state)
{
	struct ipv4_range tap;
	struct err e;

	(void)state;
	assert_int_equal(ipv4_parse_prefix(NET_TAP_CIDR, &tap, &e), 0);
	assert_true(NET_TAP > tap.first && NET_TAP < tap.last);
	assert_true(NET_TAP_GATEWAY > tap.first && NET_TAP_GATEWAY < tap.last);
	assert_int_equal(NET_SANDBOX >> 2, NET_ROUTER >> 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(special_addresses_are_denied),
	    cmocka_unit_test(operators_wishes),
	    cmocka_unit_test(bad_wishes),
	    cmocka_unit_test(resolv_conf),
	    cmocka_unit_test(the_largest_rule_set),
	    cmocka_unit_test(the_addresses_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
