/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The delegated subtree: finding it, its memory cap, the sweep. cgroup_leaf.c
 * has what a sandbox needs, cgroup_v1.c and cgroup_v2.c the differences.
 *
 * Theory of operation. Whoever set the host up made SUBTREE, capped its memory
 * and gave the directory, but not the cap, to our user. On v2 a process can be
 * moved only inside the subtree that it was started in (the kernel asks for write
 * access to cgroup.procs of the common ancestor), therefore the runner must have
 * been started in it. v2 also wants every process in a group without children
 * that have controllers, hence SUBTREE/main for ourselves. v1 asks for neither,
 * but works the same way, so that there is one picture to explain.
 */
#include "runner/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file.h"
#include "lib/log.h"
#include "runner/cgroup_ops.h"

#define SWEEP_TIMEOUT_MS 5000
#define CGROUP_DEPTH_MAX 64 /* no host nests as deep */
#define MAIN_GROUP "main"

static const char *const ctl_names[CGROUP_CTL_COUNT] = {
    [CGROUP_MEMORY] = "memory",
    [CGROUP_PIDS] = "pids",
    [CGROUP_CPU] = "cpu",
};

static bool is_cgroup_fs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == CGROUP_SUPER_MAGIC ||
					    fs.f_type == CGROUP2_SUPER_MAGIC);
}

/* ---- where the subtree is --------------------------------------------- */

/* Opens PATH as one mount shows it: 0 or more, or -ENOENT when that mount does
 * not show it. Anything but a cgroup file system that lies there is passed by. */
