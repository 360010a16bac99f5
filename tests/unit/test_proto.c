/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/proto.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

static const uint8_t known[] = {PROTO_RUN, PROTO_STATUS, PROTO_STATUS_REPLY,
    PROTO_STARTED, PROTO_STDOUT, PROTO_STDERR, PROTO_DONE, PROTO_FAIL, PROTO_WS,
    PROTO_WS_COMMIT, PROTO_WS_INFO, PROTO_WS_ENTRIES, PROTO_WS_IDS,
    PROTO_WS_DATA, PROTO_WS_END, PROTO_KERNEL, PROTO_KERNEL_INFO,
    PROTO_ARTIFACT, PROTO_ARTIFACT_DATA, PROTO_GUEST_JOB, PROTO_GUEST_READY,
    PROTO_GUEST_STARTED, PROTO_GUEST_STDOUT, PROTO_GUEST_STDERR,
    PROTO_GUEST_EXIT, PROTO_GUEST_FAIL, PROTO_GUEST_WARM, PROTO_GUEST_WARMED,
    PROTO_GUEST_KERNEL, PROTO_GUEST_STEP, PROTO_GUEST_INTERRUPT,
    PROTO_GUEST_RESTORED, PROTO_GUEST_KERNEL_READY, PROTO_GUEST_ARTIFACT,
    PROTO_GUEST_ARTIFACT_DATA, PROTO_GUEST_STEP_DONE};

static void bytes_of_a_frame(void **state)
{
	static const uint8_t want[] = {3, 0, 0, 0, 18, 0, 0, 0, 'a', 0, 'b'};
	cleanup_buf struct buf b = {0};

	(void)state;
	proto_put_frame(&b, PROTO_STDOUT, "a\0b", 3);
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));
}

static void frames_come_out_as_they_went_in(void **state)
{
	cleanup_buf struct buf b = {0};
	enum proto_type type;
	const uint8_t *p;
	size_t len;
	size_t begun;
	size_t at;

	(void)state;
	proto_put_frame(&b, PROTO_STATUS, NULL, 0);
	begun = proto_begin(&b, PROTO_FAIL);
	put_u32(&b, 7);
	put_cstr(&b, "why");
	proto_end(&b, begun);
	assert_int_equal(proto_next(b.data, b.len, &type, &p, &len), 8);
	assert_int_equal(type, PROTO_STATUS);
	assert_int_equal(len, 0);
	at = 8;
	for (size_t n = at; n < b.len; n++)
		assert_int_equal(
		    proto_next(b.data + at, n - at, &type, &p, &len), 0);
	assert_int_equal(
	    proto_next(b.data + at, b.len - at, &type, &p, &len), 8 + 11);
	assert_int_equal(type, PROTO_FAIL);
	assert_int_equal(len, 11);
	assert_ptr_equal(p, b.data + at + 8);
}

static ssize_t next_of_header(
    uint32_t len, uint8_t type, uint8_t p1, uint8_t p2, uint8_t p3)
{
	const uint8_t h[] = {(uint8_t)len, (uint8_t)(len >> 8),
	    (uint8_t)(len >> 16), (uint8_t)(len >> 24), type, p1, p2, p3};
	enum proto_type t;
	const uint8_t *p;
	size_t n;

	return proto_next(h, sizeof(h), &t, &p, &n);
}

static void broken_headers(void **state)
{
	(void)state;
	for (unsigned type = 0; type < 256; type++) {
		bool ok = memchr(known, (int)type, sizeof(known)) != NULL;

		assert_int_equal(next_of_header(0, (uint8_t)type, 0, 0, 0),
		    ok ? 8 : -EPROTO);
	}
	assert_int_equal(next_of_header(0, PROTO_RUN, 1, 0, 0), -EPROTO);
	assert_int_equal(next_of_header(0, PROTO_RUN, 0, 1, 0), -EPROTO);
	assert_int_equal(next_of_header(0, PROTO_RUN, 0, 0, 1), -EPROTO);
	assert_int_equal(next_of_header(LIMIT_FRAME, PROTO_RUN, 0, 0, 0), 0);
	assert_int_equal(
	    next_of_header(LIMIT_FRAME + 1, PROTO_RUN, 0, 0, 0), -EPROTO);
	assert_int_equal(
	    next_of_header(UINT32_MAX, PROTO_RUN, 0, 0, 0), -EPROTO);
}

static void too_long_a_frame_is_not_made(void **state)
{
	static uint8_t payload[LIMIT_FRAME + 1];
	cleanup_buf struct buf b = {0};

	(void)state;
	proto_put_frame(&b, PROTO_STDOUT, payload, LIMIT_FRAME);
	assert_false(b.failed);
	proto_put_frame(&b, PROTO_STDOUT, payload, LIMIT_FRAME + 1);
	assert_true(b.failed);
	assert_int_equal(proto_send(-1, &b), -ENOMEM);
}

