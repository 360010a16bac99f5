/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking, counting, finding and removing, in a directory of the test's own.
 *
 * LINK: runner/ws_walk.o runner/ws_dir.o runner/ws_trash.o
 * LINK: -Wl,--wrap=mkdirat
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/ws_dir.h"
#include "runner/ws_trash.h"
#include "runner/ws_walk.h"
#include "tests/unit/scratch.h"
#include "tests/unit/valgrind.h"

static struct scratch tmp;
static struct config config;
static struct ws_root root;
static int ws; /* a session's directory */

static bool disk_is_full;

int __real_mkdirat(int dir_fd, const char *path, mode_t mode);
int __wrap_mkdirat(int dir_fd, const char *path, mode_t mode);

int __wrap_mkdirat(int dir_fd, const char *path, mode_t mode)
{
	if (!disk_is_full)
		return __real_mkdirat(dir_fd, path, mode);
	errno = ENOSPC;
	return -1;
}

static int setup(void **state)
{
	struct err e;

	(void)state;
	scratch_make(&tmp);
	config.workspaces_dir = tmp.dir;
	assert_int_equal(ws_root_open(&config, 0xabc, &root, &e), 0);
	assert_int_equal(mkdirat(root.kind_fd[WS_SESSION], "s", 0755), 0);
	ws = ws_open(&root, WS_SESSION, "s", &e);
	assert_true(ws >= 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	disk_is_full = false;
	(void)close(ws);
	ws_root_close(&root);
	scratch_remove(&tmp);
	return 0;
}

static void put(const char *path, size_t len)
{
	char block[4096] = {0};
	int fd = openat(ws, path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	assert_true(fd >= 0);
	for (size_t n = 0; n < len; n += sizeof block)
		assert_int_equal(write(fd, block, sizeof block), sizeof block);
	assert_int_equal(close(fd), 0);
}

static void make_chain(int depth)
{
	int here = openat(ws, ".", O_RDONLY | O_DIRECTORY);

	for (int i = 0; i < depth; i++) {
		int below;

		assert_int_equal(mkdirat(here, "d", 0755), 0);
		below = openat(here, "d", O_RDONLY | O_DIRECTORY);
		assert_true(below >= 0);
		(void)close(here);
		here = below;
	}
	(void)close(here);
}

static void one_root_one_runner(void **state)
{
	struct ws_root other;
	struct err e;

	(void)state;
	assert_int_equal(ws_root_open(&config, 1, &other, &e), -EBUSY);
	assert_int_equal(other.fd, -1);
	assert_int_equal(ws_open(&root, WS_VOLUME, "s", &e), -ENOENT);
	assert_int_equal(e.kind, ERR_VOLUME_NOT_FOUND);
}

struct seen {
	char text[512];
	int stop_at;
	int count;
};

static int see(void *arg, const struct ws_item *item, struct err *e)
{
	struct seen *s = arg;
	size_t len = strlen(s->text);

	(void)e;
	(void)snprintf(s->text + len, sizeof s->text - len, "%s%s%c ",
	    item->dir, item->name, S_ISDIR(item->st->st_mode) ? '/' : ' ');
	return ++s->count == s->stop_at ? 7 : 0;
}

static void a_walk_sees_all(void **state)
{
	struct seen s = {0};
	struct err e;

	(void)state;
	assert_int_equal(mkdirat(ws, "a", 0755), 0);
	assert_int_equal(mkdirat(ws, "a/b", 0755), 0);
	put("a/b/f", 0);
	put("g", 0);
	assert_int_equal(symlinkat("a", ws, "l"), 0);
	assert_int_equal(ws_walk(ws, see, &s, &e), 0);
	assert_int_equal(s.count, 5);
	assert_non_null(strstr(s.text, "a/b/f "));
	assert_non_null(strstr(s.text, "a/b/ "));
	assert_non_null(strstr(s.text, "l "));
	s = (struct seen){.stop_at = 2};
	assert_int_equal(ws_walk(ws, see, &s, &e), 7);
	assert_int_equal(s.count, 2);
}

static void deeper_than_descriptors(void **state)
{
	struct ws_usage u;
	struct err e;

	(void)state;
	make_chain(700);
	assert_int_equal(ws_count(ws, UINT64_MAX, &u, &e), 0);
	assert_int_equal(u.files, 701);
}

/* Moves the chain away when the walk is deep in it. */
static int move_away(void *arg, const struct ws_item *item, struct err *e)
{
	int *count = arg;

	(void)item;
	(void)e;
	if (++*count == 200) {
		assert_int_equal(mkdirat(ws, "other", 0755), 0);
		assert_int_equal(
		    renameat(ws, "d/d/d/d/d", ws, "other/moved"), 0);
	}
	return 0;
}

static void a_tree_that_moves_is_noticed(void **state)
{
	struct err e;
	int count = 0;

	(void)state;
	make_chain(300);
	assert_int_equal(ws_walk(ws, move_away, &count, &e), -ESTALE);
}

static void counts_are_of_blocks(void **state)
{
	struct ws_usage u;
	struct stat st;
	uint64_t empty;
	struct err e;

	(void)state;
	assert_int_equal(ws_count(ws, UINT64_MAX, &u, &e), 0);
	empty = u.bytes;
	assert_int_equal(u.files, 1);
	put("f", 1u << 20);
	for (int i = 0; i < 20; i++) {
		char name[16];

		(void)snprintf(name, sizeof name, "l%d", i);
		assert_int_equal(linkat(ws, "f", ws, name, 0), 0);
	}
	put("hole", 0);
	assert_int_equal(fstatat(ws, "f", &st, 0), 0);
	assert_int_equal(ws_count(ws, UINT64_MAX, &u, &e), 0);
	assert_int_equal(u.files, 23);
	assert_true(u.bytes - empty >= 1u << 20);
	assert_true(u.bytes - empty < (1u << 20) + 65536);
	/* Enough is enough. */
	assert_int_equal(ws_count(ws, 1000, &u, &e), 0);
	assert_true(u.bytes > 1000);
}

static void inodes_are_a_set(void **state)
{
	struct ws_inodes s = {0};

	(void)state;
	for (ino_t i = 1; i < 5000; i++)
		assert_int_equal(ws_inodes_add(&s, i * 4096), 1);
	for (ino_t i = 1; i < 5000; i++)
		assert_int_equal(ws_inodes_add(&s, i * 4096), 0);
	assert_int_equal(s.count, 4999);
	ws_inodes_free(&s);
}

static void expect_kind(int rc, const struct err *e, enum err_kind kind)
{
	assert_true(rc < 0);
	assert_int_equal(e->kind, kind);
}

static void what_is_found(void **state)
{
	struct err e;
	int fd;

	(void)state;
	skip_under_valgrind(); /* openat2 */
	put("f", 0);
	assert_int_equal(symlinkat("/etc", ws, "out"), 0);
	assert_int_equal(symlinkat("../..", ws, "up"), 0);
	assert_int_equal(symlinkat("loop", ws, "loop"), 0);
	assert_int_equal(symlinkat("f", ws, "in"), 0);
	expect_kind(ws_find(ws, "none", &e), &e, ERR_NOT_FOUND);
	expect_kind(ws_find(ws, "f/x", &e), &e, ERR_NOT_FOUND);
	expect_kind(ws_find(ws, "out/passwd", &e), &e, ERR_INVALID_PATH);
	expect_kind(ws_find(ws, "up", &e), &e, ERR_INVALID_PATH);
	expect_kind(ws_find(ws, "loop", &e), &e, ERR_INVALID_PATH);
	fd = ws_find(ws, "in", &e);
	assert_true(fd >= 0);
	(void)close(fd);
	fd = ws_find(ws, "", &e);
	assert_true(fd >= 0);
	(void)close(fd);
}

static void a_fifo_is_not_opened(void **state)
{
	struct stat st;
	struct err e;
	int fd;

	(void)state;
	skip_under_valgrind(); /* openat2 */
	assert_int_equal(mkfifoat(ws, "fifo", 0644), 0);
	fd = ws_find(ws, "fifo", &e);
	assert_true(fd >= 0);
	expect_kind(ws_reopen(fd, &st, &e), &e, ERR_INVALID_PATH);
	(void)close(fd);
}

/* Where a file that is written at path goes, as "name" in its folder. */
static void expect_target(const char *path, bool make, const char *name)
{
	char got[LIMIT_NAME_COMPONENT + 1];
	struct err e;
	int fd = ws_find_target(ws, path, make, got, &e);

	assert_true(fd >= 0);
	assert_string_equal(got, name);
	(void)close(fd);
}

static void targets(void **state)
{
	char name[LIMIT_NAME_COMPONENT + 1];
	struct err e;

	(void)state;
	skip_under_valgrind(); /* openat2 */
	put("f", 0);
	expect_target("f", false, "f");
	expect_target("new", false, "new");
	assert_int_equal(ws_find_target(ws, "a/b/c", false, name, &e), -ENOENT);
	expect_target("a/b/c", true, "c");
	expect_target("a/b/c", false, "c");
	assert_int_equal(symlinkat("b/to", ws, "a/link"), 0);
	expect_target("a/link", false, "to");
	assert_int_equal(symlinkat("/etc/passwd", ws, "a/out"), 0);
	expect_kind(
	    ws_find_target(ws, "a/out", true, name, &e), &e, ERR_INVALID_PATH);
	expect_kind(
	    ws_find_target(ws, "a/b", true, name, &e), &e, ERR_INVALID_PATH);
	expect_kind(
	    ws_find_target(ws, "f/x/y", true, name, &e), &e, ERR_INVALID_PATH);
	expect_kind(
	    ws_find_target(ws, "", true, name, &e), &e, ERR_INVALID_PATH);
	assert_int_equal(symlinkat("nowhere", ws, "lost"), 0);
	expect_target("lost", true, "nowhere");
	expect_kind(
	    ws_find_target(ws, "lost/x", true, name, &e), &e, ERR_NOT_FOUND);
}

static bool trash_is_empty(void)
{
	struct seen s = {0};
	struct err e;

	assert_int_equal(ws_walk(root.trash_fd, see, &s, &e), 0);
	return s.count == 0;
}

static void a_tree_goes_whole(void **state)
{
	char item[WS_NAME_SIZE];
	struct err e;

	(void)state;
	make_chain(700);
	put("d/f", 0);
	put("d/d/d/f", 0);
	assert_int_equal(ws_trash_take(&root, ws, "d", item, &e), 0);
	assert_int_equal(faccessat(ws, "d", F_OK, 0), -1);
	assert_false(trash_is_empty());
	assert_int_equal(ws_trash_empty(&root, item, &e), 0);
	assert_true(trash_is_empty());
	expect_kind(ws_trash_take(&root, ws, "d", item, &e), &e, ERR_NOT_FOUND);
	assert_true(trash_is_empty());
}

/* One at a time, and what was taken first makes room. */
static void it_goes_from_a_full_disk(void **state)
{
	char item[WS_NAME_SIZE], other[WS_NAME_SIZE];
	struct err e;

	(void)state;
	make_chain(3);
	assert_int_equal(mkdirat(ws, "e", 0755), 0);
	ws_trash_keep_spare(&root);
	disk_is_full = true;
	/* What is not there does not cost the spare folder. */
	expect_kind(
	    ws_trash_take(&root, ws, "none", item, &e), &e, ERR_NOT_FOUND);
	assert_true(trash_is_empty());
	assert_int_equal(ws_trash_take(&root, ws, "d", item, &e), 0);
	assert_int_equal(ws_trash_take(&root, ws, "e", other, &e), -ENOSPC);
	assert_int_equal(ws_trash_empty(&root, item, &e), 0);
	assert_true(trash_is_empty());
	disk_is_full = false;
	assert_int_equal(ws_trash_take(&root, ws, "e", other, &e), 0);
	assert_int_equal(ws_trash_empty(&root, other, &e), 0);
}

/* A start after a kill: whatever state it is in. */
static void a_sweep_takes_all(void **state)
{
	char item[WS_NAME_SIZE];
	struct err e;

	(void)state;
	make_chain(5);
	assert_int_equal(ws_trash_take(&root, ws, "d", item, &e), 0);
	make_chain(3);
	assert_int_equal(ws_trash_take(&root, ws, "d", item, &e), 0);
	assert_int_equal(mkdirat(root.trash_fd, "empty", 0700), 0);
	assert_int_equal(
	    close(openat(root.staging_fd, "fff-1-2", O_CREAT, 0600)), 0);
	assert_int_equal(
	    close(openat(root.staging_fd, "abc-1-2", O_CREAT, 0600)), 0);
	assert_int_equal(ws_trash_sweep(&root, &e), 0);
	assert_true(trash_is_empty());
	/* Of this life: somebody is at it. */
	assert_int_equal(faccessat(root.staging_fd, "abc-1-2", F_OK, 0), 0);
	assert_int_equal(faccessat(root.staging_fd, "fff-1-2", F_OK, 0), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		one_root_one_runner, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_walk_sees_all, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		deeper_than_descriptors, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		a_tree_that_moves_is_noticed, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		counts_are_of_blocks, setup, teardown),
	    cmocka_unit_test(inodes_are_a_set),
	    cmocka_unit_test_setup_teardown(what_is_found, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		a_fifo_is_not_opened, setup, teardown),
	    cmocka_unit_test_setup_teardown(targets, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_tree_goes_whole, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		it_goes_from_a_full_disk, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_sweep_takes_all, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
