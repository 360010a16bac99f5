/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_BUF_H
#define ISOBOX_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A growing byte buffer. Out of memory is remembered in `failed` (later puts do
 * nothing), so that a writer checks once at its end. Zero-initialise it.
 */
struct buf {
	uint8_t *data;
	size_t len;
	size_t cap;
	bool failed;
};

void buf_free(struct buf *b); /* and re-initialises */
void buf_clear(struct buf *b); /* length 0, memory kept */
void buf_put(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Room for n more bytes; the pointer to it, NULL when memory is out. */
uint8_t *buf_reserve(struct buf *b, size_t n);
/* Drops the first n bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);

static inline void buf_freep(struct buf *b)
{
	buf_free(b);
}
#define cleanup_buf __attribute__((cleanup(buf_freep)))

#endif
