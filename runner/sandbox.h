/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_SANDBOX_H
#define ISOBOX_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "runner/cgroup.h"
#include "runner/runsc.h"

/* What a sandbox is made of. All strings borrowed. */
struct sandbox_spec {
	const char *rootfs; /* directory of the image */
	const char *init_path; /* the host's isobox-init */
	const char *runsc; /* path of runsc */
	const char *platform;
	bool scratch_exec;
	/* Directories of the host for /workspace and /memory, or NULL. Whoever
	 * else may change their names could have another one mounted. */
	const char *workspace;
	const char *memory;
	/* Wait for sandbox_release() before runsc starts; then it has this
	 * /etc/resolv.conf and a network. NULL: neither, no waiting. */
	const char *resolv_conf;
	/* Not NULL: the directory of a checkpoint to go on from, and itself. */
	const char *checkpoint;
	int checkpoint_fd;
};

/* A running sandbox as its supervisor holds it. */
struct sandbox {
	pid_t pid; /* runsc, PID 1 of the sandbox's own PID namespace */
	int pidfd;
	int in_fd; /* to isobox-init, non-blocking */
	int out_fd; /* frames from isobox-init, non-blocking */
	int log_fd; /* what runsc and init complain, non-blocking */
	int gate_fd; /* for sandbox_release(), else -1 */
};

#define SANDBOX_NONE                                               \
	{                                                          \
		.pid = -1, .pidfd = -1, .in_fd = -1, .out_fd = -1, \
		.log_fd = -1, .gate_fd = -1                        \
	}

/*
 * Starts runsc in the leaf, in namespaces of its own. Returns when the child
 * exists; whether it boots is told by PROTO_GUEST_READY on out_fd. The caller
 * owns *ret (sandbox_done()).
 */
int sandbox_start(const struct sandbox_spec *spec, struct leaf *leaf,
    struct sandbox *ret, struct err *e);

/* The network namespace is ready and verified, or it is not and runsc starts
 * without network. */
int sandbox_release(struct sandbox *s, bool network, struct err *e);

/*
 * sandbox_runsc.c. Runs runsc as PAUSE, RESUME or SAVE beside the one that runs, in
 * its namespaces; image_fd is the directory to save to, for runsc alone, else -1.
 * Success is runsc's word; what it said is appended to log, its end if that is long.
 * -ETIMEDOUT at the deadline (clock_us()). For a process with one thread.
 */
int sandbox_runsc(const struct sandbox *s, enum runsc_verb verb,
    const char *platform, int image_fd, uint64_t deadline_us, struct buf *log,
    struct err *e);

/*
 * A mount of its own of the directory `path` of the host, in no tree: a descriptor
 * from which no way leads out of the directory. dir_fd is the same, open: -ESTALE
 * when it is not.
 */
int sandbox_mount_fd(const char *path, int dir_fd, struct err *e);

/* SIGKILL to PID 1 of its namespace: the kernel ends all that is in it. */
void sandbox_kill(struct sandbox *s);

/*
 * Kills, reaps and closes; takes half-built state. Fails with ETIMEDOUT when the
 * kernel does not let the process go in that time (it hangs in a system call):
 * somebody else has to remove the leaf.
 */
int sandbox_done(struct sandbox *s, unsigned timeout_ms, struct err *e);

#endif
