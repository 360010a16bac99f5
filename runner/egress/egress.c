/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "runner/egress/net.h"
#include "runner/egress/router.h"

/* On a busy host a router may be late with its answer. */
#define LATE_MS 2000u

static int write_file(const char *path, const char *text, struct err *e)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	size_t len = strlen(text);

	if (fd < 0 || write(fd, text, len) != (ssize_t)len)
		return err_sys(e, errno, "%s", path);
	return 0;
}

/* uid 0 there: the carrier keeps its capabilities over exec only so. */
static int enter_user_namespace(struct err *e)
{
	const uid_t uid = geteuid();
	const gid_t gid = getegid();
	char map[48];
	int rc;

	if (unshare(CLONE_NEWUSER) != 0)
		return err_sys(e, errno, "a user namespace");
	(void)snprintf(map, sizeof(map), "0 %u 1", uid);
	if ((rc = write_file("/proc/self/setgroups", "deny", e)) < 0 ||
	    (rc = write_file("/proc/self/uid_map", map, e)) < 0)
		return rc;
	(void)snprintf(map, sizeof(map), "0 %u 1", gid);
	return write_file("/proc/self/gid_map", map, e);
}

static pid_t clone_router(const struct leaf *leaf, int *ret_pidfd)
{
	int cgroup = leaf != NULL ? leaf_clone_fd(leaf) : -1;
	struct clone_args args = {
	    .flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_PIDFD,
	    .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
	    .exit_signal = SIGCHLD,
	};

	if (cgroup >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (unsigned)cgroup;
	}
	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static void keep_resolv_conf(struct egress *eg,
    const struct egress_policy *policy, const struct egress_names *names)
{
	static const uint32_t router = NET_ROUTER;
	cleanup_buf struct buf text = {0};

	if (egress_by_name(names))
		egress_resolv_conf(&router, 1, &text);
	else
		egress_resolv_conf(
		    policy->resolvers, policy->resolver_count, &text);
	(void)snprintf(eg->resolv_conf, sizeof(eg->resolv_conf), "%.*s",
	    (int)text.len, text.failed ? "" : (const char *)text.data);
}

int egress_open(struct egress *eg, const struct egress_policy *policy,
    const struct egress_names *names, const struct leaf *leaf, struct err *e)
{
	int control[2];
	pid_t pid;
	int rc;

	*eg = (struct egress)EGRESS_NONE;
	if (policy->refused.code != 0)
		return err_set(e, ERR_INTERNAL, policy->refused.code, "%s",
		    policy->refused.msg);
	if ((rc = enter_user_namespace(e)) < 0)
		return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0)
		return err_sys(e, errno, "socketpair");
	pid = clone_router(leaf, &eg->pidfd);
	if (pid == 0) {
		const struct router_order order = {.policy = policy,
		    .names = names,
		    .leaf = leaf,
		    .enter_leaf = leaf != NULL && leaf_clone_fd(leaf) < 0,
		    .control = control[1]};

		router_main(&order);
	}
	rc = pid < 0 ? err_sys(e, errno, "clone3 of the router") : 0;
	(void)close(control[1]);
	eg->control = control[0];
	eg->pid = pid > 0 ? pid : 0;
	if (rc < 0)
		egress_close(eg);
	else
		keep_resolv_conf(eg, policy, names);
	return rc;
}

static int send_question(
    const struct egress *eg, enum router_ask what, int fd, struct buf *list)
{
	char byte = (char)what;
	struct iovec iov[2] = {{&byte, 1}, {list->data, list->len}};
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
	struct cmsghdr *c = &control.align;

	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control.room);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	return sendmsg(eg->control, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int take_answer(
    const struct egress *eg, unsigned timeout_ms, struct router_answer *ret)
{
	const uint64_t until = clock_ms() + timeout_ms;
	struct pollfd p = {eg->control, POLLIN, 0};
	ssize_t n;
	int r;

	do
		r = poll(&p, 1, clock_left_ms(until));
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	n = recv(eg->control, ret, sizeof(*ret), 0);
	if (n < 0 && errno == ECONNRESET)
		/* It ended with our question unread: first the socket says
		 * so, then its last word comes. */
		n = recv(eg->control, ret, sizeof(*ret), MSG_DONTWAIT);
	if (n != (ssize_t)sizeof(*ret))
		return n < 0 && errno != EAGAIN ? -errno : -EPIPE;
	ret->why[sizeof(ret->why) - 1] = '\0';
	return 0;
}

/* Whatever is wrong closes: a router that does not answer is no router. */
static int ask_with(struct egress *eg, enum router_ask what, int fd,
    struct buf *list, unsigned timeout_ms, struct router_answer *ret,
    struct err *e)
{
	int rc = send_question(eg, what, fd, list);

	*ret = (struct router_answer){0};
	if (rc == 0 || rc == -EPIPE) /* its last word may lie there */
		rc = take_answer(eg, timeout_ms, ret);
	if (rc == 0 && ret->code == 0)
		return 0;
	egress_close(eg);
	if (rc == -EPIPE)
		return err_set(
		    e, ERR_INTERNAL, EPIPE, "the router process has ended");
	if (rc < 0)
		return err_sys(e, -rc, "the router process");
	return err_set(e, ERR_INTERNAL, ret->code, "%s", ret->why);
}

static int ask(struct egress *eg, enum router_ask what, int fd,
    unsigned timeout_ms, struct err *e)
{
	struct router_answer ignored;
	struct buf none = {0};

	return ask_with(eg, what, fd, &none, timeout_ms, &ignored, e);
}

int egress_attach(struct egress *eg, pid_t sandbox, struct err *e)
{
	char path[64];
	cleanup_fd int fd = -1;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/net", sandbox);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		int saved = errno;

		egress_close(eg);
		return err_sys(e, saved, "%s", path);
	}
	return ask(eg, ROUTER_ATTACH, fd, EGRESS_OPEN_MS + LATE_MS, e);
}

int egress_check(struct egress *eg, struct err *e)
{
	return ask(eg, ROUTER_CHECK, -1, LATE_MS, e);
}

int egress_allow(
    struct egress *eg, const struct egress_names *names, struct err *e)
{
	cleanup_buf struct buf list = {0};
	struct router_answer ignored;

	for (size_t i = 0; i < names->count; i++) {
		buf_put(&list, names->names[i].data, names->names[i].len);
		buf_put(&list, "", 1);
	}
	if (list.failed || list.len == 0 || list.len > EGRESS_LIST_MAX) {
		egress_close(eg);
		return err_set(e, ERR_INTERNAL, EINVAL, "too long a list");
	}
	return ask_with(eg, ROUTER_ALLOW, -1, &list, LATE_MS, &ignored, e);
}

int egress_rest(struct egress *eg, struct err *e)
{
	struct router_answer a;
	struct buf none = {0};
	int rc = ask_with(eg, ROUTER_REST, -1, &none, LATE_MS, &a, e);

	if (rc < 0)
		return rc == -EBUSY ? -EIO : rc;
	return a.why[0] == '\0' ? 0
				: err_set(e, ERR_INTERNAL, EBUSY, "%s", a.why);
}

void egress_close(struct egress *eg)
{
	if (eg->pidfd >= 0)
		(void)syscall(
		    SYS_pidfd_send_signal, eg->pidfd, SIGKILL, NULL, 0);
	if (eg->pid > 0)
		while (waitpid(eg->pid, NULL, 0) < 0 && errno == EINTR)
			;
	if (eg->pidfd >= 0)
		(void)close(eg->pidfd);
	if (eg->control >= 0)
		(void)close(eg->control);
	*eg = (struct egress)EGRESS_NONE;
}
