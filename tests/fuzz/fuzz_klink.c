/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel's process may write to init's socket. The first byte says what
 * init is waiting for.
 *
 * LINK: guest/klink.o
 */
#include <string.h>

#include "guest/klink.h"
#include "lib/limits.h"
#include "tests/fuzz/fuzz.h"

#define STEP 7u

static void check(const struct klink *l, const struct buf *to,
    enum klink_event event, const struct guest_step_result *x)
{
	require(l->artifacts <= LIMIT_ARTIFACTS);
	require(l->artifact_left <= LIMIT_ARTIFACT);
	require(event != KLINK_DONE || x->number == STEP);
	require(event != KLINK_DONE || (!l->stepping && x->exit_code <= 255));
	require(
	    (event == KLINK_FORWARD || event == KLINK_READY) == (to->len > 0));
}

/* init tells the supervisor nothing that it could not read as a frame. */
static void check_forwarded(const struct buf *to)
{
	const uint8_t *payload;
	enum proto_type type;
	size_t len;

	require(proto_next(to->data, to->len, &type, &payload, &len) ==
		(ssize_t)to->len);
	require(type == PROTO_GUEST_ARTIFACT ||
		type == PROTO_GUEST_ARTIFACT_DATA ||
		type == PROTO_GUEST_KERNEL_READY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct klink l = {.fd = -1};
	cleanup_buf struct buf to = {0};
	enum klink_event event = KLINK_FORWARD;
	struct guest_step_result x;
	struct err e;

	if (size == 0)
		return 0;
	l.expects_ready = (data[0] & 1) != 0;
	l.stepping = (data[0] & 2) != 0;
	l.tells_start = (data[0] & 4) != 0;
	l.started = (data[0] & 8) != 0;
	l.step = STEP;
	buf_put(&l.in, data + 1, size - 1);
	while (event != KLINK_NONE) {
		buf_clear(&to);
		if (klink_next(&l, &to, &event, &x, &e) < 0) {
			require(e.msg[0] != '\0');
			break;
		}
		check(&l, &to, event, &x);
		if (to.len > 0)
			check_forwarded(&to);
	}
	klink_done(&l);
	return 0;
}
