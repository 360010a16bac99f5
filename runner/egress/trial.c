/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All of it but the sandbox: for `isobox-runner --check-egress`, and to choose a
 * carrier. The probes of each sandbox try what must be refused; here what is
 * allowed must be reached, too, and where nobody listens that must be told at
 * once. The one peer that every host has is itself: a port of its own, of which
 * the trial's policy makes an exception.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "runner/egress/egress.h"
#include "runner/egress/host.h"
#include "runner/egress/probe.h"

/* Each attempt; a good one takes a millisecond. */
#define ATTEMPT_MS (EGRESS_TRIAL_MS / 5)
#define PORT_TRIES 8u

/* Where the guest's attempts go to, in the host's network. */
struct peer {
	struct sockaddr_in at;
	int tcp, udp; /* -1: closed */
};

/* What came of them: 0, or an errno value. */
struct attempts {
	int tcp, udp;
};

/* ---- the sandbox's side ---------------------------------------------------- */

static int open_socket(int type, const struct sockaddr_in *to)
{
	const struct timeval limit = {
	    .tv_sec = ATTEMPT_MS / 1000, .tv_usec = ATTEMPT_MS % 1000 * 1000};
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) !=
		0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) !=
		0 ||
	    connect(fd, (const struct sockaddr *)to, sizeof(*to)) != 0) {
		int saved = errno;

		(void)close(fd);
		return -saved;
	}
	return fd;
}

/* Sends a byte; of a datagram an answer is waited for. */
static int attempt(int type, const struct sockaddr_in *to)
{
	int fd = open_socket(type, to), error = 0;
	char byte = '?';

	if (fd < 0)
		return fd == -EINPROGRESS ? ETIMEDOUT : -fd;
	if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1 ||
	    (type == SOCK_DGRAM && recv(fd, &byte, 1, 0) != 1))
		error = errno == EAGAIN ? ETIMEDOUT : errno;
	(void)close(fd);
	return error;
}

/* Each byte that comes is an order to try. */
static _Noreturn void guest_main(int socket, const struct sockaddr_in *to)
{
	char byte;

	while (recv(socket, &byte, 1, 0) == 1) {
		struct attempts a = {.tcp = attempt(SOCK_STREAM, to)};

		a.udp = attempt(SOCK_DGRAM, to);
		(void)send(socket, &a, sizeof(a), MSG_NOSIGNAL);
	}
	_exit(0);
}

/* ---- the host's side ------------------------------------------------------- */

static void close_peer(struct peer *p)
{
	if (p->tcp >= 0)
		(void)close(p->tcp);
	if (p->udp >= 0)
		(void)close(p->udp);
	p->tcp = p->udp = -1;
}

/* TCP and UDP at one port, as exceptions are. */
static int open_peer(struct peer *p, uint32_t address, struct err *e)
{
	uint16_t port = 0;
	int rc = 0;

	for (unsigned i = 0; i < PORT_TRIES; i++) {
		rc = probe_listen(address, &p->tcp, &port, e);
		if (rc < 0)
			return rc;
		p->at = (struct sockaddr_in){.sin_family = AF_INET,
		    .sin_port = htons(port),
		    .sin_addr.s_addr = htonl(address)};
		p->udp = socket(
		    AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (p->udp >= 0 &&
		    bind(p->udp, (const void *)&p->at, sizeof(p->at)) == 0)
			return 0;
		rc = err_sys(e, errno, "a port at the host's address");
		close_peer(p);
	}
	return rc;
}

/* A process that has only the namespaces of a sandbox. */
static int start_guest(
    struct peer *p, pid_t *ret_pid, int *ret_fd, struct err *e)
{
	struct clone_args args = {
	    .flags = CLONE_NEWUSER | CLONE_NEWNET, .exit_signal = SIGCHLD};
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		return err_sys(e, errno, "socketpair");
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(fds[0]);
		close_peer(p); /* else it would stay open */
		guest_main(fds[1], &p->at);
	}
	(void)close(fds[1]);
	if (pid < 0) {
		(void)close(fds[0]);
		return err_sys(e, errno, "the namespaces of a sandbox");
	}
	*ret_pid = pid;
	*ret_fd = fds[0];
	return 0;
}

