/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/conn.h"

#include <errno.h>
#include <fcgiapp.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fcgi/bulk.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/limits.h"

/* A client that takes nothing for so long is given up: a front server that
 * passes on what it gets stops reading when its client does. */
#define SEND_TIMEOUT_S 30

/* One that takes a little now and then is given up as well, when an answer has
 * waited for it so long in all, and a second more for so many bytes of it: a
 * thread is not held for a whole afternoon. */
#define WAIT_MAX_US (30u * 1000000u)
#define SEND_RATE_MIN (32u * 1024)

/* What libfcgi gets at once, so that the time is looked at between. */
#define PIECE (16u * 1024)

/* Bytes behind a request that are kept while it is served. */
#define PENDING_MAX (64u * 1024)

/* How fast a body has to come at least, after half a minute: a thread waits. */
#define BODY_GRACE_US (30u * 1000000u)
#define BODY_RATE_MIN (32u * 1024) /* bytes a second */

/* What is dropped behind an answer, so that a front server which sends a body
 * first can deliver it: several times what any request may have, for a body that
 * is refused is larger than that. */
#define DRAIN_MAX (64u << 20)

/* A body as it comes. */
struct stream {
	struct body body; /* first: refill() casts back */
	struct conn *conn;
	struct out *out;
	uint64_t begun_us;
};

struct conn_io {
	struct out out; /* first: the callbacks cast back */
	struct stream stream;
	FCGX_Request request;
	int pipe[2];
	struct buf head;
	struct conn *conn; /* being served */
	uint64_t waited_us; /* in writes, for this answer */
};

int conn_setup(struct err *e)
{
	if (FCGX_Init() != 0)
		return err_set(e, ERR_INTERNAL, 0, "libfcgi cannot start");
	return 0;
}

int conn_new(int fd, struct conn **ret)
{
	const struct timeval timeout = {.tv_sec = SEND_TIMEOUT_S};
	struct conn *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		(void)close(fd);
		return -ENOMEM;
	}
	(void)setsockopt(
	    fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	c->fd = fd;
	*ret = c;
	return 0;
}

void conn_free(struct conn *c)
{
	(void)close(c->fd);
	record_free(&c->in);
	buf_free(&c->pending);
	free(c);
}

static int take(struct conn *c, const uint8_t *data, size_t len, struct err *e)
{
	ssize_t n = record_put(&c->in, data, len, e);

	if (n < 0)
		return (int)n;
	buf_put(&c->pending, data + n, len - (size_t)n);
	if (c->pending.failed)
		return err_set(
		    e, ERR_INTERNAL, ENOMEM, "no memory for a request");
	return 0;
}

static int closed(const struct conn *c, struct err *e)
{
	bool between = c->in.state == RECORD_IDLE && c->in.header_len == 0;

	return err_set(e, ERR_INTERNAL,
	    between || c->draining ? ECONNRESET : EPROTO,
	    "the peer closed the connection");
}

/* What the bytes so far amount to. */
static int judge(struct conn *c, struct err *e)
{
	if (!c->draining) {
		c->large = record_is_large(&c->in);
		return c->large || record_is_whole(&c->in);
	}
	if (record_is_whole(&c->in))
		return closed(c, e);
	if (c->in.body_len > DRAIN_MAX)
		return err_set(e, ERR_INTERNAL, EFBIG,
		    "more than %u bytes of a body that nobody wanted",
		    DRAIN_MAX);
	return 0;
}

static int take_and_judge(
    struct conn *c, const uint8_t *data, size_t len, struct err *e)
{
	int r = take(c, data, len, e);

	return r < 0 ? r : judge(c, e);
}

int conn_read(struct conn *c, uint8_t scratch[CONN_SCRATCH], struct err *e)
{
	ssize_t n = recv(c->fd, scratch, CONN_SCRATCH, MSG_DONTWAIT);

	if (n > 0)
		return take_and_judge(c, scratch, (size_t)n, e);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		return err_sys(e, errno, "read");
	return closed(c, e);
}

int conn_next(struct conn *c, struct err *e)
{
	cleanup_buf struct buf pending = c->pending;

	c->pending = (struct buf){0};
	if (record_is_whole(&c->in)) {
		record_reset(&c->in);
	} else {
		/* No request may follow on a connection whose peer is in the
		 * middle of this one: it is told that none will be answered. */
		(void)shutdown(c->fd, SHUT_WR);
		buf_free(&c->in.body);
		c->in.drop = true;
		c->in.body_len = 0; /* counts what is dropped */
		c->draining = true;
	}
	return take_and_judge(c, pending.data, pending.len, e);
}

bool conn_has_room(const struct conn *c)
{
	int unread;

	return ioctl(c->fd, SIOCOUTQ, &unread) == 0 && unread == 0;
}