static void values_are_read_back(void **state)
{
	cleanup_buf struct buf b = {0};
	struct reader r;
	const uint8_t *s;
	size_t len;

	(void)state;
	put_u8(&b, 0xfe);
	put_u32(&b, 0xfedcba98);
	put_u64(&b, 0xfedcba9876543210);
	put_bytes(&b, "a\0b", 3);
	put_bytes(&b, NULL, 0);
	put_cstr(&b, "c");
	assert_memory_equal(b.data + 1, "\x98\xba\xdc\xfe", 4);
	assert_memory_equal(b.data + 5, "\x10\x32\x54\x76\x98\xba\xdc\xfe", 8);
	r = (struct reader){b.data, b.len, false};
	assert_int_equal(get_u8(&r), 0xfe);
	assert_int_equal(get_u32(&r), 0xfedcba98);
	assert_true(get_u64(&r) == 0xfedcba9876543210);
	s = get_bytes(&r, &len);
	assert_int_equal(len, 3);
	assert_memory_equal(s, "a\0b", 3);
	assert_non_null(get_bytes(&r, &len));
	assert_int_equal(len, 0);
	assert_false(reader_done(&r));
	s = get_bytes(&r, &len);
	assert_int_equal(len, 1);
	assert_int_equal(*s, 'c');
	assert_true(reader_done(&r));
}

/* A reader at its end gives zeros, and stays bad though bytes are left. */
static void a_short_payload_is_bad(void **state)
{
	static const uint8_t bytes[] = {5, 0, 0, 0, 'a', 'b', 'c', 'd'};
	struct reader r = {bytes, sizeof(bytes), false};
	size_t len = 99;

	(void)state;
	assert_null(get_bytes(&r, &len));
	assert_int_equal(len, 0);
	assert_true(r.bad);
	assert_int_equal(get_u8(&r), 0);
	assert_int_equal(get_u32(&r), 0);
	assert_false(reader_done(&r));
	for (size_t n = 0; n < 4; n++) {
		r = (struct reader){bytes, n, false};
		assert_int_equal(get_u32(&r), 0);
		assert_true(r.bad);
	}
	for (size_t n = 0; n < 8; n++) {
		r = (struct reader){bytes, n, false};
		assert_true(get_u64(&r) == 0);
		assert_true(r.bad);
	}
	r = (struct reader){NULL, 0, false};
	assert_true(reader_done(&r));
	assert_int_equal(get_u8(&r), 0);
	assert_false(reader_done(&r));
}

static volatile sig_atomic_t interrupted;

static void interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* Interrupted now and then, through something that holds far less: all of it
 * arrives, in order. The child reads slowly and answers by its exit status. */
static void send_through(int out, int in)
{
	struct itimerval often = {{0, 5000}, {0, 5000}};
	struct itimerval never = {{0, 0}, {0, 0}};
	struct sigaction act = {.sa_handler = interrupt};
	struct sigaction old;
	cleanup_buf struct buf b = {0};
	int status;
	pid_t pid;

	for (uint32_t i = 0; i < 200000; i++)
		put_u32(&b, i);
	pid = fork();
	if (pid == 0) {
		uint32_t v;
		uint32_t i = 0;
		ssize_t n;

		close(out);
		while ((n = recv(in, &v, sizeof(v), MSG_WAITALL)) > 0 ||
		       (n < 0 && errno == ENOTSOCK &&
			   (n = read(in, &v, sizeof(v))) > 0))
			if (n != (ssize_t)sizeof(v) || v != i++)
				_exit(1);
		_exit(i == 200000 ? 0 : 2);
	}
	close(in);
	interrupted = 0;
	(void)sigaction(SIGALRM, &act, &old); /* no SA_RESTART */
	(void)setitimer(ITIMER_REAL, &often, NULL);
	status = proto_send(out, &b);
	(void)setitimer(ITIMER_REAL, &never, NULL);
	(void)sigaction(SIGALRM, &old, NULL);
	assert_int_equal(status, 0);
	assert_true(interrupted);
	close(out);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void sends_whole_buffers(void **state)
{
	int fds[2];

	(void)state;
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), errno);
	send_through(fds[0], fds[1]);
	assert_return_code(pipe(fds), errno);
	send_through(fds[1], fds[0]);
}

static void a_gone_peer_is_an_error_not_a_signal(void **state)
{
	cleanup_buf struct buf b = {0};
	int fds[2];

	(void)state;
	buf_puts(&b, "x");
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), errno);
	close(fds[1]);
	assert_int_equal(proto_send(fds[0], &b), -EPIPE);
	close(fds[0]);
	assert_int_equal(proto_send(fds[0], &b), -EBADF);
	buf_clear(&b);
	assert_int_equal(proto_send(fds[0], &b), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(bytes_of_a_frame),
	    cmocka_unit_test(frames_come_out_as_they_went_in),
	    cmocka_unit_test(broken_headers),
	    cmocka_unit_test(too_long_a_frame_is_not_made),
	    cmocka_unit_test(values_are_read_back),
	    cmocka_unit_test(a_short_payload_is_bad),
	    cmocka_unit_test(sends_whole_buffers),
	    cmocka_unit_test(a_gone_peer_is_an_error_not_a_signal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
