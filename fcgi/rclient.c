/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/rclient.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/utf8.h"

#define READ_SIZE (64u * 1024)

static int failed(struct err *e, int code, const char *what)
{
	return err_set(e, ERR_SANDBOX_FAILED, code, "isobox-runner %s: %s",
	    what, strerror(code));
}

static int misbehaves(struct err *e)
{
	return err_set(e, ERR_SANDBOX_FAILED, EPROTO,
	    "isobox-runner does not keep to the protocol");
}

/* The time that connect(2), to a full backlog, and send(2) may take. */
static void set_timeout(int fd, unsigned timeout_ms)
{
	const struct timeval t = {.tv_sec = timeout_ms / 1000,
	    .tv_usec = (suseconds_t)(timeout_ms % 1000) * 1000};

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

int rclient_open(
    struct rclient *c, const char *path, unsigned timeout_ms, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	memset(c, 0, sizeof(*c));
	c->fd = c->passed = -1;
	if (strlen(path) >= sizeof(a.sun_path))
		return failed(e, ENAMETOOLONG, "cannot be reached");
	memcpy(a.sun_path, path, strlen(path) + 1);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return failed(e, errno, "cannot be reached");
	set_timeout(c->fd, timeout_ms);
	if (connect(c->fd, (const struct sockaddr *)&a, sizeof(a)) < 0) {
		int code = errno;

		rclient_close(c);
		return failed(e, code, "cannot be reached");
	}
	return 0;
}

void rclient_close(struct rclient *c)
{
	if (c->fd >= 0)
		(void)close(c->fd);
	if (c->passed >= 0)
		(void)close(c->passed);
	c->fd = c->passed = -1;
	buf_free(&c->in);
}

int rclient_send(struct rclient *c, const struct buf *frames, struct err *e)
{
	int r = proto_send(c->fd, frames);

	/* It may have refused, and said why, before it read all. */
	if (r == -EPIPE || r == -ECONNRESET)
		return 0;
	return r < 0 ? failed(e, -r, "takes no request") : 0;
}

static int next_frame(struct rclient *c, enum proto_type *ret_type,
    const uint8_t **ret_payload, size_t *ret_len, struct err *e)
{
	ssize_t n;

	if (c->used == c->in.len)
		return 0;
	n = proto_next(c->in.data + c->used, c->in.len - c->used, ret_type,
	    ret_payload, ret_len);
	if (n < 0)
		return misbehaves(e);
	c->used += (size_t)n;
	return n > 0;
}

bool rclient_has_frame(const struct rclient *c)
{
	enum proto_type type;
	const uint8_t *payload;
	size_t len;

	return c->used < c->in.len &&
	       proto_next(c->in.data + c->used, c->in.len - c->used, &type,
		   &payload, &len) != 0;
}

/* Takes the descriptors of a message: one at a time, and no more than one that
 * nobody has taken yet. */
static int take_passed(struct rclient *c, struct msghdr *m)
{
	int r = (m->msg_flags & MSG_CTRUNC) != 0 ? -EPROTO : 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL;
	     h = CMSG_NXTHDR(m, h)) {
		int fd;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS ||
		    h->cmsg_len != CMSG_LEN(sizeof(fd)))
			continue;
		memcpy(&fd, CMSG_DATA(h), sizeof(fd));
		if (c->passed < 0) {
			c->passed = fd;
		} else {
			(void)close(fd);
			r = -EPROTO;
		}
	}
	return r;
}

static int receive(struct rclient *c, struct err *e)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_len = READ_SIZE};
	struct msghdr m = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = control.bytes,
	    .msg_controllen = sizeof(control.bytes)};
	ssize_t n;

	buf_consume(&c->in, c->used);
	c->used = 0;
	iov.iov_base = buf_reserve(&c->in, READ_SIZE);
	if (iov.iov_base == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "no memory");
	n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return err_set(e, ERR_SANDBOX_FAILED, EPIPE,
		    "isobox-runner closed the connection before the end");
	c->in.len += (size_t)n;
	return take_passed(c, &m) < 0 ? misbehaves(e) : 0;
}

