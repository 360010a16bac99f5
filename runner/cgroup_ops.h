/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CGROUP_OPS_H
#define ISOBOX_CGROUP_OPS_H

#include "runner/cgroup.h"

/* Shared by cgroup.c, cgroup_v1.c, cgroup_v2.c and their tests; no one else. */

enum cgroup_ctl {
	CGROUP_MEMORY,
	CGROUP_PIDS,
	CGROUP_CPU,
	CGROUP_CTL_COUNT
};

/* "run-" and a name of 64 bytes */
#define CGROUP_LEAF_PREFIX "run-"
#define CGROUP_LEAF_NAME_MAX 64
#define CGROUP_LEAF_SIZE (sizeof(CGROUP_LEAF_PREFIX) + CGROUP_LEAF_NAME_MAX)

/*
 * The subtree is one directory in each hierarchy that it needs: one on v2, up to
 * three on v1, where controllers may be mounted together.
 */
struct cgroup {
	const struct cgroup_ops *ops;
	char *path; /* below the mount points, for messages */
	unsigned ndir;
	int dir[CGROUP_CTL_COUNT];
	unsigned of[CGROUP_CTL_COUNT]; /* which dir has a controller's files */
};

struct leaf {
	const struct cgroup *cg;
	char name[CGROUP_LEAF_SIZE];
	int dir[CGROUP_CTL_COUNT]; /* as in cg; -1 where it does not exist */
	int oom_fd;
	int cpu_fd; /* the counter, once it was asked for; or negative */
};

/* Where v1 and v2 differ. */
struct cgroup_ops {
	const char *enter; /* names of files */
	const char *memory_max;
	const char *swap_max;
	const char *memory_now;
	const char *memory_peak;
	const char *cpu_usage;
	const char *weight;
	const char *main_weight; /* see prefer_main() */
	const char *cache_keys[2]; /* of memory.stat, the whole subtree's */
	const char *cap_cure; /* ends a sentence about a missing cap */
	const char *swap_cure;

	/* Hands the controllers to the leaves; the process is in main. */
	int (*enable)(const struct cgroup *cg, struct err *e);
	/* What a new leaf needs before its limits. */
	int (*leaf_init)(struct leaf *l, struct err *e);
	int (*set_memory)(struct leaf *l, uint64_t bytes, struct err *e);
	/* 0 lifts the quota. */
	int (*set_cpu)(struct leaf *l, uint32_t cpus_milli, struct err *e);
	int (*set_weight)(struct leaf *l, uint32_t weight, struct err *e);
	/* Microseconds in the text of cpu_usage; negative errno. */
	int64_t (*parse_cpu)(const char *text);
	int (*oom_open)(struct leaf *l, short *ret_events);
	int64_t (*oom_kills)(struct leaf *l);
	bool (*limit_met)(struct leaf *l); /* also when it is not known */
	/* One round of SIGKILL. */
	void (*kill_round)(struct leaf *l);
	bool clone_into;
};

extern const struct cgroup_ops cgroup_v1_ops;
extern const struct cgroup_ops cgroup_v2_ops;

/*
 * Files of one directory (cgroup_file.c). A name that begins with "?" may be
 * absent: that is no failure of a write. All return negative errno.
 */
int cgroup_open_dir(int at, const char *name);
int cgroup_write(int dir, const char *name, const char *value);
/* At most size - 1 bytes, a NUL after them; the number of bytes. */
int cgroup_read(int dir, const char *name, char *buf, size_t size);
/* How many processes dir's cgroup.procs lists, zombies not counted; with `sig`,
 * each is sent that signal. */
int cgroup_signal(int dir, int sig);
/* The pids that dir's cgroup.procs lists, at most max; how many. */
int cgroup_pids(int dir, pid_t *ret, size_t max);
/* SIGKILL to each process in dir that has the caller's name (comm) and is not
 * the caller: how many there were. */
int cgroup_kill_namesakes(int dir);

/* A leaf's directory of a controller's files; cgroup_write() into it. */
int leaf_dir(const struct leaf *l, enum cgroup_ctl ctl);
int leaf_write(const struct leaf *l, enum cgroup_ctl ctl, const char *name,
    const char *value, struct err *e);

/* The number in a file of the memory controller; -1 when it is not known. */
int64_t leaf_read_bytes(const struct leaf *l, const char *file);

/* Whether a directory's name is a leaf's; the leaf of that directory as it was
 * found, perhaps half made. */
bool leaf_dir_name(const char *dir_name);
int leaf_find(
    struct cgroup *cg, const char *dir_name, struct leaf **ret, struct err *e);

/*
 * Parsers of what the kernel prints, without side effects (cgroup_parse.c).
 */
struct cgroup_mount {
	bool v2;
	char *root; /* of the file system that is mounted */
	char *point; /* where */
	char *options; /* of the file system: v1's controllers are there */
};

/* One line of /proc/self/mountinfo, which is cut to pieces; *ret points into it.
 * 1: a cgroup mount, 0: another, -EINVAL: not such a line. */
int cgroup_parse_mount(char *line, struct cgroup_mount *ret);

/* Whether word is one of the words, split by sep, in the len bytes at list. */
bool cgroup_list_has(const char *list, size_t len, char sep, const char *word);

/* The path of a v1 controller ("" for the v2 tree) in the text of
 * /proc/self/cgroup, not terminated; NULL when it has none. */
const char *cgroup_parse_self(
    const char *text, const char *controller, size_t *ret_len);

/* What of `path` is left below a mount of `root` ("" for root itself), or NULL
 * when path is not below it. */
const char *cgroup_path_below(const char *root, const char *path);

/* Absolute, without "." and ".." and empty components. */
bool cgroup_path_ok(const char *path);

/* A NAME of leaf_create(). */
bool cgroup_name_ok(const char *name);

/* A limit: a decimal number with an optional newline, or "max". -EINVAL, and
 * UINT64_MAX for what the kernel prints as no limit. */
int cgroup_parse_limit(const char *text, uint64_t *ret);

/* The number behind `key` in lines of "key number"; -ENOENT, -EINVAL. */
int64_t cgroup_parse_key(const char *text, const char *key);

#endif