static void echo(int fd)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char byte;

	if (recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&from, &len) == 1)
		(void)sendto(
		    fd, &byte, 1, 0, (const struct sockaddr *)&from, len);
}

/* Has the guest try, and answers it meanwhile. */
static int run_attempts(
    int guest, const struct peer *p, struct attempts *ret, struct err *e)
{
	const uint64_t until = clock_ms() + 2 * (ATTEMPT_MS + 100);
	struct pollfd fds[2] = {{guest, POLLIN, 0}, {p->udp, POLLIN, 0}};

	if (send(guest, "g", 1, MSG_NOSIGNAL) != 1)
		return err_sys(e, errno, "the trial's sandbox");
	for (;;) {
		int r = poll(fds, 2, clock_left_ms(until));

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return err_sys(
			    e, r == 0 ? ETIMEDOUT : errno, "the trial");
		if (fds[1].revents != 0)
			echo(p->udp);
		if (fds[0].revents == 0)
			continue;
		if (recv(guest, ret, sizeof(*ret), 0) != sizeof(*ret))
			return err_sys(e, EPIPE, "the trial's sandbox");
		return 0;
	}
}

static int judge(const struct egress_policy *policy, const char *what, int got,
    int want, struct err *e)
{
	if (got == want)
		return 0;
	return err_set(e, ERR_INTERNAL, EREMOTEIO, "%s: %s: %s",
	    policy->driver->name, what,
	    got != 0 ? strerror(got) : "there was an answer");
}

static int try_peer(const struct egress_policy *policy, int guest,
    struct peer *p, struct err *e)
{
	struct attempts a;
	int rc = run_attempts(guest, p, &a, e);

	if (rc < 0 ||
	    (rc = judge(policy, "TCP to an open port", a.tcp, 0, e)) < 0 ||
	    (rc = judge(policy, "UDP to an open port", a.udp, 0, e)) < 0)
		return rc;
	close_peer(p);
	if ((rc = run_attempts(guest, p, &a, e)) < 0 ||
	    (rc = judge(
		 policy, "TCP to a closed port", a.tcp, ECONNREFUSED, e)) < 0)
		return rc;
	return judge(policy, "UDP to a closed port", a.udp, ECONNREFUSED, e);
}

/* ---- the whole ------------------------------------------------------------- */

static int try_with(const struct egress_policy *policy, struct peer *p,
    uint64_t *ret_us, struct err *e)
{
	static const struct egress_names names;
	const uint64_t begun_us = clock_us();
	struct egress eg = EGRESS_NONE;
	int guest = -1, rc;
	pid_t pid = 0;

	rc = egress_open(&eg, policy, &names, NULL, e);
	if (rc < 0 || (rc = start_guest(p, &pid, &guest, e)) < 0)
		goto out;
	rc = egress_attach(&eg, pid, e);
	if (rc < 0)
		goto out;
	*ret_us = clock_us() - begun_us;
	if ((rc = try_peer(policy, guest, p, e)) == 0)
		rc = egress_check(&eg, e);
out:
	egress_close(&eg);
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		(void)close(guest);
	}
	return rc;
}

int egress_try(
    const struct egress_policy *policy, uint64_t *ret_us, struct err *e)
{
	struct egress_policy with_peer = *policy;
	struct peer p = {.tcp = -1, .udp = -1};
	struct host host;
	uint32_t address;
	int rc = host_open(&host, e);

	if (rc < 0)
		return rc;
	address = host.canary;
	host_close(&host);
	if (address == 0)
		return err_set(e, ERR_INTERNAL, ENETUNREACH,
		    "the host has no IPv4 address");
	if ((rc = open_peer(&p, address, e)) < 0)
		return rc;
	with_peer.allow[with_peer.allow_count++] = (struct policy_allow){
	    .prefix = {address, address}, .port = ntohs(p.at.sin_port)};
	rc = try_with(&with_peer, &p, ret_us, e);
	close_peer(&p);
	return rc;
}
