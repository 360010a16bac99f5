/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runner/cgroup_ops.h"

#define PERIOD_US 100000u /* of cpu.max; thousandths of a CPU times 100 */

static const char *const needed[] = {"memory", "pids", "cpu"};

static bool have_all(const struct cgroup *cg, const char *file, char *buf,
    size_t size, const char **ret_missing)
{
	int n = cgroup_read(cg->dir[0], file, buf, size);

	if (n < 0)
		n = 0;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		*ret_missing = needed[i];
		if (!cgroup_list_has(buf, strlen(buf), ' ', needed[i]))
			return false;
	}
	return true;
}

static int enable(const struct cgroup *cg, struct err *e)
{
	const char *missing;
	char have[256];
	int rc;

	if (!have_all(cg, "cgroup.controllers", have, sizeof(have), &missing))
		return err_set(e, ERR_INTERNAL, ENOENT,
		    "cgroup %s has no %s controller (it has: %.80s): delegate "
		    "memory, pids and cpu (systemd: Delegate=yes)",
		    cg->path, missing, have);
	if (have_all(
		cg, "cgroup.subtree_control", have, sizeof(have), &missing))
		return 0;
	rc = cgroup_write(
	    cg->dir[0], "cgroup.subtree_control", "+memory +pids +cpu");
	if (rc == -EBUSY)
		return err_set(e, ERR_INTERNAL, EBUSY,
		    "processes beside the runner are in cgroup %s itself; see "
		    "its cgroup.procs",
		    cg->path);
	if (rc < 0)
		return err_sys(e, -rc,
		    "cannot write cgroup.subtree_control of "
		    "cgroup %s",
		    cg->path);
	return 0;
}

static int leaf_init(struct leaf *l, struct err *e)
{
	int rc = leaf_write(l, CGROUP_MEMORY, "?memory.oom.group", "1", e);

	/* absent on a kernel without swap */
	if (rc >= 0)
		rc = leaf_write(l, CGROUP_MEMORY, "?memory.swap.max", "0", e);
	return rc;
}

static int set_memory(struct leaf *l, uint64_t bytes, struct err *e)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	return leaf_write(l, CGROUP_MEMORY, "memory.max", text, e);
}

static int set_cpu(struct leaf *l, uint32_t cpus_milli, struct err *e)
{
	char text[40] = "max";

	if (cpus_milli != 0)
		(void)snprintf(text, sizeof(text), "%llu %u",
		    (unsigned long long)cpus_milli * (PERIOD_US / 1000),
		    PERIOD_US);
	return leaf_write(l, CGROUP_CPU, "cpu.max", text, e);
}

static int set_weight(struct leaf *l, uint32_t weight, struct err *e)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", weight);
	return leaf_write(l, CGROUP_CPU, l->cg->ops->weight, text, e);
}

static int64_t parse_cpu(const char *text)
{
	return cgroup_parse_key(text, "usage_usec");
}

/* Reads memory.events. The read also arms the descriptor: it is ready again when
 * the file changes after it (kernfs). */
static int64_t oom_kills(struct leaf *l)
{
	char text[512];
	ssize_t n;

	if (l->oom_fd < 0) {
		int rc = cgroup_read(leaf_dir(l, CGROUP_MEMORY),
		    "memory.events", text, sizeof(text));

		return rc < 0 ? rc : cgroup_parse_key(text, "oom_kill");
	}
	n = pread(l->oom_fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		return -errno;
	text[n] = '\0';
	return cgroup_parse_key(text, "oom_kill");
}

/* "oom" counts in the group whose limit it was, "oom_kill" in that of the victim
 * (Documentation/admin-guide/cgroup-v2.rst, memory.events). */
static bool limit_met(struct leaf *l)
{
	char text[512];

	return cgroup_read(leaf_dir(l, CGROUP_MEMORY), "memory.events", text,
		   sizeof(text)) < 0 ||
	       cgroup_parse_key(text, "oom") != 0;
}

/* A leaf has no children: memory.events is what memory.events.local (5.2) is. */
static int oom_open(struct leaf *l, short *ret_events)
{
	if (l->oom_fd < 0) {
		l->oom_fd = openat(leaf_dir(l, CGROUP_MEMORY), "memory.events",
		    O_RDONLY | O_CLOEXEC);
		if (l->oom_fd < 0 || oom_kills(l) < 0)
			return -1;
	}
	*ret_events = POLLPRI;
	return l->oom_fd;
}

static void kill_round(struct leaf *l)
{
	/* Linux 5.14: the kernel kills them all, none can fork away. */
	if (cgroup_write(l->dir[0], "cgroup.kill", "1") < 0)
		(void)cgroup_signal(l->dir[0], SIGKILL);
}

const struct cgroup_ops cgroup_v2_ops = {
    .enter = "cgroup.procs",
    .memory_max = "memory.max",
    .swap_max = "memory.swap.max",
    .memory_now = "memory.current",
    .memory_peak = "memory.peak",
    .cpu_usage = "cpu.stat",
    .weight = "cpu.weight",
    .main_weight = "400",
    .cache_keys = {"inactive_file", "active_file"},
    .cap_cure = "set MemoryMax= in the runner's systemd unit, or write "
		"memory.max there as root",
    .swap_cure = "set MemorySwapMax=0 in the runner's systemd unit, or write "
		 "memory.swap.max there as root",
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
    .clone_into = true,
};
