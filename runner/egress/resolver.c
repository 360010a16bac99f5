/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. One UDP socket at the router's address for the sandbox,
 * and one to a name server for each question under way: its port is the kernel's
 * random choice, its id ours. A question is answered with NXDOMAIN unless its
 * name is allowed; of an allowed name only IPv4 addresses are told, for
 * everything else there is no data. Answers are made anew here: nothing that a
 * name server sends gets to the sandbox but addresses, and only when they are
 * open. A name server that does not know EDNS is asked once more without, one whose
 * answer is cut off is asked by TCP; all of that within the time of one try.
 */
#include "runner/egress/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/clock.h"
#include "runner/egress/dns.h"
#include "runner/egress/net.h"

#define KEEP_FD 3 /* and the next */
#define PENDING_MAX 64u
#define TRY_MS 1500u
#define TRIES 3u

/* Of an answer by TCP no more is read: two hundred addresses. */
#define TCP_MAX 4096u

/* Questions a second, and at once: the sandbox's DNS is not in the rate that
 * the rule set allows for its flows. */
#define RATE_PER_SECOND 50u
#define RATE_BURST 100u

struct pending {
	int fd; /* -1: free */
	uint16_t id;
	unsigned tries;
	uint32_t server; /* of this try */
	uint64_t until_ms;
	bool plain; /* ask without EDNS */
	bool tcp;
	bool sent; /* by TCP */
	struct buf heard; /* by TCP: a length and a message, so far */
	struct dns_question question;
	struct sockaddr_in from;
};

struct resolver {
	const struct egress_policy *policy;
	const struct egress_names *names;
	int router;
	int listener;
	struct pending pending[PENDING_MAX];
	uint64_t tokens; /* thousandths of a question */
	uint64_t tokens_ms;
};

/* ---- answers ---------------------------------------------------------------- */

static void answer(const struct resolver *r, const struct dns_question *q,
    const struct sockaddr_in *to, enum dns_rcode rcode,
    const struct dns_addresses *a)
{
	cleanup_buf struct buf out = {0};

	dns_put_answer(&out, q, rcode, a);
	if (!out.failed)
		(void)sendto(r->listener, out.data, out.len,
		    MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)to,
		    sizeof(*to));
}

static void forget(struct pending *p)
{
	if (p->fd >= 0)
		(void)close(p->fd);
	p->fd = -1;
	p->sent = false;
	buf_free(&p->heard);
}

static void answer_pending(const struct resolver *r, struct pending *p,
    enum dns_rcode rcode, const struct dns_addresses *a)
{
	answer(r, &p->question, &p->from, rcode, a);
	forget(p);
}

/* ---- asking a name server ------------------------------------------------- */

/* By TCP it is sent when the connection is there. */
static bool ask(struct pending *p)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
	    .sin_port = htons(53),
	    .sin_addr.s_addr = htonl(p->server)};
	const int type = p->tcp ? SOCK_STREAM : SOCK_DGRAM;
	cleanup_buf struct buf out = {0};

	forget(p);
	if (getrandom(&p->id, sizeof(p->id), 0) != sizeof(p->id))
		return false;
	dns_put_query(&out, p->id, &p->question, !p->plain);
	p->fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* What cannot be sent is a try that is not answered. */
	if (p->fd >= 0 && !out.failed &&
	    connect(p->fd, (const struct sockaddr *)&to, sizeof(to)) == 0 &&
	    !p->tcp)
		(void)send(p->fd, out.data, out.len, MSG_NOSIGNAL);
	return p->fd >= 0;
}

/* The next name server in turn, if one is left to try. */
static void ask_next(const struct resolver *r, struct pending *p)
{
	const struct egress_policy *policy = r->policy;
	const bool left = p->tries < TRIES;

	p->server = policy->resolvers[p->tries++ % policy->resolver_count];
	p->until_ms = clock_ms() + TRY_MS;
	p->tcp = false;
	if (!left || !ask(p))
		answer_pending(r, p, DNS_SERVFAIL, NULL);
}

/* The same one in another way, each once: false when that is of no use. */
static bool ask_otherwise(struct pending *p, enum dns_rcode rcode)
{
	if (rcode == DNS_TRUNCATED && !p->tcp)
		p->tcp = true;
	else if ((rcode == DNS_FORMERR || rcode == DNS_NOTIMP) && !p->plain)
		p->plain = true;
	else
		return false;
	return ask(p);
}

/* Has the router open them, so that whoever is told of them reaches them. */
static bool open_addresses(
    const struct resolver *r, const struct dns_addresses *a)
{
	char done = '0';

	if (send(r->router, a, sizeof(*a), MSG_NOSIGNAL) < 0 ||
	    recv(r->router, &done, 1, 0) != 1)
		_exit(1); /* the router is gone */
	return done == '1';
}

