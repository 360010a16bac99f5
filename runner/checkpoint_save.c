/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. A process beside the supervisor has runsc pause the sandbox
 * and save it into a new folder, hashes and syncs what is there, writes the stamp,
 * and gives the folder its name. The sandbox is paused and not ended, so that a
 * failure (gVisor cannot save an open file that was deleted from a workspace)
 * leaves a kernel that goes on; and it is paused and not running, so that nothing
 * happens after the moment that was saved: no line in a file twice. Once it stands,
 * the supervisor is asked whether it may be saved as it is.
 *
 * The process has deadlines on all that it waits for but the disk, which may hold it
 * for as long as it wants: then it is killed, and another one has the sandbox go on.
 * Both die with their parent.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/limits.h"
#include "runner/checkpoint.h"
#include "runner/ws_copy.h"

/* Beyond the order's deadline: to pause the sandbox, for whoever breaks that off
 * does not know how it stands; to have it go on; and to end. */
#define PAUSE_US 2000000u
#define RESUME_US 2000000u
#define END_US (PAUSE_US + RESUME_US + 1000000u)
#define REAP_MS 1000u

/* Shared with the parent. */
struct save_state {
	atomic_bool stands; /* the sandbox does, or may */
};

struct save {
	const struct checkpoint_order *o;
	struct save_state *state;
	int parent_fd;
	uint64_t deadline_us;
	char name[CHECKPOINT_NAME_SIZE];
	int dir_fd;
	bool paused;
	uint64_t paused_us; /* since */
	struct stamp_manifest manifest;
	struct checkpoint_saved saved;
};

/* What it tells its parent, once or twice. */
struct message {
	bool stands; /* and this asks for an answer, a struct err */
	struct err err; /* code 0: done */
	struct checkpoint_saved saved;
};

/* ---- runsc --------------------------------------------------------------- */

static int pause_box(struct save *s, struct err *e)
{
	cleanup_buf struct buf log = {0};
	uint64_t until = s->deadline_us;
	int rc;

	atomic_store(&s->state->stands, true);
	s->paused_us = clock_us();
	if (until < s->paused_us + PAUSE_US)
		until = s->paused_us + PAUSE_US;
	rc = sandbox_runsc(
	    s->o->box, RUNSC_PAUSE, s->o->platform, -1, until, &log, e);
	/* Who knows how far runsc came, if it was started at all. */
	s->paused = rc == 0 || rc == -EIO || rc == -ETIMEDOUT;
	atomic_store(&s->state->stands, s->paused);
	return rc < 0 ? err_wrap(e, "pausing the kernel") : 0;
}

/* Also at the end of time: a kernel that stands still is as good as dead. */
static int resume_box(struct save *s, struct err *e)
{
	cleanup_buf struct buf log = {0};
	int rc = sandbox_runsc(s->o->box, RUNSC_RESUME, s->o->platform, -1,
	    clock_us() + RESUME_US, &log, e);

	if (rc < 0) {
		(void)err_wrap(e, "the kernel does not go on");
		e->code = ETIMEDOUT;
		return -ETIMEDOUT;
	}
	s->paused = false;
	atomic_store(&s->state->stands, false);
	s->saved.pause_us = clock_us() - s->paused_us;
	return 0;
}

/* runsc's first words, up to the trace that follows them. */
static int cannot_save(const struct buf *log, struct err *e)
{
	char text[160] = "";
	size_t n = 0;

	for (size_t i = 0; i < log->len && n + 1 < sizeof text; i++) {
		uint8_t c = log->data[i];

		if (c == '\n')
			break;
		text[n++] = (char)(c >= ' ' && c < 0x7f ? c : '?');
	}
	text[n] = '\0';
	if (strstr(text, "no space left") != NULL)
		return err_set(e, ERR_STORAGE_FULL, ENOSPC,
		    "there is no room on the disk to save the kernel");
	return err_set(e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
	    "the kernel holds what cannot be saved: %s", text);
}

static int save_box(
    struct save *s, enum runsc_verb verb, int mount_fd, struct err *e)
{
	cleanup_buf struct buf log = {0};
	int rc = sandbox_runsc(
	    s->o->box, verb, s->o->platform, mount_fd, s->deadline_us, &log, e);