static int open_in_mount(const struct cgroup_mount *m, const char *path)
{
	const char *rest = cgroup_path_below(m->root, path);
	cleanup_fd int point = -1;
	cleanup_fd int fd = -1;

	if (rest == NULL)
		return -ENOENT;
	point = open(m->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (point < 0)
		return -errno;
	fd = cgroup_open_dir(point, *rest != '\0' ? rest : ".");
	if (fd < 0)
		return take_fd(&fd);
	return is_cgroup_fs(fd) ? take_fd(&fd) : -ENOENT;
}

/* Opens PATH in a v1 controller's hierarchy, or (NULL) in the v2 tree. */
static int open_group(const char *controller, const char *path, struct err *e)
{
	cleanup_file FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	const char *tree = controller != NULL ? controller : "v2";
	size_t cap = 0;
	int rc = 0;

	if (f == NULL)
		return err_sys(e, errno, "cannot read /proc/self/mountinfo");
	while (getline(&line, &cap, f) > 0) {
		struct cgroup_mount m;

		if (cgroup_parse_mount(line, &m) != 1 ||
		    m.v2 != (controller == NULL))
			continue;
		if (controller != NULL &&
		    !cgroup_list_has(
			m.options, strlen(m.options), ',', controller))
			continue;
		rc = open_in_mount(&m, path);
		if (rc >= 0)
			return rc;
	}
	if (rc == 0)
		return err_set(e, ERR_INTERNAL, ENOENT,
		    "no cgroup file system with %s is mounted", tree);
	return err_sys(e, -rc,
	    "cannot open cgroup %s (%s); it must be made and given to the "
	    "runner's user first (isobox-check says how)",
	    path, tree);
}

static int read_self(char **ret, struct err *e)
{
	cleanup_file FILE *f = fopen("/proc/self/cgroup", "re");
	size_t cap = 0;

	/* No NUL is in the file: this reads it whole. */
	if (f == NULL || getdelim(ret, &cap, '\0', f) <= 0)
		return err_sys(e, errno, "cannot read /proc/self/cgroup");
	return 0;
}

/* The group that this process was started in, "main" taken off. On v1 that is
 * one path, or nobody delegated a subtree. */
static int own_path(const char *text, bool v1, char **ret, struct err *e)
{
	cleanup_free char *found = NULL;
	size_t len;

	for (unsigned i = 0; i < CGROUP_CTL_COUNT; i++) {
		const char *p =
		    cgroup_parse_self(text, v1 ? ctl_names[i] : "", &len);

		if (p == NULL)
			return err_set(e, ERR_INTERNAL, ENOENT,
			    "/proc/self/cgroup names no group for %s",
			    ctl_names[i]);
		if (found == NULL)
			found = strndup(p, len);
		if (found == NULL)
			return err_sys(e, ENOMEM, "cgroup path");
		if (strlen(found) != len || memcmp(found, p, len) != 0)
			return err_set(e, ERR_INTERNAL, EXDEV,
			    "not started in a delegated cgroup subtree: %s is "
			    "in %.*s but memory in %.60s",
			    ctl_names[i], (int)(len < 60 ? len : 60), p, found);
	}
	len = strlen(found);
	if (len >= 5 && strcmp(found + len - 5, "/" MAIN_GROUP) == 0)
		found[len == 5 ? 1 : len - 5] = '\0';
	*ret = take_ptr(&found);
	return 0;
}

/* v1 counts as soon as one of the three controllers is there: then it is not
 * in the v2 tree, and the others must be in v1, too. */
static bool host_is_v1(const char *text)
{
	size_t len;

	for (unsigned i = 0; i < CGROUP_CTL_COUNT; i++)
		if (cgroup_parse_self(text, ctl_names[i], &len) != NULL)
			return true;
	return false;
}

/* The root of a hierarchy cannot be capped, and holds the whole host. */
static bool is_host_root(int dir, bool v1)
{
	/* Files that are only there, and only not there (cgroup.c, kernel). */
	if (v1)
		return faccessat(dir, "cgroup.sane_behavior", F_OK, 0) == 0;
	return faccessat(dir, "cgroup.events", F_OK, 0) != 0;
}

static int add_dir(struct cgroup *cg, enum cgroup_ctl ctl,
    const char *controller, struct err *e)
{
	cleanup_fd int fd = open_group(controller, cg->path, e);
	struct stat a, b;

	if (fd < 0)
		return take_fd(&fd);
	if (is_host_root(fd, controller != NULL))
		return err_set(e, ERR_INTERNAL, EPERM,
		    "cgroup %s is the root of its hierarchy: start the runner "
		    "in a subtree of its own (systemd: Delegate=yes)",
		    cg->path);
	if (fstat(fd, &a) < 0)
		return err_sys(e, errno, "cgroup %s", cg->path);
	for (unsigned i = 0; i < cg->ndir; i++) {
		if (fstat(cg->dir[i], &b) == 0 && a.st_dev == b.st_dev) {
			cg->of[ctl] = i;
			return 0;
		}
	}
	cg->of[ctl] = cg->ndir;
	cg->dir[cg->ndir++] = take_fd(&fd);
	return 0;
}

/* ---- open and close --------------------------------------------------- */

static int move_to_main(struct cgroup *cg, struct err *e)
{
	for (unsigned i = 0; i < cg->ndir; i++) {
		cleanup_fd int dir = -1;
		int rc;

		if (mkdirat(cg->dir[i], MAIN_GROUP, 0755) < 0 &&
		    errno != EEXIST)
			return err_sys(e, errno,
			    "cannot make %s/" MAIN_GROUP
			    ": the cgroup must belong to the runner's user",
			    cg->path);
		dir = cgroup_open_dir(cg->dir[i], MAIN_GROUP);
		if (dir < 0)
			return err_sys(
			    e, -dir, "cannot open %s/" MAIN_GROUP, cg->path);
		rc = cgroup_write(dir, "cgroup.procs", "0");
		if (rc < 0)
			return err_sys(e, -rc,
			    "cannot move into %s/" MAIN_GROUP
			    ": the runner must be started inside %s (systemd: "
			    "Delegate=yes)",
			    cg->path, cg->path);
	}
	return 0;
}

/* The runner, its supervisors and watchers do little, but somebody waits for it, or
 * it stops a program that takes too much: they get four times the share of a
 * sandbox. Without that they only are slower. */
static void prefer_main(const struct cgroup *cg)
{
	cleanup_fd int dir =
	    cgroup_open_dir(cg->dir[cg->of[CGROUP_CPU]], MAIN_GROUP);
	int rc = dir < 0
		     ? dir
		     : cgroup_write(dir, cg->ops->weight, cg->ops->main_weight);

	if (rc < 0)
		log_warn("cgroup %s/" MAIN_GROUP ": %s is not set: %s",
		    cg->path, cg->ops->weight, strerror(-rc));
}

static int find(struct cgroup *cg, const char *path, struct err *e)
{
	cleanup_free char *text = NULL;
	int rc = read_self(&text, e);
	bool v1;

	if (rc < 0)
		return rc;
	v1 = host_is_v1(text);
	cg->ops = v1 ? &cgroup_v1_ops : &cgroup_v2_ops;
	if (path != NULL) {
		cg->path = strdup(path);
		if (cg->path == NULL)
			return err_sys(e, ENOMEM, "cgroup path");
	} else {
		rc = own_path(text, v1, &cg->path, e);
		if (rc < 0)
			return rc;
	}
	if (!cgroup_path_ok(cg->path))
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "cgroup \"%.80s\" must be an absolute path below the mount "
		    "point, without . and ..",
		    cg->path);
	for (unsigned i = 0; i < CGROUP_CTL_COUNT && rc >= 0; i++)
		rc = add_dir(
		    cg, (enum cgroup_ctl)i, v1 ? ctl_names[i] : NULL, e);
	return rc;
}

