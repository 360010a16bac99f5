/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CGROUP_H
#define ISOBOX_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"

/*
 * The delegated cgroup subtree and its leaves, one leaf a sandbox. cgroup v2 and
 * v1 (memory, pids, cpu, also on a hybrid host) behind one interface: a table of
 * operations chosen by cgroup_open(). Nothing here needs root: the subtree was
 * given to our user beforehand, and its memory cap is not ours to lift.
 *
 *	SUBTREE/		memory-capped by whoever delegated it
 *	SUBTREE/main		our own processes
 *	SUBTREE/run-NAME	a leaf
 */
struct cgroup;
struct leaf;

/*
 * Finds the subtree: `path` below the mount points, or (NULL) the one that this
 * process was started in (a last component "main" is taken off). Moves this
 * process into SUBTREE/main and enables the controllers. The caller owns *ret.
 */
int cgroup_open(const char *path, struct cgroup **ret, struct err *e);
void cgroup_close(struct cgroup *cg);

/*
 * Takes the subtree for this process: a second runner in it would sweep the
 * leaves of the first. The lock is held as long as *ret_fd is open, in children
 * too: they close it. EBUSY when somebody has it.
 */
int cgroup_lock(struct cgroup *cg, int *ret_fd, struct err *e);

/* Whether the subtree, or a group above it, caps memory (and swap where the host
 * has any). Failure: the reason for /readyz, with what would cure it. */
int cgroup_check_cap(struct cgroup *cg, struct err *e);

/* The cap in force in bytes, for metrics. 0 when unknown. */
uint64_t cgroup_memory_cap(struct cgroup *cg);

/* Bytes in use below the subtree, without what the kernel can drop: its cache of
 * files. -1 where it does not tell. */
int64_t cgroup_memory_used(struct cgroup *cg);

/* Kills what is in any leaf and removes all leaves, and kills what an earlier
 * runner left in main: the start after a crash, under cgroup_lock().
 * Goes on past a failure, logs each, and reports one. The number removed (v1: of
 * a half made leaf, too). */
int cgroup_sweep(struct cgroup *cg, struct err *e);

/* A new, empty leaf "run-NAME"; NAME is [A-Za-z0-9_-]{1,64}. memory.oom.group is
 * set where there is one, swap is off. */
int leaf_create(
    struct cgroup *cg, const char *name, struct leaf **ret, struct err *e);

/* Limits; may be called again while the sandbox runs. */
int leaf_set_memory(struct leaf *l, uint64_t bytes, struct err *e);
int leaf_set_cpu(struct leaf *l, uint32_t cpus_milli, struct err *e);
void leaf_lift_cpu(struct leaf *l); /* no limit, for one that ends */
int leaf_set_pids(struct leaf *l, uint32_t pids, struct err *e);

/* The leaf's share of the CPU when others want it, too: in hundredths of what a
 * leaf has that was never set. */
#define LEAF_WEIGHT_NORMAL 100u
#define LEAF_WEIGHT_LOW 10u /* nobody waits for it */
int leaf_set_weight(struct leaf *l, uint32_t weight, struct err *e);

/* v2: a descriptor for CLONE_INTO_CGROUP, borrowed; v1: -1, the child calls
 * leaf_enter() first of all. */
int leaf_clone_fd(const struct leaf *l);

/* Moves the calling process, of one thread, in; async-signal-safe. 0 or negative
 * errno. */
int leaf_enter(const struct leaf *l);

/* A descriptor that becomes ready for *ret_events (poll.h) when the kernel killed
 * in this leaf for memory; borrowed. -1 when there is none: poll the count. It may
 * become ready for less, too (v2: the limit was met; v1: a group above is out of
 * memory) and on v1 a moment before the kill: leaf_oom_kills() decides, and it
 * makes the descriptor wait again. */
int leaf_oom_fd(struct leaf *l, short *ret_events);

/* How often the kernel killed for memory in this leaf; negative errno. */
int64_t leaf_oom_kills(struct leaf *l);

/* The processes in the leaf, as this PID namespace has them: at most max of them
 * into ret; how many, or negative errno. */
int leaf_pids(const struct leaf *l, pid_t *ret, size_t max);

/* Whether this leaf came to its own limit. If not, a kill in it was for the memory
 * of a group above: the host's want, not the program's. */
bool leaf_limit_met(struct leaf *l);

/* Bytes charged now, and at most so far; -1 where the kernel does not tell. */
int64_t leaf_memory_now(struct leaf *l);
int64_t leaf_memory_peak(struct leaf *l);

/* CPU time that the leaf took so far, in microseconds; -1 where the kernel does
 * not tell (v1: cpuacct is not mounted together with cpu). The first call opens a
 * file, the others are one read. */
int64_t leaf_cpu_us(struct leaf *l);

/* SIGKILL to every process in the leaf, again until none is left that is not a
 * zombie, for at most timeout_ms. 0, or -EBUSY when some remain. Nothing can be
 * forked in the leaf afterwards: pids.max is 0. */
int leaf_kill(struct leaf *l, unsigned timeout_ms);

/* Kills, removes the directories (retrying while the kernel lets go) and frees
 * l in every case. On failure the leaf stays for the next sweep and *e says so. */
int leaf_destroy(struct leaf *l, unsigned timeout_ms, struct err *e);

/* Frees l and closes its descriptors; the leaf itself is somebody else's. */
void leaf_free(struct leaf *l);

#endif
