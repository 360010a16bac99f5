/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames with the artifacts of a kernel's step, of which the program has chosen
 * every byte: what is made of them is well-formed JSON.
 *
 * LINK: fcgi/artifacts.o fcgi/text.o
 */
#include "fcgi/artifacts.h"
#include "lib/json.h"
#include "lib/proto.h"
#include "tests/fuzz/fuzz.h"

static void check_json(const struct artifacts *a)
{
	cleanup_buf struct buf all = {0};
	struct json_object *root = NULL;
	struct json_object *list = NULL;
	struct err e;

	buf_puts(&all, "{\"artifacts\":[");
	buf_put(&all, a->json.data, a->json.len);
	buf_puts(&all, "]}");
	require(json_parse_strict(all.data, all.len, &root, &e) == 0);
	require(json_get_arr(root, "artifacts", "", &list, &e) > 0);
	require(json_object_array_length(list) <= a->count);
	require(a->dropped || json_object_array_length(list) == a->count);
	require(json_object_put(root) == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct artifacts a = {0};
	enum proto_type type;
	const uint8_t *payload;
	struct err e;
	size_t len;
	ssize_t n;
	int r = 0;

	while (
	    r == 0 && (n = proto_next(data, size, &type, &payload, &len)) > 0) {
		if (type == PROTO_ARTIFACT)
			r = artifacts_begin(&a, payload, len, &e);
		else if (type == PROTO_ARTIFACT_DATA)
			r = artifacts_data(&a, payload, len, &e);
		data += n;
		size -= (size_t)n;
	}
	require(a.count <= LIMIT_ARTIFACTS);
	artifacts_end(&a);
	check_json(&a);
	artifacts_drop(&a);
	check_json(&a);
	artifacts_done(&a);
	return 0;
}
