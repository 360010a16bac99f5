/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stamp of a checkpoint. What is taken has one way to be written.
 *
 * LINK: runner/checkpoint_stamp.o runner/bundle.o runner/runsc.o
 */
#include <string.h>

#include "runner/checkpoint_stamp.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_buf struct buf text = {0};
	struct stamp_manifest m;
	struct err e;

	if (stamp_decode(data, size, &m, &e) < 0)
		return 0;
	require(m.file_count > 0 && m.file_count <= STAMP_FILES_MAX);
	for (size_t i = 0; i < m.file_count; i++)
		require(
		    stamp_name_ok(m.files[i].name, strlen(m.files[i].name)));
	stamp_encode(&m, &text);
	require(text.len == size && memcmp(text.data, data, size) == 0);
	return 0;
}
