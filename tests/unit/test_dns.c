/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of DNS that egress by name reads and writes.
 *
 * LINK: runner/egress/dns.o
 */
#include <errno.h>
#include <string.h>

#include "runner/egress/dns.h"
#include "tests/unit/unit.h"

#define A "\0\1\0\1" /* type A, class IN */
#define NAME "\3www\6Golang\3org\0"

/* A string literal without its last NUL. */
#define BYTES(s) (const uint8_t *)(s), sizeof(s) - 1

static struct dns_question read_good(const uint8_t *msg, size_t len)
{
	struct dns_question q;
	enum dns_rcode rcode;

	assert_int_equal(dns_read_query(msg, len, &q, &rcode), 0);
	return q;
}

static void queries_are_read(void **state)
{
	struct dns_question q =
	    read_good(BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\1" NAME A
			    "\0\0\x29\4\xd0\0\0\0\0\0\0"));

	(void)state;
	assert_int_equal(q.id, 0x1234);
	assert_true(q.recursion);
	assert_string_equal(q.name, "www.golang.org");
	assert_int_equal(q.name_len, 14);
	assert_int_equal(q.type, DNS_TYPE_A);
	assert_int_equal(q.class, DNS_CLASS_IN);
}

static void assert_bad(
    const uint8_t *msg, size_t len, int want, enum dns_rcode want_rcode)
{
	struct dns_question q;
	enum dns_rcode rcode = DNS_NOERROR;

	assert_int_equal(dns_read_query(msg, len, &q, &rcode), want);
	if (want == -EINVAL)
		assert_int_equal(rcode, want_rcode);
}

static void broken_queries(void **state)
{
	(void)state;
	assert_bad(BYTES(""), -EPROTO, 0);
	assert_bad(BYTES("\1\2\1\0\0\1\0\0\0\0\0"), -EPROTO, 0);
	/* an answer */
	assert_bad(BYTES("\1\2\x81\0\0\1\0\0\0\0\0\0" NAME A), -EPROTO, 0);
	/* another operation */
	assert_bad(
	    BYTES("\1\2\x28\0\0\1\0\0\0\0\0\0" NAME A), -EINVAL, DNS_NOTIMP);
	/* no question, two, an answer with it */
	assert_bad(BYTES("\1\2\1\0\0\0\0\0\0\0\0\0"), -EINVAL, DNS_FORMERR);
	assert_bad(BYTES("\1\2\1\0\0\2\0\0\0\0\0\0" NAME A NAME A), -EINVAL,
	    DNS_FORMERR);
	assert_bad(
	    BYTES("\1\2\1\0\0\1\0\1\0\0\0\0" NAME A), -EINVAL, DNS_FORMERR);
	/* cut short, a label too long for its message, a pointer, a dot and a
	 * NUL inside a label, bits of no meaning */
	assert_bad(BYTES("\1\2\1\0\0\1\0\0\0\0\0\0" NAME "\0\1"), -EINVAL,
	    DNS_FORMERR);
	assert_bad(BYTES("\1\2\1\0\0\1\0\0\0\0\0\0\x3f"
			 "ab"),
	    -EINVAL, DNS_FORMERR);
	assert_bad(
	    BYTES("\1\2\1\0\0\1\0\0\0\0\0\0\xc0\x0c" A), -EINVAL, DNS_FORMERR);
	assert_bad(
	    BYTES("\1\2\1\0\0\1\0\0\0\0\0\0\3a.b\0" A), -EINVAL, DNS_FORMERR);
	assert_bad(
	    BYTES("\1\2\1\0\0\1\0\0\0\0\0\0\3a\0b\0" A), -EINVAL, DNS_FORMERR);
	assert_bad(BYTES("\1\2\1\0\0\1\0\0\0\0\0\0\x43"
			 "abc\0" A),
	    -EINVAL, DNS_FORMERR);
}

