/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For what sandboxes are booted ahead, with a clock of our own.
 *
 * LINK: runner/demand.o
 */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "runner/demand.h"

#define MB (1ull << 20)
#define SECOND_US 1000000u

static char *none[] = {NULL};
static char *modules[] = {(char *)(uintptr_t) "numpy", NULL};
static char names[4][8] = {"a", "b", "c", "off"};

static struct runtime runtimes[4];
static struct registry registry = {.runtimes = runtimes, .count = 4};

static int setup(void **state)
{
	struct demand *d = calloc(1, sizeof *d);
	struct err e;

	assert_non_null(d);
	for (size_t i = 0; i < 4; i++)
		runtimes[i] = (struct runtime){.name = names[i],
		    .version = names[i],
		    .preload = none,
		    .available = true,
		    .warm = WARM_BOOT};
	runtimes[0].warm = WARM_INTERPRETER;
	runtimes[0].preload = modules;
	runtimes[3].warm = WARM_NONE;
	*d = (struct demand){.seats = 4, .seats_of_one = 3, .bytes = 400 * MB};
	assert_int_equal(demand_init(d, &registry, true, &e), 0);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	demand_done(*state);
	free(*state);
	return 0;
}

static struct demand_entry *kind(
    const struct demand *d, size_t runtime, bool preload)
{
	const struct demand_kind k = {
	    .runtime = &runtimes[runtime], .preload = preload, .network = true};

	return demand_find(d, &k);
}

/* Does what demand_next() says until it says nothing; the number of steps. */
static unsigned settle(struct demand *d, uint64_t now_us)
{
	unsigned steps = 0;

	for (; steps < 100; steps++) {
		struct demand_entry *e;

		switch (demand_next(d, now_us, &e)) {
		case DEMAND_NOTHING:
			return steps;
		case DEMAND_BOOT:
			e->have++;
			break;
		case DEMAND_DROP:
			assert_true(e->have > 0);
			e->have--;
			break;
		}
	}
	fail_msg("it never settles");
	return steps;
}