/* False when it is no answer to our question. */
static bool take_answer(
    const struct resolver *r, struct pending *p, const uint8_t *msg, size_t len)
{
	struct dns_addresses a;
	enum dns_rcode rcode;

	if (dns_read_answer(msg, len, p->id, &p->question, &rcode, &a) < 0)
		return false;
	if (rcode != DNS_NOERROR && rcode != DNS_NXDOMAIN) {
		if (!ask_otherwise(p, rcode))
			ask_next(r, p);
		return true;
	}
	if (a.ttl < RESOLVER_TTL_MIN)
		a.ttl = RESOLVER_TTL_MIN;
	if (a.ttl > RESOLVER_TTL_MAX)
		a.ttl = RESOLVER_TTL_MAX;
	if (a.count > 0 && !open_addresses(r, &a))
		answer_pending(r, p, DNS_SERVFAIL, NULL);
	else
		answer_pending(r, p, rcode, &a);
	return true;
}

static void hear_datagram(const struct resolver *r, struct pending *p)
{
	uint8_t msg[DNS_EDNS_MAX];
	ssize_t n = recv(p->fd, msg, sizeof(msg), MSG_DONTWAIT);

	/* What is no answer may have been sent by anybody. */
	if (n >= 0)
		(void)take_answer(r, p, msg, (size_t)n);
	else if (errno != EAGAIN && errno != EINTR)
		ask_next(r, p); /* refused */
}

/* Connected: a new connection takes so little at once. */
static bool send_by_tcp(struct pending *p)
{
	cleanup_buf struct buf query = {0};
	cleanup_buf struct buf out = {0};

	dns_put_query(&query, p->id, &p->question, !p->plain);
	buf_putc(&out, (char)(query.len >> 8));
	buf_putc(&out, (char)(query.len & 0xff));
	buf_put(&out, query.data, query.len);
	p->sent =
	    !query.failed && !out.failed &&
	    send(p->fd, out.data, out.len, MSG_NOSIGNAL) == (ssize_t)out.len;
	return p->sent;
}

/* Whether the message is there, *ret_len bytes of it. -EIO: it will not be. */
static int hear_by_tcp(struct pending *p, size_t *ret_len)
{
	uint8_t part[1024];
	ssize_t n = recv(p->fd, part, sizeof(part), MSG_DONTWAIT);
	const uint8_t *d;
	size_t len;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > 0)
		buf_put(&p->heard, part, (size_t)n);
	if (n <= 0 || p->heard.failed)
		return -EIO;
	d = p->heard.data;
	if (p->heard.len < 2)
		return 0;
	len = (size_t)d[0] << 8 | d[1];
	if (len > TCP_MAX) /* the addresses come first */
		len = TCP_MAX;
	*ret_len = len;
	return p->heard.len - 2 >= len;
}

static void talk_by_tcp(const struct resolver *r, struct pending *p)
{
	struct buf heard;
	size_t len;
	int rc;

	if (!p->sent) {
		if (!send_by_tcp(p))
			ask_next(r, p);
		return;
	}
	rc = hear_by_tcp(p, &len);
	if (rc == 0)
		return;
	heard = p->heard; /* what is asked next has its own */
	p->heard = (struct buf){0};
	if (rc < 0 || !take_answer(r, p, heard.data + 2, len))
		ask_next(r, p);
	buf_free(&heard);
}

/* ---- questions --------------------------------------------------------------- */

static bool is_allowed(
    const struct egress_names *names, const struct dns_question *q)
{
	for (size_t i = 0; i < names->count; i++)
		if (hostname_matches((const char *)names->names[i].data,
			names->names[i].len, q->name, q->name_len))
			return true;
	return false;
}

static bool within_rate(struct resolver *r)
{
	const uint64_t now = clock_ms();

	r->tokens += (now - r->tokens_ms) * RATE_PER_SECOND;
	r->tokens_ms = now;
	if (r->tokens > RATE_BURST * 1000ull)
		r->tokens = RATE_BURST * 1000ull;
	if (r->tokens < 1000)
		return false;
	r->tokens -= 1000;
	return true;
}

static struct pending *find_free(struct resolver *r)
{
	for (size_t i = 0; i < PENDING_MAX; i++)
		if (r->pending[i].fd < 0)
			return &r->pending[i];
	return NULL;
}

static void take_question(struct resolver *r, const struct dns_question *q,
    const struct sockaddr_in *from)
{
	struct pending *p = find_free(r);

	if (!is_allowed(r->names, q)) {
		answer(r, q, from, DNS_NXDOMAIN, NULL);
	} else if (q->class != DNS_CLASS_IN || q->type != DNS_TYPE_A) {
		answer(r, q, from, DNS_NOERROR, NULL);
	} else if (p == NULL || !within_rate(r)) {
		answer(r, q, from, DNS_SERVFAIL, NULL);
	} else {
		*p = (struct pending){.fd = -1, .question = *q, .from = *from};
		ask_next(r, p);
	}
}

