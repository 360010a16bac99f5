/* SPDX-License-Identifier: Apache-2.0 */
/* The router's side of egress by name: which addresses are open, and how long. */
#include "runner/egress/names.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "runner/egress/resolver.h"

/* A program that asks for more names than that gets no further. */
#define ENTRIES_MAX 512u

/* A client that has just been told a lifetime may use it to its end. */
#define GRACE_MS 5000u

struct names_entry {
	uint32_t address;
	uint64_t until_ms;
};

int names_start(struct names *n, const struct egress_policy *policy,
    const struct egress_names *names, struct err *e)
{
	int fds[2];
	pid_t pid;

	*n = (struct names)NAMES_NONE;
	if (!egress_by_name(names))
		return 0;
	n->entries = calloc(ENTRIES_MAX, sizeof(*n->entries));
	if (n->entries == NULL)
		return err_sys(e, ENOMEM, "egress by name");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		return err_sys(e, errno, "socketpair");
	pid = fork();
	if (pid == 0) {
		(void)close(fds[0]);
		resolver_main(policy, names, fds[1]);
	}
	(void)close(fds[1]);
	n->socket = fds[0];
	n->late = names->late;
	return pid < 0 ? err_sys(e, errno, "fork") : 0;
}

int names_allow(
    struct names *n, const void *list, size_t list_len, struct err *e)
{
	if (!n->late)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "no names are waited for, or not any more");
	n->late = false;
	if (send(n->socket, list, list_len, MSG_NOSIGNAL) != (ssize_t)list_len)
		return err_sys(e, errno, "telling what is allowed");
	return 0;
}

/* 1: it is a new one. 0: it lives longer now. -ENOSPC. */
static int keep(struct names *n, uint32_t address, uint64_t until_ms)
{
	for (size_t i = 0; i < n->count; i++) {
		struct names_entry *x = &n->entries[i];

		if (x->address != address)
			continue;
		if (x->until_ms < until_ms)
			x->until_ms = until_ms;
		return 0;
	}
	if (n->count == ENTRIES_MAX)
		return -ENOSPC;
	n->entries[n->count++] = (struct names_entry){address, until_ms};
	return 1;
}

static int update(struct names *n, struct nft *nft, struct err *e)
{
	n->open.count = 0;
	for (size_t i = 0; i < n->count; i++)
		if (ipv4_set_add(&n->open, n->entries[i].address,
			n->entries[i].address) < 0)
			return err_sys(e, ENOMEM, "egress by name");
	ipv4_set_settle(&n->open);
	return nft_replace(nft, RULES_SET_NAMES, &n->open, e);
}

int names_serve(struct names *n, struct nft *nft, struct err *e)
{
	struct dns_addresses a;
	bool is_new = false, full = false;
	char done = '1';
	int rc = 0;

	if (recv(n->socket, &a, sizeof(a), 0) != (ssize_t)sizeof(a) ||
	    a.count > DNS_ADDRESSES_MAX || a.ttl > RESOLVER_TTL_MAX)
		return err_set(e, ERR_INTERNAL, EPIPE,
		    "the process that answers DNS has ended");
	for (size_t i = 0; i < a.count; i++) {
		int r = keep(n, a.list[i],
		    clock_ms() + (uint64_t)a.ttl * 1000 + GRACE_MS);

		is_new |= r > 0;
		full |= r < 0;
	}
	if (is_new)
		rc = update(n, nft, e);
	if (full)
		done = '0';
	if (rc == 0)
		(void)send(n->socket, &done, 1, MSG_NOSIGNAL);
	return rc;
}

int names_expire(struct names *n, struct nft *nft, struct err *e)
{
	const uint64_t now = clock_ms();
	size_t left = 0;

	for (size_t i = 0; i < n->count; i++)
		if (n->entries[i].until_ms > now)
			n->entries[left++] = n->entries[i];
	if (left == n->count)
		return 0;
	n->count = left;
	return update(n, nft, e);
}

uint64_t names_next_ms(const struct names *n)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < n->count; i++)
		if (n->entries[i].until_ms < first)
			first = n->entries[i].until_ms;
	return first;
}
