/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/proto.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void put_u8(struct buf *b, uint8_t v)
{
	buf_put(b, &v, sizeof(v));
}

void put_bool(struct buf *b, bool v)
{
	put_u8(b, v ? 1 : 0);
}

static void store_u32(uint8_t *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

void put_u32(struct buf *b, uint32_t v)
{
	uint8_t le[4];

	store_u32(le, v);
	buf_put(b, le, sizeof(le));
}

void put_u64(struct buf *b, uint64_t v)
{
	put_u32(b, (uint32_t)v);
	put_u32(b, (uint32_t)(v >> 32));
}

void put_bytes(struct buf *b, const void *data, size_t len)
{
	if (len > UINT32_MAX) {
		b->failed = true;
		return;
	}
	put_u32(b, (uint32_t)len);
	buf_put(b, data, len);
}

void put_cstr(struct buf *b, const char *s)
{
	put_bytes(b, s, strlen(s));
}

/* The next n bytes of r, or NULL (and r is bad) when it has fewer. */
static const uint8_t *take(struct reader *r, size_t n)
{
	const uint8_t *p = r->p;

	if (r->bad || n > r->left) {
		r->bad = true;
		return NULL;
	}
	r->p += n;
	r->left -= n;
	return p;
}

static uint32_t load_u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
	       (uint32_t)p[3] << 24;
}

uint8_t get_u8(struct reader *r)
{
	const uint8_t *p = take(r, 1);

	return p != NULL ? *p : 0;
}

bool get_bool(struct reader *r)
{
	uint8_t v = get_u8(r);

	if (v > 1)
		r->bad = true;
	return v == 1;
}

uint32_t get_u32(struct reader *r)
{
	const uint8_t *p = take(r, 4);

	return p != NULL ? load_u32(p) : 0;
}

uint64_t get_u64(struct reader *r)
{
	const uint8_t *p = take(r, 8);

	return p != NULL ? load_u32(p) | (uint64_t)load_u32(p + 4) << 32 : 0;
}

const uint8_t *get_bytes(struct reader *r, size_t *ret_len)
{
	uint32_t len = get_u32(r);
	const uint8_t *p = take(r, len);

	*ret_len = p != NULL ? len : 0;
	return p;
}

bool reader_done(const struct reader *r)
{
	return !r->bad && r->left == 0;
}

static bool type_known(uint8_t type)
{
	switch ((enum proto_type)type) {
	case PROTO_RUN:
	case PROTO_STATUS:
	case PROTO_WS:
	case PROTO_WS_COMMIT:
	case PROTO_KERNEL:
	case PROTO_STATUS_REPLY:
	case PROTO_STARTED:
	case PROTO_STDOUT:
	case PROTO_STDERR:
	case PROTO_DONE:
	case PROTO_FAIL:
	case PROTO_WS_INFO:
	case PROTO_WS_ENTRIES:
	case PROTO_WS_IDS:
	case PROTO_WS_DATA:
	case PROTO_WS_END:
	case PROTO_KERNEL_INFO:
	case PROTO_ARTIFACT:
	case PROTO_ARTIFACT_DATA:
	case PROTO_GUEST_JOB:
	case PROTO_GUEST_WARM:
	case PROTO_GUEST_READY:
	case PROTO_GUEST_STARTED:
	case PROTO_GUEST_STDOUT:
	case PROTO_GUEST_STDERR:
	case PROTO_GUEST_EXIT:
	case PROTO_GUEST_FAIL:
	case PROTO_GUEST_WARMED:
	case PROTO_GUEST_KERNEL:
	case PROTO_GUEST_STEP:
	case PROTO_GUEST_INTERRUPT:
	case PROTO_GUEST_RESTORED:
	case PROTO_GUEST_KERNEL_READY:
	case PROTO_GUEST_ARTIFACT:
	case PROTO_GUEST_ARTIFACT_DATA:
	case PROTO_GUEST_STEP_DONE:
		return true;
	}
	return false;
}

size_t proto_begin(struct buf *out, enum proto_type type)
{
	size_t begun = out->len;
	const uint8_t header[PROTO_HEADER] = {0, 0, 0, 0, (uint8_t)type};

	buf_put(out, header, sizeof(header));
	return begun;
}

void proto_end(struct buf *out, size_t begun)
{
	size_t len;

	if (out->failed)
		return;
	assert(out->len >= begun + PROTO_HEADER);
	len = out->len - begun - PROTO_HEADER;
	if (len > LIMIT_FRAME) { /* the peer would hang up: do not send it */
		out->failed = true;
		return;
	}
	store_u32(out->data + begun, (uint32_t)len);
}

void proto_put_header(struct buf *out, enum proto_type type, size_t len)
{
	uint8_t header[PROTO_HEADER] = {0, 0, 0, 0, (uint8_t)type};

	if (len > LIMIT_FRAME) {
		out->failed = true;
		return;
	}
	store_u32(header, (uint32_t)len);
	buf_put(out, header, sizeof(header));
}

void proto_put_frame(
    struct buf *out, enum proto_type type, const void *payload, size_t len)
{
	size_t begun = proto_begin(out, type);

	buf_put(out, payload, len);
	proto_end(out, begun);
}

ssize_t proto_next(const uint8_t *in, size_t len, enum proto_type *ret_type,
    const uint8_t **ret_payload, size_t *ret_len)
{
	uint32_t payload_len;

	if (len < PROTO_HEADER)
		return 0;
	payload_len = load_u32(in);
	if (payload_len > LIMIT_FRAME || !type_known(in[4]) || in[5] != 0 ||
	    in[6] != 0 || in[7] != 0)
		return -EPROTO;
	if (len - PROTO_HEADER < payload_len)
		return 0;
	*ret_type = (enum proto_type)in[4];
	*ret_payload = in + PROTO_HEADER;
	*ret_len = payload_len;
	return (ssize_t)(PROTO_HEADER + payload_len);
}

/* Like write(2), but a socket whose peer is gone gives EPIPE and no signal. */
static ssize_t send_some(int fd, const uint8_t *data, size_t len)
{
	ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

	if (n < 0 && errno == ENOTSOCK)
		n = write(fd, data, len);
	return n;
}

int proto_send(int fd, const struct buf *frames)
{
	size_t sent = 0;

	if (frames->failed)
		return -ENOMEM;
	while (sent < frames->len) {
		ssize_t n =
		    send_some(fd, frames->data + sent, frames->len - sent);

		if (n > 0)
			sent += (size_t)n;
		else if (n == 0)
			return -EIO; /* never loop on no progress */
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}
