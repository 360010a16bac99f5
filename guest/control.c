/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define CHUNK (64u * 1024)

static void wait_until_writable(int fd)
{
	struct pollfd f = {fd, POLLOUT, 0};

	(void)poll(&f, 1, -1);
}

/* SIGPIPE is blocked in init (boot.c), so a broken pipe is an EPIPE. */
static int write_all(int fd, const uint8_t *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n > 0) {
			data += n;
			len -= (size_t)n;
		} else if (n == 0) {
			return -EIO;
		} else if (errno == EAGAIN) {
			wait_until_writable(fd);
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

int control_flush(struct control *c, struct err *e)
{
	int rc = -ENOMEM;

	if (!c->out.failed)
		rc = write_all(CONTROL_OUT, c->out.data, c->out.len);
	buf_clear(&c->out);
	return rc < 0 ? err_sys(e, -rc, "cannot write a frame") : 0;
}

int control_unblock(struct err *e)
{
	if (fcntl(CONTROL_OUT, F_SETFL, O_NONBLOCK) != 0)
		return err_sys(e, errno, "O_NONBLOCK");
	return 0;
}

int control_push(struct control *c, struct err *e)
{
	ssize_t n;

	if (c->out.failed)
		return err_sys(e, ENOMEM, "cannot write a frame");
	if (c->out.len == 0)
		return 0;
	n = write(CONTROL_OUT, c->out.data, c->out.len);
	if (n > 0)
		buf_consume(&c->out, (size_t)n);
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		return err_sys(e, errno, "cannot write a frame");
	return 0;
}

int control_send(struct control *c, enum proto_type type, const void *payload,
    size_t len, struct err *e)
{
	proto_put_frame(&c->out, type, payload, len);
	return control_flush(c, e);
}

/* One read into c->in: 0 at the end of the pipe. */
static ssize_t receive(struct control *c, struct err *e)
{
	uint8_t *room = buf_reserve(&c->in, CHUNK);
	ssize_t n;

	if (room == NULL)
		return err_sys(e, ENOMEM, "cannot read the control pipe");
	do
		n = read(CONTROL_IN, room, CHUNK);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(e, errno, "cannot read the control pipe");
	c->in.len += (size_t)n;
	return n;
}

int control_read(struct control *c, struct err *e)
{
	ssize_t n = receive(c, e);

	if (n < 0)
		return (int)n;
	if (n == 0)
		return err_set(
		    e, ERR_INTERNAL, EPIPE, "the control pipe was closed");
	return 0;
}

int control_next(struct control *c, enum proto_type *ret_type,
    struct blob *ret_payload, struct err *e)
{
	const uint8_t *payload;
	size_t len;
	ssize_t taken;

	buf_consume(&c->in, c->taken);
	c->taken = 0;
	/* proto_next() refuses a length beyond LIMIT_FRAME at once: c->in
	 * cannot grow further than that and a chunk. */
	taken = proto_next(c->in.data, c->in.len, ret_type, &payload, &len);
	if (taken < 0)
		return err_set(
		    e, ERR_INTERNAL, EPROTO, "what came is not a frame");
	if (taken == 0)
		return 0;
	c->taken = (size_t)taken;
	*ret_payload = (struct blob){payload, len};
	return 1;
}

int control_receive(struct control *c, enum proto_type *ret_type,
    struct blob *ret_payload, struct err *e)
{
	int rc;

	while ((rc = control_next(c, ret_type, ret_payload, e)) == 0) {
		const bool between = c->in.len == 0;

		rc = control_read(c, e);
		if (rc == -EPIPE && !between)
			return err_set(e, ERR_INTERNAL, EPROTO,
			    "the control pipe ended before the job");
		if (rc < 0)
			return rc;
	}
	return rc < 0 ? rc : 0;
}

bool control_pending(const struct control *c)
{
	return c->in.len > c->taken;
}

int control_check(struct err *e)
{
	uint8_t byte;
	ssize_t n = read(CONTROL_IN, &byte, 1);

	if (n > 0)
		return err_set(
		    e, ERR_INTERNAL, EPROTO, "a frame came after the job");
	if (n == 0)
		return err_set(
		    e, ERR_INTERNAL, EPIPE, "the control pipe was closed");
	if (errno == EINTR)
		return 0;
	return err_sys(e, errno, "cannot read the control pipe");
}

void control_fail(struct control *c, const struct err *e)
{
	struct err ignored;
	size_t begun;

	(void)dprintf(STDERR_FILENO, "isobox-init: %s\n", e->msg);
	buf_clear(&c->out);
	begun = proto_begin(&c->out, PROTO_GUEST_FAIL);
	put_cstr(&c->out, e->msg);
	proto_end(&c->out, begun);
	(void)control_flush(c, &ignored);
}

void control_done(struct control *c)
{
	buf_free(&c->in);
	buf_free(&c->out);
}
