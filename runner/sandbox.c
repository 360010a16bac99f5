/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The supervisor clones one child into the sandbox's cgroup
 * leaf and into new user, mount, PID, network and IPC namespaces. The child is
 * uid 0 there (the service's user outside) and builds the file system that
 * runsc gets to see: a small tmpfs with
 *
 *	/rootfs		the image, read-only, with isobox-init bound into it
 *	/runsc		the one program
 *	/workspace	of a session's step, read-write; likewise /memory
 *	/bundle		config.json
 *	/image		of a restore: what was saved, read-only
 *	/state /tmp	what runsc writes
 *	/proc /dev	proc of the new PID namespace, null and zero
 *
 * Then it changes its root there, lets the host's tree go, and becomes runsc.
 * So neither runsc nor a sentry that was broken out of sees a host path or a
 * process outside, and all that it wrote is gone with the namespace, whatever
 * way it ends: there is no file to clean up.
 *
 * The child is PID 1 of its namespace: when it dies, the kernel kills the rest.
 * It dies with its parent (PR_SET_PDEATHSIG), so a killed supervisor leaves
 * nothing running.
 */
#include "runner/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/buf.h"
#include "lib/cleanup.h"
#include "runner/bundle.h"
#include "runner/runsc.h"

/* Holds config.json, runsc's state and its sockets: some 20 KiB in use. */
#define TREE_SIZE "4m"

#define NET_CORE "proc/sys/net/core"

/* The exit status of a child that did not become runsc. */
#define CHILD_FAILED 125

struct child {
	const struct sandbox_spec *spec;
	const struct leaf *leaf;
	bool enter_leaf; /* v1: not cloned into it */
	const struct buf *config;
	uid_t uid; /* outside */
	gid_t gid;
	int in, out, log;
	int gate; /* read end, -1: no network */
};

/* The child's only way to speak: the log pipe, which the supervisor reads. */
static _Noreturn void child_fail(const struct child *c, const char *what)
{
	(void)dprintf(
	    c->log, "sandbox set-up: %s: %s\n", what, strerror(errno));
	_exit(CHILD_FAILED);
}

static void write_file(const struct child *c, const char *path,
    const void *data, size_t len, int flags)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0600);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len)
		child_fail(c, path);
	(void)close(fd);
}

/* Should: die with the supervisor, count in the leaf, be the first to go when the
 * whole subtree is out of memory. Mustn't: do anything before. */
static void setup_leash(const struct child *c)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		child_fail(c, "prctl(PR_SET_PDEATHSIG)");
	write_file(c, "/proc/self/oom_score_adj", "1000", 4, 0);
	if (c->enter_leaf) {
		int rc = leaf_enter(c->leaf);

		if (rc < 0) {
			errno = -rc;
			child_fail(c, "entering the cgroup leaf");
		}
	}
}

/* The one id that an unprivileged process may map is its own. */
static void setup_ids(const struct child *c)
{
	char map[48];
	int n;

	write_file(c, "/proc/self/setgroups", "deny", 4, 0);
	n = snprintf(map, sizeof map, "0 %u 1", c->uid);
	write_file(c, "/proc/self/uid_map", map, (size_t)n, 0);
	n = snprintf(map, sizeof map, "0 %u 1", c->gid);
	write_file(c, "/proc/self/gid_map", map, (size_t)n, 0);
}

/* A detached, restricted copy of what is at path on the host. */
static int clone_mount(const struct child *c, const char *path, uint64_t attr)
{
	struct mount_attr a = {.attr_set = attr};
	int fd = open_tree(
	    AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &a,
			  sizeof a) != 0)
		child_fail(c, path);
	return fd;
}

/* The checkpoint that was looked at, and no other. */
static int clone_checkpoint(const struct child *c)
{
	struct stat want, is;
	int fd = clone_mount(c, c->spec->checkpoint,
	    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
		MOUNT_ATTR_NOEXEC);

	if (fstat(fd, &is) != 0 || fstat(c->spec->checkpoint_fd, &want) != 0)
		child_fail(c, "stat of the checkpoint");
	if (is.st_dev != want.st_dev || is.st_ino != want.st_ino) {
		errno = ESTALE;
		child_fail(c, "the checkpoint");
	}
	return fd;
}

