/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping a sandbox and counting what its workspaces take of the disk.
 *
 * A file that was deleted while it is open takes space, but has no name: it is
 * found among the descriptors of the sandbox's processes. We may see those, and
 * read folders whatever their mode, because this process enters the sandbox's user
 * namespace, whose root is our own user outside and nobody else.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "runner/quota_int.h"

/* How long the processes of a sandbox may take to stop. */
#define STOP_TRIES 200
#define STOP_WAIT_US 500

/* ---- the processes --------------------------------------------------------- */

struct proc_stat {
	char state;
	pid_t parent;
};

/* /proc/PID/stat or /proc/PID/task/TID/stat, proc(5): "PID (name) state parent".
 * 1, or 0 when it is gone, or negative errno. */
static int read_stat(int dir, const char *path, struct proc_stat *ret)
{
	char text[512];
	const char *at;
	cleanup_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

	if (n == 0)
		return 0;
	if (n < 0)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	text[n] = '\0';
	at = strrchr(text, ')');
	if (at == NULL || strlen(at) < 5)
		return -EPROTO;
	*ret = (struct proc_stat){at[2], (pid_t)strtol(at + 4, NULL, 10)};
	return 1;
}

int quota_read_pids(struct watch *w, struct err *e)
{
	int n = leaf_pids(w->order->leaf, w->pids, QUOTA_PIDS_MAX);

	if (n < 0)
		return err_sys(e, -n, "the sandbox's processes");
	w->pid_count = (size_t)n;
	return 0;
}

static int read_process(pid_t pid, struct proc_stat *ret)
{
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
	return read_stat(AT_FDCWD, path, ret);
}

/* If it is one. The pidfd comes first: what is read then is of the process that it
 * holds, or of none. */
static int add_writer(struct watch *w, pid_t pid, struct err *e)
{
	struct proc_stat s = {0};
	int rc, fd = pidfd_open(pid, 0);

	if (fd < 0)
		return errno == ESRCH ? 0 : err_sys(e, errno, "pidfd_open");
	rc = read_process(pid, &s);
	if (rc > 0 && s.parent == w->order->sandbox &&
	    w->writer_count < QUOTA_WRITERS_MAX) {
		w->writers[w->writer_count++] = (struct writer){pid, fd};
		return 0;
	}
	(void)close(fd);
	if (rc < 0)
		return err_sys(e, -rc, "/proc/%d/stat", pid);
	if (rc > 0 && s.parent == w->order->sandbox)
		return err_set(e, ERR_INTERNAL, EPROTO,
		    "runsc has more than %u children", QUOTA_WRITERS_MAX);
	return 0;
}

int quota_find_writers(struct watch *w, struct err *e)
{
	struct proc_stat s = {0};

	for (int n = 0; n < STOP_TRIES; n++) {
		const int there = read_process(w->order->sandbox, &s);
		int rc;

		if (there < 0)
			return err_sys(e, -there, "the state of runsc");
		rc = quota_read_pids(w, e);
		for (size_t i = 0; rc == 0 && i < w->pid_count; i++)
			rc = add_writer(w, w->pids[i], e);
		if (rc < 0 || w->writer_count > 0)
			return rc < 0 ? rc : (int)w->writer_count;
		if (there == 0 || strchr("ZX", s.state) != NULL)
			return 0;
		(void)usleep(STOP_WAIT_US);
	}
	return err_set(e, ERR_INTERNAL, ESRCH, "runsc has no children");
}

/* ---- stopping ------------------------------------------------------------ */

/* Each thread: one that was in a system call stops at its end. */
static bool is_stopped(pid_t pid)
{
	char path[sizeof(((struct dirent *)NULL)->d_name) + 8];
	cleanup_dir DIR *d = NULL;
	const struct dirent *x;
	struct proc_stat s = {0};

	(void)snprintf(path, sizeof path, "/proc/%d/task", pid);
	d = opendir(path);
	while (d != NULL && (x = readdir(d)) != NULL) {
		if (x->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof path, "%s/stat", x->d_name);
		if (read_stat(dirfd(d), path, &s) > 0 &&
		    strchr("TtZX", s.state) == NULL)
			return false;
	}
	return true;
}

/* Not the stubs: the sentry traces them while it makes a process or a thread,
 * and ends when one shows another signal than it waits for (a SIGCONT takes away
 * the SIGSTOP that PTRACE_ATTACH sends; signal(7), ptrace(2)). */
static void signal_writers(const struct watch *w, int sig)
{
	/* The sentry first, which is the younger: between two signals a busy host
	 * may let us wait (seen: 45 ms, 66 MiB). */
	for (size_t i = w->writer_count; i > 0; i--)
		(void)pidfd_send_signal(w->writers[i - 1].pidfd, sig, NULL, 0);
}

int quota_freeze(struct watch *w, struct err *e)
{
	int rc;

	signal_writers(w, SIGSTOP);
	/* What gets no CPU does not see the signal. */
	rc = quota_set_pace(w, false, e);
	for (size_t i = 0; i < w->writer_count; i++)
		for (int n = 0;
		     n < STOP_TRIES && !is_stopped(w->writers[i].pid); n++)
			(void)usleep(STOP_WAIT_US);
	/* The program may still write to what it has mapped. */
	return rc < 0 ? rc : quota_set_pace(w, true, e);
}

