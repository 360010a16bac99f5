/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The child shares init's memory and init sleeps until it
 * has called execve(2) or is gone, as with vfork(2): in the sentry a plain
 * fork is ten times as slow, since it makes an address space that is thrown
 * away. So the child reads its orders from init's memory and leaves its error
 * there.
 *
 * become_program() is the list of what it gives up, in that order.
 */
#include "guest/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/files.h"
#include "guest/strings.h"
#include "lib/cleanup.h"

#define STACK_SIZE (32u * 1024)
#define CHILD_FAILED 125
#define CAP_MAX 63 /* what a set of 64 bits can hold */

#define STR_(x) #x
#define STR(x) STR_(x)
#define ID_MAP STR(PROGRAM_ID) " " STR(SANDBOX_UID) " 1\n"

/* The usual limits of a login; a program may raise the soft one. */
#define FILES_SOFT 1024
#define FILES_HARD 4096

struct start {
	const struct child *c;
	struct err *e;
	int rc; /* negative: e is set */
	int exec_errno;
	int file_fd; /* of child_open_file() */
};

/* Should: have the program's pipes as 0, 1, 2, what it speaks with init by, and
 * nothing else. Mustn't: still hold a control pipe when the user changes. */
static int setup_descriptors(const struct child *c, struct err *e)
{
	/* In the order of their places, all of which are above what init has. */
	const struct {
		int fd, at;
	} more[] = {
	    {c->ending_fd, c->ending_fd > 0 ? WARM_ENDING_FD : 0},
	    {c->link_fd, c->link_at},
	};
	unsigned first = 3;

	for (int i = 0; i < 3; i++)
		if (dup2(c->fds[i], i) != i)
			return err_sys(e, errno, "dup2");
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		if (more[i].at > 0 && dup2(more[i].fd, more[i].at) < 0)
			return err_sys(e, errno, "descriptor %d", more[i].at);
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		const unsigned at = (unsigned)more[i].at;

		if (at > first && close_range(first, at - 1, 0) != 0)
			return err_sys(e, errno, "close_range");
		if (at > 0)
			first = at + 1;
	}
	if (close_range(first, INT_MAX, 0) != 0)
		return err_sys(e, errno, "close_range");
	return 0;
}

/* Should: have nobody else in its session and process group. */
static int setup_session(struct err *e)
{
	if (setsid() < 0)
		return err_sys(e, errno, "setsid");
	(void)umask(022);
	return 0;
}

/* O_CREAT would be refused here: nobody may create files in /proc. */
static int write_proc(const char *path, const char *text, struct err *e)
{
	const size_t len = strlen(text);
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, len) != (ssize_t)len)
		return err_sys(e, errno, "%s", path);
	return 0;
}

/* To map a group, one must be unable to leave others. gVisor 2024 lets nobody
 * call setgroups(2) here, and has no such file. */
static int deny_setgroups(struct err *e)
{
	int rc = write_proc("/proc/self/setgroups", "deny", e);

	return rc == -ENOENT ? 0 : rc;
}

/* The raw calls change this process only; the C library's would look for other
 * threads of init, whose memory this is. */
static int become_sandbox_uid(struct err *e)
{
	if (syscall(SYS_setresgid, SANDBOX_UID, SANDBOX_UID, SANDBOX_UID) !=
		0 ||
	    syscall(SYS_setresuid, SANDBOX_UID, SANDBOX_UID, SANDBOX_UID) != 0)
		return err_sys(e, errno, "cannot change the user");
	return 0;
}

/*
 * Should: be PROGRAM_ID in a user namespace of its own. Only SANDBOX_UID can
 * own what lies in a directory of the host, since that is the one user that
 * the sandbox has there; so the program is that user under another number, and
 * has capabilities over nothing but its namespace.
 *
 */
static int setup_user(struct err *e)
{
	int rc = become_sandbox_uid(e);

	if (rc < 0)
		return rc;
	if (unshare(CLONE_NEWUSER) != 0)
		return err_sys(e, errno, "cannot make a user namespace");
	if ((rc = deny_setgroups(e)) < 0 ||
	    (rc = write_proc("/proc/self/gid_map", ID_MAP, e)) < 0 ||
	    (rc = write_proc("/proc/self/uid_map", ID_MAP, e)) < 0)
		return rc;
	if (getuid() != PROGRAM_ID || getgid() != PROGRAM_ID)
		return err_set(e, ERR_INTERNAL, EPERM,
		    "the user namespace's map did not take");
	return 0;
}

/* Should: see the tree that boot.c made, and be unable to make user namespaces
 * there. */
