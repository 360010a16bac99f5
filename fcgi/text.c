/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/text.h"

#include <sodium.h>
#include <string.h>

#include "lib/json.h"
#include "lib/utf8.h"

void text_put_utf8(struct buf *out, const uint8_t *data, size_t len)
{
	json_put_str(out, len > 0 ? (const char *)data : "", len);
}

void text_put_base64(struct buf *out, const uint8_t *data, size_t len)
{
	size_t size =
	    sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
	uint8_t *room;

	buf_putc(out, '"');
	room = buf_reserve(out, size);
	if (room == NULL)
		return;
	(void)sodium_bin2base64(
	    (char *)room, size, data, len, sodium_base64_VARIANT_ORIGINAL);
	out->len += size - 1; /* without its NUL */
	buf_putc(out, '"');
}

void text_put_decoded(
    struct buf *out, const uint8_t *data, size_t len, bool cut)
{
	cleanup_buf struct buf text = {0};
	struct utf8_stream u = {0};

	if (len > 0)
		utf8_stream_put(&u, data, len, &text);
	utf8_stream_end(&u, cut, &text);
	if (text.failed)
		out->failed = true;
	else
		text_put_utf8(out, text.data, text.len);
}

#define SPACE " \t\r\n"

void text_hide_paths(struct buf *out, const char *reason)
{
	while (*reason != '\0') {
		size_t space = strspn(reason, SPACE);
		const char *word = reason + space;
		size_t len = strcspn(word, SPACE);
		size_t end = len;

		buf_put(out, reason, space);
		reason = word + len;
		if (memchr(word, '/', len) == NULL) {
			buf_put(out, word, len);
			continue;
		}
		while (strchr(":;,", word[end - 1]) != NULL)
			end--; /* the slash stops it */
		buf_puts(out, "[path]");
		buf_put(out, word + end, len - end);
	}
}

void text_put_reason(struct buf *out, const char *reason)
{
	cleanup_buf struct buf text = {0};

	text_hide_paths(&text, reason);
	if (text.failed)
		out->failed = true;
	else
		text_put_decoded(out, text.data, text.len, false);
}
