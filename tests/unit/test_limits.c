/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/limits.h"

#include "tests/unit/unit.h"

static void below_goes_to_the_minimum(void **state)
{
	struct limits l = {0};

	(void)state;
	limits_clamp(&l);
	assert_int_equal(l.memory_bytes, 8388608);
	assert_int_equal(l.cpus_milli, 100);
	assert_int_equal(l.pids, 1);
	assert_int_equal(l.output_bytes, 1024);
	assert_int_equal(l.wall_time_ms, 100);
}

static void above_goes_to_the_maximum(void **state)
{
	struct limits l = {
	    UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};

	(void)state;
	limits_clamp(&l);
	assert_int_equal(l.memory_bytes, 536870912);
	assert_int_equal(l.cpus_milli, 2000);
	assert_int_equal(l.pids, 256);
	assert_int_equal(l.output_bytes, 262144);
	assert_int_equal(l.wall_time_ms, 20000);
}

static void between_stays(void **state)
{
	struct limits l = {8388609, 101, 2, 1025, 101};

	(void)state;
	limits_clamp(&l);
	assert_int_equal(l.memory_bytes, 8388609);
	assert_int_equal(l.cpus_milli, 101);
	assert_int_equal(l.pids, 2);
	assert_int_equal(l.output_bytes, 1025);
	assert_int_equal(l.wall_time_ms, 101);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(below_goes_to_the_minimum),
	    cmocka_unit_test(above_goes_to_the_maximum),
	    cmocka_unit_test(between_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
