/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINK: -Wl,--wrap=clock_gettime
 */
#include "lib/store.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "lib/buf.h"
#include "tests/unit/scratch.h"

/* The memory of tenants, with a clock that can be moved. */

#define ALICE "a11ce"
#define BOB "public"

static struct scratch tmp;
static struct store *store;
static struct err e;
static time_t later_s;
static const struct store_limits limits = {100, 4};

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = __real_clock_gettime(id, ret);

	if (id == CLOCK_REALTIME)
		ret->tv_sec += later_s;
	return r;
}

static int set_up(void **state)
{
	(void)state;
	later_s = 0;
	assert_int_equal(token_init(&e), 0);
	scratch_make(&tmp);
	assert_int_equal(store_new(tmp.dir, &store, &e), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	store_free(store);
	scratch_remove(&tmp);
	return 0;
}

static void good(int r)
{
	if (r < 0)
		fail_msg("%s: %s", err_kind_word(e.kind), e.msg);
}

#define refused(r, k)                          \
	do {                                   \
		assert_true((r) < 0);          \
		assert_int_equal(e.kind, (k)); \
	} while (0)

static struct store_key at(const char *tenant, const char *key)
{
	return (struct store_key){.tenant = tenant,
	    .space = "s",
	    .key = (const uint8_t *)key,
	    .key_len = strlen(key)};
}

static int put_until(
    const char *tenant, const char *key, const char *value, int64_t expires_ms)
{
	const struct store_key k = at(tenant, key);
	struct store_meta m = {
	    .size = strlen(value), .expires_ms = expires_ms, .type = "t/x"};

	return store_memory_put(store, &k, value, &m, &limits, NULL, NULL, &e);
}

static int put(const char *tenant, const char *key, const char *value)
{
	return put_until(tenant, key, value, 0);
}

static bool always(void *arg, const struct store_meta *m)
{
	(void)arg;
	(void)m;
	return true;
}

/* The value as a string, NULL when there is none; good until the next call. */
static const char *get(const char *tenant, const char *key)
{
	static char text[256];
	const struct store_key k = at(tenant, key);
	struct store_meta m;
	uint8_t *value;

	if (store_memory_get(store, &k, &m, always, NULL, &value, &e) < 0) {
		assert_int_equal(e.kind, ERR_NOT_FOUND);
		assert_null(value);
		return NULL;
	}
	assert_in_range(m.size, 0, sizeof(text) - 1);
	memcpy(text, value, m.size);
	text[m.size] = '\0';
	free(value);
	return text;
}

static int drop(const char *tenant, const char *key)
{
	const struct store_key k = at(tenant, key);

	return store_memory_delete(store, &k, NULL, NULL, &e);
}

static void usage_is(uint64_t keys, uint64_t bytes)
{
	uint64_t k, b;

	good(store_memory_usage(store, &k, &b, &e));
	assert_int_equal(k, keys);
	assert_int_equal(b, bytes);
}

static void value_comes_back(void **state)
{
	const struct store_key k = at(ALICE, "k");
	struct store_meta m = {.size = 3, .type = "a/b"};
	struct store_meta r;
	uint8_t *value = NULL;

	(void)state;
	good(store_memory_put(
	    store, &k, "\0\xff\n", &m, &limits, NULL, NULL, &e));
	good(store_memory_get(store, &k, &r, always, NULL, &value, &e));
	assert_memory_equal(value, "\0\xff\n", 3);
	free(value);
	assert_int_equal(r.size, 3);
	assert_string_equal(r.etag, m.etag);
	assert_int_equal(strlen(r.etag), TOKEN_ID_LEN);
	assert_string_equal(r.type, "a/b");
	assert_int_equal(r.modified_ms, m.modified_ms);
	assert_int_equal(r.expires_ms, 0);
	/* Only what is wanted. */
	good(store_memory_get(store, &k, &r, NULL, NULL, &value, &e));
	assert_null(value);
	good(drop(ALICE, "k"));
	assert_null(get(ALICE, "k"));
	good(drop(ALICE, "k"));
}

static void tenants_and_spaces_are_apart(void **state)
{
	struct store_key k = at(ALICE, "k");
	struct store_meta m = {.size = 1};

	(void)state;
	good(put(ALICE, "k", "a"));
	good(put(BOB, "k", "b"));
	k.space = "S";
	good(store_memory_put(store, &k, "c", &m, &limits, NULL, NULL, &e));
	assert_string_equal(get(ALICE, "k"), "a");
	assert_string_equal(get(BOB, "k"), "b");
	good(drop(BOB, "k"));
	assert_string_equal(get(ALICE, "k"), "a");
	assert_null(get("a11c", "k"));
	usage_is(2, 2);
}

static void keys_are_bytes(void **state)
{
	const struct store_key zero = {ALICE, "s", (const uint8_t *)"a\0b", 3};
	const struct store_key longer = {
	    ALICE, "s", (const uint8_t *)"a\0b", 2};
	struct store_meta m = {.size = 0};

	(void)state;
	good(store_memory_put(store, &zero, NULL, &m, &limits, NULL, NULL, &e));
	assert_null(get(ALICE, "a"));
	refused(store_memory_get(store, &longer, &m, NULL, NULL, NULL, &e),
	    ERR_NOT_FOUND);
	good(store_memory_get(store, &zero, &m, NULL, NULL, NULL, &e));
}

static void quota_is_exact(void **state)
{
	char full[101];

	(void)state;
	memset(full, 'x', 100);
	full[100] = '\0';
	good(put(ALICE, "1", full));
	refused(put(ALICE, "2", "y"), ERR_QUOTA_EXCEEDED);
	assert_contains(e.msg, "100 are in use");
	good(put(ALICE, "2", ""));
	good(put(BOB, "1", full));
	good(put(ALICE, "1", full + 10));
	good(put(ALICE, "2", full + 90));
	refused(put(ALICE, "2", full + 89), ERR_QUOTA_EXCEEDED);
	good(put(ALICE, "3", ""));
	good(put(ALICE, "4", ""));
	refused(put(ALICE, "5", ""), ERR_QUOTA_EXCEEDED);
	assert_contains(e.msg, "4 keys");
	good(put(ALICE, "4", ""));
	usage_is(5, 200);
	good(drop(ALICE, "4"));
	good(put(ALICE, "5", ""));
	good(drop(ALICE, "1"));
	usage_is(4, 110);
}

static void what_expired_is_not_there(void **state)
{
	const int64_t soon = store_now_ms() + 10000;
	char full[101];
	uint8_t key[4];
	const struct store_range all = {
	    .tenant = ALICE, .space = "s", .after = key, .limit = 9};

	(void)state;
	memset(full, 'x', 100);
	full[100] = '\0';
	good(put_until(ALICE, "1", full, soon));
	good(put_until(BOB, "1", "b", soon));
	assert_string_equal(get(ALICE, "1"), full);
	later_s = 9;
	assert_non_null(get(ALICE, "1"));
	assert_int_equal(store_memory_sweep(store, 10, &e), 0);
	later_s = 11;
	assert_null(get(ALICE, "1"));
	assert_int_equal(store_memory_list(store, &all, NULL, NULL, &e), 0);
	/* It takes room only as long as nobody needs it. */
	usage_is(2, 101);
	good(put(ALICE, "2", "y"));
	usage_is(2, 2);
	good(put(BOB, "1", "new"));
	assert_string_equal(get(BOB, "1"), "new");
	usage_is(2, 4);
}

static void sweep_takes_what_expired(void **state)
{
	const int64_t soon = store_now_ms() + 1000;

	(void)state;
	good(put(ALICE, "1", "a"));
	good(put_until(ALICE, "2", "bb", soon));
	good(put_until(BOB, "3", "ccc", soon));
	good(put_until(BOB, "4", "d", soon + 60000));
	later_s = 2;
	assert_int_equal(store_memory_sweep(store, 1, &e), 1);
	assert_int_equal(store_memory_sweep(store, 10, &e), 1);
	assert_int_equal(store_memory_sweep(store, 10, &e), 0);
	usage_is(2, 2);
	assert_string_equal(get(BOB, "4"), "d");
}

struct seen {
	int calls;
	char etag[TOKEN_ID_LEN + 1];
	bool refuse;
};

static int look(void *arg, const struct store_meta *now, struct err *x)
{
	struct seen *s = arg;

	s->calls++;
	(void)snprintf(
	    s->etag, sizeof(s->etag), "%s", now != NULL ? now->etag : "none");
	if (s->refuse)
		return err_set(x, ERR_PRECONDITION_FAILED, EAGAIN, "no");
	return 0;
}

static void check_is_asked_and_obeyed(void **state)
{
	const struct store_key k = at(ALICE, "k");
	struct store_meta m = {.size = 1};
	struct seen s = {0};
	char etag[TOKEN_ID_LEN + 1];

	(void)state;
	good(store_memory_put(store, &k, "1", &m, &limits, look, &s, &e));
	assert_string_equal(s.etag, "none");
	memcpy(etag, m.etag, sizeof(etag));
	s.refuse = true;
	refused(store_memory_put(store, &k, "2", &m, &limits, look, &s, &e),
	    ERR_PRECONDITION_FAILED);
	assert_string_equal(s.etag, etag);
	refused(store_memory_delete(store, &k, look, &s, &e),
	    ERR_PRECONDITION_FAILED);
	assert_string_equal(get(ALICE, "k"), "1");
	s.refuse = false;
	good(store_memory_delete(store, &k, look, &s, &e));
	assert_null(get(ALICE, "k"));
	assert_int_equal(s.calls, 4);
}

static void etag_is_of_type_and_bytes(void **state)
{
	static const struct {
		const char *type;
		const char *value;
	} cases[] = {
	    {"", "a"}, {"", "b"}, {"a", ""}, {"", ""}, {"a", "b"}, {"ab", ""}};
	char tags[ARRAY_LEN(cases)][TOKEN_ID_LEN + 1];
	const struct store_key k = at(ALICE, "k");

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct store_meta m = {.size = strlen(cases[i].value)};

		(void)snprintf(m.type, sizeof(m.type), "%s", cases[i].type);
		good(store_memory_put(
		    store, &k, cases[i].value, &m, &limits, NULL, NULL, &e));
		memcpy(tags[i], m.etag, sizeof(m.etag));
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(tags[i], tags[j]);
	}
}

