/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "runner/cgroup_ops.h"

/* Between two looks at a leaf that dies: from this, doubled, to that. */
#define WAIT_FIRST_NS 500000L
#define WAIT_LAST_NS 8000000L

/* Not yet opened; -1: there is no such file. */
#define CPU_FD_NEW (-2)

int leaf_dir(const struct leaf *l, enum cgroup_ctl ctl)
{
	return l->dir[l->cg->of[ctl]];
}

int leaf_write(const struct leaf *l, enum cgroup_ctl ctl, const char *name,
    const char *value, struct err *e)
{
	int rc = cgroup_write(leaf_dir(l, ctl), name, value);

	if (rc < 0)
		return err_sys(e, -rc, "cgroup %s/%s: cannot write %s to %s",
		    l->cg->path, l->name, value, name);
	return 0;
}

/* ---- making, finding -------------------------------------------------- */

static struct leaf *leaf_new(const struct cgroup *cg, const char *dir_name)
{
	struct leaf *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->cg = cg;
	l->oom_fd = -1;
	l->cpu_fd = CPU_FD_NEW;
	for (unsigned i = 0; i < CGROUP_CTL_COUNT; i++)
		l->dir[i] = -1;
	(void)snprintf(l->name, sizeof(l->name), "%s", dir_name);
	return l;
}

void leaf_free(struct leaf *l)
{
	for (unsigned i = 0; i < l->cg->ndir; i++)
		if (l->dir[i] >= 0)
			(void)close(l->dir[i]);
	if (l->oom_fd >= 0)
		(void)close(l->oom_fd);
	if (l->cpu_fd >= 0)
		(void)close(l->cpu_fd);
	free(l);
}

static int make_dirs(struct leaf *l, struct err *e)
{
	for (unsigned i = 0; i < l->cg->ndir; i++) {
		if (mkdirat(l->cg->dir[i], l->name, 0755) < 0)
			return err_sys(e, errno, "cannot make cgroup %s/%s",
			    l->cg->path, l->name);
		l->dir[i] = cgroup_open_dir(l->cg->dir[i], l->name);
		if (l->dir[i] < 0) {
			/* Nobody else finds what has no descriptor here. */
			(void)unlinkat(l->cg->dir[i], l->name, AT_REMOVEDIR);
			return err_sys(e, -l->dir[i],
			    "cannot open cgroup %s/%s", l->cg->path, l->name);
		}
	}
	return 0;
}

int leaf_create(
    struct cgroup *cg, const char *name, struct leaf **ret, struct err *e)
{
	char dir_name[CGROUP_LEAF_SIZE];
	struct leaf *l;
	int rc;

	if (!cgroup_name_ok(name))
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "the name of a cgroup must be 1 to %d of A-Z a-z 0-9 _ -",
		    CGROUP_LEAF_NAME_MAX);
	(void)snprintf(
	    dir_name, sizeof(dir_name), CGROUP_LEAF_PREFIX "%s", name);
	l = leaf_new(cg, dir_name);
	if (l == NULL)
		return err_sys(e, ENOMEM, "cgroup leaf");
	rc = make_dirs(l, e);
	if (rc >= 0)
		rc = cg->ops->leaf_init(l, e);
	if (rc < 0) {
		/* Only what was made here: another's leaf of this name has
		 * no descriptor in l. */
		struct err ignored;

		(void)leaf_destroy(l, 0, &ignored);
		return rc;
	}
	*ret = l;
	return 0;
}

bool leaf_dir_name(const char *dir_name)
{
	size_t len = strlen(CGROUP_LEAF_PREFIX);

	return strncmp(dir_name, CGROUP_LEAF_PREFIX, len) == 0 &&
	       cgroup_name_ok(dir_name + len);
}

int leaf_find(
    struct cgroup *cg, const char *dir_name, struct leaf **ret, struct err *e)
{
	struct leaf *l = leaf_new(cg, dir_name);

	if (l == NULL)
		return err_sys(e, ENOMEM, "cgroup leaf");
	for (unsigned i = 0; i < cg->ndir; i++) {
		l->dir[i] = cgroup_open_dir(cg->dir[i], dir_name);
		if (l->dir[i] < 0 && l->dir[i] != -ENOENT) {
			int code = -l->dir[i];

			leaf_free(l);
			return err_sys(e, code, "cannot open cgroup %s/%s",
			    cg->path, dir_name);
		}
	}
	*ret = l;
	return 0;
}

/* ---- limits and counters ---------------------------------------------- */

int leaf_set_memory(struct leaf *l, uint64_t bytes, struct err *e)
{
	return l->cg->ops->set_memory(l, bytes, e);
}

int leaf_set_cpu(struct leaf *l, uint32_t cpus_milli, struct err *e)
{
	/* The kernel's least quota is 1 ms in its period of 100. */
	if (cpus_milli < 10)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "a cgroup's CPU limit must be 10 thousandths or more");
	return l->cg->ops->set_cpu(l, cpus_milli, e);
}

/* A throttled process dies when its group gets CPU time again: 270 of them in half
 * a CPU took 2 s, without a quota 20 ms (measured). The file may be absent in a leaf
 * that was found half made. */
void leaf_lift_cpu(struct leaf *l)
{
	struct err ignored;

	(void)l->cg->ops->set_cpu(l, 0, &ignored);
}

