/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/carrier.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/clock.h"
#include "runner/egress/net.h"

#define TEXT(x) TEXT_(x)
#define TEXT_(x) #x

/* After exec the carrier has these and its ready_fd. */
#define NULL_FD 0
#define LOG_FD 2
#define FDS_FROM 10 /* beyond all that it is told of */

/* /proc/1 is the router, in whose PID namespace this is. */
#define ROUTER_NETNS "/proc/1/ns/net"

static const char *const slirp4netns_argv[] = {"slirp4netns", "--configure",
    ("--mtu=" TEXT(NET_MTU)), ("--cidr=" NET_TAP_CIDR),
    "--disable-host-loopback", "--disable-dns", "--enable-sandbox",
    "--enable-seccomp", "--ready-fd=3", "--netns-type=path", ROUTER_NETNS,
    NET_TAPDEV, NULL};

const struct carrier_driver carrier_slirp4netns = {.name = "slirp4netns",
    .argv = slirp4netns_argv,
    .ready_fd = 3,
    .memory_bytes = 8u << 20};

/*
 * What it would do for a container it must not do here: no port of the host's
 * goes in and none of the namespace's out, no address means the host's loopback,
 * no service of its own (DNS, DHCP, NDP). It keeps its own sandbox: an empty file
 * system and seccomp. In the foreground it writes its PID when tap0 is there and
 * the sandbox closed; it closes every descriptor but the first three, so its
 * standard output is where.
 */
static const char *const pasta_argv[] = {"pasta", "--foreground", "--quiet",
    "--netns-only", ("--netns=" ROUTER_NETNS), "--no-netns-quit",
    "--pid=/proc/self/fd/1", "--config-net", ("--ns-ifname=" NET_TAPDEV),
    ("--mtu=" TEXT(NET_MTU)), "--ipv4-only", ("--address=" NET_TAP_TEXT),
    ("--netmask=" TEXT(NET_TAP_BITS)), ("--gateway=" NET_TAP_GATEWAY_TEXT),
    "--tcp-ports=none", "--udp-ports=none", "--tcp-ns=none", "--udp-ns=none",
    "--no-splice", "--no-map-gw", "--map-host-loopback=none",
    "--map-guest-addr=none", "--dns=none", "--search=none", "--no-dhcp",
    "--no-dhcpv6", "--no-ndp", "--no-ra", "--no-icmp", NULL};

/*
 * Before, by its own list of changes: errors of UDP do not reach the sandbox (15
 * April 2025), and its packets can end pasta or have it spin (3 May). Those of 2023
 * let refused connections hang and reset slow ones.
 */
const struct carrier_driver carrier_pasta = {.name = "pasta",
    .argv = pasta_argv,
    .ready_fd = 1,
    .memory_bytes = 32u << 20,
    .since = 20250503};

/* After exec: nothing of ours is open but a null device, its log and where it
 * says that it is ready. */
static int setup_fds(int ready_fd, int ready, int log)
{
	const int last = ready_fd > LOG_FD ? ready_fd : LOG_FD;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int high_ready = fcntl(ready, F_DUPFD_CLOEXEC, FDS_FROM);
	int high_log = fcntl(log, F_DUPFD_CLOEXEC, FDS_FROM);

	if (null < 0 || high_ready < 0 || high_log < 0 ||
	    dup2(null, NULL_FD) < 0 || dup2(null, 1) < 0 ||
	    dup2(high_log, LOG_FD) < 0 || dup2(high_ready, ready_fd) < 0)
		return -errno;
	return close_range((unsigned)last + 1, ~0u, CLOSE_RANGE_CLOEXEC) == 0
		   ? 0
		   : -errno;
}

static _Noreturn void launch(const struct carrier_driver *driver,
    const char *path, int go, int ready, int log)
{
	const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
	char byte;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || read(go, &byte, 1) != 1)
		_exit(125);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	if (setup_fds(driver->ready_fd, ready, log) == 0)
		(void)execve(path, (char *const *)(uintptr_t)driver->argv,
		    (char *const *)(uintptr_t)env);
	(void)dprintf(log, "%s: %s\n", path, strerror(errno));
	_exit(125);
}

static int make_pipes(int go[2], int ready[2], int log[2], struct err *e)
{
	/* The log does not block: who does not read it holds nobody up. */
	if (pipe2(go, O_CLOEXEC) != 0 || pipe2(ready, O_CLOEXEC) != 0 ||
	    pipe2(log, O_CLOEXEC | O_NONBLOCK) != 0)
		return err_sys(e, errno, "pipe");
	return 0;
}

int carrier_fork(struct carrier *c, const struct carrier_driver *driver,
    const char *path, struct err *e)
{
	int go[2], ready[2], log[2], pidfd = -1;
	struct clone_args args = {
	    .flags = CLONE_PIDFD,
	    .pidfd = (uint64_t)(uintptr_t)&pidfd,
	    .exit_signal = SIGCHLD,
	};
	int rc = make_pipes(go, ready, log, e);
	pid_t pid;

	if (rc < 0)
		return rc; /* what is open ends with the router */
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		return err_sys(e, errno, "clone3 of %s", driver->name);
	if (pid == 0) {
		(void)close(go[1]);
		launch(driver, path, go[0], ready[1], log[1]);
	}
	(void)close(go[0]);
	(void)close(ready[1]);
	(void)close(log[1]);
	*c = (struct carrier){.driver = driver,
	    .pid = pid,
	    .pidfd = pidfd,
	    .go = go[1],
	    .ready = ready[0],
	    .log = log[0]};
	return 0;
}

int carrier_go(struct carrier *c, struct err *e)
{
	ssize_t n = write(c->go, "1", 1);

	(void)close(c->go);
	c->go = -1;
	return n == 1 ? 0 : carrier_ended(c, e);
}

/* Its last line. */
int carrier_ended(const struct carrier *c, struct err *e)
{
	char text[4096];
	ssize_t n = read(c->log, text, sizeof(text) - 1);
	char *line;

	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	if (n <= 0)
		return err_set(
		    e, ERR_INTERNAL, ESRCH, "%s ended", c->driver->name);
	text[n] = '\0';
	line = strrchr(text, '\n');
	return err_set(e, ERR_INTERNAL, ESRCH, "%s ended: %s", c->driver->name,
	    line != NULL ? line + 1 : text);
}

int carrier_await(struct carrier *c, uint64_t until_ms, struct err *e)
{
	struct pollfd p = {c->ready, POLLIN, 0};
	char byte;
	int r;

	do
		r = poll(&p, 1, clock_left_ms(until_ms));
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return err_set(e, ERR_INTERNAL, ETIMEDOUT,
		    "%s is not ready in time", c->driver->name);
	if (r < 0 || read(c->ready, &byte, 1) != 1)
		return carrier_ended(c, e);
	(void)close(c->ready);
	c->ready = -1;
	return 0;
}
