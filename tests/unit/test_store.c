/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LINK: -Wl,--wrap=clock_gettime -Wl,--wrap=usleep
 */
#include "lib/store.h"

#include <errno.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/scratch.h"

/* Sessions, volumes, and the file itself; on a host whose sleeps take as long as
 * a test likes. */

#define ALICE "a11ce"
#define BOB "public"

static const struct store_session_max max_2 = {2, 2};
static const struct store_session_max max_5 = {5, 5};

static struct scratch tmp;
static struct store *store;
static struct err e;
static unsigned sleep_ms; /* 0: as asked for */
static uint64_t ahead_ms; /* the clock, of the real one */

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_usleep(useconds_t us);
int __wrap_usleep(useconds_t us);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = __real_clock_gettime(id, ret);

	if (id == CLOCK_MONOTONIC) {
		ret->tv_sec += (time_t)(ahead_ms / 1000);
		ret->tv_nsec += (long)(ahead_ms % 1000) * 1000000;
		ret->tv_sec += ret->tv_nsec / 1000000000;
		ret->tv_nsec %= 1000000000;
	}
	return r;
}

int __wrap_usleep(useconds_t us)
{
	if (sleep_ms == 0)
		return __real_usleep(us);
	ahead_ms += sleep_ms;
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	sleep_ms = 0;
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

static struct store_session session(const char *tenant, const char *volume)
{
	struct store_session n = {.type = STORE_SESSION_KERNEL,
	    .runtime = "python",
	    .version = "3.14",
	    .network = true,
	    .ttl_sec = 60};

	token_new_id(n.id);
	token_random(n.token_hash, sizeof(n.token_hash));
	(void)snprintf(n.tenant, sizeof(n.tenant), "%s", tenant);
	(void)snprintf(n.volume, sizeof(n.volume), "%s", volume);
	n.created_ms = n.used_ms = store_now_ms();
	return n;
}

static struct store_volume volume(const char *tenant, const char *name)
{
	struct store_volume v = {.created_ms = store_now_ms()};

	token_new_id(v.id);
	(void)snprintf(v.tenant, sizeof(v.tenant), "%s", tenant);
	(void)snprintf(v.name, sizeof(v.name), "%s", name);
	return v;
}

/* A statement of another program, on a connection of its own. */
static void sql(const char *text)
{
	sqlite3 *db;
	char *msg = NULL;

	assert_int_equal(
	    sqlite3_open(scratch_path(&tmp, "isobox.db"), &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, &msg) != SQLITE_OK)
		fail_msg("%s", msg);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void a_file_of_our_own(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(lstat(scratch_path(&tmp, "isobox.db"), &st), -1);
	good(store_open(store, &e));
	good(store_open(store, &e));
	assert_int_equal(lstat(scratch_path(&tmp, "isobox.db"), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(lstat(scratch_path(&tmp, "isobox.db-wal"), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
}

static void session_comes_back_whole(void **state)
{
	struct store_session n = session(ALICE, "");
	struct store_session r;

	(void)state;
	good(store_session_create(store, &n, &max_5, &e));
	good(store_session_get(store, ALICE, n.id, &r, &e));
	n.expires_ms = n.used_ms + 60000;
	assert_memory_equal(&r.token_hash, &n.token_hash, TOKEN_HASH_LEN);
	assert_string_equal(r.id, n.id);
	assert_string_equal(r.tenant, ALICE);
	assert_string_equal(r.runtime, "python");
	assert_string_equal(r.version, "3.14");
	assert_string_equal(r.volume, "");
	assert_int_equal(r.type, STORE_SESSION_KERNEL);
	assert_true(r.network);
	assert_int_equal(r.ttl_sec, 60);
	assert_int_equal(r.created_ms, n.created_ms);
	assert_int_equal(r.used_ms, n.used_ms);
	assert_int_equal(r.expires_ms, n.expires_ms);
	/* Still there for the next life. */
	store_free(store);
	good(store_new(tmp.dir, &store, &e));
	good(store_session_get(store, ALICE, n.id, &r, &e));
}

static void session_is_its_tenants(void **state)
{
	struct store_session n = session(ALICE, "");
	uint64_t count;

	(void)state;
	good(store_session_create(store, &n, &max_5, &e));
	refused(
	    store_session_get(store, BOB, n.id, &n, &e), ERR_SESSION_NOT_FOUND);
	refused(store_session_get(store, ALICE, "x", &n, &e),
	    ERR_SESSION_NOT_FOUND);
	refused(store_session_end(store, BOB, n.id, &e), ERR_SESSION_NOT_FOUND);
	good(store_session_count(store, BOB, &count, &e));
	assert_int_equal(count, 0);
	good(store_session_count(store, ALICE, &count, &e));
	assert_int_equal(count, 1);
	good(store_session_count(store, NULL, &count, &e));
	assert_int_equal(count, 1);
}

static void sessions_are_counted(void **state)
{
	struct store_session n[3];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(n); i++)
		n[i] = session(i > 0 ? ALICE : BOB, "");
	good(store_session_create(store, &n[0], &max_2, &e));
	good(store_session_create(store, &n[1], &max_2, &e));
	refused(store_session_create(store, &n[2], &max_2, &e),
	    ERR_TOO_MANY_SESSIONS);
	/* Until it is gone altogether. */
	good(store_session_end(store, BOB, n[0].id, &e));
	refused(store_session_create(store, &n[2], &max_2, &e),
	    ERR_TOO_MANY_SESSIONS);
	good(store_session_delete(store, n[0].id, &e));
	good(store_session_create(store, &n[2], &max_2, &e));
}

static void no_tenant_has_them_all(void **state)
{
	const struct store_session_max max = {5, 2};
	struct store_session n[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(n); i++)
		n[i] = session(i < 3 ? ALICE : BOB, "");
	good(store_session_create(store, &n[0], &max, &e));
	good(store_session_create(store, &n[1], &max, &e));
	refused(store_session_create(store, &n[2], &max, &e),
	    ERR_TOO_MANY_SESSIONS);
	good(store_session_create(store, &n[3], &max, &e));
}

static void session_ends_in_steps(void **state)
{
	struct store_session n = session(ALICE, "");
	struct store_id ids[4];

	(void)state;
	good(store_session_create(store, &n, &max_5, &e));
	assert_int_equal(store_sessions_ending(store, ids, 4, &e), 0);
	assert_int_equal(store_session_known(store, n.id, &e), 1);
	good(store_session_end(store, ALICE, n.id, &e));
	refused(store_session_get(store, ALICE, n.id, &n, &e),
	    ERR_SESSION_NOT_FOUND);
	refused(store_session_touch(store, n.id, &e), ERR_SESSION_NOT_FOUND);
	refused(
	    store_session_end(store, ALICE, n.id, &e), ERR_SESSION_NOT_FOUND);
	assert_int_equal(store_session_known(store, n.id, &e), 1);
	assert_int_equal(store_sessions_ending(store, ids, 4, &e), 1);
	assert_string_equal(ids[0].id, n.id);
	good(store_session_delete(store, n.id, &e));
	good(store_session_delete(store, n.id, &e));
	assert_int_equal(store_sessions_ending(store, ids, 4, &e), 0);
	assert_int_equal(store_session_known(store, n.id, &e), 0);
}

static void idle_sessions_expire(void **state)
{
	struct store_session live = session(ALICE, "");
	struct store_session idle = session(ALICE, "");
	struct store_id ids[4];

	(void)state;
	idle.used_ms -= 60000;
	good(store_session_create(store, &live, &max_5, &e));
	good(store_session_create(store, &idle, &max_5, &e));
	/* Not found before anybody has swept, and not to be revived. */
	refused(store_session_get(store, ALICE, idle.id, &idle, &e),
	    ERR_SESSION_NOT_FOUND);
	refused(store_session_touch(store, idle.id, &e), ERR_SESSION_NOT_FOUND);
	assert_int_equal(store_sessions_ending(store, ids, 4, &e), 1);
	assert_string_equal(ids[0].id, idle.id);
	assert_int_equal(store_sessions_ending(store, ids, 0, &e), 0);
	good(store_session_get(store, ALICE, live.id, &live, &e));
}

static void use_prolongs(void **state)
{
	struct store_session n = session(ALICE, "");
	struct store_session r;
	int64_t now;

	(void)state;
	/* Within 5 s of the last one it is not worth a write. */
	n.ttl_sec = 100000;
	n.used_ms -= 1000;
	good(store_session_create(store, &n, &max_5, &e));
	good(store_session_touch(store, n.id, &e));
	good(store_session_get(store, ALICE, n.id, &r, &e));
	assert_int_equal(r.used_ms, n.used_ms);
	n = session(ALICE, "");
	n.used_ms -= 30000;
	good(store_session_create(store, &n, &max_5, &e));
	now = store_now_ms();
	good(store_session_touch(store, n.id, &e));
	good(store_session_get(store, ALICE, n.id, &r, &e));
	assert_true(r.used_ms >= now && r.used_ms <= store_now_ms());
	assert_int_equal(r.expires_ms, r.used_ms + 60000);
	assert_int_equal(r.created_ms, n.created_ms);
	refused(store_session_touch(store, "x", &e), ERR_SESSION_NOT_FOUND);
}

static int count_volumes(void *arg, const struct store_volume *v, struct err *x)
{
	const char *names = "ab";
	int *count = arg;

	(void)x;
	assert_int_equal(v->name[0], names[*count]);
	++*count;
	return 0;
}

static int stop_at_once(void *arg, const struct store_volume *v, struct err *x)
{
	(void)arg;
	(void)v;
	return err_set(x, ERR_CLIENT_GONE, EPIPE, "gone");
}

static void volumes_are_listed(void **state)
{
	struct store_volume a = volume(ALICE, "a");
	struct store_volume b = volume(ALICE, "b");
	struct store_volume other = volume(BOB, "b");
	struct store_volume r;
	uint64_t n;
	int count = 0;

	(void)state;
	b.created_ms++;
	good(store_volume_create(store, &b, 2, &e));
	good(store_volume_create(store, &a, 2, &e));
	good(store_volume_create(store, &other, 2, &e));
	a = volume(ALICE, "c");
	refused(store_volume_create(store, &a, 2, &e), ERR_TOO_MANY_VOLUMES);
	good(store_volume_list(store, ALICE, count_volumes, &count, &e));
	assert_int_equal(count, 2);
	refused(store_volume_list(store, ALICE, stop_at_once, NULL, &e),
	    ERR_CLIENT_GONE);
	good(store_volume_get(store, BOB, other.id, &r, &e));
	assert_string_equal(r.name, "b");
	assert_int_equal(r.created_ms, other.created_ms);
	refused(store_volume_get(store, ALICE, other.id, &r, &e),
	    ERR_VOLUME_NOT_FOUND);
	refused(
	    store_volume_end(store, ALICE, other.id, &e), ERR_VOLUME_NOT_FOUND);
	good(store_volume_count(store, ALICE, &n, &e));
	assert_int_equal(n, 2);
	good(store_volume_count(store, NULL, &n, &e));
	assert_int_equal(n, 3);
}

static void volume_has_one_holder(void **state)
{
	struct store_volume v = volume(ALICE, "v");
	struct store_session a, b;

	(void)state;
	good(store_volume_create(store, &v, 2, &e));
	a = session(ALICE, v.id);
	b = session(ALICE, v.id);
	good(store_session_create(store, &a, &max_5, &e));
	refused(store_session_create(store, &b, &max_5, &e), ERR_VOLUME_BUSY);
	good(store_volume_get(store, ALICE, v.id, &v, &e));
	assert_string_equal(v.holder, a.id);
	refused(store_volume_end(store, ALICE, v.id, &e), ERR_VOLUME_BUSY);
	/* Held until the session is gone altogether. */
	good(store_session_end(store, ALICE, a.id, &e));
	refused(store_session_create(store, &b, &max_5, &e), ERR_VOLUME_BUSY);
	refused(store_volume_delete(store, v.id, &e), ERR_STORAGE_FAILED);
	good(store_session_delete(store, a.id, &e));
	good(store_volume_get(store, ALICE, v.id, &v, &e));
	assert_string_equal(v.holder, "");
	good(store_session_create(store, &b, &max_5, &e));
	good(store_session_get(store, ALICE, b.id, &a, &e));
	assert_string_equal(a.volume, v.id);
}

static void volume_of_another_cannot_be_held(void **state)
{
	struct store_volume v = volume(BOB, "v");
	struct store_session n;

	(void)state;
	good(store_volume_create(store, &v, 2, &e));
	n = session(ALICE, v.id);
	refused(
	    store_session_create(store, &n, &max_5, &e), ERR_VOLUME_NOT_FOUND);
	n = session(BOB, "nothing");
	refused(
	    store_session_create(store, &n, &max_5, &e), ERR_VOLUME_NOT_FOUND);
	good(store_volume_end(store, BOB, v.id, &e));
	n = session(BOB, v.id);
	refused(
	    store_session_create(store, &n, &max_5, &e), ERR_VOLUME_NOT_FOUND);
}

static void volume_ends_in_steps(void **state)
{
	struct store_volume v = volume(ALICE, "v");
	struct store_id ids[2];
	int count = 0;

	(void)state;
	good(store_volume_create(store, &v, 2, &e));
	assert_int_equal(store_volumes_ending(store, ids, 2, &e), 0);
	good(store_volume_end(store, ALICE, v.id, &e));
	refused(
	    store_volume_get(store, ALICE, v.id, &v, &e), ERR_VOLUME_NOT_FOUND);
	good(store_volume_list(store, ALICE, count_volumes, &count, &e));
	assert_int_equal(count, 0);
	assert_int_equal(store_volumes_ending(store, ids, 2, &e), 1);
	assert_int_equal(store_volume_known(store, ids[0].id, &e), 1);
	good(store_volume_delete(store, ids[0].id, &e));
	assert_int_equal(store_volume_known(store, ids[0].id, &e), 0);
}

/* What is wrong with the file. */

static void newer_schema_is_refused(void **state)
{
	struct store_session n = session(ALICE, "");

	(void)state;
	good(store_session_create(store, &n, &max_5, &e));
	store_free(store);
	sql("PRAGMA user_version = 999");
	good(store_new(tmp.dir, &store, &e));
	refused(store_open(store, &e), ERR_STORAGE_FAILED);
	assert_contains(e.msg, "newer isobox (version 999");
	/* And untouched: the newer one still has everything. */
	sql("PRAGMA user_version = 1");
	good(store_session_get(store, ALICE, n.id, &n, &e));
}

static void foreign_file_is_refused(void **state)
{
	(void)state;
	sql("CREATE TABLE mine (x)");
	refused(store_open(store, &e), ERR_STORAGE_FAILED);
	assert_contains(e.msg, "something else");
	sql("INSERT INTO mine VALUES (1)");
}

static void damage_is_told(void **state)
{
	char garbage[8192];

	(void)state;
	memset(garbage, 'x', sizeof(garbage));
	(void)scratch_write_bytes(&tmp, "isobox.db", garbage, sizeof(garbage));
	refused(store_open(store, &e), ERR_STORAGE_FAILED);
	assert_int_equal(e.code, EUCLEAN);
	assert_contains(e.msg, "damaged");
}

static void damage_behind_the_header_is_told(void **state)
{
	struct store_session n = session(ALICE, "");
	uint64_t count;
	int fd;

	(void)state;
	good(store_session_create(store, &n, &max_5, &e));
	store_free(store);
	fd = open(scratch_path(&tmp, "isobox.db"), O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	for (off_t at = 4096; at < 4096 * 25; at += 4096)
		assert_int_equal(pwrite(fd, "\xff\xff\xff\xff", 4, at), 4);
	assert_int_equal(close(fd), 0);
	good(store_new(tmp.dir, &store, &e));
	refused(
	    store_session_count(store, NULL, &count, &e), ERR_STORAGE_FAILED);
	assert_contains(e.msg, "damaged");
}

static void no_directory(void **state)
{
	struct store *lost;

	(void)state;
	good(store_new("/nonexistent/state", &lost, &e));
	refused(store_open(lost, &e), ERR_STORAGE_FAILED);
	assert_contains(e.msg, "state directory");
	store_free(lost);
}

static void links_are_not_followed(void **state)
{
	(void)state;
	(void)scratch_write(&tmp, "elsewhere", "");
	assert_int_equal(
	    symlink("elsewhere", scratch_path(&tmp, "isobox.db")), 0);
	refused(store_open(store, &e), ERR_STORAGE_FAILED);
}

static void link_to_the_directory_is_fine(void **state)
{
	char link[PATH_MAX];
	struct store *s;

	(void)state;
	(void)snprintf(link, sizeof(link), "%s", scratch_path(&tmp, "link"));
	assert_int_equal(symlink(tmp.dir, link), 0);
	good(store_new(link, &s, &e));
	good(store_open(s, &e));
	store_free(s);
}

static sqlite3 *lock_by_another(void)
{
	sqlite3 *db;

	assert_int_equal(
	    sqlite3_open(scratch_path(&tmp, "isobox.db"), &db), SQLITE_OK);
	assert_int_equal(
	    sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	return db;
}

/* Another process has the lock: found out after a while, nothing is lost. */
static void lock_of_another_is_waited_for(void **state)
{
	struct store_session n = session(ALICE, "");
	sqlite3 *db;

	(void)state;
	good(store_open(store, &e));
	db = lock_by_another();
	refused(
	    store_session_create(store, &n, &max_5, &e), ERR_STORAGE_FAILED);
	assert_int_equal(e.code, EBUSY);
	/* Readers do not care. */
	refused(store_session_get(store, ALICE, n.id, &n, &e),
	    ERR_SESSION_NOT_FOUND);
	assert_int_equal(
	    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	good(store_session_create(store, &n, &max_5, &e));
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* However long each sleep takes there, a wait is one of ten seconds, and so is the
 * next. */
static void waits_by_the_clock(void **state)
{
	struct store_session n = session(ALICE, "");
	sqlite3 *db;

	(void)state;
	good(store_open(store, &e));
	db = lock_by_another();
	for (sleep_ms = 1; sleep_ms <= 4000; sleep_ms *= 20) {
		uint64_t begun_ms = ahead_ms;

		refused(store_session_create(store, &n, &max_5, &e),
		    ERR_STORAGE_FAILED);
		assert_int_equal(e.code, EBUSY);
		/* Less than is real time, here. */
		assert_in_range(ahead_ms - begun_ms, 5000, 10000 + sleep_ms);
	}
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_file_of_our_own),
	    TEST(session_comes_back_whole),
	    TEST(session_is_its_tenants),
	    TEST(sessions_are_counted),
	    TEST(no_tenant_has_them_all),
	    TEST(session_ends_in_steps),
	    TEST(idle_sessions_expire),
	    TEST(use_prolongs),
	    TEST(volumes_are_listed),
	    TEST(volume_has_one_holder),
	    TEST(volume_of_another_cannot_be_held),
	    TEST(volume_ends_in_steps),
	    TEST(newer_schema_is_refused),
	    TEST(foreign_file_is_refused),
	    TEST(damage_is_told),
	    TEST(damage_behind_the_header_is_told),
	    TEST(no_directory),
	    TEST(links_are_not_followed),
	    TEST(link_to_the_directory_is_fine),
	    TEST(lock_of_another_is_waited_for),
	    TEST(waits_by_the_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
