/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/ratelimit.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdbool.h>

#include "tests/unit/scratch.h"

#define S 1000000000ull /* nanoseconds */
#define NOW (5000 * S)

static struct scratch tmp;

static int set_up(void **state)
{
	struct ratelimit *r;
	struct err e = {0};

	scratch_make(&tmp);
	if (ratelimit_open(scratch_path(&tmp, "rate"), &r, &e) < 0)
		fail_msg("%s", e.msg);
	*state = r;
	return 0;
}

static int tear_down(void **state)
{
	ratelimit_close(*state);
	scratch_remove(&tmp);
	return 0;
}

static void reference_rate_is_kept_to_the_second(void **state)
{
	struct ratelimit *r = *state;
	uint64_t key = ratelimit_key(r, "192.0.2.1");

	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW), 0);
	/* One token each two seconds. */
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW), 2);
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW + 1), 2);
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW + S), 1);
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW + S + 1), 1);
	assert_int_equal(
	    ratelimit_take_at(r, 0, key, 30, 10, NOW + 2 * S - 1), 1);
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW + 2 * S), 0);
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW + 2 * S), 2);
	/* After 20 s of silence it is full again, and never more than full. */
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(
		    ratelimit_take_at(r, 0, key, 30, 10, NOW + 1000 * S), 0);
	assert_int_equal(
	    ratelimit_take_at(r, 0, key, 30, 10, NOW + 1000 * S), 2);
}

/* A waiting time is the least: one second earlier there is no token. */
static void retry_after_is_exact_for_many_rates(void **state)
{
	struct ratelimit *r = *state;
	static const unsigned rates[] = {
	    1, 2, 3, 6, 7, 29, 30, 59, 60, 61, 600, 100000};
	uint64_t now = NOW;

	for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
		for (unsigned burst = 1; burst <= 20; burst += 19) {
			uint64_t key = ratelimit_key(r, "192.0.2.2");
			unsigned class = (unsigned)i * 2 + burst / 20;
			unsigned wait;

			for (unsigned j = 0; j < burst; j++)
				assert_int_equal(ratelimit_take_at(r, class,
						     key, rates[i], burst, now),
				    0);
			now += randombytes_uniform(300) * (S / 1000000);
			wait = ratelimit_take_at(
			    r, class, key, rates[i], burst, now);
			assert_true(wait >= 1 && wait <= 60);
			if (wait > 1)
				assert_int_not_equal(
				    ratelimit_take_at(r, class, key, rates[i],
					burst, now + (wait - 1) * S),
				    0);
			assert_int_equal(ratelimit_take_at(r, class, key,
					     rates[i], burst, now + wait * S),
			    0);
		}
	}
}

/* Against a plain token bucket, counted in sixtieths of a token a nanosecond. */
static void agrees_with_a_token_bucket(void **state)
{
	struct ratelimit *r = *state;
	uint64_t key = ratelimit_key(r, "192.0.2.3");
	const uint64_t token = 60 * S;
	uint64_t level = 10 * token;
	uint64_t now = NOW;

	for (unsigned i = 0; i < 20000; i++) {
		uint64_t step = randombytes_uniform(3000) * (S / 1000);
		bool expected;

		now += step;
		level += step * 30;
		if (level > 10 * token)
			level = 10 * token;
		expected = level >= token;
		if (expected)
			level -= token;
		assert_int_equal(
		    ratelimit_take_at(r, 0, key, 30, 10, now) == 0, expected);
	}
}

static void zero_is_no_limit_and_odd_bursts_are_bounded(void **state)
{
	struct ratelimit *r = *state;
	uint64_t key = ratelimit_key(r, "192.0.2.4");

	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(ratelimit_take_at(r, 0, key, 0, 0, NOW), 0);
	assert_int_equal(ratelimit_take_at(r, 0, key, 60, 0, NOW), 0);
	assert_int_equal(ratelimit_take_at(r, 0, key, 60, 0, NOW), 1);
	assert_int_equal(ratelimit_take_at(r, 1, key, 1, UINT32_MAX, NOW), 0);
	assert_int_equal(
	    ratelimit_take_at(r, 2, key, UINT32_MAX, UINT32_MAX, NOW), 0);
}