	return rc == -EIO ? cannot_save(&log, e) : rc;
}

/* ---- what was written ---------------------------------------------------- */

static int seal_file(
    struct save *s, const char *name, struct stamp_entry *ret, struct err *e)
{
	cleanup_fd int fd = openat(
	    s->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) != 0)
		return err_sys(e, errno, "a file of the checkpoint");
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 ||
	    st.st_uid != geteuid() || !stamp_name_ok(name, strlen(name)) ||
	    strcmp(name, CHECKPOINT_STAMP) == 0)
		return err_set(e, ERR_INTERNAL, EBADMSG,
		    "runsc wrote something that is no checkpoint");
	if (fchmod(fd, 0600) != 0)
		return err_sys(e, errno, "chmod");
	rc = stamp_hash_fd(fd, &ret->size, ret->hash, e);
	if (rc < 0)
		return rc;
	memcpy(ret->name, name, strlen(name) + 1); /* stamp_name_ok() */
	return fsync(fd) == 0 ? 0 : err_sys(e, errno, "syncing a checkpoint");
}

static int seal_files(struct save *s, struct err *e)
{
	struct stamp_manifest *m = &s->manifest;
	int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *x;
	int rc;

	if (d == NULL)
		return err_sys(e, errno, "reading the checkpoint");
	while ((x = readdir(d)) != NULL) {
		if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0)
			continue;
		if (m->file_count == STAMP_FILES_MAX)
			return err_set(e, ERR_INTERNAL, EBADMSG,
			    "runsc wrote more files than a checkpoint has");
		rc = seal_file(s, x->d_name, &m->files[m->file_count], e);
		if (rc < 0)
			return rc;
		m->file_count++;
	}
	return m->file_count > 0
		   ? 0
		   : err_set(e, ERR_INTERNAL, EBADMSG, "runsc wrote nothing");
}

static int write_file(const struct save *s, const char *name, const void *data,
    size_t len, struct err *e)
{
	cleanup_fd int fd = openat(s->dir_fd, name,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len || fsync(fd) != 0)
		return err_sys(e, errno, "the %s of a checkpoint", name);
	return 0;
}

static int write_about(const struct save *s, struct err *e)
{
	const struct blob *about = &s->o->about;

	if (about->len > CHECKPOINT_ABOUT_MAX)
		return err_set(e, ERR_INTERNAL, EMSGSIZE,
		    "there is too much to say about the kernel");
	return write_file(s, CHECKPOINT_ABOUT, about->data, about->len, e);
}

