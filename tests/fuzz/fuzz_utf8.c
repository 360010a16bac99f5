/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "lib/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/whatwg.h"

/* The first byte says in what pieces the rest is decoded. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece = size > 0 ? data[0] % 7u + 1 : 1;
	const uint8_t *s = size > 0 ? data + 1 : data;
	size_t len = size > 0 ? size - 1 : 0;
	struct utf8_stream u = {0};
	cleanup_buf struct buf out = {0};
	cleanup_buf struct buf want = {0};
	size_t bad = len;

	for (size_t i = 0; i < len; i += piece)
		utf8_stream_put(
		    &u, s + i, len - i < piece ? len - i : piece, &out);
	utf8_stream_end(&u, false, &out);
	whatwg_decode(s, len, &want);
	require(out.len == want.len);
	require(out.len == 0 || memcmp(out.data, want.data, out.len) == 0);
	require(utf8_valid(out.data, out.len, NULL));
	if (utf8_valid(s, len, &bad)) {
		require(out.len == len);
		require(len == 0 || memcmp(out.data, s, len) == 0);
	} else {
		require(bad < len);
		require(utf8_valid(s, bad, NULL));
		require(memcmp(out.data, s, bad) == 0);
		require(memcmp(out.data + bad, WHATWG_FFFD, 3) == 0);
	}
	return 0;
}
