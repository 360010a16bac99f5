/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. One router process for each sandbox that has a network.
 * It begins in the host's network namespace, where it subscribes to the host's
 * addresses, opens the canary, and forks what will become the carrier (carrier.h),
 * which stays there. Then it moves into an empty network namespace, A, loads the
 * rule set before there is any link, and lets the carrier make tap0. When the
 * sandbox's namespace, B, is known, the two are linked and B is configured.
 *
 *	host's network                  A                     B
 *	carrier ................ tap0 (rules) sb0 --------- eth0 runsc
 *
 * Only when the kernel tells the rule set back exactly as it was meant,
 * forwarding is turned on, and then probes from B must be refused. After that
 * the process sleeps. It wakes when an address of the host changes (the rule
 * set gets it), when anybody else changes the rule set, when the carrier ends,
 * or when the supervisor asks whether all is as it was. Whatever is wrong ends
 * it, and everything with it: it is PID 1 of its namespace, so the carrier dies,
 * and with the two the namespace A.
 *
 * Nothing is read from the sandbox here: packets are the kernel's business, and
 * where names are allowed its DNS is another process's (resolver.c).
 */
#include "runner/egress/router.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "runner/egress/carrier.h"
#include "runner/egress/flows.h"
#include "runner/egress/host.h"
#include "runner/egress/names.h"
#include "runner/egress/net.h"
#include "runner/egress/nft.h"
#include "runner/egress/probe.h"

#define CONTROL_FD 3
#define CANARY_TRIES 8u

struct router {
	const struct egress_policy *policy;
	struct host host;
	struct nft nft;
	struct carrier carrier;
	struct rules rules; /* until it is verified */
	struct names names;
	int canary;
	uint16_t canary_port;
	bool attached;
};

/* ---- set-up --------------------------------------------------------------- */

static int write_file(const char *path, const char *text, struct err *e)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return err_sys(e, errno, "%s", path);
	return 0;
}

/* Should: die with the supervisor, count in the leaf, go before the host's own
 * processes when memory is out. */
static int setup_leash(const struct router_order *o, struct err *e)
{
	int rc;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return err_sys(e, errno, "prctl(PR_SET_PDEATHSIG)");
	rc = o->enter_leaf ? leaf_enter(o->leaf) : 0;
	if (rc < 0)
		return err_sys(e, -rc, "entering the cgroup leaf");
	return write_file("/proc/self/oom_score_adj", "1000", e);
}

/* Should: hold nothing of the supervisor's, whose client waits for an end of
 * file, but the control socket and standard error. */
static int setup_fds(const struct router_order *o, struct err *e)
{
	if (dup3(o->control, CONTROL_FD, O_CLOEXEC) < 0 &&
	    o->control != CONTROL_FD)
		return err_sys(e, errno, "the control socket");
	if (close_range(CONTROL_FD + 1, ~0u, 0) != 0)
		return err_sys(e, errno, "close_range");
	return 0;
}

/* Should: see its own PID namespace, and have a /proc/sys that can be written
 * even where the service's is read-only. */
static int setup_proc(struct err *e)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		NULL) != 0)
		return err_sys(e, errno, "mounting proc");
	return 0;
}

/* Should: be at a port that the policy refuses, or its probe would be let
 * through. Those that will not do stay taken until one is found, so that none
 * comes twice. */
static int setup_canary(struct router *r, struct err *e)
{
	int taken[CANARY_TRIES];
	unsigned n = 0;
	int rc;

	do {
		rc = probe_listen(
		    r->host.canary, &r->canary, &r->canary_port, e);
		if (rc < 0 || !egress_policy_allows(
				  r->policy, r->host.canary, r->canary_port))
			break;
		taken[n++] = r->canary;
	} while (n < CANARY_TRIES);
	if (n == CANARY_TRIES)
		rc = err_set(e, ERR_INTERNAL, EADDRINUSE,
		    "no port of the host could be found that is refused");
	while (n > 0)
		(void)close(taken[--n]);
	return rc;
}