static void test_one_of_each_when_nobody_asks(void **state)
{
	struct demand *d = *state;

	assert_int_equal(settle(d, 0), 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(kind(d, i, false)->have, 1);
	assert_int_equal(kind(d, 0, true)->have, 0);
	assert_null(kind(d, 3, false)); /* its registry file says so */
	assert_null(kind(d, 1, true)); /* nothing to preload */
}

/* Each way to the network is another kind, and nobody waits for names unasked. */
static void test_networks(void **state)
{
	struct demand *d = *state;
	struct demand_kind k = {
	    .runtime = &runtimes[1], .network = true, .by_name = true};
	struct demand_entry *by_name = demand_find(d, &k);

	assert_non_null(by_name);
	assert_ptr_not_equal(by_name, kind(d, 1, false));
	k.by_name = false;
	assert_ptr_equal(demand_find(d, &k), kind(d, 1, false));
	(void)settle(d, 0);
	assert_int_equal(by_name->have, 0);
	demand_note(by_name, 0);
	(void)settle(d, 0);
	assert_true(by_name->have > 0);
	k = (struct demand_kind){.runtime = &runtimes[1], .by_name = true};
	assert_null(demand_find(d, &k));
}

static void test_seats_follow_requests(void **state)
{
	struct demand *d = *state;

	(void)settle(d, 0);
	for (int i = 0; i < 10; i++)
		demand_note(kind(d, 1, false), 0);
	(void)settle(d, 0);
	assert_int_equal(kind(d, 1, false)->have, 3); /* no more of one kind */
	assert_int_equal(kind(d, 0, false)->have + kind(d, 2, false)->have, 1);
	/* Another takes over when the first is forgotten. */
	for (int i = 0; i < 10; i++)
		demand_note(kind(d, 2, false), 600u * SECOND_US);
	(void)settle(d, 600u * SECOND_US);
	assert_int_equal(kind(d, 2, false)->have, 3);
	assert_int_equal(kind(d, 1, false)->have, 1);
}

static void test_equal_kinds_do_not_fight(void **state)
{
	struct demand *d = *state;

	for (int i = 0; i < 7; i++) {
		demand_note(kind(d, 1, false), 0);
		demand_note(kind(d, 2, false), 0);
	}
	(void)settle(d, 0);
	assert_int_equal(kind(d, 1, false)->have, 2);
	assert_int_equal(kind(d, 2, false)->have, 2);
	demand_note(kind(d, 1, false), 0);
	assert_int_equal(settle(d, 0), 0);
}

static void test_half_is_forgotten(void **state)
{
	struct demand *d = *state;
	struct demand_entry *e = kind(d, 1, false);

	for (int i = 0; i < 8; i++)
		demand_note(e, 0);
	assert_int_equal(e->score, 8 * DEMAND_UNIT);
	demand_note(e, DEMAND_HALF_LIFE_US);
	assert_int_equal(e->score, 5 * DEMAND_UNIT);
	demand_note(e, DEMAND_HALF_LIFE_US + DEMAND_HALF_LIFE_US / 2);
	assert_int_equal(e->score, 475 * DEMAND_UNIT / 100);
	demand_note(e, UINT64_MAX);
	assert_int_equal(e->score, DEMAND_UNIT);
}

static void test_memory_is_bounded(void **state)
{
	struct demand *d = *state;

	d->bytes = 200 * MB;
	for (size_t i = 0; i < 3; i++)
		kind(d, i, false)->bytes = 70 * MB;
	(void)settle(d, 0);
	assert_int_equal(demand_bytes(d), 140 * MB);
	/* One that takes all is worth it when it was asked for. */
	kind(d, 0, true)->bytes = 190 * MB;
	for (int i = 0; i < 5; i++)
		demand_note(kind(d, 0, true), 0);
	(void)settle(d, 0);
	assert_int_equal(kind(d, 0, true)->have, 1);
	assert_int_equal(demand_bytes(d), 190 * MB);
	/* One that never fits is not waited for. */
	kind(d, 0, true)->bytes = 201 * MB;
	kind(d, 0, true)->have = 0;
	(void)settle(d, 0);
	assert_int_equal(kind(d, 0, true)->have, 0);
	assert_int_equal(demand_bytes(d), 140 * MB);
}

/* Room is not made in vain: what is given up must be enough. */
static void test_nothing_is_given_up_for_nothing(void **state)
{
	struct demand *d = *state;

	d->bytes = 200 * MB;
	kind(d, 0, true)->bytes = 150 * MB;
	kind(d, 1, false)->bytes = 40 * MB;
	kind(d, 2, false)->bytes = 100 * MB;
	demand_note(kind(d, 0, true), 0);
	demand_note(kind(d, 2, false), 0);
	kind(d, 1, false)->have = 1;
	kind(d, 2, false)->have = 1;
	/* The cheap one could go, but the other is worth as much. */
	assert_int_equal(settle(d, 0), 1);
	assert_int_equal(kind(d, 1, false)->have, 1);
	assert_int_equal(kind(d, 0, false)->have, 1);
}

static void test_least_is_given_up_first(void **state)
{
	struct demand *d = *state;

	assert_null(demand_least(d, 0));
	(void)settle(d, 0);
	demand_note(kind(d, 0, false), 0);
	demand_note(kind(d, 2, false), 0);
	assert_ptr_equal(demand_least(d, 0), kind(d, 1, false));
	kind(d, 1, false)->have = 0;
	kind(d, 2, false)->have = 3;
	assert_ptr_equal(demand_least(d, 0), kind(d, 2, false));
}

static void test_scores_outlive_a_reload(void **state)
{
	struct demand *d = *state;
	struct runtime others[2] = {runtimes[2], runtimes[1]};
	const struct registry fresh = {.runtimes = others, .count = 2};
	struct demand next = {.seats = 4, .seats_of_one = 3, .bytes = 400 * MB};
	const struct demand_kind k = {.runtime = &others[1], .network = true};
	struct err e;

	demand_note(kind(d, 1, false), 5);
	kind(d, 1, false)->have = 2;
	assert_int_equal(demand_init(&next, &fresh, true, &e), 0);
	demand_inherit(&next, d);
	assert_int_equal(demand_find(&next, &k)->score, DEMAND_UNIT);
	assert_int_equal(demand_find(&next, &k)->at_us, 5);
	assert_int_equal(demand_find(&next, &k)->have, 0);
	demand_done(&next);
}

/* ---- sessions ------------------------------------------------------------ */

static struct workspace *session_at(size_t i)
{
	static char somewhere[8];

	return (struct workspace *)(void *)&somewhere[i];
}

/* A step of the i-th session, which has ended. */
static struct demand_entry *stepped(
    struct demand *d, size_t i, bool preload, uint64_t now_us)
{
	const struct demand_kind k = {.runtime = &runtimes[preload ? 0 : 1],
	    .preload = preload,
	    .network = true,
	    .session = session_at(i)};
	struct demand_entry *e = demand_session(d, session_at(i));

	if (e == NULL)
		e = demand_session_add(d, &k);
	if (e != NULL)
		demand_note(e, now_us);
	return e;
}

static void test_session_is_a_kind_of_its_own(void **state)
{
	struct demand *d = *state;
	struct demand_entry *e;

	assert_null(demand_session(d, session_at(0)));
	assert_null(demand_session(d, NULL));
	e = stepped(d, 0, false, 0);
	assert_ptr_equal(demand_session(d, session_at(0)), e);
	assert_ptr_not_equal(kind(d, 1, false), e);
	e->busy = true; /* its step still runs */
	(void)settle(d, 0);
	assert_int_equal(e->have, 0);
	e->busy = false;
	(void)settle(d, 0);
	assert_int_equal(e->have, 1);
	for (int i = 0; i < 9; i++)
		demand_note(e, 0);
	(void)settle(d, 0);
	assert_int_equal(e->have, 1); /* it has one next step */
	e->have = 0;
	demand_session_remove(e);
	assert_null(demand_session(d, session_at(0)));
	(void)settle(d, 0);
	assert_int_equal(e->have, 0);
}

static void test_sessions_have_half(void **state)
{
	struct demand *d = *state;
	unsigned have = 0;

	for (size_t i = 0; i < 4; i++)
		for (int n = 0; n < 9; n++)
			(void)stepped(d, i, false, 0);
	(void)settle(d, 0);
	for (size_t i = 0; i < 4; i++)
		have += demand_session(d, session_at(i))->have;
	assert_int_equal(have, 2);
	/* The other half stays for who is in no session. */
	demand_note(kind(d, 2, false), 0);
	(void)settle(d, 0);
	assert_true(kind(d, 2, false)->have >= 1);
}

static void test_sessions_have_half_of_the_bytes(void **state)
{
	struct demand *d = *state;

	d->bytes = 400 * MB;
	kind(d, 0, true)->bytes = 150 * MB;
	assert_int_equal(stepped(d, 0, true, 0)->bytes, 150 * MB);
	(void)stepped(d, 1, true, 0);
	(void)settle(d, 0);
	assert_int_equal(demand_session(d, session_at(0))->have +
			     demand_session(d, session_at(1))->have,
	    1);
	/* Without the modules it takes less. */
	demand_session_preload(d, demand_session(d, session_at(1)), false);
	assert_int_equal(
	    demand_session(d, session_at(1))->bytes, kind(d, 0, false)->bytes);
	(void)settle(d, 0);
	assert_int_equal(demand_session(d, session_at(0))->have +
			     demand_session(d, session_at(1))->have,
	    2);
}

static void test_steps_that_come_too_seldom(void **state)
{
	struct demand *d = *state;
	uint64_t now_us = 1000ull * SECOND_US;
	struct demand_entry *e = stepped(d, 0, false, now_us);

	e->in_vain = true; /* it waited, and nobody came */
	now_us += DEMAND_SESSION_IDLE_US;
	(void)stepped(d, 0, false, now_us);
	(void)settle(d, now_us);
	assert_int_equal(e->have, 0);
	now_us += DEMAND_SESSION_IDLE_US - 1;
	(void)stepped(d, 0, false, now_us);
	(void)settle(d, now_us);
	assert_int_equal(e->have, 1);
}

static void test_sessions_replace_each_other(void **state)
{
	struct demand *d = *state;

	for (size_t i = 0; i < 4; i++)
		stepped(d, i, false, i + 1)->have = i == 0 ? 1 : 0;
	/* Not the first, for which one waits. */
	assert_non_null(stepped(d, 4, false, 9));
	assert_non_null(demand_session(d, session_at(0)));
	assert_null(demand_session(d, session_at(1)));
	for (size_t i = 0; i < 5; i++)
		if (i != 1)
			demand_session(d, session_at(i))->busy = true;
	assert_null(stepped(d, 5, false, 9));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_one_of_each_when_nobody_asks),
	    TEST(test_networks),
	    TEST(test_seats_follow_requests),
	    TEST(test_equal_kinds_do_not_fight),
	    TEST(test_half_is_forgotten),
	    TEST(test_memory_is_bounded),
	    TEST(test_nothing_is_given_up_for_nothing),
	    TEST(test_least_is_given_up_first),
	    TEST(test_scores_outlive_a_reload),
	    TEST(test_session_is_a_kind_of_its_own),
	    TEST(test_sessions_have_half),
	    TEST(test_sessions_have_half_of_the_bytes),
	    TEST(test_steps_that_come_too_seldom),
	    TEST(test_sessions_replace_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