void quota_thaw(const struct watch *w)
{
	signal_writers(w, SIGCONT);
}

void quota_kill(const struct watch *w)
{
	signal_writers(w, SIGKILL);
}

/* ---- counting ------------------------------------------------------------ */

static int add_deleted(const struct watch *w, int fds, const char *name,
    struct ws_inodes *seen, struct ws_usage *sum)
{
	struct stat top, st;
	int fresh;

	if (fstatat(fds, name, &st, 0) != 0 || !S_ISREG(st.st_mode) ||
	    st.st_nlink > 0 || fstat(w->spaces[0].fd, &top) != 0 ||
	    st.st_dev != top.st_dev)
		return 0;
	fresh = ws_inodes_add(seen, st.st_ino);
	if (fresh > 0) {
		sum->bytes += (uint64_t)st.st_blocks * 512;
		sum->files++;
	}
	return fresh;
}

/* Whether it has let go of its memory, on its way out: /proc/PID/statm, proc(5). */
static bool is_leaving(pid_t pid)
{
	char path[32], text[4];
	cleanup_fd int fd = -1;

	(void)snprintf(path, sizeof path, "/proc/%d/statm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 || read(fd, text, 2) != 2 || memcmp(text, "0 ", 2) == 0;
}

/* Its descriptors. Without memory, and for a moment in execve(2), a process is
 * root's (task_dump_owner() in Linux's fs/proc/base.c): the one has no files any
 * more, or at once, the other is asked again. NULL with errno, 0 when it is
 * gone. */
static DIR *open_descriptors(pid_t pid)
{
	char path[32];
	DIR *d;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
	for (int n = 0; (d = opendir(path)) == NULL && errno == EACCES; n++) {
		if (is_leaving(pid)) {
			errno = 0;
			return NULL;
		}
		if (n == STOP_TRIES) {
			errno = EACCES;
			return NULL;
		}
		(void)usleep(STOP_WAIT_US);
	}
	if (d == NULL && (errno == ENOENT || errno == ESRCH))
		errno = 0;
	return d;
}

/* What one process has open. That it is gone by now is no failure. */
static int add_process(const struct watch *w, pid_t pid, struct ws_inodes *seen,
    struct ws_usage *sum)
{
	cleanup_dir DIR *d = open_descriptors(pid);
	const struct dirent *x;

	if (d == NULL)
		return -errno;
	while ((x = readdir(d)) != NULL)
		if (x->d_name[0] != '.' &&
		    add_deleted(w, dirfd(d), x->d_name, seen, sum) < 0)
			return -ENOMEM;
	return 0;
}

/* systrap's stubs, of which there are some for each process of the program, have
 * the sentry's descriptors and no others. */
static bool has_writers_files(const struct watch *w, pid_t pid)
{
	for (size_t i = 0; i < w->writer_count; i++)
		if (syscall(SYS_kcmp, w->writers[i].pid, pid, KCMP_FILES, 0,
			0) == 0)
			return true;
	return false;
}

/* Open files without a name count for the session: which of two workspaces of one
 * file system they were in, cannot be told. */
static int count_deleted(
    const struct watch *w, struct ws_usage *sum, struct err *e)
{
	struct ws_inodes seen = {0};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < w->writer_count; i++)
		rc = add_process(w, w->writers[i].pid, &seen, sum);
	for (size_t i = 0; rc == 0 && i < w->pid_count; i++)
		if (!has_writers_files(w, w->pids[i]))
			rc = add_process(w, w->pids[i], &seen, sum);
	ws_inodes_free(&seen);
	return rc < 0 ? err_sys(e, -rc, "the sandbox's open files") : 0;
}

int quota_count_spaces(struct watch *w, struct err *e)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < w->order->step->count; i++) {
		struct space *s = &w->spaces[i];

		rc = ws_count(s->fd, UINT64_MAX, &s->usage, e);
	}
	return rc < 0 ? rc : count_deleted(w, &w->spaces[0].usage, e);
}

/* "write_bytes: N" of /proc/PID/io, proc(5): pages made dirty. 0: unknown. */
static uint64_t written_by(pid_t pid)
{
	const char key[] = "\nwrite_bytes: ";
	char path[32], text[512];
	const char *at;
	cleanup_fd int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/io", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
	if (n <= 0)
		return 0;
	text[n] = '\0';
	at = strstr(text, key);
	return at != NULL ? strtoull(at + strlen(key), NULL, 10) : 0;
}

int quota_look(const struct watch *w, struct quota_signal *ret, struct err *e)
{
	struct statvfs fs;

	if (fstatvfs(w->spaces[0].fd, &fs) != 0)
		return err_sys(e, errno, "asking for the free disk space");
	ret->free_bytes = fs.f_bfree * fs.f_frsize;
	ret->free_files = fs.f_ffree;
	ret->written_bytes = 0;
	for (size_t i = 0; i < w->writer_count; i++)
		ret->written_bytes += written_by(w->writers[i].pid);
	ret->now_us = clock_us();
	return 0;
}
