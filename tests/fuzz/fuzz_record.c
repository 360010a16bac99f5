/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a FastCGI connection, in one piece and one by one; what is let
 * through goes on to libfcgi, which must take it.
 *
 * LINK: fcgi/record.o fcgi/conn.o fcgi/out.o fcgi/bulk.o -lfcgi
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fcgi/conn.h"
#include "lib/limits.h"
#include "tests/fuzz/fuzz.h"

static void check_same(const struct record_in *a, const struct record_in *b)
{
	require(a->id == b->id && a->keep_conn == b->keep_conn);
	require(a->body_len == b->body_len && a->body.len == b->body.len);
	require(a->params.len == b->params.len);
	require((a->refused == NULL) == (b->refused == NULL));
	require(a->body.len == 0 ||
		memcmp(a->body.data, b->body.data, a->body.len) == 0);
	require(a->params.len == 0 ||
		memcmp(a->params.data, b->params.data, a->params.len) == 0);
}

static void serve(struct conn_io *io, struct conn *c)
{
	struct conn_request r;
	struct err e;
	size_t n = 0;

	require(c->in.body.len <= LIMIT_BODY);
	require(conn_begin(io, c, &r, &e) == 0);
	while (r.envp[n] != NULL)
		require(strchr(r.envp[n++], '=') != NULL);
	require(n >= 1 && n <= LIMIT_PARAM_COUNT + 1); /* and FCGI_ROLE */
	require(r.body->whole == record_is_whole(&c->in));
	require(r.body->len == c->in.body.len);
	/* The peer is no socket: there is never any more. */
	if (!r.body->whole)
		require(r.body->refill(r.body, &e) < 0 && r.out->gone);
	r.out->gone = false;
	require(out_write(r.out, "Status: 200 OK\r\n\r\n", 18) == 0);
	out_finish(r.out);
	require(!r.out->gone);
	require(conn_end(io) == (c->in.keep_conn || !record_is_whole(&c->in)));
}

static void check(struct conn_io *io, const uint8_t *data, size_t size)
{
	struct record_in slow = {0};
	struct conn *c;
	struct err e;
	ssize_t n;
	ssize_t m = 0;
	size_t i = 0;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	require(fd >= 0 && conn_new(fd, &c) == 0);
	n = record_put(&c->in, data, size, &e);
	do {
		m = i < size ? record_put(&slow, data + i, 1, &e) : 0;
		i += m > 0;
	} while (m > 0);
	require((n < 0) == (m < 0));
	if (n >= 0) {
		require((size_t)n == i &&
			record_is_whole(&c->in) == record_is_whole(&slow));
		check_same(&c->in, &slow);
	}
	if (n >= 0 && (record_is_whole(&c->in) || record_is_large(&c->in)))
		serve(io, c);
	record_free(&slow);
	conn_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct conn_io *io;
	struct err e;

	if (io == NULL)
		require(conn_setup(&e) == 0 && conn_io_new(&io, &e) == 0);
	check(io, data, size);
	return 0;
}
