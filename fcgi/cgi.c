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

#define READ_MAX_MS 30000u /* for the body to arrive whole */
#define WRITE_MAX_MS 30000 /* for the web server to take some of the answer */
#define DISCARD_MAX (16u << 20) /* read of a body that is too large */
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

/* Reads up to `expected` bytes; keeps LIMIT_BODY of them. */
static void read_body(struct buf *body, uint64_t *ret_total)
{
	uint64_t deadline = clock_ms() + READ_MAX_MS;
	size_t expected = body_expected();
	uint64_t total = 0;

	while (total < expected && total < DISCARD_MAX) {
		struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
		uint8_t data[16384];
		size_t want = expected - total < sizeof(data) ? expected - total
							      : sizeof(data);
		size_t room = LIMIT_BODY - body->len;
		ssize_t n;

		if (poll(&p, 1, clock_left_ms(deadline)) <= 0)
			break;
		n = read(STDIN_FILENO, data, want);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		total += (uint64_t)n;
		buf_put(body, data, (size_t)n < room ? (size_t)n : room);
	}
	*ret_total = total;
}

void cgi_serve(struct app *app)
{
	cleanup_buf struct buf content = {0};
	/* A socket may be half closed by a server that has sent the body:
	 * only what poll(2) always reports means that it is gone. */
	struct cgi_out c = {.out = {.write = write_out,
				.flush = flush_out,
				.finish = flush_out,
				.watch_fd = STDOUT_FILENO}};
	struct exchange *x = malloc(sizeof(*x));
	struct body body = {0};

	read_body(&content, &body.total);
	if (x == NULL || content.failed) {
		free(x);
		cgi_fail();
		return;
	}
	body.data = content.data;
	body.len = content.len;
	exchange_init(x, app);
	exchange_serve(x, &c.out, environ, &body, NULL);
	exchange_done(x);
	free(x);
	buf_free(&c.buffer);
}

void cgi_fail(void)
{
	static const char answer[] = "Status: 500 Internal Server Error\r\n"
				     "Content-Type: application/json\r\n"
				     "Cache-Control: no-store\r\n\r\n"
				     "{\"error\":\"internal_error\"}";

	(void)write_all((const uint8_t *)answer, sizeof(answer) - 1);
}