/* Mustn't: come after setup_netns(), it is about the host. */
static int setup_host(struct router *r, struct err *e)
{
	int rc = host_open(&r->host, e);

	if (rc < 0)
		return rc;
	if (r->host.canary == 0)
		return err_set(e, ERR_INTERNAL, ENETUNREACH,
		    "the host has no IPv4 address");
	rc = setup_canary(r, e);
	if (rc < 0)
		return rc;
	return carrier_fork(
	    &r->carrier, r->policy->driver, r->policy->carrier, e);
}

/* Should: be in a network namespace whose rules were there before its first
 * link. */
static int setup_netns(
    struct router *r, const struct egress_names *names, struct err *e)
{
	int rc;

	if (unshare(CLONE_NEWNET) != 0)
		return err_sys(e, errno, "a network namespace");
	if ((rc = net_setup_router(e)) < 0 || (rc = net_route_marked(e)) < 0 ||
	    (rc = names_start(&r->names, r->policy, names, e)) < 0 ||
	    (rc = nft_open(&r->nft, e)) < 0 ||
	    (rc = rules_build(&r->rules, r->policy, &r->host.addresses,
		 egress_by_name(names) ? &r->names.open : NULL, e)) < 0 ||
	    (rc = nft_load(&r->nft, &r->rules, e)) < 0 ||
	    (rc = net_setup_tracking(e)) < 0 ||
	    (rc = carrier_go(&r->carrier, e)) < 0)
		return rc;
	return nft_verify(&r->nft, &r->rules, e);
}

static int setup(struct router *r, const struct router_order *o, struct err *e)
{
	int rc;

	if ((rc = setup_leash(o, e)) < 0 || (rc = setup_fds(o, e)) < 0 ||
	    (rc = setup_proc(e)) < 0 || (rc = setup_host(r, e)) < 0)
		return rc;
	return setup_netns(r, o->names, e);
}

/* ---- the control socket ---------------------------------------------------- */

static void answer(const struct router_answer *a)
{
	(void)send(CONTROL_FD, a, sizeof(*a), MSG_NOSIGNAL);
}

static struct router_answer failure(const struct err *e)
{
	struct router_answer a = {.code = e->code > 0 ? e->code : EINVAL};

	(void)snprintf(a.why, sizeof(a.why), "%s", e->msg);
	return a;
}

/* Ends everything. The supervisor finds the reason when it asks next. */
static _Noreturn void lose(struct router *r, const struct err *e)
{
	const struct router_answer last = failure(e);
	struct err ignored;

	if (r->attached)
		(void)net_forward(0, &ignored);
	answer(&last);
	_exit(1);
}

struct question {
	char what; /* enum router_ask */
	int fd; /* that came with it; -1: none */
	char list[EGRESS_LIST_MAX];
	size_t list_len;
};

/* Waits. Ends with the supervisor. */
static void hear(struct question *q)
{
	struct iovec iov[2] = {{&q->what, 1}, {q->list, sizeof(q->list)}};
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr m = {.msg_iov = iov,
	    .msg_iovlen = 2,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control.room)};
	const struct cmsghdr *c;
	ssize_t n;

	do
		n = recvmsg(CONTROL_FD, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		_exit(0);
	c = CMSG_FIRSTHDR(&m);
	q->list_len = (size_t)n - 1;
	q->fd = -1;
	if (c != NULL && c->cmsg_level == SOL_SOCKET &&
	    c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&q->fd, CMSG_DATA(c), sizeof(int));
}

/* ---- attaching a sandbox --------------------------------------------------- */

/* The process that configures the sandbox's end, and later tries it. */
struct scout {
	pid_t pid;
	int socket;
};

static int scout_configure(int netns, struct err *e)
{
	int rc;

	if (setns(netns, CLONE_NEWNET) != 0)
		return err_sys(e, errno, "the sandbox's network namespace");
	if ((rc = net_setup_sandbox(e)) < 0 || (rc = net_up("lo", e)) < 0)
		return rc;
	return net_configure(
	    NET_ETH, NET_SANDBOX, NET_LINK_BITS, NET_ROUTER, e);
}

static void scout_tell(int fd, int rc, const struct err *e)
{
	const struct router_answer a =
	    rc < 0 ? failure(e) : (struct router_answer){0};

	(void)send(fd, &a, sizeof(a), MSG_NOSIGNAL);
}

