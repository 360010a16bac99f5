/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kernelproto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hostname.h"
#include "lib/limits.h"
#include "lib/payload.h"
#include "lib/proto.h"

static const char *const what = "kernel request";

void kernel_request_encode(const struct kernel_request *q, struct buf *out)
{
	put_u8(out, (uint8_t)q->op);
	put_blob(out, &q->request_id);
	put_blob(out, &q->id);
	put_blob(out, &q->new_id);
	put_blob(out, &q->runtime);
	put_blob(out, &q->version);
	put_blob(out, &q->volume);
	put_bool(out, q->network);
	put_blobs(out, q->allow, q->allow_count);
	put_u64(out, q->tenant);
}

static bool op_known(uint8_t op)
{
	switch ((enum kernel_op)op) {
	case KERNEL_CREATE:
	case KERNEL_INTERRUPT:
	case KERNEL_FORK:
	case KERNEL_STAT:
		return true;
	}
	return false;
}

static int check_create(const struct kernel_request *q, struct err *e)
{
	if (!blob_is_word(&q->runtime) || !blob_is_word(&q->version))
		return payload_refuse(e, what, "bad runtime or version");
	if (q->volume.len > 0 && !blob_is_id(&q->volume))
		return payload_refuse(e, what, "bad volume");
	if (q->allow_count > 0 && !q->network)
		return payload_refuse(e, what, "names without a network");
	for (size_t i = 0; i < q->allow_count; i++)
		if (hostname_check_pattern(
			(const char *)q->allow[i].data, q->allow[i].len, e) < 0)
			return payload_refuse(e, what, "bad host name");
	return 0;
}

static int request_check(const struct kernel_request *q, struct err *e)
{
	if (!blob_is_id(&q->request_id) || !blob_is_id(&q->id))
		return payload_refuse(e, what, "bad id");
	if (q->op == KERNEL_FORK ? !blob_is_id(&q->new_id) : q->new_id.len > 0)
		return payload_refuse(e, what, "bad new id");
	if (q->op == KERNEL_CREATE)
		return check_create(q, e);
	if (q->runtime.len > 0 || q->version.len > 0 || q->volume.len > 0 ||
	    q->network || q->allow_count > 0 || q->tenant != 0)
		return payload_refuse(e, what, "more than it needs");
	return 0;
}

static int request_read(
    struct reader *r, struct kernel_request *q, struct err *e)
{
	uint8_t op = get_u8(r);
	int rc;

	if (!op_known(op))
		return payload_refuse(e, what, "unknown operation");
	q->op = (enum kernel_op)op;
	q->request_id = get_blob(r);
	q->id = get_blob(r);
	q->new_id = get_blob(r);
	q->runtime = get_blob(r);
	q->version = get_blob(r);
	q->volume = get_blob(r);
	q->network = get_bool(r);
	rc = get_strings(r, LIMIT_ALLOW, what, &q->allow, &q->allow_count, e);
	if (rc < 0)
		return rc;
	q->tenant = get_u64(r);
	rc = payload_finish(r, what, e);
	return rc < 0 ? rc : request_check(q, e);
}

int kernel_request_decode(const uint8_t *payload, size_t len,
    struct kernel_request *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct kernel_request q = {0};
	int rc = request_read(&r, &q, e);

	if (rc < 0)
		kernel_request_done(&q);
	else
		*ret = q;
	return rc;
}

void kernel_request_done(struct kernel_request *q)
{
	free(q->allow);
	*q = (struct kernel_request){0};
}

void kernel_info_encode(const struct kernel_info *i, struct buf *out)
{
	put_u8(out, (uint8_t)i->state);
	put_bool(out, i->busy);
	put_cstr(out, i->reason);
	put_u64(out, (uint64_t)i->memory_bytes);
	put_u64(out, i->checkpoint_bytes);
	put_u64(out, i->steps);
	put_bool(out, i->network);
	put_cstr(out, i->network_reason);
}

int kernel_info_decode(
    const uint8_t *payload, size_t len, struct kernel_info *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct kernel_info i = {0};
	uint8_t state = get_u8(&r);
	int rc;

	i.busy = get_bool(&r);
	get_text(&r, i.reason, sizeof(i.reason));
	i.memory_bytes = (int64_t)get_u64(&r);
	i.checkpoint_bytes = get_u64(&r);
	i.steps = get_u64(&r);
	i.network = get_bool(&r);
	get_text(&r, i.network_reason, sizeof(i.network_reason));
	rc = payload_finish(&r, "kernel info", e);
	if (rc < 0)
		return rc;
	if (state < KERNEL_STARTING || state > KERNEL_DEAD ||
	    i.memory_bytes < -1)
		return payload_refuse(e, "kernel info", "impossible values");
	i.state = (enum kernel_state)state;
	*ret = i;
	return 0;
}

const char *kernel_state_word(enum kernel_state state)
{
	switch (state) {
	case KERNEL_STARTING:
		return "starting";
	case KERNEL_RESIDENT:
		return "resident";
	case KERNEL_HIBERNATED:
		return "hibernated";
	case KERNEL_DEAD:
		return "dead";
	}
	return "unknown";
}
