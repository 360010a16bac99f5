/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What starting and ending programs takes: to become SANDBOX_UID, to map it
 * into a user namespace (it is a root user: CAP_SETFCAP, as Linux 5.12 and
 * gVisor 2026 have it), to limit a program that waited, and to kill what a compile
 * step left. */
#define KEPT_CAPS                                               \
	(1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL | \
	    1u << CAP_SETFCAP | 1u << CAP_SYS_RESOURCE)

/* Should: be the first process of a sandbox of our own. Mustn't: run anywhere
 * else, what follows mounts and changes owners. */
static int setup_pid(struct err *e)
{
	if (getpid() != 1)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "isobox-init is not for use outside a sandbox");
	return 0;
}

int boot_check_descriptors(struct err *e)
{
	struct stat st;

	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fstat(fd, &st) != 0)
			return err_sys(e, errno, "descriptor %d", fd);
		if (st.st_uid != INIT_UID || (st.st_mode & 077) != 0)
			return err_set(e, ERR_INTERNAL, EPERM,
			    "descriptor %d could be opened by the program", fd);
	}
	return 0;
}

/*
 * Should: be the only one who can open the control pipes and the log. gVisor
 * before 2026 lets every process look into /proc/1/fd and open what is there;
 * the owner and mode of a pipe are then all that stands in the way. It keeps
 * those of a container's standard descriptors itself, so this changes nothing
 * outside.
 */
static int setup_descriptors(struct err *e)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
		    fchown(fd, INIT_UID, INIT_UID) != 0)
			return err_sys(e, errno, "descriptor %d", fd);
	return boot_check_descriptors(e);
}

/* Should: have nothing to tell. The same gVisors show /proc/1/environ to
 * all. */
static void setup_environment(void)
{
	for (char **v = environ; *v != NULL; v++)
		explicit_bzero(*v, strlen(*v));
	(void)clearenv();
}

static int nonblocking_pipe(int fds[2], enum pipe_end ours, struct err *e)
{
	if (pipe2(fds, O_CLOEXEC) != 0 ||
	    fcntl(fds[ours], F_SETFL, O_NONBLOCK) != 0)
		return err_sys(e, errno, "cannot make a pipe");
	return 0;
}

/* Should: make them while still SANDBOX_UID, their owner is who may open
 * /dev/stdout. */
static int setup_pipes(struct program_pipes *p, struct err *e)
{
	int rc;

	if ((rc = nonblocking_pipe(p->in, PIPE_WRITE, e)) < 0 ||
	    (rc = nonblocking_pipe(p->out, PIPE_READ, e)) < 0 ||
	    (rc = nonblocking_pipe(p->err, PIPE_READ, e)) < 0)
		return rc;
	return 0;
}

/* gVisor mounts /dev writable, its directories belong to SANDBOX_UID. It cannot
 * be read-only, that would hold for /dev/null as well. */
static int setup_dev(struct err *e)
{
	static const char *const dirs[] = {"/dev", "/dev/net", "/dev/pts"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (chown(dirs[i], INIT_UID, INIT_UID) != 0 && errno != ENOENT)
			return err_sys(e, errno, "chown %s", dirs[i]);
	return 0;
}

static int make_read_only(const char *path, struct err *e)
{
	const unsigned long flags =
	    MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (mount(NULL, path, NULL, flags, NULL) != 0)
		return err_sys(e, errno, "cannot make %s read-only", path);
	return 0;
}

/*
 * /proc/sys and /sys belong to SANDBOX_UID, too. Then the tree for the
 * program: since its root is not that of the mount namespace, it cannot make
 * user namespaces (clone(2), EPERM), in which it would have capabilities and
 * so no limit on processes. A seccomp filter would do, but costs 1.1 ms in
 * every fork: the sentry evaluates it anew for each system call there is.
 */
static int setup_mounts(struct err *e)
{
	int rc;

	if (mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL) != 0)
		return err_sys(e, errno, "cannot bind /proc/sys");
	if ((rc = make_read_only("/proc/sys", e)) < 0 ||
	    (rc = make_read_only("/sys", e)) < 0)
		return rc;
	if (mount("/", PROGRAM_ROOT, NULL, MS_BIND | MS_REC, NULL) != 0)
		return err_sys(e, errno, "cannot mount / on " PROGRAM_ROOT);
	return 0;
}

static int set_capabilities(uint32_t caps, struct err *e)
{
	struct __user_cap_header_struct head = {
	    .version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct data[2] = {
	    {.effective = caps, .permitted = caps}};

	if (syscall(SYS_capset, &head, data) != 0)
		return err_sys(e, errno, "capset");
	return 0;
}

/*
 * Should: no longer be the user that the program will be, and keep no
 * capability but KEPT_CAPS. Being dumpable again makes INIT_UID and not
 * SANDBOX_UID the owner of /proc/1; other users still cannot trace init.
 *
 * This also makes RLIMIT_NPROC exact. gVisor counts a process for the user
 * that its parent was at the fork: init for SANDBOX_UID, and the program, a
 * child of INIT_UID, not. A kernel that moves the count at setuid has the same
 * sum.
 */
static int setup_user(struct err *e)
{
	int rc;

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 ||
	    setgroups(0, NULL) != 0 ||
	    setresgid(INIT_UID, INIT_UID, INIT_UID) != 0 ||
	    setresuid(INIT_UID, INIT_UID, INIT_UID) != 0)
		return err_sys(e, errno, "cannot become user %d", INIT_UID);
	rc = set_capabilities(KEPT_CAPS, e);
	if (rc < 0)
		return rc;
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
		return err_sys(e, errno, "PR_SET_DUMPABLE");
	return 0;
}

/* SIGCHLD is read from a descriptor; SIGPIPE is an error of write(2) to us. */
static int setup_signals(int *ret_fd, struct err *e)
{
	sigset_t blocked, wanted;
	int fd;

	(void)sigemptyset(&wanted);
	(void)sigaddset(&wanted, SIGCHLD);
	blocked = wanted;
	(void)sigaddset(&blocked, SIGPIPE);
	if (sigprocmask(SIG_BLOCK, &blocked, NULL) != 0)
		return err_sys(e, errno, "sigprocmask");
	fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_sys(e, errno, "signalfd");
	*ret_fd = fd;
	return 0;
}

int boot(struct program_pipes *ret_pipes, int *ret_signal_fd, struct err *e)
{
	int rc;

	setup_environment();
	if ((rc = setup_pid(e)) < 0 || (rc = setup_descriptors(e)) < 0 ||
	    (rc = setup_signals(ret_signal_fd, e)) < 0 ||
	    (rc = setup_pipes(ret_pipes, e)) < 0 || (rc = setup_dev(e)) < 0 ||
	    (rc = setup_mounts(e)) < 0 || (rc = setup_user(e)) < 0)
		return rc;
	return 0;
}

int boot_drop_privileges(struct err *e)
{
	return set_capabilities(0, e);
}

int boot_keep_kill(struct err *e)
{
	return set_capabilities(1u << CAP_KILL, e);
}
