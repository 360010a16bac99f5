/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lib/harden.h"
#include "tests/unit/scratch.h"
#include "tests/unit/valgrind.h"

/*
 * Calls with arguments that do no harm when they are let through. `free` ones
 * do not need any privilege: without the filter they fail otherwise, or not at
 * all, so an EPERM is the filter's.
 */
static const struct call {
	const char *name;
	long number;
	bool free;
	long arg[5];
} calls[] = {
    {"execve", SYS_execve, true, {0}},
    {"execveat", SYS_execveat, true, {-1}},
#ifndef ISOBOX_SANITIZED
    {"ptrace", SYS_ptrace, true, {-1}},
#endif
    {"process_vm_readv", SYS_process_vm_readv, true, {0}},
    {"process_vm_writev", SYS_process_vm_writev, true, {0}},
    {"kcmp", SYS_kcmp, true, {0}},
    {"unshare", SYS_unshare, true, {0}},
    {"setns", SYS_setns, true, {-1}},
    {"mount", SYS_mount, false, {0}},
    {"umount2", SYS_umount2, false, {0, -1}},
    {"move_mount", SYS_move_mount, false, {-1, 0, -1}},
    {"open_tree", SYS_open_tree, true, {-1, 0, -1}},
    {"fsopen", SYS_fsopen, false, {0}},
    {"fsmount", SYS_fsmount, false, {-1}},
    {"pivot_root", SYS_pivot_root, false, {0}},
    {"chroot", SYS_chroot, true, {0}},
    {"setuid", SYS_setuid, true, {-1}},
    {"setgid", SYS_setgid, true, {-1}},
    {"setresuid", SYS_setresuid, true, {-1, -1, -1}},
    {"setresgid", SYS_setresgid, true, {-1, -1, -1}},
    {"setgroups", SYS_setgroups, false, {-1}},
    {"capset", SYS_capset, true, {0}},
    {"personality", SYS_personality, true, {0xffffffffL}},
    {"bpf", SYS_bpf, false, {-1}},
    {"perf_event_open", SYS_perf_event_open, true, {0}},
    {"userfaultfd", SYS_userfaultfd, false, {-1}},
    {"io_uring_setup", SYS_io_uring_setup, false, {0}},
    {"io_uring_enter", SYS_io_uring_enter, true, {-1}},
    {"io_uring_register", SYS_io_uring_register, true, {-1, -1}},
    {"keyctl", SYS_keyctl, true, {-1}},
    {"add_key", SYS_add_key, true, {0}},
    {"request_key", SYS_request_key, true, {0}},
    {"move_pages", SYS_move_pages, true, {0, 0, 0, 0, 0}},
    {"vmsplice", SYS_vmsplice, true, {-1}},
    {"init_module", SYS_init_module, false, {0}},
    {"finit_module", SYS_finit_module, false, {-1}},
    {"delete_module", SYS_delete_module, false, {0}},
    {"kexec_load", SYS_kexec_load, false, {0, 0, 0, -1}},
    {"reboot", SYS_reboot, false, {0}},
    {"swapon", SYS_swapon, false, {0}},
    {"swapoff", SYS_swapoff, false, {0}},
    {"settimeofday", SYS_settimeofday, false, {-1, -1}},
    {"clock_settime", SYS_clock_settime, false, {-1}},
    {"acct", SYS_acct, false, {-1}},
    {"quotactl", SYS_quotactl, true, {-1}},
    {"sethostname", SYS_sethostname, false, {0, -1}},
    {"clone+newuser", SYS_clone, true, {CLONE_NEWUSER | CLONE_FS}},
    {"clone+newpid", SYS_clone, true, {CLONE_NEWPID | CLONE_THREAD}},
    {"clone+newnet", SYS_clone, true, {CLONE_NEWNET | CLONE_THREAD}},
    {"clone+newns", SYS_clone, true, {CLONE_NEWNS | CLONE_FS}},
};

static bool is_refused(const struct call *c)
{
	errno = 0;
	return syscall(c->number, c->arg[0], c->arg[1], c->arg[2], c->arg[3],
		   c->arg[4]) == -1 &&
	       errno == EPERM;
}

/* Which calls answer EPERM in a child, with the filter or without. */
static void try_calls(bool filter, bool refused[ARRAY_LEN(calls)])
{
	int fds[2];
	int status;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct err e;

		if (filter && harden_syscalls_fcgi(&e) < 0)
			_exit(1);
		for (size_t i = 0; i < ARRAY_LEN(calls); i++)
			refused[i] = is_refused(&calls[i]);
		(void)!write(fds[1], refused, ARRAY_LEN(calls));
		_exit(0);
	}
	(void)close(fds[1]);
	assert_int_equal(
	    read(fds[0], refused, ARRAY_LEN(calls)), ARRAY_LEN(calls));
	(void)close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void denied_calls_are_refused(void **state)
{
	bool before[ARRAY_LEN(calls)];
	bool after[ARRAY_LEN(calls)];

	(void)state;
	skip_under_valgrind();
	try_calls(false, before);
	try_calls(true, after);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		if (!after[i])
			fail_msg("%s passes", calls[i].name);
		if (calls[i].free && before[i])
			fail_msg("%s is refused anyway", calls[i].name);
	}
}

static void *nothing(void *arg)
{
	return arg;
}

/* What isobox.fcgi does goes on: threads, sockets, files, children of libraries
 * by fork alone. Returns the number of the step that failed. */
static int work(void)
{
	char buf[8];
	int fds[2];
	pthread_t t;
	void *result;
	int status;
	pid_t pid;

	if (pthread_create(&t, NULL, nothing, buf) != 0)
		return 1;
	if (pthread_join(t, &result) != 0 || result != buf)
		return 2;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return 3;
	if (write(fds[0], "x", 1) != 1 || read(fds[1], buf, 1) != 1)
		return 4;
	pid = fork();
	if (pid == 0)
		_exit(7);
	if (waitpid(pid, &status, 0) != pid || status != 7 << 8)
		return 5;
	if (syscall(SYS_clone3, NULL, 0L) != -1 || errno != ENOSYS)
		return 6;
	if (open("/proc/self/status", O_RDONLY | O_CLOEXEC) < 0)
		return 8;
	return 0;
}

static void ordinary_work_goes_on(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	skip_under_valgrind();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct err e;

		_exit(harden_syscalls_fcgi(&e) < 0 ? 99 : work());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#ifdef __x86_64__
/* getpid() by the 32-bit entry, whose numbers differ. */
static long getpid_32(void)
{
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
	return result;
}

static void other_architectures_do_not_pass(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	skip_under_valgrind();
	for (int filter = 0; filter < 2; filter++) {
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			struct err e;

			if (filter && harden_syscalls_fcgi(&e) < 0)
				_exit(99);
			_exit((int)getpid_32() == (filter ? -EPERM : getpid())
				  ? 0
				  : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (!filter && status != 0) {
			print_message("no 32-bit calls in this kernel\n");
			skip();
		}
		assert_int_equal(status, 0);
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(denied_calls_are_refused),
	    cmocka_unit_test(ordinary_work_goes_on),
#ifdef __x86_64__
	    cmocka_unit_test(other_architectures_do_not_pass),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
