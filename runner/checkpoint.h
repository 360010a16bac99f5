/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CHECKPOINT_H
#define ISOBOX_CHECKPOINT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"
#include "lib/job.h"
#include "lib/limits.h"
#include "runner/checkpoint_stamp.h"
#include "runner/sandbox.h"
#include "runner/ws_dir.h"
#include "runner/ws_walk.h"

/*
 * Checkpoints of sandboxes on disk, one a session:
 *
 *	WORKSPACES/kernels/ID		what runsc wrote, and `stamp`; never
 *					changed, only replaced whole
 *	WORKSPACES/kernels/.new-ID	one that is being made; nobody's
 *
 * An ID that is listed is complete: it was written and synced under the other name
 * and then renamed. Folders are 0700, files 0600. One process at a time works on
 * one ID, the caller sees to it (a session's turn).
 */
struct checkpoints {
	const struct ws_root *root; /* borrowed */
	int fd; /* of WORKSPACES/kernels; -1: closed */
};

int checkpoints_open(
    const struct ws_root *root, struct checkpoints *ret, struct err *e);
void checkpoints_close(struct checkpoints *cp);

/* Removes what an earlier life left half made. At the start of the runner. */
int checkpoints_sweep(const struct checkpoints *cp, struct err *e);

/* Calls fn for each checkpoint, without reading more than its stamp's size; bytes
 * is what it takes of the disk. Something else than 0 ends it and is returned. */
typedef int checkpoint_list_fn(void *arg, const char *id, uint64_t bytes);
int checkpoints_list(const struct checkpoints *cp, checkpoint_list_fn *fn,
    void *arg, struct err *e);

/* What its order said `about` it, appended to out; -EBADMSG: it is damaged. */
int checkpoint_about(const struct checkpoints *cp, const char *id,
    struct buf *out, struct err *e);

/* What one takes of the disk; -ENOENT: there is none. */
int checkpoint_bytes(
    const struct checkpoints *cp, const char *id, uint64_t *ret, struct err *e);

/* Gone in one step. That there is none is no failure. */
int checkpoint_remove(
    const struct checkpoints *cp, const char *id, struct err *e);

/* Only what is left of one that was being made, by who is dead. */
int checkpoint_remove_new(
    const struct checkpoints *cp, const char *id, struct err *e);

/* The checkpoint `from` under another id, too, which must not have one: a fork.
 * They share their bytes on the disk. */
int checkpoint_copy(const struct checkpoints *cp, const char *from,
    const char *to, struct err *e);

#define CHECKPOINT_ABOUT_MAX 65536u

/* ---- saving -------------------------------------------------------------- */

/* All borrowed until checkpoint_save_end(). */
struct checkpoint_order {
	const struct checkpoints *cp;
	const char *id;
	const struct sandbox *box;
	const char *platform; /* as in its sandbox_spec */
	const struct checkpoint_stamp *stamp; /* of when it was started */
	/* What its owner wants to know of the kernel after a restart: at most
	 * CHECKPOINT_ABOUT_MAX bytes, none of them secret. */
	struct blob about;
	uint64_t max_bytes; /* a larger one is ERR_QUOTA_EXCEEDED */
	/* What somebody has seen to that there is room for; a larger one, of a
	 * kernel that has grown since, is ERR_STORAGE_FULL. */
	uint64_t promised_bytes;
	uint64_t min_free_bytes; /* of the disk, else ERR_STORAGE_FULL */
	unsigned timeout_ms;
	/* A fork: the sandbox goes on afterwards, and its workspace as it was
	 * at that moment is copied. -1 both, or both directories of the host;
	 * copy_to is empty. */
	bool go_on;
	int copy_from;
	int copy_to;
	uint64_t copy_max_bytes;
};

struct save_state;

/* A save that is under way, in a process beside the supervisor. */
struct checkpoint_save {
	pid_t pid; /* -1: none */
	int pidfd;
	int fd; /* poll for POLLIN: then checkpoint_save_end() */
	uint64_t deadline_us; /* or when this has passed */
	bool undoing; /* it broke off; now the sandbox is made to go on */
	struct save_state *state; /* shared with that process */
	struct checkpoint_order order;
};

