/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/nl.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

/* Dumps come in parts of up to 32 KiB (NLMSG_GOODSIZE and what readers ask
 * for). */
#define READ_SIZE (32u * 1024)

int nl_open(struct nl *nl, int protocol, struct err *e)
{
	const struct timeval second = {.tv_sec = 1};

	nl->socket = mnl_socket_open2(protocol, SOCK_CLOEXEC);
	if (nl->socket == NULL ||
	    mnl_socket_bind(nl->socket, 0, MNL_SOCKET_AUTOPID) < 0 ||
	    setsockopt(nl_fd(nl), SOL_SOCKET, SO_RCVTIMEO, &second,
		sizeof(second)) != 0) {
		int saved = errno;

		nl_close(nl);
		return err_sys(e, saved, "netlink");
	}
	nl->port = mnl_socket_get_portid(nl->socket);
	return 0;
}

void nl_close(struct nl *nl)
{
	if (nl->socket != NULL)
		(void)mnl_socket_close(nl->socket);
	nl->socket = NULL;
}

int nl_fd(const struct nl *nl)
{
	return mnl_socket_get_fd(nl->socket);
}

int nl_join(struct nl *nl, unsigned group, struct err *e)
{
	if (mnl_socket_setsockopt(
		nl->socket, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
		return err_sys(e, errno, "netlink group %u", group);
	return 0;
}

struct caller {
	int (*each)(const struct nlmsghdr *, void *);
	void *data;
	int error; /* of each, negative errno */
};

static int on_message(const struct nlmsghdr *nlh, void *data)
{
	struct caller *c = data;

	if (c->each == NULL)
		return MNL_CB_OK;
	c->error = c->each(nlh, c->data);
	return c->error < 0 ? MNL_CB_ERROR : MNL_CB_OK;
}

/* Whether what was read ends the answer: a dump's end, an acknowledgement, or a
 * refusal. */
static bool has_end(const char *room, size_t len, uint32_t seq)
{
	const struct nlmsghdr *nlh = (const void *)room;
	int left = (int)len;

	for (; mnl_nlmsg_ok(nlh, left); nlh = mnl_nlmsg_next(nlh, &left))
		if (nlh->nlmsg_seq == seq &&
		    (nlh->nlmsg_type == NLMSG_DONE ||
			nlh->nlmsg_type == NLMSG_ERROR))
			return true;
	return false;
}

int nl_request(struct nl *nl, struct nlmsghdr *nlh,
    int (*each)(const struct nlmsghdr *, void *), void *data)
{
	struct caller c = {each, data, 0};
	char room[READ_SIZE];
	int failed = 0;

	nlh->nlmsg_seq = ++nl->seq;
	if ((nlh->nlmsg_flags & NLM_F_DUMP) != NLM_F_DUMP)
		nlh->nlmsg_flags |= NLM_F_ACK;
	if (mnl_socket_sendto(nl->socket, nlh, nlh->nlmsg_len) < 0)
		return -errno;
	for (;;) {
		ssize_t n = mnl_socket_recvfrom(nl->socket, room, sizeof(room));
		int r = MNL_CB_ERROR;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (failed == 0) {
			r = mnl_cb_run(
			    room, (size_t)n, nl->seq, nl->port, on_message, &c);
			if (r == MNL_CB_ERROR)
				failed = c.error < 0 ? c.error : -errno;
		}
		/* The rest of an answer that failed half way would be taken
		 * for the next one's, which the kernel refuses until then. */
		if (r == MNL_CB_STOP || has_end(room, (size_t)n, nl->seq))
			return failed;
	}
}

int nl_drain(
    struct nl *nl, int (*each)(const struct nlmsghdr *, void *), void *data)
{
	struct caller c = {each, data, 0};
	char room[READ_SIZE];
	int lost = 0;

	for (;;) {
		ssize_t n = recv(nl_fd(nl), room, sizeof(room), MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return lost;
		if (n < 0 && errno == ENOBUFS)
			lost = -ENOBUFS;
		else if (n < 0 && errno != EINTR)
			return -errno;
		else if (n > 0)
			(void)mnl_cb_run(room, (size_t)n, 0, 0, on_message, &c);
	}
}

struct wanted {
	uint16_t type;
	uint32_t value;
	bool found;
};

static int on_attribute(const struct nlattr *attr, void *data)
{
	struct wanted *w = data;

	if (mnl_attr_get_type(attr) == w->type &&
	    mnl_attr_get_payload_len(attr) == sizeof(w->value)) {
		w->value = mnl_attr_get_u32(attr);
		w->found = true;
	}
	return MNL_CB_OK;
}

bool nl_find_u32(
    const struct nlmsghdr *nlh, unsigned offset, uint16_t type, uint32_t *ret)
{
	struct wanted w = {.type = type};

	if (mnl_attr_parse(nlh, offset, on_attribute, &w) < 0 || !w.found)
		return false;
	*ret = w.value;
	return true;
}
