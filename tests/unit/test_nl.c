/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the kernel, with real answers: of routing, of which every process
 * may ask.
 *
 * LINK: runner/egress/nl.o
 */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "runner/egress/nl.h"
#include "tests/unit/unit.h"

static int count(const struct nlmsghdr *nlh, void *data)
{
	unsigned *n = data;

	(void)nlh;
	(*n)++;
	return 0;
}

static int refuse(const struct nlmsghdr *nlh, void *data)
{
	(void)count(nlh, data);
	return -E2BIG;
}

/* All links: lo, at least. */
static int dump(struct nl *nl, int (*each)(const struct nlmsghdr *, void *),
    unsigned *ret_count)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct ifinfomsg *i;

	*ret_count = 0;
	nlh->nlmsg_type = RTM_GETLINK;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	i = mnl_nlmsg_put_extra_header(nlh, sizeof(*i));
	i->ifi_family = AF_UNSPEC;
	return nl_request(nl, nlh, each, ret_count);
}

static int get(struct nl *nl, int index,
    int (*each)(const struct nlmsghdr *, void *), unsigned *ret_count)
{
	char room[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(room);
	struct ifinfomsg *i;

	*ret_count = 0;
	nlh->nlmsg_type = RTM_GETLINK;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	i = mnl_nlmsg_put_extra_header(nlh, sizeof(*i));
	i->ifi_index = index;
	return nl_request(nl, nlh, each, ret_count);
}

static void open_it(struct nl *nl)
{
	struct err e;

	*nl = (struct nl){0};
	if (nl_open(nl, NETLINK_ROUTE, &e) < 0)
		fail_msg("%s", e.msg);
}

static void answers(void **state)
{
	struct nl nl;
	unsigned n;

	(void)state;
	open_it(&nl);
	assert_int_equal(dump(&nl, count, &n), 0);
	assert_true(n >= 1);
	assert_int_equal(get(&nl, 1, count, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(get(&nl, INT32_MAX, count, &n), -ENODEV);
	assert_int_equal(n, 0);
	nl_close(&nl);
}

/* What is left of an answer that was given up is not the next one's. */
static void after_a_failure(void **state)
{
	struct nl nl;
	unsigned n;

	(void)state;
	open_it(&nl);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(dump(&nl, refuse, &n), -E2BIG);
		assert_int_equal(n, 1);
		assert_int_equal(dump(&nl, count, &n), 0);
		assert_true(n >= 1);
		assert_int_equal(get(&nl, 1, refuse, &n), -E2BIG);
		assert_int_equal(n, 1);
		assert_int_equal(get(&nl, INT32_MAX, count, &n), -ENODEV);
		assert_int_equal(dump(&nl, count, &n), 0);
	}
	nl_close(&nl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(answers),
	    cmocka_unit_test(after_a_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
