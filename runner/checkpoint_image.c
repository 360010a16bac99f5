/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that saves: see checkpoint_save.c, which starts it and waits for it.
 */
#include "runner/checkpoint_image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
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
#include "runner/ws_copy.h"

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

/* ---- runsc --------------------------------------------------------------- */

static int pause_box(struct save *s, struct err *e)
{
	cleanup_buf struct buf log = {0};
	uint64_t until = s->deadline_us;
	int rc;

	atomic_store(&s->state->stands, true);
	s->paused_us = clock_us();
	if (until < s->paused_us + SAVE_PAUSE_US)
		until = s->paused_us + SAVE_PAUSE_US;
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
	    clock_us() + SAVE_RESUME_US, &log, e);

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
	const struct save_message m = {.stands = true};
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

static void tell_parent(const struct save *s, const struct save_message *m)
{
	(void)!send(s->parent_fd, m, sizeof *m, MSG_NOSIGNAL);
}

static struct save begun(const struct save_call *c)
{
	struct save s = {.o = c->order,
	    .state = c->state,
	    .parent_fd = c->parent_fd,
	    .deadline_us = c->deadline_us,
	    .dir_fd = -1};

	checkpoint_new_name(c->order->id, s.name);
	return s;
}

_Noreturn void checkpoint_saver_main(const struct save_call *c)
{
	struct save s = begun(c);
	struct save_message m = {0};
	struct err e = {0};

	if (save_all(&s, &e) < 0) {
		(void)undo(&s, &e);
		m.err = e;
		if (m.err.code == 0)
			m.err.code = EIO;
	}
	m.saved = s.saved;
	tell_parent(&s, &m);
	_exit(0);
}

/* After one that broke off, wherever it was. What it has written goes last: the
 * disk may hold us, too. */
_Noreturn void checkpoint_undoer_main(const struct save_call *c)
{
	struct save s = begun(c);
	struct save_message m = {0};
	struct err e;

	(void)err_set(&m.err, ERR_INTERNAL, EBUSY,
	    "the kernel takes too long to be saved");
	if (atomic_load(&s.state->stands))
		(void)resume_box(&s, &m.err);
	tell_parent(&s, &m);
	(void)checkpoint_discard(s.o->cp, s.name, &e);
	_exit(0);
}
