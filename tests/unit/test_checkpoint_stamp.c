/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stamp of a checkpoint: its text, and what it depends on.
 *
 * LINK: runner/checkpoint_stamp.o runner/bundle.o runner/runsc.o
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runner/checkpoint_stamp.h"
#include "tests/unit/scratch.h"

static struct err e;

static struct stamp_manifest some(void)
{
	struct stamp_manifest m = {.file_count = 2};

	for (size_t i = 0; i < STAMP_COUNT; i++)
		(void)memset(
		    m.stamp.part[i], (int)(16 * i + 1), TOKEN_HASH_LEN);
	(void)snprintf(m.files[0].name, sizeof m.files[0].name, "a.img");
	(void)snprintf(m.files[1].name, sizeof m.files[1].name, "pages_1.img");
	m.files[0].size = 0;
	m.files[1].size = 123456789012;
	(void)memset(m.files[1].hash, 0xfe, TOKEN_HASH_LEN);
	return m;
}

static void test_round_trip(void **state)
{
	struct stamp_manifest m = some(), back;
	struct buf text = {0};

	(void)state;
	stamp_encode(&m, &text);
	assert_false(text.failed);
	assert_int_equal(stamp_decode(text.data, text.len, &back, &e), 0);
	assert_memory_equal(&back.stamp, &m.stamp, sizeof m.stamp);
	assert_int_equal(back.file_count, 2);
	assert_memory_equal(back.files, m.files, sizeof m.files);
	buf_free(&text);
}

/* None of its beginnings is a stamp, and none with another byte is the same. */
static void test_damage(void **state)
{
	struct stamp_manifest m = some(), back;
	struct buf text = {0}, again = {0};

	(void)state;
	stamp_encode(&m, &text);
	for (size_t n = 0; n < text.len; n++)
		assert_int_equal(
		    stamp_decode(text.data, n, &back, &e), -EBADMSG);
	for (size_t n = 0; n < text.len; n++) {
		text.data[n] ^= 1;
		if (stamp_decode(text.data, text.len, &back, &e) == 0) {
			buf_clear(&again);
			stamp_encode(&back, &again);
			assert_int_equal(again.len, text.len);
			assert_memory_not_equal(&back, &m, sizeof m);
		}
		text.data[n] ^= 1;
	}
	buf_puts(&text, "\n");
	assert_int_equal(
	    stamp_decode(text.data, text.len, &back, &e), -EBADMSG);
	buf_free(&text);
	buf_free(&again);
}

static void refuse_files(const char *lines)
{
	struct stamp_manifest m = some(), back;
	struct buf text = {0};

	m.file_count = 0;
	stamp_encode(&m, &text);
	text.len -= strlen("end\n");
	buf_puts(&text, lines);
	buf_puts(&text, "end\n");
	if (stamp_decode(text.data, text.len, &back, &e) != -EBADMSG)
		fail_msg("taken: %s", lines);
	buf_free(&text);
}

#define HEX                                \
	"0123456789abcdef0123456789abcdef" \
	"0123456789abcdef0123456789abcdef"

static void test_file_lines(void **state)
{
	static const char *const bad[] = {
	    "", /* no file at all */
	    "file .. 1 " HEX "\n",
	    "file a/b 1 " HEX "\n",
	    "file -x 1 " HEX "\n",
	    "file .new 1 " HEX "\n",
	    "file  1 " HEX "\n",
	    "file a -1 " HEX "\n",
	    "file a 01 " HEX "\n",
	    "file a 99999999999999999999 " HEX "\n",
	    "file a 1 " HEX "0\n",
	    "file a 1 0" HEX "\n",
	    "file a 1\n",
	    "file a 1 " HEX " \n",
	    "file a 1 " HEX "\r\n",
	    "file a 1 " HEX "\nfile a 1 " HEX "\n", /* twice */
	    "filea 1 " HEX "\n",
	    "\n",
	};
	struct buf many = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		refuse_files(bad[i]);
	for (unsigned i = 0; i <= STAMP_FILES_MAX; i++)
		buf_printf(&many, "file f%u 1 " HEX "\n", i);
	buf_putc(&many, '\0');
	refuse_files((const char *)many.data);
	buf_free(&many);
}

static void test_differences(void **state)
{
	static const char *const words[STAMP_COUNT] = {
	    "version of runsc", "isobox-init", "image", "settings", "CPU"};
	struct stamp_manifest then = some(), now = some();

	(void)state;
	assert_int_equal(
	    checkpoint_stamp_check(&then.stamp, &now.stamp, &e), 0);
	for (size_t i = 0; i < STAMP_COUNT; i++) {
		now = some();
		now.stamp.part[i][31] ^= 0x80;
		assert_int_equal(
		    checkpoint_stamp_check(&then.stamp, &now.stamp, &e),
		    -ESTALE);
		assert_contains(e.msg, words[i]);
	}
}

/* The digests follow the files, also when a cache knows them. */
static void test_now(void **state)
{
	struct stamp_cache cache = {0};
	struct checkpoint_stamp first, now;
	char init[PATH_MAX], rootfs[PATH_MAX];
	struct sandbox_spec spec = {.platform = "systrap"};
	struct scratch s;

	(void)state;
	assert_int_equal(token_init(&e), 0);
	scratch_make(&s);
	(void)snprintf(
	    init, sizeof init, "%s", scratch_write(&s, "init", "one"));
	(void)snprintf(rootfs, sizeof rootfs, "%s", scratch_path(&s, "image"));
	spec.init_path = spec.runsc = init;
	spec.rootfs = rootfs;
	assert_int_equal(
	    checkpoint_stamp_now(&cache, &spec, &first, &e), -ENOENT);
	(void)scratch_write(&s, "image.digest", "abc");
	assert_int_equal(checkpoint_stamp_now(&cache, &spec, &first, &e), 0);
	assert_int_equal(checkpoint_stamp_now(&cache, &spec, &now, &e), 0);
	assert_int_equal(checkpoint_stamp_check(&first, &now, &e), 0);
	spec.workspace = "/anywhere";
	assert_int_equal(checkpoint_stamp_now(&cache, &spec, &now, &e), 0);
	assert_int_equal(checkpoint_stamp_check(&first, &now, &e), -ESTALE);
	assert_contains(e.msg, "settings");
	spec.workspace = NULL;
	(void)scratch_write(&s, "image.digest", "abd");
	assert_int_equal(checkpoint_stamp_now(&cache, &spec, &now, &e), 0);
	assert_int_equal(checkpoint_stamp_check(&first, &now, &e), -ESTALE);
	assert_contains(e.msg, "image");
	(void)scratch_write(&s, "image.digest", "abc");
	(void)scratch_write(&s, "init", "two");
	assert_int_equal(checkpoint_stamp_now(&cache, &spec, &now, &e), 0);
	assert_int_equal(checkpoint_stamp_check(&first, &now, &e), -ESTALE);
	scratch_remove(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_round_trip),
	    cmocka_unit_test(test_damage),
	    cmocka_unit_test(test_file_lines),
	    cmocka_unit_test(test_differences),
	    cmocka_unit_test(test_now),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