static void hear_sandbox(struct resolver *r)
{
	uint8_t msg[DNS_UDP_MAX];
	struct sockaddr_in from;
	socklen_t from_len = sizeof(from);
	struct dns_question q;
	enum dns_rcode rcode;
	ssize_t n = recvfrom(r->listener, msg, sizeof(msg), MSG_DONTWAIT,
	    (struct sockaddr *)&from, &from_len);
	int rc;

	if (n < 0 || from_len != sizeof(from))
		return;
	rc = dns_read_query(msg, (size_t)n, &q, &rcode);
	if (rc == 0)
		take_question(r, &q, &from);
	else if (rc == -EINVAL)
		answer(r, &q, &from, rcode, NULL);
}

/* ---- the process --------------------------------------------------------------- */

static int listen_for_sandbox(void)
{
	const struct sockaddr_in a = {.sin_family = AF_INET,
	    .sin_port = htons(53),
	    .sin_addr.s_addr = htonl(NET_ROUTER)};
	const int on = 1;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	/* The address comes with the link, later. */
	if (fd < 0 ||
	    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on)) != 0 ||
	    bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0)
		_exit(1);
	return fd;
}

/* Should: hold nothing but two sockets and standard error. Mustn't: keep a right
 * over the rule set. */
static void lock_in(struct resolver *r)
{
	struct __user_cap_header_struct head = {
	    .version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[2] = {{0}};

	if (dup3(r->router, KEEP_FD, O_CLOEXEC) < 0 ||
	    dup3(r->listener, KEEP_FD + 1, O_CLOEXEC) < 0 ||
	    close_range(KEEP_FD + 2, ~0u, 0) != 0 ||
	    syscall(SYS_capset, &head, none) != 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		_exit(1);
	r->router = KEEP_FD;
	r->listener = KEEP_FD + 1;
}

static int next_wait(const struct resolver *r)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < PENDING_MAX; i++)
		if (r->pending[i].fd >= 0 && r->pending[i].until_ms < first)
			first = r->pending[i].until_ms;
	return first == UINT64_MAX ? -1 : clock_left_ms(first);
}

static void serve(struct resolver *r)
{
	struct pollfd fds[PENDING_MAX + 2] = {
	    {r->listener, POLLIN, 0}, {r->router, 0, 0}};

	for (size_t i = 0; i < PENDING_MAX; i++) {
		const struct pending *p = &r->pending[i];

		fds[i + 2] = (struct pollfd){
		    p->fd, p->tcp && !p->sent ? POLLOUT : POLLIN, 0};
	}
	if (poll(fds, PENDING_MAX + 2, next_wait(r)) < 0)
		return; /* EINTR */
	if (fds[1].revents != 0)
		_exit(0);
	for (size_t i = 0; i < PENDING_MAX; i++) {
		struct pending *p = &r->pending[i];

		if (p->fd < 0)
			continue;
		if (fds[i + 2].revents != 0 && p->tcp)
			talk_by_tcp(r, p);
		else if (fds[i + 2].revents != 0)
			hear_datagram(r, p);
		if (p->fd >= 0 && clock_ms() >= p->until_ms)
			ask_next(r, p);
	}
	if (fds[0].revents != 0)
		hear_sandbox(r);
}

/* What is allowed, when it was not known at the start. The sandbox has no program
 * before that; whatever it asks is not read. */
static void await_names(struct resolver *r, char text[EGRESS_LIST_MAX],
    struct blob names[LIMIT_ALLOW], struct egress_names *ret)
{
	ssize_t n;
	struct err e;

	do
		n = recv(r->router, text, EGRESS_LIST_MAX, 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0 || text[n - 1] != '\0')
		_exit(1);
	*ret = (struct egress_names){.names = names};
	for (const char *p = text; p < text + n; p += strlen(p) + 1) {
		if (ret->count == LIMIT_ALLOW ||
		    hostname_check_pattern(p, strlen(p), &e) < 0)
			_exit(1);
		names[ret->count++] =
		    (struct blob){(const uint8_t *)p, strlen(p)};
	}
	r->names = ret;
}

_Noreturn void resolver_main(const struct egress_policy *policy,
    const struct egress_names *names, int socket)
{
	struct resolver r = {.policy = policy,
	    .names = names,
	    .router = fcntl(socket, F_DUPFD_CLOEXEC, 100),
	    .listener = fcntl(listen_for_sandbox(), F_DUPFD_CLOEXEC, 100),
	    .tokens = RATE_BURST * 1000ull,
	    .tokens_ms = clock_ms()};
	char text[EGRESS_LIST_MAX];
	struct blob list[LIMIT_ALLOW];
	struct egress_names late;

	for (size_t i = 0; i < PENDING_MAX; i++)
		r.pending[i].fd = -1;
	lock_in(&r);
	if (names->late)
		await_names(&r, text, list, &late);
	for (;;)
		serve(&r);
}
