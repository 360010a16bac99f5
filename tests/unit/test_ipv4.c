/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "lib/hostname.h"
#include "lib/ipv4.h"
#include "tests/unit/unit.h"

#include <string.h>

static void addresses(void **state)
{
	static const char *const bad[] = {"", "1", "1.2.3", "1.2.3.4.5",
	    "256.1.1.1", "01.2.3.4", "1.2.3.4 ", " 1.2.3.4", "0x1.2.3.4",
	    "1.2.3.-4", "::1", "a.b.c.d", "16909060"};
	char text[IPV4_TEXT];
	struct err e;
	uint32_t a;

	(void)state;
	assert_int_equal(ipv4_parse("1.2.3.4", &a, &e), 0);
	assert_int_equal(a, 0x01020304);
	assert_string_equal(ipv4_text(a, text), "1.2.3.4");
	assert_string_equal(ipv4_text(UINT32_MAX, text), "255.255.255.255");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(ipv4_parse(bad[i], &a, &e) < 0);
	assert_int_equal(a, 0x01020304);
}

static void prefixes(void **state)
{
	static const char *const bad[] = {"10.0.0.0/", "10.0.0.0/33",
	    "10.0.0.0/8/8", "10.0.0.1/8", "10.0.0.0/08", "10.0.0.0/-1",
	    "10.0.0.0/8 ", "/8", "10/8", "1.2.3.4:5",
	    "1111111111111111111111111111111111111111/8"};
	struct ipv4_range r;
	struct err e;

	(void)state;
	assert_int_equal(ipv4_parse_prefix("10.0.0.0/8", &r, &e), 0);
	assert_true(r.first == 0x0a000000 && r.last == 0x0affffff);
	assert_int_equal(ipv4_prefix_bits(&r), 8);
	assert_int_equal(ipv4_parse_prefix("0.0.0.0/0", &r, &e), 0);
	assert_true(r.first == 0 && r.last == UINT32_MAX);
	assert_int_equal(ipv4_prefix_bits(&r), 0);
	assert_int_equal(ipv4_parse_prefix("1.2.3.4", &r, &e), 0);
	assert_true(r.first == r.last && ipv4_prefix_bits(&r) == 32);
	assert_int_equal(ipv4_parse_prefix("1.2.3.4/32", &r, &e), 0);
	assert_true(r.first == 0x01020304 && r.last == 0x01020304);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(ipv4_parse_prefix(bad[i], &r, &e) < 0);
}

static void prefixes_with_ports(void **state)
{
	static const char *const bad[] = {"1.2.3.4", "1.2.3.4:", "1.2.3.4:0",
	    "1.2.3.4:65536", "1.2.3.4:80:80", ":80", "1.2.3.4:080",
	    "1.2.3.4:http"};
	struct ipv4_range r;
	struct err e;
	uint16_t port;

	(void)state;
	assert_int_equal(
	    ipv4_parse_prefix_port("192.168.1.0/24:443", &r, &port, &e), 0);
	assert_true(r.first == 0xc0a80100 && r.last == 0xc0a801ff);
	assert_int_equal(port, 443);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(ipv4_parse_prefix_port(bad[i], &r, &port, &e) < 0);
}

static void sets_merge_what_overlaps_or_touches(void **state)
{
	struct ipv4_set a = {0}, b = {0};

	(void)state;
	ipv4_set_settle(&a);
	assert_int_equal(a.count, 0);
	assert_false(ipv4_set_has(&a, 0));
	for (uint32_t i = 100; i > 0; i--)
		assert_int_equal(ipv4_set_add(&a, i * 10, i * 10 + 3), 0);
	assert_int_equal(ipv4_set_add(&a, 0, 4), 0); /* overlaps nothing */
	assert_int_equal(ipv4_set_add(&a, 14, 19), 0); /* touches two */
	assert_int_equal(ipv4_set_add(&a, 31, 32), 0); /* is inside */
	assert_int_equal(ipv4_set_add(&a, 40, 60), 0); /* covers two */
	assert_int_equal(ipv4_set_add(&a, UINT32_MAX - 1, UINT32_MAX), 0);
	assert_int_equal(ipv4_set_add(&a, UINT32_MAX, UINT32_MAX), 0);
	ipv4_set_settle(&a);
	for (size_t i = 1; i < a.count; i++)
		assert_true(a.ranges[i].first > a.ranges[i - 1].last + 1);
	assert_true(ipv4_set_has(&a, 0) && ipv4_set_has(&a, 23));
	assert_false(ipv4_set_has(&a, 5));
	assert_false(ipv4_set_has(&a, 24));
	assert_true(ipv4_set_has(&a, 64) == false && ipv4_set_has(&a, 63));
	assert_true(ipv4_set_has(&a, UINT32_MAX));
	assert_int_equal(a.ranges[1].first, 10);
	assert_int_equal(a.ranges[1].last, 23);
	assert_false(ipv4_set_equal(&a, &b));
	for (size_t i = 0; i < a.count; i++)
		assert_int_equal(
		    ipv4_set_add(&b, a.ranges[i].first, a.ranges[i].last), 0);
	ipv4_set_settle(&b);
	assert_true(ipv4_set_equal(&a, &b));
	ipv4_set_free(&a);
	ipv4_set_free(&b);
}

static bool matches(const char *pattern, const char *name)
{
	return hostname_matches(pattern, strlen(pattern), name, strlen(name));
}

static void host_names(void **state)
{
	static const char *const good[] = {
	    "a", "pypi.org", "*.x.org", "xn--bcher-kva.de", "_a._tcp.b", "1.a"};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(
		    hostname_check_pattern(good[i], strlen(good[i]), &e), 0);
	assert_true(hostname_check_pattern("a\0b", 3, &e) < 0);
	assert_int_equal(e.kind, ERR_INVALID_REQUEST);
	assert_true(matches("pypi.org", "PyPI.org"));
	assert_false(matches("pypi.org", "xpypi.org"));
	assert_false(matches("pypi.org", "a.pypi.org"));
	assert_false(matches("pypi.org", "pypi.org.evil"));
	assert_true(matches("*.github.com", "api.GITHUB.com"));
	assert_true(matches("*.github.com", "a.b.github.com"));
	assert_false(matches("*.github.com", "github.com"));
	assert_false(matches("*.github.com", ".github.com"));
	assert_false(matches("*.github.com", "evilgithub.com"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(addresses),
	    cmocka_unit_test(prefixes),
	    cmocka_unit_test(prefixes_with_ports),
	    cmocka_unit_test(sets_merge_what_overlaps_or_touches),
	    cmocka_unit_test(host_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
