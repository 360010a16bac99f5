/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TEST_WHATWG_H
#define ISOBOX_TEST_WHATWG_H

#include <stdint.h>

#include "lib/buf.h"

#define WHATWG_FFFD "\xef\xbf\xbd"

/*
 * A decoder after the letter of the WHATWG Encoding Standard's "UTF-8 decoder":
 * state in variables, a byte at a time, unlike lib/utf8.c.
 */
struct whatwg {
	unsigned seen;
	unsigned needed;
	uint8_t lower;
	uint8_t upper;
	uint8_t bytes[4];
};

static inline void whatwg_lead(struct whatwg *w, uint8_t c, struct buf *out)
{
	w->lower = 0x80;
	w->upper = 0xbf;
	w->seen = 0;
	if (c <= 0x7f) {
		buf_putc(out, (char)c);
	} else if (c >= 0xc2 && c <= 0xdf) {
		w->needed = 1;
	} else if (c >= 0xe0 && c <= 0xef) {
		if (c == 0xe0)
			w->lower = 0xa0;
		if (c == 0xed)
			w->upper = 0x9f;
		w->needed = 2;
	} else if (c >= 0xf0 && c <= 0xf4) {
		if (c == 0xf0)
			w->lower = 0x90;
		if (c == 0xf4)
			w->upper = 0x8f;
		w->needed = 3;
	} else {
		buf_puts(out, WHATWG_FFFD);
	}
	w->bytes[0] = c;
}

static inline void whatwg_byte(struct whatwg *w, uint8_t c, struct buf *out)
{
	if (w->needed == 0) {
		whatwg_lead(w, c, out);
		return;
	}
	if (c < w->lower || c > w->upper) {
		w->needed = 0;
		buf_puts(out, WHATWG_FFFD);
		whatwg_lead(w, c, out); /* the byte is "restored" */
		return;
	}
	w->lower = 0x80;
	w->upper = 0xbf;
	w->bytes[++w->seen] = c;
	if (w->seen == w->needed) {
		buf_put(out, w->bytes, w->seen + 1);
		w->needed = 0;
	}
}

static inline void whatwg_decode(const uint8_t *s, size_t len, struct buf *out)
{
	struct whatwg w = {0};

	for (size_t i = 0; i < len; i++)
		whatwg_byte(&w, s[i], out);
	if (w.needed > 0)
		buf_puts(out, WHATWG_FFFD);
}

#endif