static int write_stamp(struct save *s, struct err *e)
{
	cleanup_buf struct buf text = {0};

	s->manifest.stamp = *s->o->stamp;
	stamp_encode(&s->manifest, &text);
	if (text.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	return write_file(s, CHECKPOINT_STAMP, text.data, text.len, e);
}

/* ---- the workspace of a fork --------------------------------------------- */

struct copied {
	int rc;
	struct err err;
	struct ws_usage usage;
};

static _Noreturn void copy_child(const struct save *s, struct copied *ret)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		_exit(1);
	ret->rc = ws_override_modes(&ret->err);
	/* That was a change of rights, which clears it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		_exit(1);
	if (ret->rc == 0)
		ret->rc = ws_copy(s->o->copy_from, s->o->copy_to,
		    s->o->copy_max_bytes, &ret->usage, &ret->err);
	_exit(0);
}

static int await_copy(pid_t pid, uint64_t deadline_us, struct err *e)
{
	cleanup_fd int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = {fd, POLLIN, 0};
	struct timespec wait = clock_left(deadline_us);
	int status = 0;
	bool late, known;

	while (fd >= 0 && ppoll(&p, 1, &wait, NULL) < 0 && errno == EINTR)
		wait = clock_left(deadline_us);
	late = p.revents == 0;
	if (late)
		(void)kill(pid, SIGKILL);
	known = waitpid(pid, &status, 0) == pid;
	if (late)
		return err_set(e, ERR_INTERNAL, EBUSY,
		    "the workspace takes too long to copy");
	return known && status == 0
		   ? 0
		   : err_set(e, ERR_INTERNAL, EIO,
			 "the copy of the workspace broke off");
}

/* In a process of its own: it leaves our user namespace for good. */
static int copy_workspace(struct save *s, struct err *e)
{
	struct copied *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	int rc;

	if (r == MAP_FAILED)
		return err_sys(e, errno, "mmap");
	pid = fork();
	if (pid == 0)
		copy_child(s, r);
	if (pid < 0)
		rc = err_sys(e, errno, "fork");
	else
		rc = await_copy(pid, s->deadline_us, e);
	if (rc == 0 && r->rc < 0) {
		rc = r->rc;
		*e = r->err;
	}
	s->saved.copied = r->usage;
	(void)munmap(r, sizeof *r);
	return rc;
}

/* ---- the process --------------------------------------------------------- */

static int check_room(const struct save *s, struct err *e)
{
	struct statvfs v;

	if (fstatvfs(s->o->cp->fd, &v) != 0)
		return err_sys(e, errno, "statvfs");
	if ((uint64_t)v.f_bavail * v.f_frsize >= s->o->min_free_bytes)
		return 0;
	return err_set(e, ERR_STORAGE_FULL, ENOSPC,
	    "the disk has no room to save the kernel");
}

/* Into an empty folder. */
static int write_image(struct save *s, enum runsc_verb verb, struct err *e)
{
	char path[PATH_MAX];
	cleanup_fd int mount_fd = -1;
	int rc;

	if (s->dir_fd >= 0)
		(void)close(s->dir_fd);
	s->dir_fd = checkpoint_begin(s->o->cp, s->name, e);
	if (s->dir_fd < 0)
		return s->dir_fd;
	if (checkpoint_path(s->o->cp, s->name, path) < 0)
		return err_sys(e, ENAMETOOLONG, "the checkpoint");
	mount_fd = sandbox_mount_fd(path, s->dir_fd, e);
	if (mount_fd < 0)
		return mount_fd;
	rc = save_box(s, verb, mount_fd, e);
	return rc < 0 ? rc : checkpoint_usage(s->dir_fd, &s->saved.bytes, e);
}

/* What held before the pause may not hold any more. */
static int ask_parent(const struct save *s, struct err *e)
{
	const struct message m = {.stands = true};
	struct pollfd p = {s->parent_fd, POLLIN, 0};
	struct timespec wait = clock_left(s->deadline_us);
	struct err answer;

	if (send(s->parent_fd, &m, sizeof m, MSG_NOSIGNAL) != (ssize_t)sizeof m)
		return err_sys(e, errno, "asking the supervisor");
	while (ppoll(&p, 1, &wait, NULL) < 0 && errno == EINTR)
		wait = clock_left(s->deadline_us);
	if (p.revents == 0)
		return err_sys(e, ETIMEDOUT, "the supervisor's answer");
	if (recv(s->parent_fd, &answer, sizeof answer, 0) !=
	    (ssize_t)sizeof answer)
		return err_sys(e, EIO, "the supervisor's answer");
	if (answer.code == 0)
		return 0;
	*e = answer;
	return -e->code;
}

static bool fits(const struct save *s)
{
	return s->saved.bytes <= s->o->max_bytes &&
	       s->saved.bytes <= s->o->promised_bytes;
}

/* Compressed only when there is no room for it as it is. */
static int write_fitting(struct save *s, struct err *e)
{
	int rc = write_image(s, RUNSC_SAVE, e);

	if (rc == 0 && !fits(s))
		rc = write_image(s, RUNSC_SAVE_SMALL, e);
	if (rc < 0 || fits(s))
		return rc;
	if (s->saved.bytes <= s->o->max_bytes)
		return err_set(e, ERR_STORAGE_FULL, ENOSPC,
		    "the kernel has grown while it was saved");
	return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
	    "the kernel takes %llu MiB of the disk when it is saved, %llu MiB "
	    "are left of the session's quota",
	    (unsigned long long)(s->saved.bytes >> 20),
	    (unsigned long long)(s->o->max_bytes >> 20));
}

