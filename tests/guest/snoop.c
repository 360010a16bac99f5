/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snoop COMMAND: tells what a program finds out about itself and its sandbox,
 * and what it can do to others there. Static, like badguy.c. Output is lines
 * "word value..."; an attack's value is "done" or the name of an errno.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void verdict(const char *what, int done)
{
	printf("%s %s\n", what, done ? "done" : strerrorname_np(errno));
}

/* identity: who am I, and with what. */

static void print_file(const char *path, const char *const *keys, size_t n)
{
	FILE *f = fopen(path, "re");
	char line[4096];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		for (size_t i = 0; i < n; i++)
			if (strncmp(line, keys[i], strlen(keys[i])) == 0)
				(void)fputs(line, stdout);
	if (f != NULL)
		(void)fclose(f);
}

static void print_ids(void)
{
	static const char *const keys[] = {"Uid:", "Gid:", "Groups:", "CapInh:",
	    "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "TracerPid:"};
	uid_t r, e, s;
	gid_t rg, eg, sg;

	(void)getresuid(&r, &e, &s);
	(void)getresgid(&rg, &eg, &sg);
	printf("uid %u %u %u\ngid %u %u %u\n", r, e, s, rg, eg, sg);
	printf("groups %d\n", getgroups(0, NULL));
	printf("no_new_privs %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	printf("pid %d\nppid %d\npgid %d\nsid %d\n", getpid(), getppid(),
	    getpgid(0), getsid(0));
	print_file("/proc/self/status", keys, COUNT(keys));
}

static void print_limits(void)
{
	static const struct {
		const char *name;
		int resource;
	} limits[] = {{"nproc", RLIMIT_NPROC}, {"nofile", RLIMIT_NOFILE},
	    {"core", RLIMIT_CORE}, {"fsize", RLIMIT_FSIZE}, {"as", RLIMIT_AS},
	    {"stack", RLIMIT_STACK}, {"cpu", RLIMIT_CPU}};
	struct rlimit l;

	for (size_t i = 0; i < COUNT(limits); i++)
		if (getrlimit((__rlimit_resource_t)limits[i].resource, &l) == 0)
			printf("limit-%s %lld %lld\n", limits[i].name,
			    (long long)l.rlim_cur, (long long)l.rlim_max);
}

static void print_signals(void)
{
	struct sigaction sa;
	sigset_t mask, pending;

	(void)sigprocmask(SIG_BLOCK, NULL, &mask);
	(void)sigpending(&pending);
	for (int i = 1; i < NSIG; i++) {
		if (sigaction(i, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
			printf("signal-handled %d\n", i);
		if (sigismember(&mask, i) == 1)
			printf("signal-blocked %d\n", i);
		if (sigismember(&pending, i) == 1)
			printf("signal-pending %d\n", i);
	}
}

static void print_hex(const char *word, const char *s)
{
	printf("%s ", word);
	for (; *s != '\0'; s++)
		printf("%02x", (unsigned char)*s);
	printf("\n");
}

static void print_descriptors(void)
{
	for (int fd = 0; fd < 5000; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("fd %d %d %d\n", fd, fcntl(fd, F_GETFD),
			    fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static void cmd_identity(int argc, char **argv, char **env)
{
	char cwd[4096];
	struct utsname u;
	mode_t mask = umask(0);

	print_ids();
	print_limits();
	print_signals();
	print_descriptors();
	for (int i = 0; i < argc; i++)
		print_hex("argv", argv[i]);
	for (; *env != NULL; env++)
		print_hex("env", *env);
	printf("umask %03o\n", mask);
	printf("cwd %s\n", getcwd(cwd, sizeof(cwd)) != NULL ? cwd : "?");
	if (uname(&u) == 0)
		printf("host %s\nkernel %s %s\n", u.nodename, u.release,
		    u.version);
}

/* attack: everything that a process could try on init, pid 1. */

static void attack_open(const char *path, int flags)
{
	char what[128];
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);

	(void)snprintf(what, sizeof(what), "open:%s:%s", path,
	    flags == O_WRONLY ? "w" : "r");
	verdict(what, fd >= 0);
	if (fd >= 0)
		(void)close(fd);
}

/* Such a file may be open, but must not tell anything. */
static void attack_read(const char *path)
{
	char what[128], data[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, data, sizeof(data));

	(void)snprintf(what, sizeof(what), "read:%s", path);
	while (n > 0 && data[n - 1] == '\0')
		n--; /* wiped */
	if (n == 0)
		errno = ENODATA;
	verdict(what, n > 0);
	if (fd >= 0)
		(void)close(fd);
}

static void attack_descriptors(void)
{
	char path[64];

	for (int fd = 0; fd < 32; fd++) {
		struct stat st;

		(void)snprintf(path, sizeof(path), "/proc/1/fd/%d", fd);
		if (lstat(path, &st) != 0 && errno == ENOENT)
			continue; /* init has no such descriptor */
		if (fd <= 2 || stat(path, &st) != 0 || st.st_uid != getuid()) {
			attack_open(path, O_RDONLY);
			attack_open(path, O_WRONLY);
			verdict("chmod-fd", chmod(path, 0666) == 0);
			verdict(
			    "chown-fd", chown(path, getuid(), getgid()) == 0);
		}
	}
}

static void attack_files(void)
{
	static const char *const closed[] = {"/proc/1/mem", "/proc/1/root/",
	    "/proc/1/cwd/", "/proc/1/exe", "/proc/1/task/1/mem",
	    "/proc/1/task/1/root/", "/proc/1/map_files/"};
	static const char *const written[] = {"/proc/1/mem",
	    "/proc/1/oom_score_adj", "/proc/1/uid_map", "/proc/1/gid_map"};

	for (size_t i = 0; i < COUNT(closed); i++)
		attack_open(closed[i], O_RDONLY);
	for (size_t i = 0; i < COUNT(written); i++)
		attack_open(written[i], O_WRONLY);
}

static void attack_signals(void)
{
	siginfo_t info = {.si_code = SI_QUEUE};

	for (int s = 0; s < NSIG; s++)
		if (kill(1, s) == 0 || syscall(SYS_tgkill, 1, 1, s) == 0 ||
		    syscall(SYS_tkill, 1, s) == 0)
			printf("kill-%d done\n", s);
	verdict("kill", kill(1, SIGKILL) == 0);
	verdict(
	    "sigqueue", syscall(SYS_rt_sigqueueinfo, 1, SIGTERM, &info) == 0);
	verdict("pidfd", syscall(SYS_pidfd_open, 1, 0) >= 0);
}

static void attack_memory(void)
{
	char data[16];
	struct iovec here = {data, sizeof(data)};
	struct iovec there = {(void *)0x401000, sizeof(data)};

	verdict("ptrace-attach", ptrace(PTRACE_ATTACH, 1, 0, 0) == 0);
	verdict("ptrace-seize", ptrace(PTRACE_SEIZE, 1, 0, 0) == 0);
	verdict("vm-read", process_vm_readv(1, &here, 1, &there, 1, 0) > 0);
	verdict("vm-write", process_vm_writev(1, &here, 1, &there, 1, 0) > 0);
	verdict("kcmp", syscall(SYS_kcmp, 1, getpid(), 0, 0, 0) >= 0);
}

static void attack_settings(void)
{
	struct rlimit l = {1, 1};
	int ns = open("/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);

	verdict("prlimit", prlimit(1, RLIMIT_NOFILE, &l, NULL) == 0);
	verdict("setpgid", setpgid(1, getpid()) == 0);
	verdict("setns", setns(ns, 0) == 0);
}

static void attack_privileges(void)
{
	struct rlimit l = {100000, 100000};
	char to[] = "/tmp";

	verdict("setuid", setuid(0) == 0);
	verdict("setuid-1", setresuid(1, 1, 1) == 0);
	verdict("setgroups", setgroups(1, &(gid_t){0}) == 0);
	verdict("nproc", setrlimit(RLIMIT_NPROC, &l) == 0);
	verdict("userns", unshare(CLONE_NEWUSER) == 0);
	verdict("mountns", unshare(CLONE_NEWNS) == 0);
	verdict("netns", unshare(CLONE_NEWNET) == 0);
	verdict("mount", mount("none", to, "tmpfs", 0, NULL) == 0);
	verdict(
	    "remount", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL) == 0);
	verdict("umount", umount2("/box", MNT_DETACH) == 0);
	verdict("chroot", chroot("/tmp") == 0);
	verdict("hostname", sethostname("owned", 5) == 0);
}

static void cmd_attack(int argc, char **argv, char **env)
{
	(void)argc, (void)argv, (void)env;
	attack_files();
	attack_read("/proc/1/environ");
	attack_read("/proc/1/fd/0");
	attack_descriptors();
	attack_signals();
	attack_memory();
	attack_settings();
	attack_privileges();
}

/* writable: every place where something can be changed. */

static int may_write(
    const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)f;
	if (type == FTW_SL || type == FTW_SLN)
		return 0;
	if (access(path, W_OK) == 0)
		printf("writable %s\n", path);
	if (type == FTW_D && (st->st_mode & S_IFMT) == S_IFDIR) {
		char file[4200];
		int fd;

		(void)snprintf(file, sizeof(file), "%s/.snoop", path);
		fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		if (fd >= 0) {
			printf("created %s\n", path);
			(void)close(fd);
			(void)unlink(file);
		}
		if (chmod(path, st->st_mode & 07777) == 0)
			printf("chmod %s\n", path);
	}
	return 0;
}

/* Not below /proc/PID: what lies there is a process's own. */
static void cmd_writable(int argc, char **argv, char **env)
{
	(void)argc, (void)argv, (void)env;
	(void)nftw("/", may_write, 32, FTW_PHYS | FTW_MOUNT);
	for (size_t i = 0; i < 6; i++) {
		static const char *const mounts[] = {
		    "/dev", "/proc/sys", "/sys", "/tmp", "/box", "/dev/shm"};

		(void)nftw(mounts[i], may_write, 32, FTW_PHYS);
	}
}

/* noexec DIR: copies this program there and starts the copy. */
static void cmd_noexec(int argc, char **argv, char **env)
{
	char path[4096], block[65536], hello[] = "hello";
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int out;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/copy", argc > 2 ? argv[2] : ".");
	out = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
	while ((n = read(in, block, sizeof(block))) > 0)
		if (write(out, block, (size_t)n) != n)
			break;
	(void)close(out);
	(void)fflush(stdout);
	(void)execve(path, (char *[]){path, hello, NULL}, env);
	verdict("exec", 0);
}

static void cmd_hello(int argc, char **argv, char **env)
{
	(void)argc, (void)argv, (void)env;
	printf("exec done\n");
}

static void cmd_mounts(int argc, char **argv, char **env)
{
	static const char *const all[] = {""};

	(void)argc, (void)argv, (void)env;
	print_file("/proc/self/mounts", all, COUNT(all));
	print_file("/proc/self/mountinfo", all, COUNT(all));
}

static void cmd_interfaces(int argc, char **argv, char **env)
{
	struct if_nameindex *list = if_nameindex();

	(void)argc, (void)argv, (void)env;
	for (struct if_nameindex *i = list; i != NULL && i->if_index != 0; i++)
		printf("interface %s\n", i->if_name);
	if_freenameindex(list);
}

static void cmd_processes(int argc, char **argv, char **env)
{
	DIR *d = opendir("/proc");
	struct dirent *x;

	(void)argc, (void)argv, (void)env;
	while (d != NULL && (x = readdir(d)) != NULL) {
		static const char *const keys[] = {"State:", "PPid:"};
		char path[300];

		if (x->d_name[0] < '0' || x->d_name[0] > '9')
			continue;
		printf("process %s\n", x->d_name);
		(void)snprintf(
		    path, sizeof(path), "/proc/%s/status", x->d_name);
		print_file(path, keys, COUNT(keys));
	}
	if (d != NULL)
		(void)closedir(d);
}

/* tree DIR: what lies there, with owner, mode and size. */
static int print_entry(
    const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)type, (void)f;
	printf("%s %u %u %o %lld\n", path, st->st_uid, st->st_gid, st->st_mode,
	    (long long)st->st_size);
	return 0;
}

static void cmd_tree(int argc, char **argv, char **env)
{
	(void)env;
	(void)nftw(argc > 2 ? argv[2] : ".", print_entry, 32, FTW_PHYS);
}

/* create DIR: a file and a folder there, with what stat tells of them. */
static void cmd_create(int argc, char **argv, char **env)
{
	char path[4096];
	const char *dir = argc > 2 ? argv[2] : ".";
	int fd;

	(void)snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0640);
	verdict("create", fd >= 0);
	verdict("write", write(fd, "hello\n", 6) == 6);
	verdict("chmod", chmod(path, 0751) == 0);
	(void)snprintf(path, sizeof(path), "%s/folder", dir);
	verdict("mkdir", mkdir(path, 0777) == 0);
	(void)snprintf(path, sizeof(path), "%s/link", dir);
	verdict("symlink", symlink("file", path) == 0);
	(void)snprintf(path, sizeof(path), "%s/given", dir);
	verdict(
	    "append", (fd = open(path, O_APPEND | O_WRONLY | O_CLOEXEC)) >= 0 &&
			  write(fd, "more\n", 5) == 5);
	cmd_tree(argc, argv, env);
}

static const struct {
	const char *name;
	void (*run)(int argc, char **argv, char **env);
} commands[] = {
    {"attack", cmd_attack},
    {"create", cmd_create},
    {"hello", cmd_hello},
    {"identity", cmd_identity},
    {"interfaces", cmd_interfaces},
    {"mounts", cmd_mounts},
    {"noexec", cmd_noexec},
    {"processes", cmd_processes},
    {"tree", cmd_tree},
    {"writable", cmd_writable},
};

int main(int argc, char **argv, char **env)
{
	for (size_t i = 0; argc > 1 && i < COUNT(commands); i++) {
		if (strcmp(argv[1], commands[i].name) == 0) {
			commands[i].run(argc, argv, env);
			return 0;
		}
	}
	for (size_t i = 0; i < COUNT(commands); i++)
		(void)fprintf(stderr, "snoop %s\n", commands[i].name);
	return 99;
}