static int make_tmpfs(const struct child *c)
{
	int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", TREE_SIZE, 0) != 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) != 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
		child_fail(c, "making a tmpfs");
	fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (fd < 0)
		child_fail(c, "fsmount");
	(void)close(fs);
	return fd;
}

static void attach(const struct child *c, int mount_fd, const char *where)
{
	if (move_mount(
		mount_fd, "", AT_FDCWD, where, MOVE_MOUNT_F_EMPTY_PATH) != 0)
		child_fail(c, where);
	(void)close(mount_fd);
}

static void attach_file(const struct child *c, int mount_fd, const char *where)
{
	write_file(c, where, "", 0, O_CREAT | O_EXCL);
	attach(c, mount_fd, where);
}

static void make_dirs(const struct child *c)
{
	static const char *const dirs[] = {"rootfs", "proc", "dev", "state",
	    "bundle", "tmp", "workspace", "memory", "image"};

	for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++)
		if (mkdir(dirs[i], 0700) != 0)
			child_fail(c, dirs[i]);
}

/*
 * Should: leave a tree with only what runsc needs. Mustn't: follow anything
 * that the host changes meanwhile: sources are taken by descriptor first, since
 * the new tree is built over /tmp, which may hide them.
 */
static void setup_tree(const struct child *c)
{
	const uint64_t ro = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID;
	const uint64_t rw = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	int rootfs, runsc, init, null, zero;
	int workspace = -1, memory = -1, image = -1;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		child_fail(c, "making mounts private");
	rootfs = clone_mount(c, c->spec->rootfs, ro | MOUNT_ATTR_NODEV);
	runsc = clone_mount(c, c->spec->runsc, ro | MOUNT_ATTR_NODEV);
	init = clone_mount(c, c->spec->init_path, ro | MOUNT_ATTR_NODEV);
	null = clone_mount(c, "/dev/null", MOUNT_ATTR_NOEXEC);
	zero = clone_mount(c, "/dev/zero", MOUNT_ATTR_NOEXEC);
	if (c->spec->workspace != NULL)
		workspace = clone_mount(c, c->spec->workspace, rw);
	if (c->spec->memory != NULL)
		memory = clone_mount(c, c->spec->memory, rw);
	if (c->spec->checkpoint != NULL)
		image = clone_checkpoint(c);
	attach(c, make_tmpfs(c), "/tmp");
	if (chdir("/tmp") != 0)
		child_fail(c, "/tmp");
	make_dirs(c);
	attach(c, rootfs, "rootfs");
	attach(c, init, "rootfs" BUNDLE_INIT);
	attach_file(c, runsc, "runsc");
	attach_file(c, null, "dev/null");
	attach_file(c, zero, "dev/zero");
	if (workspace >= 0)
		attach(c, workspace, "workspace");
	if (memory >= 0)
		attach(c, memory, "memory");
	if (image >= 0)
		attach(c, image, "image");
	write_file(c, "bundle/config.json", c->config->data, c->config->len,
	    O_CREAT | O_EXCL);
	if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		NULL) != 0)
		child_fail(c, "mounting proc");
}