static int save_all(struct save *s, struct err *e)
{
	int rc;

	if ((rc = check_room(s, e)) < 0 || (rc = pause_box(s, e)) < 0 ||
	    (rc = ask_parent(s, e)) < 0 || (rc = write_fitting(s, e)) < 0)
		return rc;
	if (s->o->copy_from >= 0 && (rc = copy_workspace(s, e)) < 0)
		return rc;
	if (s->o->go_on && (rc = resume_box(s, e)) < 0)
		return rc;
	if ((rc = write_about(s, e)) < 0 || (rc = seal_files(s, e)) < 0 ||
	    (rc = write_stamp(s, e)) < 0)
		return rc;
	return checkpoint_commit(s->o->cp, s->name, s->dir_fd, s->o->id, e);
}

/* As if nobody had tried. */
static int undo(struct save *s, struct err *e)
{
	const int rc = s->paused ? resume_box(s, e) : 0;
	struct err ignored;

	if (s->dir_fd >= 0)
		(void)checkpoint_discard(s->o->cp, s->name, &ignored);
	if (rc < 0)
		return rc;
	if (e->code == ETIMEDOUT)
		return err_set(e, ERR_INTERNAL, EBUSY,
		    "the kernel takes too long to be saved");
	return -e->code;
}

/* All descriptors but these and the standard ones are the supervisor's. */
static void close_others(const int *keep, size_t n)
{
	int from = 3;

	for (;;) {
		int next = INT_MAX;

		for (size_t i = 0; i < n; i++)
			if (keep[i] >= from && keep[i] < next)
				next = keep[i];
		if (next > from)
			(void)close_range((unsigned)from,
			    next == INT_MAX ? ~0u : (unsigned)next - 1, 0);
		if (next == INT_MAX)
			return;
		from = next + 1;
	}
}

static void tell_parent(const struct save *s, const struct message *m)
{
	(void)!send(s->parent_fd, m, sizeof *m, MSG_NOSIGNAL);
}

static _Noreturn void save_main(struct save *s)
{
	struct message m = {0};
	struct err e = {0};

	if (save_all(s, &e) < 0) {
		(void)undo(s, &e);
		m.err = e;
		if (m.err.code == 0)
			m.err.code = EIO;
	}
	m.saved = s->saved;
	tell_parent(s, &m);
	_exit(0);
}

/* After one that broke off, wherever it was. What it has written goes last: the
 * disk may hold us, too. */
static _Noreturn void undo_main(struct save *s)
{
	struct message m = {0};
	struct err e;

	(void)err_set(&m.err, ERR_INTERNAL, EBUSY,
	    "the kernel takes too long to be saved");
	if (atomic_load(&s->state->stands))
		(void)resume_box(s, &m.err);
	tell_parent(s, &m);
	(void)checkpoint_discard(s->o->cp, s->name, &e);
	_exit(0);
}

typedef void save_fn(struct save *s);

static _Noreturn void child_main(const struct checkpoint_save *x, save_fn *fn,
    uint64_t deadline_us, int parent_fd)
{
	const struct checkpoint_order *o = &x->order;
	struct save s = {.o = o,
	    .state = x->state,
	    .parent_fd = parent_fd,
	    .deadline_us = deadline_us,
	    .dir_fd = -1};
	const int keep[] = {parent_fd, o->cp->fd, o->cp->root->trash_fd,
	    o->box->pidfd, o->copy_from, o->copy_to};

	close_others(keep, sizeof keep / sizeof keep[0]);
	checkpoint_new_name(o->id, s.name);
	fn(&s);
	_exit(1);
}

