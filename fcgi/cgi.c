/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/cgi.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fcgi/exchange.h"
#include "lib/clock.h"
#include "lib/limits.h"
#include "lib/log.h"

#define READ_GRACE_MS 30000u /* then a body has to come this fast: */
#define BODY_RATE_MIN (32u * 1024) /* bytes a second */
#define READ_STEP 16384u
#define WRITE_MAX_MS 30000 /* for the web server to take some of the answer */
#define DISCARD_MAX (64u << 20) /* read of a body that nobody wanted */
#define BUFFER_SIZE 8192u

struct cgi_out {
	struct out out; /* first: the callbacks cast back */
	struct buf buffer;
};

/* Writes of up to PIPE_BUF bytes do not block once poll(2) says so. */
static int write_all(const uint8_t *data, size_t len)
{
	while (len > 0) {
		struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
		ssize_t n;

		if (poll(&p, 1, WRITE_MAX_MS) <= 0)
			return -1;
		n = write(STDOUT_FILENO, data, len < PIPE_BUF ? len : PIPE_BUF);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -1;
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int flush_out(struct out *o)
{
	struct cgi_out *c = (struct cgi_out *)o;
	int r =
	    c->buffer.failed ? -1 : write_all(c->buffer.data, c->buffer.len);

	buf_clear(&c->buffer);
	return r;
}

static int write_out(struct out *o, const void *data, size_t len)
{
	struct cgi_out *c = (struct cgi_out *)o;

	buf_put(&c->buffer, data, len);
	return c->buffer.len < BUFFER_SIZE ? 0 : flush_out(o);
}

/* How much is to be read: a server need not end the input after the body, and
 * without a length only these methods have one. */
static size_t body_expected(void)
{
	const char *length = getenv("CONTENT_LENGTH");
	const char *method = getenv("REQUEST_METHOD");
	char *end;
	unsigned long n;

	if (length != NULL && *length >= '0' && *length <= '9') {
		n = strtoul(length, &end, 10);
		if (*end == '\0')
			return n;
	}
	if (method != NULL &&
	    (strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0))
		return SIZE_MAX;
	return 0;
}

/* Standard input as the body. */
struct input {
	struct body body; /* first: refill() casts back */
	struct out *out;
	size_t expected;
	uint64_t begun_ms;
	struct buf data;
};

/* The next bytes into the buffer, up to max. 0 when there are none any more. */
static ssize_t read_some(struct input *in, size_t max, struct err *e)
{
	uint64_t deadline = in->begun_ms + READ_GRACE_MS +
			    in->body.total * 1000u / BODY_RATE_MIN;
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	size_t left = in->expected - in->body.total;
	uint8_t *room = buf_reserve(&in->data, READ_STEP);
	ssize_t n;

	if (room == NULL)
		return err_sys(e, ENOMEM, "a body");
	max = max < READ_STEP ? max : READ_STEP;
	if (left == 0)
		return 0;
	if (poll(&p, 1, clock_left_ms(deadline)) == 0)
		return err_set(e, ERR_INVALID_REQUEST, ETIMEDOUT,
		    "the body came too slowly: %u bytes a second are the least",
		    BODY_RATE_MIN);
	do
		n = read(STDIN_FILENO, room, left < max ? left : max);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return 0;
	in->data.len += (size_t)n;
	in->body.total += (size_t)n;
	return n;
}

static void set_body(struct input *in, bool whole)
{
	in->body.data = in->data.data;
	in->body.len = in->data.len;
	in->body.taken = 0;
	in->body.whole = whole;
}

static int refill(struct body *b, struct err *e)
{
	struct input *in = (struct input *)b;
	ssize_t n;

	buf_clear(&in->data);
	n = read_some(in, READ_STEP, e);
	set_body(in, n == 0);
	return n < 0 ? (int)n : 0;
}

/* What is small is read before the request is served, as elsewhere. */
static void read_small(struct input *in)
{
	struct err e;
	ssize_t n = 1;

	if (in->expected <= LIMIT_BODY || in->expected == SIZE_MAX)
		while (n > 0 && in->data.len <= LIMIT_BODY)
			n = read_some(in, LIMIT_BODY + 1 - in->data.len, &e);
	set_body(in, n == 0 || in->body.total == in->expected);
}

/* A web server may send all of a body before it looks at the answer. */
static void drop_rest(struct input *in)
{
	uint64_t stop = in->body.total + DISCARD_MAX;
	struct err e;

	while (in->body.total < stop && read_some(in, READ_STEP, &e) > 0)
		buf_clear(&in->data);
}

void cgi_serve(struct app *app)
{
	/* A socket may be half closed by a server that has sent the body:
	 * only what poll(2) always reports means that it is gone. */
	struct cgi_out c = {.out = {.write = write_out,
				.flush = flush_out,
				.finish = flush_out,
				.watch_fd = STDOUT_FILENO}};
	struct input in = {.body = {.refill = refill},
	    .out = &c.out,
	    .expected = body_expected(),
	    .begun_ms = clock_ms()};
	struct exchange *x = malloc(sizeof(*x));

	read_small(&in);
	if (x == NULL || in.data.failed) {
		free(x);
		buf_free(&in.data);
		cgi_fail();
		return;
	}
	exchange_init(x, app);
	exchange_serve(x, &c.out, environ, &in.body, NULL);
	exchange_done(x);
	free(x);
	buf_free(&c.buffer);
	if (!in.body.whole)
		drop_rest(&in);
	buf_free(&in.data);
}

void cgi_let_go(void)
{
	/* Not closed: what is opened next would get their numbers. */
	(void)dup2(STDERR_FILENO, STDIN_FILENO);
	(void)dup2(STDERR_FILENO, STDOUT_FILENO);
}

void cgi_fail(void)
{
	static const char answer[] = "Status: 500 Internal Server Error\r\n"
				     "Content-Type: application/json\r\n"
				     "Cache-Control: no-store\r\n\r\n"
				     "{\"error\":\"internal_error\"}";

	(void)write_all((const uint8_t *)answer, sizeof(answer) - 1);
}