/* Half a request behind this one is none of our business yet, but an abort is.
 * What cannot be kept stays in the socket, and is not looked at again. */
static bool aborted(struct out *o)
{
	struct conn_io *io = (struct conn_io *)o;
	struct conn *c = io->conn;
	uint8_t data[4096];
	ssize_t n;

	if (c->pending.len + sizeof(data) > PENDING_MAX) {
		o->watch_events = (short)(o->watch_events & ~POLLIN);
		return false;
	}
	n = recv(c->fd, data, sizeof(data), MSG_DONTWAIT);
	if (n < 0)
		return errno != EAGAIN && errno != EINTR;
	if (n == 0)
		return true;
	buf_put(&c->pending, data, (size_t)n);
	return c->pending.failed ||
	       record_is_abort(&c->in, c->pending.data, c->pending.len);
}

static int too_slow(struct err *e)
{
	return err_set(e, ERR_INVALID_REQUEST, ETIMEDOUT,
	    "the body came too slowly: %u bytes a second are the least",
	    BODY_RATE_MIN);
}

/* Waits until there is something to read. */
static int wait_for_bytes(const struct stream *s, struct err *e)
{
	uint64_t deadline_us = s->begun_us + BODY_GRACE_US +
			       s->conn->in.body_len * 1000000u / BODY_RATE_MIN;
	struct pollfd p = {.fd = s->conn->fd, .events = POLLIN};

	if (poll(&p, 1, clock_left_ms(deadline_us / 1000)) == 0)
		return too_slow(e);
	return 0;
}

/* Takes the next bytes, or waits for them. */
static int receive(struct stream *s, struct err *e)
{
	uint8_t data[CONN_SCRATCH];
	ssize_t n = recv(s->conn->fd, data, sizeof(data), MSG_DONTWAIT);

	if (n > 0)
		return take(s->conn, data, (size_t)n, e);
	if (n < 0 && errno == EAGAIN)
		return wait_for_bytes(s, e);
	if (n < 0 && errno == EINTR)
		return 0;
	return closed(s->conn, e);
}

/* Bytes that came behind what there was room for. */
static int take_pending(struct conn *c, struct err *e)
{
	cleanup_buf struct buf pending = c->pending;

	c->pending = (struct buf){0};
	return take(c, pending.data, pending.len, e);
}

static int refill(struct body *b, struct err *e)
{
	struct stream *s = (struct stream *)b;
	struct record_in *in = &s->conn->in;
	int r = 0;

	buf_clear(&in->body);
	while (r == 0 && in->body.len == 0 && !record_is_whole(in))
		r = s->conn->pending.len > 0 ? take_pending(s->conn, e)
					     : receive(s, e);
	if (r < 0 && e->code != ETIMEDOUT) {
		s->out->gone = true;
		e->kind = ERR_CLIENT_GONE;
	}
	b->data = in->body.data;
	b->len = in->body.len;
	b->taken = 0;
	b->total = in->body_len;
	b->whole = record_is_whole(in);
	return r;
}

static int count_wait(struct conn_io *io, uint64_t begun_us)
{
	uint64_t most = WAIT_MAX_US + io->out.bytes * 1000000u / SEND_RATE_MIN;

	io->waited_us += clock_us() - begun_us;
	return io->waited_us > most ? -1 : 0;
}

static int write_out(struct out *o, const void *data, size_t len)
{
	struct conn_io *io = (struct conn_io *)o;
	const char *p = data;

	while (len > 0) {
		size_t n = len < PIECE ? len : PIECE;
		uint64_t begun_us = clock_us();

		if (FCGX_PutStr(p, (int)n, io->request.out) < 0 ||
		    count_wait(io, begun_us) < 0)
			return -1;
		p += n;
		len -= n;
	}
	return 0;
}

/* A flush after a failed one answers 0; only FCGX_GetError() remembers. */
static int flush_out(struct out *o)
{
	struct conn_io *io = (struct conn_io *)o;
	uint64_t begun_us = clock_us();

	if (FCGX_FFlush(io->request.out) < 0 || count_wait(io, begun_us) < 0)
		return -1;
	return FCGX_GetError(io->request.out) == 0 ? 0 : -1;
}

static ssize_t send_file(struct out *o, int fd, uint64_t offset, size_t len)
{
	struct conn_io *io = (struct conn_io *)o;
	size_t n = len < BULK_RECORD_MAX ? len : BULK_RECORD_MAX;
	uint64_t begun_us = clock_us();

	if (bulk_send(io->conn->fd, io->conn->in.id, fd, offset, n) < 0 ||
	    count_wait(io, begun_us) < 0)
		return -1;
	return (ssize_t)n;
}

/* err first, and never written: then it adds no record. Closing a stream writes
 * once more; to a client that takes nothing that must not wait again. */