static int collect(void *arg, const uint8_t *key, size_t len, struct err *x)
{
	struct buf *b = arg;

	(void)x;
	buf_put(b, key, len);
	buf_putc(b, '|');
	return 0;
}

static int stop(void *arg, const uint8_t *key, size_t len, struct err *x)
{
	(void)arg;
	(void)key;
	(void)len;
	return err_set(x, ERR_CLIENT_GONE, EPIPE, "gone");
}

static void listed(
    const char *prefix, const char *after, unsigned limit, const char *want)
{
	const struct store_range range = {
	    .tenant = ALICE,
	    .space = "s",
	    .prefix = (const uint8_t *)prefix,
	    .prefix_len = strlen(prefix),
	    .after = (const uint8_t *)after,
	    .after_len = strlen(after),
	    .limit = limit,
	};
	cleanup_buf struct buf b = {0};

	good(store_memory_list(store, &range, collect, &b, &e));
	buf_putc(&b, '\0');
	assert_string_equal((const char *)b.data, want);
}

static void list_is_in_the_order_of_bytes(void **state)
{
	const struct store_range all = {
	    .tenant = ALICE, .space = "s", .limit = 9};

	(void)state;
	good(put(ALICE, "b", ""));
	good(put(ALICE, "\xff\xff", ""));
	good(put(ALICE, "B", ""));
	good(put(ALICE, "\xc3\xa9", ""));
	good(put(BOB, "c", ""));
	listed("", "", 9, "B|b|\xc3\xa9|\xff\xff|");
	listed("", "", 2, "B|b|");
	listed("", "b", 2, "\xc3\xa9|\xff\xff|");
	listed("", "\xff\xff", 2, "");
	listed("\xff", "", 9, "\xff\xff|");
	listed("\xff\xff", "", 9, "\xff\xff|");
	listed("\xff\xff\xff", "", 9, "");
	refused(
	    store_memory_list(store, &all, stop, NULL, &e), ERR_CLIENT_GONE);
}