int cgroup_open(const char *path, struct cgroup **ret, struct err *e)
{
	struct cgroup *cg = calloc(1, sizeof(*cg));
	int rc;

	if (cg == NULL)
		return err_sys(e, ENOMEM, "cgroup");
	rc = find(cg, path, e);
	if (rc >= 0)
		rc = move_to_main(cg, e);
	if (rc >= 0)
		rc = cg->ops->enable(cg, e);
	if (rc < 0) {
		cgroup_close(cg);
		return rc;
	}
	prefer_main(cg);
	*ret = cg;
	return 0;
}

int cgroup_lock(struct cgroup *cg, int *ret_fd, struct err *e)
{
	/* Opened anew: a lock belongs to an open file, and cg's descriptors
	 * live on in the supervisors. */
	cleanup_fd int fd =
	    cgroup_open_dir(cg->dir[cg->of[CGROUP_MEMORY]], ".");

	if (fd < 0)
		return err_sys(e, -fd, "cgroup %s", cg->path);
	if (file_lock(fd) < 0)
		return err_set(e, ERR_INTERNAL, EBUSY,
		    "another isobox-runner lives in cgroup %s", cg->path);
	*ret_fd = take_fd(&fd);
	return 0;
}

void cgroup_close(struct cgroup *cg)
{
	if (cg == NULL)
		return;
	for (unsigned i = 0; i < cg->ndir; i++)
		(void)close(cg->dir[i]);
	free(cg->path);
	free(cg);
}

/* ---- the memory cap --------------------------------------------------- */

struct cap {
	uint64_t bytes; /* UINT64_MAX: none */
	bool ours; /* one was found, but we could lift it */
};

/* Looks at `file` in the subtree and in every group above it; the least one that
 * we may not write counts. */
static void find_cap(const struct cgroup *cg, const char *file, struct cap *ret)
{
	cleanup_fd int dir =
	    cgroup_open_dir(cg->dir[cg->of[CGROUP_MEMORY]], ".");
	struct stat first, st;

	*ret = (struct cap){.bytes = UINT64_MAX};
	if (dir < 0 || fstat(dir, &first) < 0)
		return;
	/* ".." of the topmost group leaves the hierarchy. */
	for (unsigned depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
		char text[64];
		uint64_t n;
		int up;

		if (dir < 0 || fstat(dir, &st) < 0 || st.st_dev != first.st_dev)
			return;
		if (cgroup_read(dir, file, text, sizeof(text)) >= 0 &&
		    cgroup_parse_limit(text, &n) == 0 && n != UINT64_MAX) {
			if (faccessat(dir, file, W_OK, AT_EACCESS) == 0)
				ret->ours = true;
			else if (n < ret->bytes)
				ret->bytes = n;
		}
		up = cgroup_open_dir(dir, "..");
		(void)close(dir);
		dir = up;
	}
}

/* v1 before 5.11 could leave a group's limit out of its children's reckoning. */
static bool caps_children(const struct cgroup *cg)
{
	char text[8];

	return cgroup_read(cg->dir[cg->of[CGROUP_MEMORY]],
		   "memory.use_hierarchy", text, sizeof(text)) < 0 ||
	       text[0] == '1';
}