static int finish_out(struct out *o)
{
	struct conn_io *io = (struct conn_io *)o;

	if (o->gone)
		(void)shutdown(io->conn->fd, SHUT_RDWR);
	(void)FCGX_FClose(io->request.err);
	return FCGX_FClose(io->request.out) == 0 ? 0 : -1;
}

static int open_pipe(struct conn_io *io, struct err *e)
{
	int size;

	if (pipe2(io->pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
		io->pipe[0] = io->pipe[1] = -1;
		return err_sys(e, errno, "pipe");
	}
	size = fcntl(io->pipe[1], F_GETPIPE_SZ);
	if (size < (int)LIMIT_PARAMS)
		size = fcntl(io->pipe[1], F_SETPIPE_SZ, (int)LIMIT_PARAMS);
	if (size < (int)LIMIT_PARAMS)
		return err_set(e, ERR_INTERNAL, EPERM,
		    "no pipe of %u bytes: the user has too many "
		    "(/proc/sys/fs/pipe-user-pages-soft)",
		    LIMIT_PARAMS);
	return 0;
}

static void close_pipe(struct conn_io *io)
{
	for (int i = 0; i < 2; i++)
		if (io->pipe[i] >= 0)
			(void)close(io->pipe[i]);
	io->pipe[0] = io->pipe[1] = -1;
}

int conn_io_new(struct conn_io **ret, struct err *e)
{
	struct conn_io *io = calloc(1, sizeof(*io));
	int r;

	if (io == NULL)
		return err_sys(e, ENOMEM, "a worker");
	io->out.write = write_out;
	io->out.flush = flush_out;
	io->out.send_file = send_file;
	io->out.finish = finish_out;
	io->out.aborted = aborted;
	(void)FCGX_InitRequest(&io->request, -1, 0);
	r = open_pipe(io, e);
	if (r < 0) {
		conn_io_free(io);
		return r;
	}
	*ret = io;
	return 0;
}

void conn_io_free(struct conn_io *io)
{
	close_pipe(io);
	buf_free(&io->head);
	free(io);
}

/*
 * Lets libfcgi read the head. keepConnection keeps its FCGX_Finish_r() from
 * closing what is not its own. It fails only when memory is out, then the pipe
 * is closed by it and half read: it is made anew.
 */
static int decode_head(struct conn_io *io, struct err *e)
{
	FCGX_Request *r = &io->request;
	struct err again;

	r->ipcFd = io->pipe[0];
	r->keepConnection = 1;
	r->detached = 1; /* no shutdown(2), no waiting at a close */
	if (FCGX_Accept_r(r) >= 0)
		return 0;
	io->pipe[0] = r->ipcFd; /* -1: libfcgi closed it */
	close_pipe(io);
	if (open_pipe(io, &again) < 0)
		close_pipe(io);
	return err_set(e, ERR_INTERNAL, EPROTO, "libfcgi refused a head");
}

static void begin_body(struct conn_io *io, struct conn *c)
{
	io->stream = (struct stream){
	    .body = {.data = c->in.body.data,
		.len = c->in.body.len,
		.total = c->in.body_len,
		.whole = record_is_whole(&c->in),
		.refill = refill},
	    .conn = c,
	    .out = &io->out,
	    .begun_us = clock_us(),
	};
}

int conn_begin(
    struct conn_io *io, struct conn *c, struct conn_request *ret, struct err *e)
{
	ssize_t n;
	int r;

	if (io->pipe[0] < 0 && (r = open_pipe(io, e)) < 0) {
		close_pipe(io);
		return r;
	}
	buf_clear(&io->head);
	record_head(&c->in, &io->head);
	if (io->head.failed)
		return err_sys(e, ENOMEM, "a request's head");
	n = write(io->pipe[1], io->head.data, io->head.len);
	if (n != (ssize_t)io->head.len) { /* cannot be: it has the room */
		close_pipe(io);
		return err_set(e, ERR_INTERNAL, EIO, "a short write");
	}
	r = decode_head(io, e);
	if (r < 0)
		return r;
	io->request.ipcFd = c->fd;
	io->conn = c;
	io->waited_us = 0;
	io->out.watch_fd = c->fd;
	io->out.watch_events = POLLIN | POLLRDHUP;
	io->out.gone = false;
	io->out.bytes = 0;
	begin_body(io, c);
	*ret =
	    (struct conn_request){io->request.envp, &io->out, &io->stream.body};
	return 0;
}

bool conn_end(struct conn_io *io)
{
	/* What is whole ends here unless the peer keeps the connection; of the
	 * rest something is still under way. */
	bool good = !io->out.gone &&
		    (io->conn->in.keep_conn || !record_is_whole(&io->conn->in));

	FCGX_Free(&io->request, 0);
	io->request.ipcFd = -1;
	io->conn = NULL;
	return good;
}