static void classes_and_keys_are_apart(void **state)
{
	struct ratelimit *r = *state;
	uint64_t a = ratelimit_key(r, "192.0.2.5");
	uint64_t b = ratelimit_key(r, "192.0.2.6");

	assert_int_equal(ratelimit_take_at(r, 0, a, 1, 1, NOW), 0);
	assert_int_equal(ratelimit_take_at(r, 0, a, 1, 1, NOW), 60);
	assert_int_equal(ratelimit_take_at(r, 1, a, 1, 1, NOW), 0);
	assert_int_equal(ratelimit_take_at(r, 0, b, 1, 1, NOW), 0);
	assert_int_equal(ratelimit_take_at(r, 1, a, 1, 1, NOW), 60);
}

static void clock_may_jump_back(void **state)
{
	struct ratelimit *r = *state;
	uint64_t key = ratelimit_key(r, "192.0.2.7");

	assert_int_equal(
	    ratelimit_take_at(r, 0, key, 30, 10, 9000000000ull * S), 0);
	/* Empty now, but no emptier: one token each two seconds. */
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, S), 2);
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, 3 * S), 0);
	/* A burst that was lowered counts at once. */
	key++;
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(ratelimit_take_at(r, 0, key, 30, 100, NOW), 0);
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW), 2);
	assert_int_equal(ratelimit_take_at(r, 0, key, 30, 10, NOW + 2 * S), 0);
}

static void real_clock_is_used(void **state)
{
	struct ratelimit *r = *state;
	uint64_t key = ratelimit_key(r, "192.0.2.8");

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ratelimit_take(r, 0, key, 60, 3), 0);
	assert_int_equal(ratelimit_take(r, 0, key, 60, 3), 1);
	(void)usleep(1050000);
	assert_int_equal(ratelimit_take(r, 0, key, 60, 3), 0);
	assert_int_equal(ratelimit_take(r, 0, key, 60, 3), 1);
}

static void addresses_have_the_right_keys(void **state)
{
	struct ratelimit *r = *state;
	static const struct {
		const char *a;
		const char *b;
		bool same;
	} cases[] = {
	    {"192.0.2.1", "192.0.2.1", true},
	    {"192.0.2.1", "192.0.2.2", false},
	    {"192.0.2.1", "::ffff:192.0.2.1", true},
	    {"192.0.2.1", "::FFFF:c000:201", true},
	    {"192.0.2.1", "::ffff:192.0.2.2", false},
	    {"192.0.2.1", "::192.0.2.1", false},
	    {"192.0.2.1", " 192.0.2.1", false},
	    {"2001:db8:1:2::1", "2001:db8:1:2::2", true},
	    {"2001:db8:1:2::1", "2001:DB8:1:2:ffff:ffff:ffff:ffff", true},
	    {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
	    {"2001:db8:1:2::1", "2001:db9:1:2::1", false},
	    {"fe80::1%eth0", "fe80::2%eth1", true},
	    {"fe80::1%eth0", "fe80::1", true},
	    {"::1", "127.0.0.1", false},
	    {"", "x", false},
	    {"", "", true},
	    {"unix:", "unix:", true},
	    {"1111:2222:3333:4444:5555:6666:7777:8888:9999%0", "1111::", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if ((ratelimit_key(r, cases[i].a) ==
			ratelimit_key(r, cases[i].b)) != cases[i].same)
			fail_msg("%s and %s", cases[i].a, cases[i].b);
}

/* 100,000 others, far more than the table has room for: each gets its runs, and
 * the one that was over its limit stays there. */
static void many_addresses_neither_suffer_nor_help(void **state)
{
	struct ratelimit *r = *state;
	uint64_t hot = ratelimit_key(r, "198.51.100.1");
	unsigned refused = 0;

	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(ratelimit_take_at(r, 0, hot, 30, 10, NOW), 0);
	for (unsigned i = 0; i < 100000; i++) {
		char address[32];

		(void)snprintf(address, sizeof(address), "10.%u.%u.%u", i >> 16,
		    i >> 8 & 255, i & 255);
		refused += ratelimit_take_at(r, 0, ratelimit_key(r, address),
			       30, 10, NOW + i * 1000) != 0;
	}
	assert_int_equal(refused, 0);
	assert_int_equal(
	    ratelimit_take_at(r, 0, hot, 30, 10, NOW + 100000 * 1000), 2);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(reference_rate_is_kept_to_the_second),
	    TEST(retry_after_is_exact_for_many_rates),
	    TEST(agrees_with_a_token_bucket),
	    TEST(zero_is_no_limit_and_odd_bursts_are_bounded),
	    TEST(classes_and_keys_are_apart),
	    TEST(clock_may_jump_back),
	    TEST(real_clock_is_used),
	    TEST(addresses_have_the_right_keys),
	    TEST(many_addresses_neither_suffer_nor_help),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
