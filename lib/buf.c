/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 256u

void buf_free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = false;
}

uint8_t *buf_reserve(struct buf *b, size_t n)
{
	size_t cap = b->cap > 0 ? b->cap : FIRST_CAP;
	uint8_t *data;

	if (b->failed)
		return NULL;
	if (n > SIZE_MAX / 2 - b->len) {
		b->failed = true;
		return NULL;
	}
	while (cap - b->len < n) /* ends: len + n <= SIZE_MAX / 2 */
		cap *= 2;
	if (cap > b->cap) {
		data = realloc(b->data, cap);
		if (data == NULL) {
			b->failed = true;
			return NULL;
		}
		b->data = data;
		b->cap = cap;
	}
	return b->data + b->len;
}

void buf_put(struct buf *b, const void *data, size_t len)
{
	uint8_t *room;

	if (len == 0)
		return;
	room = buf_reserve(b, len);
	if (room == NULL)
		return;
	memcpy(room, data, len);
	b->len += len;
}

void buf_puts(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
	buf_put(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	uint8_t *room;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0) {
		b->failed = true;
		return;
	}
	room = buf_reserve(b, (size_t)n + 1);
	if (room == NULL)
		return;
	va_start(ap, fmt);
	(void)vsnprintf((char *)room, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= b->len);
	if (n == 0)
		return;
	b->len -= n;
	memmove(b->data, b->data + n, b->len);
}
