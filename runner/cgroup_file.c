/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cgroup_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/cleanup.h"

int cgroup_open_dir(int at, const char *name)
{
	int fd =
	    openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 ? fd : -errno;
}

/* Async-signal-safe: a child calls it between clone and exec. */
int cgroup_write(int dir, const char *name, const char *value)
{
	bool optional = name[0] == '?';
	ssize_t n;
	int fd, code;

	fd = openat(dir, name + optional, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return optional && errno == ENOENT ? 0 : -errno;
	n = write(fd, value, strlen(value));
	code = errno;
	(void)close(fd);
	return n < 0 ? -code : 0;
}

int cgroup_read(int dir, const char *name, char *buf, size_t size)
{
	cleanup_fd int fd =
	    openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return (int)n;
}

static FILE *open_procs(int dir)
{
	int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (f == NULL && fd >= 0)
		(void)close(fd);
	return f;
}

static bool next_pid(FILE *procs, pid_t *ret)
{
	char line[32];

	if (fgets(line, sizeof(line), procs) == NULL)
		return false;
	*ret = (pid_t)strtol(line, NULL, 10);
	return true;
}

static bool is_member(int dir, pid_t pid)
{
	cleanup_file FILE *procs = open_procs(dir);
	pid_t p;

	while (procs != NULL && next_pid(procs, &p))
		if (p == pid)
			return true;
	return false;
}

/* A pid that was read may be another process by now. The pidfd holds one
 * process; only if the group lists its pid still afterwards is it ours to kill. */
static void signal_member(int dir, pid_t pid, int sig)
{
	cleanup_fd int fd = pidfd_open(pid, 0);

	if (fd >= 0 && is_member(dir, pid))
		(void)pidfd_send_signal(fd, sig, NULL, 0);
}

int cgroup_pids(int dir, pid_t *ret, size_t max)
{
	cleanup_file FILE *procs = open_procs(dir);
	size_t n = 0;

	if (procs == NULL)
		return -errno;
	while (n < max && next_pid(procs, &ret[n]))
		n++;
	return (int)n;
}

int cgroup_signal(int dir, int sig)
{
	cleanup_file FILE *procs = open_procs(dir);
	int count = 0;
	pid_t pid;

	if (procs == NULL)
		return -errno;
	while (next_pid(procs, &pid)) {
		count++;
		/* 0: a process outside our PID namespace */
		if (sig != 0 && pid > 0)
			signal_member(dir, pid, sig);
	}
	return count;
}

/* Whether process pid is called `name`, as PR_SET_NAME has it. */
static bool is_called(pid_t pid, const char *name)
{
	char path[48];
	char comm[32];
	cleanup_fd int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, comm, sizeof(comm) - 1) : -1;
	if (n <= 0)
		return false;
	comm[n - 1] = '\0'; /* a newline */
	return strcmp(comm, name) == 0;
}

int cgroup_kill_namesakes(int dir)
{
	cleanup_file FILE *procs = open_procs(dir);
	char name[16]; /* TASK_COMM_LEN */
	int count = 0;
	pid_t pid;

	if (procs == NULL)
		return -errno;
	if (prctl(PR_GET_NAME, name) != 0)
		return -errno;
	while (next_pid(procs, &pid)) {
		if (pid <= 0 || pid == getpid() || !is_called(pid, name))
			continue;
		count++;
		signal_member(dir, pid, SIGKILL);
	}
	return count;
}