#define CHECKPOINT_SAVE_NONE                                        \
	{                                                           \
		.pid = -1, .pidfd = -1, .fd = -1, .deadline_us = 0, \
		.state = NULL                                       \
	}

struct checkpoint_saved {
	uint64_t bytes; /* of the disk */
	uint64_t pause_us; /* how long the program stood still (go_on) */
	struct ws_usage copied;
};

/*
 * Begins. No step may be running and what init sent must have been read. The
 * program stands still from now on.
 *
 * Success at the end: the checkpoint is on the disk; the sandbox stands still and
 * its owner kills it, or (go_on) it runs on. Failure: the old checkpoint of this
 * id is as it was, and the sandbox goes on as if nobody had tried: e->kind is
 * ERR_QUOTA_EXCEEDED, ERR_STORAGE_FULL, or ERR_KERNEL_UNSUPPORTED when gVisor
 * cannot save what the program holds (e->msg says what); else it is ours. -EBUSY:
 * there was not enough time.
 */
int checkpoint_save_begin(const struct checkpoint_order *o,
    struct checkpoint_save *ret, struct err *e);

/*
 * The result, when fd is readable or the deadline has passed; waits for the process
 * for a second at most, then kills it. -EINPROGRESS: it did not come to a result (a
 * disk that does not answer holds it, or somebody killed it), and another process
 * makes the sandbox go on: fd and deadline are new, call again. After anything else
 * *s is none. -EBUSY: there was not enough time, and the sandbox goes on.
 * -ETIMEDOUT: it is not known whether the sandbox still stands: kill it.
 * -EAGAIN: the sandbox stands still and nothing of it is saved yet; the save
 * goes on with checkpoint_save_answer().
 */
int checkpoint_save_end(
    struct checkpoint_save *s, struct checkpoint_saved *ret, struct err *e);

/* against: why it may not be saved as it stands, which becomes the save's
 * failure; NULL: it may. */
void checkpoint_save_answer(
    const struct checkpoint_save *s, const struct err *against);

/* Kills what is under way; takes one that never was. The sandbox may stand still:
 * kill it. */
void checkpoint_save_cancel(struct checkpoint_save *s);

/* ---- restoring ----------------------------------------------------------- */

/*
 * Looks whether the checkpoint can go on here and now (`now`: the stamp that a
 * sandbox started by this spec would have), and starts it in a fresh leaf: like
 * sandbox_start(), but the guest says nothing until it is sent PROTO_GUEST_RESTORED
 * and then PROTO_GUEST_KERNEL_READY. spec->workspace may be another directory with
 * the same content. Whoever gives the kernel a step removes the checkpoint before.
 *
 * -ENOENT: there is none. -ESTALE: it was made by or for something that is not here
 * any more; -EBADMSG: its files are not those that were saved; *e says what. Both
 * will be so for ever: the kernel is dead.
 */
int checkpoint_restore(const struct checkpoints *cp, const char *id,
    const struct sandbox_spec *spec, const struct checkpoint_stamp *now,
    struct leaf *leaf, struct sandbox *ret, struct err *e);

/* ---- inside: checkpoint*.c ------------------------------------------------ */

#define CHECKPOINT_STAMP "stamp"
#define CHECKPOINT_ABOUT "about"
#define CHECKPOINT_NAME_SIZE (LIMIT_ID + 8)

/* The name of one that is being made. */
void checkpoint_new_name(const char *id, char ret[CHECKPOINT_NAME_SIZE]);

/* An empty folder of that name; its descriptor. */
int checkpoint_begin(
    const struct checkpoints *cp, const char *name, struct err *e);

/* Syncs the folder and makes it the checkpoint of id, in one step. */
int checkpoint_commit(const struct checkpoints *cp, const char *name,
    int dir_fd, const char *id, struct err *e);

/* Removes a folder of that name: 1, or 0 when there is none. */
int checkpoint_discard(
    const struct checkpoints *cp, const char *name, struct err *e);

/* The path of one on the host; -ENAMETOOLONG. */
int checkpoint_path(
    const struct checkpoints *cp, const char *name, char ret[PATH_MAX]);

/* What the folder holds takes of the disk. */
int checkpoint_usage(int dir_fd, uint64_t *ret, struct err *e);

#endif
