/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/harden.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/log.h"

/* Rights that came after Linux 5.13, for building against older headers; values
 * from include/uapi/linux/landlock.h. */
#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)
#endif

#define RIGHTS_ABI_1 (LANDLOCK_ACCESS_FS_REFER - 1)
#define RIGHTS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RIGHTS_WRITE                                                         \
	(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE |       \
	    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | \
	    LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |      \
	    LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REFER)
/* The kernel refuses a rule for a file that names rights of directories. */
#define RIGHTS_OF_FILES                                                 \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | \
	    LANDLOCK_ACCESS_FS_TRUNCATE)

static int no_new_privs(struct err *e)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, errno, "cannot set no_new_privs");
	return 0;
}

static int raise_nofile(unsigned max, struct err *e)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return err_sys(e, errno, "cannot read RLIMIT_NOFILE");
	if (lim.rlim_cur >= max || lim.rlim_cur >= lim.rlim_max)
		return 0;
	lim.rlim_cur = lim.rlim_max < max ? lim.rlim_max : max;
	if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
		return err_sys(e, errno, "cannot raise RLIMIT_NOFILE");
	return 0;
}

int harden_process(unsigned nofile_max, struct err *e)
{
	static const struct rlimit no_core = {0, 0};
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	int r = no_new_privs(e);

	if (r < 0)
		return r;
	/* A core file would hold the keys and what clients sent. */
	if (setrlimit(RLIMIT_CORE, &no_core) < 0)
		return err_sys(e, errno, "cannot turn core files off");
	if (sigaction(SIGPIPE, &ignore, NULL) < 0)
		return err_sys(e, errno, "cannot ignore SIGPIPE");
	(void)umask(0077);
	return raise_nofile(nofile_max, e);
}

/* The rights that this kernel knows, of those that we do; 0 without Landlock.
 * What a later ABI adds stays as it is without it: allowed. */
static int known_rights(uint64_t *ret, struct err *e)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
	    LANDLOCK_CREATE_RULESET_VERSION);

	*ret = 0;
	/* ENOSYS: not built in; EOPNOTSUPP: not turned on at boot. */
	if (abi < 0 && errno != ENOSYS && errno != EOPNOTSUPP)
		return err_sys(e, errno, "cannot ask for Landlock");
	if (abi >= 1)
		*ret |= RIGHTS_ABI_1;
	if (abi >= 2)
		*ret |= LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		*ret |= LANDLOCK_ACCESS_FS_TRUNCATE;
	if (abi >= 5)
		*ret |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
	return 0;
}

static int allow_path(
    int ruleset, const struct harden_path *p, uint64_t known, struct err *e)
{
	struct landlock_path_beneath_attr rule = {0};
	cleanup_fd int fd = open(p->path, O_PATH | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "cannot open %.100s", p->path);
	rule.parent_fd = fd;
	rule.allowed_access =
	    p->write ? RIGHTS_READ | RIGHTS_WRITE : RIGHTS_READ;
	rule.allowed_access &= known;
	if (!S_ISDIR(st.st_mode))
		rule.allowed_access &= RIGHTS_OF_FILES;
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH,
		&rule, 0) < 0)
		return err_sys(
		    e, errno, "cannot allow %.100s by Landlock", p->path);
	return 0;
}

int harden_files(const struct harden_path *paths, size_t n, struct err *e)
{
	struct landlock_ruleset_attr attr = {0};
	cleanup_fd int ruleset = -1;
	uint64_t known;
	int r = known_rights(&known, e);

	if (r < 0)
		return r;
	if (known == 0) {
		log_warn("this kernel has no Landlock: files are only "
			 "protected by their modes");
		return 0;
	}
	attr.handled_access_fs = known;
	ruleset =
	    (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (ruleset < 0)
		return err_sys(e, errno, "cannot make a Landlock rule set");
	for (size_t i = 0; r == 0 && i < n; i++)
		r = allow_path(ruleset, &paths[i], known, e);
	if (r == 0)
		r = no_new_privs(e);
	if (r == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		r = err_sys(e, errno, "cannot restrict files by Landlock");
	return r;
}
