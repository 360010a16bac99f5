/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WS_DIR_H
#define ISOBOX_WS_DIR_H

#include <stddef.h>
#include <sys/stat.h>

#include "lib/config.h"
#include "lib/err.h"
#include "lib/limits.h"
#include "lib/wsproto.h"

/*
 * Where workspaces are, and how a path in one is found. The kernel keeps us in it
 * (openat2, RESOLVE_BENEATH): nothing here looks at a link and believes it.
 *
 *	WORKSPACES/sessions/ID	/workspace of a session
 *	WORKSPACES/volumes/ID	/memory of sessions
 *	WORKSPACES/kernels/ID	a session's kernel on disk, see checkpoint.h
 *	WORKSPACES/staging	uploads, between whole and in their place
 *	WORKSPACES/trash	what is to be removed, one folder a removal
 *
 * What is in staging and trash is nobody's: whatever way we end, the next start
 * removes it.
 */
struct ws_root {
	const char *path;
	int fd; /* locked, so that there is one runner here */
	int kind_fd[WS_VOLUME + 1]; /* by enum ws_kind */
	int staging_fd;
	int trash_fd;
	uint64_t life; /* begins the names that this runner makes */
};

/* Opens the directory of the configuration and makes what lacks in it. EBUSY:
 * another runner has it. All descriptors are -1 before and after a failure. */
int ws_root_open(
    const struct config *c, uint64_t life, struct ws_root *ret, struct err *e);
void ws_root_close(struct ws_root *r);

/* A name that comes once in this life of the runner. */
#define WS_NAME_SIZE 64
void ws_unique(const struct ws_root *r, char name[WS_NAME_SIZE]);

/* "session" or "volume", and what a client is told when there is none. */
const char *ws_kind_word(enum ws_kind kind);
int ws_gone(enum ws_kind kind, struct err *e);

/* The directory of a workspace, O_RDONLY; ws_gone() when there is none. */
int ws_open(
    const struct ws_root *r, enum ws_kind kind, const char *id, struct err *e);

/*
 * Finds an existing file or folder, through links that stay inside: an O_PATH
 * descriptor, with which nothing was opened yet. path as path_fold() left it.
 * ERR_INVALID_PATH, ERR_NOT_FOUND.
 */
int ws_find(int ws_fd, const char *path, struct err *e);

/* Opens what ws_find() found for reading: a regular file or a folder, nothing
 * else (a FIFO, a socket or a device is ERR_INVALID_PATH and stays untouched). */
int ws_reopen(int path_fd, struct stat *ret, struct err *e);

/* The folder that a path's last component is in, O_PATH, and this component;
 * the component itself is not looked at. ERR_NOT_FOUND, ERR_INVALID_PATH. */
int ws_find_parent(int ws_fd, const char *path,
    char ret_name[LIMIT_NAME_COMPONENT + 1], struct err *e);

/*
 * Where a file that is written at path belongs: as ws_find_parent(), but through a
 * link that the last component is, and only where a regular file is or nothing
 * yet. With `make`, folders that lack are made; else -ENOENT when some do.
 */
int ws_find_target(int ws_fd, const char *path, bool make,
    char ret_name[LIMIT_NAME_COMPONENT + 1], struct err *e);

/* Becomes uid 0 of a new user namespace, in which only our own user is mapped:
 * so that the modes of files that are ours do not hold us up, and no others'. */
int ws_override_modes(struct err *e);

#endif