/* A query for a name of four labels, of which the last may have 61 bytes. */
static void put_long_query(struct buf *msg, size_t last)
{
	buf_clear(msg);
	buf_put(msg, "\1\2\1\0\0\1\0\0\0\0\0\0", 12);
	for (int i = 0; i < 4; i++) {
		size_t n = i < 3 ? 63 : last;

		buf_putc(msg, (char)n);
		while (n-- > 0)
			buf_putc(msg, 'x');
	}
	buf_put(msg, "\0" A, 5);
}

/* 253 characters are a name, 254 are none. */
static void the_longest_name(void **state)
{
	cleanup_buf struct buf msg = {0};
	struct dns_question q;
	enum dns_rcode rcode;

	(void)state;
	for (size_t last = 61; last <= 62; last++) {
		put_long_query(&msg, last);
		assert_int_equal(dns_read_query(msg.data, msg.len, &q, &rcode),
		    last == 61 ? 0 : -EINVAL);
	}
}

static struct dns_question question(void)
{
	return read_good(BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0" NAME A));
}

static void our_query_can_be_read(void **state)
{
	const struct dns_question q = question();
	cleanup_buf struct buf out = {0};
	struct dns_question again;

	(void)state;
	dns_put_query(&out, 0xabcd, &q, false);
	again = read_good(out.data, out.len);
	assert_int_equal(out.len, 12 + again.wire_len);
	assert_int_equal(out.data[11], 0);
	buf_clear(&out);
	dns_put_query(&out, 0xabcd, &q, true);
	again = read_good(out.data, out.len);
	assert_int_equal(out.data[11], 1); /* and EDNS */
	assert_int_equal(again.id, 0xabcd);
	assert_true(again.recursion);
	assert_string_equal(again.name, "www.golang.org");
	assert_int_equal(again.type, DNS_TYPE_A);
}

static int read_answer(const uint8_t *msg, size_t len,
    enum dns_rcode *ret_rcode, struct dns_addresses *ret)
{
	const struct dns_question q = question();