int cgroup_check_cap(struct cgroup *cg, struct err *e)
{
	const struct cgroup_ops *ops = cg->ops;
	struct sysinfo host;
	struct cap cap;
	uint64_t ram;

	if (sysinfo(&host) < 0)
		return err_sys(e, errno, "sysinfo");
	ram = (uint64_t)host.totalram * host.mem_unit;
	find_cap(cg, ops->memory_max, &cap);
	if (cap.bytes == UINT64_MAX && cap.ours)
		return err_set(e, ERR_SANDBOX_FAILED, EPERM,
		    "the memory cap of cgroup %s is the runner's own to lift: "
		    "give its %s to root",
		    cg->path, ops->memory_max);
	if (cap.bytes == UINT64_MAX)
		return err_set(e, ERR_SANDBOX_FAILED, EPERM,
		    "cgroup %s has no memory cap: %s", cg->path, ops->cap_cure);
	if (cap.bytes >= ram)
		return err_set(e, ERR_SANDBOX_FAILED, EPERM,
		    "the memory cap of cgroup %s, %llu MiB, is not below this "
		    "host's %llu MiB: %s",
		    cg->path, (unsigned long long)(cap.bytes >> 20),
		    (unsigned long long)(ram >> 20), ops->cap_cure);
	if (!caps_children(cg))
		return err_set(e, ERR_SANDBOX_FAILED, EPERM,
		    "the memory cap of cgroup %s does not hold for its "
		    "children: write 1 to its memory.use_hierarchy",
		    cg->path);
	if (host.totalswap == 0)
		return 0;
	find_cap(cg, ops->swap_max, &cap);
	if (cap.bytes == UINT64_MAX)
		return err_set(e, ERR_SANDBOX_FAILED, EPERM,
		    "this host has swap and cgroup %s does not cap it: %s",
		    cg->path, ops->swap_cure);
	return 0;
}

uint64_t cgroup_memory_cap(struct cgroup *cg)
{
	struct cap cap;

	find_cap(cg, cg->ops->memory_max, &cap);
	return cap.bytes != UINT64_MAX ? cap.bytes : 0;
}

int64_t cgroup_memory_used(struct cgroup *cg)
{
	const struct cgroup_ops *ops = cg->ops;
	const int dir = cg->dir[cg->of[CGROUP_MEMORY]];
	char text[4096];
	uint64_t used;
	int64_t left;

	if (cgroup_read(dir, ops->memory_now, text, sizeof(text)) < 0 ||
	    cgroup_parse_limit(text, &used) < 0 || used > INT64_MAX ||
	    cgroup_read(dir, "memory.stat", text, sizeof(text)) < 0)
		return -1;
	left = (int64_t)used;
	for (unsigned i = 0; i < 2; i++) {
		int64_t n = cgroup_parse_key(text, ops->cache_keys[i]);

		if (n > 0)
			left -= n;
	}
	return left > 0 ? left : 0;
}

/* ---- what an earlier life left ---------------------------------------- */

static int sweep_dir(struct cgroup *cg, int dir, struct err *e)
{
	cleanup_fd int fd = cgroup_open_dir(dir, ".");
	cleanup_dir DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	int swept = 0, rc = 0;

	if (list == NULL)
		return err_sys(e, errno, "cannot list cgroup %s", cg->path);
	(void)take_fd(&fd); /* now the list's */
	while ((entry = readdir(list)) != NULL) {
		struct err why;
		struct leaf *l;

		if (entry->d_type != DT_DIR || !leaf_dir_name(entry->d_name))
			continue;
		if (leaf_find(cg, entry->d_name, &l, &why) < 0 ||
		    leaf_destroy(l, SWEEP_TIMEOUT_MS, &why) < 0) {
			log_error("sweep: %s", why.msg);
			rc = err_set(e, ERR_INTERNAL, why.code, "%s", why.msg);
		} else {
			swept++;
		}
	}
	return rc < 0 ? rc : swept;
}

/* A supervisor ends when its runner is gone; one that somebody has stopped does
 * not. The lock is ours, so each that is in main is of an earlier life. */
static void sweep_main(struct cgroup *cg)
{
	cleanup_fd int dir =
	    cgroup_open_dir(cg->dir[cg->of[CGROUP_MEMORY]], MAIN_GROUP);
	int n = dir >= 0 ? cgroup_kill_namesakes(dir) : 0;

	if (n > 0)
		log_warn("killed %d processes of an earlier runner", n);
}

int cgroup_sweep(struct cgroup *cg, struct err *e)
{
	int swept = 0;

	sweep_main(cg);

	for (unsigned i = 0; i < cg->ndir; i++) {
		int rc = sweep_dir(cg, cg->dir[i], e);

		if (rc < 0)
			return rc;
		swept += rc;
	}
	return swept;
}
