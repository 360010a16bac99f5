/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINK: runner/share.o
 */
#include "runner/share.h"

#include "tests/unit/unit.h"

#define N 16

static struct shares q;
static struct share all[N];
static unsigned used;

static int begin(void **state)
{
	(void)state;
	TAILQ_INIT(&q);
	used = 0;
	return 0;
}

static struct share *add(struct share x)
{
	struct share *p = &all[used++];

	*p = x;
	TAILQ_INSERT_TAIL(&q, p, link);
	return p;
}

static struct share *idle(uint64_t tenant, uint64_t used_us)
{
	return add((struct share){.tenant = tenant,
	    .holds = true,
	    .may_go = true,
	    .used_us = used_us});
}

static struct share *busy(uint64_t tenant)
{
	return add((struct share){.tenant = tenant, .holds = true});
}

static struct share *wants(uint64_t tenant, uint64_t wanted_us)
{
	return add((struct share){
	    .tenant = tenant, .wants = true, .wanted_us = wanted_us});
}

static void who_has_fewest_comes_first(void **state)
{
	struct share *late, *early, *poor;

	(void)state;
	(void)busy(1);
	late = wants(1, 20);
	early = wants(1, 10);
	poor = wants(2, 30);
	assert_ptr_equal(share_next(&q), poor);
	poor->promised = true;
	assert_ptr_equal(share_next(&q), early);
	assert_ptr_equal(share_next(&q), late);
	assert_null(share_next(&q));
}

static void a_promise_counts(void **state)
{
	struct share *first, *second, *other;

	(void)state;
	first = wants(2, 1);
	second = wants(2, 2);
	other = wants(3, 3);
	assert_ptr_equal(share_next(&q), first);
	first->promised = true;
	assert_int_equal(share_count(&q, 2), 1);
	assert_ptr_equal(share_next(&q), other);
	assert_ptr_equal(share_next(&q), second);
}

static void the_longest_idle_of_who_has_most(void **state)
{
	struct share *x;

	(void)state;
	(void)idle(1, 5); /* alone, and idle for longest */
	(void)idle(2, 40);
	x = idle(2, 30);
	(void)busy(2);
	assert_ptr_equal(share_victim(&q, NULL), x);
	assert_ptr_equal(share_victim(&q, wants(3, 0)), x);
}

static void one_tenant_pushes_out_its_own(void **state)
{
	struct share *x, *y;

	(void)state;
	(void)idle(1, 40);
	x = idle(1, 30);
	y = wants(1, 0);
	assert_ptr_equal(share_victim(&q, y), x);
}

static void nobody_goes_for_who_has_as_much(void **state)
{
	struct share *own, *y;

	(void)state;
	(void)idle(1, 1);
	(void)idle(1, 2);
	(void)busy(2);
	(void)busy(2);
	y = wants(2, 0);
	assert_null(share_victim(&q, y));
	own = idle(2, 50);
	assert_ptr_equal(share_victim(&q, y), own);
	own->may_go = false;
	/* Two against three. */
	assert_null(share_victim(&q, y));
	assert_non_null(share_victim(&q, wants(3, 0)));
}

static void each_comes_to_its_share(void **state)
{
	uint32_t turns = 0;
	struct share *x;

	(void)state;
	for (uint64_t i = 0; i < 6; i++)
		(void)idle(1, i);
	while ((x = share_victim(&q, wants(2, 0)))->tenant == 1) {
		x->tenant = 2;
		assert_in_range(++turns, 1, 3);
	}
	assert_int_equal(share_count(&q, 1), 3);
	assert_int_equal(share_count(&q, 2), 3);
}

static void a_kernel_is_lost_for_more_only(void **state)
{
	struct share *x, *y;

	(void)state;
	x = busy(1);
	y = wants(2, 0);
	assert_true(share_may_push(&q, y, x, 0));
	assert_false(share_may_push(&q, y, x, 1));
	(void)busy(1);
	assert_true(share_may_push(&q, y, x, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(who_has_fewest_comes_first, begin),
	    cmocka_unit_test_setup(a_promise_counts, begin),
	    cmocka_unit_test_setup(the_longest_idle_of_who_has_most, begin),
	    cmocka_unit_test_setup(one_tenant_pushes_out_its_own, begin),
	    cmocka_unit_test_setup(nobody_goes_for_who_has_as_much, begin),
	    cmocka_unit_test_setup(each_comes_to_its_share, begin),
	    cmocka_unit_test_setup(a_kernel_is_lost_for_more_only, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