static _Noreturn void scout_main(const struct router *r, int netns, int fd)
{
	struct err e;
	char go;
	int rc = scout_configure(netns, &e);

	scout_tell(fd, rc, &e);
	if (rc < 0 || recv(fd, &go, 1, 0) != 1)
		_exit(1);
	rc = net_await(NET_ETH, clock_ms() + EGRESS_OPEN_MS, &e);
	if (rc == 0)
		rc = probe_all(r->policy, r->host.canary, r->canary_port, &e);
	scout_tell(fd, rc, &e);
	_exit(0);
}

static int scout_start(
    const struct router *r, int netns, struct scout *ret, struct err *e)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		return err_sys(e, errno, "socketpair");
	ret->pid = fork();
	if (ret->pid == 0) {
		(void)close(fds[0]);
		scout_main(r, netns, fds[1]);
	}
	(void)close(fds[1]);
	ret->socket = fds[0];
	return ret->pid < 0 ? err_sys(e, errno, "fork") : 0;
}

static int scout_hear(const struct scout *s, uint64_t until_ms, struct err *e)
{
	struct pollfd p = {s->socket, POLLIN, 0};
	struct router_answer a;
	int r;

	do
		r = poll(&p, 1, clock_left_ms(until_ms));
	while (r < 0 && errno == EINTR);
	if (r <= 0 || recv(s->socket, &a, sizeof(a), 0) != sizeof(a))
		return err_set(e, ERR_INTERNAL, r == 0 ? ETIMEDOUT : EPIPE,
		    "the sandbox's network could not be tried");
	a.why[sizeof(a.why) - 1] = '\0';
	return a.code == 0 ? 0 : err_set(e, ERR_INTERNAL, a.code, "%s", a.why);
}

static void scout_end(const struct scout *s)
{
	(void)close(s->socket);
	(void)kill(s->pid, SIGKILL);
	while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* The canary's connection must have met the rule, not chance. */
static int check_canary(struct router *r, struct err *e)
{
	uint64_t packets = 0;
	int rc = probe_unreached(r->canary, e);

	if (rc < 0)
		return rc;
	rc = nft_read_counter(&r->nft, &r->rules, &packets, e);
	if (rc == 0 && packets == 0)
		rc = err_set(e, ERR_INTERNAL, EPERM,
		    "the rule for the host's addresses was not met");
	return rc;
}

/* Takes what has changed at the host into the rule set. */
static int follow_host(struct router *r, struct err *e)
{
	bool changed = false;
	int rc = host_update(&r->host, &changed, e);

	if (rc == 0 && changed)
		rc =
		    nft_replace(&r->nft, RULES_SET_HOST, &r->host.addresses, e);
	return rc;
}

static int check(struct router *r, struct err *e)
{
	struct pollfd carrier = {r->carrier.pidfd, POLLIN, 0};
	int rc;

	if (poll(&carrier, 1, 0) != 0)
		return carrier_ended(&r->carrier, e);
	if ((rc = follow_host(r, e)) < 0)
		return rc;
	return nft_check(&r->nft, e);
}

static int open_way(
    struct router *r, const struct scout *s, uint64_t until_ms, struct err *e)
{
	int rc;

	if ((rc = scout_hear(s, until_ms, e)) < 0 ||
	    (rc = net_await(NET_SB, until_ms, e)) < 0 ||
	    (rc = carrier_await(&r->carrier, until_ms, e)) < 0 ||
	    (rc = net_check_tap(e)) < 0 || (rc = check(r, e)) < 0 ||
	    (rc = net_forward(1, e)) < 0)
		return rc;
	r->attached = true;
	if (send(s->socket, "g", 1, MSG_NOSIGNAL) != 1)
		return err_sys(e, errno, "the probes");
	if ((rc = scout_hear(s, until_ms, e)) < 0 ||
	    (rc = check_canary(r, e)) < 0)
		return rc;
	return check(r, e);
}

static int attach(struct router *r, int netns, struct err *e)
{
	const uint64_t until = clock_ms() + EGRESS_OPEN_MS;
	struct scout s;
	int rc;

	if (netns < 0 || r->attached)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "no sandbox to attach, or a second one");
	if ((rc = net_make_pair(netns, e)) < 0 ||
	    (rc = scout_start(r, netns, &s, e)) < 0)
		return rc;
	rc = net_configure(NET_SB, NET_ROUTER, NET_LINK_BITS, 0, e);
	if (rc == 0)
		rc = open_way(r, &s, until, e);
	scout_end(&s);
	(void)close(netns);
	(void)close(r->canary);
	rules_free(&r->rules);
	return rc;
}

