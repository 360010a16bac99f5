/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "runner/egress/net.h"

/* A refusal takes 0.1 ms. On a very busy host a packet may be lost: then it is
 * tried again, and only at the end no answer is a failure. */
#define ROUND_MS 50u
#define ROUNDS 20u

#define METADATA 0xa9fea9feu /* 169.254.169.254 */

struct target {
	uint32_t address;
	uint16_t port;
	int type; /* SOCK_STREAM, SOCK_DGRAM */
};

#define TARGETS 7

struct attempt {
	const struct target *target;
	int fd; /* -1: not begun */
	bool refused;
};

static int failed(const struct target *t, const char *how, struct err *e)
{
	char text[IPV4_TEXT];

	return err_set(e, ERR_INTERNAL, EPERM,
	    "a probe of %s %s:%u was not refused: %s",
	    t->type == SOCK_STREAM ? "TCP" : "UDP", ipv4_text(t->address, text),
	    t->port, how);
}

static int judge(struct attempt *a, int error, struct err *e)
{
	a->refused = error == ECONNREFUSED;
	return a->refused ? 0 : failed(a->target, strerror(error), e);
}

static int begin(struct attempt *a, struct err *e)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
	    .sin_port = htons(a->target->port),
	    .sin_addr.s_addr = htonl(a->target->address)};

	a->fd =
	    socket(AF_INET, a->target->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (a->fd < 0)
		return err_sys(e, errno, "a probe's socket");
	if (connect(a->fd, (const struct sockaddr *)&to, sizeof(to)) == 0) {
		if (a->target->type == SOCK_STREAM)
			return failed(a->target, "connected", e);
		if (send(a->fd, "?", 1, MSG_NOSIGNAL) == 1)
			return 0;
	}
	return errno == EINPROGRESS ? 0 : judge(a, errno, e);
}

/* What has come of it until then; nothing is no failure yet. */
static int look(struct attempt *a, uint64_t until_ms, struct err *e)
{
	struct pollfd p = {a->fd, POLLOUT, 0};
	socklen_t len = sizeof(int);
	int error = 0, r;

	/* UDP can always be written: what is waited for is its error. */
	if (a->target->type == SOCK_DGRAM)
		p.events = POLLIN;
	do
		r = poll(&p, 1, clock_left_ms(until_ms));
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return 0;
	if (r < 0 || getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		return err_sys(e, errno, "a probe");
	return error != 0 ? judge(a, error, e)
			  : failed(a->target, "answered", e);
}

static void end(struct attempt *a)
{
	if (a->fd >= 0)
		(void)close(a->fd);
	a->fd = -1;
}

/* All at once; *ret_left is how many are not refused yet. */
static int run_round(
    struct attempt *attempts, size_t n, size_t *ret_left, struct err *e)
{
	const uint64_t until = clock_ms() + ROUND_MS;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n; i++)
		if (!attempts[i].refused)
			rc = begin(&attempts[i], e);
	*ret_left = 0;
	for (size_t i = 0; i < n; i++) {
		if (rc == 0 && !attempts[i].refused)
			rc = look(&attempts[i], until, e);
		*ret_left += attempts[i].refused ? 0 : 1;
		end(&attempts[i]);
	}
	return rc;
}

static int run(struct attempt *attempts, size_t n, struct err *e)
{
	size_t left = n;
	int rc;

	for (unsigned i = 0; left > 0 && i < ROUNDS; i++)
		if ((rc = run_round(attempts, n, &left, e)) < 0)
			return rc;
	for (size_t i = 0; i < n; i++)
		if (!attempts[i].refused)
			return failed(attempts[i].target, "no answer", e);
	return 0;
}

/* No packet leaves: connect() of a datagram socket only looks for a route. */
static int probe_ipv6(struct err *e)
{
	struct sockaddr_in6 to = {
	    .sin6_family = AF_INET6, .sin6_port = htons(53)};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return 0; /* a kernel without IPv6 */
	(void)inet_pton(AF_INET6, "2001:4860:4860::8888", &to.sin6_addr);
	r = connect(fd, (const struct sockaddr *)&to, sizeof(to));
	(void)close(fd);
	if (r == 0)
		return err_set(
		    e, ERR_INTERNAL, EPERM, "there is a route for IPv6");
	return 0;
}

int probe_all(const struct egress_policy *policy, uint32_t host_address,
    uint16_t host_port, struct err *e)
{
	const struct target targets[TARGETS] = {
	    {host_address, host_port, SOCK_STREAM},
	    {METADATA, 80, SOCK_STREAM},
	    {METADATA, 53, SOCK_DGRAM},
	    {0x0a000001, 80, SOCK_STREAM}, /* 10.0.0.1 */
	    {0xc0a80001, 80, SOCK_STREAM}, /* 192.168.0.1 */
	    {NET_TAP_GATEWAY, 80, SOCK_STREAM},
	    {NET_ROUTER, 80, SOCK_STREAM},
	};
	struct attempt attempts[TARGETS];
	size_t n = 0;
	int rc;

	for (size_t i = 0; i < TARGETS; i++)
		/* What the operator allows is no failure. */
		if (!egress_policy_allows(
			policy, targets[i].address, targets[i].port))
			attempts[n++] =
			    (struct attempt){.target = &targets[i], .fd = -1};
	rc = run(attempts, n, e);
	return rc < 0 ? rc : probe_ipv6(e);
}

int probe_listen(
    uint32_t address, int *ret_fd, uint16_t *ret_port, struct err *e)
{
	struct sockaddr_in a = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0 ||
	    listen(fd, 1) != 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) != 0) {
		int saved = errno;

		if (fd >= 0)
			(void)close(fd);
		return err_sys(e, saved, "listening at the host's address");
	}
	*ret_fd = fd;
	*ret_port = ntohs(a.sin_port);
	return 0;
}

int probe_unreached(int fd, struct err *e)
{
	int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

	if (peer < 0 && errno == EAGAIN)
		return 0;
	if (peer >= 0)
		(void)close(peer);
	return err_set(e, ERR_INTERNAL, EPERM,
	    "the host was reached from inside a sandbox");
}
