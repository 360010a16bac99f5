/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/utf8.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

enum sequence {
	SEQ_GOOD, /* a character */
	SEQ_BAD, /* a maximal subpart of an ill-formed sequence */
	SEQ_SHORT /* a character so far, its rest lies beyond the end */
};

/*
 * Table 3-7: how many bytes a character takes that starts with `lead`, 0 if none
 * does, and the range of its second byte. That range alone keeps overlong forms,
 * surrogates and what is beyond U+10FFFF out.
 */
static size_t lead_len(uint8_t lead, uint8_t *ret_min, uint8_t *ret_max)
{
	*ret_min = 0x80;
	*ret_max = 0xbf;
	if (lead < 0x80)
		return 1;
	if (lead < 0xc2 || lead > 0xf4)
		return 0;
	if (lead < 0xe0)
		return 2;
	if (lead == 0xe0)
		*ret_min = 0xa0;
	if (lead == 0xed)
		*ret_max = 0x9f;
	if (lead == 0xf0)
		*ret_min = 0x90;
	if (lead == 0xf4)
		*ret_max = 0x8f;
	return lead < 0xf0 ? 3 : 4;
}

/* Looks at the sequence that s starts with, len > 0. *ret_taken bytes are in it. */
static enum sequence look(const uint8_t *s, size_t len, size_t *ret_taken)
{
	uint8_t min;
	uint8_t max;
	size_t need = lead_len(s[0], &min, &max);
	size_t i;

	*ret_taken = 1;
	if (need == 0)
		return SEQ_BAD;
	for (i = 1; i < need && i < len; i++) {
		if (s[i] < min || s[i] > max)
			break;
		min = 0x80;
		max = 0xbf;
	}
	*ret_taken = i;
	if (i == need)
		return SEQ_GOOD;
	return i == len ? SEQ_SHORT : SEQ_BAD;
}

bool utf8_valid(const uint8_t *data, size_t len, size_t *ret_offset)
{
	size_t taken;

	for (size_t i = 0; i < len; i += taken) {
		if (look(data + i, len - i, &taken) == SEQ_GOOD)
			continue;
		if (ret_offset != NULL)
			*ret_offset = i;
		return false;
	}
	return true;
}

/* Completes the held character with the first bytes of data, or gives it up.
 * Returns how many bytes of data are used. */
static size_t finish_held(
    struct utf8_stream *u, const uint8_t *data, size_t len, struct buf *out)
{
	size_t taken;

	for (size_t i = 0; i < len; i++) {
		u->held[u->held_len] = data[i];
		switch (look(u->held, u->held_len + 1u, &taken)) {
		case SEQ_SHORT:
			u->held_len++;
			break;
		case SEQ_GOOD:
			buf_put(out, u->held, taken);
			u->held_len = 0;
			return i + 1;
		case SEQ_BAD: /* data[i] starts another sequence */
			buf_puts(out, REPLACEMENT);
			u->held_len = 0;
			return i;
		}
	}
	return len;
}

void utf8_stream_put(
    struct utf8_stream *u, const uint8_t *data, size_t len, struct buf *out)
{
	size_t i = u->held_len > 0 ? finish_held(u, data, len, out) : 0;
	size_t good = i; /* data[good..i) is well-formed, not yet put */
	size_t taken;

	for (; i < len; i += taken) {
		enum sequence seq = look(data + i, len - i, &taken);

		if (seq == SEQ_GOOD)
			continue;
		buf_put(out, data + good, i - good);
		good = i + taken;
		if (seq == SEQ_BAD) {
			buf_puts(out, REPLACEMENT);
		} else {
			memcpy(u->held, data + i, taken);
			u->held_len = (uint8_t)taken;
		}
	}
	if (i > good)
		buf_put(out, data + good, i - good);
}

void utf8_stream_end(struct utf8_stream *u, bool cut, struct buf *out)
{
	if (u->held_len > 0 && !cut)
		buf_puts(out, REPLACEMENT);
	u->held_len = 0;
}

void utf8_spell(struct buf *out, const uint8_t *data, size_t len)
{
	size_t taken;

	for (size_t i = 0; i < len; i += taken) {
		const uint8_t *s = data + i;

		if (look(s, len - i, &taken) == SEQ_GOOD &&
		    (taken != strlen(REPLACEMENT) ||
			memcmp(s, REPLACEMENT, taken) != 0)) {
			buf_put(out, s, taken);
			continue;
		}
		for (size_t j = 0; j < taken; j++)
			buf_printf(out, REPLACEMENT "%02X", s[j]);
	}
}
