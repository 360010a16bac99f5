/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: slots, the order of the queue, bounded waits.
 *
 * LINK: runner/admit.o
 */
#include "tests/unit/unit.h"

#include "runner/admit.h"

#define WAIT_MS 2000u
#define WAIT_US 2000000u

static void test_slots_then_queue(void **state)
{
	struct waiter w[5];
	struct admit a;

	(void)state;
	admit_init(&a, 2, WAIT_MS, 2);
	assert_int_equal(admit_request(&a, &w[0], 0), ADMIT_NOW);
	assert_int_equal(admit_request(&a, &w[1], 0), ADMIT_NOW);
	assert_int_equal(admit_request(&a, &w[2], 0), ADMIT_QUEUED);
	assert_int_equal(admit_request(&a, &w[3], 0), ADMIT_QUEUED);
	assert_int_equal(admit_request(&a, &w[4], 0), ADMIT_FULL);
	assert_int_equal(a.running, 2);
	assert_int_equal(a.queued, 2);
}

static void test_first_come_first_served(void **state)
{
	struct waiter w[4];
	struct admit a;

	(void)state;
	admit_init(&a, 1, WAIT_MS, 10);
	for (int i = 0; i < 3; i++)
		(void)admit_request(&a, &w[i], (uint64_t)i);
	assert_null(admit_next(&a));
	admit_release(&a);
	/* A slot is free, but who comes now does not pass those who wait. */
	assert_int_equal(admit_request(&a, &w[3], 9), ADMIT_QUEUED);
	assert_ptr_equal(admit_next(&a), &w[1]);
	assert_null(admit_next(&a));
	admit_release(&a);
	assert_ptr_equal(admit_next(&a), &w[2]);
	admit_release(&a);
	assert_ptr_equal(admit_next(&a), &w[3]);
}

static void test_wait_is_bounded(void **state)
{
	struct waiter w[3];
	struct admit a;

	(void)state;
	admit_init(&a, 1, WAIT_MS, 10);
	(void)admit_request(&a, &w[0], 0);
	assert_int_equal(admit_deadline_us(&a), UINT64_MAX);
	(void)admit_request(&a, &w[1], 100);
	(void)admit_request(&a, &w[2], 200);
	assert_int_equal(admit_deadline_us(&a), 100 + WAIT_US);
	assert_null(admit_expired(&a, 99 + WAIT_US));
	assert_ptr_equal(admit_expired(&a, 100 + WAIT_US), &w[1]);
	assert_null(admit_expired(&a, 100 + WAIT_US));
	assert_int_equal(a.queued, 1);
}

static void test_cancel(void **state)
{
	struct waiter w[3];
	struct admit a;

	(void)state;
	admit_init(&a, 1, WAIT_MS, 10);
	for (int i = 0; i < 3; i++)
		(void)admit_request(&a, &w[i], 0);
	admit_cancel(&a, &w[1]);
	admit_cancel(&a, &w[1]); /* again does nothing */
	admit_cancel(&a, &w[0]); /* it runs: nothing either */
	assert_int_equal(a.queued, 1);
	admit_release(&a);
	assert_ptr_equal(admit_next(&a), &w[2]);
}

static void test_no_wait_allowed(void **state)
{
	struct waiter w[2];
	struct admit a;

	(void)state;
	admit_init(&a, 1, 0, 10);
	assert_int_equal(admit_request(&a, &w[0], 0), ADMIT_NOW);
	assert_int_equal(admit_request(&a, &w[1], 0), ADMIT_FULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_slots_then_queue),
	    cmocka_unit_test(test_first_come_first_served),
	    cmocka_unit_test(test_wait_is_bounded),
	    cmocka_unit_test(test_cancel),
	    cmocka_unit_test(test_no_wait_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