static void list_by_prefix_and_cursor(void **state)
{
	(void)state;
	good(put(ALICE, "a", ""));
	good(put(ALICE, "a/", ""));
	good(put(ALICE, "a/1", ""));
	good(put(ALICE, "a0", ""));
	listed("a", "", 9, "a|a/|a/1|a0|");
	listed("a/", "", 9, "a/|a/1|");
	/* Before, at, between, behind. */
	listed("a/", "A", 9, "a/|a/1|");
	listed("a/", "a/", 9, "a/1|");
	listed("a/", "a/0", 9, "a/1|");
	listed("a/", "a/1", 9, "");
	listed("a/", "b", 9, "");
	listed("a", "a", 1, "a/|");
}

static void too_long_a_range_is_refused(void **state)
{
	static const uint8_t bytes[LIMIT_KEY + 1];
	struct store_range range = {.tenant = ALICE,
	    .space = "s",
	    .prefix = bytes,
	    .prefix_len = LIMIT_KEY,
	    .after = bytes,
	    .after_len = LIMIT_KEY,
	    .limit = 1};

	(void)state;
	good(store_memory_list(store, &range, stop, NULL, &e));
	range.prefix_len++;
	refused(store_memory_list(store, &range, stop, NULL, &e),
	    ERR_INVALID_REQUEST);
	range.prefix_len--;
	range.after_len++;
	refused(store_memory_list(store, &range, stop, NULL, &e),
	    ERR_INVALID_REQUEST);
}

