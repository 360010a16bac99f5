/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/disposition.h"

#include <stdbool.h>
#include <string.h>

#include "lib/utf8.h"

/* What stands for itself in a quoted string and means the same to every client:
 * a quote or a backslash would need another, and some clients decode "%". */
static bool is_plain(unsigned char c)
{
	return c >= ' ' && c <= '~' && strchr("\"\\%", c) == NULL;
}

/* RFC 8187, section 3.2.1: attr-char. */
static bool is_attr_char(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
	       (c >= 'a' && c <= 'z') ||
	       (c != '\0' && strchr("!#$&+-.^_`|~", c) != NULL);
}

static bool is_all_plain(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!is_plain((unsigned char)name[i]))
			return false;
	return true;
}

/* One "_" for a character, not for each of its bytes. */
static void put_fallback(struct buf *out, const struct buf *text)
{
	for (size_t i = 0; i < text->len; i++) {
		unsigned char c = text->data[i];

		if (is_plain(c))
			buf_putc(out, (char)c);
		else if ((c & 0xc0) != 0x80)
			buf_putc(out, '_');
	}
}

static void put_exact(struct buf *out, const struct buf *text)
{
	for (size_t i = 0; i < text->len; i++) {
		unsigned char c = text->data[i];

		if (is_attr_char(c))
			buf_putc(out, (char)c);
		else
			buf_printf(out, "%%%02X", c);
	}
}

void disposition_put(
    struct buf *out, const char *name, size_t len, const char *suffix)
{
	cleanup_buf struct buf text = {0};
	struct utf8_stream u = {0};

	utf8_stream_put(&u, (const uint8_t *)name, len, &text);
	utf8_stream_end(&u, false, &text);
	buf_puts(&text, suffix);
	if (text.failed)
		out->failed = true;
	buf_puts(out, "Content-Disposition: attachment; filename=\"");
	put_fallback(out, &text);
	buf_putc(out, '"');
	if (!is_all_plain(name, len)) {
		buf_puts(out, "; filename*=UTF-8''");
		put_exact(out, &text);
	}
	buf_puts(out, "\r\n");
}