static int watch(struct rclient *c, struct out *out, int timeout, struct err *e)
{
	struct pollfd p[2] = {{.fd = c->fd, .events = POLLIN}, {.fd = -1}};

	if (out != NULL) {
		p[1].fd = out->watch_fd;
		p[1].events = out->watch_events;
	}
	if (out != NULL && out->gone) /* a write of ours failed */
		timeout = 0;
	if (poll(p, 2, timeout) < 0 && errno != EINTR)
		return err_sys(e, errno, "poll");
	if (out != NULL && out_is_gone(out, p[1].revents))
		return err_set(e, ERR_CLIENT_GONE, EPIPE, "the client is gone");
	return p[0].revents != 0 ? receive(c, e) : 0;
}

int rclient_next(struct rclient *c, struct out *out, uint64_t deadline_ms,
    enum proto_type *ret_type, const uint8_t **ret_payload, size_t *ret_len,
    struct err *e)
{
	for (;;) {
		int r = next_frame(c, ret_type, ret_payload, ret_len, e);
		int left;

		if (r != 0)
			return r;
		left = clock_left_ms(deadline_ms);
		r = watch(c, out, left, e);
		if (r < 0)
			return r;
		if (left == 0 && !rclient_has_frame(c))
			return 0;
	}
}

static enum err_kind kind_told(const struct told *told, uint32_t kind)
{
	for (size_t i = 0; i < told->count; i++)
		if (kind == (uint32_t)told->kinds[i])
			return told->kinds[i];
	return ERR_SANDBOX_FAILED;
}

int rclient_failure(const struct told *told, const uint8_t *payload, size_t len,
    unsigned *ret_retry_after_s, struct err *e)
{
	struct reader in = {payload, len, false};
	enum err_kind kind = kind_told(told, get_u32(&in));
	unsigned retry_after_s = get_u32(&in);
	size_t text_len;
	const uint8_t *text = get_bytes(&in, &text_len);

	if (!reader_done(&in) || !utf8_valid(text, text_len, NULL)) {
		(void)misbehaves(e);
		return err_set(e, e->kind, e->code, "%s: bad failure", e->msg);
	}
	if (retry_after_s == 0 &&
	    (kind == ERR_CAPACITY || kind == ERR_SESSION_BUSY ||
		kind == ERR_TOO_MANY_KERNELS))
		retry_after_s = 1;
	*ret_retry_after_s = retry_after_s;
	return err_set(e, kind, EIO, "%.*s",
	    (int)(text_len < sizeof(e->msg) ? text_len : sizeof(e->msg)),
	    text_len > 0 ? (const char *)text : "");
}

static int read_status(struct rclient *c, unsigned timeout_ms,
    struct runner_status *ret, struct err *e)
{
	enum proto_type type;
	const uint8_t *payload;
	size_t len;
	int r = rclient_next(
	    c, NULL, clock_ms() + timeout_ms, &type, &payload, &len, e);

	if (r < 0)
		return r;
	if (r == 0)
		return failed(e, ETIMEDOUT, "does not answer");
	if (type != PROTO_STATUS_REPLY)
		return misbehaves(e);
	if (runner_status_decode(payload, len, ret, e) < 0)
		return misbehaves(e);
	return 0;
}

int rclient_status(const char *path, unsigned timeout_ms,
    struct runner_status *ret, struct err *e)
{
	cleanup_buf struct buf frame = {0};
	struct rclient c;
	int r;

	proto_put_frame(&frame, PROTO_STATUS, NULL, 0);
	r = rclient_open(&c, path, timeout_ms, e);
	if (r < 0)
		return r;
	r = rclient_send(&c, &frame, e);
	if (r >= 0)
		r = read_status(&c, timeout_ms, ret, e);
	rclient_close(&c);
	return r;
}
