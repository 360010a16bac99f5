/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "runner/cgroup_ops.h"

#define PERIOD_US 100000u /* thousandths of a CPU times 100 */
#define NEAR_LIMIT (1 << 20)

/* v1's children have their files by themselves. */
static int enable(const struct cgroup *cg, struct err *e)
{
	(void)cg;
	(void)e;
	return 0;
}

/* Where the kernel does not account swap (no memsw file), not swapping is the
 * best there is; cgroup_check_cap() refuses a host that has swap then. */
static int leaf_init(struct leaf *l, struct err *e)
{
	return leaf_write(l, CGROUP_MEMORY, "?memory.swappiness", "0", e);
}

/* The kernel wants memsw (memory and swap together) never below the limit: the
 * order of the two writes depends on which way the limit goes. */
static int set_memory(struct leaf *l, uint64_t bytes, struct err *e)
{
	static const char limit[] = "memory.limit_in_bytes";
	static const char both[] = "?memory.memsw.limit_in_bytes";
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	if (cgroup_write(leaf_dir(l, CGROUP_MEMORY), limit, text) == 0)
		return leaf_write(l, CGROUP_MEMORY, both, text, e);
	if (leaf_write(l, CGROUP_MEMORY, both, text, e) < 0)
		return -e->code;
	return leaf_write(l, CGROUP_MEMORY, limit, text, e);
}

static int set_cpu(struct leaf *l, uint32_t cpus_milli, struct err *e)
{
	char text[24] = "-1";
	int rc;

	if (cpus_milli == 0)
		return leaf_write(l, CGROUP_CPU, "cpu.cfs_quota_us", text, e);
	(void)snprintf(text, sizeof(text), "%u", PERIOD_US);
	rc = leaf_write(l, CGROUP_CPU, "cpu.cfs_period_us", text, e);
	if (rc < 0)
		return rc;
	/* EINVAL when it is above what a group above has: v1 is strict */
	(void)snprintf(text, sizeof(text), "%llu",
	    (unsigned long long)cpus_milli * (PERIOD_US / 1000));
	return leaf_write(l, CGROUP_CPU, "cpu.cfs_quota_us", text, e);
}

/* The usual share is 1024, the least 2 (kernel/sched/core.c, MIN_SHARES). */
static int set_weight(struct leaf *l, uint32_t weight, struct err *e)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%llu",
	    (unsigned long long)weight * 1024 / LEAF_WEIGHT_NORMAL);
	return leaf_write(l, CGROUP_CPU, l->cg->ops->weight, text, e);
}

/* cpuacct.usage: nanoseconds. */
static int64_t parse_cpu(const char *text)
{
	uint64_t ns;

	if (cgroup_parse_limit(text, &ns) < 0 || ns > INT64_MAX)
		return -EINVAL;
	return (int64_t)(ns / 1000);
}

static int64_t oom_kills(struct leaf *l)
{
	char text[256];
	eventfd_t notices;
	int rc;

	if (l->oom_fd >= 0)
		(void)eventfd_read(l->oom_fd, &notices);
	rc = cgroup_read(leaf_dir(l, CGROUP_MEMORY), "memory.oom_control", text,
	    sizeof(text));
	return rc < 0 ? rc : cgroup_parse_key(text, "oom_kill");
}

/* By the peaks: memory.failcnt is 0 whatever happens on Linux 6.18 (measured). A
 * charge of several pages may fail a little below the limit. */
static bool limit_met(struct leaf *l)
{
	int64_t limit = leaf_read_bytes(l, "memory.limit_in_bytes");
	int64_t peak = leaf_read_bytes(l, "memory.max_usage_in_bytes");
	int64_t both = leaf_read_bytes(l, "memory.memsw.max_usage_in_bytes");

	if (both > peak)
		peak = both;
	return limit < 0 || peak < 0 || peak >= limit - NEAR_LIMIT;
}

/*
 * An eventfd that the kernel adds to when a process of the group finds no memory
 * left (Documentation/admin-guide/cgroup-v1/memory.rst, 10), also for a group
 * above: the notice comes before the kill and may be another's, the count tells.
 */
static int oom_open(struct leaf *l, short *ret_events)
{
	int dir = leaf_dir(l, CGROUP_MEMORY);
	cleanup_fd int control = -1;
	cleanup_fd int fd = -1;
	char text[32];

	*ret_events = POLLIN;
	if (l->oom_fd >= 0)
		return l->oom_fd;
	control = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (control < 0 || fd < 0)
		return -1;
	(void)snprintf(text, sizeof(text), "%d %d", fd, control);
	if (cgroup_write(dir, "cgroup.event_control", text) < 0)
		return -1;
	l->oom_fd = take_fd(&fd);
	return l->oom_fd;
}

static void kill_round(struct leaf *l)
{
	/* All of them: a process may have died half way into the leaf. */
	for (unsigned i = 0; i < l->cg->ndir; i++)
		if (l->dir[i] >= 0)
			(void)cgroup_signal(l->dir[i], SIGKILL);
}

const struct cgroup_ops cgroup_v1_ops = {
    /* Not cgroup.procs, though the process has one thread: to move a process, the
     * kernel locks out every fork and exit of the machine, which takes a grace
     * period of RCU, 5 to 16 ms; a thread that moves itself needs no such lock
     * (Linux commit 9a3284fad42f). Measured on 6.18: 8.1 ms, and 0.7. */
    .enter = "tasks",
    .memory_max = "memory.limit_in_bytes",
    .swap_max = "memory.memsw.limit_in_bytes",
    .memory_now = "memory.usage_in_bytes",
    .memory_peak = "memory.max_usage_in_bytes",
    .cpu_usage = "cpuacct.usage",
    .weight = "cpu.shares",
    .main_weight = "4096",
    .cache_keys = {"total_inactive_file", "total_active_file"},
    .cap_cure = "write one to its memory.limit_in_bytes as root",
    .swap_cure = "write one to its memory.memsw.limit_in_bytes as root (where "
		 "there is none, start the kernel with swapaccount=1)",
    .enable = enable,
    .leaf_init = leaf_init,
    .set_memory = set_memory,
    .set_cpu = set_cpu,
    .set_weight = set_weight,
    .parse_cpu = parse_cpu,
    .oom_open = oom_open,
    .oom_kills = oom_kills,
    .limit_met = limit_met,
    .kill_round = kill_round,
    .clone_into = false,
};