/* Forks one that does it; on failure x is as it was. */
static int start_child(struct checkpoint_save *x, save_fn *fn,
    uint64_t deadline_us, uint64_t end_us, struct err *e)
{
	const pid_t parent = getpid();
	struct checkpoint_save s = *x;
	cleanup_fd int ours = -1, theirs = -1;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
		return err_sys(e, errno, "socketpair");
	ours = fds[0];
	theirs = fds[1];
	s.pid = fork();
	if (s.pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
		    getppid() != parent)
			_exit(1);
		child_main(&s, fn, deadline_us, theirs);
	}
	if (s.pid < 0)
		return err_sys(e, errno, "fork");
	s.pidfd = (int)syscall(SYS_pidfd_open, s.pid, 0);
	if (s.pidfd < 0 || fcntl(ours, F_SETFL, O_NONBLOCK) != 0) {
		int code = errno;

		(void)kill(s.pid, SIGKILL);
		(void)waitpid(s.pid, NULL, 0);
		if (s.pidfd >= 0)
			(void)close(s.pidfd);
		return err_sys(e, code, "watching the save");
	}
	s.fd = take_fd(&ours);
	s.deadline_us = end_us;
	*x = s;
	return 0;
}

/* Of the process; one that the disk holds ends when that lets it go. Who undoes has
 * its time to remove what there is. */
static void reap(struct checkpoint_save *s, unsigned wait_ms)
{
	const bool leave = s->undoing && wait_ms > 0;
	struct pollfd p = {s->pidfd, POLLIN, 0};

	if (s->pid <= 0)
		return;
	if (poll(&p, 1, leave ? 0 : (int)wait_ms) <= 0 && !leave) {
		(void)kill(s->pid, SIGKILL);
		(void)poll(&p, 1, (int)REAP_MS);
	}
	(void)waitpid(s->pid, NULL, WNOHANG);
	(void)close(s->pidfd);
	(void)close(s->fd);
	s->pid = -1;
	s->pidfd = s->fd = -1;
}

static void forget(struct checkpoint_save *s)
{
	if (s->state != NULL)
		(void)munmap(s->state, sizeof *s->state);
	*s = (struct checkpoint_save)CHECKPOINT_SAVE_NONE;
}

int checkpoint_save_begin(const struct checkpoint_order *o,
    struct checkpoint_save *ret, struct err *e)
{
	const uint64_t deadline = clock_us() + (uint64_t)o->timeout_ms * 1000;
	struct checkpoint_save s = CHECKPOINT_SAVE_NONE;
	int rc;

	s.order = *o;
	s.state = mmap(NULL, sizeof *s.state, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s.state == MAP_FAILED)
		return err_sys(e, errno, "mmap");
	rc = start_child(&s, save_main, deadline, deadline + END_US, e);
	if (rc < 0)
		forget(&s);
	else
		*ret = s;
	return rc;
}

void checkpoint_save_cancel(struct checkpoint_save *s)
{
	reap(s, 0);
	forget(s);
}

/* It said nothing and is dead, or will be as soon as the disk lets it. */
static int broke_off(struct checkpoint_save *s, struct err *e)
{
	const uint64_t deadline = clock_us() + RESUME_US;

	if (!s->undoing) {
		s->undoing = true;
		if (start_child(s, undo_main, deadline,
			deadline + REAP_MS * 1000, e) == 0)
			return -EINPROGRESS;
	}
	forget(s);
	return err_set(
	    e, ERR_INTERNAL, ETIMEDOUT, "saving the kernel broke off");
}

void checkpoint_save_answer(
    const struct checkpoint_save *s, const struct err *against)
{
	const struct err none = {0};

	/* One that is gone, or never reads it, has a deadline. */
	(void)!send(s->fd, against != NULL ? against : &none,
	    sizeof(struct err), MSG_NOSIGNAL);
}

int checkpoint_save_end(
    struct checkpoint_save *s, struct checkpoint_saved *ret, struct err *e)
{
	struct message m;
	struct pollfd p = {s->fd, POLLIN, 0};
	ssize_t n;

	(void)poll(&p, 1, 0);
	n = recv(s->fd, &m, sizeof m, 0);
	if (n == (ssize_t)sizeof m && m.stands)
		return -EAGAIN;
	reap(s, n == (ssize_t)sizeof m ? REAP_MS : 0);
	if (n != (ssize_t)sizeof m)
		return broke_off(s, e);
	forget(s);
	if (m.err.code != 0) {
		*e = m.err;
		return -m.err.code;
	}
	*ret = m.saved;
	return 0;
}