/* ---- the loop --------------------------------------------------------------- */

/* Not to know is a reason, too. */
static void look_for_flows(struct router *r, char *why, size_t size)
{
	struct flow_peer p;
	struct err e;
	int rc = flows_find(&r->nft.requests, &p, &e);

	why[0] = '\0';
	if (rc < 0)
		(void)snprintf(why, size,
		    "whether a connection is open cannot be told: %.180s",
		    e.msg);
	else if (rc > 0)
		(void)snprintf(why, size,
		    "a connection to %u.%u.%u.%u, port %u, is open or was "
		    "closed less than a minute ago",
		    p.address >> 24, p.address >> 16 & 255,
		    p.address >> 8 & 255, p.address & 255, p.port);
}

/* The answer to a question that ends nothing is in *a. */
static int handle_question(
    struct router *r, struct router_answer *a, struct err *e)
{
	struct question q;
	int rc;

	hear(&q);
	*a = (struct router_answer){0};
	switch ((enum router_ask)q.what) {
	case ROUTER_ATTACH:
		return attach(r, q.fd, e);
	case ROUTER_CHECK:
		return check(r, e);
	case ROUTER_REST:
		look_for_flows(r, a->why, sizeof(a->why));
		return check(r, e);
	case ROUTER_ALLOW:
		rc = names_allow(&r->names, q.list, q.list_len, e);
		return rc < 0 ? rc : check(r, e);
	}
	return err_set(e, ERR_INTERNAL, EINVAL, "no such question");
}

enum {
	POLL_CONTROL,
	POLL_CARRIER,
	POLL_HOST,
	POLL_RULES,
	POLL_NAMES,
	POLL_COUNT
};

static int next_wait(const struct router *r)
{
	uint64_t next = names_next_ms(&r->names);

	return next == UINT64_MAX ? -1 : clock_left_ms(next);
}

static int serve(struct router *r, struct err *e)
{
	struct pollfd fds[POLL_COUNT] = {
	    [POLL_CONTROL] = {CONTROL_FD, POLLIN, 0},
	    [POLL_CARRIER] = {r->carrier.pidfd, POLLIN, 0},
	    [POLL_HOST] = {host_fd(&r->host), POLLIN, 0},
	    [POLL_RULES] = {nft_event_fd(&r->nft), POLLIN, 0},
	    [POLL_NAMES] = {r->names.socket, POLLIN, 0},
	};
	struct router_answer a;
	int rc = 0;

	if (poll(fds, POLL_COUNT, next_wait(r)) < 0)
		return 0; /* EINTR */
	if ((fds[POLL_CARRIER].revents | fds[POLL_HOST].revents |
		fds[POLL_RULES].revents) != 0)
		rc = check(r, e);
	if (rc == 0 && fds[POLL_NAMES].revents != 0)
		rc = names_serve(&r->names, &r->nft, e);
	if (rc == 0)
		rc = names_expire(&r->names, &r->nft, e);
	if (rc == 0 && fds[POLL_CONTROL].revents != 0 &&
	    (rc = handle_question(r, &a, e)) == 0)
		answer(&a);
	return rc;
}

_Noreturn void router_main(const struct router_order *order)
{
	struct router r = {.policy = order->policy, .names = NAMES_NONE};
	struct err e;
	int rc = setup(&r, order, &e);

	if (rc < 0) {
		struct question q;

		hear(&q);
		lose(&r, &e);
	}
	while (rc == 0)
		rc = serve(&r, &e);
	lose(&r, &e);
}