	return dns_read_answer(msg, len, 0x0102, &q, ret_rcode, ret);
}

#define HEAD(answers) "\1\2\x81\x80\0\1\0" answers "\0\0\0\0" NAME A

static void addresses_are_found(void **state)
{
	struct dns_addresses a;
	enum dns_rcode rcode;

	(void)state;
	assert_int_equal(
	    read_answer(
		BYTES(HEAD("\2") "\xc0\x0c" A "\0\0\1\0\0\4\1\2\3\4"
				 "\xc0\x0c" A "\0\0\0\x80\0\4\5\6\7\x8"),
		&rcode, &a),
	    0);
	assert_int_equal(rcode, DNS_NOERROR);
	assert_int_equal(a.count, 2);
	assert_int_equal(a.list[0], 0x01020304);
	assert_int_equal(a.list[1], 0x05060708);
	assert_int_equal(a.ttl, 128);
	/* NXDOMAIN; nothing */
	assert_int_equal(
	    read_answer(
		BYTES("\1\2\x81\x83\0\1\0\0\0\0\0\0" NAME A), &rcode, &a),
	    0);
	assert_int_equal(rcode, DNS_NXDOMAIN);
	assert_int_equal(a.count, 0);
	/* what is there of a truncated one counts */
	assert_int_equal(
	    read_answer(BYTES(HEAD("\2") "\xc0\x0c" A "\0\0\1\0\0\4\1\2\3\4"
					 "\xc0\x0c" A "\0\0"),
		&rcode, &a),
	    0);
	assert_int_equal(a.count, 1);
}

static void assert_told(const uint8_t *msg, size_t len, enum dns_rcode want)
{
	struct dns_addresses a;
	enum dns_rcode rcode;

	assert_int_equal(read_answer(msg, len, &rcode, &a), 0);
	assert_int_equal(rcode, want);
	assert_int_equal(a.count, 0);
}

/* Not one address is there, and that is not "there are none". */
static void cut_before_the_first_address(void **state)
{
	struct dns_addresses a;
	enum dns_rcode rcode;

	(void)state;
	/* it says so; with an alias; with an address */
	assert_told(
	    BYTES("\1\2\x83\x80\0\1\0\0\0\0\0\0" NAME A), DNS_TRUNCATED);
	assert_told(BYTES("\1\2\x83\x80\0\1\0\1\0\0\0\0" NAME A
			  "\xc0\x0c\0\5\0\1\0\0\0\5\0\2\1y\0"),
	    DNS_TRUNCATED);
	assert_int_equal(read_answer(BYTES("\1\2\x83\x80\0\1\0\1\0\0\0\0" NAME A
					   "\xc0\x0c" A "\0\0\1\0\0\4\1\2\3\4"),
			     &rcode, &a),
	    0);
	assert_int_equal(rcode, DNS_NOERROR);
	assert_int_equal(a.count, 1);
	/* it does not say so: more than we said that we take */
	assert_told(BYTES(HEAD("\1")), DNS_TRUNCATED);
	assert_told(
	    BYTES(HEAD("\1") "\xc0\x0c" A "\0\0\1\0\0\4\1\2\3"), DNS_TRUNCATED);
	/* there is no such name, however it is said */
	assert_told(BYTES("\1\2\x83\x83\0\1\0\0\0\0\0\0" NAME A), DNS_NXDOMAIN);
}

/* Who does not know EDNS may not have read so far as to repeat the question. */
static void errors_without_a_question(void **state)
{
	struct dns_addresses a;
	enum dns_rcode rcode;

	(void)state;
	assert_told(BYTES("\1\2\x81\x81\0\0\0\0\0\0\0\0"), DNS_FORMERR);
	assert_told(BYTES("\1\2\x81\x84\0\0\0\0\0\0\0\0"), DNS_NOTIMP);
	assert_told(BYTES("\1\2\x81\x81\0\1\0\0\0\0\0\0" NAME A), DNS_FORMERR);
	/* another id, not an answer, more behind it, another error */
	assert_true(
	    read_answer(BYTES("\1\3\x81\x81\0\0\0\0\0\0\0\0"), &rcode, &a) < 0);
	assert_true(
	    read_answer(BYTES("\1\2\1\x81\0\0\0\0\0\0\0\0"), &rcode, &a) < 0);
	assert_true(read_answer(BYTES("\1\2\x81\x81\0\0\0\0\0\0\0\0\0"), &rcode,
			&a) < 0);
	assert_true(
	    read_answer(BYTES("\1\2\x81\x83\0\0\0\0\0\0\0\0"), &rcode, &a) < 0);
	assert_true(
	    read_answer(BYTES("\1\2\x81\x81\0\0\0\0\0\0\0"), &rcode, &a) < 0);
}

/* An alias, in any order, with a name of its own or by a pointer. */
static void aliases_are_followed(void **state)
{
	struct dns_addresses a;
	enum dns_rcode rcode;

	(void)state;
	assert_int_equal(
	    read_answer(
		BYTES(HEAD("\3") "\3cdn\1x\0" A "\0\0\0\x0a\0\4\1\2\3\4"
				 "\xc0\x0c\0\5\0\1\0\0\0\5\0\7\3CDN\1x\0"
				 "\1y\0" A "\0\0\0\1\0\4\x9\x9\x9\x9"),
		&rcode, &a),
	    0);
	assert_int_equal(a.count, 1);
	assert_int_equal(a.list[0], 0x01020304);
	assert_int_equal(a.ttl, 5);
	/* an alias of itself ends */
	assert_int_equal(
	    read_answer(
		BYTES(HEAD("\1") "\xc0\x0c\0\5\0\1\0\0\0\5\0\2\xc0\x0c"),
		&rcode, &a),
	    0);
	assert_int_equal(a.count, 0);
}

/* Addresses of other names, of other classes, of other lengths. */
static void what_was_not_asked_for(void **state)
{
	struct dns_addresses a;
	enum dns_rcode rcode;

	(void)state;
	assert_int_equal(
	    read_answer(BYTES(HEAD("\3") "\4evil\0" A "\0\0\1\0\0\4\1\2\3\4"
					 "\xc0\x0c\0\1\0\3\0\0\1\0\0\4\1\2\3\4"
					 "\xc0\x0c" A "\0\0\1\0\0\3\1\2\3"),
		&rcode, &a),
	    0);
	assert_int_equal(a.count, 0);
}

static void answers_to_others(void **state)
{
	struct dns_addresses a;
	enum dns_rcode rcode;

	(void)state;
	/* another id; a query; another name; another type; no question; a name
	 * that points at itself */
	assert_true(read_answer(BYTES("\1\3\x81\x80\0\1\0\0\0\0\0\0" NAME A),
			&rcode, &a) < 0);
	assert_true(read_answer(BYTES("\1\2\1\x80\0\1\0\0\0\0\0\0" NAME A),
			&rcode, &a) < 0);
	assert_true(read_answer(BYTES("\1\2\x81\x80\0\1\0\0\0\0\0\0\3www\0" A),
			&rcode, &a) < 0);
	assert_true(
	    read_answer(BYTES("\1\2\x81\x80\0\1\0\0\0\0\0\0" NAME "\0\x1c\0\1"),
		&rcode, &a) < 0);
	assert_true(
	    read_answer(BYTES("\1\2\x81\x80\0\0\0\0\0\0\0\0"), &rcode, &a) < 0);
	assert_int_equal(
	    read_answer(BYTES(HEAD("\1") "\xc0\x20" A "\0\0\1\0\0\4\1\2\3\4"),
		&rcode, &a),
	    0);
	assert_int_equal(a.count, 0);
}

static void our_answer_fits_and_can_be_read(void **state)
{
	struct dns_question q = question(), longest;
	struct dns_addresses in = {.count = DNS_ADDRESSES_MAX, .ttl = 77}, out;
	cleanup_buf struct buf msg = {0};
	enum dns_rcode rcode;

	(void)state;
	for (size_t i = 0; i < in.count; i++)
		in.list[i] = (uint32_t)(0x01000000 + i);
	dns_put_answer(&msg, &q, DNS_NOERROR, &in);
	assert_int_equal(
	    dns_read_answer(msg.data, msg.len, q.id, &q, &rcode, &out), 0);
	assert_int_equal(out.count, in.count);
	assert_int_equal(out.ttl, 77);
	assert_memory_equal(out.list, in.list, sizeof(in.list));
	/* upper and lower case as they were asked */
	assert_memory_equal(msg.data + 12, NAME A, sizeof(NAME A) - 1);
	/* the longest name */
	put_long_query(&msg, 61);
	longest = read_good(msg.data, msg.len);
	buf_clear(&msg);
	dns_put_answer(&msg, &longest, DNS_NOERROR, &in);
	assert_true(msg.len <= DNS_UDP_MAX);
	/* a refusal */
	buf_clear(&msg);
	dns_put_answer(&msg, &q, DNS_NXDOMAIN, NULL);
	assert_int_equal(
	    dns_read_answer(msg.data, msg.len, q.id, &q, &rcode, &out), 0);
	assert_int_equal(rcode, DNS_NXDOMAIN);
	assert_int_equal(out.count, 0);
}

/* Who asks takes no answer that does not repeat the question. */
static void the_root_is_answered(void **state)
{
	struct dns_question q =
	    read_good(BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0\0" A));
	cleanup_buf struct buf msg = {0};
	struct dns_addresses out;
	enum dns_rcode rcode;

	(void)state;
	assert_int_equal(q.name_len, 0);
	dns_put_answer(&msg, &q, DNS_NXDOMAIN, NULL);
	assert_int_equal(
	    dns_read_answer(msg.data, msg.len, q.id, &q, &rcode, &out), 0);
	assert_int_equal(rcode, DNS_NXDOMAIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(queries_are_read),
	    cmocka_unit_test(broken_queries),
	    cmocka_unit_test(the_longest_name),
	    cmocka_unit_test(our_query_can_be_read),
	    cmocka_unit_test(addresses_are_found),
	    cmocka_unit_test(cut_before_the_first_address),
	    cmocka_unit_test(errors_without_a_question),
	    cmocka_unit_test(aliases_are_followed),
	    cmocka_unit_test(what_was_not_asked_for),
	    cmocka_unit_test(answers_to_others),
	    cmocka_unit_test(our_answer_fits_and_can_be_read),
	    cmocka_unit_test(the_root_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
