/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINK: runner/turn.o
 */
#include "tests/unit/unit.h"

#include <string.h>

#include "runner/turn.h"

static struct turns queue;
static struct turn_thing a, b, v;
static struct turn t[5];

static int setup(void **state)
{
	(void)state;
	turns_init(&queue);
	a = b = v = (struct turn_thing){0};
	memset(t, 0, sizeof t);
	return 0;
}

static void ask(struct turn *x, struct turn_thing *one, struct turn_thing *two)
{
	x->things[0] = one;
	x->things[1] = two;
	x->deadline_us = 100;
	turn_request(&queue, x, false);
}

static void first_come_first_served(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		ask(&t[i], &a, NULL);
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(turn_next(&queue), &t[i]);
		assert_null(turn_next(&queue));
		assert_true(a.held && t[i].held && !t[i].queued);
		turn_end(&queue, &t[i]);
		assert_false(a.held);
	}
	assert_null(turn_next(&queue));
}

static void others_do_not_wait(void **state)
{
	(void)state;
	ask(&t[0], &a, NULL);
	ask(&t[1], &a, NULL);
	ask(&t[2], &b, NULL);
	assert_ptr_equal(turn_next(&queue), &t[0]);
	assert_ptr_equal(turn_next(&queue), &t[2]);
	assert_null(turn_next(&queue));
}

/* Who waits for two is not passed by who wants one of them, and holds none. */
static void two_things(void **state)
{
	(void)state;
	ask(&t[0], &a, &v);
	assert_ptr_equal(turn_next(&queue), &t[0]);
	ask(&t[1], &b, &v);
	ask(&t[2], &b, NULL);
	assert_null(turn_next(&queue));
	assert_false(b.held);
	turn_end(&queue, &t[0]);
	assert_ptr_equal(turn_next(&queue), &t[1]);
	assert_null(turn_next(&queue));
	turn_end(&queue, &t[1]);
	assert_ptr_equal(turn_next(&queue), &t[2]);
	assert_false(b.wanted || v.wanted);
}

static void in_front(void **state)
{
	(void)state;
	ask(&t[0], &a, NULL);
	assert_ptr_equal(turn_next(&queue), &t[0]);
	ask(&t[1], &a, NULL);
	t[2].things[0] = &a;
	turn_request(&queue, &t[2], true);
	turn_end(&queue, &t[0]);
	assert_ptr_equal(turn_next(&queue), &t[2]);
}

static void who_leaves_is_not_served(void **state)
{
	(void)state;
	ask(&t[0], &a, NULL);
	ask(&t[1], &a, NULL);
	ask(&t[2], &a, NULL);
	assert_ptr_equal(turn_next(&queue), &t[0]);
	turn_end(&queue, &t[1]);
	turn_end(&queue, &t[1]);
	turn_end(&queue, &t[0]);
	assert_ptr_equal(turn_next(&queue), &t[2]);
}

static void who_is_late_is_told(void **state)
{
	(void)state;
	assert_true(turn_deadline_us(&queue) == UINT64_MAX);
	ask(&t[0], &a, NULL);
	assert_ptr_equal(turn_next(&queue), &t[0]);
	ask(&t[1], &a, NULL);
	ask(&t[2], &a, NULL);
	t[2].deadline_us = 50;
	assert_true(turn_deadline_us(&queue) == 50);
	assert_null(turn_expired(&queue, 49));
	assert_ptr_equal(turn_expired(&queue, 50), &t[2]);
	assert_false(t[2].queued);
	assert_null(turn_expired(&queue, 99));
	assert_ptr_equal(turn_expired(&queue, 100), &t[1]);
}

static void a_turn_is_passed_on(void **state)
{
	(void)state;
	ask(&t[0], &a, &v);
	assert_ptr_equal(turn_next(&queue), &t[0]);
	turn_pass(&t[0], &t[1]);
	assert_null(t[0].things[0]);
	turn_end(&queue, &t[0]);
	assert_true(a.held && v.held);
	turn_end(&queue, &t[1]);
	assert_false(a.held || v.held);
}

static void at_once_or_not_at_all(void **state)
{
	struct turn_thing thing = {0};
	struct turn first = {.things = {&thing}};
	struct turn second = {.things = {&thing}};
	struct turns q;

	(void)state;
	turns_init(&q);
	assert_true(turn_take(&first));
	assert_true(first.held && thing.held);
	assert_false(turn_take(&second));
	assert_false(second.held);
	turn_end(&q, &first);
	assert_true(turn_take(&second));
	turn_end(&q, &second);
	assert_false(thing.held);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(at_once_or_not_at_all),
	    cmocka_unit_test_setup(first_come_first_served, setup),
	    cmocka_unit_test_setup(others_do_not_wait, setup),
	    cmocka_unit_test_setup(two_things, setup),
	    cmocka_unit_test_setup(in_front, setup),
	    cmocka_unit_test_setup(who_leaves_is_not_served, setup),
	    cmocka_unit_test_setup(who_is_late_is_told, setup),
	    cmocka_unit_test_setup(a_turn_is_passed_on, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