int leaf_set_pids(struct leaf *l, uint32_t pids, struct err *e)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", pids);
	return leaf_write(l, CGROUP_PIDS, "pids.max", text, e);
}

int leaf_set_weight(struct leaf *l, uint32_t weight, struct err *e)
{
	return l->cg->ops->set_weight(l, weight, e);
}

int leaf_clone_fd(const struct leaf *l)
{
	return l->cg->ops->clone_into ? l->dir[0] : -1;
}

int leaf_enter(const struct leaf *l)
{
	for (unsigned i = 0; i < l->cg->ndir; i++) {
		int rc = cgroup_write(l->dir[i], l->cg->ops->enter, "0");

		if (rc < 0)
			return rc;
	}
	return 0;
}

int leaf_pids(const struct leaf *l, pid_t *ret, size_t max)
{
	return cgroup_pids(leaf_dir(l, CGROUP_PIDS), ret, max);
}

int leaf_oom_fd(struct leaf *l, short *ret_events)
{
	return l->cg->ops->oom_open(l, ret_events);
}

int64_t leaf_oom_kills(struct leaf *l)
{
	return l->cg->ops->oom_kills(l);
}

bool leaf_limit_met(struct leaf *l)
{
	return l->cg->ops->limit_met(l);
}

int64_t leaf_read_bytes(const struct leaf *l, const char *file)
{
	char text[32];
	uint64_t n;

	if (cgroup_read(leaf_dir(l, CGROUP_MEMORY), file, text, sizeof(text)) <
		0 ||
	    cgroup_parse_limit(text, &n) < 0 || n > INT64_MAX)
		return -1;
	return (int64_t)n;
}

int64_t leaf_memory_now(struct leaf *l)
{
	return leaf_read_bytes(l, l->cg->ops->memory_now);
}

int64_t leaf_memory_peak(struct leaf *l)
{
	return leaf_read_bytes(l, l->cg->ops->memory_peak);
}

int64_t leaf_cpu_us(struct leaf *l)
{
	char text[512];
	ssize_t n;

	if (l->cpu_fd == CPU_FD_NEW)
		l->cpu_fd = openat(leaf_dir(l, CGROUP_CPU),
		    l->cg->ops->cpu_usage, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (l->cpu_fd < 0)
		return -1;
	n = pread(l->cpu_fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	return l->cg->ops->parse_cpu(text);
}

/* ---- the end of a leaf ------------------------------------------------ */

struct wait {
	struct timespec until;
	long ns;
};

static void wait_init(struct wait *w, unsigned timeout_ms)
{
	(void)clock_gettime(CLOCK_MONOTONIC, &w->until);
	w->until.tv_sec += timeout_ms / 1000;
	w->until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	w->until.tv_sec += w->until.tv_nsec / 1000000000;
	w->until.tv_nsec %= 1000000000;
	w->ns = WAIT_FIRST_NS;
}

/* Sleeps a little; false when the time is over. */
static bool wait_more(struct wait *w)
{
	struct timespec now, nap = {.tv_nsec = w->ns};

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec > w->until.tv_sec ||
	    (now.tv_sec == w->until.tv_sec && now.tv_nsec >= w->until.tv_nsec))
		return false;
	(void)nanosleep(&nap, NULL);
	if (w->ns < WAIT_LAST_NS)
		w->ns *= 2;
	return true;
}

static int count_procs(const struct leaf *l)
{
	int most = 0;

	for (unsigned i = 0; i < l->cg->ndir; i++) {
		int n = l->dir[i] >= 0 ? cgroup_signal(l->dir[i], 0) : 0;

		if (n > most)
			most = n;
	}
	return most;
}

static int kill_until(struct leaf *l, struct wait *w)
{
	if (count_procs(l) == 0)
		return 0;
	/* A group that cannot fork cannot outrun us. */
	leaf_lift_cpu(l);
	(void)cgroup_write(leaf_dir(l, CGROUP_PIDS), "pids.max", "0");
	do {
		l->cg->ops->kill_round(l);
		if (count_procs(l) == 0)
			return 0;
	} while (wait_more(w));
	return -EBUSY;
}

int leaf_kill(struct leaf *l, unsigned timeout_ms)
{
	struct wait w;

	wait_init(&w, timeout_ms);
	return kill_until(l, &w);
}

/* EBUSY for some moments after the last process went (measured on both). */
static int remove_dir(int at, const char *name, struct wait *w)
{
	int code;

	do {
		if (unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		code = errno;
	} while (code == EBUSY && wait_more(w));
	return -code;
}

int leaf_destroy(struct leaf *l, unsigned timeout_ms, struct err *e)
{
	struct wait w;
	int rc, busy;

	wait_init(&w, timeout_ms);
	busy = kill_until(l, &w);
	w.ns = WAIT_FIRST_NS;
	rc = 0;
	for (unsigned i = 0; i < l->cg->ndir; i++) {
		int r =
		    l->dir[i] >= 0 ? remove_dir(l->cg->dir[i], l->name, &w) : 0;

		if (r < 0 && rc == 0)
			rc = r;
	}
	if (rc < 0)
		(void)err_sys(e, -rc, "cannot remove cgroup %s/%s%s",
		    l->cg->path, l->name,
		    busy < 0 ? ": processes in it do not die" : "");
	leaf_free(l);
	return rc;
}