/* The file as the image has it, its own links followed inside it. */
static int open_in_image(const struct child *c, const char *path)
{
	const struct open_how how = {
	    .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
	int root = open("rootfs", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (root < 0)
		child_fail(c, "rootfs");
	fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
	(void)close(root);
	return fd;
}

static void setup_resolv_conf(const struct child *c)
{
	const char *text = c->spec->resolv_conf;
	int target = open_in_image(c, "etc/resolv.conf");
	int fd;

	if (target < 0) /* isobox-image sees to it that it is there */
		return;
	write_file(c, "resolv.conf", text, strlen(text), O_CREAT | O_EXCL);
	if (chmod("resolv.conf", 0644) != 0)
		child_fail(c, "chmod of resolv.conf");
	fd = clone_mount(c, "resolv.conf",
	    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
		MOUNT_ATTR_NOEXEC);
	if (move_mount(fd, "", target, "",
		MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
		child_fail(c, "mounting resolv.conf");
	(void)close(fd);
	(void)close(target);
}

/* runsc of 2024 takes a network namespace that has net.core.rmem_default for the
 * host's own and refuses it; since Linux 6.11 each namespace has it. Newer ones
 * look for another file of that folder. They read nothing else in it. */
static void setup_net_core(const struct child *c)
{
	if (access(NET_CORE "/rmem_default", F_OK) != 0)
		return;
	if (mount("none", NET_CORE, "tmpfs",
		MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
		"size=4k,mode=0555") != 0)
		child_fail(c, NET_CORE);
}

/* Should: have a network only on the supervisor's word that it is filtered. */
static bool setup_network(const struct child *c)
{
	char word = '0';

	if (c->gate < 0)
		return false;
	if (read(c->gate, &word, 1) != 1)
		child_fail(c, "waiting for the network");
	if (word != '1')
		return false;
	setup_resolv_conf(c);
	setup_net_core(c);
	return true;
}

/* pivot_root(2), "pivot_root(".", ".")": old root over new, then let go. */
static void setup_root(const struct child *c)
{
	if (syscall(SYS_pivot_root, ".", ".") != 0)
		child_fail(c, "pivot_root");
	if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
		child_fail(c, "leaving the host's tree");
}

/* Descriptors 0, 1, 2 and no other: no socket, no leaf, no host directory. */
static void setup_fds(const struct child *c)
{
	int in = fcntl(c->in, F_DUPFD_CLOEXEC, 10);
	int out = fcntl(c->out, F_DUPFD_CLOEXEC, 10);
	int log = fcntl(c->log, F_DUPFD_CLOEXEC, 10);

	if (in < 0 || out < 0 || log < 0 || dup2(in, 0) < 0 ||
	    dup2(out, 1) < 0 || dup2(log, 2) < 0)
		child_fail(c, "moving descriptors");
	if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
		child_fail(c, "close_range");
}

static void setup_signals(const struct child *c)
{
	sigset_t none;

	/* What the supervisor ignores would stay ignored over exec. */
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	if (sigemptyset(&none) != 0 ||
	    sigprocmask(SIG_SETMASK, &none, NULL) != 0)
		child_fail(c, "sigprocmask");
}

/*
 * Should: leave no way to take disk space but to write to it. fallocate(2) takes
 * gigabytes at once, faster than anybody who watches a quota can see; refused like
 * by a file system that has no such thing, libraries write zeros instead. To give
 * space back stays allowed: gVisor does so with its memory.
 */
static void setup_filter(const struct child *c)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	int rc = -ENOMEM;

	if (f != NULL)
		rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EOPNOTSUPP),
		    SCMP_SYS(fallocate), 1,
		    SCMP_A1(SCMP_CMP_MASKED_EQ, FALLOC_FL_PUNCH_HOLE, 0));
	if (rc == 0)
		rc = seccomp_load(f);
	seccomp_release(f);
	if (rc != 0) {
		errno = -rc;
		child_fail(c, "seccomp");
	}
}

static _Noreturn void child_main(const struct child *c)
{
	static const char *const env[] = {"PATH=/", "HOME=/tmp", NULL};
	const char *argv[RUNSC_ARGV_MAX];
	char flag[64];
	bool network;

	setup_leash(c);
	setup_ids(c);
	setup_tree(c);
	network = setup_network(c);
	setup_root(c);
	setup_signals(c);
	setup_fds(c);
	if (c->spec->workspace != NULL)
		setup_filter(c);
	runsc_argv(c->spec->checkpoint != NULL ? RUNSC_RESTORE : RUNSC_RUN,
	    c->spec->platform, network, flag, argv);
	/* execve() takes char *const[] for history; it changes nothing. */
	(void)execve(BUNDLE_RUNSC, (char *const *)(uintptr_t)argv,
	    (char *const *)(uintptr_t)env);
	child_fail(c, "exec of runsc");
}

static pid_t clone_child(const struct leaf *leaf, int *ret_pidfd)
{
	int cgroup = leaf_clone_fd(leaf);
	struct clone_args args = {
	    .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
		     CLONE_NEWIPC | CLONE_PIDFD,
	    .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
	    .exit_signal = SIGCHLD,
	};

	if (cgroup >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (unsigned)cgroup;
	}
	return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* A pipe whose end for us (index `ours`) does not block. */
static int make_pipe(int fds[2], int ours, struct err *e)
{
	if (pipe2(fds, O_CLOEXEC) != 0)
		return err_sys(e, errno, "pipe");
	if (fcntl(fds[ours], F_SETFL, O_NONBLOCK) != 0)
		return err_sys(e, errno, "fcntl(O_NONBLOCK)");
	return 0;
}

static void close_pair(const int *fds)
{
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
}

int sandbox_start(const struct sandbox_spec *spec, struct leaf *leaf,
    struct sandbox *ret, struct err *e)
{
	const struct bundle_spec bundle = {.scratch_exec = spec->scratch_exec,
	    .workspace = spec->workspace != NULL,
	    .memory = spec->memory != NULL};
	cleanup_buf struct buf config = {0};
	int in[2] = {-1, -1}, out[2] = {-1, -1}, log[2] = {-1, -1};
	int gate[2] = {-1, -1};
	struct sandbox s = SANDBOX_NONE;
	/* Asked here: in its new namespace the child would get the overflow id. */
	const uid_t uid = geteuid();
	const gid_t gid = getegid();
	int rc;

	bundle_config(&bundle, &config);
	if (config.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	if ((rc = make_pipe(in, 1, e)) < 0 || (rc = make_pipe(out, 0, e)) < 0 ||
	    (rc = make_pipe(log, 0, e)) < 0 ||
	    (spec->resolv_conf != NULL && (rc = make_pipe(gate, 1, e)) < 0))
		goto out;
	s.pid = clone_child(leaf, &s.pidfd);
	if (s.pid < 0) {
		rc = err_sys(e, errno, "clone3 into new namespaces");
		goto out;
	}
	if (s.pid == 0) {
		const struct child c = {.spec = spec,
		    .leaf = leaf,
		    .enter_leaf = leaf_clone_fd(leaf) < 0,
		    .config = &config,
		    .uid = uid,
		    .gid = gid,
		    .in = in[0],
		    .out = out[1],
		    .log = log[1],
		    .gate = gate[0]};

		child_main(&c);
	}
	s.in_fd = take_fd(&in[1]);
	s.out_fd = take_fd(&out[0]);
	s.log_fd = take_fd(&log[0]);
	s.gate_fd = take_fd(&gate[1]);
	*ret = s;
	rc = 0;
out:
	close_pair(in);
	close_pair(out);
	close_pair(log);
	close_pair(gate);
	return rc;
}

int sandbox_release(struct sandbox *s, bool network, struct err *e)
{
	ssize_t n = write(s->gate_fd, network ? "1" : "0", 1);

	if (n != 1)
		return err_sys(e, errno, "starting runsc");
	close_fd(&s->gate_fd);
	return 0;
}

void sandbox_kill(struct sandbox *s)
{
	if (s->pidfd >= 0)
		(void)syscall(
		    SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
}

/* A pidfd is readable when its process has ended. */
static bool reap(struct sandbox *s, unsigned timeout_ms)
{
	struct pollfd p = {s->pidfd, POLLIN, 0};

	while (poll(&p, 1, (int)timeout_ms) < 0 && errno == EINTR)
		;
	return waitpid(s->pid, NULL, WNOHANG) != 0;
}

int sandbox_done(struct sandbox *s, unsigned timeout_ms, struct err *e)
{
	int rc = 0;

	sandbox_kill(s);
	if (s->pid > 0 && !reap(s, timeout_ms))
		rc = err_set(e, ERR_INTERNAL, ETIMEDOUT,
		    "sandbox process %d does not end", s->pid);
	s->pid = -1;
	close_fd(&s->pidfd);
	close_fd(&s->in_fd);
	close_fd(&s->out_fd);
	close_fd(&s->log_fd);
	close_fd(&s->gate_fd);
	return rc;
}