static int setup_root(struct err *e)
{
	if (chroot(PROGRAM_ROOT) != 0 || chdir("/") != 0)
		return err_sys(e, errno, "chroot");
	if (unshare(CLONE_NEWUSER) == 0 || errno != EPERM)
		return err_set(e, ERR_INTERNAL, EPERM,
		    "the program could make user namespaces");
	return 0;
}

/* Should: have no capability and no way to get one. The ambient set can
 * only hold what is permitted and inheritable; gVisor 2024 has none to
 * clear. */
static int setup_privileges(struct err *e)
{
	struct __user_cap_header_struct head = {
	    .version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[2] = {0};
	int cap;

	for (cap = 0; cap <= CAP_MAX; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0)
			break;
	if (cap <= CAP_LAST_CAP && (cap == 0 || errno != EINVAL))
		return err_sys(e, errno, "capability %d", cap);
	if (syscall(SYS_capset, &head, none) != 0)
		return err_sys(e, errno, "capset");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return err_sys(e, errno, "PR_SET_NO_NEW_PRIVS");
	return 0;
}

static int set_limit(int resource, uint64_t soft, uint64_t hard, struct err *e)
{
	const struct rlimit limit = {.rlim_cur = soft, .rlim_max = hard};

	if (setrlimit((__rlimit_resource_t)resource, &limit) != 0)
		return err_sys(e, errno, "rlimit %d", resource);
	return 0;
}

/* Should: have hard limits. RLIMIT_NPROC counts init in and the program itself
 * not (boot.c), so it is the number of processes and threads of the program. */
static int setup_limits(const struct child *c, struct err *e)
{
	int rc;

	if ((rc = set_limit(RLIMIT_NPROC, c->pids, c->pids, e)) < 0 ||
	    (rc = set_limit(RLIMIT_NOFILE, FILES_SOFT, FILES_HARD, e)) < 0 ||
	    (rc = set_limit(RLIMIT_CORE, 0, 0, e)) < 0)
		return rc;
	if (c->file_bytes == 0)
		return 0;
	return set_limit(RLIMIT_FSIZE, c->file_bytes, c->file_bytes, e);
}

static int setup_files(const struct child *c, struct err *e)
{
	int rc = 0;

	if (chdir(FILES_DIR) != 0)
		return err_sys(e, errno, "cannot enter " FILES_DIR);
	if (c->there != NULL)
		rc = files_remove(c->there, e);
	if (rc == 0)
		rc = files_write(c->files, c->file_count, NULL, e);
	if (rc < 0)
		return rc;
	if (chdir(c->cwd) != 0)
		return err_sys(e, errno, "cannot enter %s", c->cwd);
	return 0;
}

/* Should: start with no signal blocked or pending; init changes no
 * disposition, so they are the default ones. */
static int setup_signals(struct err *e)
{
	sigset_t none;

	(void)sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) != 0)
		return err_sys(e, errno, "sigprocmask");
	return 0;
}

/* To change the user has made init's memory, which is still shared, undumpable,
 * and so SANDBOX_UID the owner of /proc/1. Should: set that right before
 * anything of the program runs. */
static int restore_dumpable(struct err *e)
{
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
		return err_sys(e, errno, "PR_SET_DUMPABLE");
	return 0;
}

static int become_program(const struct child *c, struct err *e)
{
	int rc;

	if ((rc = setup_descriptors(c, e)) < 0 || (rc = setup_session(e)) < 0 ||
	    (rc = setup_user(e)) < 0 || (rc = setup_root(e)) < 0 ||
	    (rc = setup_privileges(e)) < 0 || (rc = setup_limits(c, e)) < 0 ||
	    (rc = setup_files(c, e)) < 0 || (rc = setup_signals(e)) < 0 ||
	    (rc = restore_dumpable(e)) < 0)
		return rc;
	return 0;
}

static const char *find_path(char *const *env)
{
	for (; *env != NULL; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return "";
}

/* Tries dir/name for each dir of PATH, as a shell does; the errno to report. An
 * empty dir is left out: nobody means the working directory by it. */
static int exec_in_path(const struct child *c)
{
	const char *dir = find_path(c->env);
	int why = ENOENT;

	while (*dir != '\0') {
		char file[4096]; /* PATH_MAX */
		int len = (int)strcspn(dir, ":");
		int n = snprintf(
		    file, sizeof(file), "%.*s/%s", len, dir, c->argv[0]);

		if (len > 0 && n > 0 && (size_t)n < sizeof(file)) {
			(void)execve(file, c->argv, c->env);
			if (errno == EACCES)
				why = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR)
				return errno;
		}
		dir += len;
		dir += *dir == ':';
	}
	return why;
}

