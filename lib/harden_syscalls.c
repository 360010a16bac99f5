/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>

#include "lib/harden.h"

/* Newer than the headers of some hosts. */
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

/*
 * What isobox.fcgi never does, and what an attacker who got to run code in it
 * would do next: start programs, look into other processes, become somebody
 * else, change the host, or reach parts of the kernel with a history of holes.
 * Everything else stays allowed: libraries may change what they use.
 */
static const int denied[] = {
    /* programs and other processes */
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
#ifndef ISOBOX_SANITIZED /* LeakSanitizer stops its own threads by it */
    SCMP_SYS(ptrace),
#endif
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(process_madvise),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(kcmp),
    /* namespaces and mounts */
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(mount),
    SCMP_SYS(umount),
    SCMP_SYS(umount2),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    /* identity */
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setreuid),
    SCMP_SYS(setregid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setfsuid),
    SCMP_SYS(setfsgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(capset),
    SCMP_SYS(personality),
    /* large and risky parts of the kernel */
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(fanotify_init),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(lookup_dcookie),
    SCMP_SYS(move_pages),
    SCMP_SYS(migrate_pages),
    SCMP_SYS(modify_ldt),
    SCMP_SYS(vmsplice),
    /* the host */
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(clock_settime64),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(clock_adjtime64),
    SCMP_SYS(adjtimex),
    SCMP_SYS(stime),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(acct),
    SCMP_SYS(quotactl),
    SCMP_SYS(quotactl_fd),
    SCMP_SYS(syslog),
    SCMP_SYS(vhangup),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(uselib),
    SCMP_SYS(nfsservctl),
};

static const int namespaces[] = {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS,
    CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int set_attributes(scmp_filter_ctx ctx)
{
	int r;

	/* System calls of another architecture (int 0x80, x32) have other
	 * numbers: none of them passes. */
	r = seccomp_attr_set(
	    ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 1);
	/* Threads that a library has started already, too. */
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	return r;
}

static int add_rules(scmp_filter_ctx ctx)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < COUNT(denied); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), denied[i], 0);
	for (size_t i = 0; r == 0 && i < COUNT(namespaces); i++) {
		scmp_datum_t flag = (scmp_datum_t)(unsigned)namespaces[i];

		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM),
		    SCMP_SYS(clone), 1,
		    SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
	}
	/* Its flags are behind a pointer, where no filter sees them; glibc
	 * falls back to clone() when the kernel has no clone3(). */
	if (r == 0)
		r = seccomp_rule_add(
		    ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return r;
}

int harden_syscalls_fcgi(struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r;

	if (ctx == NULL)
		return err_sys(e, ENOMEM, "cannot make a system call filter");
	r = set_attributes(ctx);
	if (r == 0)
		r = add_rules(ctx);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r == 0 ? 0
		      : err_sys(e, -r, "cannot load the system call filter");
}