#define THREADS 24 /* more than there are connections */
#define ROUNDS 20

static void *busy_thread(void *arg)
{
	const char *key = arg;

	for (int i = 0; i < ROUNDS; i++) {
		const struct store_key k = at(key, "n");
		struct store_meta m = {.size = 1};
		struct store_meta r;
		uint8_t *value = NULL;
		struct err mine;

		if (store_memory_put(
			store, &k, "x", &m, &limits, NULL, NULL, &mine) < 0 ||
		    store_memory_get(
			store, &k, &r, always, NULL, &value, &mine) < 0)
			return arg;
		free(value);
	}
	return NULL;
}

static void many_threads(void **state)
{
	static char names[THREADS][8];
	pthread_t threads[THREADS];

	(void)state;
	for (size_t i = 0; i < THREADS; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "t%zu", i);
		assert_int_equal(
		    pthread_create(&threads[i], NULL, busy_thread, names[i]),
		    0);
	}
	for (size_t i = 0; i < THREADS; i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	usage_is(THREADS, THREADS);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(value_comes_back),
	    TEST(tenants_and_spaces_are_apart),
	    TEST(keys_are_bytes),
	    TEST(quota_is_exact),
	    TEST(what_expired_is_not_there),
	    TEST(sweep_takes_what_expired),
	    TEST(check_is_asked_and_obeyed),
	    TEST(etag_is_of_type_and_bytes),
	    TEST(list_is_in_the_order_of_bytes),
	    TEST(list_by_prefix_and_cursor),
	    TEST(too_long_a_range_is_refused),
	    TEST(many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