static int child_main(void *arg)
{
	struct start *s = arg;
	const struct child *c = s->c;

	s->rc = become_program(c, s->e);
	if (s->rc == 0 && strchr(c->argv[0], '/') == NULL) {
		s->exec_errno = exec_in_path(c);
	} else if (s->rc == 0) {
		(void)execve(c->argv[0], c->argv, c->env);
		s->exec_errno = errno;
	}
	_exit(CHILD_FAILED);
}

int child_start(const struct child *c, pid_t *ret_pid, struct err *e)
{
	_Alignas(16) uint8_t stack[STACK_SIZE];
	struct start s = {.c = c, .e = e};
	pid_t pid = clone(child_main, stack + sizeof(stack),
	    CLONE_VM | CLONE_VFORK | SIGCHLD, &s);

	if (pid < 0)
		return err_sys(e, errno, "cannot start a process");
	if (s.rc == 0 && s.exec_errno == 0) {
		*ret_pid = pid;
		return 0;
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return s.rc < 0 ? s.rc : s.exec_errno;
}

int child_compiler_fds(
    const struct program_pipes *pipes, int ret_fds[3], struct err *e)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (null < 0)
		return err_sys(e, errno, "/dev/null");
	ret_fds[0] = null;
	ret_fds[1] = ret_fds[2] = pipes->err[PIPE_WRITE];
	return null;
}

/* In a process of its own, since init must not become the program's user. Its end
 * is no signal: what waits for a program would wake up. */
static int run_helper(int (*helper)(void *), int flags, struct start *s)
{
	_Alignas(16) uint8_t stack[STACK_SIZE];
	pid_t pid;

	s->rc = err_set(s->e, ERR_INTERNAL, ECHILD, "a helper was cut short");
	pid = clone(
	    helper, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | flags, s);
	if (pid < 0)
		return err_sys(s->e, errno, "cannot start a process");
	while (waitpid(pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
		;
	return s->rc;
}

static int enter_files(struct err *e)
{
	int rc = become_sandbox_uid(e);

	if (rc == 0 && chdir(PROGRAM_ROOT FILES_DIR) != 0)
		rc = err_sys(e, errno, "cannot enter " FILES_DIR);
	return rc;
}

static int open_main(void *arg)
{
	struct start *s = arg;

	s->rc = enter_files(s->e);
	if (s->rc == 0)
		s->rc = files_open(s->c->there, &s->file_fd, s->e);
	if (s->rc == 0)
		s->rc = restore_dumpable(s->e);
	_exit(0);
}

int child_open_file(const struct blob *name, int *ret_fd, struct err *e)
{
	const struct child c = {.there = name};
	struct start s = {.c = &c, .e = e, .file_fd = -1};
	int rc = run_helper(open_main, CLONE_FILES, &s);

	if (rc < 0 && s.file_fd >= 0)
		(void)close(s.file_fd);
	if (rc == 0)
		*ret_fd = s.file_fd;
	return rc;
}

static int write_main(void *arg)
{
	struct start *s = arg;
	const struct child *c = s->c;

	s->rc = enter_files(s->e);
	if (s->rc == 0)
		s->rc = files_write(c->files, c->file_count, c->there, s->e);
	if (s->rc == 0)
		s->rc = restore_dumpable(s->e);
	_exit(0);
}

/* Most jobs have no file but the one that is there. */
static int write_claimed(const struct child *c, int there_fd, struct err *e)
{
	struct start s = {.c = c, .e = e};

	if (c->file_count == 1 && c->there != NULL &&
	    blob_equal(&c->files[0].name, c->there))
		return files_fill(there_fd, &c->files[0].content, e);
	return run_helper(write_main, 0, &s);
}

static int limit_claimed(const struct child *c, pid_t pid, struct err *e)
{
	const struct rlimit pids = {c->pids, c->pids};
	const struct rlimit bytes = {c->file_bytes, c->file_bytes};

	if (prlimit(pid, RLIMIT_NPROC, &pids, NULL) != 0 ||
	    (c->file_bytes > 0 &&
		prlimit(pid, RLIMIT_FSIZE, &bytes, NULL) != 0))
		return err_sys(e, errno, "cannot limit process %d", pid);
	return 0;
}

int child_claim(const struct child *c, int there_fd, pid_t pid, struct err *e)
{
	int rc = write_claimed(c, there_fd, e);

	return rc < 0 ? rc : limit_claimed(c, pid, e);
}
