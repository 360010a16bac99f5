/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/utf8.h"

#include <string.h>

#include "tests/unit/unit.h"
#include "tests/unit/whatwg.h"

#define FFFD WHATWG_FFFD
#define FFFD2 FFFD FFFD
#define FFFD3 FFFD2 FFFD
#define FFFD4 FFFD3 FFFD

struct text {
	const char *s;
	size_t len;
};

#define TEXT(s)                  \
	{                        \
		s, sizeof(s) - 1 \
	}

/* Decodes s in two parts, split at `split`. */
static void decode(const uint8_t *s, size_t len, size_t split, struct buf *out)
{
	struct utf8_stream u = {0};

	utf8_stream_put(&u, s, split, out);
	utf8_stream_put(&u, s + split, len - split, out);
	utf8_stream_end(&u, false, out);
}

static void assert_decodes(const struct text *in, const struct text *want)
{
	const uint8_t *s = (const uint8_t *)in->s;

	for (size_t split = 0; split <= in->len; split++) {
		cleanup_buf struct buf out = {0};

		decode(s, in->len, split, &out);
		assert_int_equal(out.len, want->len);
		assert_memory_equal(out.data, want->s, want->len);
		assert_true(utf8_valid(out.data, out.len, NULL));
	}
}

/* Unicode 15, tables 3-8 to 3-11, and the edges of table 3-7. */
static void maximal_subparts(void **state)
{
	static const struct {
		struct text in;
		struct text out;
	} cases[] = {
	    /* 3-8: non-shortest forms */
	    {TEXT("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"),
		TEXT(FFFD4 FFFD4 "A")},
	    /* 3-9: surrogates */
	    {TEXT("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"),
		TEXT(FFFD4 FFFD4 "A")},
	    /* 3-10: other ill-formed sequences */
	    {TEXT("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"),
		TEXT(FFFD4 FFFD "A" FFFD2 "B")},
	    /* 3-11: truncated sequences */
	    {TEXT("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), TEXT(FFFD4 "A")},
	    /* older editions' example */
	    {TEXT("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64"),
		TEXT("a" FFFD3 "b" FFFD "c" FFFD2 "d")},
	    /* first and last of each length */
	    {TEXT("\0\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"),
		TEXT("\0\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf")},
	    {TEXT("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"),
		TEXT("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf")},
	    {TEXT("\xed\x9f\xbf\xee\x80\x80"),
		TEXT("\xed\x9f\xbf\xee\x80\x80")},
	    {TEXT("\xc1\xbf"), TEXT(FFFD2)},
	    {TEXT("\xe0\x9f\xbf"), TEXT(FFFD3)},
	    {TEXT("\xf0\x8f\xbf\xbf"), TEXT(FFFD4)},
	    {TEXT("\xf4\x90\x80\x80"), TEXT(FFFD4)},
	    {TEXT("\xf5\x80\x80\x80"), TEXT(FFFD4)},
	    {TEXT("\xf8\x88\x80\x80\x80"), TEXT(FFFD4 FFFD)},
	    {TEXT("\xfe\xff"), TEXT(FFFD2)},
	    /* cut short at the end */
	    {TEXT("\xc2"), TEXT(FFFD)},
	    {TEXT("\xe2\x82"), TEXT(FFFD)},
	    {TEXT("\xf0\x9f\x98"), TEXT(FFFD)},
	    {TEXT("a\xf0\x9f\x98\xf0\x9f\x98\x80z"),
		TEXT("a" FFFD "\xf0\x9f\x98\x80z")},
	    {TEXT("\xe2\x82\xe2\x82\xac"), TEXT(FFFD "\xe2\x82\xac")},
	    /* U+FFFD and a byte order mark pass as they are */
	    {TEXT("\xef\xbb\xbf" FFFD), TEXT("\xef\xbb\xbf" FFFD)},
	    {TEXT(""), TEXT("")},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_decodes(&cases[i].in, &cases[i].out);
}

static void assert_as_whatwg(const uint8_t *s, size_t len)
{
	cleanup_buf struct buf want = {0};
	bool same;

	whatwg_decode(s, len, &want);
	same = want.len == len && memcmp(want.data, s, len) == 0;
	assert_int_equal(utf8_valid(s, len, NULL), same);
	for (size_t split = 0; split <= len; split++) {
		cleanup_buf struct buf out = {0};

		decode(s, len, split, &out);
		if (out.len == want.len &&
		    memcmp(out.data, want.data, out.len) == 0)
			continue;
		fail_msg("%02x %02x %02x %02x (%zu), split at %zu", s[0], s[1],
		    s[2], s[3], len, split);
	}
}

/* All sequences of up to four of the bytes at which table 3-7 changes. */
static void all_edges_as_whatwg(void **state)
{
	static const uint8_t edges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90,
	    0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed,
	    0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
	size_t n = sizeof(edges);
	uint8_t s[4];

	(void)state;
	for (size_t i = 0; i < n * n * n * n; i++) {
		s[0] = edges[i % n];
		s[1] = edges[i / n % n];
		s[2] = edges[i / n / n % n];
		s[3] = edges[i / n / n / n];
		assert_as_whatwg(s, 4);
	}
}

static void all_pairs_as_whatwg(void **state)
{
	uint8_t s[4] = {0};

	(void)state;
	for (unsigned i = 0; i < 65536; i++) {
		s[0] = (uint8_t)i;
		s[1] = (uint8_t)(i >> 8);
		assert_as_whatwg(s, 2);
		assert_as_whatwg(s, 1);
	}
}

/* Each character one byte at a time: nothing is let out before it is whole. */
static void characters_are_held_back(void **state)
{
	static const uint8_t s[] = "\xf0\x9f\x98\x80";
	struct utf8_stream u = {0};
	cleanup_buf struct buf out = {0};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		utf8_stream_put(&u, s + i, 1, &out);
		assert_int_equal(out.len, 0);
	}
	utf8_stream_put(&u, s + 3, 0, &out);
	assert_int_equal(out.len, 0);
	utf8_stream_put(&u, s + 3, 1, &out);
	assert_int_equal(out.len, 4);
	assert_memory_equal(out.data, s, 4);
}

static void a_cap_drops_half_a_character(void **state)
{
	static const uint8_t s[] = "a\xf0\x9f\x98\x80";

	(void)state;
	for (size_t n = 1; n <= 5; n++) {
		struct utf8_stream u = {0};
		cleanup_buf struct buf out = {0};

		utf8_stream_put(&u, s, n, &out);
		utf8_stream_end(&u, true, &out);
		assert_int_equal(out.len, n == 5 ? 5 : 1);
		utf8_stream_end(&u, false, &out); /* nothing is held now */
		assert_int_equal(out.len, n == 5 ? 5 : 1);
	}
}

static void offset_of_the_first_bad_byte(void **state)
{
	static const struct {
		struct text in;
		size_t offset;
	} cases[] = {
	    {TEXT("\xff"), 0},
	    {TEXT("ab\x80"), 2},
	    {TEXT("\xe2\x82\xac\xed\xa0\x80"), 3},
	    {TEXT("abc\xf0\x9f\x98"), 3},
	    {TEXT("abc\xc3(\xa9"), 3},
	};
	size_t at;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		at = SIZE_MAX;
		assert_false(utf8_valid(
		    (const uint8_t *)cases[i].in.s, cases[i].in.len, &at));
		assert_int_equal(at, cases[i].offset);
	}
	assert_true(utf8_valid(NULL, 0, &at));
}

/* ---- names ----------------------------------------------------------------- */

static void assert_spelt(const struct text *in, const struct text *want)
{
	cleanup_buf struct buf out = {0};

	utf8_spell(&out, (const uint8_t *)in->s, in->len);
	assert_int_equal(out.len, want->len);
	assert_memory_equal(out.data, want->s, want->len);
	assert_true(utf8_valid(out.data, out.len, NULL));
}

static void names_are_spelt(void **state)
{
	static const struct {
		struct text in;
		struct text out;
	} cases[] = {
	    /* text stays as it is */
	    {TEXT("a"), TEXT("a")},
	    {TEXT("a%FF 100%25%"), TEXT("a%FF 100%25%")},
	    {TEXT("\xc3\xa9\xf0\x9f\x98\x80"),
		TEXT("\xc3\xa9\xf0\x9f\x98\x80")},
	    {TEXT("\xef\xbf\xbc\xef\xbf\xbe"),
		TEXT("\xef\xbf\xbc\xef\xbf\xbe")},
	    /* other bytes do not */
	    {TEXT("caf\xe9"), TEXT("caf" FFFD "E9")},
	    {TEXT("\xff\x80z"), TEXT(FFFD "FF" FFFD "80z")},
	    {TEXT("\xe2\x82"), TEXT(FFFD "E2" FFFD "82")},
	    {TEXT("\xe2\x82/\xc3\xa9"), TEXT(FFFD "E2" FFFD "82/\xc3\xa9")},
	    {TEXT("\xed\xa0\x80"), TEXT(FFFD "ED" FFFD "A0" FFFD "80")},
	    {TEXT("\xc0\xaf"), TEXT(FFFD "C0" FFFD "AF")},
	    {TEXT("\xef\xbf"), TEXT(FFFD "EF" FFFD "BF")},
	    /* nor does what marks them */
	    {TEXT(FFFD "E9"), TEXT(FFFD "EF" FFFD "BF" FFFD "BDE9")},
	    {TEXT("\xef\xef\xbf\xbd"),
		TEXT(FFFD "EF" FFFD "EF" FFFD "BF" FFFD "BD")},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_spelt(&cases[i].in, &cases[i].out);
}

static uint8_t digit(uint8_t c)
{
	return (uint8_t)(c <= '9' ? c - '0' : c - 'A' + 10);
}

/* The bytes that were spelt so: there are no others. */
static void read_spelt(const struct buf *spelt, struct buf *out)
{
	const uint8_t *s = spelt->data;

	for (size_t i = 0; i < spelt->len;) {
		if (spelt->len - i < 5 || memcmp(s + i, FFFD, 3) != 0) {
			buf_putc(out, (char)s[i++]);
			continue;
		}
		buf_putc(out, (char)(digit(s[i + 3]) << 4 | digit(s[i + 4])));
		i += 5;
	}
}

/* Of no two names is the same made: each is told from what was made of it. All of
 * up to five out of bytes that could be mistaken. */
static void spelling_is_injective(void **state)
{
	static const uint8_t from[] = "\xef\xbf\xbd"
				      "BDE\xff%";
	const size_t n = sizeof(from) - 1;
	uint8_t name[5];

	(void)state;
	for (size_t len = 0; len <= sizeof(name); len++) {
		size_t count = 1;

		for (size_t i = 0; i < len; i++)
			count *= n;
		for (size_t which = 0; which < count; which++) {
			cleanup_buf struct buf spelt = {0};
			cleanup_buf struct buf back = {0};

			for (size_t i = 0, rest = which; i < len; i++) {
				name[i] = from[rest % n];
				rest /= n;
			}
			utf8_spell(&spelt, name, len);
			read_spelt(&spelt, &back);
			assert_int_equal(back.len, len);
			if (len > 0)
				assert_memory_equal(back.data, name, len);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(maximal_subparts),
	    cmocka_unit_test(all_edges_as_whatwg),
	    cmocka_unit_test(all_pairs_as_whatwg),
	    cmocka_unit_test(characters_are_held_back),
	    cmocka_unit_test(a_cap_drops_half_a_character),
	    cmocka_unit_test(offset_of_the_first_bad_byte),
	    cmocka_unit_test(names_are_spelt),
	    cmocka_unit_test(spelling_is_injective),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
